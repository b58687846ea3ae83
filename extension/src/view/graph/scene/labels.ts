/** What is written on a node, and what is said about it. */

import { bytes, shorten, tensorType } from "../../dom/dom";
import type { Artifact, Compile, Graph, Node } from "../../model/record";

const LONGEST = 32;
/** The roles that have a colour, in the order of the legend. */
export const ROLES = ["primal", "tangent", "saved", "output", "gradient"];

/** The two lines of text on a node. */
export function labels(node: Node): [title: string, under: string] {
  const type = shorten(tensorType(node.dtype, node.shape), LONGEST);
  const name = shorten(node.key, LONGEST);
  if (node.op === "placeholder") return [name, type];
  if (node.op === "output") return ["output", ""];
  const title = shorten(operator(node.target), LONGEST);
  if (!type) return [title, name];
  return [title, name === title ? type : `${name}: ${type}`];
}

/** "aten.cos.default" as "cos", "operator.truediv" as "truediv". */
export function operator(target: string): string {
  const words = target.split(".");
  return words[0] === "aten" && words.length > 1 ? words[1] : words[words.length - 1];
}

/** What is written on a node, and more about it. */
export function description(node: Node, role: string): string {
  const size = node.bytes === null ? null : bytes(node.bytes);
  const facts = [
    labels(node).filter(Boolean).join(" "),
    node.op === "placeholder" ? "input" : node.op === "output" ? null : `${node.key} = ${node.target}`,
    [node.device, size].filter(Boolean).join(", "),
    node.module && `in ${node.module}`,
    role,
  ];
  return facts.filter(Boolean).join("\n");
}

/** Each node's role as the graph says, "saved" for what the partition saves, and "" for none. */
export function rolesOf(artifact: Artifact, graph: Graph, compile: Compile | null): string[] {
  const saved = new Set(compile?.partition?.values.filter((v) => v.decision === "saved").map((v) => v.node));
  return graph.nodes.map((n) => {
    if (saved.has(`${artifact.id}#${n.key}`)) return "saved";
    const role = n.role ?? (n.op === "output" ? "output" : "");
    return ROLES.includes(role) ? role : "";
  });
}

/** The texts of nodes: labels and descriptions. */

import { bytes, shorten, tensorType } from "../../dom/format";
import type { Artifact, Compile, Graph, Node } from "../../model/record/record";

const MAX_LABEL = 32;
/** The roles that have a colour, in the order of the legend. */
export const ROLES = ["primal", "tangent", "saved", "output", "gradient"];

/** Returns the two lines of text on a node; `called` is what the user calls an input. */
export function labels(node: Node, called = ""): [title: string, under: string] {
  const type = shorten(tensorType(node.dtype, node.shape), MAX_LABEL);
  const name = shorten(node.key, MAX_LABEL);
  if (node.op === "placeholder" && called) return [shorten(called, MAX_LABEL), `${name}: ${type}`];
  if (node.op === "placeholder") return [name, type];
  if (node.op === "output") return ["output", ""];
  const title = shorten(operator(node.target), MAX_LABEL);
  return [title, [name === title ? "" : name, type].filter(Boolean).join(": ")];
}

/** Shortens an operator's name: "aten.cos.default" to "cos", "operator.truediv" to "truediv". */
export function operator(target: string): string {
  const words = target.split(".");
  return words[0] === "aten" && words.length > 1 ? words[1] : words[words.length - 1];
}

/** Returns the description of a node for its tooltip and for screen readers, one fact per line. */
export function description(node: Node, role: string, called = ""): string {
  const size = node.bytes === null ? null : bytes(node.bytes);
  const facts = [
    labels(node).filter(Boolean).join(" "),
    called,
    definition(node),
    [node.device, size].filter(Boolean).join(", "),
    node.module && `in ${node.module}`,
    role,
  ];
  return facts.filter(Boolean).join("\n");
}

function definition({ op, key, target }: Node): string | null {
  if (op === "placeholder") return "input";
  return op === "output" ? null : `${key} = ${target}`;
}

/** Returns each node's role: "saved" if the partition saves it, or else the graph's role, or "" for none. */
export function rolesOf(artifact: Artifact, graph: Graph, compile: Compile | null): string[] {
  const saved = new Set(compile?.partition?.values.filter((v) => v.decision === "saved").map((v) => v.node));
  return graph.nodes.map((n) => {
    if (saved.has(`${artifact.id}#${n.key}`)) return "saved";
    const role = n.role ?? (n.op === "output" ? "output" : "");
    return ROLES.includes(role) ? role : "";
  });
}

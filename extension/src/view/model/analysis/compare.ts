/**
 * Compares two compiles of one record by the user's lines, as `two_runs/compare.py` compares two records.
 */

import { bytes, tensorType } from "../../dom/format";
import type { Comparison, Compile, Difference, ItemId, Node, Total } from "../record/record";
import { kernelCosts } from "./costs";
import { appendTo, keyOf, type Links } from "./links";
import { breakPlace } from "./problems";

type Fact = [aspect: Difference["aspect"], line: ItemId | null, text: string];

/** Returns the totals of both compiles, and the facts of each user line with whether they differ. */
export function compareCompiles(before: Compile, after: Compile, links: Links): Comparison {
  const [left, right] = [before, after].map((compile) => textsByPlace(factsOf(compile, links)));
  const places = [...new Set([...left.keys(), ...right.keys()])];
  const lines = places.map((place) => difference(place, left.get(place) ?? [], right.get(place) ?? [], links));
  return {
    before: before.id,
    after: after.id,
    totals: totals(before, after),
    lines,
    values: null,
    shared: [],
    notes: [],
    random: "",
    edit: null,
  };
}

/** Lists graph breaks, guards, operations, saved values and kernels, each with the user's line. */
function factsOf(compile: Compile, links: Links): Fact[] {
  const nodes = new Map<ItemId, Node>();
  const operations: Fact[] = [];
  for (const { id, pane, graph } of compile.artifacts) {
    if (pane !== "captured" && pane !== "forward" && pane !== "backward") continue;
    for (const node of graph?.nodes ?? []) {
      nodes.set(`${id}#${node.key}`, node);
      if (node.op.startsWith("call_")) operations.push([pane, links.userLine(`${id}#${node.key}`), describeNode(node)]);
    }
  }
  return [
    ...compile.breaks.map((b): Fact => ["graph break", breakPlace(b)?.line ?? null, b.kind]),
    ...compile.guards.map(({ line, code }): Fact => ["guard", line, code]),
    ...operations,
    ...(compile.partition?.values ?? [])
      .filter(({ decision }) => decision === "saved")
      .map(({ node, bytes: size }): Fact => {
        const saved = nodes.get(node);
        return [
          "saved",
          links.userLine(node),
          `${bytes(size)} ${tensorType(saved?.dtype ?? null, saved?.shape ?? null)}`,
        ];
      }),
    ...kernelCosts([compile], links).map(
      ({ kernel, lines }): Fact => ["kernel", lines[0] ?? null, `${kernel.graph} ${kernel.language} ${kernel.name}`],
    ),
  ];
}

function describeNode({ target, dtype, shape }: Node): string {
  return `${target} ${tensorType(dtype, shape)}`.trim();
}

/** Groups the texts by aspect and line. */
function textsByPlace(found: Fact[]): Map<string, string[]> {
  const places = new Map<string, string[]>();
  for (const [aspect, line, text] of found) appendTo(places, `${aspect}|${line ?? ""}`, text);
  return places;
}

function difference(place: string, before: string[], after: string[], links: Links): Difference {
  const aspect = place.slice(0, place.indexOf("|")) as Difference["aspect"];
  const item = place.slice(aspect.length + 1);
  return {
    aspect,
    file: links.artifactOf(item)?.name ?? "",
    line: item ? Number(keyOf(item)) : 0,
    text: item ? links.text(item) : "",
    state: stateOf(before, after),
    before,
    after,
  };
}

function stateOf(before: string[], after: string[]): Difference["state"] {
  if ([...before].sort().join("\n") === [...after].sort().join("\n")) return "same";
  if (!before.length) return "added";
  return after.length ? "changed" : "removed";
}

const TOTALS: [name: string, count: (compile: Compile) => number][] = [
  ["captured operations", (c) => operationCount(c, "captured")],
  ["guards", (c) => c.guards.length],
  ["graph breaks", (c) => c.breaks.length],
  ["saved bytes", (c) => c.partition?.saved_bytes ?? 0],
  ["kernels", (c) => c.kernels.filter((kernel) => kernel.language !== "extern").length],
  ["calls of PyTorch's kernels", (c) => c.kernels.filter((kernel) => kernel.language === "extern").length],
  ["symbolic sizes", (c) => c.symbols.filter((symbol) => symbol.became === null).length],
];

function operationCount(compile: Compile, pane: string): number {
  const nodes = compile.artifacts.filter((a) => a.pane === pane).flatMap((a) => a.graph?.nodes ?? []);
  return nodes.filter((node) => node.op.startsWith("call_")).length;
}

function totals(before: Compile, after: Compile): Total[] {
  return TOTALS.map(([name, count]) => ({ name, before: count(before), after: count(after) }));
}

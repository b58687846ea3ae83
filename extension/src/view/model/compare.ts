/** Two compiles of one record set against each other, by the user's lines: what compiler_core/records/compare.py does for records. */

import { bytes, tensorType } from "../dom/dom";
import { kernelCosts } from "./costs";
import { keyOf, type Links, push } from "./links";
import type { Comparison, Compile, Difference, ItemId, Node, Total } from "./record";

type Found = [aspect: Difference["aspect"], line: ItemId | null, text: string];

/** What `after` has that `before` has not, and the other way round. */
export function compareCompiles(before: Compile, after: Compile, links: Links): Comparison {
  const [left, right] = [before, after].map((compile) => byPlace(foundIn(compile, links)));
  const places = [...new Set([...left.keys(), ...right.keys()])];
  const lines = places.map((place) => difference(place, left.get(place) ?? [], right.get(place) ?? [], links));
  return { before: before.id, after: after.id, totals: totals(before, after), lines, values: null, shared: [] };
}

function foundIn(compile: Compile, links: Links): Found[] {
  const nodes = new Map<ItemId, Node>();
  const operations: Found[] = [];
  for (const { id, pane, graph } of compile.artifacts) {
    if (pane !== "captured" && pane !== "forward" && pane !== "backward") continue;
    for (const node of graph?.nodes ?? []) {
      nodes.set(`${id}#${node.key}`, node);
      if (node.op.startsWith("call_")) operations.push([pane, links.userLine(`${id}#${node.key}`), described(node)]);
    }
  }
  return [
    ...compile.breaks.map((met): Found => ["graph break", met.stack[met.stack.length - 1]?.line ?? null, met.kind]),
    ...compile.guards.map(({ line, code }): Found => ["guard", line, code]),
    ...operations,
    ...(compile.partition?.values ?? [])
      .filter(({ decision }) => decision === "saved")
      .map(({ node, bytes: size }): Found => {
        const saved = nodes.get(node);
        return [
          "saved",
          links.userLine(node),
          `${bytes(size)} ${tensorType(saved?.dtype ?? null, saved?.shape ?? null)}`,
        ];
      }),
    ...kernelCosts([compile], links).map(
      ({ kernel, lines }): Found => ["kernel", lines[0] ?? null, `${kernel.graph} ${kernel.language} ${kernel.name}`],
    ),
  ];
}

function described({ target, dtype, shape }: Node): string {
  return `${target} ${tensorType(dtype, shape)}`.trim();
}

/** Texts by aspect and line. */
function byPlace(found: Found[]): Map<string, string[]> {
  const places = new Map<string, string[]>();
  for (const [aspect, line, text] of found) push(places, `${aspect}|${line ?? ""}`, text);
  return places;
}

function difference(place: string, before: string[], after: string[], links: Links): Difference {
  const aspect = place.slice(0, place.indexOf("|")) as Difference["aspect"];
  const item = place.slice(aspect.length + 1);
  const same = [...before].sort().join("\n") === [...after].sort().join("\n");
  return {
    aspect,
    file: links.artifactOf(item)?.name ?? "",
    line: item ? Number(keyOf(item)) : 0,
    text: item ? links.text(item) : "",
    state: same ? "same" : !before.length ? "added" : !after.length ? "removed" : "changed",
    before,
    after,
  };
}

const COUNTS: [name: string, count: (compile: Compile) => number][] = [
  ["captured operations", (c) => operations(c, "captured")],
  ["guards", (c) => c.guards.length],
  ["graph breaks", (c) => c.breaks.length],
  ["saved bytes", (c) => c.partition?.saved_bytes ?? 0],
  ["kernels", (c) => c.kernels.filter((kernel) => kernel.language !== "extern").length],
  ["calls of PyTorch's kernels", (c) => c.kernels.filter((kernel) => kernel.language === "extern").length],
  ["symbolic sizes", (c) => c.symbols.filter((symbol) => symbol.became === null).length],
];

function operations(compile: Compile, pane: string): number {
  const nodes = compile.artifacts.filter((a) => a.pane === pane).flatMap((a) => a.graph?.nodes ?? []);
  return nodes.filter((node) => node.op.startsWith("call_")).length;
}

function totals(before: Compile, after: Compile): Total[] {
  return COUNTS.map(([name, count]) => ({ name, before: count(before), after: count(after) }));
}

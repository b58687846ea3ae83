/** The cut of the partition: the values saved for the backward, and the nodes that the backward computes. */

import { bytes, plural } from "../../dom/format";
import { keyOf } from "../../model/analysis/links";
import type { BudgetPoint, Compile, ItemId } from "../../model/record/record";
import type { IndexedGraph } from "./indexed_graph";

interface Cut {
  /** The saved nodes, with their bytes. */
  saved: Map<number, number>;
  /** The nodes that the backward computes or recomputes. */
  backward: Set<number>;
}

/**
 * Returns the cut of a joint graph that saves these nodes. The backward consists of the nodes that depend on tangents,
 * and of their inputs up to saved values.
 */
export function computeCut(graph: IndexedGraph, saved: ReadonlySet<number>): Cut {
  const backward = new Set<number>();
  const work = graph.nodes.flatMap((node, i) => (graph.isBackward[i] && node.op !== "output" ? [i] : []));
  for (let at = work.pop(); at !== undefined; at = work.pop()) {
    if (backward.has(at) || saved.has(at) || graph.nodes[at].op === "placeholder") continue;
    backward.add(at);
    work.push(...graph.inputs[at]);
  }
  return { saved: new Map([...saved].map((i) => [i, graph.nodes[i].bytes ?? 0])), backward };
}

/** Returns the nodes of a joint graph that the partition saves, or that another memory budget would save. */
export function savedNodes(graph: IndexedGraph, compile: Compile | null, budget: BudgetPoint | null): Set<number> {
  const values = compile?.partition?.values ?? [];
  const items: ItemId[] = budget?.saved ?? values.flatMap((v) => (v.decision === "saved" ? [v.node] : []));
  // the partition keeps the names of the joint graph's nodes
  const keys = new Set(items.map(keyOf));
  return new Set(graph.nodes.flatMap((node, i) => (keys.has(node.key) ? [i] : [])));
}

export function cutText({ saved }: Cut): string {
  const size = [...saved.values()].reduce((sum, own) => sum + own, 0);
  return `${plural(saved.size, "value")} saved, ${bytes(size)}`;
}

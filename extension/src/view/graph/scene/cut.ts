/** The partition's cut: which values cross from the forward to the backward, and what is computed again. */

import { bytes, plural } from "../../dom/dom";
import { keyOf } from "../../model/links";
import type { BudgetPoint, Compile, ItemId } from "../../model/record";
import type { Flow } from "./flow";

interface Cut {
  /** The nodes that are saved, and the bytes of each. */
  saved: Map<number, number>;
  /** What the backward computes, again or for the first time. */
  backward: Set<number>;
}

/**
 * The cut of a joint graph that saves these nodes: from what reads tangents, and from the gradients, upwards
 * as far as saved values.
 */
export function cutOf(flow: Flow, saved: ReadonlySet<number>): Cut {
  const backward = new Set<number>();
  const work = flow.nodes.flatMap((node, i) => (flow.late[i] && node.op !== "output" ? [i] : []));
  for (let at = work.pop(); at !== undefined; at = work.pop()) {
    if (backward.has(at) || saved.has(at) || flow.nodes[at].op === "placeholder") continue;
    backward.add(at);
    work.push(...flow.inputs[at]);
  }
  return { saved: new Map([...saved].map((i) => [i, flow.nodes[i].bytes ?? 0])), backward };
}

/** The nodes of a joint graph that are saved: by the partition, or by another budget. */
export function savedNodes(flow: Flow, compile: Compile | null, budget: BudgetPoint | null): Set<number> {
  const values = compile?.partition?.values ?? [];
  const items: ItemId[] = budget?.saved ?? values.flatMap((v) => (v.decision === "saved" ? [v.node] : []));
  // the partition keeps the names of the joint graph's nodes
  const keys = new Set(items.map(keyOf));
  return new Set(flow.nodes.flatMap((node, i) => (keys.has(node.key) ? [i] : [])));
}

export function cutText({ saved }: Cut): string {
  const size = [...saved.values()].reduce((sum, own) => sum + own, 0);
  return `${plural(saved.size, "value")} saved, ${bytes(size)}`;
}

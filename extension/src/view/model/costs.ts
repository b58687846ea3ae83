/** What each of the user's lines costs: its share of the time, or of the memory traffic, of the kernels it led to. */

import type { Links } from "./links";
import type { Compile, Record as CutawayRecord, ItemId, Kernel } from "./record";

export interface Cost {
  /** Bytes read and written. */
  bytes: number;
  /** Time on the device or CPU, where it was measured. */
  ns: number;
  /** Part of all, 0 to 1: of the time where every kernel was timed, else of the bytes. */
  share: number;
}

export interface KernelCost extends Cost {
  kernel: Kernel;
  compile: Compile;
  /** The graph nodes that it computes. */
  nodes: ItemId[];
  /** The user's lines that these came from. */
  lines: ItemId[];
}

export interface LineCost extends Cost {
  line: ItemId;
  kernels: KernelCost[];
}

/** Whether all kernels of a record were timed. */
export function timed(kernels: KernelCost[]): boolean {
  return kernels.length > 0 && kernels.every(({ kernel }) => kernel.time_ns !== null);
}

/** All kernels of the compiles, the dearest first. */
export function kernelCosts(compiles: Compile[], links: Links): KernelCost[] {
  const found = compiles.flatMap((compile) => compile.kernels.map((kernel) => kernelCost(kernel, compile, links)));
  return ranked(found, timed(found));
}

function kernelCost(kernel: Kernel, compile: Compile, links: Links): KernelCost {
  const fusion = compile.fusions.find((f) => f.kernel === kernel.key || f.kernel === kernel.name);
  const nodes = fusion?.nodes ?? (kernel.item === null ? [] : nodesAbove(kernel.item, links));
  const lines = (nodes.length ? nodes : [kernel.item ?? ""]).map((node) => links.userLine(node));
  return {
    kernel,
    compile,
    nodes,
    lines: [...new Set(lines)].filter((line) => line !== null),
    bytes: (kernel.bytes_read ?? 0) + (kernel.bytes_written ?? 0),
    ns: kernel.time_ns ?? 0,
    share: 0,
  };
}

/** The graph nodes nearest above an item. */
function nodesAbove(item: ItemId, links: Links): ItemId[] {
  const seen = new Set([item]);
  for (let level = [item]; level.length; ) {
    const nodes = level.filter((each) => links.artifactOf(each)?.graph);
    if (nodes.length) return nodes;
    level = level.flatMap((each) => links.sources(each)).filter((each) => !seen.has(each));
    for (const each of level) seen.add(each);
  }
  return [];
}

/** The user's lines by what the kernels they led to cost, the dearest first; a kernel of several lines is shared out. */
export function lineCosts(record: CutawayRecord, links: Links): LineCost[] {
  const kernels = kernelCosts(
    record.frames.flatMap((frame) => frame.compiles),
    links,
  );
  const costs = new Map<ItemId, LineCost>();
  for (const kernel of kernels) {
    for (const line of kernel.lines) {
      const cost = costs.get(line) ?? { line, bytes: 0, ns: 0, share: 0, kernels: [] };
      cost.bytes += kernel.bytes / kernel.lines.length;
      cost.ns += kernel.ns / kernel.lines.length;
      cost.kernels.push(kernel);
      costs.set(line, cost);
    }
  }
  return ranked([...costs.values()], timed(kernels));
}

function ranked<C extends Cost>(costs: C[], byTime: boolean): C[] {
  const measure = (cost: C) => (byTime ? cost.ns : cost.bytes);
  const all = costs.reduce((sum, cost) => sum + measure(cost), 0) || 1;
  for (const cost of costs) cost.share = measure(cost) / all;
  return costs.sort((a, b) => b.share - a.share);
}

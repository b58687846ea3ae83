/** The cost of each user line: the time, or else the memory traffic, of the kernels that were made from it. */

import { isUnread, summaryOf } from "../record/details";
import type { Compile, Record as CutawayRecord, ItemId, Kernel } from "../record/record";
import type { Links } from "./links";
import { pathWords } from "./module_path";
import { patternOf } from "./repeats";

export interface Cost {
  /** Bytes read and written. */
  bytes: number;
  /** Measured time in nanoseconds; 0 if it was not measured. */
  ns: number;
  /** Share of the total, 0 to 1: of the time if every kernel was timed, or else of the bytes. */
  share: number;
}

export interface KernelCost extends Cost {
  kernel: Kernel;
  compile: Compile;
  /** The graph nodes that it computes. */
  nodes: ItemId[];
  /** The user's lines that these nodes were made from. */
  lines: ItemId[];
}

export interface LineCost extends Cost {
  line: ItemId;
  kernels: KernelCost[];
}

/** The cost of a module, or of all modules whose paths differ in numbers only, such as the layers of a list. */
export interface ModuleCost extends Cost {
  /** Its path, with `*` for numbers: `layers.*.attn`. */
  path: string;
  /** Its name below the module around it. */
  name: string;
  depth: number;
  /** How many modules it stands for. */
  count: number;
  /** Nodes of its operations. */
  nodes: ItemId[];
}

/** Whether there are kernels and all of them were timed. */
export function allTimed(kernels: KernelCost[]): boolean {
  return kernels.length > 0 && kernels.every(({ kernel }) => kernel.time_ns !== null);
}

/** Returns all kernels of the compiles, the most expensive first. */
export function kernelCosts(compiles: Compile[], links: Links): KernelCost[] {
  const found = compiles.flatMap((compile) => {
    const isPacked = isUnread(compile);
    return compile.kernels.map((kernel, i) =>
      isPacked ? packedCost(kernel, compile, i) : kernelCost(kernel, compile, links),
    );
  });
  return rankByShare(found, allTimed(found));
}

/** The cost of a kernel of a compile whose details are not read: its nodes are not known, and its lines in the summary. */
function packedCost(kernel: Kernel, compile: Compile, number: number): KernelCost {
  const lines = summaryOf(compile).kernel_lines?.[number] ?? [];
  return { kernel, compile, nodes: [], lines, ...measured(kernel) };
}

function measured(kernel: Kernel): Cost {
  const bytes = (kernel.bytes_read ?? 0) + (kernel.bytes_written ?? 0);
  return { bytes, ns: kernel.time_ns ?? 0, share: 0 };
}

function kernelCost(kernel: Kernel, compile: Compile, links: Links): KernelCost {
  const fusion = compile.fusions.find((f) => f.kernel === kernel.key || f.kernel === kernel.name);
  const nodes = fusion?.nodes ?? (kernel.item === null ? [] : sourceNodes(kernel.item, links));
  const lines = (nodes.length ? nodes : [kernel.item ?? ""]).map((node) => links.userLine(node));
  return {
    kernel,
    compile,
    nodes,
    lines: [...new Set(lines)].filter((line) => line !== null),
    ...measured(kernel),
  };
}

/** Returns the graph nodes that an item was made from, those the fewest links away. */
function sourceNodes(item: ItemId, links: Links): ItemId[] {
  const seen = new Set([item]);
  for (let level = [item]; level.length; ) {
    const nodes = level.filter((each) => links.artifactOf(each)?.graph);
    if (nodes.length) return nodes;
    level = level.flatMap((each) => links.sources(each)).filter((each) => !seen.has(each));
    for (const each of level) seen.add(each);
  }
  return [];
}

/**
 * Returns the user's lines with kernels, the most expensive first. The cost of a kernel is divided equally among its
 * lines.
 */
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
  return rankByShare([...costs.values()], allTimed(kernels));
}

/** What a kernel computes, if it does so for a repeated module; else "". */
export function kernelPattern({ kernel, nodes }: KernelCost, links: Links): string {
  const pattern = patternOf(nodes, links);
  return pattern && `${kernel.graph} ${kernel.language}\n${pattern}`;
}

const MAX_MODULE_DEPTH = 4;

/** Something that nodes cost together. */
interface Part extends Omit<Cost, "share"> {
  nodes: ItemId[];
}

/**
 * Returns the modules of a model as a tree, each below the one around it, the most expensive first. The cost of a
 * part, such as a kernel, is divided equally among its nodes. `byTime`: shares are of the time, else of the bytes.
 */
export function moduleCosts(parts: Part[], links: Links, byTime: boolean): ModuleCost[] {
  const costs = new Map<string, ModuleCost & { paths: Set<string>; parent: string }>();
  const pathOf = (node: ItemId) => pathWords(links.node(node)?.module ?? null).slice(0, MAX_MODULE_DEPTH);
  const outer = outerPaths(parts.flatMap(({ nodes }) => nodes.map(pathOf)));
  const total = { bytes: 0, ns: 0 };
  for (const part of parts) {
    total.bytes += part.bytes;
    total.ns += part.ns;
    for (const node of part.nodes) {
      const words = pathOf(node);
      words.forEach((word, depth) => {
        // a list of modules is not a level by itself
        if (depth + 1 < words.length && /^\d+$/.test(words[depth + 1])) return;
        const own = words.slice(0, depth + 1);
        const pattern = own.map((each, i) =>
          outer.has(words.slice(0, i + 1).join(".")) ? each.replace(/(^|\.)\d+$/, "$1*") : each,
        );
        const path = pattern.join(".");
        const shown = /^\d+$/.test(word) && depth ? 2 : 1;
        const known = costs.get(path) ?? {
          ...{ path, name: pattern.slice(-shown).join("."), parent: pattern.slice(0, -shown).join(".") },
          ...{ depth: 0, count: 0, nodes: [], bytes: 0, ns: 0, share: 0, paths: new Set<string>() },
        };
        known.paths.add(own.join("."));
        known.bytes += part.bytes / part.nodes.length;
        known.ns += part.ns / part.nodes.length;
        known.nodes.push(node);
        costs.set(path, known);
      });
    }
  }
  const all = (byTime ? total.ns : total.bytes) || 1;
  const found: ModuleCost[] = [];
  const addBelow = (parent: string, depth: number) => {
    const inside = [...costs.values()].filter((cost) => cost.parent === parent);
    for (const cost of inside) cost.share = (byTime ? cost.ns : cost.bytes) / all;
    for (const { paths, parent: _, ...cost } of inside.sort((a, b) => b.share - a.share)) {
      found.push({ ...cost, depth, count: paths.size });
      addBelow(cost.path, depth + 1);
    }
  };
  addBelow("", 0);
  return found;
}

/** Returns the paths of modules that contain others. */
function outerPaths(paths: string[][]): Set<string> {
  return new Set(paths.flatMap((words) => words.slice(1).map((_, i) => words.slice(0, i + 1).join("."))));
}

/** Sets the shares, and sorts by them in descending order. */
function rankByShare<C extends Cost>(costs: C[], byTime: boolean): C[] {
  const measure = (cost: C) => (byTime ? cost.ns : cost.bytes);
  const all = costs.reduce((sum, cost) => sum + measure(cost), 0) || 1;
  for (const cost of costs) cost.share = measure(cost) / all;
  return costs.sort((a, b) => b.share - a.share);
}

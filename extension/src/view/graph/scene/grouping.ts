/** Groupings of nodes into collapsible groups: by module, layer, fusion group, or repeated block. */

import { appendTo } from "../../model/analysis/links";
import { pathWords } from "../../model/analysis/module_path";
import type { Compile, Node } from "../../model/record/record";
import type { IndexedGraph } from "./indexed_graph";

/** For each node its groups, the outermost first. */
export type Groups = string[][];

interface Grouping {
  name: string;
  title: string;
  of(graph: IndexedGraph, compile: Compile | null): Groups;
}

export const GROUPINGS: Grouping[] = [
  { name: "module", title: "Modules", of: (graph) => stackRepeats(graph, splitBackward(graph, byModule(graph))) },
  { name: "layer", title: "Layers", of: (graph) => splitBackward(graph, byLayer(graph)) },
  { name: "fusion", title: "Fusion groups", of: byFusion },
  { name: "repeat", title: "Repeated blocks", of: (graph) => repeatedBlocks(graph.nodes) },
];

/** The groups of one graph, computed on first use. */
export class Groupings {
  private readonly found = new Map<string, Groups>();

  constructor(
    private readonly graph: IndexedGraph,
    private readonly compile: Compile | null,
  ) {}

  /** Returns the groups of each node; an empty list if no grouping has this name. */
  of(name: string): Groups {
    const known = this.found.get(name) ?? GROUPINGS.find((g) => g.name === name)?.of(this.graph, this.compile) ?? [];
    this.found.set(name, known);
    return known;
  }

  /** Returns the groupings that group any node of this graph. */
  available(): Grouping[] {
    return GROUPINGS.filter((grouping) => this.of(grouping.name).some((own) => own.length));
  }
}

/** Returns the module of each node. An input that only one module reads, in forward or backward, is counted to it. */
function modules(graph: IndexedGraph): (string | null)[] {
  const own = graph.nodes.map((n) => n.module);
  return own.map((module, i) => {
    if (module !== null || graph.nodes[i].op !== "placeholder") return module;
    const readers = new Set(
      graph.users[i].filter((user) => graph.isBackward[user] === graph.isBackward[i]).map((user) => own[user]),
    );
    const [reader] = readers;
    return readers.size === 1 ? (reader ?? null) : null;
  });
}

/** Groups by module path: `L['self'].layers.0.mlp` is in `layers.0` and `layers.0.mlp`; `layers` itself is not a group. */
function byModule(graph: IndexedGraph): Groups {
  return modules(graph).map((module) => {
    const words = pathWords(module);
    const groups: string[] = [];
    for (let end = 1; end <= words.length; end++) {
      // an index belongs to the name before it
      if (end < words.length && /^\d+$/.test(words[end])) continue;
      groups.push(words.slice(0, end).join("."));
    }
    return groups;
  });
}

/** Groups by layer: an element of the outermost module list, or else a top-level module. */
function byLayer(graph: IndexedGraph): Groups {
  return modules(graph).map((module) => {
    const words = pathWords(module);
    const number = words.findIndex((word) => /^\d+$/.test(word));
    const layer = words.slice(0, number < 0 ? 1 : number + 1).join(".");
    return layer ? [layer] : [];
  });
}

/** In a joint graph, splits each group into a forward and a backward group. */
function splitBackward(graph: IndexedGraph, groups: Groups): Groups {
  if (!graph.isBackward.includes(1)) return groups;
  return groups.map((own, i) => (graph.isBackward[i] ? own.map((group) => `${group} (backward)`) : own));
}

/** Equal siblings are stacked if there are this many. */
const MIN_STACK = 3;

/**
 * Puts siblings that repeat the same operations, such as `layers.0` to `layers.11`, into one more group around them,
 * `layers.0–11 × 12`. The first and the last one may differ, and are then outside.
 */
export function stackRepeats(graph: IndexedGraph, groups: Groups): Groups {
  const signs = new Map<string, string>();
  const parents = new Map<string, string>();
  groups.forEach((own, i) => {
    const { op, target, dtype, shape } = graph.nodes[i];
    own.forEach((group, depth) => {
      parents.set(group, own[depth - 1] ?? "");
      // inputs are declared in another order than they are used in
      if (op !== "placeholder") signs.set(group, `${signs.get(group) ?? ""}${target} ${dtype} ${shape}\n`);
    });
  });
  const stacks = new Map<string, string>();
  for (const run of siblingRuns([...parents.keys()], parents, signs)) {
    const [, name, first, suffix] = numbered(run[0]) as RegExpExecArray;
    const last = Number(first) + run.length - 1;
    for (const group of run) stacks.set(group, `${name}.${first}–${last} × ${run.length}${suffix}`);
  }
  return groups.map((own) => own.flatMap((group) => [stacks.get(group) ?? [], group].flat()));
}

/** Splits `layers.3 (backward)` into the name, the number and the rest; null for a group without a number. */
function numbered(group: string): RegExpExecArray | null {
  return /^(.*)\.(\d{1,6})((?: \(backward\))?)$/.exec(group);
}

/** Returns the runs of at least MIN_STACK siblings with consecutive numbers and the same operations. */
function siblingRuns(all: string[], parents: Map<string, string>, signs: Map<string, string>): string[][] {
  const byName = new Map<string, string[]>();
  for (const group of all) {
    const parts = numbered(group);
    if (parts && signs.has(group)) appendTo(byName, [parents.get(group), parts[1], parts[3]].join("|"), group);
  }
  const number = (group: string) => Number(numbered(group)?.[2]);
  return [...byName.values()].flatMap((siblings) => {
    const runs: string[][] = [];
    for (const group of siblings.sort((a, b) => number(a) - number(b))) {
      const run = runs.at(-1);
      const last = run?.at(-1);
      const continues =
        last !== undefined && number(group) === number(last) + 1 && signs.get(group) === signs.get(last);
      if (run && continues) run.push(group);
      else runs.push([group]);
    }
    return runs.filter((run) => run.length >= MIN_STACK);
  });
}

function byFusion(graph: IndexedGraph, compile: Compile | null): Groups {
  const groups = new Map<string, string>();
  for (const fusion of compile?.fusions ?? []) {
    for (const node of fusion.nodes) groups.set(node, fusion.kernel ?? fusion.key);
  }
  return graph.items.map((item) => {
    const group = groups.get(item);
    return group === undefined ? [] : [group];
  });
}

const MIN_BLOCK = 6;
const MIN_REPEATS = 3;

/** Finds sequences of operations that are repeated consecutively at least three times; each repetition is a block. */
export function repeatedBlocks(nodes: Node[]): Groups {
  const signs = nodes.map((n) => (n.op === "placeholder" ? "" : `${n.target} ${n.dtype} ${n.shape}`));
  const periods = repeatDistances(signs);
  const groups: Groups = nodes.map(() => []);
  let blocks = 0;
  for (let start = 0; start < signs.length; ) {
    const period = periods[start];
    const same = period ? matchingLength(signs, start, period) : 0;
    const times = period ? Math.floor(same / period) + 1 : 1;
    if (times < MIN_REPEATS) {
      // later starts in this stretch with the same period find no more repetitions
      start++;
      while (start < nodes.length && periods[start] === period && start + period < nodes.length && same > 0) start++;
      continue;
    }
    for (let i = 0; i < times * period; i++) groups[start + i] = [`block ${blocks + Math.floor(i / period)}`];
    blocks += times;
    start += times * period;
  }
  return groups;
}

/** Returns how many operations from `start` on equal those `period` later. */
function matchingLength(signs: string[], start: number, period: number): number {
  let end = start;
  while (end + period < signs.length && signs[end] !== "" && signs[end] === signs[end + period]) end++;
  return end - start;
}

/** Returns for each position the distance to the next one with the same MIN_BLOCK operations; 0 if none or closer. */
function repeatDistances(signs: string[]): number[] {
  const numbers = new Map<string, number>();
  const codes = signs.map((sign) => {
    const known = numbers.get(sign) ?? numbers.size;
    numbers.set(sign, known);
    return known;
  });
  const next = new Map<number, number>();
  const found = new Array(signs.length).fill(0);
  for (let i = signs.length - MIN_BLOCK; i >= 0; i--) {
    let seed = 0; // a rolling hash; collisions are resolved when the operations are compared
    for (let at = i; at < i + MIN_BLOCK; at++) seed = (Math.imul(seed, 31) + codes[at]) | 0;
    const at = next.get(seed) ?? 0;
    if (signs[i] !== "" && at - i >= MIN_BLOCK) found[i] = at - i;
    next.set(seed, i);
  }
  return found;
}

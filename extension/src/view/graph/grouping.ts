/** Ways to gather nodes into groups that can be collapsed: by module, layer, fusion group, repeated block. */

import type { Compile, Node } from "../record";
import type { Flow } from "./flow";

/** For each node the groups that it is in, the outermost first. */
export type Groups = string[][];

export interface Grouping {
  name: string;
  title: string;
  of(flow: Flow, compile: Compile | null): Groups;
}

export const GROUPINGS: Grouping[] = [
  { name: "module", title: "Modules", of: (flow) => sided(flow, byModule(flow)) },
  { name: "layer", title: "Layers", of: (flow) => sided(flow, byLayer(flow)) },
  { name: "fusion", title: "Fusion groups", of: byFusion },
  { name: "repeat", title: "Repeated blocks", of: (flow) => repeats(flow.nodes) },
];

/** The module of each node; a parameter or input that one module reads (on its side) is that one's. */
function modules(flow: Flow): (string | null)[] {
  const own = flow.nodes.map((n) => n.module);
  return own.map((module, i) => {
    if (module !== null || flow.nodes[i].op !== "placeholder") return module;
    const readers = new Set(flow.users[i].filter((user) => flow.late[user] === flow.late[i]).map((user) => own[user]));
    const [reader] = readers;
    return readers.size === 1 ? (reader ?? null) : null;
  });
}

/** `L['self'].layers.0.mlp` is in `layers.0`, and in `layers.0.mlp`; what is not in the list of all is no group. */
function byModule(flow: Flow): Groups {
  return modules(flow).map((module) => {
    const words = path(module);
    const groups: string[] = [];
    for (let end = 1; end <= words.length; end++) {
      // a number belongs to the list before it
      if (end < words.length && /^\d+$/.test(words[end])) continue;
      groups.push(words.slice(0, end).join("."));
    }
    return groups;
  });
}

/** A layer is an element of the outermost list of modules; beside it, the modules at its level. */
function byLayer(flow: Flow): Groups {
  return modules(flow).map((module) => {
    const words = path(module);
    const number = words.findIndex((word) => /^\d+$/.test(word));
    const layer = words.slice(0, number < 0 ? 1 : number + 1).join(".");
    return layer ? [layer] : [];
  });
}

/** The words of a module's path below the model itself. */
function path(module: string | null): string[] {
  if (!module) return [];
  const at = module.lastIndexOf("]");
  return module
    .slice(at + 1)
    .split(".")
    .filter(Boolean);
}

/** In a joint graph a module has a forward and a backward part. */
function sided(flow: Flow, groups: Groups): Groups {
  if (!flow.late.includes(1)) return groups;
  return groups.map((own, i) => (flow.late[i] ? own.map((group) => `${group} (backward)`) : own));
}

function byFusion(flow: Flow, compile: Compile | null): Groups {
  const groups = new Map<string, string>();
  for (const fusion of compile?.fusions ?? []) {
    for (const node of fusion.nodes) groups.set(node, fusion.kernel ?? fusion.key);
  }
  return flow.items.map((item) => {
    const group = groups.get(item);
    return group === undefined ? [] : [group];
  });
}

const SEED = 6;
const LEAST_REPEATS = 3;

/**
 * Stretches of the graph's text that occur again and again in a row: the distance at which most operations
 * see the same operations again is the block's length.
 */
export function repeats(nodes: Node[]): Groups {
  const signs = nodes.map((n) => (n.op === "placeholder" ? "" : `${n.target} ${n.dtype} ${n.shape}`));
  const period = commonDistance(signs);
  const groups: Groups = nodes.map(() => []);
  if (!period) return groups;
  let block = 0;
  for (let start = 0; start < signs.length; ) {
    let end = start;
    while (end + period < signs.length && signs[end] !== "" && signs[end] === signs[end + period]) end++;
    const times = Math.floor((end - start) / period) + 1;
    if (times >= LEAST_REPEATS) {
      for (let i = start; i < start + times * period; i++)
        groups[i] = [`block ${block + Math.floor((i - start) / period)}`];
      block += times;
      start += times * period;
    } else start = end + 1;
  }
  return groups;
}

/** The distance between equal runs of a few operations that covers most of the graph, or 0. */
function commonDistance(signs: string[]): number {
  const last = new Map<string, number>();
  const votes = new Map<number, number>();
  for (let i = 0; i + SEED <= signs.length; i++) {
    if (signs[i] === "") continue;
    const seed = signs.slice(i, i + SEED).join("|");
    const before = last.get(seed);
    if (before !== undefined) votes.set(i - before, (votes.get(i - before) ?? 0) + 1);
    last.set(seed, i);
  }
  // of distances with nearly as many votes the longest is the whole block, a shorter one a part of it
  const most = Math.max(0, ...votes.values());
  const good = [...votes].filter(([distance, count]) => distance >= SEED && count >= 0.5 * most);
  return most ? Math.max(0, ...good.map(([distance]) => distance)) : 0;
}

/** Ways to gather nodes into groups that can be collapsed: by module, layer, fusion group, repeated block. */

import type { Compile, Node } from "../../model/record";
import type { Flow } from "./flow";

/** For each node the groups that it is in, the outermost first. */
export type Groups = string[][];

interface Grouping {
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

/** The groups of one graph, found when they are first asked for. */
export class Groupings {
  private readonly found = new Map<string, Groups>();

  constructor(
    private readonly flow: Flow,
    private readonly compile: Compile | null,
  ) {}

  /** None for a name that is no grouping's. */
  of(name: string): Groups {
    const known = this.found.get(name) ?? GROUPINGS.find((g) => g.name === name)?.of(this.flow, this.compile) ?? [];
    this.found.set(name, known);
    return known;
  }

  /** Those that gather anything here. */
  useful(): Grouping[] {
    return GROUPINGS.filter((grouping) => this.of(grouping.name).some((own) => own.length));
  }
}

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

/** A stranger's path may be of any length. */
const DEEPEST = 16;
const LONGEST = 1000;

/** The words of a module's path below the model itself; a number alone would say little without the model's name. */
function path(module: string | null): string[] {
  if (!module) return [];
  const at = module.lastIndexOf("]");
  const words = module
    .slice(at + 1, at + 1 + LONGEST)
    .split(".")
    .filter(Boolean)
    .slice(0, DEEPEST);
  const name = /\['([^']{1,40})'\]$/.exec(module.slice(0, at + 1))?.[1];
  return name && /^\d+$/.test(words[0] ?? "") ? [`${name}.${words[0]}`, ...words.slice(1)] : words;
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

/** Stretches of operations that follow one another at least three times, each time a block. */
export function repeats(nodes: Node[]): Groups {
  const signs = nodes.map((n) => (n.op === "placeholder" ? "" : `${n.target} ${n.dtype} ${n.shape}`));
  const periods = distances(signs);
  const groups: Groups = nodes.map(() => []);
  let blocks = 0;
  for (let start = 0; start < signs.length; ) {
    const period = periods[start];
    const same = period ? sameAgain(signs, start, period) : 0;
    const times = period ? Math.floor(same / period) + 1 : 1;
    if (times < LEAST_REPEATS) {
      // within this stretch the same distance would find no more
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

/** How many operations from `start` on are the same as those `period` later. */
function sameAgain(signs: string[], start: number, period: number): number {
  let end = start;
  while (end + period < signs.length && signs[end] !== "" && signs[end] === signs[end + period]) end++;
  return end - start;
}

/** From each place to the next where the same few operations begin, 0 where there is none, or too near. */
function distances(signs: string[]): number[] {
  const numbers = new Map<string, number>();
  const codes = signs.map((sign) => {
    const known = numbers.get(sign) ?? numbers.size;
    numbers.set(sign, known);
    return known;
  });
  const next = new Map<number, number>();
  const found = new Array(signs.length).fill(0);
  for (let i = signs.length - SEED; i >= 0; i--) {
    let seed = 0; // two seeds that share a number are told apart where the operations are compared
    for (let at = i; at < i + SEED; at++) seed = (Math.imul(seed, 31) + codes[at]) | 0;
    const at = next.get(seed) ?? 0;
    if (signs[i] !== "" && at - i >= SEED) found[i] = at - i;
    next.set(seed, i);
  }
  return found;
}

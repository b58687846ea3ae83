/** What of a graph is drawn: nodes and collapsed groups as boxes, and the edges that are left between them. */

import { plural, shorten } from "../../dom/dom";
import type { Box, Pair } from "../layout/layout";
import type { Flow } from "./flow";
import type { Groups } from "./grouping";
import { description, labels } from "./labels";

/** Widths of a character in the two lines of a box. */
const TITLE_WIDTH = 7;
const UNDER_WIDTH = 6.1;
const HEIGHT = 38;
const LONGEST = 40;

export interface Shown extends Box {
  /** The nodes that it stands for, as indices: one, or those of a collapsed group. */
  nodes: number[];
  /** The group that is collapsed here. */
  group: string | null;
  title: string;
  under: string;
  role: string;
}

export interface Scene {
  shown: Shown[];
  edges: Pair[];
  /** 1 for an edge that stands for ways through nodes that are left out. */
  bridge: Uint8Array;
  /** The box of each node, -1 where it is left out. */
  boxOf: Int32Array;
}

/** What a person chose to see. */
export interface Choice {
  /** For each node its groups, the outermost first. */
  groups: Groups;
  /** The groups that are expanded. */
  open: ReadonlySet<string>;
  /** The nodes that are shown; null: all. */
  only: ReadonlySet<number> | null;
}

export function makeScene(flow: Flow, roles: string[], choice: Choice): Scene {
  const shown: Shown[] = [];
  const boxOf = new Int32Array(flow.nodes.length).fill(-1);
  const groups = new Map<string, number>();
  flow.order.forEach((i) => {
    if (choice.only && !choice.only.has(i)) return;
    const group = choice.groups[i]?.find((g) => !choice.open.has(g)) ?? null;
    const known = group === null ? undefined : groups.get(group);
    if (known !== undefined) {
      shown[known].nodes.push(i);
      boxOf[i] = known;
      return;
    }
    boxOf[i] = shown.length;
    if (group !== null) groups.set(group, shown.length);
    shown.push(box(flow, roles, i, group));
  });
  for (const at of groups.values()) {
    const { nodes } = shown[at];
    // a group of one is that one
    if (nodes.length === 1) shown[at] = box(flow, roles, nodes[0], null);
    else fillGroup(shown[at], roles);
  }
  const bridged = choice.only ? bridges(flow, choice.only) : [];
  const [edges, bridge] = joined(boxOf, flow.edges, bridged);
  return { shown, edges, bridge, boxOf };
}

function box(flow: Flow, roles: string[], at: number, group: string | null): Shown {
  const node = flow.nodes[at];
  const [title, under] = group === null ? labels(node) : [shorten(group, LONGEST), ""];
  return { nodes: [at], group, title, under, role: group === null ? roles[at] : "", ...sizeOf(title, under) };
}

/** A box in words, more than is written on it. */
export function saidOf(flow: Flow, { nodes, group, title, under, role }: Shown): string {
  if (group === null) return description(flow.nodes[nodes[0]], role);
  return `${title}, collapsed: ${under}${role ? `\n${role}` : ""}`;
}

function fillGroup(own: Shown, roles: string[]): void {
  own.under = plural(own.nodes.length, "node");
  const kinds = new Set(own.nodes.map((i) => roles[i]));
  if (kinds.size === 1) [own.role] = kinds;
  Object.assign(own, sizeOf(own.title, own.under));
}

function sizeOf(title: string, under: string): Box {
  return { width: Math.max(48, 20 + Math.max(title.length * TITLE_WIDTH, under.length * UNDER_WIDTH)), height: HEIGHT };
}

/** The edges between different boxes, each once. */
function joined(boxOf: Int32Array, edges: Pair[], bridged: Pair[]): [Pair[], Uint8Array] {
  const seen = new Set<number>();
  const found: Pair[] = [];
  const isBridge: number[] = [];
  const add = (pairs: Pair[], mark: number) => {
    for (const [from, to] of pairs) {
      const [a, b] = [boxOf[from], boxOf[to]];
      const id = a * boxOf.length + b;
      if (a < 0 || b < 0 || a === b || seen.has(id)) continue;
      seen.add(id);
      found.push([a, b]);
      isBridge.push(mark);
    }
  };
  add(edges, 0);
  add(bridged, 1);
  return [found, Uint8Array.from(isBridge)];
}

const MOST_SOURCES = 2;

/** From each shown node to the next shown one below, through nodes that are left out: to the last few. */
function bridges(flow: Flow, only: ReadonlySet<number>): Pair[] {
  const found: Pair[] = [];
  const above: (number[] | undefined)[] = [];
  flow.nodes.forEach((_, i) => {
    const all = flow.inputs[i].flatMap((input) => (only.has(input) ? [input] : (above[input] ?? [])));
    const sources = [...new Set(all)].sort((a, b) => b - a).slice(0, MOST_SOURCES);
    if (!only.has(i)) above[i] = sources;
    else for (const source of sources) if (!flow.inputs[i].includes(source)) found.push([source, i]);
  });
  return found;
}

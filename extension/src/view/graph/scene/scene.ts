/** The scene of a graph: nodes and collapsed groups as boxes, and the edges between them. */

import { plural, shorten } from "../../dom/format";
import type { Box, Pair } from "../layout/layout";
import type { Groups } from "./grouping";
import type { IndexedGraph } from "./indexed_graph";
import { description, labels } from "./labels";

/** Widths of a character in the two lines of a box, in pixels. */
const TITLE_WIDTH = 7;
const SUBTITLE_WIDTH = 6.1;
/** The room that the plus sign of a collapsed group needs. */
const PLUS_WIDTH = 14;
const HEIGHT = 38;
const MAX_TITLE = 40;

export interface SceneBox extends Box {
  /** The indices of its nodes: one, or those of a collapsed group. */
  nodes: number[];
  /** The name of the collapsed group; null for a single node. */
  group: string | null;
  /** The expanded groups around it, the outermost first. */
  within: string[];
  title: string;
  subtitle: string;
  role: string;
}

export interface Scene {
  boxes: SceneBox[];
  edges: Pair[];
  /** 1 for an edge that stands for paths through hidden nodes. */
  isBridge: Uint8Array;
  /** The box of each node; -1 if it is hidden. */
  boxOf: Int32Array;
}

/** What is shown of a graph. */
export interface SceneOptions {
  /** For each node its groups, the outermost first. */
  groups: Groups;
  /** The groups that are expanded. */
  expanded: ReadonlySet<string>;
  /** The nodes that are shown; null shows all. */
  only: ReadonlySet<number> | null;
  /** For each parameter that is not drawn: the node that reads it, in whose box it is. */
  folded: ReadonlyMap<number, number>;
}

/** Builds the scene of a graph with the given options. */
export function makeScene(graph: IndexedGraph, roles: string[], choice: SceneOptions): Scene {
  const boxes: SceneBox[] = [];
  const boxOf = new Int32Array(graph.nodes.length).fill(-1);
  const groups = new Map<string, number>();
  graph.order.forEach((i) => {
    if ((choice.only && !choice.only.has(i)) || choice.folded.has(i)) return;
    const own = choice.groups[i] ?? [];
    const at = own.findIndex((g) => !choice.expanded.has(g));
    const group = at < 0 ? null : own[at];
    const within = at < 0 ? own : own.slice(0, at);
    const known = group === null ? undefined : groups.get(group);
    if (known !== undefined) {
      boxes[known].nodes.push(i);
      boxOf[i] = known;
      return;
    }
    boxOf[i] = boxes.length;
    if (group !== null) groups.set(group, boxes.length);
    boxes.push(createBox(graph, roles, i, group, within));
  });
  for (const at of groups.values()) {
    const { nodes } = boxes[at];
    // a group of a single node is shown as that node
    if (nodes.length === 1) boxes[at] = createBox(graph, roles, nodes[0], null, boxes[at].within);
    else fillGroup(boxes[at], roles);
  }
  for (const [parameter, reader] of choice.folded) fold(parameter, boxOf[reader] ?? -1, boxes, boxOf);
  const bridged = choice.only ? findBridges(graph, choice.only) : [];
  const [edges, isBridge] = collectEdges(boxOf, graph.edges, bridged);
  return { boxes, edges, isBridge, boxOf };
}

/** Adds a parameter to the box of the node that reads it. */
function fold(parameter: number, box: number, boxes: SceneBox[], boxOf: Int32Array): void {
  boxOf[parameter] = box;
  if (box >= 0) boxes[box].nodes.push(parameter);
}

function createBox(graph: IndexedGraph, roles: string[], at: number, group: string | null, within: string[]): SceneBox {
  const node = graph.nodes[at];
  const [title, under] = group === null ? labels(node, graph.names.get(at)) : [shorten(group, MAX_TITLE), ""];
  const role = group === null ? roles[at] : "";
  return { nodes: [at], group, within, title, subtitle: under, role, ...sizeOf(title, under) };
}

/** Returns the description of a box for its tooltip and for screen readers. */
export function describeBox(graph: IndexedGraph, { nodes, group, title, subtitle: under, role }: SceneBox): string {
  if (group === null) {
    const [node, ...parameters] = nodes.map((each) => graph.nodes[each]);
    const read = parameters.map((each) => `with ${labels(each).join(" ")}`);
    return [description(node, role, graph.names.get(nodes[0])), ...read].join("\n");
  }
  return `${title}, collapsed: ${under}${role ? `\n${role}` : ""}`;
}

function fillGroup(own: SceneBox, roles: string[]): void {
  own.subtitle = plural(own.nodes.length, "node");
  const kinds = new Set(own.nodes.map((i) => roles[i]));
  if (kinds.size === 1) [own.role] = kinds;
  Object.assign(own, sizeOf(own.title, own.subtitle, PLUS_WIDTH));
}

function sizeOf(title: string, under: string, beside = 0): Box {
  return {
    width: Math.max(48, 20 + beside + Math.max(title.length * TITLE_WIDTH, under.length * SUBTITLE_WIDTH)),
    height: HEIGHT,
  };
}

/** Returns the edges between different boxes without duplicates, and which of them are bridges. */
function collectEdges(boxOf: Int32Array, edges: Pair[], bridged: Pair[]): [Pair[], Uint8Array] {
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

const MAX_BRIDGE_SOURCES = 2;

/**
 * Returns edges that replace paths through hidden nodes: to each shown node from the last MAX_BRIDGE_SOURCES shown ones
 * above.
 */
function findBridges(graph: IndexedGraph, only: ReadonlySet<number>): Pair[] {
  const found: Pair[] = [];
  const above: (number[] | undefined)[] = [];
  graph.nodes.forEach((_, i) => {
    const all = graph.inputs[i].flatMap((input) => (only.has(input) ? [input] : (above[input] ?? [])));
    const sources = [...new Set(all)].sort((a, b) => b - a).slice(0, MAX_BRIDGE_SOURCES);
    if (!only.has(i)) above[i] = sources;
    else for (const source of sources) if (!graph.inputs[i].includes(source)) found.push([source, i]);
  });
  return found;
}

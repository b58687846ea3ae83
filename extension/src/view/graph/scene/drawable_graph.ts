/** The graphs that can be drawn: one graph of the record, or the forward and the backward graph side by side. */

import { bytes, tensorType } from "../../dom/format";
import { matchTexts } from "../../model/analysis/diff";
import { keyOf } from "../../model/analysis/links";
import type { Phase, TrainingStep } from "../../model/analysis/training_step";
import type { Artifact, Compile, Graph, ItemId, Node } from "../../model/record/record";
import type { State } from "../../model/state";
import { type Layout, layOut, type Pair } from "../layout/layout";
import { layOutSideBySide, type PageSplit } from "../layout/side_by_side";
import { computeCut, cutText, savedNodes } from "./cut";
import { IndexedGraph, pairsOf } from "./indexed_graph";
import { rolesOf } from "./labels";
import type { Scene } from "./scene";

/**
 * How the cut of a partition is drawn: which edges it crosses, the bytes on the boxes of saved values, and a summary.
 */
export interface CutDrawing {
  cuts: Uint8Array;
  notes: Map<number, string>;
  text: string;
}

export interface DrawableGraph {
  name: string;
  graph: IndexedGraph;
  /** The role of each node; "" for none. */
  roles: string[];
  compile: Compile | null;
  /** The parameters that one node reads, and that node. */
  parameters: ReadonlyMap<number, number>;
  layOut(scene: Scene): Promise<Layout>;
  cutOf(scene: Scene): CutDrawing | null;
  /** Of a training step: the phase of each node; undefined for inputs and the output. */
  phases?: (Phase | undefined)[];
  /** In a comparison of two graphs: the nodes that differ from the other graph or are missing there. */
  differing?: Differences;
}

type Differences = ReadonlyMap<number, "changed" | "only">;

export function drawableGraph(artifact: Artifact, graph: Graph, compile: Compile | null, state: State): DrawableGraph {
  const items = itemsOf(artifact, graph);
  const indexed = new IndexedGraph(graph.nodes, items, pairsOf(graph), undefined, namesOf(graph.nodes, items, state));
  const isCut = artifact.pane === "joint" && compile?.partition;
  return {
    name: artifact.name,
    graph: indexed,
    roles: rolesOf(artifact, graph, compile),
    compile,
    parameters: parametersOf(indexed, state),
    layOut: (scene) => layOutForwardFirst(indexed, scene),
    cutOf: (scene) => (isCut ? jointCut(indexed, compile, state, scene) : null),
  };
}

/** Names of parameters and buffers in graphs of stock torch.compile. */
const STOCK_PARAMETER = /_(parameters|buffers)_/;

/** Returns the inputs that are a module's parameters or buffers, or were made from one, and that only one node reads. */
function parametersOf(graph: IndexedGraph, { links }: State): Map<number, number> {
  const isParameter = (item: ItemId) => {
    const node = links.node(item);
    const isNamed = node?.role === "parameter" || node?.role === "buffer" || STOCK_PARAMETER.test(node?.key ?? "");
    return node?.op === "placeholder" && isNamed;
  };
  const readers = new Map<number, number>();
  graph.nodes.forEach(({ op }, i) => {
    if (op !== "placeholder" || graph.users[i].length !== 1) return;
    const item = graph.items[i];
    const [reader] = graph.users[i];
    const origins = [item, ...links.sources(item), links.captured(item) ?? item];
    if (graph.nodes[reader].op !== "output" && origins.some(isParameter)) readers.set(i, reader);
  });
  return readers;
}

/** What the user calls inputs: the name in the captured graph; the gradient with which the backward starts by its value. */
function namesOf(nodes: Node[], items: ItemId[], { links }: State): Map<number, string> {
  const names = new Map<number, string>();
  nodes.forEach(({ op, key, role }, i) => {
    if (op !== "placeholder") return;
    const origin = links.captured(items[i]);
    const name = origin === undefined ? "" : keyOf(origin);
    if (!name || name === key) return;
    if (role === "tangent") names.set(i, GIVEN.test(key) ? `has gradient of ${name}` : `gradient of ${name}`);
    else if (links.node(origin as ItemId)?.op === "placeholder") names.set(i, name);
  });
  return names;
}

/** The inputs of a backward that say whether a gradient was passed. */
const GIVEN = /^given_\d+$/;

/** Lays out a joint graph with the backward below the forward, although no edge leads from the forward to a tangent. */
async function layOutForwardFirst(indexed: IndexedGraph, scene: Scene): Promise<Layout> {
  const results = indexed.nodes.flatMap((node, i) => (node.op === "output" ? indexed.inputs[i] : []));
  const last = results.findLast((i) => !indexed.isBackward[i] && indexed.nodes[i].op !== "placeholder");
  const tangents = indexed.nodes.flatMap((node, i) => (node.role === "tangent" ? [i] : []));
  const unseen = tangents
    .map((tangent): Pair => [scene.boxOf[last ?? -1] ?? -1, scene.boxOf[tangent]])
    .filter(([from, to]) => from >= 0 && to >= 0 && from < to);
  const layout = await layOut(scene.boxes, [...scene.edges, ...unseen]);
  const seen = scene.edges.length;
  return { ...layout, edges: layout.edges.slice(0, seen), isLong: layout.isLong.slice(0, seen) };
}

function jointCut(indexed: IndexedGraph, compile: Compile, state: State, scene: Scene): CutDrawing {
  const cut = computeCut(indexed, savedNodes(indexed, compile, state.budget));
  const boxes = (nodes: Iterable<number>) => new Set([...nodes].map((node) => scene.boxOf[node]));
  const [crosses, reads] = [boxes(cut.saved.keys()), boxes(cut.backward)];
  const cuts = Uint8Array.from(scene.edges, ([from, to]) => (crosses.has(from) && reads.has(to) ? 1 : 0));
  return { cuts, notes: savedNotes(scene, cut.saved), text: `the cut: ${cutText(cut)}` };
}

/** Returns the bytes that each box saves, as text. */
function savedNotes(scene: Scene, saved: Map<number, number>): Map<number, string> {
  const notes = new Map<number, string>();
  scene.boxes.forEach(({ nodes }, box) => {
    const own = nodes.filter((node) => saved.has(node));
    if (own.length) notes.set(box, bytes(own.reduce((sum, node) => sum + (saved.get(node) ?? 0), 0)));
  });
  return notes;
}

/**
 * The forward on the left, drawn downwards, and the backward on the right, drawn upwards; saved values are edges
 * between them.
 */
export function forwardAndBackward(state: State): DrawableGraph {
  const [forward, backward] = forwardBackwardOf(state.compile) as [Artifact, Artifact];
  const [left, right] = [forward.graph as Graph, backward.graph as Graph];
  const first = left.nodes.length;
  const isBackward = Uint8Array.from([...left.nodes, ...right.nodes], (_, i) => (i < first ? 0 : 1));
  // edges from saved inputs to the output are omitted: the edges between the two graphs show the same
  const isHandedOver = ([from, to]: Pair) => left.nodes[to].op === "output" && left.nodes[from].op === "placeholder";
  const inner = [
    ...pairsOf(left).filter((pair) => !isHandedOver(pair)),
    ...pairsOf(right).map(([a, b]): Pair => [a + first, b + first]),
  ];
  const saved = savedPairs(left, right);
  const nodes = [...left.nodes, ...right.nodes];
  const items = [...itemsOf(forward, left), ...itemsOf(backward, right)];
  const indexed = new IndexedGraph(nodes, items, [...inner, ...saved], isBackward, namesOf(nodes, items, state));
  const sizes = new Map(saved.map(([node]) => [node, left.nodes[node].bytes ?? 0]));
  const isJoin = (scene: Scene, [from, to]: Pair) =>
    isBackward[scene.boxes[from].nodes[0]] !== isBackward[scene.boxes[to].nodes[0]];
  return {
    name: "forward and backward",
    graph: indexed,
    roles: [...rolesOf(forward, left, state.compile), ...rolesOf(backward, right, state.compile)],
    compile: state.compile,
    parameters: parametersOf(indexed, state),
    layOut: (scene) => {
      const pages: PageSplit = {
        isRight: (box) => isBackward[scene.boxes[box].nodes[0]] === 1,
        isUpwards: true,
        joins: (edge) => isJoin(scene, edge),
      };
      return layOutSideBySide(scene.boxes, scene.edges, pages);
    },
    cutOf: (scene) => ({
      cuts: Uint8Array.from(scene.edges, (edge) => (isJoin(scene, edge) ? 1 : 0)),
      notes: savedNotes(scene, sizes),
      text: cutText({ saved: sizes, backward: new Set() }),
    }),
  };
}

/**
 * A whole training step in one graph: the forward above, the backward below it, and the update of the parameters at the
 * right.
 */
export function stepGraph(step: TrainingStep, state: State): DrawableGraph {
  const [artifact] = step.graphs;
  const graph = artifact.graph as Graph;
  const items = itemsOf(artifact, graph);
  const phases = items.map((item) => step.phases.get(item));
  const isRight = (node: number) => phases[node] === "update";
  // what the step leaves behind is shown by its boxes; edges from the right to the output would cross the drawing
  const pairs = pairsOf(graph).filter(([from, to]) => !(isRight(from) && graph.nodes[to].op === "output"));
  const isBackward = Uint8Array.from(phases, (phase) => (phase === "backward" ? 1 : 0));
  const plain = new IndexedGraph(graph.nodes, items, pairs, isBackward);
  placeInputs(plain, phases);
  const nodes = withUpdatedModules(plain, phases, step);
  const indexed = new IndexedGraph(nodes, items, pairs, isBackward, namesOf(nodes, items, state));
  const isBoxRight = (scene: Scene, box: number) => isRight(scene.boxes[box].nodes[0]);
  return {
    name: "training step",
    graph: indexed,
    roles: rolesOf(artifact, graph, state.compile),
    compile: state.compile,
    parameters: parametersOf(indexed, state),
    phases,
    layOut: (scene) =>
      layOutSideBySide(scene.boxes, scene.edges, {
        isRight: (box) => isBoxRight(scene, box),
        isUpwards: false,
        joins: ([from, to]) => isBoxRight(scene, from) !== isBoxRight(scene, to),
      }),
    cutOf: () => null,
  };
}

/** Gives the inputs that only the update reads, such as the state of the optimizer, its phase. */
function placeInputs({ nodes, users }: IndexedGraph, phases: (Phase | undefined)[]): void {
  nodes.forEach(({ op }, i) => {
    const isRead = op === "placeholder" && users[i].length > 0;
    if (isRead && users[i].every((user) => phases[user] === "update")) phases[i] = "update";
  });
}

/**
 * Returns the nodes with the modules by which they are grouped: those of an update by the module of the parameter, below
 * `update`, and a parameter by the modules that read it in the forward and the backward.
 */
function withUpdatedModules(graph: IndexedGraph, phases: (Phase | undefined)[], step: TrainingStep): Node[] {
  const modules = graph.nodes.map((node, i) => (phases[i] === "update" ? "update" : node.module));
  const at = new Map(graph.items.map((item, i) => [item, i]));
  const isFree = (i: number) => modules[i] === "update";
  for (const { name, updates } of step.parameters) {
    const own = updates.flatMap((item) => at.get(item) ?? []);
    const words = name
      .replace(/^self\./, "")
      .replace(/\[(\d+)\]/g, ".$1")
      .split(".");
    const inputs = graph.inputs.map((from) => from.filter(isFree));
    for (const i of graph.reachable(own.filter(isFree), inputs))
      modules[i] = ["update", ...words.slice(0, -1)].join(".");
  }
  graph.nodes.forEach(({ op }, i) => {
    if (op !== "placeholder" || phases[i] === "update") return;
    const readers = new Set(graph.users[i].filter((user) => phases[user] !== "update").map((user) => modules[user]));
    if (readers.size === 1) modules[i] = [...readers][0];
  });
  return graph.nodes.map((node, i) => (node.module === modules[i] ? node : { ...node, module: modules[i] }));
}

/** Returns the forward and the backward graph of a compile, or null if it does not have both. */
export function forwardBackwardOf(compile: Compile | null): [Artifact, Artifact] | null {
  const [forward, backward] = ["forward", "backward"].map((pane) =>
    compile?.artifacts.find((a) => a.pane === pane && a.graph),
  );
  return forward && backward ? [forward, backward] : null;
}

/** Returns an edge for each saved value, from the forward's node to the backward's input. */
function savedPairs(left: Graph, right: Graph): Pair[] {
  const at = new Map(left.nodes.map((n, i) => [n.key, i]));
  return right.nodes.flatMap((node, i): Pair[] => {
    const from = at.get(node.key);
    return node.op === "placeholder" && from !== undefined ? [[from, left.nodes.length + i]] : [];
  });
}

/** Compares two graphs: returns the nodes that differ on each side, and the items of corresponding nodes. */
export function compareGraphs(artifacts: [Artifact, Artifact]): {
  nodes: [Differences, Differences];
  alignedItems: Map<ItemId, ItemId>;
} {
  const [left, right] = artifacts.map(({ graph }) => (graph as Graph).nodes);
  const items = artifacts.map((artifact) => itemsOf(artifact, artifact.graph as Graph));
  const matched = matchTexts(left.map(describeNode), right.map(describeNode));
  const taken = new Set(matched);
  // unmatched nodes with the same name correspond and are changed
  const named = new Map(right.flatMap((node, i) => (taken.has(i) ? [] : [[node.key, i] as const])));
  const leftDiffers = new Map<number, "changed" | "only">();
  const rightDiffers = new Map([...named.values()].map((i) => [i, "only" as "changed" | "only"]));
  const corresponding = new Map<ItemId, ItemId>();
  left.forEach((node, i) => {
    const other = matched[i] < 0 ? named.get(node.key) : matched[i];
    if (matched[i] < 0) leftDiffers.set(i, other === undefined ? "only" : "changed");
    if (other === undefined) return;
    if (matched[i] < 0) rightDiffers.set(other, "changed");
    corresponding.set(items[0][i], items[1][other]);
    corresponding.set(items[1][other], items[0][i]);
  });
  return { nodes: [leftDiffers, rightDiffers], alignedItems: corresponding };
}

function describeNode({ op, target, dtype, shape }: Node): string {
  return `${op} ${target} ${tensorType(dtype, shape)}`;
}

function itemsOf(artifact: Artifact, graph: Graph): string[] {
  return graph.nodes.map((n) => `${artifact.id}#${n.key}`);
}

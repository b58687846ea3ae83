/** What a drawing is of: one graph of the record, or the forward and backward as facing pages. */

import { bytes, tensorType } from "../../dom/dom";
import { match } from "../../model/diff";
import type { Artifact, Compile, Graph, ItemId, Node } from "../../model/record";
import type { State } from "../../model/state";
import { facing, type Pages } from "../layout/facing";
import { type Layout, layOut, type Pair } from "../layout/layout";
import { cutOf, cutText, savedNodes } from "./cut";
import { Flow, pairsOf } from "./flow";
import { rolesOf } from "./labels";
import type { Scene } from "./scene";

/** Edges that the partition cuts, what is written on boxes whose values cross, and a word about all. */
export interface Crossing {
  cuts: Uint8Array;
  notes: Map<number, string>;
  text: string;
}

export interface Subject {
  name: string;
  flow: Flow;
  /** Each node's role, "" for none. */
  roles: string[];
  compile: Compile | null;
  layOut(scene: Scene): Promise<Layout>;
  crossing(scene: Scene): Crossing | null;
  /** Beside another compile's graph: the nodes that are not so there, or not at all. */
  differing?: Differing;
}

type Differing = ReadonlyMap<number, "changed" | "only">;

export function oneGraph(artifact: Artifact, graph: Graph, compile: Compile | null, state: State): Subject {
  const flow = new Flow(graph.nodes, itemsOf(artifact, graph), pairsOf(graph));
  const isCut = artifact.pane === "joint" && compile?.partition;
  return {
    name: artifact.name,
    flow,
    roles: rolesOf(artifact, graph, compile),
    compile,
    layOut: (scene) => layOutInOrder(flow, scene),
    crossing: (scene) => (isCut ? crossJoint(flow, compile, state, scene) : null),
  };
}

/** The backward stands below the forward, though tangents read nothing of it. */
async function layOutInOrder(flow: Flow, scene: Scene): Promise<Layout> {
  const results = flow.nodes.flatMap((node, i) => (node.op === "output" ? flow.inputs[i] : []));
  const last = results.findLast((i) => !flow.late[i] && flow.nodes[i].op !== "placeholder");
  const tangents = flow.nodes.flatMap((node, i) => (node.role === "tangent" ? [i] : []));
  const unseen = tangents
    .map((tangent): Pair => [scene.boxOf[last ?? -1] ?? -1, scene.boxOf[tangent]])
    .filter(([from, to]) => from >= 0 && to >= 0 && from < to);
  const layout = await layOut(scene.shown, [...scene.edges, ...unseen]);
  const seen = scene.edges.length;
  return { ...layout, edges: layout.edges.slice(0, seen), long: layout.long.slice(0, seen) };
}

function crossJoint(flow: Flow, compile: Compile, state: State, scene: Scene): Crossing {
  const cut = cutOf(flow, savedNodes(flow, compile, state.budget));
  const boxes = (nodes: Iterable<number>) => new Set([...nodes].map((node) => scene.boxOf[node]));
  const [crosses, reads] = [boxes(cut.saved.keys()), boxes(cut.backward)];
  const cuts = Uint8Array.from(scene.edges, ([from, to]) => (crosses.has(from) && reads.has(to) ? 1 : 0));
  return { cuts, notes: savedNotes(scene, cut.saved), text: `the cut: ${cutText(cut)}` };
}

/** The bytes of what each box saves. */
function savedNotes(scene: Scene, saved: Map<number, number>): Map<number, string> {
  const notes = new Map<number, string>();
  scene.shown.forEach(({ nodes }, box) => {
    const own = nodes.filter((node) => saved.has(node));
    if (own.length) notes.set(box, bytes(own.reduce((sum, node) => sum + (saved.get(node) ?? 0), 0)));
  });
  return notes;
}

/** The forward on the left, downwards; the backward on the right, upwards; the saved values between them. */
export function facingPages(state: State): Subject {
  const [forward, backward] = pagesOf(state.compile) as [Artifact, Artifact];
  const [left, right] = [forward.graph as Graph, backward.graph as Graph];
  const first = left.nodes.length;
  const late = Uint8Array.from([...left.nodes, ...right.nodes], (_, i) => (i < first ? 0 : 1));
  // the output hands saved inputs over too: the lines between the pages say that
  const isHandedOver = ([from, to]: Pair) => left.nodes[to].op === "output" && left.nodes[from].op === "placeholder";
  const inner = [
    ...pairsOf(left).filter((pair) => !isHandedOver(pair)),
    ...pairsOf(right).map(([a, b]): Pair => [a + first, b + first]),
  ];
  const saved = savedPairs(left, right);
  const flow = new Flow(
    [...left.nodes, ...right.nodes],
    [...itemsOf(forward, left), ...itemsOf(backward, right)],
    [...inner, ...saved],
    late,
  );
  const sizes = new Map(saved.map(([node]) => [node, left.nodes[node].bytes ?? 0]));
  const isJoin = (scene: Scene, [from, to]: Pair) =>
    late[scene.shown[from].nodes[0]] !== late[scene.shown[to].nodes[0]];
  return {
    name: "forward and backward",
    flow,
    roles: [...rolesOf(forward, left, state.compile), ...rolesOf(backward, right, state.compile)],
    compile: state.compile,
    layOut: (scene) => {
      const pages: Pages = {
        isRight: (box) => late[scene.shown[box].nodes[0]] === 1,
        joins: (edge) => isJoin(scene, edge),
      };
      return facing(scene.shown, scene.edges, pages);
    },
    crossing: (scene) => ({
      cuts: Uint8Array.from(scene.edges, (edge) => (isJoin(scene, edge) ? 1 : 0)),
      notes: savedNotes(scene, sizes),
      text: cutText({ saved: sizes, backward: new Set() }),
    }),
  };
}

/** The forward and the backward graph of a compile, where it has both. */
export function pagesOf(compile: Compile | null): [Artifact, Artifact] | null {
  const [forward, backward] = ["forward", "backward"].map((pane) =>
    compile?.artifacts.find((a) => a.pane === pane && a.graph),
  );
  return forward && backward ? [forward, backward] : null;
}

/** Each saved value, from the forward's node to the backward's input. */
function savedPairs(left: Graph, right: Graph): Pair[] {
  const at = new Map(left.nodes.map((n, i) => [n.key, i]));
  return right.nodes.flatMap((node, i): Pair[] => {
    const from = at.get(node.key);
    return node.op === "placeholder" && from !== undefined ? [[from, left.nodes.length + i]] : [];
  });
}

/** Of two graphs, the nodes that differ on each side, and the items of those that stand for each other. */
export function differing(artifacts: [Artifact, Artifact]): {
  nodes: [Differing, Differing];
  twins: Map<ItemId, ItemId>;
} {
  const [left, right] = artifacts.map(({ graph }) => (graph as Graph).nodes);
  const items = artifacts.map((artifact) => itemsOf(artifact, artifact.graph as Graph));
  const matched = match(left.map(described), right.map(described));
  const taken = new Set(matched);
  // a node of the same name is the same one, changed
  const named = new Map(right.flatMap((node, i) => (taken.has(i) ? [] : [[node.key, i] as const])));
  const here = new Map<number, "changed" | "only">();
  const there = new Map([...named.values()].map((i) => [i, "only" as "changed" | "only"]));
  const twins = new Map<ItemId, ItemId>();
  left.forEach((node, i) => {
    const other = matched[i] < 0 ? named.get(node.key) : matched[i];
    if (matched[i] < 0) here.set(i, other === undefined ? "only" : "changed");
    if (other === undefined) return;
    if (matched[i] < 0) there.set(other, "changed");
    twins.set(items[0][i], items[1][other]);
    twins.set(items[1][other], items[0][i]);
  });
  return { nodes: [here, there], twins };
}

function described({ op, target, dtype, shape }: Node): string {
  return `${op} ${target} ${tensorType(dtype, shape)}`;
}

function itemsOf(artifact: Artifact, graph: Graph): string[] {
  return graph.nodes.map((n) => `${artifact.id}#${n.key}`);
}

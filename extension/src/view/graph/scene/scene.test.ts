import assert from "node:assert/strict";
import { test } from "node:test";
import { compileOf, node } from "../../model/record/testing";
import type { Pair } from "../layout/layout";
import { GROUPINGS, repeatedBlocks } from "./grouping";
import { IndexedGraph } from "./indexed_graph";
import { makeScene, type SceneOptions } from "./scene";

/** Three layers of `mm` and `relu` with one parameter each, then a head and an output. */
function model(): IndexedGraph {
  const nodes = [node("x", { op: "placeholder" })];
  const edges: Pair[] = [];
  let last = 0;
  for (const layer of [0, 1, 2]) {
    const module = `L['self'].layers.${layer}`;
    const at = nodes.length;
    nodes.push(node(`w${layer}`, { op: "placeholder" }));
    nodes.push(node(`mm${layer}`, { target: "aten.mm.default", module: `${module}.linear` }));
    nodes.push(node(`relu${layer}`, { target: "aten.relu.default", module }));
    edges.push([last, at + 1], [at, at + 1], [at + 1, at + 2]);
    last = at + 2;
  }
  nodes.push(node("head", { target: "aten.mm.default", module: "L['self'].head" }), node("output", { op: "output" }));
  edges.push([last, last + 1], [last + 1, last + 2]);
  return new IndexedGraph(
    nodes,
    nodes.map((n) => `0/0:g#${n.key}`),
    edges,
  );
}

const graph = model();
const all: SceneOptions = { groups: [], expanded: new Set(), only: null, folded: new Map() };
const roles = graph.nodes.map(() => "");
const grouping = (name: string) => GROUPINGS.find((g) => g.name === name)?.of(graph, null) ?? [];

function titles(choice: Partial<SceneOptions>): string[] {
  return makeScene(graph, roles, { ...all, ...choice }).boxes.map((box) => box.group ?? box.title);
}

test("every node is a box, in the graph's order", () => {
  const scene = makeScene(graph, roles, all);
  assert.deepEqual([...scene.boxOf], [...graph.nodes.keys()]);
  assert.deepEqual(scene.edges, graph.edges);
});

test("modules collapse with their parameters, and are expanded one by one", () => {
  const groups = grouping("module");
  assert.deepEqual(groups[1], ["layers.0–2 × 3", "layers.0", "layers.0.linear"]);
  assert.deepEqual(titles({ groups }), ["layers.0–2 × 3", "mm", "output"]);
  const open = new Set(["layers.0–2 × 3", "layers.1"]);
  assert.deepEqual(titles({ groups, expanded: open }), [
    "layers.0",
    "layers.1.linear",
    "relu",
    "layers.2",
    "mm",
    "output",
  ]);
  const scene = makeScene(graph, roles, { ...all, groups });
  assert.deepEqual(scene.edges, [
    [0, 1],
    [1, 2],
  ]);
  assert.equal(scene.boxes[0].subtitle, "10 nodes");
});

test("siblings that differ are not stacked with those that repeat", () => {
  const groups = ["a", "b", "b", "b", "c"].map((target, i) => ({ target, name: `h.${i}` }));
  const nodes = groups.map(({ target, name }) => node(name, { target, module: `L['m'].${name}` }));
  const chain = new IndexedGraph(
    nodes,
    nodes.map((n) => `#${n.key}`),
    nodes.slice(1).map((_, i): Pair => [i, i + 1]),
  );
  const found = GROUPINGS[0].of(chain, null);
  assert.deepEqual(found, [["h.0"], ["h.1–3 × 3", "h.1"], ["h.1–3 × 3", "h.2"], ["h.1–3 × 3", "h.3"], ["h.4"]]);
});

test("a parameter is in the box of the node that reads it", () => {
  const scene = makeScene(graph, roles, { ...all, folded: new Map([[1, 2]]) });
  assert.equal(scene.boxes.length, graph.nodes.length - 1);
  assert.deepEqual(scene.boxes[scene.boxOf[2]].nodes, [2, 1]);
  assert.deepEqual(scene.edges.slice(0, 2), [
    [0, 1],
    [1, 2],
  ]);
});

test("layers and repeated blocks are found", () => {
  assert.deepEqual(titles({ groups: grouping("layer") }), ["layers.0", "layers.1", "layers.2", "mm", "output"]);
  const ops = ["mm", "add", "relu", "view", "sum", "mul", "cos"];
  const nodes = Array.from({ length: 5 }, () => ops)
    .flat()
    .map((op, i) => node(`${op}${i}`, { target: `aten.${op}.default` }));
  const groups = repeatedBlocks([
    node("start", { target: "aten.sin.default" }),
    ...nodes,
    node("end", { target: "aten.tan.default" }),
  ]);
  assert.deepEqual(groups[0], []);
  assert.deepEqual(groups.at(-1), []);
  assert.equal(new Set(groups.slice(1, -1).flat()).size, 5);
  assert.ok(groups[1][0] === groups[7][0] && groups[7][0] !== groups[8][0]);
  assert.deepEqual(repeatedBlocks(graph.nodes.slice(0, 3)), [[], [], []]);
});

test("a fusion group takes its kernel's name", () => {
  const compile = compileOf("0/0", []);
  compile.fusions.push({
    key: "f0",
    kind: "pointwise",
    nodes: ["0/0:g#mm0", "0/0:g#relu0"],
    kernel: "forward_0",
    bytes_saved: 8,
  });
  const fused = GROUPINGS.find((g) => g.name === "fusion")?.of(graph, compile) ?? [];
  assert.ok(titles({ groups: fused }).includes("forward_0"));
});

test("in a joint graph a module has a forward and a backward part", () => {
  const nodes = [
    node("t", { op: "placeholder", role: "tangent" }),
    node("a", { module: "L['m'].layers.0" }),
    node("b", { module: "L['m'].layers.0" }),
  ];
  const joint = new IndexedGraph(nodes, ["#t", "#a", "#b"], [[0, 2]]);
  assert.deepEqual([...joint.isBackward], [1, 0, 1]);
  assert.deepEqual(GROUPINGS[0].of(joint, null).slice(1), [["layers.0"], ["layers.0 (backward)"]]);
});

test("neighbourhoods and paths", () => {
  const key = (found: Set<number>) => [...found].sort((a, b) => a - b).map((i) => graph.nodes[i].key);
  assert.deepEqual(key(graph.neighbourhood([2], 1)), ["x", "w0", "mm0", "relu0"]);
  assert.deepEqual(key(graph.nodesBetween([3], [6])), ["relu0", "mm1", "relu1"]);
  assert.deepEqual(key(graph.nodesBetween([6], [3])), ["relu0", "mm1", "relu1"]);
  assert.deepEqual(key(graph.nodesBetween([1], [4])), []);
});

test("hidden nodes are bridged", () => {
  const scene = makeScene(graph, roles, { ...all, only: new Set([2, 5, 8]) });
  assert.deepEqual(
    scene.boxes.map((box) => box.title),
    ["mm", "mm", "mm"],
  );
  assert.deepEqual(scene.edges, [
    [0, 1],
    [1, 2],
  ]);
  assert.deepEqual([...scene.isBridge], [1, 1]);
});

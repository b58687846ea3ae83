import assert from "node:assert/strict";
import { test } from "node:test";
import { layered } from "./layered";
import { type Box, fitsGraphviz, type Layout, layOut, type Pair } from "./layout";

/** Returns a deterministic random number generator. */
function chance(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1103515245 + 12345) & 0x7fffffff;
    return state / 0x7fffffff;
  };
}

function randomGraph(count: number, seed: number): [Box[], Pair[]] {
  const next = chance(seed);
  const boxes = Array.from({ length: count }, () => ({ width: 40 + Math.floor(next() * 150), height: 38 }));
  const edges: Pair[] = [];
  for (let to = 1; to < count; to++) {
    for (let n = 0; n < 1 + next() * 2; n++) edges.push([Math.max(0, to - 1 - Math.floor(next() ** 3 * 60)), to]);
  }
  return [boxes, edges];
}

function overlaps(boxes: Box[], { x, y }: Layout): number {
  const rows = new Map<number, number[]>();
  y.forEach((at, i) => {
    rows.set(at, [...(rows.get(at) ?? []), i]);
  });
  let found = 0;
  for (const row of rows.values()) {
    row.sort((a, b) => x[a] - x[b]);
    row.slice(1).forEach((box, i) => {
      if (x[box] - x[row[i]] < (boxes[box].width + boxes[row[i]].width) / 2 - 1e-6) found++;
    });
  }
  return found;
}

test("boxes do not overlap, are inside the drawing, and below their inputs", () => {
  for (const seed of [1, 2, 3]) {
    const [boxes, edges] = randomGraph(500, seed);
    const layout = layered(boxes, edges);
    assert.equal(overlaps(boxes, layout), 0);
    for (const [from, to] of edges) assert.ok(layout.y[to] >= layout.y[from] + 38, `${from} above ${to}`);
    boxes.forEach((box, i) => {
      assert.ok(layout.x[i] - box.width / 2 >= -1e-6 && layout.x[i] + box.width / 2 <= layout.width + 1e-6);
      assert.ok(layout.y[i] - 19 >= 0 && layout.y[i] + 19 <= layout.height);
    });
  }
});

test("an edge leads from the bottom of a box to the top of another, in complete curves", () => {
  const [boxes, edges] = randomGraph(200, 4);
  const { x, y, edges: drawn } = layered(boxes, edges);
  drawn.forEach((points, i) => {
    const [from, to] = edges[i];
    assert.equal(points.length % 6, 2);
    assert.deepEqual([...points.slice(0, 2)], [...Float32Array.of(x[from], y[from] + 19)]);
    assert.deepEqual([...points.slice(-2)], [...Float32Array.of(x[to], y[to] - 19)]);
  });
});

test("a chain is straight, and a parameter is next to its user's other input", () => {
  const boxes = Array.from({ length: 6 }, () => ({ width: 80, height: 38 }));
  // 1 is a parameter that 5 reads, far down the chain
  const { x, y } = layered(boxes, [
    [0, 2],
    [2, 3],
    [3, 4],
    [4, 5],
    [1, 5],
  ]);
  assert.equal(x[0], x[3]);
  assert.equal(y[1], y[4]);
});

test("cycles and edges to the same box are laid out", () => {
  const boxes = Array.from({ length: 3 }, () => ({ width: 80, height: 38 }));
  const layout = layered(boxes, [
    [0, 1],
    [1, 2],
    [2, 0],
    [1, 1],
  ]);
  assert.ok([...layout.x, ...layout.y, layout.width, layout.height].every(Number.isFinite));
  assert.equal(overlaps(boxes, layout), 0);
  assert.equal(layered([], []).height, 0);
});

test("an edge that spans the graph is marked as long and not bent", () => {
  const boxes = Array.from({ length: 400 }, () => ({ width: 80, height: 38 }));
  const chain = boxes.slice(1).map((_, i): Pair => [i, i + 1]);
  const { isLong: long } = layered(boxes, [...chain, [0, 399]]);
  assert.equal(long[399], 1);
  assert.equal(long.slice(0, 399).indexOf(1), -1);
});

test("a graph too large for Graphviz is laid out in linear time", async () => {
  const [boxes, edges] = randomGraph(20_000, 5);
  // CPU time, which does not depend on what else the machine runs
  const start = process.cpuUsage();
  const layout = await layOut(boxes, edges);
  const { user, system } = process.cpuUsage(start);
  assert.ok((user + system) / 1000 < 3000);
  assert.equal(overlaps(boxes, layout), 0);
});

test("long edges make a graph too large for Graphviz", () => {
  const boxes = Array.from({ length: 200 }, () => ({ width: 80, height: 38 }));
  const chain = boxes.slice(1).map((_, i): Pair => [i, i + 1]);
  const saved = boxes.slice(0, 100).map((_, i): Pair => [i, 199 - i]);
  assert.ok(fitsGraphviz(boxes, chain));
  assert.ok(!fitsGraphviz(boxes, [...chain, ...saved]));
});

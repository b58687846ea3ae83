import assert from "node:assert/strict";
import { test } from "node:test";
import type { NestLoop, Rewrite } from "../record/record";
import { drawnIndices, type IterationSpace, iterationSpace } from "./iteration_space";

function loop(index: string, end: number | string, more: Partial<NestLoop> = {}): NestLoop {
  const usual = { line: 0, parent: -1, index, start: 0, end, block: "", step: 1, size: 0, lanes: 0 };
  return { ...usual, is_threaded: false, is_vector: false, is_program: false, is_block: false, ...more };
}

/** A nest of loops that are directly inside each other. */
function nest(...loops: NestLoop[]): Rewrite {
  const inside = loops.map((each, at) => ({ ...each, parent: at - 1 }));
  return { text: "", reason: "", nest: "", statements: [], loops: inside };
}

const naive = nest(loop("i0", 3), loop("j0", 64));

function spaceOf(...loops: NestLoop[]): IterationSpace {
  const space = iterationSpace(nest(...loops), drawnIndices(naive));
  assert.ok(space);
  return space;
}

const startsOf = (units: { start: number }[] = []) => units.map(({ start }) => start);

test("serial loops visit one row after the other", () => {
  const { rows, columns, order, consecutive } = spaceOf(loop("i0", 3), loop("j0", 64));
  assert.deepEqual(startsOf(rows?.units), [0, 1, 2]);
  assert.deepEqual(startsOf(columns.units), [0, 1, 2, 3, 4, 5, 63]);
  assert.deepEqual(columns.units.map(({ afterGap }) => afterGap).indexOf(true), 6);
  assert.deepEqual(order[7], [1, 0]);
  assert.equal(consecutive, 6, "between 5 and 63 elements are left out");
});

test("a cell is a vector, and blocks are visited whole", () => {
  const tile = loop("j0_tile", 64, { step: 32 });
  const { columns, order, consecutive } = spaceOf(
    tile,
    loop("i0", 3),
    loop("j0", 64, { block: "j0_tile", size: 32, lanes: 16, is_vector: true }),
  );
  assert.deepEqual(startsOf(columns.units), [0, 16, 32, 48]);
  assert.deepEqual(
    columns.units.map(({ startsBlock }) => startsBlock),
    [false, false, true, false],
  );
  assert.equal(columns.units[0].size, 16);
  assert.equal(columns.block, 32);
  assert.deepEqual(order.slice(0, 4), [
    [0, 0],
    [0, 1],
    [1, 0],
    [1, 1],
  ]);
  assert.deepEqual(order[6], [0, 2], "the next block starts with the first row again");
  assert.equal(consecutive, 12);
});

test("the order is that of one iteration of the loop over threads", () => {
  const { rows, order } = spaceOf(loop("i0", 3, { is_threaded: true }), loop("j0", 64, { is_vector: true, lanes: 32 }));
  assert.deepEqual(rows?.own, [0, 1]);
  assert.deepEqual(order, [
    [0, 0],
    [0, 1],
  ]);
});

test("a reordered nest keeps its axes", () => {
  const { rows, columns, order } = spaceOf(loop("j0", 64), loop("i0", 3));
  assert.deepEqual([rows?.index, columns.index], ["i0", "j0"]);
  assert.deepEqual(order[1], [1, 0]);
});

test("vectors whose length the C++ compiler chooses are one cell for each block, and symbolic ends are open", () => {
  const vector = spaceOf(loop("i0", "s0"), loop("j0", 64, { is_vector: true }));
  assert.deepEqual(vector.columns.units, [{ start: 0, size: 64, startsBlock: false, afterGap: false }]);
  assert.equal(vector.rows?.isOpen, true);
  assert.deepEqual(startsOf(vector.rows?.units), [0, 1, 2, 3, 4, 5, 6]);
  const symbolic = spaceOf(loop("i0", 3), loop("j0", "s0", { is_vector: true }));
  assert.equal(symbolic.columns.units[0].size, Number.POSITIVE_INFINITY);
});

test("the last part of a range may be smaller", () => {
  const { columns } = spaceOf(loop("i0", 3), loop("j0", 50, { is_vector: true, lanes: 16 }));
  assert.deepEqual(columns.units.at(-1), { start: 48, size: 2, startsBlock: false, afterGap: false });
});

test("a program of a GPU has a block, of loops that were fused", () => {
  const { rows, columns, order } = spaceOf(
    loop("i_tile", 192, { step: 64, is_program: true }),
    loop("i", 192, { block: "i_tile", size: 64, is_block: true }),
  );
  assert.equal(rows, null);
  assert.deepEqual([columns.index, ...startsOf(columns.units)], ["i", 0, 64, 128]);
  assert.deepEqual(columns.own, [0, 64]);
  assert.deepEqual(order, [[0, 0]]);
});

test("a nest without loops has no iteration space, nor has one whose loops are in a circle or too deep", () => {
  assert.equal(iterationSpace(nest(), drawnIndices(nest())), null);
  const circle = { ...nest(), loops: [loop("i0", 3, { parent: 1 }), loop("j0", 3, { parent: 0 })] };
  assert.deepEqual(drawnIndices(circle), ["i0", "j0"]);
  const deep = nest(...Array.from({ length: 30 }, (_, n) => loop(`i${n}`, 2)));
  assert.equal(iterationSpace(deep, drawnIndices(deep)), null);
});

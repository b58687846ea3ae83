import assert from "node:assert/strict";
import { test } from "node:test";
import { heightsOf, panesPerColumn } from "./pane_area";

test("each pane has its own column while there are enough, else the last columns have more", () => {
  assert.deepEqual(panesPerColumn(2, 4), [1, 1]);
  assert.deepEqual(panesPerColumn(3, 2), [1, 2]);
  assert.deepEqual(panesPerColumn(4, 3), [1, 1, 2]);
  assert.deepEqual(panesPerColumn(4, 2), [2, 2]);
  assert.deepEqual(panesPerColumn(3, 1), [3]);
});

test("where a column is too low for all panes, the one that was opened last has the place", () => {
  const [drawing, kernel, answer] = [240, 125, 420].map((least) => ({ least, weight: 1 }));
  const sum = (heights: number[]) => heights.reduce((all, height) => all + height, 0);
  assert.deepEqual(heightsOf([drawing, answer], 540, 1), [29, 511]);
  assert.deepEqual(heightsOf([drawing, kernel], 200, -1), [29, 171]);
  const both = heightsOf([drawing, kernel], 565, -1);
  assert.deepEqual(both, [340, 225]);
  assert.equal(sum(heightsOf([drawing, kernel, answer], 500, 0)), 500);
});

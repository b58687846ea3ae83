import assert from "node:assert/strict";
import { test } from "node:test";
import { panesPerColumn } from "./pane_area";

test("each pane has its own column while there are enough, else the last columns have more", () => {
  assert.deepEqual(panesPerColumn(2, 4), [1, 1]);
  assert.deepEqual(panesPerColumn(3, 2), [1, 2]);
  assert.deepEqual(panesPerColumn(4, 3), [1, 1, 2]);
  assert.deepEqual(panesPerColumn(4, 2), [2, 2]);
  assert.deepEqual(panesPerColumn(3, 1), [3]);
});

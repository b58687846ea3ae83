import assert from "node:assert/strict";
import test from "node:test";
import type { Frame } from "../model/record";
import { recordOf } from "../model/testing";
import { families } from "./tree";

function frames(resumes: (string | null)[]): Frame[] {
  return resumes.map((from, id) => ({ ...recordOf([], []).frames[0], id, resumes: from }));
}

function ids(found: Frame[][]): number[][] {
  return found.map((family) => family.map((frame) => frame.id));
}

test("a frame stands with those that resume it, and those that resume them", () => {
  assert.deepEqual(ids(families(frames([null, "0/0", null, "1/0", "2/1"]))), [
    [0, 1, 3],
    [2, 4],
  ]);
});

test("frames that resume one another, or none, are their own beginning", () => {
  assert.deepEqual(ids(families(frames(["1/0", "1/0", "7/0"]))), [[0], [1], [2]]);
});

test("a long chain is one family, found in one pass", () => {
  const chain = frames(Array.from({ length: 20_000 }, (_, id) => (id ? `${id - 1}/0` : null)));
  assert.equal(families(chain)[0].length, 20_000);
});

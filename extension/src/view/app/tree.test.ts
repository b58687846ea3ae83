import assert from "node:assert/strict";
import test from "node:test";
import type { Frame } from "../model/record/record";
import { recordOf } from "../model/record/testing";
import { groupByFirstFrame } from "./tree";

function frames(resumes: (string | null)[]): Frame[] {
  return resumes.map((from, id) => ({ ...recordOf([], []).frames[0], id, resumes: from }));
}

function ids(found: Frame[][]): number[][] {
  return found.map((group) => group.map((frame) => frame.id));
}

test("resume functions are grouped with the first frame, also those that resume a resume function", () => {
  assert.deepEqual(ids(groupByFirstFrame(frames([null, "0/0", null, "1/0", "2/1"]))), [
    [0, 1, 3],
    [2, 4],
  ]);
});

test("frames that resume one another, or a missing frame, start their own group", () => {
  assert.deepEqual(ids(groupByFirstFrame(frames(["1/0", "1/0", "7/0"]))), [[0], [1], [2]]);
});

test("a long chain is one group, found in linear time", () => {
  const chain = frames(Array.from({ length: 20_000 }, (_, id) => (id ? `${id - 1}/0` : null)));
  assert.equal(groupByFirstFrame(chain)[0].length, 20_000);
});

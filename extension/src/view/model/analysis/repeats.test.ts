import assert from "node:assert/strict";
import { test } from "node:test";
import { groupRepeats, modulePattern } from "./repeats";

test("values of three or more repeated modules are one group, in the place of the first", () => {
  const values = ["layers.0", "head", "layers.1", "norm.0", "layers.2", "norm.1"];
  const groups = groupRepeats(values, (value) => (/\d/.test(value) ? modulePattern(value) : ""));
  assert.deepEqual(groups, [["layers.0", "layers.1", "layers.2"], ["head"], ["norm.0"], ["norm.1"]]);
});

test("numbers of modules are stars", () => {
  assert.equal(modulePattern("L['self'].layers.12.attn.k2"), "layers.*.attn.k2");
  assert.equal(modulePattern(null), "");
});

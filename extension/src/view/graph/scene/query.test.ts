import assert from "node:assert/strict";
import { test } from "node:test";
import { node } from "../../model/record/testing";
import { parseQuery } from "./query";

const mm = node("mm_1", {
  target: "aten.mm.default",
  shape: [8, 10],
  dtype: "float32",
  module: "L['self'].layers.0.mlp",
});

function fits(text: string, line: string | null = "src:0#12"): boolean | undefined {
  return parseQuery(text)?.(mm, () => line);
}

test("words are searched in names and operators", () => {
  assert.ok(fits("mm"));
  assert.ok(fits("MM_1"));
  assert.ok(fits("aten mm"));
  assert.ok(!fits("mm add"));
  assert.ok(!fits("torch::mm"));
});

test("a property is searched by its name", () => {
  for (const text of ["op:mm", "shape:[8,10]", "shape:[8, 10]", "shape:8x10", "shape:[*,10]", "shape:10"])
    assert.ok(fits(text), text);
  for (const text of ["dtype:f32", "dtype:float32", "module:layers.0", "line:12", "op:mm dtype:f32 line:12"])
    assert.ok(fits(text), text);
  for (const text of ["op:add", "shape:[8]", "shape:[10,8]", "shape:11", "dtype:f", "module:layers.1", "line:1"])
    assert.ok(!fits(text), text);
  assert.ok(!fits("line:12", null));
});

test("an empty query is null", () => {
  assert.equal(parseQuery(""), null);
  assert.equal(parseQuery("   "), null);
});

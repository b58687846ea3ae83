import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, duration, plural, tensorType } from "./dom";

test("sizes and times are short and keep two or three digits", () => {
  assert.deepEqual([0, 999, 1234, 40_000, 999_999, 3.2e9, 5e13].map(bytes), [
    "0 B",
    "999 B",
    "1.2 KB",
    "40.0 KB",
    "1.0 MB",
    "3.2 GB",
    "50.0 TB",
  ]);
  assert.deepEqual([12, 1500, 2.5e6, 3e9].map(duration), ["12 ns", "1.50 µs", "2.50 ms", "3.00 s"]);
});

test("a tensor's type is written as PyTorch prints it", () => {
  assert.equal(tensorType("float32", [8, "s0"]), "f32[8, s0]");
  assert.equal(tensorType("bfloat16", []), "bf16[]");
  assert.equal(tensorType("bool", [2]), "bool[2]");
  assert.equal(tensorType(null, null), "");
});

test("one is not many", () => {
  assert.deepEqual([plural(1, "graph"), plural(2, "graph"), plural(1, "is", "are")], ["1 graph", "2 graphs", "1 is"]);
});

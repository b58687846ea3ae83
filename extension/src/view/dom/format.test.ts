import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, duration, percent, plural, quantity, readable, tensorType } from "./format";

test("sizes and times are short", () => {
  assert.deepEqual([0, 1023, 2048, 40_000, 5e13].map(bytes), ["0 B", "1023 B", "2.0 KiB", "39.1 KiB", "45.5 TiB"]);
  assert.deepEqual([12, 1500, 2.5e6, 3e9].map(duration), ["12 ns", "1.50 µs", "2.50 ms", "3.00 s"]);
});

test("a share is neither none nor all of a sum where it is not", () => {
  assert.deepEqual([0, 1e-4, 0.006, 0.384, 0.996, 1].map(percent), ["0 %", "<1 %", "1 %", "38 %", ">99 %", "100 %"]);
  assert.equal(percent(0.1 + 0.2 + 0.3 + 0.4 - 1e-15), "100 %");
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

test("what is formatted can be compared again", () => {
  assert.deepEqual(["0 B", "2.0 KiB", "1,024 B"].map(quantity), [0, 2048, 1024]);
  assert.deepEqual([12, 1500, 2.5e6].map(duration).map(quantity), [12, 1500, 2.5e6]);
  assert.deepEqual(["+41.9 µs", "12 %", "1.38x", "2.00 M", "<1 %"].map(quantity), [41_900, 12, 1.38, 2e6, 1]);
  assert.deepEqual(["not timed", "", "7 nodes", "forward_0"].map(quantity), [null, null, null, null]);
});

test("sources are written as the user writes them", () => {
  assert.equal(readable("L['x'].size()[0] == G['y'].stride()[1]"), "x.size(0) == y.stride(1)");
  assert.equal(readable("abs((1 - G['b'][0])) <= 1.7976931348623157e+308"), "abs((1 - b[0])) is finite");
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { compileOf, recordOf } from "../record/testing";
import { COLOURS, keyOf, Links } from "./links";

const lines = Array.from({ length: COLOURS + 1 }, (_, i) => String(i + 10));
const compile = compileOf("0/0", [
  ["0/0:captured#cos", ["src:0#10"]],
  ["0/0:captured#mul", ["0/0:captured#x", "src:0#11"]],
  ["0/0:forward#cos", ["0/0:captured#cos"]],
  ["0/0:kernel#1", ["0/0:forward#cos"]],
  ["0/0:kernel#2", ["0/0:forward#cos", "0/0:captured#mul"]],
  // an untrusted record may have cycles
  ["0/0:forward#a", ["0/0:forward#b"]],
  ["0/0:forward#b", ["0/0:forward#a"]],
  ...lines.slice(2).map((line): [string, string[]] => [`0/0:captured#${line}`, [`src:0#${line}`]]),
]);
const links = new Links(recordOf(lines, [compile]));

test("an item is linked to what it was made from and to what was made from it, but not to its siblings", () => {
  assert.deepEqual(
    links.linked(["0/0:forward#cos"]),
    new Set(["0/0:forward#cos", "0/0:captured#cos", "src:0#10", "0/0:kernel#1", "0/0:kernel#2"]),
  );
  assert.ok(!links.linked(["0/0:kernel#1"]).has("0/0:kernel#2"));
  assert.equal(links.linked(["0/0:forward#a"]).size, 2);
  assert.deepEqual(links.linked([]), new Set());
});

test("the user's line is the one fewest links away", () => {
  assert.equal(links.userLine("0/0:kernel#1"), "src:0#10");
  assert.equal(links.userLine("0/0:kernel#2"), "src:0#11");
  assert.equal(links.userLine("src:0#10"), "src:0#10");
  assert.equal(links.userLine("0/0:forward#a"), null);
});

test("an item has the colour of its user's line, and neighbouring lines differ", () => {
  assert.equal(links.colour("0/0:kernel#1"), links.colour("src:0#10"));
  assert.notEqual(links.colour("src:0#10"), links.colour("src:0#11"));
  assert.equal(links.colour("src:0#10"), links.colour(`src:0#${10 + COLOURS}`));
  assert.equal(links.colour("0/0:forward#a"), null);
});

test("a guard is linked to the line that made it", () => {
  const guarded = compileOf("0/0", []);
  guarded.artifacts.push({
    id: "0/0:guards",
    pane: "guards",
    name: "guards",
    language: "python",
    text: "",
    spans: [],
    graph: null,
  });
  guarded.guards.push({
    key: "g0",
    kind: "TYPE",
    source: "x",
    code: "",
    expected: "",
    line: "src:0#12",
    cost_ns: null,
    dropped: false,
    sizes: null,
    name: "",
    meaning: "",
    caller: null,
  });
  assert.ok(new Links(recordOf(lines, [guarded])).linked(["0/0:guards#g0"]).has("src:0#12"));
});

test("the key of an item is what follows its artifact", () => {
  assert.equal(keyOf("0/0:kernel#a#b"), "a#b");
});

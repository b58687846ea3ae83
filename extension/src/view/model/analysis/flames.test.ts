import assert from "node:assert/strict";
import { test } from "node:test";
import type { Event } from "../record/record";
import { compileOf, recordOf } from "../record/testing";
import { type Flame, flamesOf } from "./flames";

function event(name: string, start: number, end: number | null): Event {
  return { stage: "lower", name, start, end, outcome: "ok", detail: "" };
}

function shape({ name, start, ns, children }: Flame): unknown {
  return children.length ? [name, start, ns, children.map(shape)] : [name, start, ns];
}

function treeOf(events: Event[]): unknown {
  const compile = { ...compileOf("0/0", []), events };
  const [flame] = flamesOf(recordOf(["10"], [compile])).children;
  return flame.children.map(shape);
}

test("steps are inside the steps that enclose them", () => {
  const tree = treeOf([event("outer", 100, 200), event("a", 110, 140), event("b", 140, 200), event("after", 200, 210)]);
  assert.deepEqual(tree, [
    [
      "lower: outer",
      0,
      100,
      [
        ["lower: a", 10, 30],
        ["lower: b", 40, 60],
      ],
    ],
    ["lower: after", 100, 10],
  ]);
});

test("time in which nothing is compiled is left out, and a step that did not finish", () => {
  const tree = treeOf([event("a", 0, 10), event("b", 1_000, 1_005), event("c", 2_000, null)]);
  assert.deepEqual(tree, [
    ["lower: a", 0, 10],
    ["lower: b", 10, 5],
  ]);
});

test("a step of another thread ends with the one that encloses it", () => {
  const tree = treeOf([event("a", 0, 10), event("b", 5, 20), event("c", 20, 30)]);
  assert.deepEqual(tree, [
    ["lower: a", 0, 10, [["lower: b", 5, 5]]],
    ["lower: c", 10, 10],
  ]);
});

test("compiles follow one another", () => {
  const compiles = ["0/0", "0/1"].map((id) => ({ ...compileOf(id, []), events: [event("a", 50, 60)] }));
  const root = flamesOf(recordOf(["10"], compiles));
  assert.deepEqual([root.ns, ...root.children.map(({ start, ns }) => [start, ns])], [20, [0, 10], [10, 10]]);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Steps } from "../record/record";
import { Replay } from "./replay";
import { stopsOf } from "./stops";

/** f calls g(x), which returns a new node; a list grows in between. */
const steps: Steps = {
  outcome: "captured",
  dropped: 0,
  codes: [
    { name: "f", filename: "a.py", instructions: ["LOAD g", "LOAD x", "CALL 1", "STORE y"], lines: [1, 0, 1, 2] },
    { name: "g", filename: "b.py", instructions: ["LOAD x", "NEG", "RETURN"], lines: [0, 5, 5] },
  ],
  calls: [
    { code: 0, caller: null },
    { code: 1, caller: 0 },
  ],
  values: ["g", "x: f32[4]", "neg: f32[4]", "list of 0"],
  call: [0, 0, 0, 1, 1, 1, 0],
  at: [0, 1, 2, 0, 1, 2, 3],
  pops: [0, 0, 2, 0, 1, 1, 1],
  pushes: [[3, 0], [1], [], [1], [2], [], []],
  results: [{ step: 5, call: 0, pops: 0, pushes: [2] }],
  stores: [
    { step: 0, call: 0, name: "x", value: 1 },
    { step: 3, call: 1, name: "x", value: 1 },
    { step: 6, call: 0, name: "x", value: null },
    { step: 6, call: 0, name: "y", value: 2 },
  ],
  texts: [{ step: 4, value: 3, text: "list of 1" }],
  notes: [{ step: 4, kind: "node", text: "neg = -x", item: "0/0:captured#neg" }],
};
const line = (filename: string, number: number) => (filename === "a.py" && number ? `src:0#${number}` : null);
const replay = new Replay(steps, line, (at) => `0/0:bytecode#${at}`);
const stack = (call: number, n: number) => replay.stack(call, n).map((v) => (v.isNew ? `${v.text}!` : v.text));
const locals = (call: number, n: number) => replay.locals(call, n).map(([name, v]) => `${name}=${v.text}`);

test("the stack of a call after each step, with new values marked", () => {
  assert.deepEqual(
    [0, 1, 2, 4, 5, 6].map((n) => stack(0, n)),
    [
      ["g!", "list of 0!"],
      ["x: f32[4]!", "g", "list of 0"],
      ["list of 0"],
      ["list of 1!"],
      ["neg: f32[4]!", "list of 1"],
      ["list of 1"],
    ],
  );
  assert.deepEqual([stack(1, 3), stack(1, 4), stack(1, 5)], [["x: f32[4]!"], ["neg: f32[4]!"], []]);
});

test("locals are assigned, changed and deleted", () => {
  assert.deepEqual([locals(0, 0), locals(0, 6)], [["x=x: f32[4]"], ["y=neg: f32[4]"]]);
  assert.deepEqual([locals(1, 2), locals(1, 3)], [[], ["x=x: f32[4]"]]);
});

test("the active calls and their positions", () => {
  assert.deepEqual([replay.calls(2), replay.calls(4)], [[0], [0, 1]]);
  assert.equal(replay.positionOf(0, 4).instruction, "CALL 1");
  assert.equal(replay.positionOf(1, 4).instruction, "NEG");
});

test("the items of a step: the frame's instruction, the innermost line with a source, and what it created", () => {
  assert.deepEqual(replay.itemsOf(4), ["0/0:bytecode#2", "src:0#1", "0/0:captured#neg"]);
  assert.deepEqual(replay.stepsOf("0/0:captured#neg"), [4]);
  assert.deepEqual(replay.stepsOf("src:0#1"), [0, 2, 3, 4, 5]);
  assert.deepEqual(replay.stepsOf("0/0:captured#nothing"), []);
});

test("at an instruction without a line, no line is marked, not that of a caller", () => {
  assert.deepEqual(replay.itemsOf(1), ["0/0:bytecode#1"]);
  const bothKnown = new Replay(steps, (filename, number) => (number ? `${filename}#${number}` : null), String);
  assert.deepEqual([bothKnown.lineOf(2), bothKnown.lineOf(3), bothKnown.lineOf(4)], ["a.py#1", null, "b.py#5"]);
});

test("the nodes and guards that later steps create", () => {
  assert.deepEqual(
    [3, 4].map((n) => replay.itemsAfter(n)),
    [["0/0:captured#neg"], []],
  );
});

test("stops are at events, at each arrival at a line, and at instructions", () => {
  const stops = Object.fromEntries(stopsOf(replay).map(({ name, steps }) => [name, steps]));
  assert.deepEqual(stops, {
    "new node": [4],
    "another line": [0, 6],
    call: [3],
    "src:0#1": [0],
    "src:0#2": [6],
    CALL: [2],
    LOAD: [0, 1, 3],
    NEG: [4],
    RETURN: [5],
    STORE: [6],
  });
});

test("a call can be stepped over in both directions", () => {
  assert.equal(replay.stepOver(2, 1), 6);
  assert.equal(replay.stepOver(6, -1), 2);
  assert.equal(replay.stepOver(6, 1), 6);
  assert.equal(replay.stepOver(0, -1), 0);
});

test("the notes of a step, and of all steps up to it", () => {
  assert.deepEqual(
    [3, 4, 6].map((n) => replay.notesSoFar(n).length),
    [0, 1, 1],
  );
  assert.deepEqual(
    [3, 4, 5].map((n) => replay.notes(n).length),
    [0, 1, 0],
  );
});

const damages: [name: string, damage: Partial<Steps>][] = [
  ["a call out of range", { call: [9, 0, 0, 1, 1, 1, 0] }],
  ["an instruction out of range", { at: [9, 1, 2, 0, 1, 2, 3] }],
  ["too few steps", { pops: [] }],
  ["a value out of range", { values: [] }],
  ["a cycle of calls", { calls: [steps.calls[0], { code: 1, caller: 1 }] }],
  ["stores out of order", { stores: [...steps.stores].reverse() }],
];

for (const [name, damage] of damages) {
  test(`${name}: refused`, () => {
    assert.throws(() => new Replay({ ...steps, ...damage }, line, String), /are inconsistent/);
  });
}

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Steps } from "./record";
import { Replay } from "./replay";

/** f calls g(x), which returns a new node; a list grows on the way. */
const steps: Steps = {
  outcome: "captured",
  dropped: 0,
  codes: [
    { name: "f", filename: "a.py", instructions: ["LOAD g", "LOAD x", "CALL 1", "STORE y"], lines: [1, 1, 1, 2] },
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
const line = (filename: string, number: number) => (filename === "a.py" ? `src:0#${number}` : null);
const replay = new Replay(steps, line, (at) => `0/0:bytecode#${at}`);
const stack = (call: number, n: number) => replay.stack(call, n).map((v) => (v.isNew ? `${v.text}!` : v.text));
const locals = (call: number, n: number) => replay.locals(call, n).map(([name, v]) => `${name}=${v.text}`);

test("the stack of a call after each step, what is new marked", () => {
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

test("locals come, change and go", () => {
  assert.deepEqual([locals(0, 0), locals(0, 6)], [["x=x: f32[4]"], ["y=neg: f32[4]"]]);
  assert.deepEqual([locals(1, 2), locals(1, 3)], [[], ["x=x: f32[4]"]]);
});

test("the calls at work, and where each is", () => {
  assert.deepEqual([replay.calls(2), replay.calls(4)], [[0], [0, 1]]);
  assert.equal(replay.place(0, 4).instruction, "CALL 1");
  assert.equal(replay.place(1, 4).instruction, "NEG");
});

test("a step belongs to the frame's instruction, to the nearest line that has a source, and to what it made", () => {
  assert.deepEqual(replay.items(4), ["0/0:bytecode#2", "src:0#1", "0/0:captured#neg"]);
  assert.deepEqual(replay.stepsOf("0/0:captured#neg"), [4]);
  assert.deepEqual(replay.stepsOf("src:0#1"), [0, 1, 2, 3, 4, 5]);
  assert.deepEqual(replay.stepsOf("0/0:captured#nothing"), []);
});

test("a call can be stepped over, both ways", () => {
  assert.equal(replay.over(2, 1), 6);
  assert.equal(replay.over(6, -1), 2);
  assert.equal(replay.over(6, 1), 6);
  assert.equal(replay.over(0, -1), 0);
});

test("what was added so far", () => {
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
  ["a call that there is not", { call: [9, 0, 0, 1, 1, 1, 0] }],
  ["an instruction that there is not", { at: [9, 1, 2, 0, 1, 2, 3] }],
  ["too few steps", { pops: [] }],
  ["a value that there is not", { values: [] }],
  ["calls in a circle", { calls: [steps.calls[0], { code: 1, caller: 1 }] }],
  ["stores out of order", { stores: [...steps.stores].reverse() }],
];

for (const [name, damage] of damages) {
  test(`${name}: refused`, () => {
    assert.throws(() => new Replay({ ...steps, ...damage }, line, String), /do not fit/);
  });
}

import assert from "node:assert/strict";
import test from "node:test";
import type { ValueDecision } from "../model/record/record";
import { compileOf, recordOf } from "../model/record/testing";
import { questionOf, verdictOf } from "./prediction";

function value(name: string, decision: ValueDecision["decision"]): ValueDecision {
  return { node: `0/0:joint#${name}`, decision, bytes: 4, reason: "", cut: null, drop_ns: null };
}

const values = [value("x", "saved"), value("cos", "recomputed")];
const partition = {
  values,
  saved_count: 1,
  saved_bytes: 4,
  default_saved_count: 2,
  default_saved_bytes: 8,
  again_ns: 0,
  curve: [],
};
const compile = { ...compileOf("0/0", []), partition };
const record = recordOf(["1"], [compile]);

test("answers of predictions come from the record", () => {
  assert.equal(questionOf("forward", record, compile)?.answer, 0);
  const saved = questionOf("partition", record, compile);
  assert.deepEqual([saved?.choices, saved?.answer], [["x", "cos"], ["x"]]);
  const named = questionOf("partition", record, compile, (item) => (item.endsWith("#x") ? "rows" : ""));
  assert.deepEqual([named?.choices, named?.answer], [["x (rows)", "cos"], ["x (rows)"]]);
  assert.equal(questionOf("bytecode", record, compile), null);
});

test("questions about guards and the graph are which of the lines that were used are guarded, or are in it", () => {
  const guard = {
    key: "g0",
    kind: "",
    source: "",
    code: "",
    expected: "",
    cost_ns: 1,
    dropped: false,
    sizes: null,
    name: "",
    meaning: "",
    caller: null,
  };
  const used = compileOf("0/0", [["0/0:captured#add", ["src:0#2"]]]);
  const guarded = { ...used, guards: [{ ...guard, line: "src:0#1" }] };
  const question = questionOf("guards", recordOf(["1", "2", "3"], [guarded]), guarded);
  assert.deepEqual([question?.choices, question?.answer], [["1: 1", "2: 2"], ["1: 1"]]);
  const captured = questionOf("captured", recordOf(["1", "2", "3"], [guarded]), guarded);
  assert.deepEqual([captured?.choices, captured?.answer], [["1: 1", "2: 2"], ["2: 2"]]);
  assert.equal(questionOf("guards", recordOf(["1"], [guarded]), guarded), null);
});

test("the verdict names what is right, or what is missing and wrong", () => {
  const saved = questionOf("partition", record, compile);
  assert.ok(saved);
  assert.equal(verdictOf(saved, ["x"]), "Right: x.");
  assert.equal(verdictOf(saved, []), "Missing: x.");
  assert.equal(verdictOf(saved, ["cos"]), "Missing: x. Wrong: cos.");
  assert.equal(verdictOf({ ...saved, answer: [] }, []), "Right: none of them.");
  assert.equal(verdictOf({ text: "", answer: 3, choices: [] }, 2), "You predicted 2; it is 3.");
});

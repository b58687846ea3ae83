import assert from "node:assert/strict";
import { test } from "node:test";
import type { GraphBreak, Problem, Symbol as Sym } from "../record/record";
import { compileOf, recordOf } from "../record/testing";
import { locateLines } from "./line_matching";
import { Links } from "./links";
import { marksOf, mergeMarksOfLine } from "./marks";
import { breakPlace, breakProblem, recompileProblem } from "./problems";

const SOURCE = "# %%compile\nx = f(y)\n\n# why\nz = x + 1  # more";
const source = {
  ...recordOf([], []).sources[0],
  text: SOURCE,
  spans: SOURCE.split("\n").map((_, i) => ({ key: String(i + 1), first: i + 1, last: i + 1 })),
};
const places = (text: string, whole = true) => Object.fromEntries(locateLines(text, source, whole));

test("marks stay at their lines while only comments and empty lines change", () => {
  assert.deepEqual(places("%%compile --steps\nx = f(y)\nz = x + 1"), { "2": 2, "5": 3 });
  assert.deepEqual(places("%%compile\n\n# new\nx = f(y)  # here\n\nz = x + 1"), { "2": 4, "5": 6 });
});

test("marks disappear when the code changes; those of the whole cell also when code is added", () => {
  assert.deepEqual(places("%%compile\nx = f(y, 1)\nz = x + 1"), {});
  assert.deepEqual(places("%%compile\nz = x + 1\nx = f(y)"), {});
  assert.deepEqual(places("%%compile\ny = 2\nx = f(y)\nz = x + 1"), {});
  assert.deepEqual(places("import torch\n\nx = f(y)\nz = x + 1\nprint(z)", false), { "2": 3, "5": 4 });
});

test("each function of a cell keeps its marks independently", () => {
  const two = {
    ...source,
    text: "def f():\n    pass\ndef g():\n    return 1",
    spans: ["3", "4", "8", "9"].map((key, i) => ({ key, first: i + 1, last: i + 1 })),
  };
  const now = "def f():\n    return 2\ndef g():\n    return 1";
  assert.deepEqual(Object.fromEntries(locateLines(now, two, false)), { "8": 3, "9": 4 });
});

test("a line magic matches the call that IPython makes of it", () => {
  const magic = { ...source, text: "get_ipython().run_line_magic('time', 'f(x)')", spans: [source.spans[0]] };
  assert.deepEqual(Object.fromEntries(locateLines("%time f(x)", magic, true)), { "1": 1 });
});

const problem: Problem = {
  kind: "graph break",
  grade: "costly",
  title: "graph break: print",
  cause: "Output must be printed now.",
  advice: "Move the print.",
  cost: "What follows is compiled separately, in 0.1 s.",
  count: 1,
  ns: 1e8,
  compiles: ["0/0"],
  filename: "a.py",
  lineno: 11,
  line: "src:0#11",
  remedies: [],
  breaks: ["0/0#b0"],
  behind: "",
  is_training: false,
  lines: [],
  tried: [],
  checked: "Tried it: 2 graphs became 1.",
};

test("each problem with a line is one mark, in their order; one that needs no change is not a warning", () => {
  const record = recordOf(["10", "11"], [compileOf("0/0", [])]);
  record.problems.push(
    { ...problem, kind: "failure", grade: "blocking", title: "failed in lower", cost: "" },
    problem,
    { ...problem, kind: "failure", title: "not compiled", cost: "" },
    { ...problem, line: null },
    { ...problem, grade: "expected", title: "graph break: backward", compiles: ["0/1", "0/2"] },
  );
  const marks = marksOf(record, new Links(record));
  assert.deepEqual(
    marks.map(({ kind, title, compile }) => [kind, title, compile]),
    [
      ["failure", "failed in lower", "0/0"],
      ["break", "graph break: print", "0/0"],
      ["break", "not compiled", "0/0"],
      ["expected", "graph break: backward", "0/1"],
    ],
  );
  assert.equal(marks[0].reason, problem.cause);
  assert.equal(marks[1].reason, `${problem.cause}\n${problem.cost}`);
  assert.equal(marks[1].hint, `${problem.advice}\n${problem.checked}`);
});

test("a value is static unless its part of the graph was compiled for other values, too", () => {
  const part = { key: "part_2.s1", source: "L['item']", name: "item", became: "0", condition_line: "src:0#11" };
  const other = { ...part, key: "part_2_2.s1", became: null };
  const titles = (...symbols: object[]) => {
    const record = recordOf(["10", "11"], [{ ...compileOf("0/0", []), symbols: symbols as Sym[] }]);
    return marksOf(record, new Links(record)).map(({ title }) => title);
  };
  assert.deepEqual(titles(part), ["item became 0"]);
  assert.deepEqual(titles(part, other), []);
});

const graphBreak: GraphBreak = {
  key: "b0",
  kind: "print",
  reason: "print",
  explanation: "",
  hint: "",
  stack: [],
  instruction: null,
  resumes: [],
  expression: "",
  statement: "",
  needs_graph: null,
  link: "",
  in_loop: false,
  is_last: null,
  is_consequence: false,
};

test("the problem of a break is found by the break's id, and that of a recompile by its compile", () => {
  const [first, again] = [compileOf("0/0", []), compileOf("0/1", [])];
  const record = recordOf(["10", "11"], [first, again]);
  const both: Problem = { ...problem, title: "of two compiles", breaks: ["0/0#b1", "0/1#b0"] };
  const recompile: Problem = { ...problem, kind: "recompile", compiles: ["0/1"], breaks: [] };
  record.problems.push(problem, both, recompile);
  assert.equal(breakProblem(record, first, graphBreak), problem);
  assert.equal(breakProblem(record, first, { ...graphBreak, key: "b1" }), both);
  assert.equal(breakProblem(record, again, graphBreak), both);
  assert.equal(breakProblem(record, again, { ...graphBreak, key: "b1" }), undefined);
  assert.equal(recompileProblem(record, first), undefined);
  assert.equal(recompileProblem(record, again), recompile);
});

test("a break is at the user's innermost line, also if a library's is further in", () => {
  const at = { filename: "a.py", lineno: 11, function: "f", text: "", line: "src:0#11", library: "" };
  const inside = { ...at, filename: "site-packages/torch/b.py", lineno: 5, line: "src:1#5", library: "torch" };
  assert.equal(breakPlace({ ...graphBreak, stack: [at, inside] }), at);
  assert.equal(breakPlace({ ...graphBreak, stack: [inside] }), inside);
  assert.equal(breakPlace(graphBreak), undefined);
});

test("lines of expensive kernels are hot, unless all take microseconds", () => {
  const kernel = (key: string, bytes_read: number) => ({
    key,
    name: key,
    language: "cpp" as const,
    graph: "forward" as const,
    item: `0/0:kernel#${key}`,
    bytes_read,
    bytes_written: 0,
    time_ns: null,
    operations: null,
    timed_on: null,
    device: null,
    reason: "",
  });
  const compile = compileOf("0/0", [
    ["0/0:kernel#a", ["src:0#10"]],
    ["0/0:kernel#b", ["src:0#11"]],
  ]);
  const marks = (unit: number) => {
    compile.kernels = [kernel("a", 900 * unit), kernel("b", 100 * unit)];
    const record = recordOf(["10", "11"], [compile]);
    return marksOf(record, new Links(record)).map(({ line, title }) => [line, title]);
  };
  assert.deepEqual(marks(1024), [["src:0#10", "hot: 90 % of the traffic"]]);
  assert.deepEqual(marks(1), []);
});

test("marks of one line and kind are one, with a count; what differs is in its reason", () => {
  const record = recordOf(["10", "11"], [compileOf("0/0", [])]);
  const hot = { kind: "hot" as const, hint: "", line: "src:0#11", compile: "0/0", pane: "costs" as const };
  record.problems.push(problem);
  const [mark] = marksOf(record, new Links(record));
  const latest = { ...mark, compile: "0/1" };
  const merged = mergeMarksOfLine([
    latest,
    { ...hot, title: "hot: 40 % of the time", reason: "4 ms" },
    mark,
    mark,
    { ...hot, title: "hot: 30 % of the time", reason: "3 ms" },
  ]);
  assert.deepEqual(
    merged.map(({ title, reason, compile }) => [title, reason, compile]),
    [
      ["graph break: print × 3", mark.reason, "0/1"],
      ["hot: 40 % of the time + 1 more", "hot: 40 % of the time: 4 ms\nhot: 30 % of the time: 3 ms", "0/0"],
    ],
  );
  assert.equal(mergeMarksOfLine([mark])[0], mark);
});

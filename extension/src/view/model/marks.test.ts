import assert from "node:assert/strict";
import { test } from "node:test";
import { Links } from "./links";
import { linesIn, marksOf } from "./marks";
import { compileOf, recordOf } from "./testing";

const SOURCE = "# %%compile\nx = f(y)\n\n# why\nz = x + 1  # more";
const source = {
  ...recordOf([], []).sources[0],
  text: SOURCE,
  spans: SOURCE.split("\n").map((_, i) => ({ key: String(i + 1), first: i + 1, last: i + 1 })),
};
const places = (text: string, whole = true) => Object.fromEntries(linesIn(text, source, whole));

test("marks stay beside their lines while only comments and empty lines change", () => {
  assert.deepEqual(places("%%compile --steps\nx = f(y)\nz = x + 1"), { "2": 2, "5": 3 });
  assert.deepEqual(places("%%compile\n\n# new\nx = f(y)  # here\n\nz = x + 1"), { "2": 4, "5": 6 });
});

test("marks leave when the code changes, and where there is more code they leave the cell itself", () => {
  assert.deepEqual(places("%%compile\nx = f(y, 1)\nz = x + 1"), {});
  assert.deepEqual(places("%%compile\nz = x + 1\nx = f(y)"), {});
  assert.deepEqual(places("%%compile\ny = 2\nx = f(y)\nz = x + 1"), {});
  assert.deepEqual(places("import torch\n\nx = f(y)\nz = x + 1\nprint(z)", false), { "2": 3, "5": 4 });
});

test("each function of a cell keeps its marks by itself", () => {
  const two = {
    ...source,
    text: "def f():\n    pass\ndef g():\n    return 1",
    spans: ["3", "4", "8", "9"].map((key, i) => ({ key, first: i + 1, last: i + 1 })),
  };
  const now = "def f():\n    return 2\ndef g():\n    return 1";
  assert.deepEqual(Object.fromEntries(linesIn(now, two, false)), { "8": 3, "9": 4 });
});

test("a line of magic is the call that IPython makes of it", () => {
  const magic = { ...source, text: "get_ipython().run_line_magic('time', 'f(x)')", spans: [source.spans[0]] };
  assert.deepEqual(Object.fromEntries(linesIn("%time f(x)", magic, true)), { "1": 1 });
});

test("one line says each thing once, with all its reasons", () => {
  const again = (id: string, got: string) => ({
    ...compileOf(id, []),
    cause: { of: "0/0", guard: "", source: "L['x']", expected: "shape (2,)", got, line: "src:0#11" },
  });
  const record = recordOf(
    ["10", "11"],
    [again("0/1", "shape (3,)"), again("0/2", "shape (4,)"), again("0/3", "shape (4,)")],
  );
  const marks = marksOf(record, new Links(record));
  assert.equal(marks.length, 1);
  assert.equal(marks[0].reason.split("\n").length, 2);
  assert.equal(marks[0].compile, "0/1");
  assert.match(marks[0].hint, /--dynamic/);
});

test("lines of dear kernels are hot", () => {
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
  compile.kernels.push(kernel("a", 900), kernel("b", 100));
  const record = recordOf(["10", "11"], [compile]);
  const marks = marksOf(record, new Links(record));
  assert.deepEqual(
    marks.map(({ line, title }) => [line, title]),
    [["src:0#10", "hot: 90 % of the traffic"]],
  );
});

test("what failed stands first, once for each line and cause", () => {
  const failure = (stage: "lower" | "run", kind: "bug" | "refusal" = "bug") => ({
    stage,
    message: "KeyError: 'x'\nand more",
    detail: "Traceback",
    kind,
    meaning: "It runs as plain PyTorch.",
    filename: "cell",
    lineno: 11,
    line: "src:0#11",
  });
  const cause = { of: "0/0", guard: "", source: "L['x']", expected: "1", got: "2", line: "src:0#11" };
  const first = { ...compileOf("0/0", []), failures: [failure("lower")] };
  const again = { ...compileOf("0/1", []), cause, failures: [failure("lower"), failure("run", "refusal")] };
  const record = recordOf(["10", "11"], [{ ...first, cause }, again]);
  const marks = marksOf(record, new Links(record));
  assert.deepEqual(
    marks.map(({ kind, title, compile }) => [kind, title, compile]),
    [
      ["failure", "failed in lower", "0/0"],
      ["failure", "not done", "0/1"],
      ["recompile", "compiled again", "0/0"],
    ],
  );
  assert.equal(marks[0].reason, "KeyError: 'x'\nIt runs as plain PyTorch.");
  assert.match(marks[0].hint, /--save/);
  assert.equal(marks[1].hint, "");
});

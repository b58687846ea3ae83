import assert from "node:assert/strict";
import { test } from "node:test";
import { Text } from "@codemirror/state";
import { readerOf } from "./languages";
import type { Language } from "./record";

/** Each coloured stretch of a text, as its colour and itself. */
function coloured(name: Language, lines: string[]): string[] {
  const doc = Text.of(lines);
  const reader = readerOf(name);
  return lines.flatMap((line, i) =>
    reader.line(doc, i + 1).map(([from, to, colour]) => `${colour}: ${line.slice(from, to)}`),
  );
}

test("Python", () => {
  const lines = ["@compile", "def f(x):", '    """Two', '    lines."""', "    return x + 1  # why"];
  assert.deepEqual(coloured("python", lines), [
    "meta: @compile",
    "keyword: def",
    "definition: f",
    'string: """',
    "string: Two",
    'string:     lines."""',
    "keyword: return",
    "number: 1",
    "comment: # why",
  ]);
});

test("C++", () => {
  const lines = ["#include <cmath>", 'float f(const char* s = "a") { /* one', "two */ return 0.5f; }"];
  assert.deepEqual(coloured("cpp", lines), [
    "meta: #include <cmath>",
    "type: float",
    "keyword: const",
    "type: char",
    'string: "a"',
    "comment: /*",
    "comment:  one",
    "comment: two */",
    "keyword: return",
    "number: 0.5f",
  ]);
});

test("machine code and bytecode", () => {
  assert.deepEqual(coloured("ptx", ["ld.global.f32 %f1, [%rd4+16]; // read"]), [
    "keyword: ld.global.f32",
    "number: 16",
    "comment: ; // read",
  ]);
  assert.deepEqual(coloured("bytecode", ["  12 LOAD_FAST 0 (x)"]), ["number: 12", "keyword: LOAD_FAST", "number: 0"]);
});

test("what is never closed goes on to the end, and the lines before are looked at once", () => {
  assert.deepEqual(coloured("python", ["'''a", "b"]), ["string: '''", "string: a", "string: b"]);
  const lines = Array.from({ length: 100_000 }, (_, i) => `x_${i} = "a" + f(${i})  # line`);
  const start = performance.now();
  assert.equal(readerOf("python").line(Text.of(lines), lines.length).length, 3);
  assert.ok(performance.now() - start < 1000);
});

test("a line of a million characters stays plain", () => {
  assert.deepEqual(coloured("python", ["x = 1".repeat(1_000_000)]), []);
});

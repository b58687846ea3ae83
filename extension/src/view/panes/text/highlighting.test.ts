import assert from "node:assert/strict";
import { test } from "node:test";
import { Text } from "@codemirror/state";
import type { Language } from "../../model/record/record";
import { tokenizerOf } from "./highlighting";

/** Returns each coloured range of a text as "colour: text". */
function coloured(name: Language, lines: string[]): string[] {
  const doc = Text.of(lines);
  const reader = tokenizerOf(name);
  return lines.flatMap((line, i) =>
    reader.tokensOf(doc, i + 1).map(([from, to, colour]) => `${colour}: ${line.slice(from, to)}`),
  );
}

/** Returns a document, and a function that returns how many lines of it have been read. */
function countedText(lines: string[]): { doc: Text; reads: () => number } {
  const doc = Text.of(lines);
  const line = doc.line.bind(doc);
  let count = 0;
  doc.line = (number) => {
    count++;
    return line(number);
  };
  return { doc, reads: () => count };
}

test("Python", () => {
  const lines = ["@compile", "def f(x):", '    """Two', '    lines."""', "    return x@w + 1  # why"];
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

test("an unclosed token continues to the end, and each line is scanned once", () => {
  assert.deepEqual(coloured("python", ["'''a", "b"]), ["string: '''", "string: a", "string: b"]);
  const lines = Array.from({ length: 10_000 }, (_, i) => `x_${i} = "a" + f(${i})  # line`);
  const { doc, reads } = countedText(lines);
  const reader = tokenizerOf("python");
  assert.equal(reader.tokensOf(doc, lines.length).length, 3);
  assert.equal(reads(), lines.length);
  assert.equal(reader.tokensOf(doc, lines.length).length, 3);
  assert.equal(reads(), lines.length + 1);
});

test("a line of a million characters is not coloured", () => {
  assert.deepEqual(coloured("python", ["x = 1".repeat(1_000_000)]), []);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { ensureSyntaxTree, highlightingFor } from "@codemirror/language";
import { EditorState } from "@codemirror/state";
import { highlightTree } from "@lezer/highlight";
import { language } from "./languages";
import type { Language } from "./record";

/** Each coloured stretch of a text, as its class and itself. */
function coloured(name: Language, text: string): string[] {
  const state = EditorState.create({ doc: text, extensions: language(name) });
  const tree = ensureSyntaxTree(state, text.length, 5000);
  assert.ok(tree);
  const found: string[] = [];
  const style = { style: (tags: Parameters<typeof highlightingFor>[1]) => highlightingFor(state, tags) };
  highlightTree(tree, style, (from, to, classes) => found.push(`${classes}: ${text.slice(from, to)}`));
  return found;
}

test("Python", () => {
  const text = 'def f(x):\n    """Two\n    lines."""\n    return x + 1  # why';
  const wanted = [
    "t-keyword: def",
    "t-definition: f",
    't-string: """Two',
    't-string: lines."""',
    "t-keyword: return",
    "t-number: 1",
    "t-comment: # why",
  ];
  assert.deepEqual(
    coloured("python", text).map((each) => each.replace(/ +(?=lines)/, " ")),
    wanted,
  );
});

test("C++", () => {
  const text = '#include <cmath>\nfloat f(const char* s = "a") { /* one\ntwo */ return 0.5f; }';
  const wanted = [
    "t-meta: #include <cmath>",
    "t-type: float",
    "t-keyword: const",
    "t-type: char",
    't-string: "a"',
    "t-comment: /* one",
    "t-comment: two */",
    "t-keyword: return",
    "t-number: 0.5f",
  ];
  assert.deepEqual(coloured("cpp", text), wanted);
});

test("a text that never closes what it opened is coloured to its end", () => {
  assert.deepEqual(coloured("python", "'''a\nb"), ["t-string: '''a", "t-string: b"]);
});

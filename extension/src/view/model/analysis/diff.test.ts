import assert from "node:assert/strict";
import { test } from "node:test";
import { alignLines, matchTexts } from "./diff";

/** Returns the same texts, and a function that returns how often one of them has been read. */
function countedReads(texts: string[]): { texts: string[]; reads: () => number } {
  let count = 0;
  const get = (target: string[], key: string | symbol) => {
    if (typeof key === "string" && key !== "length") count++;
    return Reflect.get(target, key);
  };
  return { texts: new Proxy(texts, { get }), reads: () => count };
}

const matched = (left: string, right: string) => [...matchTexts([...left], [...right])];

test("equal texts are matched in order", () => {
  assert.deepEqual(matched("abc", "abc"), [0, 1, 2]);
  assert.deepEqual(matched("abc", "axc"), [0, -1, 2]);
  assert.deepEqual(matched("abcd", "bcde"), [-1, 0, 1, 2]);
  assert.deepEqual(matched("xaxbx", "xbx"), [0, -1, -1, 1, 2]);
  assert.deepEqual(matched("", "abc"), []);
});

test("on random texts, matches increase and connect equal texts, and equal lists match completely", () => {
  for (let seed = 1; seed < 200; seed++) {
    let state = seed;
    const next = (below: number) => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      return (state >>> 8) % below;
    };
    const text = () => Array.from({ length: next(12) }, () => String.fromCharCode(97 + next(4)));
    const [left, right] = [text(), text()];
    const found = matchTexts(left, right);
    const pairs = [...found.entries()].filter(([, j]) => j >= 0);
    for (const [i, j] of pairs) assert.equal(left[i], right[j]);
    for (let n = 1; n < pairs.length; n++) assert.ok(pairs[n][1] > pairs[n - 1][1]);
    if (left.join("") === right.join("")) assert.equal(pairs.length, left.length);
  }
});

test("both sides have the same height", () => {
  const [left, right] = [
    ["a", "b", "c", "d"],
    ["a", "x", "y", "z", "d", "e"],
  ];
  const alignment = alignLines(left, right);
  assert.deepEqual(
    [...alignment.left.differing],
    [
      [2, "changed"],
      [3, "changed"],
    ],
  );
  assert.deepEqual(
    [...alignment.right.differing],
    [
      [2, "changed"],
      [3, "changed"],
      [4, "only"],
      [6, "only"],
    ],
  );
  assert.deepEqual(
    [...alignment.left.gaps],
    [
      [4, 1],
      [5, 1],
    ],
  );
  assert.equal(alignment.left.alignedWith.get(4), 5);
  assert.deepEqual(alignment.stretches, [
    { left: 2, right: 2 },
    { left: 5, right: 6 },
  ]);
  const height = (lines: string[], gaps: Map<number, number>) =>
    lines.length + [...gaps.values()].reduce((sum, n) => sum + n, 0);
  assert.equal(height(left, alignment.left.gaps), height(right, alignment.right.gaps));
});

test("changed lines are aligned with similar ones", () => {
  const left = ['cos: "f32[8]" = x.cos()', 'mul: "f32[8]" = cos * 2', 'sin: "f32[8]" = mul.sin()'];
  const right = ['cos: "f32[s1]" = x.cos()', 'sin: "f32[s1]" = cos.sin()'];
  const alignment = alignLines(left, right);
  assert.deepEqual(
    [...alignment.left.alignedWith],
    [
      [1, 1],
      [3, 2],
    ],
  );
  assert.equal(alignment.left.differing.get(2), "only");
  assert.deepEqual([...alignment.right.gaps], [[2, 1]]);
  assert.equal(alignment.stretches.length, 1);
});

test("long texts without a unique line are not compared quadratically", () => {
  const left = countedReads(Array(20_000).fill("a"));
  const right = countedReads(Array(30_000).fill("b"));
  matchTexts(left.texts, right.texts);
  assert.ok(left.reads() < 5 * 20_000 && right.reads() < 5 * 30_000);
});

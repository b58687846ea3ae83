import assert from "node:assert/strict";
import { test } from "node:test";
import { match, sides } from "./diff";

const matched = (left: string, right: string) => [...match([...left], [...right])];

test("what is the same is found, in order", () => {
  assert.deepEqual(matched("abc", "abc"), [0, 1, 2]);
  assert.deepEqual(matched("abc", "axc"), [0, -1, 2]);
  assert.deepEqual(matched("abcd", "bcde"), [-1, 0, 1, 2]);
  assert.deepEqual(matched("xaxbx", "xbx"), [0, -1, -1, 1, 2]);
  assert.deepEqual(matched("", "abc"), []);
});

test("on random texts the matches rise and join equals, and are as many as can be where texts are unlike", () => {
  for (let seed = 1; seed < 200; seed++) {
    let state = seed;
    const next = (below: number) => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      return (state >>> 8) % below;
    };
    const text = () => Array.from({ length: next(12) }, () => String.fromCharCode(97 + next(4)));
    const [left, right] = [text(), text()];
    const found = match(left, right);
    const pairs = [...found.entries()].filter(([, j]) => j >= 0);
    for (const [i, j] of pairs) assert.equal(left[i], right[j]);
    for (let n = 1; n < pairs.length; n++) assert.ok(pairs[n][1] > pairs[n - 1][1]);
    if (left.join("") === right.join("")) assert.equal(pairs.length, left.length);
  }
});

test("both sides have the same height, line by line", () => {
  const [left, right] = [
    ["a", "b", "c", "d"],
    ["a", "x", "y", "z", "d", "e"],
  ];
  const made = sides(left, right);
  assert.deepEqual(
    [...made.left.differing],
    [
      [2, "changed"],
      [3, "changed"],
    ],
  );
  assert.deepEqual(
    [...made.right.differing],
    [
      [2, "changed"],
      [3, "changed"],
      [4, "only"],
      [6, "only"],
    ],
  );
  assert.deepEqual(
    [...made.left.gaps],
    [
      [4, 1],
      [5, 1],
    ],
  );
  assert.equal(made.left.beside.get(4), 5);
  assert.deepEqual(made.starts, [
    { left: 2, right: 2 },
    { left: 5, right: 6 },
  ]);
  const height = (lines: string[], gaps: Map<number, number>) =>
    lines.length + [...gaps.values()].reduce((sum, n) => sum + n, 0);
  assert.equal(height(left, made.left.gaps), height(right, made.right.gaps));
});

test("lines that differ stand beside those that are alike", () => {
  const left = ['cos: "f32[8]" = x.cos()', 'mul: "f32[8]" = cos * 2', 'sin: "f32[8]" = mul.sin()'];
  const right = ['cos: "f32[s1]" = x.cos()', 'sin: "f32[s1]" = cos.sin()'];
  const made = sides(left, right);
  assert.deepEqual(
    [...made.left.beside],
    [
      [1, 1],
      [3, 2],
    ],
  );
  assert.equal(made.left.differing.get(2), "only");
  assert.deepEqual([...made.right.gaps], [[2, 1]]);
  assert.equal(made.starts.length, 1);
});

test("long texts without a line of their own take no longer for it", () => {
  const start = performance.now();
  match(Array(20_000).fill("a"), Array(30_000).fill("b"));
  assert.ok(performance.now() - start < 1000);
});

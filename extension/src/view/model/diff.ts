/** Two lists of texts set against each other: which are the same, and how to lay them side by side. */

import { push } from "./links";

/** So many comparisons are made where no text stands out. */
const MOST = 1_000_000;

/** For each of `left` the index of the same text in `right`, -1 where there is none; the order is kept. */
export function match(left: string[], right: string[]): Int32Array {
  const found = new Int32Array(left.length).fill(-1);
  matchPart(left, right, { left: 0, right: 0 }, { left: left.length, right: right.length }, found);
  return found;
}

interface Place {
  left: number;
  right: number;
}

/** "Patience": first the ends that are the same, then what is once on either side, then all between these. */
function matchPart(left: string[], right: string[], from: Place, to: Place, found: Int32Array): void {
  let [a, b, c, d] = [from.left, from.right, to.left, to.right];
  for (; a < c && b < d && left[a] === right[b]; a++, b++) found[a] = b;
  for (; a < c && b < d && left[c - 1] === right[d - 1]; c--, d--) found[c - 1] = d - 1;
  if (a === c || b === d) return;
  const anchors = rising(unique(left, right, { left: a, right: b }, { left: c, right: d }));
  if (!anchors.length) {
    longest(left, right, { left: a, right: b }, { left: c, right: d }, found);
    return;
  }
  let last = { left: a, right: b };
  for (const anchor of [...anchors, { left: c, right: d }]) {
    matchPart(left, right, last, anchor, found);
    if (anchor.left < c) found[anchor.left] = anchor.right;
    last = { left: anchor.left + 1, right: anchor.right + 1 };
  }
}

/** The texts that are once on either side, in the left's order. */
function unique(left: string[], right: string[], from: Place, to: Place): Place[] {
  const places = (texts: string[], start: number, end: number) => {
    const known = new Map<string, number[]>();
    for (let i = start; i < end; i++) push(known, texts[i], i);
    return known;
  };
  const there = places(right, from.right, to.right);
  return [...places(left, from.left, to.left)].flatMap(([text, here]): Place[] => {
    const other = there.get(text);
    return here.length === 1 && other?.length === 1 ? [{ left: here[0], right: other[0] }] : [];
  });
}

/** Of places in the left's order, as many as are in the right's order too. */
function rising(places: Place[]): Place[] {
  const tops: number[] = []; // the place that ends the best run of each length
  const before: number[] = [];
  places.forEach(({ right }, i) => {
    let [low, high] = [0, tops.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (places[tops[middle]].right < right) low = middle + 1;
      else high = middle;
    }
    before[i] = low ? tops[low - 1] : -1;
    tops[low] = i;
  });
  const found: Place[] = [];
  for (let at = tops.at(-1) ?? -1; at >= 0; at = before[at]) found.push(places[at]);
  return found.reverse();
}

/** The longest common subsequence of a small part; a large one without anything of its own is taken as all new. */
function longest(left: string[], right: string[], from: Place, to: Place, found: Int32Array): void {
  const [rows, columns] = [to.left - from.left, to.right - from.right];
  if (rows * columns > MOST) return;
  const width = columns + 1;
  const lengths = new Uint32Array((rows + 1) * width);
  const same = (i: number, j: number) => left[from.left + i] === right[from.right + j];
  for (let i = rows - 1; i >= 0; i--) {
    for (let j = columns - 1; j >= 0; j--) {
      const [down, along] = [lengths[(i + 1) * width + j], lengths[i * width + j + 1]];
      lengths[i * width + j] = same(i, j) ? lengths[(i + 1) * width + j + 1] + 1 : Math.max(down, along);
    }
  }
  for (let [i, j] = [0, 0]; i < rows && j < columns; ) {
    if (same(i, j)) found[from.left + i++] = from.right + j++;
    else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) i++;
    else j++;
  }
}

/** How one of two texts is laid out for the same lines to stand at the same height; lines count from 1. */
export interface Side {
  /** The lines that are not, or not so, on the other side. */
  differing: Map<number, "changed" | "only">;
  /** Empty lines to leave before a line; before the one after the last: at the end. */
  gaps: Map<number, number>;
  /** The line that each line stands beside. */
  beside: Map<number, number>;
}

/** Both sides of two texts, and where each stretch of differing lines begins. */
export function sides(left: string[], right: string[]): Both {
  const made: Both = { left: side(), right: side(), starts: [] };
  const all = { left: left.length, right: right.length };
  lay(
    match(left, right),
    { left: 0, right: 0 },
    all,
    (at) => pair(made, at),
    (from, to) => {
      made.starts.push({ left: from.left + 1, right: from.right + 1 });
      layStretch(made, left, right, from, to, KEYS);
    },
  );
  return made;
}

interface Both {
  left: Side;
  right: Side;
  starts: Place[];
}

function side(): Side {
  return { differing: new Map(), gaps: new Map(), beside: new Map() };
}

/** What lines are told by where none is the same: all but their numbers and types, then the name that they begin with. */
const KEYS: ((line: string) => string)[] = [
  (line) => line.replace(/"[^"]*"/g, '""').replace(/\b[su]?\d+\b/g, "0"),
  (line) => /^\s*[\w.]+(?=\s*[:=])/.exec(line)?.[0] ?? line,
];

/** Go through a part of both sides: what was matched, and the stretches between. */
function lay(
  matched: Int32Array,
  from: Place,
  to: Place,
  onPair: (at: Place) => void,
  onStretch: (from: Place, to: Place) => void,
): void {
  let last = from;
  for (let i = from.left; i <= to.left; i++) {
    const there = i < to.left ? matched[i - from.left] : to.right - from.right;
    if (there < 0) continue;
    const at = { left: i, right: from.right + there };
    if (at.left > last.left || at.right > last.right) onStretch(last, at);
    if (i < to.left) onPair(at);
    last = { left: at.left + 1, right: at.right + 1 };
  }
}

function pair(made: Both, at: Place): void {
  made.left.beside.set(at.left + 1, at.right + 1);
  made.right.beside.set(at.right + 1, at.left + 1);
}

/** Lines that are alike stand beside each other, then those that are not, while there are any on both sides. */
function layStretch(
  made: Both,
  left: string[],
  right: string[],
  from: Place,
  to: Place,
  keys: ((line: string) => string)[],
): void {
  const [key, ...rest] = keys;
  if (!key) {
    layUnlike(made, from, to);
    return;
  }
  const [here, there] = [left.slice(from.left, to.left).map(key), right.slice(from.right, to.right).map(key)];
  lay(
    match(here, there),
    from,
    to,
    (at) => change(made, at),
    (a, b) => layStretch(made, left, right, a, b, rest),
  );
}

function change(made: Both, at: Place): void {
  pair(made, at);
  made.left.differing.set(at.left + 1, "changed");
  made.right.differing.set(at.right + 1, "changed");
}

function layUnlike(made: Both, from: Place, to: Place): void {
  const [here, there] = [to.left - from.left, to.right - from.right];
  const both = Math.min(here, there);
  for (let n = 0; n < both; n++) change(made, { left: from.left + n, right: from.right + n });
  for (let n = both; n < here; n++) made.left.differing.set(from.left + n + 1, "only");
  for (let n = both; n < there; n++) made.right.differing.set(from.right + n + 1, "only");
  if (here > both) made.right.gaps.set(to.right + 1, here - both);
  if (there > both) made.left.gaps.set(to.left + 1, there - both);
}

/** Compares two lists of texts: which are equal, and how to align them side by side. */

import { diffArrays } from "diff";

/** The most differing texts for which the rest is matched; beyond, the time grows with their square. */
const MAX_EDITS = 3000;

/** Returns for each text in `left` the index of the equal text in `right`, or -1. Indices increase. */
export function matchTexts(left: string[], right: string[]): Int32Array {
  const found = new Int32Array(left.length).fill(-1);
  let [i, j] = [0, 0];
  for (const { added, removed, count } of diffArrays(left, right, { maxEditLength: MAX_EDITS }) ?? []) {
    if (removed) i += count;
    else if (added) j += count;
    else for (const end = i + count; i < end; i++, j++) found[i] = j;
  }
  return found;
}

/** A position between texts: an index into each side. */
interface Position {
  left: number;
  right: number;
}

/** How one of two texts is laid out so that equal lines have the same height. Line numbers start at 1. */
export interface AlignedSide {
  /** The lines that differ from the aligned line, or have none on the other side. */
  differing: Map<number, "changed" | "only">;
  /** Number of empty lines before a line; the line after the last one stands for the end. */
  gaps: Map<number, number>;
  /** The line of the other side that each line is aligned with. */
  alignedWith: Map<number, number>;
}

/** Aligns two texts, given as lines. */
export function alignLines(left: string[], right: string[]): Alignment {
  const alignment: Alignment = { left: emptySide(), right: emptySide(), stretches: [] };
  const all = { left: left.length, right: right.length };
  walkMatches(
    matchTexts(left, right),
    { left: 0, right: 0 },
    all,
    (at) => alignPair(alignment, at),
    (from, to) => {
      alignment.stretches.push({ left: from.left + 1, right: from.right + 1 });
      alignStretch(alignment, left, right, from, to, SIMILARITY_KEYS);
    },
  );
  return alignment;
}

/** The layout of both sides, and the first line of each stretch of differing lines. */
interface Alignment {
  left: AlignedSide;
  right: AlignedSide;
  stretches: Position[];
}

function emptySide(): AlignedSide {
  return { differing: new Map(), gaps: new Map(), alignedWith: new Map() };
}

/**
 * Keys by which unequal lines are still aligned: the line without its numbers and types, then the name that it starts
 * with.
 */
const SIMILARITY_KEYS: ((line: string) => string)[] = [
  (line) => line.replace(/"[^"]*"/g, '""').replace(/\b[su]?\d+\b/g, "0"),
  (line) => /^\s*[\w.]+(?=\s*[:=])/.exec(line)?.[0] ?? line,
];

/** Visits the matches of a range and the stretches between them, in order. */
function walkMatches(
  matched: Int32Array,
  from: Position,
  to: Position,
  onPair: (at: Position) => void,
  onStretch: (from: Position, to: Position) => void,
): void {
  let last = from;
  for (let i = from.left; i <= to.left; i++) {
    const match = i < to.left ? matched[i - from.left] : to.right - from.right;
    if (match < 0) continue;
    const at = { left: i, right: from.right + match };
    if (at.left > last.left || at.right > last.right) onStretch(last, at);
    if (i < to.left) onPair(at);
    last = { left: at.left + 1, right: at.right + 1 };
  }
}

function alignPair(alignment: Alignment, at: Position): void {
  alignment.left.alignedWith.set(at.left + 1, at.right + 1);
  alignment.right.alignedWith.set(at.right + 1, at.left + 1);
}

/** Aligns a stretch without equal lines: similar lines by `keys`, then the remaining ones in order. */
function alignStretch(
  alignment: Alignment,
  left: string[],
  right: string[],
  from: Position,
  to: Position,
  keys: ((line: string) => string)[],
): void {
  const [key, ...rest] = keys;
  if (!key) {
    alignUnmatched(alignment, from, to);
    return;
  }
  const leftKeys = left.slice(from.left, to.left).map(key);
  const rightKeys = right.slice(from.right, to.right).map(key);
  walkMatches(
    matchTexts(leftKeys, rightKeys),
    from,
    to,
    (at) => alignChanged(alignment, at),
    (a, b) => alignStretch(alignment, left, right, a, b, rest),
  );
}

function alignChanged(alignment: Alignment, at: Position): void {
  alignPair(alignment, at);
  alignment.left.differing.set(at.left + 1, "changed");
  alignment.right.differing.set(at.right + 1, "changed");
}

/** Aligns lines that have nothing in common pair by pair; the rest of the longer side faces a gap. */
function alignUnmatched(alignment: Alignment, from: Position, to: Position): void {
  const [leftCount, rightCount] = [to.left - from.left, to.right - from.right];
  const both = Math.min(leftCount, rightCount);
  for (let n = 0; n < both; n++) alignChanged(alignment, { left: from.left + n, right: from.right + n });
  for (let n = both; n < leftCount; n++) alignment.left.differing.set(from.left + n + 1, "only");
  for (let n = both; n < rightCount; n++) alignment.right.differing.set(from.right + n + 1, "only");
  if (leftCount > both) alignment.right.gaps.set(to.right + 1, leftCount - both);
  if (rightCount > both) alignment.left.gaps.set(to.left + 1, rightCount - both);
}

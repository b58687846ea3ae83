/** Finds the lines of a recorded source in a text that may have been edited since. */

import type { Artifact } from "../record/record";

/** A line with code: not empty, not a comment, and not the cell magic, which a record contains as a comment. */
interface CodeLine {
  number: number;
  text: string;
}

function codeLines(lines: string[], numbers: (i: number) => number): CodeLine[] {
  return lines.flatMap((line, i) => {
    const text = line.replace(/\s+#[^'"]*$/, "").trimEnd();
    return /^\s*(#|%%|$)/.test(text) ? [] : [{ number: numbers(i), text }];
  });
}

/** Splits a source into parts whose lines are consecutive in its file. */
function contiguousParts(source: Artifact): { key: string; text: string }[][] {
  const lines = source.text.split("\n");
  const found: { key: string; text: string }[][] = [];
  let previous = Number.NaN;
  source.spans.forEach(({ key }, i) => {
    if (Number(key) !== previous + 1) found.push([]);
    found[found.length - 1].push({ key, text: lines[i] ?? "" });
    previous = Number(key);
  });
  return found;
}

/**
 * Returns the line number in `text` of each line of `source`, by key. Comments and empty lines may differ. A part of
 * the source (a cell, or a function of another cell) whose code changed has no lines in the result; if the source must
 * be the `whole` text, additional code counts as a change too.
 */
export function locateLines(text: string, source: Artifact, whole: boolean): Map<string, number> {
  const now = codeLines(text.split("\n"), (i) => i + 1);
  const found = new Map<string, number>();
  let from = 0;
  for (const part of contiguousParts(source)) {
    const code = codeLines(
      part.map(({ text }) => text),
      (i) => i,
    );
    const at = code.length ? findLines(now, code, from) : -1;
    if (at < 0 || (whole && code.length < now.length)) continue;
    code.forEach(({ number }, i) => {
      found.set(part[number].key, now[at + i].number);
    });
    from = at + code.length;
  }
  return found;
}

function findLines(lines: CodeLine[], code: CodeLine[], from: number): number {
  for (let at = from; at + code.length <= lines.length; at++) {
    if (code.every(({ text }, i) => isSameCode(text, lines[at + i].text))) return at;
  }
  return -1;
}

/** Whether two lines are the same code. IPython turns a line magic (`%time f(x)`, `!ls`) into a call. */
function isSameCode(compiled: string, now: string): boolean {
  return compiled === now || (/^\s*get_ipython\(\)\./.test(compiled) && /^\s*[%!]/.test(now));
}

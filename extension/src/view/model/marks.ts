/** What the user's lines are marked with, in the explorer's source and in the cell's own editor. */

import { bytes, duration } from "../dom/dom";
import { lineCosts, timed } from "./costs";
import { cause, type Failed, failuresOf, headline, remedy } from "./failures";
import type { Links } from "./links";
import type { Artifact, Compile, Record as CutawayRecord, ItemId } from "./record";
import type { PaneName } from "./state";

type MarkKind = "failure" | "break" | "recompile" | "static" | "hot";

export interface Mark {
  line: ItemId;
  kind: MarkKind;
  /** In few words. */
  title: string;
  reason: string;
  /** What to do about it; empty where nothing is known. */
  hint: string;
  /** The compile that it tells of, and the pane that tells more. */
  compile: string;
  pane: PaneName;
}

/** A line is hot from this share on, and where it is more than so many times what lines cost on average. */
const HOT = 0.25;
const ABOVE_AVERAGE = 1.5;
const MOST_HOT = 2;

const DYNAMIC = "With dynamic=True (%%compile --dynamic), sizes are symbols from the first compile on.";

/** All marks of a record, what failed first; what several compiles say of one line is one mark. */
export function marksOf(record: CutawayRecord, links: Links): Mark[] {
  const compiles = record.frames.flatMap((frame) => frame.compiles);
  const unique = new Map<string, Mark>();
  for (const mark of compiles.flatMap((compile) => [...breaks(compile), ...recompiles(compile), ...statics(compile)])) {
    const key = `${mark.line} ${mark.kind} ${mark.title}`;
    unique.set(key, joined(unique.get(key), mark));
  }
  return [...failuresOf(record).flatMap(failures), ...unique.values(), ...hot(record, links)];
}

/** One mark for two that differ in their reasons at most; it tells of the first compile. */
function joined(first: Mark | undefined, next: Mark): Mark {
  if (!first || first.reason.split("\n").includes(next.reason)) return first ?? next;
  return { ...first, reason: `${first.reason}\n${next.reason}`, hint: first.hint || next.hint };
}

function failures({ compile, failure }: Failed): Mark[] {
  if (failure.line === null) return [];
  const reason = [cause(failure), failure.meaning].filter(Boolean).join("\n");
  const mark = { line: failure.line, kind: "failure" as const, title: headline(failure), reason };
  return [{ ...mark, hint: remedy(failure), compile: compile.id, pane: "overview" }];
}

function breaks(compile: Compile): Mark[] {
  return compile.breaks.flatMap(({ kind, explanation, hint, stack }): Mark[] => {
    const at = stack.findLast(({ line }) => line !== null);
    if (!at?.line) return [];
    const inside = stack[stack.length - 1];
    const place = inside === at ? "" : ` In ${inside.function}: ${inside.text.trim()}`;
    const mark = { line: at.line, kind: "break" as const, title: `graph break: ${kind}` };
    return [{ ...mark, reason: `${explanation}${place}`, hint, compile: compile.id, pane: "overview" }];
  });
}

function recompiles({ id, cause }: Compile): Mark[] {
  if (!cause?.line) return [];
  const reason = `${cause.source}: expected ${cause.expected}, got ${cause.got}`;
  const hint = /^shape |^-?\d+$/.test(cause.expected) ? DYNAMIC : "";
  const title = "compiled again";
  return [{ line: cause.line, kind: "recompile", title, reason, hint, compile: id, pane: "overview" }];
}

function statics({ id, symbols }: Compile): Mark[] {
  return symbols.flatMap(({ source, became, condition, condition_line, line }): Mark[] => {
    const at = condition_line ?? line;
    if (became === null || at === null) return [];
    const reason = condition ? `Because of ${condition}, this code holds for one value alone.` : "";
    const title = `${source} became ${became}`;
    const hint = "Write the line without asking for this very value, and one compile serves others too.";
    return [{ line: at, kind: "static", title, reason, hint, compile: id, pane: "sizes" }];
  });
}

function hot(record: CutawayRecord, links: Links): Mark[] {
  const costs = lineCosts(record, links);
  if (costs.length < 2) return [];
  const byTime = timed(costs.flatMap((cost) => cost.kernels));
  return costs
    .filter(({ share }) => share >= Math.max(HOT, ABOVE_AVERAGE / costs.length))
    .slice(0, MOST_HOT)
    .map((cost): Mark => {
      const share = `${Math.round(100 * cost.share)} %`;
      const reason = byTime
        ? `Its kernels take ${duration(cost.ns)}, of what all kernels take ${share}.`
        : `Its kernels read and write ${bytes(Math.round(cost.bytes))}, of what all kernels do ${share}.`;
      const title = `hot: ${share} of the ${byTime ? "time" : "traffic"}`;
      return {
        line: cost.line,
        kind: "hot",
        title,
        reason,
        hint: "",
        compile: cost.kernels[0].compile.id,
        pane: "costs",
      };
    });
}

// ------------------------------------------------------------ in a text that may have been edited

/** A line that means something: neither empty nor a comment, nor the magic that a record has as a comment. */
interface Line {
  number: number;
  text: string;
}

function meaningful(lines: string[], numbers: (i: number) => number): Line[] {
  return lines.flatMap((line, i) => {
    const text = line.replace(/\s+#[^'"]*$/, "").trimEnd();
    return /^\s*(#|%%|$)/.test(text) ? [] : [{ number: numbers(i), text }];
  });
}

/** The parts of a source whose lines follow one another in its file. */
function parts(source: Artifact): { key: string; text: string }[][] {
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
 * Where the lines of `source` are in `text` now, by their keys.  Comments and empty lines may come and go; a part
 * of the source (a cell, or a function of another cell) whose code changed is in it no longer; where the source is
 * the `whole` text, more code changes it too.
 */
export function linesIn(text: string, source: Artifact, whole: boolean): Map<string, number> {
  const now = meaningful(text.split("\n"), (i) => i + 1);
  const found = new Map<string, number>();
  let from = 0;
  for (const part of parts(source)) {
    const wanted = meaningful(
      part.map(({ text }) => text),
      (i) => i,
    );
    const at = wanted.length ? indexOf(now, wanted, from) : -1;
    if (at < 0 || (whole && wanted.length < now.length)) continue;
    wanted.forEach(({ number }, i) => {
      found.set(part[number].key, now[at + i].number);
    });
    from = at + wanted.length;
  }
  return found;
}

function indexOf(lines: Line[], wanted: Line[], from: number): number {
  for (let at = from; at + wanted.length <= lines.length; at++) {
    if (wanted.every(({ text }, i) => same(text, lines[at + i].text))) return at;
  }
  return -1;
}

/** IPython turns a line of magic (`%time f(x)`, `!ls`) into a call. */
function same(compiled: string, now: string): boolean {
  return compiled === now || (/^\s*get_ipython\(\)\./.test(compiled) && /^\s*[%!]/.test(now));
}

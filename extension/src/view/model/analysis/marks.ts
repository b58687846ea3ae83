/** Marks on the user's lines, shown in the source pane and in the notebook's own editors. */

import { bytes, duration, percent, readable } from "../../dom/format";
import type { PaneName } from "../content";
import type { Compile, Record as CutawayRecord, ItemId, Problem } from "../record/record";
import { allTimed, lineCosts } from "./costs";
import { appendTo, type Links } from "./links";

type MarkKind = "failure" | "break" | "recompile" | "expected" | "static" | "hot";

/** The marks of problems, by the problem's kind; one that needs no change has the mark `expected`. */
const PROBLEM_MARKS: { [kind in Problem["kind"]]: MarkKind } = {
  failure: "failure",
  "graph break": "break",
  recompile: "recompile",
  "plain Python": "break",
  "no CUDA graph": "break",
  "slow compile": "break",
  "changed graph": "expected",
};

export interface Mark {
  line: ItemId;
  kind: MarkKind;
  /** The text on the mark. */
  title: string;
  reason: string;
  /** What to do about it; may be empty. */
  hint: string;
  /** The compile that it belongs to, and the pane with the details. */
  compile: string;
  pane: PaneName;
}

/** A line is hot if it has at least this share of the cost, and at least this many times the average line's. */
const HOT_SHARE = 0.25;
const HOT_FACTOR = 1.5;
const MAX_HOT_LINES = 2;
/** Less memory traffic takes microseconds: no line of a small program is hot. */
const MIN_HOT_BYTES = 2 ** 18;

/** Returns all marks of a record: its problems, the worst first; then what became static, and what costs most. */
export function marksOf(record: CutawayRecord, links: Links): Mark[] {
  const compiles = record.frames.flatMap((frame) => frame.compiles);
  const unique = new Map<string, Mark>();
  for (const mark of compiles.flatMap(staticMarks)) {
    const key = `${mark.line} ${mark.kind} ${mark.title}`;
    unique.set(key, mergeMarks(unique.get(key), mark));
  }
  return [...record.problems.flatMap(problemMarks), ...unique.values(), ...hotMarks(record, links)];
}

/** Merges two marks that differ in their reasons; the compile is the first one's. */
function mergeMarks(first: Mark | undefined, next: Mark): Mark {
  if (!first || first.reason.split("\n").includes(next.reason)) return first ?? next;
  return { ...first, reason: `${first.reason}\n${next.reason}`, hint: first.hint || next.hint };
}

/**
 * Merges the marks of one line, the most important first, into one for each kind. It has the text of the first, and how
 * many equal or different ones there are.
 */
export function mergeMarksOfLine<M extends Mark>(marks: M[]): M[] {
  const kinds = new Map<MarkKind, M[]>();
  for (const mark of marks) appendTo(kinds, mark.kind, mark);
  return [...kinds.values()].map((same) => {
    const [first] = same;
    if (same.length === 1) return first;
    const titles = unique(same.map(({ title }) => title));
    // what else the line has, by title
    const reasons = unique(same.map(({ title, reason }) => (titles.length > 1 ? `${title}: ${reason}` : reason)));
    const hint = unique(same.map(({ hint }) => hint).filter(Boolean)).join(" ");
    const count = titles.length > 1 ? `+ ${titles.length - 1} more` : `× ${same.length}`;
    return { ...first, title: `${first.title} ${count}`, reason: reasons.join("\n"), hint };
  });
}

function unique(texts: string[]): string[] {
  return [...new Set(texts)];
}

function problemMarks({ kind, grade, title, cause, advice, checked, cost, compiles, line }: Problem): Mark[] {
  if (line === null) return [];
  const reason = [cause, cost].filter(Boolean).join("\n");
  const usual = kind === "failure" && grade === "costly" ? "break" : PROBLEM_MARKS[kind]; // a refusal is no failure
  const mark = grade === "expected" ? "expected" : usual;
  const hint = [advice, checked].filter(Boolean).join("\n");
  return [{ line, kind: mark, title, reason, hint, compile: compiles[0] ?? "", pane: "overview" }];
}

/** A value that data decide has no mark if its part of the graph was compiled for other values, too. */
function staticMarks({ id, symbols }: Compile): Mark[] {
  const free = new Set(symbols.filter(({ became }) => became === null).map(({ source }) => source));
  return symbols.flatMap(({ name, source, became, condition, condition_line, line }): Mark[] => {
    const at = condition_line ?? line;
    if (became === null || at === null || free.has(source)) return [];
    const reason = condition ? `Because of ${readable(condition)}, the compiled code is valid for one value only.` : "";
    const title = `${name || readable(source)} became ${readable(became)}`;
    const hint = "Write the line without comparing with this value, and one compile covers other values too.";
    return [{ line: at, kind: "static", title, reason, hint, compile: id, pane: "sizes" }];
  });
}

function hotMarks(record: CutawayRecord, links: Links): Mark[] {
  const costs = lineCosts(record, links);
  if (costs.length < 2) return [];
  const byTime = allTimed(costs.flatMap((cost) => cost.kernels));
  return costs
    .filter(({ share }) => share >= Math.max(HOT_SHARE, HOT_FACTOR / costs.length))
    .filter(({ bytes }) => byTime || bytes >= MIN_HOT_BYTES)
    .slice(0, MAX_HOT_LINES)
    .map((cost): Mark => {
      const share = percent(cost.share);
      const reason = byTime
        ? `Its kernels take ${duration(cost.ns)}, ${share} of the time of all kernels.`
        : `Its kernels read and write ${bytes(Math.round(cost.bytes))}, ${share} of the traffic of all kernels.`;
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

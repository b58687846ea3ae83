/**
 * The bar at the top of the explorer: the title and counts of graphs, graph breaks, kernels and so on. A count is a
 * button.
 */

import { h } from "../dom/elements";
import { bytes, plural } from "../dom/format";
import type { PaneName } from "../model/content";
import { graphCount, summaryOf } from "../model/record/details";
import type { Compile, Record as CutawayRecord, ItemId, Problem } from "../model/record/record";
import type { State } from "../model/state";

/** What a press on a count shows: a compile, a pane and a line to pin. */
interface Target {
  compile: string;
  pane: PaneName;
  line: ItemId | null;
}

interface Count {
  text: string;
  title: string;
  tone: Tone;
  targets: Target[];
}

/** How a count is coloured: a failure, a warning, or plain. */
type Tone = "bad" | "warns" | "";

/** Creates the bar: the title, the counts, and `more` controls. */
export function createBar(state: State, ...more: HTMLElement[]): HTMLElement {
  const buttons = countsOf(state).map((count) => countButton(state, count));
  const counts = h("span", { class: "counts" }, ...buttons);
  return h("header", { class: "bar" }, h("b", {}, state.record.title || "Cutaway"), counts, ...more);
}

/** Creates the button of a count; each press goes to the next of its targets. */
function countButton(state: State, { text, title, tone, targets: places }: Count): HTMLElement {
  let next = 0;
  const go = () => {
    state.goTo(places[next]);
    next = (next + 1) % places.length;
  };
  return h("button", { class: tone ? `count ${tone}` : "count", title, onclick: go }, text);
}

function countsOf({ record, links }: State): Count[] {
  const compiles = record.frames.flatMap((frame) => frame.compiles);
  const knownLine = (line: ItemId | null) => (line !== null && links.has(line) ? line : null);
  const counts = [
    problemCount(
      record,
      "failure",
      ["failure"],
      "Failures of the compiler; the program ran as plain PyTorch",
      "blocking",
    ),
    problemCount(record, "failure", ["refusal"], "What PyTorch runs, because compiled code might differ", "costly"),
    graphsCount(compiles),
    problemCount(record, "graph break", ["graph break"], "Where and why graphs broke, and what to write instead"),
    problemCount(record, "recompile", ["recompile"], "Why code was recompiled: the guard that failed"),
    problemCount(
      record,
      "plain Python",
      ["frame in plain Python", "frames in plain Python"],
      "Functions that are not compiled, and why",
    ),
    problemCount(
      record,
      "no CUDA graph",
      ["graph without CUDA graph", "graphs without CUDA graph"],
      "Graphs whose launches are not replayed, and why",
    ),
    problemCount(record, "slow compile", ["slow compile"], "Compiles that take long because a block is repeated"),
    savedCount(compiles),
    kernelCount(compiles),
    expectedCount(record, "graph break", "expected break", "Graph breaks at lines where nothing needs to change"),
    expectedCount(record, "recompile", "expected recompile", "Recompiles after which nothing needs to change"),
  ];
  return counts
    .filter(({ targets }) => targets.length)
    .map((count) => ({
      ...count,
      targets: count.targets.map((target) => ({ ...target, line: knownLine(target.line) })),
    }));
}

function target(compile: Compile, pane: PaneName, line: ItemId | null = null): Target {
  return { compile: compile.id, pane, line };
}

function graphsCount(compiles: Compile[]): Count {
  const captured = compiles.filter(graphCount);
  const count = captured.reduce((sum, compile) => sum + graphCount(compile), 0);
  return {
    text: plural(count, "graph"),
    title: "Show the captured graphs, one after another",
    tone: "",
    targets: captured.map((compile) => target(compile, "captured")),
  };
}

/** The count of the problems of one kind that need an action, of one grade or of both. */
function problemCount(
  record: CutawayRecord,
  kind: Problem["kind"],
  names: [one: string, several?: string],
  title: string,
  only?: Problem["grade"],
): Count {
  const counted = ({ grade }: Problem) => (only ? grade === only : grade !== "expected");
  const targets = problemTargets(record.problems.filter((problem) => problem.kind === kind && counted(problem)));
  const isBad = kind === "failure" && only === "blocking";
  const text = plural(targets.length, ...names);
  return { text, title, tone: isBad ? "bad" : "warns", targets };
}

/** The count of the problems of one kind that are expected. */
function expectedCount(record: CutawayRecord, kind: Problem["kind"], name: string, title: string): Count {
  const problems = record.problems.filter((problem) => problem.kind === kind && problem.grade === "expected");
  const targets = problemTargets(problems);
  return { text: plural(targets.length, name), title, tone: "", targets };
}

/** A recompile counts for each compile, anything else for each line, as in compiler_core/records/problems.py. */
function problemTargets(problems: Problem[]): Target[] {
  return problems.flatMap(({ kind, compiles, line }) =>
    (compiles.length && kind === "recompile" ? compiles : [compiles[0] ?? ""]).map(
      (compile): Target => ({ compile, pane: "overview", line }),
    ),
  );
}

function savedCount(compiles: Compile[]): Count {
  const saving = compiles.filter((compile) => summaryOf(compile).saved_count);
  const size = saving.reduce((sum, compile) => sum + summaryOf(compile).saved_bytes, 0);
  return {
    text: `${bytes(size)} saved`,
    title: "What is saved for the backward, and why",
    tone: "",
    targets: saving.map((compile) => target(compile, "partition")),
  };
}

function kernelCount(compiles: Compile[]): Count {
  const withKernels = compiles.filter(({ kernels }) => kernels.length);
  const count = withKernels.reduce(
    (sum, { kernels }) => sum + kernels.filter(({ language }) => language !== "extern").length,
    0,
  );
  return {
    text: plural(count, "kernel"),
    title: "Which kernels and lines cost most",
    tone: "",
    targets: withKernels.map((compile) => target(compile, "costs")),
  };
}

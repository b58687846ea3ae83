/** The overview of a compile: failures, its outcome, why it was recompiled, its graph breaks, and counts. */

import { h, prose } from "../../dom/elements";
import { bytes, plural } from "../../dom/format";
import {
  type CompileFailure,
  failuresOf,
  headline,
  isRefusal,
  remedy,
  shortMessage,
} from "../../model/analysis/failures";
import { breakProblem, recompileProblem } from "../../model/analysis/problems";
import { frameKind, frameName, NOTHING_COMPILED, shownName } from "../../model/frame_names";
import type {
  Compile,
  Frame,
  GraphBreak,
  ItemId,
  Problem,
  Recompile,
  StackLine,
  StepNote,
} from "../../model/record/record";
import { frameOf, type State } from "../../model/state";
import { cells, code, LinkedContent, shortCell } from "../linked_content";
import { changeOffer } from "../source_change";

export class Overview extends LinkedContent {
  constructor(state: State) {
    super(state);
    this.element.classList.add("overview");
    const { frame, compile } = state;
    this.element.append(...failuresOf(state.record).map((failed) => this.failure(failed)));
    if (frame) this.element.append(h("h3", {}, frameName(frame), h("small", {}, ` ${frameKind(frame)}`)));
    if (compile) this.addCompile(compile);
    else if (frame) this.element.append(h("p", {}, withoutCompile(frame)));
    else this.element.append(h("p", {}, NOTHING_COMPILED));
    this.addNotes();
    this.addProblems();
    this.highlight();
  }

  /** All problems of the run, the worst first; a row shows the compile and the line of one. */
  private addProblems(): void {
    const { problems } = this.state.record;
    if (problems.length < 2) return;
    const rows = problems.slice(0, MAX_PROBLEMS).map((problem) => {
      const { grade, title, cause, lineno, filename, checked } = problem;
      const open = (event: Event) => {
        event.stopPropagation(); // the row pins its line only
        this.state.goToProblem(problem);
      };
      const place = lineno ? `${this.state.label(filename)}:${lineno}` : "";
      const name = h("button", { class: "link", onclick: open }, ...prose(title));
      const text = h("div", {}, name, h("div", {}, ...prose(cause)), checked && h("small", {}, ...prose(checked)));
      return this.linkTo(h("tr", {}, ...cells(grade, shortCell(place), text)), [problem.line]);
    });
    const more = problems.length - rows.length;
    this.element.append(
      h("h3", { class: "problems" }, "All problems of this run"),
      this.table(["Grade", "Line", "Problem"], rows),
      ...(more > 0 ? [h("p", {}, `And ${more.toLocaleString("en")} more.`)] : []),
    );
  }

  /** A line is shown with the whole problem that it belongs to. */
  protected around(row: HTMLElement): Element {
    return row.closest(".block") ?? row;
  }

  private addCompile(compile: Compile): void {
    this.element.append(h("p", {}, outcome(compile, this.state.isLive)));
    if (compile.cause) this.element.append(this.recompile(compile, compile.cause));
    this.element.append(...compile.breaks.map((b) => this.graphBreak(compile, b)));
    const shown = ["plain Python", "no CUDA graph", "slow compile", "changed graph"];
    const others = this.state.record.problems.filter(({ kind }) => shown.includes(kind));
    for (const problem of others) if (problem.compiles.includes(compile.id)) this.element.append(this.other(problem));
    this.element.append(counts(compile));
  }

  private recompile(compile: Compile, cause: Recompile): HTMLElement {
    const problem = recompileProblem(this.state.record, compile);
    const compare = (event: Event) => {
      event.stopPropagation();
      this.state.open("compare");
    };
    const block = h(
      "div",
      { class: problem && problem.grade !== "expected" ? "block warn" : "block" },
      h("h4", {}, `Recompiled: a guard of ${cause.of} failed`, grade(problem)),
      h("p", {}, ...prose(problem?.compiles[0] === compile.id ? problem.cause : cause.text)),
      cause.is_confirmed && h("p", {}, h("small", {}, CONFIRMED)),
      ...costAndAdvice(problem),
      changeOffer(this.state, problem),
      h("p", {}, h("button", { class: "link", onclick: compare }, `Compare with ${cause.of}`)),
    );
    return this.linkTo(block, [cause.line]);
  }

  private graphBreak(compile: Compile, b: GraphBreak): HTMLElement {
    const problem = breakProblem(this.state.record, compile, b);
    const block = h(
      "div",
      { class: problem?.grade === "expected" ? "block" : "block warn" },
      h("h4", {}, `Graph break: ${b.kind}`, grade(problem)),
      h("p", {}, ...prose(problem?.breaks[0] === `${compile.id}#${b.key}` ? problem.cause : b.explanation)),
      ...costAndAdvice(problem ?? { advice: b.hint, cost: "", checked: "" }),
      changeOffer(this.state, problem),
      ...this.stack(compile, b),
      ...b.resumes.map((id) => this.resume(id)),
      this.step(b),
    );
    return block;
  }

  /** A problem that is neither a recompile nor a break. */
  private other(problem: Problem): HTMLElement {
    const { grade: degree, title, cause, line } = problem;
    const block = h(
      "div",
      { class: degree === "expected" ? "block" : "block warn" },
      h("h4", {}, capitalized(title), grade(problem)),
      h("p", {}, ...prose(cause)),
      ...costAndAdvice(problem),
      changeOffer(this.state, problem),
    );
    return this.linkTo(block, [line]);
  }

  /** The user's lines at a break, and those of libraries behind them, folded. */
  private stack({ caller }: Compile, { stack, instruction }: GraphBreak): HTMLElement[] {
    const all = caller ? [caller, ...stack] : stack;
    const own = all.filter(({ library }) => !library);
    const lines = (of: StackLine[]) => of.map((line) => this.stackLine(line, instruction));
    if (!own.length || own.length === all.length) return lines(all);
    const inside = all.filter(({ library }) => library);
    const names = [...new Set(inside.map(({ library }) => library))].join(", ");
    const head = h("summary", {}, `${plural(inside.length, "line")} of ${names} behind it`);
    return [...lines(own), h("details", { class: "stack" }, head, ...lines(inside))];
  }

  private stackLine(line: StackLine, instruction: ItemId | null): HTMLElement {
    const place = h("small", {}, `${shownName(line.function)}, ${this.state.label(line.filename)}:${line.lineno}`);
    return this.linkTo(h("div", { class: "stack" }, code(line.text.trim()), place), [line.line, instruction]);
  }

  private resume(id: number): HTMLElement | null {
    const frame = frameOf(this.state.record, id);
    if (!frame) return null;
    const reached = frame.calls ? "" : ", not reached";
    const open = h("button", { class: "link", onclick: () => this.state.selectFrame(frame) }, frameName(frame));
    return h("p", { class: "resume" }, "continues in ", open, reached);
  }

  /** The link to the symbolic step of a graph break, if the steps were recorded. */
  private step({ kind }: GraphBreak): HTMLElement | null {
    const { compile } = this.state;
    const attempt = compile?.steps.findIndex(({ notes }) =>
      notes.some((n) => n.kind === "break" && n.text.includes(kind)),
    );
    if (!compile || attempt === undefined || attempt < 0) return null;
    const note = compile.steps[attempt].notes.find((n) => n.kind === "break" && n.text.includes(kind)) as StepNote;
    const go = () => this.state.goToStep(attempt, note.step);
    return h("p", {}, "at ", h("button", { class: "link", onclick: go }, `step ${note.step + 1} of the capture`));
  }

  /** A failure; those of all compiles come first, whichever compile is shown. */
  private failure({ compile, failure }: CompileFailure): HTMLElement {
    const { filename, lineno, line, message, meaning, detail } = failure;
    const more = detail || message;
    const isCurrent = compile === this.state.compile;
    const open = () => this.state.select(compile);
    const block = h(
      "div",
      { class: isRefusal(failure) ? "block warn" : "block bad" },
      h("h4", {}, isRefusal(failure) ? capitalized(headline(failure)) : `Failure: ${headline(failure)}`),
      h("p", {}, code(shortMessage(failure))),
      meaning && h("p", {}, meaning),
      remedy(failure) && h("p", {}, h("b", {}, "What to do: "), remedy(failure)),
      lineno ? h("p", {}, h("small", {}, `${this.state.label(filename)}:${lineno}`)) : null,
      isCurrent ? null : h("p", {}, "in ", h("button", { class: "link", onclick: open }, `compile ${compile.id}`)),
      h("details", {}, h("summary", {}, "Traceback"), h("pre", {}, more)),
    );
    return this.linkTo(block, [line]);
  }

  private addNotes(): void {
    const { notes, versions, options } = this.state.record;
    this.element.append(...notes.map((note) => h("p", { class: "block warn" }, note)));
    const facts = [...Object.entries(versions), ...Object.entries(options)].map(([name, value]) => `${name} ${value}`);
    if (facts.length) this.element.append(h("p", { class: "facts" }, facts.join(" · ")));
  }
}

const MAX_PROBLEMS = 100;

/** Shown where only one fact differs from what a compile expects. */
const CONFIRMED = "Checked: all other guards of that compile hold for this call.";

function capitalized(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** The grade of a problem, beside its heading. */
function grade(problem?: Problem): HTMLElement | null {
  return problem ? h("small", {}, ` ${problem.grade}`) : null;
}

/** What a problem cost, what to do about it, and how that was checked. */
function costAndAdvice(problem?: Pick<Problem, "advice" | "cost" | "checked">): HTMLElement[] {
  if (!problem) return [];
  const { advice, cost, checked } = problem;
  const lines = [
    cost && h("p", {}, ...prose(cost)),
    advice && h("p", {}, h("b", {}, "What to do: "), ...prose(advice)),
    checked && h("p", { class: "checked" }, ...prose(checked)),
  ];
  return lines.filter((line) => line instanceof HTMLElement);
}

function withoutCompile(frame: Frame): string {
  if (frame.skipped) return `It runs as plain Python: ${frame.skipped}`;
  return "It was not reached, so it was not compiled.";
}

function outcome(compile: Compile, isLive: boolean): string {
  const reason = compile.reason.split("\n", 1)[0];
  if (compile.outcome === "skipped" && reason) return `Compile ${compile.id} was not installed: ${reason}.`;
  const backend = compile.backend ? `; its backend is ${compile.backend}` : "";
  const done = {
    compiled: `Compile ${compile.id} was installed${backend}.`,
    skipped: `Compile ${compile.id} was not installed; the frame runs as plain Python.`,
    failed: compile.failures.some(({ kind }) => kind !== "backend")
      ? `Compile ${compile.id} failed; the frame runs as plain Python.`
      : `Compile ${compile.id} ended with an exception.`,
    running: isLive ? `Compile ${compile.id} is running.` : `Compile ${compile.id} did not finish.`,
  }[compile.outcome];
  return reason ? `${done} ${reason}` : done;
}

/** How much there is of each stage that the compile has. */
function counts(compile: Compile): HTMLElement {
  const operations = (pane: string) => {
    const graphs = compile.artifacts.filter((a) => a.pane === pane).flatMap(({ graph }) => graph ?? []);
    const calls = graphs.flatMap(({ nodes }) => nodes.filter((n) => n.op.startsWith("call_")));
    return graphs.length ? plural(calls.length, "operation") : null;
  };
  const { partition, kernels } = compile;
  const ours = kernels.filter((k) => k.language !== "extern").length;
  const facts: [string, string | null][] = [
    ["captured", operations("captured") ?? "no operation"],
    ["guards", String(compile.guards.length)],
    ["forward", operations("forward")],
    ["backward", operations("backward")],
    ["saved for backward", partition && `${plural(partition.saved_count, "tensor")}, ${bytes(partition.saved_bytes)}`],
    [
      "kernels",
      kernels.length
        ? `${plural(ours, "generated kernel")}, ${plural(kernels.length - ours, "call")} of PyTorch kernels`
        : null,
    ],
  ];
  const known = facts.filter(([, value]) => value !== null) as [string, string][];
  return h("dl", {}, ...known.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** One compile in words: what came of it, why the graph ended, why it was compiled again. */

import { bytes, h, plural } from "../dom/dom";
import { cause, type Failed, failuresOf, headline, remedy } from "../model/failures";
import type { Compile, Frame, GraphBreak, ItemId, Recompile, StackLine, StepNote } from "../model/record";
import { frameOf, type State } from "../model/state";
import { code, Rows } from "./rows";

export class Overview extends Rows {
  constructor(state: State) {
    super(state);
    this.element.classList.add("overview");
    const { frame, compile } = state;
    this.element.append(...failuresOf(state.record).map((failed) => this.failure(failed)));
    if (frame) this.element.append(h("h3", {}, frameName(frame), h("small", {}, ` ${frameKind(frame)}`)));
    if (compile) this.addCompile(compile);
    else if (frame) this.element.append(h("p", {}, withoutCompile(frame)));
    else this.element.append(h("p", {}, "Nothing was compiled: no frame ran any tensor operation."));
    this.addNotes();
    this.light();
  }

  private addCompile(compile: Compile): void {
    this.element.append(h("p", {}, outcome(compile)));
    if (compile.cause) this.element.append(this.recompile(compile.cause));
    this.element.append(...compile.breaks.map((b) => this.graphBreak(b)));
    this.element.append(counts(compile));
  }

  private recompile(cause: Recompile): HTMLElement {
    const compare = (event: Event) => {
      event.stopPropagation();
      this.state.open("compare");
    };
    const block = h(
      "div",
      { class: "block" },
      h("h4", {}, `Compiled again: a guard of ${cause.of} failed`),
      h("p", {}, code(cause.source), ": expected ", code(cause.expected), ", got ", code(cause.got)),
      h("p", {}, h("button", { class: "link", onclick: compare }, `What differs from ${cause.of}`)),
    );
    return this.standsFor(block, [cause.line]);
  }

  private graphBreak(b: GraphBreak): HTMLElement {
    const block = h(
      "div",
      { class: "block warn" },
      h("h4", {}, `Graph break: ${b.kind}`),
      h("p", {}, b.explanation),
      b.hint && h("p", {}, h("b", {}, "What to do: "), b.hint),
      ...b.stack.map((line) => this.stackLine(line, b.instruction)),
      ...b.resumes.map((id) => this.resume(id)),
      this.step(b),
    );
    return block;
  }

  private stackLine(line: StackLine, instruction: ItemId | null): HTMLElement {
    const place = h("small", {}, `${line.function}, ${this.state.label(line.filename)}:${line.lineno}`);
    return this.standsFor(h("div", { class: "stack" }, code(line.text.trim()), place), [line.line, instruction]);
  }

  private resume(id: number): HTMLElement | null {
    const frame = frameOf(this.state.record, id);
    if (!frame) return null;
    const reached = frame.calls ? "" : ", never reached";
    const open = h("button", { class: "link", onclick: () => this.state.selectFrame(frame) }, frameName(frame));
    return h("p", { class: "resume" }, "goes on in ", open, reached);
  }

  /** To the symbolic interpreter's step that met the break, where the steps were recorded. */
  private step({ kind }: GraphBreak): HTMLElement | null {
    const { compile } = this.state;
    const attempt = compile?.steps.findIndex(({ notes }) =>
      notes.some((n) => n.kind === "break" && n.text.includes(kind)),
    );
    if (!compile || attempt === undefined || attempt < 0) return null;
    const note = compile.steps[attempt].notes.find((n) => n.kind === "break" && n.text.includes(kind)) as StepNote;
    const go = () => this.state.stepTo(attempt, note.step);
    return h("p", {}, h("button", { class: "link", onclick: go }, `step ${note.step + 1} of the capture`), " met it");
  }

  /** A failure of any compile stands first, whichever compile is looked at. */
  private failure({ compile, failure }: Failed): HTMLElement {
    const { filename, lineno, line, message, meaning, detail } = failure;
    const more = detail || message;
    const here = compile === this.state.compile;
    const open = () => this.state.select(compile);
    const block = h(
      "div",
      { class: "block bad" },
      h("h4", {}, `Failure: ${headline(failure)}`),
      h("p", {}, code(cause(failure))),
      meaning && h("p", {}, meaning),
      remedy(failure) && h("p", {}, h("b", {}, "What to do: "), remedy(failure)),
      lineno ? h("p", {}, h("small", {}, `${this.state.label(filename)}:${lineno}`)) : null,
      here ? null : h("p", {}, "in ", h("button", { class: "link", onclick: open }, `compile ${compile.id}`)),
      h("details", {}, h("summary", {}, "Traceback"), h("pre", {}, more)),
    );
    return this.standsFor(block, [line]);
  }

  private addNotes(): void {
    const { notes, versions, options } = this.state.record;
    this.element.append(...notes.map((note) => h("p", { class: "block warn" }, note)));
    const facts = [...Object.entries(versions), ...Object.entries(options)].map(([name, value]) => `${name} ${value}`);
    if (facts.length) this.element.append(h("p", { class: "facts" }, facts.join(" · ")));
  }
}

/** A resume function has the name of the function that it is the rest of; a cell's own code has none. */
export function frameName(frame: Frame): string {
  const name = frame.name === "<module>" ? "top level" : frame.name;
  return frame.kind === "resume" ? `${name} from line ${frame.line}` : name;
}

export function frameKind(frame: Frame): string {
  if (frame.kind === "resume") return frame.resumes ? `resumes after the break of ${frame.resumes}` : "resume function";
  return frame.kind === "called" ? "called from compiled code" : "";
}

function withoutCompile(frame: Frame): string {
  if (frame.skipped) return `It runs as plain Python: ${frame.skipped}`;
  return "It was never reached, so nothing was compiled for it.";
}

function outcome(compile: Compile): string {
  const backend = compile.backend ? `; its backend is ${compile.backend}` : "";
  const done = {
    compiled: `Compile ${compile.id} was installed${backend}.`,
    skipped: `Compile ${compile.id} was not installed; the frame runs as plain Python.`,
    failed: `Compile ${compile.id} failed; the frame runs as plain Python.`,
    running: `Compile ${compile.id} did not end.`,
  }[compile.outcome];
  return compile.reason ? `${done} ${compile.reason}` : done;
}

function counts(compile: Compile): HTMLElement {
  const operations = (pane: string) =>
    compile.artifacts
      .filter((a) => a.pane === pane)
      .flatMap((a) => a.graph?.nodes ?? [])
      .filter((n) => n.op.startsWith("call_")).length;
  const saved = compile.partition;
  const ours = compile.kernels.filter((k) => k.language !== "extern").length;
  const facts: [string, string][] = [
    ["captured", plural(operations("captured"), "operation")],
    ["guards", String(compile.guards.length)],
    ["forward", plural(operations("forward"), "operation")],
    ["backward", plural(operations("backward"), "operation")],
    ["saved for backward", saved ? `${plural(saved.saved_count, "tensor")}, ${bytes(saved.saved_bytes)}` : "nothing"],
    ["kernels", `${plural(ours, "kernel")} of ours, ${plural(compile.kernels.length - ours, "call")} to PyTorch's`],
  ];
  return h("dl", {}, ...facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** The list of frames and their compiles; resume functions are listed under the frame whose graph break they follow. */

import { h, onceSized, prose, scrollInside } from "../dom/elements";
import { headline, isRefusal, shortMessage } from "../model/analysis/failures";
import { breakPlace, breakProblem, recompileProblem } from "../model/analysis/problems";
import { frameKind, frameName } from "../model/frame_names";
import { graphCount } from "../model/record/details";
import type { Compile, Frame, GraphBreak, Recompile } from "../model/record/record";
import type { State } from "../model/state";

/** Maximal number of rows: a browser takes seconds for some thousands of them. */
export const MAX_ROWS = 2000;

interface Row {
  element: HTMLElement;
  choose: () => void;
  isCurrent: () => boolean;
}

export class Tree {
  readonly element = h("nav", { class: "tree", "aria-label": "Frames and compiles" });
  private readonly list = h("div", { role: "tree", "aria-label": "Frames and compiles" });
  private readonly rows: Row[] = [];

  constructor(private readonly state: State) {
    const { frames } = state.record;
    for (const [first, ...rest] of groupByFirstFrame(frames)) {
      this.addFrame(first, 1);
      for (const frame of rest) this.addFrame(frame, 2);
    }
    this.element.append(this.list);
    const all = frames.length + frames.reduce((sum, frame) => sum + frame.compiles.length, 0);
    const shown = this.list.childElementCount;
    if (shown < all) {
      const text = `Showing the first ${shown.toLocaleString("en")} of ${all.toLocaleString("en")} frames and compiles.`;
      this.element.append(h("p", { class: "note", role: "note" }, text));
    }
    if (!frames.length) this.element.append(h("p", { class: "empty" }, "No frame ran."));
    for (const note of state.record.notes) this.element.append(h("p", { class: "note", role: "note" }, note));
    this.list.addEventListener("keydown", (event) => this.handleKey(event));
    state.on("compile", () => this.updateSelection());
    onceSized(this.element, () => this.updateSelection());
  }

  /** The line of a frame, with its file if the record has several. */
  private positionText(frame: Frame): string {
    if (this.state.record.sources.length > 1) return `${this.state.label(frame.filename)}:${frame.line}`;
    return frame.kind === "resume" ? "" : `line ${frame.line}`;
  }

  private addFrame(frame: Frame, level: number): void {
    if (this.list.childElementCount >= MAX_ROWS) return;
    const element = h(
      "div",
      {
        class: "frame",
        title: `${frame.name}\n${this.state.label(frame.filename)}:${frame.line}`,
        style: `--level:${level - 1}`,
      },
      h("span", { class: "name" }, frameName(frame)),
      h("span", { class: "place" }, [frameKind(frame), this.positionText(frame)].filter(Boolean).join(" · ")),
      this.frameState(frame),
    );
    this.list.append(element);
    element.setAttribute("role", "treeitem");
    element.setAttribute("aria-level", String(level));
    if (frame.compiles.length) {
      element.setAttribute("aria-expanded", "true");
      element.addEventListener("click", () => this.state.selectFrame(frame));
    } else {
      this.addRow(
        element,
        level,
        () => this.state.selectFrame(frame),
        () => this.state.frame === frame,
      );
    }
    for (const compile of frame.compiles) this.addCompile(compile, level + 1);
  }

  private frameState(frame: Frame): HTMLElement | null {
    if (frame.skipped) return h("span", { class: "why" }, `runs as plain Python: ${frame.skipped}`);
    if (!frame.calls && !frame.compiles.length) return h("span", { class: "why" }, "not reached");
    return null;
  }

  private addCompile(compile: Compile, level: number): void {
    if (this.list.childElementCount >= MAX_ROWS) return;
    const marks = {
      compiled: ["✓", "compiled"],
      failed: ["✗", "failed"],
      skipped: ["–", "skipped"],
      running: ["…", "did not finish"],
    };
    const impaired = compile.outcome === "compiled" && compile.failures.length > 0;
    const [sign, word] = impaired ? ["!", "compiled, with a failure"] : marks[compile.outcome];
    const element = h(
      "div",
      { class: `compile ${impaired ? "impaired" : compile.outcome}`, style: `--level:${level - 1}` },
      h("span", { class: "id" }, compile.id),
      h("span", { class: "sign", role: "img", "aria-label": word, title: word }, sign),
      h("span", { class: "lines" }, ...this.compileLines(compile)),
    );
    this.list.append(element);
    this.addRow(
      element,
      level,
      () => this.state.select(compile),
      () => this.state.compile === compile,
    );
  }

  private compileLines(compile: Compile): HTMLElement[] {
    const lines: [kind: string, text: string, title?: string][] = [];
    for (const failure of compile.failures) {
      lines.push([isRefusal(failure) ? "break" : "failure", `${headline(failure)}: ${shortMessage(failure)}`]);
    }
    if (compile.cause) {
      const problem = recompileProblem(this.state.record, compile);
      lines.push([problem?.grade === "expected" ? "expected" : "cause", ...recompileText(compile.cause)]);
    }
    if (compile.reason) lines.push(["why", compile.reason]);
    for (const b of compile.breaks) {
      const problem = breakProblem(this.state.record, compile, b);
      lines.push([problem?.grade === "expected" ? "expected" : "break", `graph break${breakPosition(b)}: ${b.kind}`]);
    }
    if (!lines.length) lines.push(["fine", compile.outcome === "compiled" ? withoutBreaks(compile) : compile.outcome]);
    return lines.map(([kind, text, title = text]) => {
      const opensOverview = kind !== "fine" && kind !== "why";
      const open = () => this.state.goTo({ compile: compile.id, pane: "overview", line: null });
      return h("span", { class: kind, title, onclick: opensOverview && open }, ...prose(text));
    });
  }

  private addRow(element: HTMLElement, level: number, choose: () => void, isCurrent: () => boolean): void {
    element.setAttribute("role", "treeitem");
    element.setAttribute("aria-level", String(level));
    element.classList.add("row");
    element.addEventListener("click", choose);
    this.rows.push({ element, choose, isCurrent });
  }

  private handleKey(event: KeyboardEvent): void {
    const at = this.rows.findIndex((row) => row.element === document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: this.rows.length - 1, Enter: at, " ": at }[
      event.key
    ];
    const row = to === undefined ? undefined : this.rows[to];
    if (!row) return;
    event.preventDefault();
    row.choose();
    row.element.focus();
  }

  private updateSelection(): void {
    const current = this.rows.find((row) => row.isCurrent()) ?? this.rows[0];
    for (const row of this.rows) {
      row.element.setAttribute("aria-selected", String(row.isCurrent()));
      row.element.tabIndex = row === current ? 0 : -1;
    }
    if (current) scrollInside(this.element, current.element);
  }
}

/** Groups each frame with the resume functions that follow it, directly or after one another, in the frames' order. */
export function groupByFirstFrame(frames: Frame[]): Frame[][] {
  const byId = new Map([...frames].reverse().map((frame) => [frame.id, frame]));
  const beginning = new Map<Frame, Frame>();
  const found = new Map<Frame, Frame[]>();
  // in an untrusted record frames could resume one another in a cycle: only a frame with a smaller id is followed
  for (const frame of [...frames].sort((a, b) => a.id - b.id)) {
    const from = frame.resumes === null ? undefined : byId.get(Number(frame.resumes.split("/")[0]));
    beginning.set(frame, (from && from.id < frame.id && beginning.get(from)) || frame);
  }
  for (const frame of frames) if (beginning.get(frame) === frame) found.set(frame, [frame]);
  for (const frame of frames) {
    const first = beginning.get(frame) as Frame;
    if (first !== frame) found.get(first)?.push(frame);
  }
  return [...found.values()];
}

/** What differed: a short text and a full one. */
function recompileText({ subject, aspect, expected, got, item, text }: Recompile): [text: string, title: string] {
  if (aspect === "relation") return [`recompiled: ${item} does not hold`, text];
  return [`recompiled: ${subject}: ${expected} → ${got || "another"}`, text];
}

/** Where a graph break is; in an inlined function, that function's line. */
function breakPosition(b: GraphBreak): string {
  const at = breakPlace(b);
  if (!at) return "";
  return at === b.stack[0] ? ` at line ${at.lineno}` : ` in ${at.function}, line ${at.lineno}`;
}

/** Text for a compile without graph break. */
function withoutBreaks(compile: Compile): string {
  return graphCount(compile) ? "one graph, no break" : "no tensor operation";
}

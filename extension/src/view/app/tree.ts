/** Frames and their compiles, resume functions under the frame whose break they go on from. */

import { h, scrollInside, whenSized } from "../dom/dom";
import { cause, headline } from "../model/failures";
import type { Compile, Frame, GraphBreak, Recompile } from "../model/record";
import type { State } from "../model/state";
import { frameKind, frameName } from "../panes/overview";

/** Frames and compiles that are shown; a page takes seconds for some thousands of rows. */
export const MOST_ROWS = 2000;

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
    for (const [first, ...rest] of families(frames)) {
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
    if (!frames.length) this.element.append(h("p", { class: "empty" }, "No frame was seen."));
    for (const note of state.record.notes) this.element.append(h("p", { class: "note", role: "note" }, note));
    this.list.addEventListener("keydown", (event) => this.keyed(event));
    state.on("compile", () => this.mark());
    whenSized(this.element, () => this.mark());
  }

  /** A file is named only where there are several. */
  private place(frame: Frame): string {
    if (this.state.record.sources.length > 1) return `${this.state.label(frame.filename)}:${frame.line}`;
    return frame.kind === "resume" ? "" : `line ${frame.line}`;
  }

  private addFrame(frame: Frame, level: number): void {
    if (this.list.childElementCount >= MOST_ROWS) return;
    const element = h(
      "div",
      {
        class: "frame",
        title: `${frame.name}\n${this.state.label(frame.filename)}:${frame.line}`,
        style: `--level:${level - 1}`,
      },
      h("span", { class: "name" }, frameName(frame)),
      h("span", { class: "place" }, [frameKind(frame), this.place(frame)].filter(Boolean).join(" · ")),
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
    if (this.list.childElementCount >= MOST_ROWS) return;
    const marks = {
      compiled: ["✓", "compiled"],
      failed: ["✗", "failed"],
      skipped: ["–", "skipped"],
      running: ["…", "did not end"],
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
    for (const failure of compile.failures) lines.push(["failure", `${headline(failure)}: ${cause(failure)}`]);
    if (compile.cause) lines.push(["cause", ...recompile(compile.cause)]);
    if (compile.reason) lines.push(["why", compile.reason]);
    for (const b of compile.breaks) {
      lines.push(["break", `graph break${breakPlace(b)}: ${b.kind}`]);
    }
    if (!lines.length) lines.push(["fine", compile.outcome === "compiled" ? whole(compile) : compile.outcome]);
    return lines.map(([kind, text, title = text]) => {
      const tells = kind !== "fine" && kind !== "why";
      const open = () => this.state.goTo({ compile: compile.id, pane: "overview", line: null });
      return h("span", { class: kind, title, onclick: tells && open }, text);
    });
  }

  private addRow(element: HTMLElement, level: number, choose: () => void, isCurrent: () => boolean): void {
    element.setAttribute("role", "treeitem");
    element.setAttribute("aria-level", String(level));
    element.classList.add("row");
    element.addEventListener("click", choose);
    this.rows.push({ element, choose, isCurrent });
  }

  private keyed(event: KeyboardEvent): void {
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

  private mark(): void {
    const current = this.rows.find((row) => row.isCurrent()) ?? this.rows[0];
    for (const row of this.rows) {
      row.element.setAttribute("aria-selected", String(row.isCurrent()));
      row.element.tabIndex = row === current ? 0 : -1;
    }
    if (current) scrollInside(this.element, current.element);
  }
}

/** Each frame with those that resume it, and those that resume them: a break's compile is in the frame before it. */
export function families(frames: Frame[]): Frame[][] {
  const byId = new Map([...frames].reverse().map((frame) => [frame.id, frame]));
  const beginning = new Map<Frame, Frame>();
  const found = new Map<Frame, Frame[]>();
  // in a record from a stranger, frames might resume one another: one resumes only what has a smaller id
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

/** The guard that failed, in few words and in a sentence. */
function recompile({ source, expected, got }: Recompile): [text: string, title: string] {
  const now = expected.startsWith("shape ") ? got.replace(/^shape /, "") : got;
  return [`recompiled: ${source}: ${expected} → ${now}`, `recompiled: ${source}: expected ${expected}, got ${got}`];
}

/** Where a break is; one in a function that was called has its line there. */
function breakPlace({ stack }: GraphBreak): string {
  const at = stack[stack.length - 1];
  if (!at) return "";
  return stack.length > 1 ? ` in ${at.function}, line ${at.lineno}` : ` at line ${at.lineno}`;
}

/** A compile that met no break, in words. */
function whole(compile: Compile): string {
  return compile.artifacts.some((a) => a.pane === "captured") ? "one graph, no break" : "no tensor operation";
}

/** An artifact's text in CodeMirror; its lines are items that light up and can be pinned. */

import { search, searchKeymap } from "@codemirror/search";
import { EditorState, type Extension, RangeSetBuilder, StateEffect, StateField } from "@codemirror/state";
import {
  Decoration,
  type DecorationSet,
  EditorView,
  highlightSpecialChars,
  keymap,
  lineNumbers,
  WidgetType,
} from "@codemirror/view";
import { reducedMotion } from "../dom/dom";
import type { Content } from "../model/content";
import type { Side } from "../model/diff";
import { language } from "../model/languages";
import { push } from "../model/links";
import type { Artifact, ItemId } from "../model/record";
import type { State } from "../model/state";
import { chip, TIP } from "./chips";

export class TextView implements Content {
  readonly element = document.createElement("div");
  private readonly view: EditorView;
  /** The items of each line, from 1: those whose span is the shortest there. */
  private readonly items: ItemId[][];
  private readonly lines = new Map<ItemId, number[]>();

  constructor(
    private readonly artifact: Artifact,
    private readonly state: State,
    label: string,
    /** How it stands beside another text. */
    private readonly side: Side | null = null,
  ) {
    this.element.className = "text";
    const doc = artifact.text.replace(/\n$/, "");
    this.items = itemsOfLines(artifact);
    this.items.forEach((items, n) => {
      for (const item of items) push(this.lines, item, n);
    });
    const begin = EditorState.create({ doc, extensions: this.extensions(label) });
    this.view = new EditorView({ parent: this.element, state: begin, scrollTo: this.start(begin) });
    this.light();
  }

  /** Kernels open at the first line that is linked: above it stands what all kernels need. */
  private start(state: EditorState): StateEffect<unknown> | undefined {
    const first = this.items.findIndex((items) => items?.length);
    if (this.artifact.pane !== "kernel" || this.side || first < 1) return undefined;
    return EditorView.scrollIntoView(state.doc.line(first).from, { y: "start" });
  }

  private extensions(label: string): Extension {
    return [
      EditorState.readOnly.of(true),
      EditorView.contentAttributes.of({
        "aria-label": label,
        "aria-readonly": "true",
        tabindex: "0",
        spellcheck: "false",
      }),
      highlightSpecialChars(),
      this.numbers(),
      language(this.artifact.language),
      LIT,
      EditorView.decorations.of(this.stripes(this.artifact.text)),
      EditorView.decorations.of((this.side && besideAnother(this.artifact.text, this.side)) ?? Decoration.none),
      this.artifact.pane === "source" ? [EditorView.decorations.of((view) => this.chips(view)), TIP] : [],
      search({ top: true }),
      keymap.of([
        { key: "Enter", run: (view) => this.pinLine(view.state.doc.lineAt(view.state.selection.main.head).number) },
        ...searchKeymap,
      ]),
      EditorView.updateListener.of(({ selectionSet, view }) => {
        if (selectionSet && view.hasFocus) this.hoverLine(view.state.doc.lineAt(view.state.selection.main.head).number);
      }),
      EditorView.domEventHandlers({
        mousemove: (event, view) => this.hoverLine(lineUnder(event, view)),
        mouseleave: () => this.state.hover([]),
        click: (event, view) => {
          if (view.state.selection.main.empty) this.pinLine(lineUnder(event, view));
        },
      }),
    ];
  }

  /** The items of a line, from 1. */
  itemsAt(line: number): ItemId[] {
    return this.items[line] ?? [];
  }

  /** What is scrolled. */
  get scroller(): HTMLElement {
    return this.view.scrollDOM;
  }

  private hoverLine(line: number): void {
    this.state.hover(this.itemsAt(line));
  }

  private pinLine(line: number): boolean {
    const items = this.itemsAt(line);
    if (items.length) this.state.pin(items);
    return items.length > 0;
  }

  /** A source's lines are numbered as in their file; a listing of bytecode has numbers of its own. */
  private numbers(): Extension {
    if (this.artifact.language === "bytecode") return [];
    if (this.artifact.pane !== "source") return lineNumbers();
    const keys = new Map(this.artifact.spans.map((s) => [s.first, s.key]));
    return lineNumbers({ formatNumber: (n) => keys.get(n) ?? "" });
  }

  /** The colour of the user's line on each line that came from one, and gaps between a file's parts. */
  private stripes(text: string): DecorationSet {
    const made = new RangeSetBuilder<Decoration>();
    const isSource = this.artifact.pane === "source";
    let from = 0;
    let previous = Number.NaN;
    text
      .replace(/\n$/, "")
      .split("\n")
      .forEach((line, i) => {
        const items = this.items[i + 1] ?? [];
        const colour = items.map((item) => this.state.links.colour(item)).find((c) => c !== null);
        const key = isSource ? Number(this.artifact.spans[i]?.key) : Number.NaN;
        const classes = [
          colour === undefined ? "" : `line c${colour}`,
          items.some((item) => this.state.links.isLinked(item)) ? "linked" : "",
          key > previous + 1 ? "gap" : "",
        ].filter(Boolean);
        if (classes.length) made.add(from, from, Decoration.line({ class: classes.join(" ") }));
        previous = key;
        from += line.length + 1;
      });
    return made.finish();
  }

  /** What the lines of a source are marked with. */
  private chips(view: EditorView): DecorationSet {
    const marks = this.state.marks.filter(({ line }) => this.lines.has(line));
    const made = marks.map((mark) => {
      const [line] = this.lines.get(mark.line) as number[];
      return chip(mark, view.state.doc.line(line).to, (mark) => this.state.goTo(mark));
    });
    return Decoration.set(made, true);
  }

  light(): void {
    const { doc } = this.view.state;
    const { pinLinked, hoverLinked, stepped } = this.state;
    const made = new RangeSetBuilder<Decoration>();
    for (const n of this.linesOf(new Set([...pinLinked, ...hoverLinked, ...stepped]))) {
      const { from } = doc.line(n);
      made.add(from, from, Decoration.line({ class: litClasses(this.items[n], this.state) }));
    }
    this.view.dispatch({ effects: setLit.of(made.finish()) });
  }

  /** The lines of any of `items`, in order. */
  private linesOf(items: Set<ItemId>): number[] {
    const found = new Set([...items].flatMap((item) => this.lines.get(item) ?? []));
    return [...found].filter((n) => n <= this.view.state.doc.lines).sort((a, b) => a - b);
  }

  /** Scroll to the first line of `items`, within this pane only. */
  reveal(items: Set<ItemId>): void {
    const [first] = this.linesOf(items);
    if (first !== undefined) this.showLine(first);
  }

  /** Scroll to a line, or to the last where there are not so many. */
  showLine(number: number): void {
    const line = Math.min(number, this.view.state.doc.lines);
    // only after measuring is it known how high the lines above are
    this.view.requestMeasure({
      key: "reveal",
      read: (view) => view.lineBlockAt(view.state.doc.line(line).from),
      write: ({ top, bottom }, view) => this.scrollTo(top, bottom, view.scrollDOM),
    });
  }

  private scrollTo(top: number, bottom: number, box: HTMLElement): void {
    if (top >= box.scrollTop && bottom <= box.scrollTop + box.clientHeight) return;
    const target = top - box.clientHeight / 3;
    const near = Math.abs(target - box.scrollTop) < 2 * box.clientHeight;
    box.scrollTo({ top: target, behavior: near && !reducedMotion() ? "smooth" : "auto" });
  }

  destroy(): void {
    this.view.destroy();
  }
}

/** How an item looks: pinned, linked to a pinned one, pointed at, linked to what is pointed at, of the step that is looked at. */
export function litClasses(items: ItemId[], state: State): string {
  const classes: string[] = [];
  if (items.some((item) => state.pinned.has(item))) classes.push("pinned");
  else if (items.some((item) => state.pinLinked.has(item))) classes.push("pin-linked");
  if (items.some((item) => state.hovered.has(item))) classes.push("hovered");
  else if (items.some((item) => state.hoverLinked.has(item))) classes.push("hover-linked");
  if (items.some((item) => state.stepped.has(item))) classes.push("stepped");
  return classes.join(" ");
}

/** Marks on the lines that differ, and room for those that only the other text has. */
function besideAnother(text: string, { differing, gaps }: Side): DecorationSet {
  const made = new RangeSetBuilder<Decoration>();
  const lines = text.replace(/\n$/, "").split("\n");
  let from = 0;
  lines.forEach((line, i) => {
    const [kind, gap] = [differing.get(i + 1), gaps.get(i + 1)];
    if (gap) made.add(from, from, Decoration.widget({ widget: new Gap(gap), block: true, side: -1 }));
    if (kind) made.add(from, from, Decoration.line({ class: `differs ${kind}` }));
    from += line.length + 1;
  });
  const end = gaps.get(lines.length + 1);
  if (end) made.add(from - 1, from - 1, Decoration.widget({ widget: new Gap(end), block: true, side: 1 }));
  return made.finish();
}

/** As high as some lines. */
class Gap extends WidgetType {
  constructor(private readonly lines: number) {
    super();
  }

  toDOM(): HTMLElement {
    const gap = document.createElement("div");
    gap.className = "gap-beside";
    gap.style.setProperty("--lines", String(this.lines));
    return gap;
  }
}

const setLit = StateEffect.define<DecorationSet>();
const LIT = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update: (value, transaction) => {
    for (const effect of transaction.effects) if (effect.is(setLit)) return effect.value;
    return value;
  },
  provide: (field) => EditorView.decorations.from(field),
});

function lineUnder(event: MouseEvent, view: EditorView): number {
  const block = view.lineBlockAtHeight(event.clientY - view.documentTop);
  return view.state.doc.lineAt(block.from).number;
}

function itemsOfLines(artifact: Artifact): ItemId[][] {
  const items: ItemId[][] = [];
  const lengths: number[] = [];
  const most = artifact.text.split("\n").length;
  for (const span of artifact.spans) {
    const item = `${artifact.id}#${span.key}`;
    const length = span.last - span.first;
    for (let n = Math.max(span.first, 1); n <= Math.min(span.last, most); n++) {
      if (!items[n] || length < lengths[n]) {
        items[n] = [item];
        lengths[n] = length;
      } else if (length === lengths[n]) items[n].push(item);
    }
  }
  return items;
}

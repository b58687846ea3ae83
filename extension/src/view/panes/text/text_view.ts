/** An artifact's text in CodeMirror; its lines are linked to items, which are highlighted and can be pinned. */

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
import { onceSized, prefersReducedMotion } from "../../dom/elements";
import type { AlignedSide } from "../../model/analysis/diff";
import { appendTo } from "../../model/analysis/links";
import { type Mark, mergeMarksOfLine } from "../../model/analysis/marks";
import type { Content } from "../../model/content";
import type { Artifact, ItemId } from "../../model/record/record";
import type { State } from "../../model/state";
import { highlightClasses } from "../highlight_classes";
import { syntaxHighlighting } from "./highlighting";
import { MARKS, markChips } from "./mark_chip";
import { foldedPrelude } from "./prelude";

export class TextView implements Content {
  readonly element = document.createElement("div");
  private readonly view: EditorView;
  /** The items of each line, from 1: those with the shortest span that contains the line. */
  private readonly items: ItemId[][];
  private readonly lines = new Map<ItemId, number[]>();
  private readonly goTo = (mark: Mark) => this.state.goTo(mark);

  constructor(
    private readonly artifact: Artifact,
    private readonly state: State,
    label: string,
    /** The alignment with another text shown beside it. */
    private readonly side: AlignedSide | null = null,
  ) {
    this.element.className = "text";
    const doc = artifact.text.replace(/\n$/, "");
    this.items = itemsOfLines(artifact);
    this.items.forEach((items, n) => {
      for (const item of items) appendTo(this.lines, item, n);
    });
    const begin = EditorState.create({ doc, extensions: this.extensions(label) });
    this.view = new EditorView({ parent: this.element, state: begin });
    // the editor ignores a scroll before it knows that it is visible, and would stay blank
    this.view.scrollDOM.addEventListener("scroll", () => this.view.requestMeasure());
    // in a shadow root, as in marimo, that is where the editor's styles must be
    onceSized(this.element, () => this.view.setRoot(this.element.getRootNode() as Document | ShadowRoot));
    this.highlight();
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
      this.lineNumberExtension(),
      syntaxHighlighting(this.artifact.language),
      HIGHLIGHTS,
      EditorView.decorations.of(this.stripeDecorations(this.artifact.text)),
      EditorView.decorations.of((this.side && alignmentDecorations(this.artifact.text, this.side)) ?? Decoration.none),
      this.artifact.pane === "source" ? [EditorView.decorations.of((view) => this.markDecorations(view)), MARKS] : [],
      this.artifact.pane === "kernel" && !this.side
        ? foldedPrelude(this.items.findIndex((items) => items?.length))
        : [],
      search({ top: true }),
      keymap.of([
        { key: "Enter", run: (view) => this.pinLine(view.state.doc.lineAt(view.state.selection.main.head).number) },
        { key: "ArrowDown", run: (view) => this.movePin(view, 1) },
        { key: "ArrowUp", run: (view) => this.movePin(view, -1) },
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

  /** Returns the items of a line, counted from 1. */
  itemsAt(line: number): ItemId[] {
    return this.items[line] ?? [];
  }

  /** The element that scrolls. */
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

  /** Moves the pin to the next line that has items; returns whether one of this text is pinned. */
  private movePin(view: EditorView, by: 1 | -1): boolean {
    const { doc, selection } = view.state;
    const from = doc.lineAt(selection.main.head).number;
    if (!this.itemsAt(from).some((item) => this.state.pinned.has(item))) return false;
    for (let line = from + by; line >= 1 && line <= doc.lines; line += by) {
      if (!this.pinLine(line)) continue;
      view.dispatch({ selection: { anchor: doc.line(line).from }, scrollIntoView: true });
      break;
    }
    return true;
  }

  /** Sources have the line numbers of their file; bytecode listings contain offsets and have none. */
  private lineNumberExtension(): Extension {
    if (this.artifact.language === "bytecode") return [];
    if (this.artifact.pane !== "source") return lineNumbers();
    const keys = new Map(this.artifact.spans.map((s) => [s.first, s.key]));
    return lineNumbers({ formatNumber: (n) => keys.get(n) ?? "" });
  }

  /**
   * Colours each line by the user's line that it was made from, and separates parts of a source that are not
   * consecutive.
   */
  private stripeDecorations(text: string): DecorationSet {
    const builder = new RangeSetBuilder<Decoration>();
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
        if (classes.length) builder.add(from, from, Decoration.line({ class: classes.join(" ") }));
        previous = key;
        from += line.length + 1;
      });
    return builder.finish();
  }

  /** The marks of a source's lines. */
  private markDecorations(view: EditorView): DecorationSet {
    const byLine = new Map<number, Mark[]>();
    for (const mark of this.state.marks) {
      const line = this.lines.get(mark.line)?.[0];
      if (line !== undefined) appendTo(byLine, line, mark);
    }
    const decorations = [...byLine].map(([line, marks]) =>
      markChips(mergeMarksOfLine(marks), view.state.doc.line(line).to, this.goTo),
    );
    return Decoration.set(decorations, true);
  }

  highlight(): void {
    const { doc } = this.view.state;
    const { pinLinked, hoverLinked, stepItems, laterItems } = this.state;
    const builder = new RangeSetBuilder<Decoration>();
    for (const n of this.linesOf(new Set([...pinLinked, ...hoverLinked, ...stepItems, ...laterItems]))) {
      const { from } = doc.line(n);
      builder.add(from, from, Decoration.line({ class: highlightClasses(this.items[n], this.state) }));
    }
    this.view.dispatch({ effects: setHighlights.of(builder.finish()) });
  }

  /** Returns the lines of any of `items`, in ascending order. */
  private linesOf(items: Set<ItemId>): number[] {
    const found = new Set([...items].flatMap((item) => this.lines.get(item) ?? []));
    return [...found].filter((n) => n <= this.view.state.doc.lines).sort((a, b) => a - b);
  }

  /** Scrolls to the first line of `items`, within this pane only. */
  reveal(items: Set<ItemId>): void {
    const [first] = this.linesOf(items);
    if (first !== undefined) this.showLine(first);
  }

  /** Scrolls to a line, or to the last one if the text has fewer. */
  showLine(number: number): void {
    const line = Math.min(number, this.view.state.doc.lines);
    // the height of the lines above is known only after measuring
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
    box.scrollTo({ top: target, behavior: near && !prefersReducedMotion() ? "smooth" : "auto" });
  }

  destroy(): void {
    this.view.destroy();
  }
}

/** Marks the lines that differ, and leaves gaps for lines that only the other text has. */
function alignmentDecorations(text: string, { differing, gaps }: AlignedSide): DecorationSet {
  const builder = new RangeSetBuilder<Decoration>();
  const lines = text.replace(/\n$/, "").split("\n");
  let from = 0;
  lines.forEach((line, i) => {
    const [kind, gap] = [differing.get(i + 1), gaps.get(i + 1)];
    if (gap) builder.add(from, from, Decoration.widget({ widget: new GapWidget(gap), block: true, side: -1 }));
    if (kind) builder.add(from, from, Decoration.line({ class: `differs ${kind}` }));
    from += line.length + 1;
  });
  const end = gaps.get(lines.length + 1);
  if (end) builder.add(from - 1, from - 1, Decoration.widget({ widget: new GapWidget(end), block: true, side: 1 }));
  return builder.finish();
}

/** A gap with the height of some lines. */
class GapWidget extends WidgetType {
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

const setHighlights = StateEffect.define<DecorationSet>();
const HIGHLIGHTS = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update: (value, transaction) => {
    for (const effect of transaction.effects) if (effect.is(setHighlights)) return effect.value;
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

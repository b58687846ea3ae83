/** The marks of a line as buttons at its end, with tooltips; a click shows a mark in the explorer. */

import { countColumn, type Extension, type Range, StateEffect, StateField } from "@codemirror/state";
import { Decoration, EditorView, showTooltip, type Tooltip, ViewPlugin, WidgetType } from "@codemirror/view";
import { prose } from "../../dom/elements";
import type { Mark } from "../../model/analysis/marks";

const MAX_CHARACTERS = 1500;
const setTooltip = StateEffect.define<Tooltip | null>();

/** Returns the decoration of a line's marks at position `at`, its end; `go` shows a mark in the explorer. */
export function markChips<M extends Mark>(marks: M[], at: number, go: (mark: M) => void): Range<Decoration> {
  return Decoration.widget({ widget: new MarkChips(marks, at, go), side: 1 }).range(at);
}

/** The tooltip of the hovered mark. */
const MARK_TOOLTIP = StateField.define<Tooltip | null>({
  create: () => null,
  update(value, { docChanged, effects }) {
    for (const effect of effects) if (effect.is(setTooltip)) return effect.value;
    return docChanged ? null : value;
  },
  provide: (field) => showTooltip.from(field),
});

/** Tells the style sheet where the lines of an editor begin, and how wide a column is. */
const COLUMNS = ViewPlugin.define((view) => {
  const measure = () =>
    view.requestMeasure({
      read: ({ contentDOM }) => contentDOM.offsetLeft,
      write(left, { dom, defaultCharacterWidth }) {
        dom.style.setProperty("--left", `${left}px`);
        dom.style.setProperty("--column", `${defaultCharacterWidth}px`);
      },
    });
  measure();
  return {
    update({ geometryChanged }) {
      if (geometryChanged) measure();
    },
  };
});

/** An editor with marks needs this extension. */
export const MARKS: Extension = [MARK_TOOLTIP, COLUMNS, EditorView.editorAttributes.of({ class: "cutaway-marked" })];

class MarkChips<M extends Mark> extends WidgetType {
  constructor(
    private readonly marks: M[],
    private readonly at: number,
    private readonly go: (mark: M) => void,
  ) {
    super();
  }

  eq({ marks, at, go }: MarkChips<M>): boolean {
    const isSame = (mark: M, other?: M) =>
      (["kind", "title", "reason", "hint", "compile"] as const).every((key) => mark[key] === other?.[key]);
    const areSame = marks.length === this.marks.length && this.marks.every((mark, i) => isSame(mark, marks[i]));
    return areSame && at === this.at && go === this.go; // the same chips keep their focus and their tooltip
  }

  toDOM(view: EditorView): HTMLElement {
    const element = document.createElement("span");
    element.className = "cutaway-marks";
    const { state } = view;
    element.style.setProperty("--marks", `${this.marks.length}`);
    element.style.setProperty("--columns", `${countColumn(state.doc.lineAt(this.at).text, state.tabSize)}`);
    element.append(...this.marks.map((mark) => this.chip(mark, view)));
    return element;
  }

  private chip(mark: M, view: EditorView): HTMLElement {
    const chip = document.createElement("button");
    chip.className = `cutaway-mark ${mark.kind}`;
    chip.type = "button";
    chip.textContent = mark.title;
    chip.setAttribute("aria-label", [`${mark.title}.`, mark.reason, mark.hint].filter(Boolean).join(" "));
    const tip = (shown: boolean) =>
      view.dispatch({
        effects: setTooltip.of(shown ? { pos: this.at, above: false, create: () => tooltip(mark) } : null),
      });
    chip.onmouseenter = () => tip(true);
    chip.onmouseleave = () => tip(false);
    chip.onfocus = () => tip(true);
    chip.onblur = () => tip(false);
    // otherwise the editor handles the pointer, and the notebook the keys
    chip.onmousedown = (event) => event.preventDefault();
    chip.onclick = () => this.go(mark);
    chip.onkeydown = (event) => event.stopPropagation();
    return chip;
  }

  ignoreEvent(): boolean {
    return true;
  }
}

function tooltip(mark: Mark): { dom: HTMLElement } {
  const dom = document.createElement("div");
  dom.className = `cutaway-tip ${mark.kind}`;
  dom.setAttribute("role", "tooltip");
  for (const [name, text] of [
    ["b", mark.title],
    ["p", mark.reason],
    ["p", mark.hint && `What to do: ${mark.hint}`],
  ]) {
    if (!text) continue;
    const part = document.createElement(name);
    part.append(...prose(text.slice(0, MAX_CHARACTERS)));
    dom.append(part);
  }
  return { dom };
}

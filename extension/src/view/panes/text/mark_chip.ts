/** A mark as a button at the end of its line, with a tooltip; a click shows it in the explorer. */

import { type Range, StateEffect, StateField } from "@codemirror/state";
import { Decoration, type EditorView, showTooltip, type Tooltip, WidgetType } from "@codemirror/view";
import type { Mark } from "../../model/analysis/marks";

const MAX_CHARACTERS = 1500;
const setTooltip = StateEffect.define<Tooltip | null>();

/** Returns the decoration of a mark at position `at`, the end of its line; `go` shows the mark in the explorer. */
export function markChip(mark: Mark, at: number, go: (mark: Mark) => void): Range<Decoration> {
  return Decoration.widget({ widget: new MarkChip(mark, at, go), side: 1 }).range(at);
}

/** The tooltip of the hovered mark; an editor with marks needs this extension. */
export const MARK_TOOLTIP = StateField.define<Tooltip | null>({
  create: () => null,
  update(value, { docChanged, effects }) {
    for (const effect of effects) if (effect.is(setTooltip)) return effect.value;
    return docChanged ? null : value;
  },
  provide: (field) => showTooltip.from(field),
});

class MarkChip extends WidgetType {
  constructor(
    private readonly mark: Mark,
    private readonly at: number,
    private readonly go: (mark: Mark) => void,
  ) {
    super();
  }

  eq(other: MarkChip): boolean {
    const { mark, at, go } = other;
    const isSame = (["kind", "title", "reason", "hint", "compile"] as const).every(
      (key) => mark[key] === this.mark[key],
    );
    return isSame && at === this.at && go === this.go; // the same chip keeps its focus and its tooltip
  }

  toDOM(view: EditorView): HTMLElement {
    const { mark } = this;
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
    part.textContent = text.slice(0, MAX_CHARACTERS);
    dom.append(part);
  }
  return { dom };
}

/** A mark as a chip at the end of its line, which says more where it is pointed at, and is a way to the explorer. */

import { type Range, StateEffect, StateField } from "@codemirror/state";
import { Decoration, type EditorView, showTooltip, type Tooltip, WidgetType } from "@codemirror/view";
import type { Mark } from "../model/marks";

const MOST_CHARACTERS = 1500;
const setTip = StateEffect.define<Tooltip | null>();

/** A chip at the end `at` of a line; `go` opens it in the explorer. */
export function chip(mark: Mark, at: number, go: (mark: Mark) => void): Range<Decoration> {
  return Decoration.widget({ widget: new Chip(mark, at, go), side: 1 }).range(at);
}

/** What is said of the chip that is pointed at; an editor with chips has this among its extensions. */
export const TIP = StateField.define<Tooltip | null>({
  create: () => null,
  update(value, { docChanged, effects }) {
    for (const effect of effects) if (effect.is(setTip)) return effect.value;
    return docChanged ? null : value;
  },
  provide: (field) => showTooltip.from(field),
});

class Chip extends WidgetType {
  constructor(
    private readonly mark: Mark,
    private readonly at: number,
    private readonly go: (mark: Mark) => void,
  ) {
    super();
  }

  eq(other: Chip): boolean {
    return other.mark === this.mark && other.at === this.at;
  }

  toDOM(view: EditorView): HTMLElement {
    const { mark } = this;
    const chip = document.createElement("button");
    chip.className = `cutaway-mark ${mark.kind}`;
    chip.type = "button";
    chip.textContent = mark.title;
    chip.setAttribute("aria-label", [`${mark.title}.`, mark.reason, mark.hint].filter(Boolean).join(" "));
    const tip = (shown: boolean) =>
      view.dispatch({ effects: setTip.of(shown ? { pos: this.at, above: false, create: () => tooltip(mark) } : null) });
    chip.onmouseenter = () => tip(true);
    chip.onmouseleave = () => tip(false);
    chip.onfocus = () => tip(true);
    chip.onblur = () => tip(false);
    // the editor would take the pointer, and the notebook the key, before the button
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
    part.textContent = text.slice(0, MOST_CHARACTERS);
    dom.append(part);
  }
  return { dom };
}

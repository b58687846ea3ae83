/** The lines of a kernel before its first function, which all kernels share: one line that shows them. */

import { type EditorState, type Extension, StateEffect, StateField } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, WidgetType } from "@codemirror/view";

/** Fewer lines are shown. */
const MIN_LINES = 4;

const unfold = StateEffect.define<null>();

/** Folds the lines before `first`, which is counted from 1, until they are asked for, or found by a search. */
export function foldedPrelude(first: number): Extension {
  if (first <= MIN_LINES) return [];
  return StateField.define<DecorationSet>({
    create: (state) => fold(state, first - 1),
    update(value, { effects, selection, state }) {
      const isInside =
        selection !== undefined && selection.main.to <= state.doc.line(first - 1).to && !selection.main.empty;
      return isInside || effects.some((effect) => effect.is(unfold)) ? Decoration.none : value;
    },
    provide: (field) => EditorView.decorations.from(field),
  });
}

function fold({ doc }: EditorState, last: number): DecorationSet {
  const { to } = doc.line(last);
  return Decoration.set(Decoration.replace({ widget: new Prelude(last), block: true }).range(0, to));
}

class Prelude extends WidgetType {
  constructor(private readonly lines: number) {
    super();
  }

  toDOM(view: EditorView): HTMLElement {
    const element = document.createElement("div");
    element.className = "prelude";
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = `▸ ${this.lines} lines that all kernels share: types and small functions`;
    button.onmousedown = (event) => event.preventDefault();
    button.onclick = () => view.dispatch({ effects: unfold.of(null) });
    element.append(button);
    return element;
  }

  ignoreEvent(): boolean {
    return true;
  }
}

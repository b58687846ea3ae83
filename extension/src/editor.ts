/** Marks in a cell's own editor, which follow its text. */

import { type EditorState, type Range, StateEffect, StateField } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView } from "@codemirror/view";
import { linesIn, type Mark } from "./view/model/marks";
import type { Artifact } from "./view/model/record";
import { chip, TIP } from "./view/panes/chips";

/** The marks of one source's lines, for the cells that have these lines. */
export interface Given {
  source: Artifact;
  marks: Mark[];
  /** Whether the source is the cell itself, and not only functions of it. */
  whole: boolean;
  go(mark: Mark): void;
}

/** Show the marks that `owner` (an output) gives this editor, in place of those it gave before. */
export function setMarks(view: EditorView, owner: object, given: Given[]): void {
  if (!view.state.field(MARKS, false)) {
    if (!given.length) return;
    view.dispatch({ effects: StateEffect.appendConfig.of([MARKS, TIP]) });
  }
  view.dispatch({ effects: give.of([owner, given]) });
}

const give = StateEffect.define<[owner: object, given: Given[]]>();

interface Marked {
  owners: Map<object, Given[]>;
  shown: DecorationSet;
}

const MARKS = StateField.define<Marked>({
  create: () => ({ owners: new Map(), shown: Decoration.none }),
  update(value, { docChanged, effects, state }) {
    const owners = new Map(value.owners);
    const given = effects.filter((effect) => effect.is(give));
    for (const { value } of given) {
      const [owner, marks] = value;
      if (marks.length) owners.set(owner, marks);
      else owners.delete(owner);
    }
    return docChanged || given.length ? { owners, shown: decorations(state, owners) } : value;
  },
  provide: (field) => EditorView.decorations.from(field, ({ shown }) => shown),
});

function decorations(state: EditorState, owners: Map<object, Given[]>): DecorationSet {
  const made: Range<Decoration>[] = [];
  for (const { source, marks, whole, go } of [...owners.values()].flat()) {
    const lines = linesIn(state.doc.toString(), source, whole);
    for (const mark of marks) {
      const number = lines.get(mark.line.slice(source.id.length + 1));
      if (number === undefined) continue;
      const { from, to } = state.doc.line(number);
      made.push(Decoration.line({ class: `cutaway-line ${mark.kind}` }).range(from));
      made.push(chip(mark, to, go));
    }
  }
  return Decoration.set(made, true);
}

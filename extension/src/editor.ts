/** Marks in the notebook's own editors; they follow edits of the text. */

import { type EditorState, type Range, StateEffect, StateField } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView } from "@codemirror/view";
import { locateLines } from "./view/model/analysis/line_matching";
import { appendTo } from "./view/model/analysis/links";
import { type Mark, mergeMarksOfLine } from "./view/model/analysis/marks";
import type { Artifact } from "./view/model/record/record";
import { MARKS, markChips } from "./view/panes/text/mark_chip";

/** The marks of one source, for the cells that contain its lines. */
export interface SourceMarks {
  source: Artifact;
  marks: Mark[];
  /** Whether the source is a whole cell, not only functions defined in one. */
  whole: boolean;
  go(mark: Mark): void;
}

/** Shows the marks of `owner` (an output) in an editor, in place of its previous ones. */
export function setMarks(view: EditorView, owner: object, sources: SourceMarks[]): void {
  if (!view.state.field(MARK_STATE, false)) {
    if (!sources.length) return;
    view.dispatch({ effects: StateEffect.appendConfig.of([MARK_STATE, MARKS]) });
  }
  view.dispatch({ effects: setSourceMarks.of([owner, sources]) });
}

const setSourceMarks = StateEffect.define<[owner: object, sources: SourceMarks[]]>();

interface MarkState {
  owners: Map<object, SourceMarks[]>;
  shown: DecorationSet;
}

const MARK_STATE = StateField.define<MarkState>({
  create: () => ({ owners: new Map(), shown: Decoration.none }),
  update(value, { docChanged, effects, state }) {
    const owners = new Map(value.owners);
    const updates = effects.filter((effect) => effect.is(setSourceMarks));
    for (const { value } of updates) {
      const [owner, sources] = value;
      owners.delete(owner); // the latest comes last
      if (sources.length) owners.set(owner, sources);
    }
    return docChanged || updates.length ? { owners, shown: markDecorations(state, owners) } : value;
  },
  provide: (field) => EditorView.decorations.from(field, ({ shown }) => shown),
});

/** A mark of an output; `go` shows it there. */
interface OutputMark extends Mark {
  go(mark: Mark): void;
}

function goToOwn(mark: OutputMark): void {
  mark.go(mark);
}

function markDecorations(state: EditorState, owners: Map<object, SourceMarks[]>): DecorationSet {
  const found = new Map<number, OutputMark[]>();
  for (const { source, marks, whole, go } of [...owners.values()].reverse().flat()) {
    const lines = locateLines(state.doc.toString(), source, whole);
    for (const mark of marks) {
      const number = lines.get(mark.line.slice(source.id.length + 1));
      if (number !== undefined) appendTo(found, number, { ...mark, go });
    }
  }
  const decorations = [...found].flatMap(([number, marks]): Range<Decoration>[] => {
    const { from, to } = state.doc.line(number);
    const merged = mergeMarksOfLine(marks);
    const lines = merged.map(({ kind }) => Decoration.line({ class: `cutaway-line ${kind}` }).range(from));
    return [...lines, markChips(merged, to, goToOwn)];
  });
  return Decoration.set(decorations, true);
}

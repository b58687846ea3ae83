/** Writes a change that was tried into the notebook's cell and runs it, and makes new cells. */

import type { CellRequest, EditRequest } from "./view/model/widget_model";

/** The part of a notebook that is used here. */
export interface EditableCells {
  widgets: readonly EditableCell[];
  activeCell: object | null;
  activeCellIndex: number;
  deselectAll(): void;
  model: { sharedModel: { insertCell(index: number, cell: { cell_type: "code"; source: string }): void } } | null;
}

interface EditableCell {
  node: HTMLElement;
  model: {
    type: string;
    sharedModel: { getSource(): string; updateSource(start: number, end: number, value: string): void };
  };
}

/**
 * Replaces the lines of a change in the one cell that has them, and runs that cell with `runActive`, then the explorer's
 * own. That is the one whose output has the explorer, or, in the panel, the active one.
 */
export async function applyChange(
  notebook: EditableCells,
  event: CustomEvent<EditRequest>,
  runActive: () => Promise<unknown>,
): Promise<void> {
  const { widgets, activeCell } = notebook;
  const { edit, answer } = event.detail;
  const { removed, added, first, in_cell } = edit;
  const target = event.target as Node;
  const own = widgets.find((cell) => cell.node.contains(target)) ?? widgets.find((cell) => cell === activeCell);
  const codeCells = widgets.filter(({ model }) => model.type === "code" && model.sharedModel);
  const cells = in_cell ? codeCells.filter((cell) => cell === own) : codeCells.filter((cell) => cell !== own);
  const places = cells.flatMap((cell) => {
    const at = findLines(cell.model.sharedModel.getSource().split("\n"), removed, first - 1);
    return at < 0 ? [] : [{ cell, at }];
  });
  if (places.length !== 1) {
    answer(
      places.length ? "Several cells have these lines; nothing was changed." : "The cell has changed since it ran.",
    );
    return;
  }
  const [{ cell, at }] = places;
  const lines = cell.model.sharedModel.getSource().split("\n");
  const start = lines.slice(0, at).join("\n").length + (at ? 1 : 0);
  cell.model.sharedModel.updateSource(start, start + removed.join("\n").length, added.join("\n"));
  answer("Written; it runs again.");
  for (const each of new Set([cell, own ?? cell])) {
    notebook.activeCellIndex = widgets.indexOf(each);
    notebook.deselectAll();
    await runActive();
  }
}

/** Inserts a cell below the one that has the explorer, or, for the panel, below the active one. */
export function insertCell(cells: EditableCells, event: CustomEvent<CellRequest>): void {
  const { text, answer } = event.detail;
  const own = cells.widgets.findIndex(({ node }) => node.contains(event.target as Node));
  const at = (own < 0 ? cells.activeCellIndex : own) + 1;
  if (!cells.model) return;
  cells.model.sharedModel.insertCell(at, { cell_type: "code", source: text });
  cells.activeCellIndex = at;
  event.preventDefault();
  answer("In the cell below.");
}

/** Returns the index of consecutive lines: at `likely` if they are there, else where they are only once; else -1. */
function findLines(lines: string[], wanted: string[], likely: number): number {
  const isAt = (at: number) => wanted.every((text, i) => lines[at + i]?.trimEnd() === text.trimEnd());
  if (isAt(likely)) return likely;
  const found = lines.map((_, at) => at).filter(isAt);
  return found.length === 1 ? found[0] : -1;
}

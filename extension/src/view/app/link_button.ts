/** The button that copies an address of the current view, for a page, or a line of Python that opens it. */

import { copyButton } from "../dom/copy";
import type { State } from "../model/state";
import { canEditCells, StaticModel } from "../model/widget_model";

/** Creates the button; null where nothing could open the view: in a page of someone else's that has no notebook. */
export function linkButton(state: State): HTMLElement | null {
  if (hasOwnPage(state)) {
    const address = () => `${location.href.replace(/#.*/, "")}#${state.address()}`;
    return copyButton("Link", "Copy the address of what is shown now: this page opens so", address, "copy-link");
  }
  const { model, record } = state;
  const isSaved = model instanceof StaticModel;
  if (isSaved && !model.file) return null;
  const name = isSaved ? `${model.file}#${record.title}` : record.title;
  const line = () => `kernel_magics.view(${JSON.stringify(`${name}#${state.address()}`)})`;
  const where = isSaved
    ? "in a notebook of the same folder, from what this one has saved"
    : "in any cell of this notebook";
  return copyButton("Link", `Copy a line of Python that shows what is shown now, ${where}`, line, "copy-link");
}

/** Whether the address of the page is that of this explorer: of a report, but not of a notebook. */
export function hasOwnPage({ model }: State): boolean {
  return model instanceof StaticModel && !canEditCells();
}

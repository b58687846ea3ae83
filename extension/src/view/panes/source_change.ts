/** A change of the user's code: first offered beside the problem that it may remove, then shown with its run. */

import { copyText } from "../dom/copy";
import { h } from "../dom/elements";
import type { Problem, SourceEdit } from "../model/record/record";
import type { State } from "../model/state";
import { canEditCells, type EditRequest, experimentsOf, NOTEBOOK_EDIT_EVENT } from "../model/widget_model";

/** Creates the offer to try a change that may remove a problem; null if there is none, or no kernel. */
export function changeOffer({ model, record }: State, problem?: Problem): HTMLElement | null {
  const changes = experimentsOf(model)?.changes ?? [];
  const number = problem ? changes.findIndex((each) => each.problem === record.problems.indexOf(problem)) : -1;
  if (number < 0) return null;
  const title = "Run the cell again with this change, on the variables as they are now, and compare the values";
  const button = h("button", { class: "try", title }, "Try this change");
  button.onclick = (event) => {
    event.stopPropagation(); // a click on the problem pins its line
    model.send({ type: "try", experiment: "change", item: String(number) });
    button.disabled = true;
  };
  return changeElement(changes[number].edit, button);
}

/** Creates the description of a change that was tried, with buttons that apply it. */
export function triedChange(edit: SourceEdit): HTMLElement {
  const note = h("span", { role: "status" });
  return changeElement(edit, ...(canEditCells() ? [applyButton(edit, note)] : []), copyButton(edit, note), note);
}

function applyButton(edit: SourceEdit, note: HTMLElement): HTMLButtonElement {
  const title = edit.in_cell
    ? "Write the change into the cell, and run it again"
    : "Write the change into the cell that defines the function, run that cell, and then this one";
  const button = h(
    "button",
    { class: "try apply", title },
    edit.in_cell ? "Apply and re-run" : "Apply and re-run both cells",
  );
  button.onclick = () => {
    const detail: EditRequest = { edit, answer: (text) => (note.textContent = text) };
    button.dispatchEvent(new CustomEvent(NOTEBOOK_EDIT_EVENT, { bubbles: true, detail }));
  };
  return button;
}

function copyButton(edit: SourceEdit, note: HTMLElement): HTMLButtonElement {
  const title = canEditCells()
    ? "Copy the new lines"
    : "Copy the new lines, to paste them into the cell: here, the explorer can neither change nor run cells";
  const button = h("button", { class: "try", title }, canEditCells() ? "Copy" : "Copy the new lines");
  button.onclick = () => {
    copyText(edit.added.join("\n")).then(
      () =>
        (note.textContent = canEditCells()
          ? "Copied."
          : "Copied: paste them over the old lines, and run the cell again."),
      () => (note.textContent = "The browser does not let this page copy; select the lines."),
    );
  };
  return button;
}

function changeElement({ title, removed, added }: SourceEdit, ...actions: HTMLElement[]): HTMLElement {
  const line = (sign: string, kind: string) => (text: string) => h("span", { class: kind }, `${sign} ${text}`);
  const kept = (text: string) => removed.includes(text) && added.includes(text);
  const lines = [
    ...removed.filter((text) => !kept(text)).map(line("−", "removed")),
    ...added.map((text) => (kept(text) ? line(" ", "kept")(text) : line("+", "added")(text))),
  ];
  const head = h("p", {}, h("b", {}, "The change: "), title);
  return h("div", { class: "change" }, head, h("pre", {}, ...lines), h("div", { class: "actions" }, ...actions));
}

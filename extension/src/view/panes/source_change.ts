/** A change of the user's code: first offered beside the problem that it may remove, then shown with its run. */

import { h } from "../dom/elements";
import type { Problem, SourceEdit } from "../model/record/record";
import type { State } from "../model/state";
import { type EditRequest, experimentsOf, NOTEBOOK_EDIT_EVENT } from "../model/widget_model";

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

/** Creates the description of a change that was tried, with buttons that take it over. */
export function triedChange(edit: SourceEdit): HTMLElement {
  const note = h("span", { role: "status" });
  const copy = h("button", { class: "try", title: "Copy the new lines" }, "Copy");
  copy.onclick = () => {
    const done = navigator.clipboard?.writeText(edit.added.join("\n")) ?? Promise.reject();
    done.then(
      () => (note.textContent = "Copied."),
      () => (note.textContent = "The browser does not let this page copy; select the lines."),
    );
  };
  const title = "Write the change into the notebook's cell; the cell does not run";
  const apply = h("button", { class: "try apply", title }, "Apply to the notebook");
  apply.onclick = () => {
    const request: EditRequest = {
      edit,
      answer: (text) => (note.textContent = text),
    };
    apply.dispatchEvent(new CustomEvent(NOTEBOOK_EDIT_EVENT, { bubbles: true, detail: request }));
  };
  return changeElement(edit, apply, copy, note);
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

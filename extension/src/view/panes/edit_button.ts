/** A button that opens a kernel or graph as a cell, in which its text can be changed, tried and used. */

import { h } from "../dom/elements";
import type { Artifact } from "../model/record/record";
import type { State } from "../model/state";
import { type CellRequest, experimentsOf, NEW_CELL_EVENT } from "../model/widget_model";

const GRAPHS = ["captured", "forward", "backward"];

/** Creates the button for what a pane shows; null if its text cannot be edited, or there is no kernel to run it. */
export function editButton(state: State, artifact?: Artifact): HTMLElement | null {
  const { compile, record, model } = state;
  const isEditable = artifact && (GRAPHS.includes(artifact.name) || kernelsIn(state, artifact).length > 0);
  if (!isEditable || !compile || record.engine !== "core" || !experimentsOf(model)) return null;
  const what = artifact.pane === "kernel" ? "the pinned kernel, or the first" : "this graph";
  const title = `Open ${what} as a cell: running it tries the changed text beside the original, and uses it if it is right`;
  const note = h("span", { role: "status" });
  const button = h("button", { title }, "Edit");
  button.onclick = () => {
    const text = cellText(state, artifact);
    const request: CellRequest = { text, answer: (done) => (note.textContent = done) };
    const event = new CustomEvent(NEW_CELL_EVENT, { bubbles: true, cancelable: true, detail: request });
    if (!button.dispatchEvent(event)) return; // a notebook has taken it
    const copied = navigator.clipboard?.writeText(text) ?? Promise.reject();
    copied.then(
      () => (note.textContent = "Copied: paste it into a new cell."),
      () => (note.textContent = `Run %${text.slice(2, text.indexOf("\n"))} to get the text.`),
    );
  };
  return h("span", { class: "edit" }, button, note);
}

/** Returns the cell for an artifact: the magic with the id, and the text. */
export function cellText(state: State, artifact: Artifact): string {
  const id = state.compile?.id;
  if (artifact.pane !== "kernel") return `%%graph ${id}:${artifact.name}\n${artifact.text}`;
  const kernels = kernelsIn(state, artifact);
  const span = kernels.find(({ key }) => state.pinLinked.has(`${artifact.id}#${key}`)) ?? kernels[0];
  const lines = artifact.text.split("\n").slice(span.first - 1, span.last);
  return `%%kernel ${id}:${span.key}\n${lines.join("\n")}`;
}

function kernelsIn({ compile }: State, artifact: Artifact) {
  const names = compile?.kernels.filter(({ language }) => language === artifact.language).map(({ name }) => name);
  return artifact.spans.filter(({ key }) => names?.includes(key)).sort((a, b) => a.first - b.first);
}

/** A button that opens a kernel or graph as a cell, in which its text can be changed, tried and used. */

import { copyText } from "../dom/copy";
import { h } from "../dom/elements";
import type { Artifact, Compile, Schedule } from "../model/record/record";
import type { State } from "../model/state";
import { type CellRequest, experimentsOf, NEW_CELL_EVENT } from "../model/widget_model";

const GRAPHS: Record<string, string[]> = {
  core: ["captured", "forward", "backward"],
  torch: ["captured", "forward.post_grad", "backward.post_grad"],
};

/** Creates the button for what a pane shows; null if its text cannot be edited, or there is no kernel to run it. */
export function editButton(state: State, artifact?: Artifact): HTMLElement | null {
  const what = artifact && editable(state, artifact);
  return what ? cellButton(state, what, () => cellText(state, artifact)) : null;
}

/** Creates a button that opens a text as a cell; null if there is no kernel to run it. */
export function cellButton(state: State, what: string, textOf: () => string): HTMLElement | null {
  if (!state.compile || !experimentsOf(state.model)) return null;
  const title = `Open ${what} as a cell: running it tries the changed text beside the original, and uses it if it is right`;
  const note = h("span", { role: "status" });
  const button = h("button", { title }, "Edit");
  button.onclick = () => {
    const text = textOf();
    const request: CellRequest = { text, answer: (done) => (note.textContent = done) };
    const event = new CustomEvent(NEW_CELL_EVENT, { bubbles: true, cancelable: true, detail: request });
    if (!button.dispatchEvent(event)) return; // a notebook has taken it
    copyText(text).then(
      () => (note.textContent = "Copied: paste it into a new cell."),
      () => (note.textContent = `Run %${text.slice(2, text.indexOf("\n"))} to get the text.`),
    );
  };
  return h("span", { class: "edit" }, button, note);
}

/** Returns what of an artifact can be edited, in words; "" if nothing can. */
function editable(state: State, artifact: Artifact): string {
  if (GRAPHS[state.record.engine]?.includes(artifact.name)) return "this graph";
  if (isWrapper(artifact)) return "this text";
  const kind = artifact.name.endsWith(".loops") ? "loop nest" : artifact.pane === "schedule" ? "schedule" : "kernel";
  return kernelsIn(state, artifact).length ? `the pinned ${kind}, or the first` : "";
}

function isWrapper({ name, language }: Artifact): boolean {
  return /^\w+\.wrapper$/.test(name) && language === "python"; // not of a part of a graph
}

/** Returns the cell for an artifact: the magic with the id, and the text. */
export function cellText(state: State, artifact: Artifact): string {
  const id = state.compile?.id;
  const { record } = state;
  // the text of stock's graphs is made simpler by the kernel: the line makes a second cell
  if (GRAPHS.torch.includes(artifact.name) && record.engine === "torch") return `%graph ${id}:${artifact.name}`;
  if (GRAPHS.core.includes(artifact.name)) return `%%graph ${id}:${artifact.name}\n${artifact.text}`;
  if (isWrapper(artifact)) return `%%kernel ${id}:${artifact.name}\n${artifact.text}`;
  const kernels = kernelsIn(state, artifact);
  const chosen = kernels.find(({ item }) => state.pinLinked.has(item)) ?? kernels[0];
  const schedule = state.compile?.schedules.find(({ kernel }) => kernel === chosen.name);
  if (artifact.pane === "schedule" && schedule) return scheduleCell(state.compile as Compile, schedule);
  const lines = artifact.text.split("\n").slice(chosen.first - 1, chosen.last);
  const loops = artifact.name.endsWith(".loops") ? ".loops" : "";
  return `%%kernel ${id}:${chosen.name}${loops}\n${lines.join("\n")}`;
}

/** Returns the cell with a kernel's schedule: a line for each rewrite, with its reason as a comment. */
export function scheduleCell(compile: Compile, schedule: Schedule): string {
  const lines = schedule.rewrites.slice(1).map(({ text, reason }) => (reason ? `${text}  # ${reason}` : text));
  return [`%%schedule ${compile.id}:${schedule.kernel}`, ...lines].join("\n");
}

/** Returns the kernels whose code or loops an artifact has, in order: name, item and lines of each. */
function kernelsIn({ compile, record }: State, artifact: Artifact) {
  const own = compile?.kernels.filter(({ language }) => ["cpp", "triton"].includes(language)) ?? [];
  if (record.engine === "torch")
    return own
      .filter(({ item }) => item?.startsWith(`${artifact.id}#`))
      .map(({ name, item }) => ({ name, item: item ?? "", first: 1, last: Number.POSITIVE_INFINITY }));
  const names = own.map(({ name }) => name);
  return artifact.spans
    .filter(({ key }) => names.includes(key))
    .map(({ key, first, last }) => ({ name: key, item: `${artifact.id}#${key}`, first, last }))
    .sort((a, b) => a.first - b.first);
}

/** What covers a pane until its user has predicted what is in it. The right answer is computed from the record. */

import { h } from "../dom/elements";
import { plural } from "../dom/format";
import { keyOf } from "../model/analysis/links";
import type { Compile, Record as CutawayRecord, ItemId } from "../model/record/record";
import type { State } from "../model/state";
import type { PaneKind } from "./registry";

const MAX_CHOICES = 16;

/** A question whose answer is a number, or all right ones of some choices. */
export interface Question {
  text: string;
  answer: number | string[];
  /** Empty if the answer is a number. */
  choices: string[];
}

/**
 * The question about a pane; null if there is none, so that the pane is only covered. `inputName` returns the name that
 * an input has in the captured graph.
 */
export function questionOf(
  pane: string,
  record: CutawayRecord,
  compile: Compile | null,
  inputName: (item: ItemId) => string = () => "",
): Question | null {
  switch (pane) {
    case "captured":
      return capturedLines(record, compile);
    case "overview":
      return number("How many lines break the graph?", problems(record, "graph break"));
    case "guards":
      return guardedLines(record, compile);
    case "sizes":
      return number("How many sizes and numbers are symbolic, or were?", compile?.symbols.length ?? 0);
    case "kernel":
    case "costs":
      return number("How many kernels are generated in this compile?", compile ? generated(compile) : 0);
    case "joint":
    case "forward":
    case "backward":
      return number("How many operations does this graph have?", operations(compile, pane));
    case "partition":
      return savedValues(compile, inputName);
    case "fusion":
      return fusedNodes(compile);
    default:
      return null;
  }
}

/** The text after a prediction: whether it is right, and if not, the right answer. */
export function verdictOf({ answer }: Question, predicted: number | string[]): string {
  if (!Array.isArray(answer) || !Array.isArray(predicted)) {
    return predicted === answer ? `Right: ${answer}.` : `You predicted ${predicted}; it is ${answer}.`;
  }
  const missing = answer.filter((choice) => !predicted.includes(choice));
  const wrong = predicted.filter((choice) => !answer.includes(choice));
  const parts = [listed("Missing", missing), listed("Wrong", wrong)].filter(Boolean);
  return parts.join(" ") || listed("Right", answer) || "Right: none of them.";
}

function listed(title: string, choices: string[]): string {
  return choices.length ? `${title}: ${choices.join(", ")}.` : "";
}

/** Creates the cover of a pane. */
export function coverOf(state: State, kind: PaneKind): HTMLElement {
  const question = questionOf(kind.name, state.record, state.compile, (item) => state.links.inputName(item));
  const reveal = (predicted?: number | string[]) =>
    state.uncover(kind.name, question && predicted !== undefined ? verdictOf(question, predicted) : "");
  const skip = h(
    "button",
    { type: "button", onclick: () => reveal() },
    question ? "Show without a prediction" : "Show",
  );
  if (!question) return h("div", { class: "cover" }, h("p", {}, `${kind.title}: covered.`), skip);
  const { fields, read } = question.choices.length ? choiceFields(question.choices) : numberField(question.text);
  const check = h("button", { type: "submit", class: "check" }, "Predict");
  const onsubmit = (event: Event) => {
    event.preventDefault();
    const predicted = read();
    if (predicted !== null) reveal(predicted);
  };
  return h("form", { class: "cover", onsubmit }, h("p", {}, question.text), fields, h("div", {}, check, skip));
}

function numberField(label: string): { fields: HTMLElement; read: () => number | null } {
  const field = h("input", { type: "number", min: 0, required: true, "aria-label": label });
  return { fields: field, read: () => (field.value === "" ? null : Number(field.value)) };
}

function choiceFields(choices: string[]): { fields: HTMLElement; read: () => string[] } {
  const boxes = choices.map((choice) => h("input", { type: "checkbox", value: choice }));
  const labels = boxes.map((box, at) => h("label", {}, box, choices[at]));
  return {
    fields: h("div", { class: choices.some(isLong) ? "choices lines" : "choices" }, ...labels),
    read: () => boxes.filter((box) => box.checked).map((box) => box.value),
  };
}

function isLong(choice: string): boolean {
  return choice.length > 20;
}

function number(text: string, answer: number): Question {
  return { text, answer, choices: [] };
}

function operations(compile: Compile | null, pane: string): number {
  const graph = compile?.artifacts.find((artifact) => artifact.pane === pane)?.graph;
  return (graph?.nodes ?? []).filter(({ op }) => op.startsWith("call")).length;
}

function problems(record: CutawayRecord, kind: string): number {
  return record.problems.filter((problem) => problem.kind === kind).length;
}

function generated(compile: Compile): number {
  return compile.kernels.filter(({ language }) => language !== "extern").length;
}

/** Asks which lines have operations in the captured graph; nothing if there is no choice of lines. */
function capturedLines(record: CutawayRecord, compile: Compile | null): Question | null {
  const start = `${compile?.id}:captured#`;
  const made = (compile?.edges ?? []).filter((edge) => edge.made.startsWith(start));
  const captured = new Set(made.flatMap(({ sources }) => sources));
  return whichLines("Which lines have operations in this graph?", captured, record, compile);
}

/** Asks which lines read something that is guarded; nothing if there is no choice of lines. */
function guardedLines(record: CutawayRecord, compile: Compile | null): Question | null {
  const guarded = new Set(compile?.guards.map(({ line }) => line));
  return whichLines("Which lines read something that a guard checks?", guarded, record, compile);
}

/** Asks which of the lines that the compile used are `right`; null if there are fewer than two. */
function whichLines(
  text: string,
  right: Set<ItemId | null>,
  record: CutawayRecord,
  compile: Compile | null,
): Question | null {
  const guarded = compile?.guards.map(({ line }) => line) ?? [];
  const used = new Set([...guarded, ...(compile?.edges ?? []).flatMap(({ sources }) => sources)]);
  const lines = record.sources.flatMap(({ id, text, spans }) =>
    spans
      .map(({ key, first }) => ({ item: `${id}#${key}`, text: `${key}: ${text.split("\n")[first - 1].trim()}` }))
      .filter(({ item }) => used.has(item)),
  );
  const choices = lines.slice(0, MAX_CHOICES);
  if (choices.length < 2) return null;
  return {
    text,
    answer: choices.filter(({ item }) => right.has(item)).map((line) => line.text),
    choices: choices.map((line) => line.text),
  };
}

function savedValues(compile: Compile | null, inputName: (item: ItemId) => string): Question {
  const values = (compile?.partition?.values ?? []).slice(0, MAX_CHOICES).map(({ node, decision }) => {
    const name = inputName(node);
    return { text: keyOf(node) + (name && ` (${name})`), decision };
  });
  const saved = values.filter(({ decision }) => decision === "saved");
  const [answer, choices] = [saved, values].map((those) => those.map(({ text }) => text));
  return { text: "Which values are saved for the backward?", answer, choices };
}

/** Asks for the operations of the largest kernel; for the number of kernels if there is only one operation. */
function fusedNodes(compile: Compile | null): Question {
  const fusions = compile?.fusions ?? [];
  const largest = fusions.reduce<string[]>((most, { nodes }) => (nodes.length > most.length ? nodes : most), []);
  const graph = compile?.artifacts.find(({ name }) => name === graphName(largest[0]))?.graph;
  const calls = (graph?.nodes ?? []).filter(({ op }) => op.startsWith("call")).slice(0, MAX_CHOICES);
  const fused = new Set(largest.map(keyOf));
  const choices = calls.map(({ key }) => key);
  if (choices.length < 2) return number("How many kernels are generated?", compile ? generated(compile) : 0);
  const text = `Which of these ${plural(choices.length, "operation")} are in the largest kernel?`;
  return { text, answer: choices.filter((key) => fused.has(key)), choices };
}

/** The name of the graph that an item is in: `forward` of `0/0:forward#add`. */
function graphName(item = ""): string {
  return item.slice(item.indexOf(":") + 1).split("#")[0];
}

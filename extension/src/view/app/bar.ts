/** The bar on top: what came of the cell in numbers, each of which leads to what it counts. */

import { bytes, h, plural } from "../dom/dom";
import { failuresOf } from "../model/failures";
import type { Compile, GraphBreak, ItemId } from "../model/record";
import type { PaneName, State } from "../model/state";

/** A place that a number counts. */
interface Place {
  compile: string;
  pane: PaneName;
  line: ItemId | null;
}

interface Count {
  text: string;
  title: string;
  tone: Tone;
  places: Place[];
}

/** How a count looks: something failed, something is worth a look, or it is a fact. */
type Tone = "bad" | "warns" | "";

/** The title, the counts, and what else stands in the bar. */
export function bar(state: State, ...more: HTMLElement[]): HTMLElement {
  const counts = h("span", { class: "counts" }, ...countsOf(state).map((count) => button(state, count)));
  return h("header", { class: "bar" }, h("b", {}, state.record.title || "Cutaway"), counts, ...more);
}

/** Each press goes to the next of the places. */
function button(state: State, { text, title, tone, places }: Count): HTMLElement {
  let next = 0;
  const go = () => {
    state.goTo(places[next]);
    next = (next + 1) % places.length;
  };
  return h("button", { class: tone ? `count ${tone}` : "count", title, onclick: go }, text);
}

function countsOf({ record, links }: State): Count[] {
  const compiles = record.frames.flatMap((frame) => frame.compiles);
  const place = (compile: Compile, pane: PaneName, line: ItemId | null = null) => ({ compile: compile.id, pane, line });
  const graphs = compiles.filter((c) => c.artifacts.some((a) => a.pane === "captured"));
  const breaks = breakPlaces(compiles);
  const again = compiles.filter((c) => c.cause);
  const failures = failuresOf(record);
  const saving = compiles.filter((c) => c.partition?.saved_count);
  const kernels = compiles.filter((c) => c.kernels.length);
  const all: [Place[], string, string, Tone][] = [
    [
      failures.map(({ compile, failure }) => place(compile, "overview", failure.line)),
      plural(failures.length, "failure"),
      "What failed in the compiler; the program ran all the same",
      "bad",
    ],
    [graphs.map((c) => place(c, "captured")), plural(graphs.length, "graph"), "Go through the captured graphs", ""],
    [
      breaks.map(([c, b]) => place(c, "overview", lineOf(b))),
      plural(breaks.length, "graph break"),
      "Where graphs broke, why, and what to write instead",
      "warns",
    ],
    [
      again.map((c) => place(c, "overview", c.cause?.line ?? null)),
      plural(again.length, "recompile"),
      "Why it was compiled again: the guard that failed",
      "warns",
    ],
    [
      saving.map((c) => place(c, "partition")),
      `${bytes(savedBytes(saving))} saved`,
      "What is kept for the backward, and why",
      "",
    ],
    [
      kernels.map((c) => place(c, "costs")),
      plural(kernelCount(kernels), "kernel"),
      "Which kernels and lines cost most",
      "",
    ],
  ];
  const known = (line: ItemId | null) => (line !== null && links.has(line) ? line : null);
  return all
    .filter(([places]) => places.length)
    .map(([places, text, title, tone]) => ({
      text,
      title,
      tone,
      places: places.map((each) => ({ ...each, line: known(each.line) })),
    }));
}

/** The lines that broke a graph, however many compiles met them. */
function breakPlaces(compiles: Compile[]): [Compile, GraphBreak][] {
  const found = new Map<string, [Compile, GraphBreak]>();
  for (const compile of compiles) {
    for (const met of compile.breaks) {
      const at = met.stack[met.stack.length - 1];
      const place = at ? `${at.filename}:${at.lineno}` : "";
      if (!found.has(place)) found.set(place, [compile, met]);
    }
  }
  return [...found.values()];
}

function lineOf({ stack }: GraphBreak): ItemId | null {
  return stack.findLast(({ line }) => line !== null)?.line ?? null;
}

function savedBytes(compiles: Compile[]): number {
  return compiles.reduce((sum, { partition }) => sum + (partition?.saved_bytes ?? 0), 0);
}

function kernelCount(compiles: Compile[]): number {
  return compiles.reduce((sum, { kernels }) => sum + kernels.length, 0);
}

/** The stages of a compile, in the order in which the compiler runs them. */

import type { PaneName } from "./content";
import type { Artifact } from "./record/record";

/** The stages of the stage bar, from the user's Python to the machine code. */
export const MAIN_STAGES: Artifact["pane"][] = [
  "source",
  "bytecode",
  "captured",
  "forward",
  "backward",
  "fusion",
  "schedule",
  "kernel",
  "machine",
];

/** All stages; those that are not main stages are in the stage bar only while something in them is pinned. */
export const STAGES: Artifact["pane"][] = [
  "source",
  "bytecode",
  "guards",
  "captured",
  "subgraphs",
  "pregrad",
  "joint",
  "forward",
  "backward",
  "postgrad",
  "passes",
  "fusion",
  "schedule",
  "kernel",
  "wrapper",
  "machine",
  "generated",
  "decompiled",
];

/** The panes of a new explorer, if there is room: a pin is shown in the source, the graph and the kernel at once. */
export const USUAL_PANES: PaneName[] = ["source", "captured", "kernel"];

/** Returns where a pane belongs among others: stages in their order, then everything else. */
export function stageRank(pane: string): number {
  const at = STAGES.indexOf(pane as Artifact["pane"]);
  return at < 0 ? STAGES.length : at;
}

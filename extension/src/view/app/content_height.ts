/** How high an explorer has to be for what its record contains; a small cell needs no large one. */

import { summaryOf } from "../model/record/details";
import type { Record as CutawayRecord } from "../model/record/record";

const BARS_PX = 215;
const LINE_PX = 17;
const ROW_PX = 44;
const TOTAL_PX = 24;
/** Of the page of a training step: its drawing beside its tables. */
const STEP_PX = 1100;
const NODE_PX = 50;
const NODES_PER_COLUMN = 12;
const MIN_PX = 340;
const WITHOUT_GRAPH_PX = 300;
/** Of the overview, which says why there is no graph; it is lower above a traceback. */
const PROBLEM_PX = 460;

/**
 * Whether the explorer of a cell is one line at first: the cell raised an exception, whose traceback is below, and the
 * compiler did not cause it.
 */
export function isFolded({ raised, problems, verdict }: CutawayRecord): boolean {
  return raised !== "" && verdict !== null && problems.every(({ grade }) => grade !== "blocking");
}

/** Returns a height in pixels: that of what is shown at first, or of the list of compiles if that is higher. */
export function contentHeight(record: CutawayRecord): number {
  const { comparison, options } = record;
  if (options.capture_backward) return STEP_PX;
  if (comparison) return BARS_PX + TOTAL_PX * comparison.totals.length + ROW_PX * comparison.lines.length;
  const compiles = record.frames.flatMap((frame) => frame.compiles);
  const nodes = compiles.flatMap((compile) => summaryOf(compile).nodes ?? []);
  if (!nodes.length) return record.problems.length && !record.raised ? PROBLEM_PX : WITHOUT_GRAPH_PX;
  const lines = record.sources.map(({ text }) => text.trimEnd().split("\n").length);
  const content = Math.max(
    LINE_PX * Math.max(0, ...lines),
    ROW_PX * (record.frames.length + compiles.length),
    NODE_PX * Math.min(Math.max(...nodes), NODES_PER_COLUMN),
  );
  return Math.max(MIN_PX, BARS_PX + content);
}

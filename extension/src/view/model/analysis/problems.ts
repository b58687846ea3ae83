/** Finds the graded problem of a graph break or a recompile: `compiler_core/tools/questions/problems.py` makes them. */

import type { Compile, Record as CutawayRecord, GraphBreak, Problem, StackLine } from "../record/record";

/** Returns the problem of a compile's graph break. */
export function breakProblem(record: CutawayRecord, compile: Compile, { key }: GraphBreak): Problem | undefined {
  return record.problems.find(({ breaks }) => breaks.includes(`${compile.id}#${key}`));
}

/** Returns the innermost line of the user's at a graph break, else the innermost one: `GraphBreak.place`. */
export function breakPlace({ stack }: GraphBreak): StackLine | undefined {
  const own = stack.filter(({ library }) => !library);
  const lines = own.length ? own : stack;
  return lines.findLast(({ line }) => line !== null) ?? lines[lines.length - 1];
}

/** Returns the problem of a recompile. */
export function recompileProblem(record: CutawayRecord, compile: Compile): Problem | undefined {
  return record.problems.find(({ kind, compiles }) => kind === "recompile" && compiles.includes(compile.id));
}

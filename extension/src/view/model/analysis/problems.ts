/** Finds the graded problem of a graph break or a recompile: `compiler_core/records/problems.py` makes them. */

import type { Compile, Record as CutawayRecord, GraphBreak, Problem } from "../record/record";

/** Returns the problem of a compile's graph break. */
export function breakProblem(
  record: CutawayRecord,
  compile: Compile,
  { kind, stack }: GraphBreak,
): Problem | undefined {
  return problemsOf(record, compile, "graph break").find(
    ({ title, line }) => title === `graph break: ${kind}` && (line === null || stack.some((at) => at.line === line)),
  );
}

/** Returns the problem of a recompile. */
export function recompileProblem(record: CutawayRecord, compile: Compile): Problem | undefined {
  return problemsOf(record, compile, "recompile")[0];
}

function problemsOf(record: CutawayRecord, compile: Compile, kind: Problem["kind"]): Problem[] {
  return record.problems.filter((problem) => problem.kind === kind && problem.compiles.includes(compile.id));
}

/** Failures and their texts, for the bar, the overview and the marks. */

import type { Compile, Record as CutawayRecord, Failure } from "../record/record";

export interface CompileFailure {
  /** The first compile with this failure. */
  compile: Compile;
  failure: Failure;
}

/** Returns the failures of a record, each message once for each user line. */
export function failuresOf(record: CutawayRecord): CompileFailure[] {
  const found = new Map<string, CompileFailure>();
  for (const compile of record.frames.flatMap((frame) => frame.compiles)) {
    for (const failure of compile.failures) {
      const key = JSON.stringify([failure.stage, failure.message, failure.filename, failure.lineno]);
      if (!found.has(key)) found.set(key, { compile, failure });
    }
  }
  return [...found.values()];
}

/** Whether PyTorch runs a part on purpose, because compiled code might behave differently: nothing is wrong. */
export function isRefusal({ kind }: Failure): boolean {
  return kind === "refusal";
}

/** A short description of a failure. */
export function headline({ kind, stage }: Failure): string {
  if (kind === "tool") return "kernels cannot be built";
  if (kind === "pass") return "graph pass not applied";
  if (kind === "backend") return stage === "run" ? "the backend's result raised" : "the backend raised";
  if (kind === "refusal") return stage === "run" ? "not done" : "not compiled";
  return stage === "run" ? "failed as it ran" : `failed in ${stage}`;
}

/** The first line of a failure's message. */
export function shortMessage({ message }: Failure): string {
  return message.split("\n", 1)[0];
}

/** What to do about a failure; empty for those whose message says it. */
export function remedy({ kind }: Failure): string {
  if (kind === "refusal") return "Nothing, unless the line must be fast: then write it in another way.";
  if (kind !== "bug") return "";
  return "Report it with the record: %%compile --save record.json writes it; --strict raises the error itself.";
}

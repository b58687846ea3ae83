/** What failed, in words: the bar, the overview and the marks say the same. */

import type { Compile, Record as CutawayRecord, Failure } from "./record";

export interface Failed {
  /** The first compile that met it. */
  compile: Compile;
  failure: Failure;
}

/** All failures of a record, each cause once for each line of the user's. */
export function failuresOf(record: CutawayRecord): Failed[] {
  const found = new Map<string, Failed>();
  for (const compile of record.frames.flatMap((frame) => frame.compiles)) {
    for (const failure of compile.failures) {
      const key = JSON.stringify([failure.stage, failure.message, failure.filename, failure.lineno]);
      if (!found.has(key)) found.set(key, { compile, failure });
    }
  }
  return [...found.values()];
}

/** What happened, in few words. */
export function headline({ kind, stage }: Failure): string {
  if (kind === "tool") return "kernels cannot be built";
  if (kind === "refusal") return stage === "run" ? "not done" : "not compiled";
  return stage === "run" ? "failed as it ran" : `failed in ${stage}`;
}

/** The first line of its message. */
export function cause({ message }: Failure): string {
  return message.split("\n", 1)[0];
}

/** How to report it; nothing for what is no bug, whose message says what to do. */
export function remedy({ kind }: Failure): string {
  if (kind !== "bug") return "";
  return "Report it with the record: %%compile --save record.json writes it; --strict raises the error itself.";
}

/** The displayed names of frames. */

import type { Frame } from "./record/record";

/**
 * Returns a frame's name: a resume function has the name of its original function, and a cell's own code is "top
 * level".
 */
export function frameName(frame: Frame): string {
  const name = shownName(frame.name);
  return frame.kind === "resume" ? `${name} from line ${frame.line}` : name;
}

/** Returns the name to show for a code object's name. */
export function shownName(name: string): string {
  return name === "<module>" ? "top level" : name;
}

/** Describes a frame that is not a root frame; empty for root frames. */
export function frameKind(frame: Frame): string {
  if (frame.kind === "resume")
    return frame.resumes ? `resumes after the graph break of ${frame.resumes}` : "resume function";
  return frame.kind === "called" ? "called from compiled code" : "";
}

/** Says that a record has no compile. Why is in its notes if it is known; all may have been compiled before. */
export const NOTHING_COMPILED = "Nothing was compiled here.";

/** Where stepping can stop, as at breakpoints: at an event, at a line of the user, at an instruction. */

import type { ItemId, StepNote } from "../record/record";
import { appendTo } from "./links";
import type { Replay } from "./replay";

export interface Stop {
  group: "Events" | "Lines" | "Instructions";
  /** The name of the event or of the instruction; the item of the line. */
  name: string;
  /** The steps at which it is reached, in order. */
  steps: number[];
}

export const NOTES: { [kind in StepNote["kind"]]: string } = {
  node: "new node",
  guard: "new guard",
  effect: "side effect",
  break: "graph break",
};

/** Returns what there is to stop at, events first. A line is reached when the step before was at another one. */
export function stopsOf(replay: Replay): Stop[] {
  const notes = new Map(Object.values(NOTES).map((name): [string, number[]] => [name, []]));
  const moves = new Map<string, number[]>([
    ["another line", []],
    ["call", []],
  ]);
  const lines = new Map<ItemId, number[]>();
  const instructions = new Map<string, number[]>();
  let previous: ItemId | null = null;
  let depth = 1;
  for (let n = 0; n < replay.length; n++) {
    for (const kind of new Set(replay.notes(n).map((note) => note.kind))) notes.get(NOTES[kind])?.push(n);
    const line = replay.lineOf(n);
    if (line !== null && line !== previous) {
      moves.get("another line")?.push(n);
      appendTo(lines, line, n);
    }
    previous = line ?? previous;
    const calls = replay.calls(n);
    if (calls.length > depth) moves.get("call")?.push(n);
    depth = calls.length;
    const [name] = replay.positionOf(replay.steps.call[n], n).instruction.split(" ");
    appendTo(instructions, name, n);
  }
  const stops = (group: Stop["group"], found: Iterable<[string, number[]]>): Stop[] =>
    [...found].filter(([, steps]) => steps.length).map(([name, steps]) => ({ group, name, steps }));
  return [
    ...stops("Events", [...notes, ...moves]),
    ...stops("Lines", lines),
    ...stops(
      "Instructions",
      [...instructions].sort(([a], [b]) => (a < b ? -1 : 1)),
    ),
  ];
}

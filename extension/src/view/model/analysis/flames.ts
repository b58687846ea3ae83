/** The steps of all compiles as a tree, by time. */

import { frameName } from "../frame_names";
import type { Record as CutawayRecord, Event, ItemId } from "../record/record";

/** A bar of a flame chart: a step of a compile, or a part of a run; times are nanoseconds. */
export interface Flame {
  name: string;
  title: string;
  stage: string;
  /** When it started; time in which nothing was compiled does not count. */
  start: number;
  ns: number;
  children: Flame[];
  /** The items of the record that it is about. */
  items?: ItemId[];
}

/** Returns the tree of all steps; its children are the compiles, one after another. */
export function flamesOf(record: CutawayRecord): Flame {
  const root: Flame = { name: "all", title: "All compiles", stage: "all", start: 0, ns: 0, children: [] };
  for (const frame of record.frames) {
    for (const { id, events } of frame.compiles) {
      const where = `${frameName(frame)} (${id})`;
      const title = `${where}, ${record.labels[frame.filename] ?? frame.filename}:${frame.line}`;
      const flame: Flame = { name: where, title, stage: "compile", start: root.ns, ns: 0, children: [] };
      addSteps(flame, events);
      if (flame.ns) root.children.push(flame);
      root.ns += flame.ns;
    }
  }
  return root;
}

/** Adds steps to the flame of their compile, each inside the one that encloses it. */
function addSteps(flame: Flame, events: Event[]): void {
  const ended = events.filter(({ end }) => end !== null) as (Event & { end: number })[];
  const ordered = ended.map((event, i) => ({ event, i }));
  // of two steps that start together, the longer one encloses the other
  ordered.sort((a, b) => a.event.start - b.event.start || b.event.end - a.event.end || a.i - b.i);
  const open: { flame: Flame; end: number }[] = [];
  let [skipped, until] = [0, ordered[0]?.event.start ?? 0];
  const first = until;
  for (const { event } of ordered) {
    while (open.length && open[open.length - 1].end <= event.start) open.pop();
    if (event.start > until) skipped += event.start - until;
    const outer = open[open.length - 1];
    // steps of several threads overlap: a step ends with the one that encloses it
    const end = outer ? Math.min(event.end, outer.end) : event.end;
    until = Math.max(until, end);
    const name = event.name === event.stage ? event.stage : `${event.stage}: ${event.name}`;
    const start = flame.start + event.start - first - skipped;
    const step = { name, title: name, stage: event.stage, start, ns: Math.max(0, end - event.start), children: [] };
    (outer?.flame ?? flame).children.push(step);
    open.push({ flame: step, end });
    if (!outer) flame.ns = Math.max(flame.ns, start + step.ns - flame.start);
  }
}

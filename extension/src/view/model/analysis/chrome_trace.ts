/** Flame charts in Chrome's trace format, which https://ui.perfetto.dev and chrome://tracing open. */

import type { Flame } from "./flames";

interface TraceEvent {
  name: string;
  ph: "X" | "M";
  pid: number;
  tid: number;
  cat?: string;
  ts?: number;
  dur?: number;
  args: { [name: string]: string | string[] };
}

/** Returns the content of a trace file; each chart is a track. */
export function chromeTrace(title: string, roots: Flame[]): { traceEvents: TraceEvent[]; displayTimeUnit: string } {
  const events: TraceEvent[] = [
    { name: "process_name", ph: "M", pid: 1, tid: 0, args: { name: `Cutaway: ${title || "compile"}` } },
  ];
  roots.forEach((root, i) => {
    events.push({ name: "thread_name", ph: "M", pid: 1, tid: i + 1, args: { name: root.title } });
    addEvents(root, i + 1, events);
  });
  return { traceEvents: events, displayTimeUnit: "ms" };
}

function addEvents(flame: Flame, tid: number, events: TraceEvent[]): void {
  const args = { title: flame.title, items: flame.items ?? [] };
  events.push({
    name: flame.name,
    cat: flame.stage,
    ph: "X",
    pid: 1,
    tid,
    ts: flame.start / 1e3,
    dur: flame.ns / 1e3,
    args,
  });
  for (const child of flame.children) addEvents(child, tid, events);
}

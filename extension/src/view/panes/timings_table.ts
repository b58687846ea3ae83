/** The steps of a compile on a time line. */

import { h } from "../dom/elements";
import { duration } from "../dom/format";
import type { Compile, Event } from "../model/record/record";
import type { State } from "../model/state";
import { cells, LinkedContent, shortCell } from "./linked_content";

export class TimingsTable extends LinkedContent {
  constructor(state: State, compile: Compile) {
    super(state);
    const from = Math.min(...compile.events.map((e) => e.start));
    const to = Math.max(...compile.events.map((e) => e.end ?? e.start));
    const total = Math.max(to - from, 1);
    const rows = compile.events.map((event, i) => this.row(event, nestingDepth(compile.events, i), from, total));
    this.element.append(
      h("p", { class: "lead" }, `${duration(total)} from the start of the first step to the end of the last one.`),
      this.table(["Step", "Time", "When"], rows),
    );
  }

  private row(event: Event, level: number, from: number, total: number): HTMLTableRowElement {
    const length = (event.end ?? event.start) - event.start;
    const place = `left:${(100 * (event.start - from)) / total}%;width:${(100 * length) / total}%`;
    const track = h("span", { class: "track" }, h("span", { class: `bar ${event.outcome}`, style: place }));
    const text = event.name === event.stage ? event.stage : `${event.stage}: ${event.name}`;
    const detail = event.detail && h("small", {}, ` ${event.detail}`);
    const name = h("div", { style: `padding-left:${1.2 * level}em` }, text, detail);
    const time = event.end === null ? "did not finish" : duration(length);
    const row = h("tr", { class: event.outcome }, ...cells(name, shortCell(time), track));
    row.children[2].className = "wide";
    return row;
  }
}

/** Returns the number of earlier events that enclose an event. */
function nestingDepth(events: Event[], at: number): number {
  const own = events[at];
  const end = (event: Event) => event.end ?? Number.POSITIVE_INFINITY;
  return events.slice(0, at).filter((e) => e.start <= own.start && end(e) >= end(own)).length;
}

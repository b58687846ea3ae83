/** The panes that are tables: guards, expansions, timings. */

import { duration, h, plural } from "../dom/dom";
import { keyOf } from "../model/links";
import type { Compile, Event } from "../model/record";
import type { State } from "../model/state";
import { cells, code, Rows, short } from "./rows";

export class GuardTable extends Rows {
  constructor(state: State, compile: Compile) {
    super(state);
    const artifact = compile.artifacts.find((a) => a.pane === "guards");
    const timed = compile.guards.some((guard) => guard.cost_ns !== null);
    const rows = compile.guards.map((guard) => {
      const cost = timed ? [short(guard.cost_ns === null ? "" : duration(guard.cost_ns))] : [];
      const kind = guard.dropped ? `${guard.kind} (dropped)` : guard.kind;
      const row = h("tr", {}, ...cells(kind, code(guard.code), guard.line ? keyOf(guard.line) : "", ...cost));
      return this.standsFor(row, [artifact ? `${artifact.id}#${guard.key}` : guard.line]);
    });
    const total = compile.guards_ns === null ? "" : `; checking takes ${duration(compile.guards_ns)} a call`;
    const checked = compile.guards.filter((guard) => !guard.dropped).length;
    this.element.append(
      h(
        "p",
        { class: "lead" },
        `This code is used again while ${plural(checked, "guard holds", "guards hold")}${total}.`,
      ),
      this.table(["Kind", "Check", "Line", ...(timed ? ["Cost"] : [])], rows),
    );
    this.light();
  }
}

/** What each captured operation became: by decomposition in the forward, by autograd in the backward. */
export class ExpansionTable extends Rows {
  constructor(state: State, compile: Compile) {
    super(state);
    const rows = compile.expansions.map((made) => {
      const operations = (items: string[]) => code(items.map(keyOf).join(", "));
      const row = h(
        "tr",
        {},
        ...cells(
          short(code(keyOf(made.node))),
          short(code(made.target)),
          operations(made.forward),
          operations(made.backward),
          code([...made.decomposed, ...made.functions].join(", ")),
        ),
      );
      return this.standsFor(row, [made.node, ...made.forward, ...made.backward]);
    });
    const total = (part: "forward" | "backward") => new Set(compile.expansions.flatMap((made) => made[part])).size;
    const lead = `${plural(rows.length, "operation")} became ${total("forward")} in the forward; autograd added ${total("backward")}.`;
    this.element.append(
      h("p", { class: "lead" }, lead),
      this.table(["Node", "Operation", "Forward", "Added by autograd", "Taken apart, and autograd's functions"], rows),
    );
    this.light();
  }
}

export class TimingsTable extends Rows {
  constructor(state: State, compile: Compile) {
    super(state);
    const from = Math.min(...compile.events.map((e) => e.start));
    const to = Math.max(...compile.events.map((e) => e.end ?? e.start));
    const whole = Math.max(to - from, 1);
    const rows = compile.events.map((event, i) => this.row(event, depth(compile.events, i), from, whole));
    this.element.append(
      h("p", { class: "lead" }, `${duration(whole)} from the first step to the last.`),
      this.table(["Step", "Time", "When"], rows),
    );
  }

  private row(event: Event, level: number, from: number, whole: number): HTMLTableRowElement {
    const length = (event.end ?? event.start) - event.start;
    const place = `left:${(100 * (event.start - from)) / whole}%;width:${(100 * length) / whole}%`;
    const track = h("span", { class: "track" }, h("span", { class: `bar ${event.outcome}`, style: place }));
    const text = event.name === event.stage ? event.stage : `${event.stage}: ${event.name}`;
    const detail = event.detail && h("small", {}, ` ${event.detail}`);
    const name = h("div", { style: `padding-left:${1.2 * level}em` }, text, detail);
    const time = event.end === null ? "did not end" : duration(length);
    const row = h("tr", { class: event.outcome }, ...cells(name, short(time), track));
    row.children[2].className = "wide";
    return row;
  }
}

/** How many earlier events an event happened within. */
function depth(events: Event[], at: number): number {
  const own = events[at];
  const end = (event: Event) => event.end ?? Number.POSITIVE_INFINITY;
  return events.slice(0, at).filter((e) => e.start <= own.start && end(e) >= end(own)).length;
}

/** The panes that are tables: guards, partition, fusion, timings. */

import { bytes, duration, h, plural } from "./dom";
import { keyOf } from "./links";
import type { BudgetPoint, Compile, Event, Partition, Value } from "./record";
import { cells, code, Rows, short } from "./rows";
import type { State } from "./state";

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

const DECISIONS: Value["decision"][] = ["saved", "recomputed", "neither"];

export class PartitionTable extends Rows {
  constructor(state: State, partition: Partition) {
    super(state);
    const values = DECISIONS.flatMap((d) => partition.values.filter((v) => v.decision === d));
    this.element.append(h("p", { class: "lead" }, compare(partition)), this.bars(partition));
    if (partition.curve.length) this.element.append(...this.curve(partition.curve));
    const rows = values.map((value) => {
      const decision = h("span", { class: `chip ${value.decision}` }, value.decision);
      const row = h(
        "tr",
        {},
        ...cells(short(code(keyOf(value.node))), decision, short(bytes(value.bytes)), toDrop(value), value.reason),
      );
      return this.standsFor(row, [value.node]);
    });
    this.element.append(this.table(["Value", "Decision", "Size", "To drop", "Why"], rows));
    this.light();
  }

  /** What other memory budgets would save, and the work that they would add. */
  private curve(points: BudgetPoint[]): HTMLElement[] {
    const most = Math.max(...points.map((point) => point.saved_bytes), 1);
    const rows = points.map((point) => {
      const width = `width:${(100 * point.saved_bytes) / most}%`;
      const track = h("span", { class: "track" }, h("span", { class: "bar saved", style: width }));
      const again = point.again_ns ? duration(point.again_ns) : "nothing";
      const size = h("span", { class: "measure" }, track, bytes(point.saved_bytes));
      return h("tr", {}, ...cells(short(point.budget.toFixed(1)), size, short(again)));
    });
    return [h("h3", {}, "Memory budgets"), this.table(["Budget", "Saved", "Computed again (estimate)"], rows)];
  }

  /** What is saved, beside what saving everything would cost. */
  private bars(partition: Partition): HTMLElement {
    const most = Math.max(partition.saved_bytes, partition.default_saved_bytes, 1);
    const bar = (name: string, size: number, count: number, kind: string) =>
      h(
        "div",
        { class: "measure" },
        h("span", {}, name),
        h("span", { class: "track" }, h("span", { class: `bar ${kind}`, style: `width:${(100 * size) / most}%` })),
        h("span", {}, `${plural(count, "tensor")}, ${bytes(size)}`),
      );
    return h(
      "div",
      { class: "measures" },
      bar("min-cut", partition.saved_bytes, partition.saved_count, "saved"),
      bar("default", partition.default_saved_bytes, partition.default_saved_count, "neither"),
    );
  }
}

/** The estimated time that the backward would spend on a saved value, were it not saved. */
function toDrop(value: Value): HTMLElement {
  if (value.decision !== "saved") return short("");
  return short(value.drop_ns === null ? "cannot" : `+${duration(value.drop_ns)}`);
}

function compare(partition: Partition): string {
  const saved = `${plural(partition.saved_count, "tensor is", "tensors are")} saved for the backward, ${bytes(partition.saved_bytes)}`;
  const usual = `saving all that the backward reads would keep ${plural(partition.default_saved_count, "tensor")}, ${bytes(partition.default_saved_bytes)}`;
  return `${saved}; ${usual}.`;
}

export class FusionTable extends Rows {
  constructor(state: State, compile: Compile) {
    super(state);
    const kernels = new Map(compile.kernels.flatMap((k) => [[k.key, k] as const, [k.name, k] as const]));
    const groups = compile.fusions.map((fusion) => {
      const kernel = fusion.kernel === null ? undefined : kernels.get(fusion.kernel);
      const name = code(kernel?.name ?? fusion.kernel ?? fusion.key);
      const nodes = code(fusion.nodes.map(keyOf).join(", "));
      const row = h(
        "tr",
        {},
        ...cells(short(name), fusion.kind, nodes, short(fusion.bytes_saved === null ? "" : bytes(fusion.bytes_saved))),
      );
      return this.standsFor(row, [...fusion.nodes, kernel?.item ?? null]);
    });
    const refusals = compile.refusals.map((refusal) =>
      h("tr", {}, ...cells(short(code(refusal.first)), short(code(refusal.second)), refusal.kind, refusal.reason)),
    );
    this.element.append(h("p", { class: "lead" }, `${plural(groups.length, "group")} of loops became kernels.`));
    if (groups.length) this.element.append(this.table(["Kernel", "Kind", "Nodes", "Traffic avoided"], groups));
    if (refusals.length) {
      this.element.append(h("h3", {}, "Kept apart"), this.table(["Group", "And", "Kind", "Why"], refusals));
    }
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

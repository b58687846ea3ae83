/** The partition: what is saved for the backward and why, and what other memory budgets would save. */

import { bytes, duration, h, plural, svg } from "../dom/dom";
import { keyOf } from "../model/links";
import type { BudgetPoint, Partition, Value } from "../model/record";
import type { State } from "../model/state";
import { cells, code, Rows, short } from "./rows";

const DECISIONS: Value["decision"][] = ["saved", "recomputed", "neither"];

export class PartitionTable extends Rows {
  constructor(state: State, partition: Partition) {
    super(state);
    this.element.append(h("p", { class: "lead" }, compare(partition)), this.bars(partition));
    this.element.append(partition.curve.length > 1 ? new BudgetSlider(state, partition).element : withoutCurve());
    const values = DECISIONS.flatMap((d) => partition.values.filter((v) => v.decision === d));
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

const WIDTH = 320;
const HEIGHT = 110;
const INSET = 8;

/** A slider over the recorded memory budgets, on their curve; the joint graph shows the cut of the chosen one. */
class BudgetSlider {
  readonly element: HTMLElement;
  /** From the smallest budget to the largest. */
  private readonly points: BudgetPoint[];
  private readonly said = h("p", { role: "status" });
  private readonly changes = h("p", { class: "changes" });
  private readonly mark = svg("circle", { class: "mark", r: 5 });
  private readonly slider: HTMLInputElement;

  constructor(
    private readonly state: State,
    private readonly partition: Partition,
  ) {
    this.points = [...partition.curve].sort((a, b) => a.budget - b.budget);
    const chosen = state.budget ? this.points.indexOf(state.budget) : -1;
    this.slider = h("input", {
      class: "slider",
      type: "range",
      min: 0,
      max: this.points.length - 1,
      step: 1,
      value: chosen < 0 ? this.compiled() : chosen,
      "aria-label": "Memory budget",
      oninput: () => this.choose(),
    });
    const picture = svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "curve", role: "img", "aria-label": this.spoken() },
      svg("path", { d: this.path() }),
      ...this.points.map((point) => svg("circle", { r: 2, ...this.place(point) })),
      this.mark,
    );
    this.element = h(
      "section",
      { class: "budget" },
      h("h3", {}, "Memory budget"),
      h("div", { class: "axes" }, h("span", {}, "↑ computed again"), picture, h("span", {}, "saved →")),
      this.slider,
      this.said,
      this.changes,
    );
    this.draw();
  }

  /** The point that was compiled: the one that saves as much. */
  private compiled(): number {
    const at = this.points.findLastIndex((point) => point.saved_bytes === this.partition.saved_bytes);
    return at < 0 ? this.points.length - 1 : at;
  }

  private choose(): void {
    const at = Number(this.slider.value);
    this.state.weigh(at === this.compiled() ? null : this.points[at]);
    this.draw();
  }

  private draw(): void {
    const point = this.points[Number(this.slider.value)];
    const { cx, cy } = this.place(point);
    this.mark.setAttribute("cx", String(cx));
    this.mark.setAttribute("cy", String(cy));
    this.slider.setAttribute("aria-valuetext", sentence(point));
    this.said.textContent = sentence(point);
    const own = this.points[this.compiled()];
    const names = (items: string[]) => items.map(keyOf).join(", ");
    const dropped = own.saved.filter((item) => !point.saved.includes(item));
    const added = point.saved.filter((item) => !own.saved.includes(item));
    this.changes.replaceChildren(
      point === own ? "This is what was compiled; the joint graph shows the cut of any other." : "",
      ...(dropped.length ? ["no longer saved: ", code(names(dropped)), " "] : []),
      ...(added.length ? ["saved instead: ", code(names(added))] : []),
    );
  }

  private place({ saved_bytes, again_ns }: BudgetPoint): { cx: number; cy: number } {
    const most = (measure: (point: BudgetPoint) => number) => Math.max(1, ...this.points.map(measure));
    const across = saved_bytes / most((point) => point.saved_bytes);
    const up = again_ns / most((point) => point.again_ns);
    return { cx: INSET + across * (WIDTH - 2 * INSET), cy: HEIGHT - INSET - up * (HEIGHT - 2 * INSET) };
  }

  private path(): string {
    return this.points.map((point, i) => `${i ? "L" : "M"}${this.place(point).cx} ${this.place(point).cy}`).join("");
  }

  private spoken(): string {
    return `The curve of memory budgets: ${this.points.map(sentence).join("; ")}`;
  }
}

function sentence({ budget, saved_bytes, again_ns, saved }: BudgetPoint): string {
  const work = again_ns ? `about ${duration(again_ns)} of work` : "nothing";
  return `budget ${budget.toFixed(1)}: ${plural(saved.length, "tensor")}, ${bytes(saved_bytes)} saved; ${work} computed again`;
}

function withoutCurve(): HTMLElement {
  return h(
    "p",
    { class: "note" },
    "What other memory budgets would save is recorded on demand: %%compile --memory-curve",
  );
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

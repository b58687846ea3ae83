/** The slider over the recorded memory budgets of a partition. */

import { h, svg } from "../../dom/elements";
import { bytes, duration, plural } from "../../dom/format";
import { keyOf } from "../../model/analysis/links";
import type { BudgetPoint, Partition } from "../../model/record/record";
import type { State } from "../../model/state";
import { code } from "../linked_content";

const WIDTH = 320;
const HEIGHT = 110;
const INSET = 8;

/** A slider and a curve of memory budgets; the joint graph shows the cut of the chosen one. */
export class BudgetSlider {
  readonly element: HTMLElement;
  /** From the smallest budget to the largest. */
  private readonly points: BudgetPoint[];
  private readonly summary = h("p", { role: "status" });
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
      value: chosen < 0 ? this.compiledIndex() : chosen,
      "aria-label": "Memory budget",
      oninput: () => this.choose(),
    });
    const picture = svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "curve", role: "img", "aria-label": this.description() },
      svg("path", { d: this.path() }),
      ...this.points.map((point) => svg("circle", { r: 2, ...this.positionOf(point) })),
      this.mark,
    );
    this.element = h(
      "section",
      { class: "budget" },
      h("h3", {}, "Memory budget"),
      h("div", { class: "axes" }, h("span", {}, "↑ recomputed"), picture, h("span", {}, "saved →")),
      this.slider,
      this.summary,
      this.changes,
    );
    this.draw();
  }

  /** The index of the budget that was compiled with: the one that saves as many bytes. */
  private compiledIndex(): number {
    const at = this.points.findLastIndex((point) => point.saved_bytes === this.partition.saved_bytes);
    return at < 0 ? this.points.length - 1 : at;
  }

  private choose(): void {
    const at = Number(this.slider.value);
    this.state.chooseBudget(at === this.compiledIndex() ? null : this.points[at]);
    this.draw();
  }

  private draw(): void {
    const point = this.points[Number(this.slider.value)];
    const { cx, cy } = this.positionOf(point);
    this.mark.setAttribute("cx", String(cx));
    this.mark.setAttribute("cy", String(cy));
    this.slider.setAttribute("aria-valuetext", describePoint(point));
    this.summary.textContent = describePoint(point);
    const own = this.points[this.compiledIndex()];
    const names = (items: string[]) => items.map(keyOf).join(", ");
    const dropped = own.saved.filter((item) => !point.saved.includes(item));
    const added = point.saved.filter((item) => !own.saved.includes(item));
    this.changes.replaceChildren(
      point === own
        ? "This is the budget that was compiled with; the joint graph shows the cut of the chosen budget."
        : "",
      ...(dropped.length ? ["no longer saved: ", code(names(dropped)), " "] : []),
      ...(added.length ? ["saved instead: ", code(names(added))] : []),
    );
  }

  private positionOf({ saved_bytes, again_ns }: BudgetPoint): { cx: number; cy: number } {
    const most = (measure: (point: BudgetPoint) => number) => Math.max(1, ...this.points.map(measure));
    const across = saved_bytes / most((point) => point.saved_bytes);
    const up = again_ns / most((point) => point.again_ns);
    return { cx: INSET + across * (WIDTH - 2 * INSET), cy: HEIGHT - INSET - up * (HEIGHT - 2 * INSET) };
  }

  private path(): string {
    return this.points
      .map((point, i) => `${i ? "L" : "M"}${this.positionOf(point).cx} ${this.positionOf(point).cy}`)
      .join("");
  }

  private description(): string {
    return `The curve of memory budgets: ${this.points.map(describePoint).join("; ")}`;
  }
}

function describePoint({ budget, saved_bytes, again_ns, saved }: BudgetPoint): string {
  const work = again_ns ? `about ${duration(again_ns)} of work` : "nothing";
  return `budget ${budget.toFixed(1)}: ${plural(saved.length, "tensor")}, ${bytes(saved_bytes)} saved; ${work} recomputed`;
}

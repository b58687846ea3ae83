/**
 * The time of compiling of all compiles as a flame chart: steps inside one another are stacked, and the time between
 * steps, in which nothing was compiled, is left out. A click on a step zooms to it.
 */

import { h } from "../dom/elements";
import { duration, plural } from "../dom/format";
import { type Flame, flamesOf } from "../model/analysis/flames";
import type { State } from "../model/state";
import { LinkedContent } from "./linked_content";

const ROW_PX = 20;
/** Steps of a smaller share of the shown width are not drawn. */
const MIN_SHARE = 0.001;

export class FlameChart extends LinkedContent {
  private readonly root: Flame;
  private readonly chart = h("div", { class: "flames", role: "group", "aria-label": "Steps by time" });
  private readonly lead = h("p", { class: "lead" });

  constructor(state: State) {
    super(state);
    this.root = flamesOf(state.record);
    this.element.append(this.lead, this.chart);
    this.zoom(this.root);
  }

  private zoom(to: Flame): void {
    const compiles = plural(this.root.children.length, "compile");
    const back = h("button", { class: "link", onclick: () => this.zoom(this.root) }, "show all");
    const text =
      to === this.root
        ? `${duration(to.ns)} in ${compiles}; press a step to zoom to it.`
        : `${to.title}: ${duration(to.ns)} of ${duration(this.root.ns)}; `;
    this.lead.replaceChildren(text, ...(to === this.root ? [] : [back]));
    const bars: HTMLElement[] = [];
    const depth = this.draw(to, to, 0, bars);
    this.chart.style.height = `${ROW_PX * (depth + 1)}px`;
    this.chart.replaceChildren(...bars);
  }

  /** Adds the bars of `flame` and of what is inside it; returns the depth of the deepest. */
  private draw(flame: Flame, shown: Flame, depth: number, bars: HTMLElement[]): number {
    const share = flame.ns / Math.max(shown.ns, 1);
    if (share < MIN_SHARE) return depth;
    const left = (flame.start - shown.start) / Math.max(shown.ns, 1);
    const place = `left:${100 * left}%;width:${100 * share}%;top:${ROW_PX * depth}px`;
    const title = `${flame.title}: ${duration(flame.ns)}`;
    const name = h("span", {}, `${flame.name} ${duration(flame.ns)}`);
    const onclick = () => this.zoom(flame === shown ? this.root : flame);
    bars.push(h("button", { class: `flame ${flame.stage}`, style: place, title, "aria-label": title, onclick }, name));
    return Math.max(depth, ...flame.children.map((child) => this.draw(child, shown, depth + 1, bars)));
  }
}

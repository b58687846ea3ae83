/**
 * Flame charts: the time of compiling by phase or by line, and that of a run, compiled and eager. Bars inside one
 * another are stacked; a click on a bar zooms to it, and pins what it is about.
 */

import { h } from "../dom/elements";
import { duration, plural } from "../dom/format";
import { saveFile } from "../dom/save_file";
import { chromeTrace } from "../model/analysis/chrome_trace";
import { type Flame, flamesOf } from "../model/analysis/flames";
import { lineFlames } from "../model/analysis/line_flames";
import { placed, runFlames } from "../model/analysis/run_flames";
import type { Compile } from "../model/record/record";
import type { State } from "../model/state";
import { LinkedContent } from "./linked_content";

const ROW_PX = 20;
/** Bars of a smaller share of the shown width are not drawn. */
const MIN_SHARE = 0.001;

export class FlameChart extends LinkedContent {
  private readonly charts: { root: Flame; element: HTMLElement }[];
  private readonly lead = h("p", { class: "lead" });
  private readonly longest: number;

  /** `introduction`: what the charts show; several charts have one scale. */
  constructor(
    state: State,
    roots: Flame[],
    private readonly introduction: (string | HTMLElement)[],
    label: string,
  ) {
    super(state);
    this.longest = Math.max(1, ...roots.map(({ ns }) => ns));
    this.charts = roots.map((root) => ({
      root,
      element: h("div", { class: "flames", role: "group", "aria-label": `${label}: ${root.title}` }),
    }));
    this.element.append(this.lead, ...this.charts.map(({ element }) => element));
    this.zoom(null);
    this.highlight();
  }

  /** Shows all charts, or one bar of one of them over the whole width. */
  private zoom(to: Flame | null): void {
    const back = h("button", { class: "link", onclick: () => this.zoom(null) }, "show all");
    if (to) {
      const all = this.charts.find(({ root }) => contains(root, to))?.root ?? to;
      this.lead.replaceChildren(`${to.title}: ${duration(to.ns)} of ${duration(all.ns)}; `, back);
    } else {
      this.lead.replaceChildren(...this.introduction);
    }
    for (const { root, element } of this.charts) {
      const shown = to && contains(root, to) ? to : root;
      element.hidden = to !== null && shown === root && to !== root;
      if (element.hidden) continue;
      const bars: HTMLElement[] = [];
      const depth = this.draw(shown, { shown, full: to ? shown.ns : this.longest }, 0, bars);
      element.style.height = `${ROW_PX * (depth + 1)}px`;
      element.replaceChildren(...bars);
    }
  }

  /** Adds the bars of `flame` and of what is inside it; returns the depth of the deepest. */
  private draw(flame: Flame, scale: { shown: Flame; full: number }, depth: number, bars: HTMLElement[]): number {
    const share = flame.ns / Math.max(scale.full, 1);
    if (share < MIN_SHARE) return depth;
    const left = (flame.start - scale.shown.start) / Math.max(scale.full, 1);
    const place = `left:${100 * left}%;width:${100 * share}%;top:${ROW_PX * depth}px`;
    const title = `${flame.title}: ${duration(flame.ns)}`;
    const text = `${flame.name} ${duration(flame.ns)}`;
    // the accessible name starts with the visible text, for voice control
    const label = flame.title === flame.name ? text : `${text}, ${flame.title}`;
    const onclick = () => {
      if (flame.items?.length) this.state.pin(flame.items);
      this.zoom(flame === scale.shown ? null : flame);
    };
    bars.push(
      h(
        "button",
        { class: `flame ${flame.stage}`, style: place, title, "aria-label": label, onclick },
        h("span", {}, text),
      ),
    );
    return Math.max(depth, ...flame.children.map((child) => this.draw(child, scale, depth + 1, bars)));
  }
}

function contains(root: Flame, flame: Flame): boolean {
  return root === flame || root.children.some((child) => contains(child, flame));
}

/** The time of compiling of all compiles, by phase and pass; the time between steps is left out. */
export function phaseChart(state: State): FlameChart {
  const root = flamesOf(state.record);
  const text = `${duration(root.ns)} in ${plural(root.children.length, "compile")}; press a step to zoom to it.`;
  return new FlameChart(state, [root], [text, " ", traceButton(state, [root])], "Steps by time");
}

/** The time of compiling of all compiles, by the user's lines. */
export function lineChart(state: State): FlameChart {
  const root = placed(lineFlames(state.record, state.links));
  const lines = root.children.filter(({ stage }) => stage === "line");
  const sum = lines.reduce((all, { ns }) => all + ns, 0);
  const text =
    `Capturing and tracing ${plural(lines.length, "line")} took ${duration(sum)} of ${duration(root.ns)}; the other ` +
    "steps work on whole graphs.";
  return new FlameChart(state, [root], [text, " ", traceButton(state, [root])], "Time of compiling by line");
}

/** The time of a run of one compile, compiled and eager, by module, line and kernel. */
export function runChart(state: State, compile: Compile): FlameChart {
  const roots = runFlames(compile, state.links).map((root) => placed(root));
  const [first, second] = roots;
  const compared = second ? ` beside ${duration(second.ns)} in eager PyTorch` : "";
  const text = `A run of ${compile.id} takes ${duration(first.ns)} ${first.name}${compared}.`;
  return new FlameChart(state, roots, [text, " ", traceButton(state, roots)], "Time of a run");
}

/** The button that saves charts for Perfetto. */
function traceButton(state: State, roots: Flame[]): HTMLElement {
  const save = () => saveFile("cutaway.trace.json", JSON.stringify(chromeTrace(state.record.title, roots)));
  const title = "Save it in Chrome's trace format, which ui.perfetto.dev and chrome://tracing open";
  return h("button", { class: "link", title, onclick: save }, "save as trace");
}

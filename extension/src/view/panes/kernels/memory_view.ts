/**
 * The memory that a compile's graphs allocate, step by step: a curve over the launches of kernels, a slider over the
 * steps, and the buffers in use at the chosen step, at first at the peak.
 */

import { h, svg } from "../../dom/elements";
import { bytes, duration, plural } from "../../dom/format";
import { type KernelCost, kernelCosts, type ModuleCost, moduleCosts } from "../../model/analysis/costs";
import { keyOf, type Links } from "../../model/analysis/links";
import { buffersAt, type MemoryBuffer, type MemoryTimeline } from "../../model/analysis/memory_timeline";
import { kernelPhases, PHASES, type Phase, wholeStep } from "../../model/analysis/training_step";
import type { Compile, ItemId } from "../../model/record/record";
import type { State } from "../../model/state";
import { cells, code, LinkedContent, shareCell, shortCell, stackedCell } from "../linked_content";

const WIDTH = 600;
const HEIGHT = 120;
/** The height of the strip of launches, and the least of a launch in it. */
const STRIP = 30;
const LEAST = 3;
/** Neighbouring steps share a column if there are more. */
const MAX_COLUMNS = 600;
const MAX_ROWS = 100;
/** Names of buffers in a row. */
const MAX_NAMES = 5;
const KINDS = { result: "results", saved: "saved for the backward", intermediate: "intermediate values" };

export class MemoryView extends LinkedContent {
  private readonly slider: HTMLInputElement;
  private readonly marker = svg("line", { class: "marker", y1: 0, y2: HEIGHT });
  private readonly status = h("p", { role: "status" });
  private readonly launched = h("p", {});
  private readonly owners = h("div", {});
  /** The kernel of each step; empty if it is not known. */
  private readonly launches: KernelCost[];
  private readonly isWhole: boolean;

  constructor(
    state: State,
    compile: Compile,
    private readonly timeline: MemoryTimeline,
  ) {
    super(state);
    const costs = new Map(kernelCosts([compile], state.links).map((cost) => [cost.kernel, cost]));
    this.launches = timeline.launches.map((kernel) => costs.get(kernel) as KernelCost);
    this.isWhole = wholeStep(compile) !== undefined;
    const { bytes: used, peak, forwardSteps } = timeline;
    const steps = used.length;
    this.slider = h("input", {
      class: "steps",
      type: "range",
      min: 0,
      max: steps - 1,
      step: 1,
      value: peak,
      "aria-label": "Step",
      oninput: () => this.choose(),
    });
    const lead = `At most ${bytes(used[peak])} at a time, in ${this.stepName(peak)}. `;
    const scope = "Counted is what the compiled program allocates: not its inputs and parameters.";
    const split = this.across(forwardSteps);
    this.element.append(
      h("p", { class: "lead" }, lead, scope),
      h(
        "div",
        { class: "memory" },
        svg(
          "svg",
          { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": lead },
          svg("path", { d: this.path() }),
          forwardSteps < steps && svg("line", { class: "split", x1: split, x2: split, y1: 0, y2: HEIGHT }),
          this.marker,
        ),
        this.launches.length > 0 && this.strip(),
        this.slider,
        h("div", { class: "parts" }, ...this.parts()),
      ),
      this.status,
      this.launched,
      this.owners,
    );
    this.choose();
  }

  /** The launches of kernels: the height is the share of the time, or else of the traffic. A press chooses one. */
  private strip(): SVGSVGElement {
    const most = Math.max(...this.launches.map(({ share }) => share)) || 1;
    const bars = this.launches.map((launch, step) => {
      const height = Math.max(LEAST, (STRIP * launch.share) / most);
      const place = { x: this.across(step), y: STRIP - height, width: this.across(1) * 0.85, height };
      return svg("rect", { class: this.phases(step).at(-1), ...place }, svg("title", {}, this.launchText(step)));
    });
    const size = { viewBox: `0 0 ${WIDTH} ${STRIP}`, preserveAspectRatio: "none" };
    const text = `${plural(bars.length, "launch", "launches")} of kernels`;
    const strip = svg("svg", { class: "launches", ...size, role: "img", "aria-label": text }, ...bars);
    strip.addEventListener("click", (event) => {
      const step = bars.indexOf(event.target as SVGRectElement);
      if (step < 0) return;
      this.slider.value = String(step);
      this.choose();
      this.state.pin(itemsOf(this.launches[step]));
    });
    return strip;
  }

  private launchText(step: number): string {
    const { kernel, ns, bytes: traffic } = this.launches[step];
    return `${kernel.name}: ${this.phases(step).join(", ")}; ${kernel.time_ns === null ? bytes(traffic) : duration(ns)}`;
  }

  private phases(step: number): Phase[] {
    if (this.launches.length) return kernelPhases(this.launches[step], this.state.links);
    return [step < this.timeline.forwardSteps ? "forward" : "backward"];
  }

  /** The phases and how many launches each has: in one graph they mix, and in two they follow one another. */
  private parts(): HTMLElement[] {
    const { bytes: used, forwardSteps } = this.timeline;
    if (!this.isWhole) {
      const share = forwardSteps / used.length;
      const names: [Phase, number][] = [
        ["forward", share],
        ["backward", 1 - share],
      ];
      const shown = names.filter(([, width]) => width);
      return shown.map(([name, width]) => h("span", { class: name, style: `width:${100 * width}%` }, name));
    }
    const latest = used.map((_, step) => this.phases(step).at(-1));
    return PHASES.map((phase) =>
      h("span", { class: phase }, `${phase}: ${latest.filter((each) => each === phase).length}`),
    );
  }

  private stepName(step: number): string {
    const { forwardSteps, bytes: used } = this.timeline;
    if (this.isWhole) return `launch ${step + 1} of ${used.length} (${this.phases(step).join(", ")})`;
    return step < forwardSteps ? `step ${step + 1} of the forward` : `step ${step - forwardSteps + 1} of the backward`;
  }

  private across(step: number): number {
    return (WIDTH * step) / this.timeline.bytes.length;
  }

  private path(): string {
    const most = Math.max(1, ...this.timeline.bytes);
    const columns = Math.min(MAX_COLUMNS, this.timeline.bytes.length);
    const tops = new Array<number>(columns).fill(0);
    this.timeline.bytes.forEach((used, i) => {
      const at = Math.floor((i * columns) / this.timeline.bytes.length);
      tops[at] = Math.max(tops[at], used);
    });
    const points = tops.map(
      (used, i) => `V${(HEIGHT * (1 - used / most)).toFixed(1)}H${((WIDTH * (i + 1)) / columns).toFixed(1)}`,
    );
    return `M0 ${HEIGHT}${points.join("")}V${HEIGHT}Z`;
  }

  private choose(): void {
    const step = Number(this.slider.value);
    const x = this.across(step + 0.5);
    this.marker.setAttribute("x1", String(x));
    this.marker.setAttribute("x2", String(x));
    const used = this.timeline.bytes[step];
    const buffers = buffersAt(this.timeline, step);
    const peak = step === this.timeline.peak ? ", the peak" : "";
    const text = `${this.stepName(step)}${peak}: ${bytes(used)} in ${plural(buffers.length, "buffer")}`;
    this.status.textContent = text[0].toUpperCase() + text.slice(1);
    if (this.launches.length) this.launched.replaceChildren("It launches ", this.kernelLink(step), ".");
    this.slider.setAttribute("aria-valuetext", text);
    const owners = ownersOf(buffers, this.state.links);
    const rows = owners.slice(0, MAX_ROWS).map((owner) => this.row(owner, used));
    this.owners.replaceChildren(this.table(["Owner", "Share", "Size"], rows));
    const hidden = owners.length - rows.length;
    if (hidden) this.owners.append(h("p", {}, `${plural(hidden, "smaller owner")} not shown.`));
    this.owners.append(...this.modulesOf(buffers));
    this.highlight();
  }

  /** The kernel that is launched at a step. */
  private kernelLink(step: number): HTMLElement {
    const show = () => this.state.pin(itemsOf(this.launches[step]));
    return h("button", { class: "link", title: this.launchText(step), onclick: show }, this.launches[step].kernel.name);
  }

  /** The modules that the buffers are of. */
  private modulesOf(buffers: MemoryBuffer[]): HTMLElement[] {
    const parts = buffers.map(({ node, bytes }) => ({ bytes, ns: 0, nodes: node === null ? [] : [node] }));
    const figures = (cost: ModuleCost) => [shareCell(cost.share), shortCell(bytes(Math.round(cost.bytes)))];
    return this.modules(moduleCosts(parts, this.state.links, false), ["Size"], figures);
  }

  private row({ line, kind, buffers, size }: Owner, used: number): HTMLTableRowElement {
    const { links } = this.state;
    const isReserved = buffers.every(({ holds }) => holds);
    const text = line !== null ? links.text(line) : isReserved ? "reserved, without a value now" : "no line of yours";
    const owner = h("span", {}, line && h("small", {}, `${keyOf(line)} `), code(text));
    const names = buffers.slice(0, MAX_NAMES).map(({ name }) => name);
    const more = buffers.length > names.length ? `, and ${buffers.length - names.length} more` : "";
    const row = h(
      "tr",
      {},
      ...cells(
        stackedCell(owner, `${isReserved ? "kernels that share memory" : KINDS[kind]}: ${names.join(", ")}${more}`),
        shareCell(size / Math.max(used, 1)),
        shortCell(bytes(size)),
      ),
    );
    return this.linkTo(
      row,
      buffers.map(({ node }) => node),
    );
  }
}

function itemsOf({ kernel, nodes }: KernelCost): ItemId[] {
  return [kernel.item, ...nodes].filter((item) => item !== null);
}

/** Buffers of one kind that come from one line. */
interface Owner {
  line: ItemId | null;
  kind: MemoryBuffer["kind"];
  buffers: MemoryBuffer[];
  size: number;
}

/** Returns the owners of buffers, the largest first. */
function ownersOf(buffers: MemoryBuffer[], links: Links): Owner[] {
  const owners = new Map<string, Owner>();
  for (const buffer of buffers) {
    const line = buffer.node === null ? null : links.userLine(buffer.node);
    const known = owners.get(`${buffer.kind} ${line}`) ?? { line, kind: buffer.kind, buffers: [], size: 0 };
    known.buffers.push(buffer);
    known.size += buffer.bytes;
    owners.set(`${buffer.kind} ${line}`, known);
  }
  return [...owners.values()].sort((a, b) => b.size - a.size);
}

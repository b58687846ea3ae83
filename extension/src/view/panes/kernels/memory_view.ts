/**
 * The memory that a compile's graphs allocate, step by step over forward and backward: a curve, a slider over the
 * steps, and the buffers in use at the chosen step, at first at the peak.
 */

import { h, svg } from "../../dom/elements";
import { bytes, plural } from "../../dom/format";
import { type ModuleCost, moduleCosts } from "../../model/analysis/costs";
import { keyOf, type Links } from "../../model/analysis/links";
import { buffersAt, type MemoryBuffer, type MemoryTimeline } from "../../model/analysis/memory_timeline";
import type { ItemId } from "../../model/record/record";
import type { State } from "../../model/state";
import { cells, code, LinkedContent, shareCell, shortCell, stackedCell } from "../linked_content";

const WIDTH = 600;
const HEIGHT = 120;
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
  private readonly owners = h("div", {});

  constructor(
    state: State,
    private readonly timeline: MemoryTimeline,
  ) {
    super(state);
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
        this.slider,
        h(
          "div",
          { class: "parts" },
          h("span", { style: `width:${(100 * forwardSteps) / steps}%` }, "forward"),
          forwardSteps < steps && h("span", {}, "backward"),
        ),
      ),
      this.status,
      this.owners,
    );
    this.choose();
  }

  private stepName(step: number): string {
    const { forwardSteps } = this.timeline;
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
    this.slider.setAttribute("aria-valuetext", text);
    const owners = ownersOf(buffers, this.state.links);
    const rows = owners.slice(0, MAX_ROWS).map((owner) => this.row(owner, used));
    this.owners.replaceChildren(this.table(["Owner", "Share", "Size"], rows));
    const hidden = owners.length - rows.length;
    if (hidden) this.owners.append(h("p", {}, `${plural(hidden, "smaller owner")} not shown.`));
    this.owners.append(...this.modulesOf(buffers));
    this.highlight();
  }

  /** The modules that the buffers are of. */
  private modulesOf(buffers: MemoryBuffer[]): HTMLElement[] {
    const parts = buffers.map(({ node, bytes }) => ({ bytes, ns: 0, nodes: node === null ? [] : [node] }));
    const figures = (cost: ModuleCost) => [shareCell(cost.share), shortCell(bytes(Math.round(cost.bytes)))];
    return this.modules(moduleCosts(parts, this.state.links, false), ["Size"], figures);
  }

  private row({ line, kind, buffers, size }: Owner, used: number): HTMLTableRowElement {
    const { links } = this.state;
    const text = line === null ? "no line of yours" : links.text(line);
    const owner = h("span", {}, line && h("small", {}, `${keyOf(line)} `), code(text));
    const names = buffers.slice(0, MAX_NAMES).map(({ name }) => name);
    const more = buffers.length > names.length ? `, and ${buffers.length - names.length} more` : "";
    const row = h(
      "tr",
      {},
      ...cells(
        stackedCell(owner, `${KINDS[kind]}: ${names.join(", ")}${more}`),
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

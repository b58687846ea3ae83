/**
 * A training step on one page: the forward, the backward and the update as a drawing; what other ways to run it would
 * save, as measured; memory and launches over time; and the gradient and the update of each parameter.
 */

import { h } from "../dom/elements";
import { bytes, plural, seconds, tensorType } from "../dom/format";
import { GraphView } from "../graph/graph_view";
import { drawableGraph, forwardAndBackward, forwardBackwardOf, stepGraph } from "../graph/scene/drawable_graph";
import { kernelCosts } from "../model/analysis/costs";
import { keyOf } from "../model/analysis/links";
import { memoryTimeline } from "../model/analysis/memory_timeline";
import { type ParameterUse, PHASES, type TrainingStep } from "../model/analysis/training_step";
import type { Compile, Graph, ItemId, Timing } from "../model/record/record";
import type { State } from "../model/state";
import { shortName } from "./kernels/costs_table";
import { MemoryView } from "./kernels/memory_view";
import { cells, code, LinkedContent, stackedCell } from "./linked_content";

const MAX_PARAMETERS = 300;
const MAX_LINKS = 3;

export class TrainingStepView extends LinkedContent {
  private readonly drawing: GraphView;
  private readonly memory: MemoryView | null;
  /** The names of the kernels that compute the nodes. */
  private readonly kernels: Map<ItemId, string>;

  constructor(
    state: State,
    private readonly compile: Compile,
    private readonly step: TrainingStep,
  ) {
    super(state);
    this.element.classList.add("training");
    this.drawing = new GraphView(drawnGraph(step, compile, state), state);
    const costs = kernelCosts([compile], state.links);
    this.kernels = new Map(costs.flatMap((cost) => cost.nodes.map((node) => [node, shortName(cost.kernel)])));
    const timeline = memoryTimeline(compile, state.links);
    this.memory = timeline && new MemoryView(state, compile, timeline);
    this.element.append(
      h("p", { class: "lead" }, lead(step, compile)),
      h("div", { class: "drawn" }, this.drawing.element),
      h("div", {}, ...this.savings(), ...this.overTime(), ...this.parameters()),
    );
    this.highlight();
  }

  // ---- what would save most

  /** Other ways to run the step, beside how it ran: only what was measured on this cell is said. */
  private savings(): HTMLElement[] {
    const head = h("h3", {}, "What would save most");
    const { timings } = this.state.record;
    const compiled = timings?.rows.find(({ name }) => name === "compiled");
    const forms = this.forms();
    const tried = timings?.rows.filter(({ name }) => forms.includes(name)) ?? [];
    if (compiled && tried.length) {
      const found = tried.map((row) => saving(row, compiled)).sort((a, b) => b.saved - a.saved);
      const doubt = this.state.record.verdict?.warnings.length ? "; doubtful, see above" : "";
      const items = found.map(({ row, text }) => h("li", {}, code(row.name), `${text}${doubt}.`));
      return [head, h("ol", { class: "savings" }, ...items)];
    }
    const button = this.measureButton(forms);
    const text = "Not measured. Each way is run on this cell, in turn with how it ran: ";
    return [head, h("p", { class: "note" }, text, button ?? h("code", {}, `%%compile --time=${forms.join(",")}`))];
  }

  /** The forms in which the step may take less time or memory than it does now. */
  private forms(): string[] {
    const ways = this.step.isWhole ? ["core:no-capture-backward"] : ["core:capture-backward", "core:memory-budget=0.5"];
    const onGpu = this.compile.kernels.some(({ device }) => device?.startsWith("cuda"));
    return onGpu ? [...ways, "core:reduce-overhead"] : ways;
  }

  private measureButton(forms: string[]): HTMLElement | null {
    const timing = this.state.model.get("timing");
    if (!timing?.forms?.length) return null;
    const button = h("button", { class: "try", title: `Time the cell as ${forms.join(" and as ")}` }, "Measure");
    button.onclick = () => {
      this.state.model.send({ type: "time", forms });
      button.disabled = true;
    };
    return button;
  }

  // ---- over time

  private overTime(): HTMLElement[] {
    return this.memory ? [h("h3", {}, "Launches and memory"), this.memory.element] : [];
  }

  // ---- parameters

  private parameters(): HTMLElement[] {
    const { parameters, isWhole } = this.step;
    if (!parameters.length) return [];
    const shown = parameters.slice(0, MAX_PARAMETERS);
    const heads = ["Parameter", "Gradient", ...(isWhole ? ["Update"] : [])];
    const more = parameters.length - shown.length;
    return [
      h("h3", {}, "Parameters"),
      this.table(
        heads,
        shown.map((use) => this.parameter(use)),
      ),
      ...(more ? [h("p", {}, `And ${more.toLocaleString("en")} more.`)] : []),
    ];
  }

  private parameter({ item, name, node, gradients, updates }: ParameterUse): HTMLTableRowElement {
    const size = node.bytes === null ? "" : `, ${bytes(node.bytes)}`;
    const own = stackedCell(code(name), `${tensorType(node.dtype, node.shape)}${size}`);
    const made = this.step.isWhole ? [gradients, updates] : [gradients];
    const links = made.map((items) => this.nodes(items));
    return this.linkTo(h("tr", {}, ...cells(own, ...links)), [item, ...gradients, ...updates]);
  }

  /** Links to nodes, and the kernels that compute them. */
  private nodes(items: ItemId[]): HTMLTableCellElement {
    if (!items.length) return h("td", {}, "none");
    const shown = items.slice(-MAX_LINKS);
    const links = shown.map((item) => {
      const show = (event: Event) => {
        event.stopPropagation(); // the row pins all of the parameter
        this.state.pin([...new Set([item, this.computed(item) ?? item])]);
      };
      return h("button", { class: "link", onclick: show }, keyOf(item));
    });
    const names = [...new Set(shown.flatMap((item) => this.kernels.get(this.computed(item) ?? "") ?? []))];
    return stackedCell(h("span", {}, ...links.flatMap((link, i) => (i ? [", ", link] : [link]))), names.join(", "));
  }

  /** Returns the node that a kernel computes: this one, or for a view the one that it is a view of. */
  private computed(item: ItemId): ItemId | undefined {
    const artifact = this.state.links.artifactOf(item);
    const seen = new Set<string>();
    for (let key: string | undefined = keyOf(item); key !== undefined && !seen.has(key); ) {
      seen.add(key);
      const node = `${artifact?.id}#${key}`;
      if (this.kernels.has(node)) return node;
      key = artifact?.graph?.edges.find(([, to]) => to === key)?.[0];
    }
    return undefined;
  }

  // ---- the drawing

  highlight(): void {
    super.highlight();
    this.drawing?.highlight();
    this.memory?.highlight();
  }

  reveal(items: Set<ItemId>): void {
    super.reveal(items);
    this.drawing.reveal(items);
  }

  destroy(): void {
    this.drawing.destroy();
  }
}

/** The drawing: of one graph with an update, or the joint graph, or the forward beside the backward. */
function drawnGraph(step: TrainingStep, compile: Compile, state: State) {
  if (step.isWhole) return stepGraph(step, state);
  const joint = compile.artifacts.find(({ name, graph }) => name === "joint" && graph);
  if (joint) return drawableGraph(joint, joint.graph as Graph, compile, state);
  if (forwardBackwardOf(compile)) return forwardAndBackward(state);
  const [only] = step.graphs;
  return drawableGraph(only, only.graph as Graph, compile, state);
}

function lead({ isWhole, graphs, phases }: TrainingStep, { kernels }: Compile): string {
  const drawn = new Set(graphs.map(({ id }) => id));
  const own = [...phases].filter(([item]) => drawn.has(item.slice(0, item.indexOf("#"))));
  const counts = PHASES.map((phase) => ({ phase, count: own.filter(([, each]) => each === phase).length }));
  const texts = counts.filter(({ count }) => count).map(({ phase, count }) => `${phase} ${plural(count, "operation")}`);
  const launches = kernels.length ? `, ${plural(kernels.length, "launch", "launches")} of kernels` : "";
  const rest = isWhole ? "" : " The update of the parameters is in neither of them.";
  return `${isWhole ? "One graph" : "Two graphs"}: ${texts.join(", ")}${launches}.${rest}`;
}

/** What a form saves beside how the cell ran, in seconds of a call, and the text that says so. */
function saving(row: Timing, compiled: Timing): { row: Timing; saved: number; text: string } {
  const isClear = row.high < compiled.low || row.low > compiled.high;
  const saved = isClear ? compiled.median - row.median : 0;
  const percent = Math.round((100 * Math.abs(saved)) / compiled.median);
  const time = isClear
    ? `${percent} % ${saved > 0 ? "less" : "more"} time (${seconds(row.median)} instead of ${seconds(compiled.median)})`
    : `no difference in time measured (${seconds(row.median)} beside ${seconds(compiled.median)})`;
  const memory = `${bytes(row.peak_bytes)} instead of ${bytes(compiled.peak_bytes)} at the peak`;
  return { row, saved, text: `: ${time}, ${row.peak_bytes === compiled.peak_bytes ? "the same memory" : memory}` };
}

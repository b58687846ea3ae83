/** Costs: the kernels and modules of the current compile, and the user's lines over all compiles, the most expensive first. */

import { h } from "../../dom/elements";
import { bytes, duration, plural } from "../../dom/format";
import {
  allTimed,
  type Cost,
  type KernelCost,
  kernelCosts,
  kernelPattern,
  type LineCost,
  lineCosts,
  moduleCosts,
} from "../../model/analysis/costs";
import { keyOf } from "../../model/analysis/links";
import { groupRepeats, modulesOf } from "../../model/analysis/repeats";
import { phaseText } from "../../model/analysis/training_step";
import type { Compile, Kernel } from "../../model/record/record";
import type { State } from "../../model/state";
import { cells, code, LinkedContent, shareCell, shortCell, stackedCell } from "../linked_content";
import type { TableRow } from "../table_rows";
import { tryButton } from "../try_button";

export class CostsTable extends LinkedContent {
  private readonly byTime: boolean;

  constructor(state: State, compile: Compile) {
    super(state);
    const kernels = kernelCosts([compile], state.links);
    const lines = lineCosts(state.record, state.links);
    this.byTime = allTimed(kernels);
    this.element.append(
      h("p", { class: "lead" }, this.lead(kernels, compile), ...this.howToTime()),
      this.table(
        ["Kernel", "Share", ...this.heads()],
        groupRepeats(kernels, (cost) => kernelPattern(cost, state.links))
          .sort((a, b) => shareOf(b) - shareOf(a))
          .map((equal) => this.kernels(equal)),
      ),
      ...this.modules(moduleCosts(kernels, state.links, this.byTime), this.heads(), (cost) => this.figures(cost)),
      h("h3", {}, "Your lines, over all compiles"),
      this.table(
        ["Line", "Share", ...this.heads()],
        lines.map((cost) => this.line(cost)),
      ),
    );
    this.highlight();
  }

  private lead(kernels: KernelCost[], compile: Compile): string {
    const traffic = bytes(kernels.reduce((sum, cost) => sum + cost.bytes, 0));
    const own = kernels.filter(({ kernel }) => kernel.language !== "extern").length;
    const others = kernels.length - own;
    const which = [own && plural(own, "kernel"), others && plural(others, "call of PyTorch's", "calls of PyTorch's")];
    const calls = `${which.filter(Boolean).join(" and ")} in ${compile.id} read and write ${traffic}`;
    const time = duration(kernels.reduce((sum, cost) => sum + cost.ns, 0));
    return this.byTime
      ? `${calls} in ${time}.`
      : `${calls}. They were not timed: shares are of the memory traffic, which limits most kernels.`;
  }

  /** The button that times the kernels, or how to. */
  private howToTime(): (HTMLElement | string)[] {
    if (this.byTime) return [];
    const button = tryButton(this.state, "measure", "Time them");
    return button ? [" ", button] : [" To time them: %%compile --measure."];
  }

  private heads(): string[] {
    return this.byTime ? ["Time", "Traffic"] : ["Traffic"];
  }

  private figures(cost: Cost): HTMLTableCellElement[] {
    const traffic = shortCell(bytes(Math.round(cost.bytes)));
    return [shareCell(cost.share), ...(this.byTime ? [shortCell(duration(cost.ns)), traffic] : [traffic])];
  }

  /** One kernel, or those of repeated modules as one row with their sum. */
  private kernels(costs: KernelCost[]): TableRow {
    const rows = costs.map((cost) => this.kernel(cost));
    if (rows.length === 1) return rows[0];
    const [{ kernel, nodes }] = costs;
    const text = ` × ${rows.length} ${phaseText(costs[0], this.state.links)}, ${LANGUAGE_NAMES[kernel.language]}`;
    const name = h("span", {}, code(shortName(kernel)), h("small", {}, text));
    const total = (of: "bytes" | "ns") => costs.reduce((sum, cost) => sum + cost[of], 0);
    const sum = { bytes: total("bytes"), ns: total("ns"), share: shareOf(costs) };
    const head = h(
      "tr",
      {},
      ...cells(stackedCell(name, code(modulesOf(nodes, this.state.links))), ...this.figures(sum)),
    );
    const items = costs.flatMap((cost) => [cost.kernel.item, ...cost.nodes]);
    return { head: this.linkTo(head, items.slice(0, MAX_LINKED)), rows };
  }

  private kernel(cost: KernelCost): HTMLTableRowElement {
    const { kernel, nodes } = cost;
    const text = ` ${phaseText(cost, this.state.links)}, ${LANGUAGE_NAMES[kernel.language]}`;
    const name = h("span", {}, code(shortName(kernel)), h("small", {}, text));
    const row = h("tr", {}, ...cells(stackedCell(name, code(nodes.map(keyOf).join(", "))), ...this.figures(cost)));
    return this.linkTo(row, [kernel.item, ...nodes]);
  }

  private line(cost: LineCost): HTMLTableRowElement {
    const { line, kernels } = cost;
    const names = [...new Set(kernels.map(({ kernel }) => kernel.name))].join(", ");
    const text = h("span", {}, h("small", {}, `${keyOf(line)} `), code(this.state.links.text(line)));
    return this.linkTo(h("tr", {}, ...cells(stackedCell(text, code(names)), ...this.figures(cost))), [line]);
  }
}

function shareOf(costs: Cost[]): number {
  return costs.reduce((sum, { share }) => sum + share, 0);
}

/** The name of a kernel, without what PyTorch's own all have. */
export function shortName({ name }: Kernel): string {
  return name.replace(/^aten\./, "").replace(/\.default$/, "");
}

const MAX_LINKED = 500;
const LANGUAGE_NAMES = { cpp: "C++", triton: "Triton", extern: "PyTorch kernel" };

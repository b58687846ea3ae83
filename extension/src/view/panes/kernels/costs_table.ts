/** Costs: the kernels and modules of the current compile, and the user's lines over all compiles, the most expensive first. */

import { h } from "../../dom/elements";
import { bytes, duration, plural } from "../../dom/format";
import {
  allTimed,
  type Cost,
  type KernelCost,
  kernelCosts,
  type LineCost,
  lineCosts,
  type ModuleCost,
  moduleCosts,
} from "../../model/analysis/costs";
import { keyOf } from "../../model/analysis/links";
import type { Compile } from "../../model/record/record";
import type { State } from "../../model/state";
import { cells, code, LinkedContent, shortCell, stackedCell } from "../linked_content";
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
        kernels.map((cost) => this.kernel(cost)),
      ),
      ...this.modules(moduleCosts(kernels, state.links)),
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
    const bar = h("span", { class: "bar ok", style: `width:${Math.round(100 * cost.share)}%` });
    const share = h(
      "span",
      { class: "share" },
      `${Math.round(100 * cost.share)} %`,
      h("span", { class: "track" }, bar),
    );
    const traffic = shortCell(bytes(Math.round(cost.bytes)));
    return [shortCell(share), ...(this.byTime ? [shortCell(duration(cost.ns)), traffic] : [traffic])];
  }

  private kernel(cost: KernelCost): HTMLTableRowElement {
    const { kernel, nodes } = cost;
    const name = h(
      "span",
      {},
      code(kernel.name.replace(/^aten\./, "").replace(/\.default$/, "")),
      h("small", {}, ` ${kernel.graph}, ${LANGUAGE_NAMES[kernel.language]}`),
    );
    const row = h("tr", {}, ...cells(stackedCell(name, code(nodes.map(keyOf).join(", "))), ...this.figures(cost)));
    return this.linkTo(row, [kernel.item, ...nodes]);
  }

  private modules(modules: ModuleCost[]): HTMLElement[] {
    const shown = modules.filter(({ share }) => share >= MIN_MODULE_SHARE);
    if (shown.length < 2) return [];
    const rows = shown.map((cost) => {
      const count = cost.count > 1 && h("small", {}, ` × ${cost.count}`);
      const name = h("div", { style: `padding-left:${1.2 * cost.depth}em` }, code(cost.name), count);
      const row = h("tr", {}, ...cells(name, ...this.figures(cost)));
      return this.linkTo(row, cost.nodes.slice(0, MAX_LINKED));
    });
    return [h("h3", {}, "Modules"), this.table(["Module", "Share", ...this.heads()], rows)];
  }

  private line(cost: LineCost): HTMLTableRowElement {
    const { line, kernels } = cost;
    const names = [...new Set(kernels.map(({ kernel }) => kernel.name))].join(", ");
    const text = h("span", {}, h("small", {}, `${keyOf(line)} `), code(this.state.links.text(line)));
    return this.linkTo(h("tr", {}, ...cells(stackedCell(text, code(names)), ...this.figures(cost))), [line]);
  }
}

/** Modules of a smaller share of the cost are not listed. */
const MIN_MODULE_SHARE = 0.005;
const MAX_LINKED = 500;
const LANGUAGE_NAMES = { cpp: "C++", triton: "Triton", extern: "PyTorch kernel" };

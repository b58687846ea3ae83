/** What costs most: the user's lines over all compiles, and the kernels of the one that is looked at. */

import { bytes, duration, h, plural } from "../dom/dom";
import { type Cost, type KernelCost, kernelCosts, type LineCost, lineCosts, timed } from "../model/costs";
import { keyOf } from "../model/links";
import type { Compile } from "../model/record";
import type { State } from "../model/state";
import { cells, code, Rows, short, stacked } from "./rows";

export class CostsTable extends Rows {
  private readonly byTime: boolean;

  constructor(state: State, compile: Compile) {
    super(state);
    const kernels = kernelCosts([compile], state.links);
    const lines = lineCosts(state.record, state.links);
    this.byTime = timed(kernels);
    this.element.append(
      h("p", { class: "lead" }, this.lead(kernels, compile)),
      this.table(
        ["Kernel", "Share", ...this.heads()],
        kernels.map((cost) => this.kernel(cost)),
      ),
      h("h3", {}, "Your lines, over all compiles"),
      this.table(
        ["Line", "Share", ...this.heads()],
        lines.map((cost) => this.line(cost)),
      ),
    );
    this.light();
  }

  private lead(kernels: KernelCost[], compile: Compile): string {
    const traffic = bytes(kernels.reduce((sum, cost) => sum + cost.bytes, 0));
    const calls = `${plural(kernels.length, "kernel")} of ${compile.id} read and write ${traffic}`;
    const time = duration(kernels.reduce((sum, cost) => sum + cost.ns, 0));
    return this.byTime
      ? `${calls} in ${time}.`
      : `${calls}. They were not timed (%%compile --measure does that): shares are of the memory traffic, which is what most kernels wait for.`;
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
    const traffic = short(bytes(Math.round(cost.bytes)));
    return [short(share), ...(this.byTime ? [short(duration(cost.ns)), traffic] : [traffic])];
  }

  private kernel(cost: KernelCost): HTMLTableRowElement {
    const { kernel, nodes } = cost;
    const name = h("span", {}, code(kernel.name), h("small", {}, ` ${kernel.graph}, ${WORDS[kernel.language]}`));
    const row = h("tr", {}, ...cells(stacked(name, code(nodes.map(keyOf).join(", "))), ...this.figures(cost)));
    return this.standsFor(row, [kernel.item, ...nodes]);
  }

  private line(cost: LineCost): HTMLTableRowElement {
    const { line, kernels } = cost;
    const names = [...new Set(kernels.map(({ kernel }) => kernel.name))].join(", ");
    const text = h("span", {}, h("small", {}, `${keyOf(line)} `), code(this.state.links.text(line)));
    return this.standsFor(h("tr", {}, ...cells(stacked(text, code(names)), ...this.figures(cost))), [line]);
  }
}

const WORDS = { cpp: "C++", triton: "Triton", extern: "PyTorch's own" };

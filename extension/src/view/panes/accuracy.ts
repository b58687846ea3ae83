/** How far what the kernels leave in memory lies from eager PyTorch in float64, the worst first. */

import { errorText, h, plural, tensorType } from "../dom/dom";
import { keyOf } from "../model/links";
import type { Accuracy, Compile, Node } from "../model/record";
import type { State } from "../model/state";
import { cells, code, Rows, short, stacked } from "./rows";

/** What one rounding may change, by type. */
const ROUNDING: { [dtype: string]: number } = { float64: 2.3e-16, float32: 1.2e-7, float16: 9.8e-4, bfloat16: 7.9e-3 };
/** Another order of summation is fair: so many times eager's error, and so many roundings. */
const FAIR = 2;
/** From such an error of eager's on, no digit is right there either: what is left where all cancels out. */
const LOST = 0.01;

export class AccuracyTable extends Rows {
  private readonly nodes = new Map<string, Node>();

  constructor(state: State, compile: Compile) {
    super(state);
    for (const { id, graph } of compile.artifacts) {
      for (const node of graph?.nodes ?? []) this.nodes.set(`${id}#${node.key}`, node);
    }
    const worst = [...compile.accuracy].sort((a, b) => size(b.error) - size(a.error));
    const over = worst.filter((each) => this.isOver(each));
    this.element.append(
      h("p", { class: "lead" }, lead(worst.length, over.length)),
      this.table(
        ["Value", "Error", "Eager's", ""],
        worst.map((each) => this.row(each)),
      ),
    );
    this.light();
  }

  private row(each: Accuracy): HTMLTableRowElement {
    const node = this.nodes.get(each.node);
    const graph = keyOf(each.node.slice(0, each.node.lastIndexOf("#")).replace(":", "#"));
    const line = this.state.links.userLine(each.node);
    const row = h(
      "tr",
      this.isOver(each) ? { class: "failed" } : {},
      ...cells(
        stacked(
          h(
            "span",
            {},
            code(keyOf(each.node)),
            h("small", {}, ` ${graph}, ${node ? tensorType(node.dtype, node.shape) : ""}`),
          ),
          code(line === null ? "" : this.state.links.text(line).trim()),
        ),
        short(errorText(each.error)),
        short(errorText(each.eager)),
        short(this.verdict(each)),
      ),
    );
    return this.standsFor(row, [each.node, line]);
  }

  private verdict(each: Accuracy): string {
    if (each.error === null) return each.eager === null ? "as eager PyTorch" : "NaN or infinite";
    if (each.error === 0) return "exact";
    if ((each.eager ?? 0) > LOST) return "lost in eager PyTorch too";
    if (!each.eager) return this.isOver(each) ? "eager PyTorch is exact" : "a rounding";
    const times = each.error / each.eager;
    return times < 1.05 && times > 0.95 ? "as eager PyTorch" : `${times.toPrecision(2)} times eager's`;
  }

  private isOver({ node, error, eager }: Accuracy): boolean {
    if (error === null) return eager !== null;
    if (eager === null || eager > LOST) return false;
    return error > FAIR * eager + FAIR * (ROUNDING[this.nodes.get(node)?.dtype ?? ""] ?? 0);
  }
}

function lead(count: number, over: number): string {
  const verdict = over
    ? `${plural(over, "is", "are")} less exact than twice eager PyTorch's.`
    : "None is less exact than twice eager PyTorch's.";
  return `${plural(count, "value")} that kernels left in memory, beside eager PyTorch in float64, from the same random inputs: the greatest error, as a share of the greatest value. ${verdict}`;
}

function size(error: number | null): number {
  return error ?? Number.POSITIVE_INFINITY;
}

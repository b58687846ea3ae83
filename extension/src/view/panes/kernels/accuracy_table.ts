/** The error of each value that kernels store, compared with eager PyTorch in float64, the largest first. */

import { h } from "../../dom/elements";
import { errorText, plural, tensorType } from "../../dom/format";
import { keyOf } from "../../model/analysis/links";
import { nodePhase } from "../../model/analysis/training_step";
import type { Accuracy, Compile, Node } from "../../model/record/record";
import type { State } from "../../model/state";
import { cells, code, LinkedContent, shortCell, stackedCell } from "../linked_content";

/** Relative error of one rounding, by type. */
const ROUNDING: { [dtype: string]: number } = { float64: 2.3e-16, float32: 1.2e-7, float16: 9.8e-4, bfloat16: 7.9e-3 };
/** Allowed error: this many times eager's plus this many roundings, since the order of summation may differ. */
const ERROR_FACTOR = 2;
/**
 * Above this error of eager's, as after cancellation, eager's own result has too few correct digits to compare with.
 */
const MAX_EAGER_ERROR = 0.01;

export class AccuracyTable extends LinkedContent {
  private readonly nodes = new Map<string, Node>();

  constructor(
    state: State,
    private readonly compile: Compile,
  ) {
    super(state);
    for (const { id, graph } of compile.artifacts) {
      for (const node of graph?.nodes ?? []) this.nodes.set(`${id}#${node.key}`, node);
    }
    const worst = [...compile.accuracy].sort((a, b) => magnitude(b.error) - magnitude(a.error));
    const over = worst.filter((each) => this.isTooLarge(each));
    this.element.append(
      h("p", { class: "lead" }, lead(worst.length, over.length)),
      this.table(
        ["Value", "Error", "Eager's error", ""],
        worst.map((each) => this.row(each)),
      ),
    );
    this.highlight();
  }

  private row(each: Accuracy): HTMLTableRowElement {
    const node = this.nodes.get(each.node);
    const graph = keyOf(each.node.slice(0, each.node.lastIndexOf("#")).replace(":", "#"));
    const phase = nodePhase(each.node, this.compile, this.state.links) ?? graph;
    const line = this.state.links.userLine(each.node);
    const row = h(
      "tr",
      this.isTooLarge(each) ? { class: "failed" } : {},
      ...cells(
        stackedCell(
          h(
            "span",
            {},
            code(keyOf(each.node)),
            h("small", {}, ` ${phase}, ${node ? tensorType(node.dtype, node.shape) : ""}`),
          ),
          code(line === null ? "" : this.state.links.text(line).trim()),
        ),
        shortCell(errorText(each.error)),
        shortCell(errorText(each.eager)),
        shortCell(this.verdict(each)),
      ),
    );
    return this.linkTo(row, [each.node, line]);
  }

  private verdict(each: Accuracy): string {
    if (each.error === null) return each.eager === null ? "same as eager" : "NaN or infinite";
    if (each.error === 0) return "exact";
    if ((each.eager ?? 0) > MAX_EAGER_ERROR) return "inaccurate in eager too";
    if (!each.eager) return this.isTooLarge(each) ? "eager is exact" : "one rounding";
    const times = each.error / each.eager;
    return times < 1.05 && times > 0.95 ? "same as eager" : `${times.toPrecision(2)} times eager's`;
  }

  private isTooLarge({ node, error, eager }: Accuracy): boolean {
    if (error === null) return eager !== null;
    if (eager === null || eager > MAX_EAGER_ERROR) return false;
    return error > ERROR_FACTOR * eager + ERROR_FACTOR * (ROUNDING[this.nodes.get(node)?.dtype ?? ""] ?? 0);
  }
}

function lead(count: number, over: number): string {
  const verdict = over
    ? `${plural(over, "has", "have")} more than twice the error of eager PyTorch.`
    : "None has more than twice the error of eager PyTorch.";
  return `${plural(count, "value")} stored by kernels, compared with eager PyTorch in float64 on the same random inputs: the maximum error relative to the maximum value. ${verdict}`;
}

function magnitude(error: number | null): number {
  return error ?? Number.POSITIVE_INFINITY;
}

/** The partition: which values are saved for the backward and why, and what other memory budgets would save. */

import { h } from "../../dom/elements";
import { bytes, duration, plural } from "../../dom/format";
import { keyOf } from "../../model/analysis/links";
import { groupRepeats, modulesOf, patternOf } from "../../model/analysis/repeats";
import type { Partition, ValueDecision } from "../../model/record/record";
import type { State } from "../../model/state";
import { cells, code, LinkedContent, shortCell, stackedCell } from "../linked_content";
import type { TableRow } from "../table_rows";
import { tryButton } from "../try_button";
import { BudgetSlider } from "./budget_slider";

const DECISIONS: ValueDecision["decision"][] = ["saved", "recomputed", "neither"];

export class PartitionTable extends LinkedContent {
  constructor(state: State, partition: Partition) {
    super(state);
    this.element.append(h("p", { class: "lead" }, summary(partition)), this.bars(partition));
    const isInParts = state.artifacts("joint").length > 1; // each has budgets, which do not add up
    if (partition.curve.length > 1) this.element.append(new BudgetSlider(state, partition).element);
    else if (!isInParts) this.element.append(noCurveNote(state));
    const isInput = ({ node }: ValueDecision) => Number(state.links.node(node)?.op === "placeholder");
    // inputs are in memory anyway
    const order = (a: ValueDecision, b: ValueDecision) => isInput(a) - isInput(b) || b.bytes - a.bytes;
    const values = DECISIONS.flatMap((d) => partition.values.filter((v) => v.decision === d).sort(order));
    const equal = groupRepeats(values, ({ decision, node }) => {
      const pattern = patternOf([node], state.links);
      return pattern && `${decision} ${pattern}`;
    });
    const rows = equal.map((group) => this.rowOf(group));
    this.element.append(this.sentences(["Value", "Decision", "Size", "Cost to drop", "Why"], rows));
    this.highlight();
  }

  /** One value, or equal ones of repeated modules as one row with their sum. */
  private rowOf(values: ValueDecision[]): TableRow {
    const rows = values.map((value) => this.row(value, this.nameCell(value), value.reason));
    if (rows.length === 1) return this.linkTo(rows[0], [values[0].node]);
    const [first] = values;
    const module = modulesOf([first.node], this.state.links);
    const name = h("span", {}, code(keyOf(first.node)), h("small", {}, ` × ${rows.length}`));
    const total = (of: "bytes" | "drop_ns") => values.reduce((sum, value) => sum + (value[of] ?? 0), 0);
    const drop_ns = first.drop_ns === null ? null : total("drop_ns");
    const sum = { ...first, bytes: total("bytes"), drop_ns };
    const head = this.row(sum, stackedCell(name, module), `The first: ${first.reason}`);
    return {
      head: this.linkTo(
        head,
        values.map(({ node }) => node),
      ),
      rows: rows.map((row, at) => this.linkTo(row, [values[at].node])),
    };
  }

  private row(value: ValueDecision, name: HTMLTableCellElement, why: string): HTMLTableRowElement {
    const decision = h("span", { class: `chip ${value.decision}`, title: value.decision }, value.decision);
    return h("tr", {}, ...cells(name, decision, shortCell(bytes(value.bytes)), dropCostCell(value), why));
  }

  /** The name of a value; of an input, also the one that it has in the captured graph. */
  private nameCell({ node }: ValueDecision): HTMLTableCellElement {
    const name = this.state.links.inputName(node);
    return name ? stackedCell(code(keyOf(node)), name) : shortCell(code(keyOf(node)));
  }

  /** Bars of what is saved, and of what saving everything that the backward reads would need. */
  private bars(partition: Partition): HTMLElement {
    const most = Math.max(partition.saved_bytes, partition.default_saved_bytes, 1);
    const bar = (name: string, size: number, count: number, kind: string) =>
      h(
        "div",
        { class: "measure" },
        h("span", {}, name),
        h("span", { class: "track" }, h("span", { class: `bar ${kind}`, style: `width:${(100 * size) / most}%` })),
        h("span", {}, `${plural(count, "tensor")}, ${bytes(size)}`),
      );
    return h(
      "div",
      { class: "measures" },
      bar("min-cut", partition.saved_bytes, partition.saved_count, "saved"),
      bar("default", partition.default_saved_bytes, partition.default_saved_count, "neither"),
    );
  }
}

function noCurveNote(state: State): HTMLElement {
  const text = "What other memory budgets would save is recorded on demand: ";
  const button = tryButton(state, "memory-curve", "Record it");
  return h("p", { class: "note" }, text, button ?? h("code", {}, "%%compile --memory-curve"));
}

/** The estimated time that the backward would need to recompute a saved value. */
function dropCostCell(value: ValueDecision): HTMLElement {
  if (value.decision !== "saved") return shortCell("");
  return shortCell(value.drop_ns === null ? "not possible" : `+${duration(value.drop_ns)}`);
}

function summary(partition: Partition): string {
  const saved = `${plural(partition.saved_count, "tensor is", "tensors are")} saved for the backward, ${bytes(partition.saved_bytes)}`;
  const usual = `saving all that the backward reads would keep ${plural(partition.default_saved_count, "tensor")}, ${bytes(partition.default_saved_bytes)}`;
  return `${saved}; ${usual}.`;
}

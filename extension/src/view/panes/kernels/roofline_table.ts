/** The roofline of each kernel: the minimum time that a device needs for its memory traffic and its operations. */

import { h } from "../../dom/elements";
import { bytes, duration, percent } from "../../dom/format";
import { type KernelCost, kernelCosts, kernelPattern } from "../../model/analysis/costs";
import { groupRepeats, modulesOf } from "../../model/analysis/repeats";
import { phaseText } from "../../model/analysis/training_step";
import { type Compile, type Device, PEAKS } from "../../model/record/record";
import type { State } from "../../model/state";
import { cells, code, LinkedContent, shortCell, stackedCell } from "../linked_content";
import type { TableRow } from "../table_rows";
import { shortName } from "./costs_table";

/** The peaks of a device, per nanosecond. */
interface Roof {
  target: string;
  title: string;
  bytes: number;
  operations: number;
  isMeasured: boolean;
}

/** The figures of one kernel, or of several together. */
interface Sums {
  bytes: number;
  /** Null if they are not known. */
  operations: number | null;
  minNs: number;
  /** Measured time in nanoseconds, if it was measured on this device. */
  ns: number | null;
}

interface KernelRoofline extends Sums {
  cost: KernelCost;
  bound: "memory" | "arithmetic";
}

export class RooflineTable extends LinkedContent {
  private readonly place = h("div");
  private readonly lead = h("p", { class: "lead" });
  private readonly kernels: KernelCost[];

  constructor(state: State, compile: Compile) {
    super(state);
    this.kernels = kernelCosts([compile], state.links).filter(
      ({ kernel }) => kernel.bytes_read !== null && kernel.bytes_written !== null,
    );
    const roofs = [...state.record.devices.map(measuredRoof), ...Object.keys(PEAKS).map(targetRoof)];
    const choice = h("select", { "aria-label": "Device" }, ...roofs.map(option));
    choice.value = String(roofs.indexOf(state.record.devices.length ? roofs[0] : defaultRoof(state, compile, roofs)));
    choice.onchange = () => this.fill(roofs[Number(choice.value)]);
    this.element.append(h("p", { class: "choices" }, h("label", {}, "Device: ", choice)), this.lead, this.place);
    this.fill(roofs[Number(choice.value)]);
  }

  private fill(roof: Roof): void {
    const rows = this.kernels.map((cost) => kernelRoofline(cost, roof)).sort((a, b) => rankingNs([b]) - rankingNs([a]));
    const isTimed = rows.some(({ ns }) => ns !== null);
    this.place.replaceChildren(
      this.table(
        HEADS.filter((head) => isTimed || !OF_TIMED.includes(head)),
        groupRepeats(rows, ({ cost }) => kernelPattern(cost, this.state.links))
          .sort((a, b) => rankingNs(b) - rankingNs(a))
          .map((equal) => this.rowOf(equal, isTimed)),
      ),
    );
    const untimed = isTimed ? "" : " The kernels were not timed on this device.";
    this.lead.textContent = `${figures(roof)}${untimed} The minimum time of a kernel is its traffic divided by the bandwidth, or its operations divided by their rate, whichever is longer.${rows.some(exceedsRoof) ? OVER_NOTE : ""}`;
    this.highlight();
  }

  /** One kernel, or those of repeated modules as one row with their sum. */
  private rowOf(equal: KernelRoofline[], isTimed: boolean): TableRow {
    const rows = equal.map((row) => {
      const { kernel } = row.cost;
      const name = stackedCell(code(shortName(kernel)), `${phaseText(row.cost, this.state.links)}, ${row.bound}`);
      return this.linkTo(this.row(row, isTimed, name), [kernel.item]);
    });
    if (rows.length === 1) return rows[0];
    const [{ cost, bound }] = equal;
    const name = h("span", {}, code(shortName(cost.kernel)), h("small", {}, ` × ${equal.length}`));
    const modules = modulesOf(cost.nodes, this.state.links);
    const head = this.row(
      sumOf(equal),
      isTimed,
      stackedCell(name, `${modules}, ${phaseText(cost, this.state.links)}, ${bound}`),
    );
    const items = equal.map((each) => each.cost.kernel.item);
    return { head: this.linkTo(head, items), rows };
  }

  /** `isTimed`: whether any kernel was timed; else there are no columns for that. */
  private row(row: Sums, isTimed: boolean, name: HTMLTableCellElement): HTMLTableRowElement {
    const { minNs, ns } = row;
    const share = ns ? minNs / ns : null;
    const filled = h("span", { class: "bar ok", style: `width:${Math.min(100, 100 * (share ?? 0))}%` });
    const ofRoof = h(
      "span",
      { class: "share" },
      share === null ? "not timed" : percent(share),
      share !== null && h("span", { class: "track" }, filled),
    );
    return h(
      "tr",
      {},
      ...cells(
        name,
        ...(isTimed ? [shortCell(ofRoof), shortCell(ns === null ? "" : duration(ns))] : []),
        shortCell(duration(minNs)),
        shortCell(bytes(row.bytes)),
        operationsCell(row),
      ),
    );
  }
}

const HEADS = ["Kernel", "Of roofline", "Time", "Minimum", "Traffic", "Operations"];

/** The columns that kernels have which were timed. */
const OF_TIMED = ["Of roofline", "Time"];

const OVER_NOTE = " Over 100 %: the data is in caches, or the arithmetic uses units that the peak does not include.";

function figures(roof: Roof): string {
  const memory = `${rounded(roof.bytes)} GB/s${roof.isMeasured ? ", as measured with a copy," : ""}`;
  return `${memory} and ${rounded(roof.operations)} billion additions per second.`;
}

/** A number in three digits: 4,800 for 4800.3. */
function rounded(value: number): string {
  return Number(value.toPrecision(3)).toLocaleString("en");
}

function exceedsRoof({ minNs, ns }: Sums): boolean {
  return ns !== null && minNs > ns;
}

function option({ title }: Roof, at: number): HTMLOptionElement {
  return h("option", { value: at }, title);
}

function measuredRoof(device: Device): Roof {
  return {
    target: device.target,
    title: `this device: ${device.name}`,
    bytes: device.copy,
    operations: device.operations,
    isMeasured: true,
  };
}

function targetRoof(target: string): Roof {
  const { device, bytes, operations } = PEAKS[target];
  return { target, title: `${target}: ${device}`, bytes, operations, isMeasured: false };
}

/** Returns the peaks of the target given by the options, or else of one that fits the kernels' language. */
function defaultRoof(state: State, compile: Compile, roofs: Roof[]): Roof {
  const usual = compile.kernels.some((kernel) => kernel.language === "triton") ? "sm_90" : "cpu";
  const target = state.record.options.target ?? usual;
  return roofs.find((roof) => roof.target === target) ?? roofs[0];
}

function kernelRoofline(cost: KernelCost, roof: Roof): KernelRoofline {
  const { kernel, bytes } = cost;
  const [memory, arithmetic] = [bytes / roof.bytes, (kernel.operations ?? 0) / roof.operations];
  return {
    cost,
    bytes,
    operations: kernel.operations,
    minNs: Math.max(memory, arithmetic),
    bound: memory >= arithmetic ? "memory" : "arithmetic",
    ns: kernel.timed_on === roof.target ? kernel.time_ns : null,
  };
}

function operationsCell({ operations, bytes }: Sums): HTMLTableCellElement {
  if (operations === null) return shortCell("");
  const perByte = bytes ? `${(operations / bytes).toPrecision(2)}/byte` : "";
  return shortCell(h("span", {}, h("div", {}, count(operations)), h("small", {}, perByte)));
}

function sumOf(rows: Sums[]): Sums {
  const sum = (of: (row: Sums) => number | null) =>
    rows.reduce<number | null>((total, row) => (total === null || of(row) === null ? null : total + (of(row) ?? 0)), 0);
  return {
    bytes: sum(({ bytes }) => bytes) ?? 0,
    operations: sum(({ operations }) => operations),
    minNs: sum(({ minNs }) => minNs) ?? 0,
    ns: sum(({ ns }) => ns),
  };
}

function rankingNs(rows: Sums[]): number {
  const { ns, minNs } = sumOf(rows);
  return ns ?? minNs;
}

/** Formats a count: 2,000,000 as "2.00 M". */
function count(value: number): string {
  const units = ["", " k", " M", " G", " T"];
  let at = 0;
  let rest = value;
  while (rest >= 1000 && at < units.length - 1) {
    rest /= 1000;
    at++;
  }
  return `${at ? rest.toPrecision(3) : rest}${units[at]}`;
}

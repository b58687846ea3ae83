/** Each kernel under the roof of a device: the least time that what it moves and computes takes there. */

import { bytes, duration, h } from "../dom/dom";
import { type Compile, type Device, type Kernel, PEAKS } from "../model/record";
import type { State } from "../model/state";
import { cells, code, Rows, short, stacked } from "./rows";

/** What a device does in a nanosecond. */
interface Roof {
  target: string;
  title: string;
  bytes: number;
  operations: number;
  isMeasured: boolean;
}

interface Under {
  kernel: Kernel;
  bytes: number;
  operations: number;
  leastNs: number;
  bound: "memory" | "arithmetic";
  /** Where it was measured there. */
  ns: number | null;
}

export class RooflineTable extends Rows {
  private readonly body = h("tbody");
  private readonly lead = h("p", { class: "lead" });
  private readonly kernels: Kernel[];

  constructor(state: State, compile: Compile) {
    super(state);
    this.kernels = compile.kernels.filter((kernel) => kernel.bytes_read !== null && kernel.bytes_written !== null);
    const roofs = [...state.record.devices.map(measured), ...Object.keys(PEAKS).map(named)];
    const choice = h("select", { "aria-label": "The device whose roof it is" }, ...roofs.map(option));
    choice.value = String(roofs.indexOf(state.record.devices.length ? roofs[0] : roofOf(state, compile, roofs)));
    choice.onchange = () => this.fill(roofs[Number(choice.value)]);
    const head = h("tr", {}, ...HEADS.map((text) => h("th", { scope: "col" }, text)));
    this.element.append(
      h("p", { class: "choices" }, h("label", {}, "Roof: ", choice)),
      this.lead,
      h("table", {}, h("thead", {}, head), this.body),
    );
    this.fill(roofs[Number(choice.value)]);
  }

  private fill(roof: Roof): void {
    const rows = this.kernels.map((kernel) => under(kernel, roof)).sort((a, b) => cost(b) - cost(a));
    this.body.replaceChildren(...rows.map((row) => this.row(row)));
    this.lead.textContent = `${figures(roof)} The least time of a kernel is what it moves at the one speed, or what it computes at the other, whichever is longer.${rows.some(isOver) ? OVER : ""}`;
    this.light();
  }

  private row(row: Under): HTMLTableRowElement {
    const { kernel, leastNs, bound, ns } = row;
    const share = ns ? leastNs / ns : null;
    const filled = h("span", { class: "bar ok", style: `width:${Math.min(100, 100 * (share ?? 0))}%` });
    const percent = share === null ? "not timed" : `${Math.round(100 * share)} %`;
    const ofRoof = h("span", { class: "share" }, percent, share !== null && h("span", { class: "track" }, filled));
    const made = h(
      "tr",
      {},
      ...cells(
        stacked(code(kernel.name), `${bound}, ${kernel.graph}`),
        short(ofRoof),
        short(ns === null ? "" : duration(ns)),
        short(duration(leastNs)),
        short(bytes(row.bytes)),
        short(kernel.operations === null ? "" : count(row.operations)),
        short(kernel.operations === null || !row.bytes ? "" : (row.operations / row.bytes).toPrecision(2)),
      ),
    );
    return this.standsFor(made, [kernel.item]);
  }
}

const HEADS = ["Kernel", "Of the roof", "Takes", "Least", "Moves", "Computes", "Per byte"];

const OVER = " Over 100 %: its data lies in caches, or its arithmetic is done by units that the figure leaves out.";

function figures(roof: Roof): string {
  const memory = `${roof.bytes.toPrecision(3)} GB/s${roof.isMeasured ? ", as a plain copy has it," : ""}`;
  return `${memory} and ${roof.operations.toPrecision(3)} billion additions a second.`;
}

function isOver({ leastNs, ns }: Under): boolean {
  return ns !== null && leastNs > ns;
}

function option({ title }: Roof, at: number): HTMLOptionElement {
  return h("option", { value: at }, title);
}

function measured(device: Device): Roof {
  return {
    target: device.target,
    title: `here: ${device.name}`,
    bytes: device.copy,
    operations: device.operations,
    isMeasured: true,
  };
}

function named(target: string): Roof {
  const { device, bytes, operations } = PEAKS[target];
  return { target, title: `${target}: ${device}`, bytes, operations, isMeasured: false };
}

/** The roof of the target that was asked for, else one that fits what the kernels are written in. */
function roofOf(state: State, compile: Compile, roofs: Roof[]): Roof {
  const usual = compile.kernels.some((kernel) => kernel.language === "triton") ? "sm_90" : "cpu";
  const target = state.record.options.target ?? usual;
  return roofs.find((roof) => roof.target === target) ?? roofs[0];
}

function under(kernel: Kernel, roof: Roof): Under {
  const moved = (kernel.bytes_read ?? 0) + (kernel.bytes_written ?? 0);
  const operations = kernel.operations ?? 0;
  const [memory, arithmetic] = [moved / roof.bytes, operations / roof.operations];
  return {
    kernel,
    bytes: moved,
    operations,
    leastNs: Math.max(memory, arithmetic),
    bound: memory >= arithmetic ? "memory" : "arithmetic",
    ns: kernel.timed_on === roof.target ? kernel.time_ns : null,
  };
}

function cost({ ns, leastNs }: Under): number {
  return ns ?? leastNs;
}

/** 2,000,000 as "2.0 M". */
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

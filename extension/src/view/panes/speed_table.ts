/** The times of the cell in each form that it was timed in: plain PyTorch, compiled, and others. */

import { h } from "../dom/elements";
import { bytes, plural, seconds } from "../dom/format";
import type { Timing, Timings } from "../model/record/record";
import type { State } from "../model/state";
import { cells, LinkedContent, shortCell } from "./linked_content";

export class SpeedTable extends LinkedContent {
  constructor(state: State, { rows, failed }: Timings) {
    super(state);
    const [reference] = rows;
    const slowest = Math.max(...rows.map(({ high }) => high));
    this.element.append(
      h("p", { class: "lead" }, `Medians of ${plural(reference?.rounds ?? 0, "round")}, all forms in turn.`),
      this.table(
        ["Form", "Time", "10 % to 90 %", "Speed", "Compile", "Peak memory"],
        rows.map((row) => this.row(row, reference, slowest)),
      ),
      ...Object.entries(failed).map(([name, reason]) =>
        h("p", { class: "block warn" }, h("b", {}, `${name} was not timed: `), reason),
      ),
      ...(state.record.verdict?.warnings ?? []).map((text) => h("p", { class: "block warn" }, text)),
    );
  }

  private row(row: Timing, reference: Timing, slowest: number): HTMLTableRowElement {
    const isReference = row === reference;
    const place = `left:${(100 * row.low) / slowest}%;width:${(100 * (row.high - row.low)) / slowest}%`;
    const middle = `left:${(100 * row.median) / slowest}%`;
    const range = h(
      "span",
      { class: "track range", title: `${seconds(row.low)} to ${seconds(row.high)}` },
      h("span", { class: "bar ok", style: place }),
      h("span", { class: "median", style: middle }),
    );
    const compare = isReference ? "" : row.differs ? `${row.speed.toFixed(2)}x` : "no difference";
    const line = h(
      "tr",
      {},
      ...cells(
        row.name,
        shortCell(seconds(row.median)),
        range,
        h("span", { class: row.differs ? (row.speed > 1 ? "faster" : "slower") : "" }, compare),
        compileCell(row),
        shortCell(bytes(row.peak_bytes)),
      ),
    );
    line.children[2].className = "wide";
    return line;
  }
}

/** The time of compiling, and after how many calls it is saved. */
function compileCell({ compile_seconds, differs, speed, pays_off }: Timing): HTMLTableCellElement {
  const never = differs && speed < 1 ? "never pays off" : "";
  const when = pays_off === null ? never : `pays off after ${plural(pays_off, "call")}`;
  return h("td", {}, compile_seconds ? seconds(compile_seconds) : "", when && h("div", {}, h("small", {}, when)));
}

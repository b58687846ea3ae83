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
        ["Form", "Time of a call", `Beside ${reference?.name ?? ""}`],
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
    const times = h("div", {}, seconds(row.median), h("small", {}, ` ${seconds(row.low)} to ${seconds(row.high)}`));
    const time = h("td", { class: "wide" }, times, range(row, slowest));
    const none = row.unclear ? "not comparable: the times vary too much" : "no difference measured";
    const isDoubtful = Boolean(this.state.record.verdict?.warnings.length);
    const compare = row.differs ? `${ratio(row.speed)}x${isDoubtful ? ", doubtful" : ""}` : none;
    const tone = row.differs && !isDoubtful ? (row.speed > 1 ? "faster" : "slower") : "";
    const facts = [isReference ? "" : compileText(row), `${bytes(row.peak_bytes)} at the peak`].filter((text) => text);
    const beside = h(
      "td",
      {},
      isReference ? null : h("div", { class: tone }, compare),
      ...facts.map((text) => h("div", {}, h("small", {}, text))),
    );
    return h("tr", {}, ...cells(shortCell(row.name), time, beside));
  }
}

function ratio(speed: number): string {
  return speed < 0.1 ? speed.toPrecision(2) : speed.toFixed(speed < 10 ? 2 : speed < 100 ? 1 : 0);
}

/** Draws the range of the times, from the first to the last decile, with the median. */
function range({ low, median, high }: Timing, slowest: number): HTMLElement {
  const place = `left:${(100 * low) / slowest}%;width:${(100 * (high - low)) / slowest}%`;
  const middle = `left:${(100 * median) / slowest}%`;
  const title = "From the first to the last decile, and the median";
  const bar = h("span", { class: "bar ok", style: place });
  return h("span", { class: "track range", title }, bar, h("span", { class: "median", style: middle }));
}

/** The time of compiling, and after how many calls it is saved. */
function compileText({ name, compile_seconds, differs, speed, pays_off }: Timing): string {
  if (!compile_seconds) return "";
  const never = differs && speed < 1 ? ", never pays off" : "";
  const when = pays_off === null ? never : `, pays off after ${plural(pays_off, "call")}`;
  // only of the cell as it was compiled is the time of its steps known, which all other panes show
  const took = seconds(compile_seconds);
  return `${name === "compiled" ? `compiled in ${took}` : `its first call took ${took} longer`}${when}`;
}

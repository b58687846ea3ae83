/** What autotuning tried for each kernel, and what it took. */

import { bytes, duration, h, plural } from "../dom/dom";
import type { Compile, Tried, Tuning } from "../model/record";
import type { State } from "../model/state";
import { cells, code, Rows, short, stacked } from "./rows";

export class TuningTable extends Rows {
  constructor(
    state: State,
    private readonly compile: Compile,
  ) {
    super(state);
    for (const tuning of compile.tunings) this.add(tuning);
    this.light();
  }

  private add(tuning: Tuning): void {
    const { graph, target, reason, tried } = tuning;
    const title = graph === "forward" ? "Forward" : "Backward";
    this.element.append(h("h3", {}, title, h("small", {}, target && ` on ${target}`)));
    if (reason) this.element.append(h("p", { class: "lead" }, `Nothing was tried: ${reason}.`));
    for (const kernel of new Set(tried.map((each) => each.kernel))) {
      const own = tried.filter((each) => each.kernel === kernel);
      const slowest = Math.max(...own.map((each) => each.time_ns ?? 0));
      this.element.append(
        h("p", { class: "lead" }, code(kernel), ` ${saved(own)}`),
        this.table(
          ["Blocks", "Time", "Registers"],
          own.map((each, i) => this.row(each, i === 0, slowest, graph)),
        ),
      );
    }
  }

  private row(each: Tried, usual: boolean, slowest: number, graph: string): HTMLTableRowElement {
    const bar = h("span", { class: "bar ok", style: `width:${(100 * (each.time_ns ?? 0)) / (slowest || 1)}%` });
    const time = h("span", { class: "share wide" }, duration(each.time_ns ?? 0), h("span", { class: "track" }, bar));
    const words = [each.chosen && "taken", usual && "the usual ones", each.cached && "from an earlier run"];
    const row = h(
      "tr",
      each.why_not ? { class: "failed" } : {},
      ...cells(
        stacked(each.chosen ? h("b", {}, each.how) : each.how, each.why_not || words.filter(Boolean).join(", ")),
        short(each.time_ns === null ? "cannot run" : time),
        short(registers(each)),
      ),
    );
    const kernel = this.compile.kernels.find((k) => k.name === each.kernel && k.graph === graph);
    return this.standsFor(row, [kernel?.item ?? null]);
  }
}

function registers({ registers, spilled_bytes }: Tried): string {
  if (registers === null) return "";
  return spilled_bytes ? `${registers}, ${bytes(spilled_bytes)} spilled` : String(registers);
}

function saved(own: Tried[]): string {
  const [usual, best] = [own[0]?.time_ns, own.find((each) => each.chosen)?.time_ns];
  const tried = plural(own.length, "way was tried", "ways were tried");
  if (!usual || !best) return tried;
  return best < usual
    ? `${tried}; the best takes ${Math.round((100 * best) / usual)} % of the usual one's time`
    : `${tried}; the usual one is the best`;
}

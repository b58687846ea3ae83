/** The configurations that autotuning tried for each kernel, and the one it chose. */

import { h } from "../../dom/elements";
import { bytes, duration, plural } from "../../dom/format";
import type { Compile, Tuning, TuningTrial } from "../../model/record/record";
import type { State } from "../../model/state";
import { cells, code, LinkedContent, shortCell, stackedCell } from "../linked_content";

export class AutotuningTable extends LinkedContent {
  constructor(
    state: State,
    private readonly compile: Compile,
  ) {
    super(state);
    for (const tuning of compile.tunings) this.add(tuning);
    this.highlight();
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
        h("p", { class: "lead" }, code(kernel), ` ${comparison(own)}`),
        this.table(
          ["Block sizes", "Time", "Registers"],
          own.map((each, i) => this.row(each, i === 0, slowest, graph)),
        ),
      );
    }
  }

  private row(each: TuningTrial, isDefault: boolean, slowest: number, graph: string): HTMLTableRowElement {
    const bar = h("span", { class: "bar ok", style: `width:${(100 * (each.time_ns ?? 0)) / (slowest || 1)}%` });
    const time = h("span", { class: "share wide" }, duration(each.time_ns ?? 0), h("span", { class: "track" }, bar));
    const isTimed = each.time_ns !== null;
    const chosen = each.chosen && (isTimed ? "chosen" : "asked for");
    const words = [chosen, isDefault && isTimed && "default", each.cached && "from an earlier run"];
    const row = h(
      "tr",
      each.why_not ? { class: "failed" } : {},
      ...cells(
        stackedCell(each.chosen ? h("b", {}, each.how) : each.how, each.why_not || words.filter(Boolean).join(", ")),
        shortCell(isTimed ? time : each.why_not ? "cannot run" : "not timed"),
        shortCell(registers(each)),
      ),
    );
    const kernel = this.compile.kernels.find((k) => k.name === each.kernel && k.graph === graph);
    return this.linkTo(row, [kernel?.item ?? null]);
  }
}

function registers({ registers, spilled_bytes }: TuningTrial): string {
  if (registers === null) return "";
  return spilled_bytes ? `${registers}, ${bytes(spilled_bytes)} spilled` : String(registers);
}

function comparison(own: TuningTrial[]): string {
  const [standard, best] = [own[0]?.time_ns, own.find((each) => each.chosen)?.time_ns];
  if (own.some((each) => each.chosen && each.time_ns === null)) return "has the block sizes that were asked for";
  const tried = plural(own.length, "configuration was tried", "configurations were tried");
  if (!standard || !best) return tried;
  return best < standard
    ? `${tried}; the best takes ${Math.round((100 * best) / standard)} % of the default's time`
    : `${tried}; the default is the best`;
}

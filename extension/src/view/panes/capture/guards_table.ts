/** The guards of a compile, what they check, and what checking costs. */

import { h } from "../../dom/elements";
import { duration, plural } from "../../dom/format";
import { keyOf } from "../../model/analysis/links";
import type { Compile, Guard } from "../../model/record/record";
import type { State } from "../../model/state";
import { cells, code, LinkedContent, shortCell } from "../linked_content";

/** A name in capitals, which may continue on another line after each underscore. */
function breakable(name: string): HTMLElement {
  const parts = name.split(/(?<=_)/);
  return h("span", {}, ...parts.flatMap((part) => [part, h("wbr")]));
}

/** What a guard requires: in plain words if the record has them, with the expression as a tooltip. */
function check(guard: Guard): HTMLElement {
  return guard.meaning ? h("span", { title: guard.code }, guard.meaning) : code(guard.code);
}

export class GuardsTable extends LinkedContent {
  constructor(state: State, compile: Compile) {
    super(state);
    const artifact = compile.artifacts.find((a) => a.pane === "guards");
    const timed = compile.guards.some((guard) => guard.cost_ns !== null);
    const rows = compile.guards.map((guard) => {
      const cost = timed ? [shortCell(guard.cost_ns === null ? "" : duration(guard.cost_ns))] : [];
      const kind = guard.dropped ? `${guard.kind} (dropped)` : guard.kind;
      const row = h("tr", {}, ...cells(breakable(kind), check(guard), guard.line ? keyOf(guard.line) : "", ...cost));
      return this.linkTo(row, [artifact ? `${artifact.id}#${guard.key}` : guard.line]);
    });
    const total = compile.guards_ns === null ? "" : `; checking them takes ${duration(compile.guards_ns)} per call`;
    const checked = compile.guards.filter((guard) => !guard.dropped).length;
    this.element.append(
      h(
        "p",
        { class: "lead" },
        `The compiled code is reused while ${plural(checked, "guard holds", "guards hold")}${total}.`,
      ),
      this.table(["Kind", "Check", "Line", ...(timed ? ["Cost"] : [])], rows),
    );
    this.highlight();
  }
}

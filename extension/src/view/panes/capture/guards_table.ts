/** The guards of a compile, what they check, and what checking costs. */

import { h } from "../../dom/elements";
import { duration, plural } from "../../dom/format";
import { keyOf } from "../../model/analysis/links";
import { groupRepeats } from "../../model/analysis/repeats";
import type { Compile, Guard } from "../../model/record/record";
import type { State } from "../../model/state";
import { cells, code, LinkedContent, shortCell } from "../linked_content";
import type { TableRow } from "../table_rows";

/** A name in capitals, which may continue on another line after each underscore. */
function breakable(name: string): HTMLElement {
  const parts = name.split(/(?<=_)/);
  return h("span", {}, ...parts.flatMap((part) => [part, h("wbr")]));
}

/** What a guard requires: in plain words if the record has them, with the expression as a tooltip. */
function check(guard: Guard): HTMLElement {
  return guard.meaning ? h("span", { title: guard.code }, guard.meaning) : code(guard.code);
}

/** The code of a guard with `*` for the numbers of modules, as in `L['self'].layers.*.weight`. */
function starred(text: string): string {
  return text.replace(/(?<=\b[A-Za-z_]\w*(?:\.\d+)*)\.\d+\b/g, ".*");
}

/** What guards of repeated modules have in common; "" for others. */
function patternOf({ kind, code: text, dropped }: Guard): string {
  const pattern = starred(text);
  return pattern === text ? "" : `${kind} ${dropped} ${pattern}`;
}

export class GuardsTable extends LinkedContent {
  constructor(state: State, compile: Compile) {
    super(state);
    const artifact = compile.artifacts.find((a) => a.pane === "guards");
    const timed = compile.guards.some((guard) => guard.cost_ns !== null);
    const itemOf = (guard: Guard) => (artifact ? `${artifact.id}#${guard.key}` : guard.line);
    const rowOf = (guard: Guard, what: Node, cost: number | null) => {
      const costs = timed ? [shortCell(cost === null ? "" : duration(cost))] : [];
      const kind = guard.dropped ? `${guard.kind} (dropped)` : guard.kind;
      return h("tr", {}, ...cells(breakable(kind), what, guard.line ? keyOf(guard.line) : "", ...costs));
    };
    const rows = groupRepeats(compile.guards, patternOf).map((equal): TableRow => {
      const rows = equal.map((guard) => this.linkTo(rowOf(guard, check(guard), guard.cost_ns), [itemOf(guard)]));
      if (rows.length === 1) return rows[0];
      const [first] = equal;
      const cost = equal.reduce((sum, { cost_ns }) => sum + (cost_ns ?? 0), 0);
      const what = h("span", {}, code(starred(first.code)), h("small", {}, ` × ${equal.length}`));
      const head = rowOf(first, what, first.cost_ns === null ? null : cost);
      return { head: this.linkTo(head, equal.map(itemOf)), rows };
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

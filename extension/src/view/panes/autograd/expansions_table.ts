/** What each captured operation became: by decomposition in the forward, by autograd in the backward. */

import { h } from "../../dom/elements";
import { plural } from "../../dom/format";
import { keyOf } from "../../model/analysis/links";
import type { Compile } from "../../model/record/record";
import type { State } from "../../model/state";
import { cells, code, LinkedContent, stackedCell } from "../linked_content";

export class ExpansionsTable extends LinkedContent {
  constructor(state: State, compile: Compile) {
    super(state);
    const rows = compile.expansions.map((made) => {
      const operations = (items: string[]) => code(items.map(keyOf).join(", "));
      const row = h(
        "tr",
        {},
        ...cells(
          stackedCell(code(keyOf(made.node)), code(made.target)),
          operations(made.forward),
          operations(made.backward),
          code([...made.decomposed, ...made.functions].join(", ")),
        ),
      );
      return this.linkTo(row, [made.node, ...made.forward, ...made.backward]);
    });
    const total = (part: "forward" | "backward") => new Set(compile.expansions.flatMap((made) => made[part])).size;
    const lead = `${plural(rows.length, "operation")} became ${total("forward")} in the forward; autograd added ${total("backward")}.`;
    this.element.append(
      h("p", { class: "lead" }, lead),
      this.sentences(["Operation", "Forward", "Added by autograd", "Decompositions and autograd functions"], rows),
    );
    this.highlight();
  }
}

/** The compile that is looked at beside another one of the record, which the reader chooses. */

import { compareCompiles } from "./compare";
import { h } from "./dom";
import { RunsTable } from "./engines";
import type { Content } from "./pane";
import type { Compile, ItemId } from "./record";
import type { State } from "./state";

/** Which compiles one can be set against: those of its frame first. */
export function others(state: State, compile: Compile): Compile[] {
  const rest = state.record.frames.flatMap((frame) => frame.compiles).filter((c) => c !== compile && c.guards.length);
  return [...rest.filter((c) => c.frame === compile.frame), ...rest.filter((c) => c.frame !== compile.frame)];
}

export class ComparePane implements Content {
  readonly element = h("div", { class: "compare" });
  private readonly picker = h("select", { "aria-label": "Compare with" });
  private table: RunsTable | null = null;

  constructor(
    private readonly state: State,
    private readonly compile: Compile,
  ) {
    const found = others(state, compile);
    this.picker.append(...found.map(({ id }) => h("option", { value: id }, id)));
    this.picker.value = (found.find(({ id }) => id === compile.cause?.of) ?? found[0]).id;
    this.picker.onchange = () => this.draw();
    this.element.append(h("div", { class: "choices" }, `${compile.id} beside `, this.picker));
    this.draw();
  }

  private draw(): void {
    const other = others(this.state, this.compile).find(({ id }) => id === this.picker.value);
    if (!other) return;
    this.table?.element.remove();
    this.table = new RunsTable(this.state, compareCompiles(other, this.compile, this.state.links));
    this.element.append(this.table.element);
  }

  light(): void {
    this.table?.light();
  }

  reveal(items: Set<ItemId>): void {
    this.table?.reveal(items);
  }

  destroy(): void {}
}

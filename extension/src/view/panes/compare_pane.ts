/** The compile that is looked at beside another one of the record, which the reader chooses. */

import { h } from "../dom/dom";
import { isWord, recall, remember } from "../dom/memory";
import { compareCompiles } from "../model/compare";
import type { Content } from "../model/content";
import type { Artifact, Compile, ItemId } from "../model/record";
import type { State } from "../model/state";
import { RunsTable } from "./engines";
import { GraphPair, TextPair, type Two } from "./pair";

/** Which compiles one can be set against: those of its frame first. */
export function others(state: State, compile: Compile): Compile[] {
  const rest = state.record.frames.flatMap((frame) => frame.compiles).filter((c) => c !== compile && c.guards.length);
  return [...rest.filter((c) => c.frame === compile.frame), ...rest.filter((c) => c.frame !== compile.frame)];
}

/** What is set against each other: all of them as a table, or one artifact of each. */
export type Way = "table" | "text" | "drawing";

export class ComparePane implements Content {
  readonly element = h("div", { class: "compare" });
  private readonly compiles = h("select", { "aria-label": "Compare with" });
  private readonly artifacts = h("select", { "aria-label": "What is compared" });
  private content: Content | null = null;

  constructor(
    private readonly state: State,
    private readonly compile: Compile,
    private readonly way: Way,
  ) {
    const found = others(state, compile);
    this.compiles.append(...found.map(({ id }) => h("option", { value: id }, id)));
    const wanted = [state.comparedWith.get(compile.id), compile.cause?.of];
    this.compiles.value = (found.find(({ id }) => wanted.includes(id)) ?? found[0]).id;
    this.compiles.onchange = () => {
      state.comparedWith.set(compile.id, this.compiles.value);
      this.draw();
    };
    this.artifacts.onchange = () => {
      remember("compared", this.artifacts.value);
      this.draw();
    };
    this.artifacts.hidden = way === "table";
    this.element.append(h("div", { class: "choices" }, `${compile.id} beside `, this.compiles, this.artifacts));
    this.draw();
  }

  private draw(): void {
    const other = others(this.state, this.compile).find(({ id }) => id === this.compiles.value);
    if (!other) return;
    this.content?.destroy();
    this.content?.element.remove();
    this.content = this.contentFor(other);
    this.element.append(this.content?.element ?? h("p", { class: "empty" }, "They have nothing of the same name."));
  }

  private contentFor(other: Compile): Content | null {
    if (this.way === "table") return new RunsTable(this.state, compareCompiles(other, this.compile, this.state.links));
    const chosen = this.choose(artifactsOf(other, this.compile, this.way));
    if (!chosen) return null;
    const Made = this.way === "text" ? TextPair : GraphPair;
    return new Made(this.state, chosen, [other.id, this.compile.id]);
  }

  /** The pair that was chosen last, else the first that differs, the graphs before the rest. */
  private choose(pairs: Two<Artifact>[]): Two<Artifact> | undefined {
    const same = ([left, right]: Two<Artifact>) => (left.text === right.text ? " (same)" : "");
    this.artifacts.replaceChildren(
      ...pairs.map((pair) => h("option", { value: nameOf(pair[0]) }, nameOf(pair[0]) + same(pair))),
    );
    const last = recall("compared", isWord);
    const differing = pairs.filter((pair) => !same(pair));
    const chosen =
      pairs.find(([left]) => nameOf(left) === last) ??
      differing.find(([left]) => left.graph) ??
      differing[0] ??
      pairs[0];
    if (chosen) this.artifacts.value = nameOf(chosen[0]);
    return chosen;
  }

  light(): void {
    this.content?.light();
  }

  reveal(items: Set<ItemId>): void {
    this.content?.reveal(items);
  }

  destroy(): void {
    this.content?.destroy();
  }
}

/** What both compiles have, as texts or as graphs. */
function artifactsOf(before: Compile, after: Compile, way: Way): Two<Artifact>[] {
  const fits = (artifact: Artifact) => (way === "drawing" ? artifact.graph !== null : artifact.text !== "");
  return before.artifacts.filter(fits).flatMap((left): Two<Artifact>[] => {
    const right = after.artifacts.find(({ pane, name }) => pane === left.pane && name === left.name);
    return right && fits(right) ? [[left, right]] : [];
  });
}

function nameOf({ pane, name }: Artifact): string {
  return pane === name ? name : `${pane}: ${name}`;
}

/** Compares the current compile with another one of the record, which the user chooses. */

import { h } from "../../dom/elements";
import { isString, loadSetting, saveSetting } from "../../dom/storage";
import { compareCompiles } from "../../model/analysis/compare";
import type { Content } from "../../model/content";
import { isUnread, summaryOf } from "../../model/record/details";
import type { Artifact, Compile, ItemId } from "../../model/record/record";
import type { State } from "../../model/state";
import { PairedGraphs, PairedTexts, type Two } from "./paired_views";
import { RunsTable } from "./runs_table";

/** Returns the compiles that a compile can be compared with, those of its frame first. */
export function comparableCompiles(state: State, compile: Compile): Compile[] {
  const hasGraph = (c: Compile) =>
    isUnread(c) ? summaryOf(c).nodes !== null : c.guards.length || c.artifacts.some(({ graph }) => graph);
  const rest = state.record.frames.flatMap((frame) => frame.compiles).filter((c) => c !== compile && hasGraph(c));
  return [...rest.filter((c) => c.frame === compile.frame), ...rest.filter((c) => c.frame !== compile.frame)];
}

/** What is compared: all facts as a table, or one artifact as text or as drawing. */
export type ComparisonKind = "table" | "text" | "drawing";

export class CompilesPane implements Content {
  readonly element = h("div", { class: "compare" });
  private readonly compiles = h("select", { "aria-label": "Compare with" });
  private readonly artifacts = h("select", { "aria-label": "What is compared" });
  private content: Content | null = null;

  constructor(
    private readonly state: State,
    private readonly compile: Compile,
    private readonly kind: ComparisonKind,
  ) {
    const found = comparableCompiles(state, compile);
    this.compiles.append(...found.map(({ id }) => h("option", { value: id }, id)));
    const preferred = [state.comparedCompile.get(compile.id), compile.cause?.of];
    this.compiles.value = (found.find(({ id }) => preferred.includes(id)) ?? found[0]).id;
    this.compiles.onchange = () => {
      state.comparedCompile.set(compile.id, this.compiles.value);
      this.draw();
    };
    this.artifacts.onchange = () => {
      saveSetting("compared", this.artifacts.value);
      this.draw();
    };
    this.artifacts.hidden = kind === "table";
    this.element.append(h("div", { class: "choices" }, `${compile.id} compared with `, this.compiles, this.artifacts));
    this.draw();
  }

  private draw(): void {
    const other = comparableCompiles(this.state, this.compile).find(({ id }) => id === this.compiles.value);
    if (!other) return;
    this.content?.destroy();
    this.content?.element.remove();
    this.content = this.contentFor(other);
    this.element.append(this.content?.element ?? h("p", { class: "empty" }, "They have no artifact of the same name."));
  }

  private contentFor(other: Compile): Content | null {
    const [before, after] = this.inOrder(other);
    if (this.kind === "table") return new RunsTable(this.state, compareCompiles(before, after, this.state.links));
    const chosen = this.choose(commonArtifacts(before, after, this.kind));
    if (!chosen) return null;
    const PairView = this.kind === "text" ? PairedTexts : PairedGraphs;
    return new PairView(this.state, chosen, [before.id, after.id]);
  }

  /** Both compiles, the earlier one first: what is "added" came with the recompile, whichever of the two is current. */
  private inOrder(other: Compile): Two<Compile> {
    const all = this.state.record.frames.flatMap((frame) => frame.compiles);
    return all.indexOf(other) < all.indexOf(this.compile) ? [other, this.compile] : [this.compile, other];
  }

  /**
   * Fills the list of artifacts. Returns the pair that was chosen last, or else the first that differs, graphs first.
   */
  private choose(pairs: Two<Artifact>[]): Two<Artifact> | undefined {
    const same = ([left, right]: Two<Artifact>) => (left.text === right.text ? " (same)" : "");
    this.artifacts.replaceChildren(
      ...pairs.map((pair) => h("option", { value: nameOf(pair[0]) }, nameOf(pair[0]) + same(pair))),
    );
    const last = loadSetting("compared", isString);
    const differing = pairs.filter((pair) => !same(pair));
    const chosen =
      pairs.find(([left]) => nameOf(left) === last) ??
      differing.find(([left]) => left.graph) ??
      differing[0] ??
      pairs[0];
    if (chosen) this.artifacts.value = nameOf(chosen[0]);
    return chosen;
  }

  highlight(): void {
    this.content?.highlight();
  }

  reveal(items: Set<ItemId>): void {
    this.content?.reveal(items);
  }

  destroy(): void {
    this.content?.destroy();
  }
}

/** Returns the artifacts that both compiles have, as texts or as graphs. */
function commonArtifacts(before: Compile, after: Compile, kind: ComparisonKind): Two<Artifact>[] {
  const fits = (artifact: Artifact) => (kind === "drawing" ? artifact.graph !== null : artifact.text !== "");
  return before.artifacts.filter(fits).flatMap((left): Two<Artifact>[] => {
    const right = after.artifacts.find(({ pane, name }) => pane === left.pane && name === left.name);
    return right && fits(right) ? [[left, right]] : [];
  });
}

function nameOf({ pane, name }: Artifact): string {
  return pane === name ? name : `${pane}: ${name}`;
}

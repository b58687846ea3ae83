/** Two artifacts side by side, as texts or drawings: scrolled and hovered together, with differences marked. */

import { h } from "../../dom/elements";
import { plural } from "../../dom/format";
import { GraphView } from "../../graph/graph_view";
import { compareGraphs, drawableGraph } from "../../graph/scene/drawable_graph";
import { type AlignedSide, alignLines } from "../../model/analysis/diff";
import type { Content } from "../../model/content";
import type { Artifact, Graph, ItemId } from "../../model/record/record";
import type { State } from "../../model/state";
import { TextView } from "../text/text_view";

/** A pair of a left and a right value. */
export type Two<T> = [left: T, right: T];

abstract class PairedViews<C extends Content> implements Content {
  readonly element = h("div", { class: "pair" });

  protected constructor(
    protected readonly state: State,
    protected readonly halves: Two<C>,
    protected readonly artifacts: Two<Artifact>,
    private readonly alignedItems: Map<ItemId, ItemId>,
  ) {
    state.alignedItems = alignedItems;
  }

  /** Creates the element with both halves under their names. */
  protected layOutHalves(names: Two<string>): HTMLElement {
    const half = (content: C, name: string) =>
      h("div", { class: "half" }, h("h4", {}, name), h("div", { class: "body" }, content.element));
    return h("div", { class: "halves" }, ...this.halves.map((content, i) => half(content, names[i])));
  }

  highlight(): void {
    for (const half of this.halves) half.highlight();
  }

  /** Scrolls the first half that has any of `items`; the other half follows. */
  reveal(items: Set<ItemId>): void {
    const touched = new Set([...items].map((item) => this.state.links.artifactOf(item)));
    const at = this.artifacts.findIndex((artifact) => touched.has(artifact));
    if (at >= 0) this.halves[at].reveal(items);
  }

  destroy(): void {
    for (const half of this.halves) half.destroy();
    if (this.state.alignedItems === this.alignedItems) this.state.alignedItems = new Map();
  }
}

/** Two texts; equal lines have the same height. */
export class PairedTexts extends PairedViews<TextView> {
  private at = -1;

  constructor(state: State, artifacts: Two<Artifact>, names: Two<string>) {
    const lines = artifacts.map((artifact) => artifact.text.replace(/\n$/, "").split("\n"));
    const { left, right, stretches } = alignLines(lines[0], lines[1]);
    const views = artifacts.map((a, i) => new TextView(a, state, `${names[i]} ${a.name}`, [left, right][i]));
    super(state, views as Two<TextView>, artifacts, alignedItems(views as Two<TextView>, [left, right]));
    const go = (by: number) => {
      this.at = (this.at + by + stretches.length) % stretches.length;
      this.halves[0].showLine(stretches[this.at].left);
      status.textContent = `${this.at + 1} of ${plural(stretches.length, "difference")}`;
    };
    const status = h(
      "span",
      { role: "status" },
      stretches.length ? plural(stretches.length, "difference") : "No line differs.",
    );
    const moves = [
      h("button", { class: "icon", "aria-label": "Previous difference", onclick: () => go(this.at < 0 ? 0 : -1) }, "↑"),
      h("button", { class: "icon", "aria-label": "Next difference", onclick: () => go(1) }, "↓"),
    ];
    this.element.append(
      h("div", { class: "moves" }, status, ...(stretches.length ? moves : [])),
      this.layOutHalves(names),
    );
    synchronizeScrolling(views[0].scroller, views[1].scroller);
  }
}

/** Maps the items of aligned lines to each other. */
function alignedItems(views: Two<TextView>, [left]: Two<AlignedSide>): Map<ItemId, ItemId> {
  const corresponding = new Map<ItemId, ItemId>();
  for (const [leftLine, rightLine] of left.alignedWith) {
    const [[one], [other]] = [views[0].itemsAt(leftLine), views[1].itemsAt(rightLine)];
    if (one === undefined || other === undefined) continue;
    corresponding.set(one, other);
    corresponding.set(other, one);
  }
  return corresponding;
}

/** Keeps the scroll positions of two boxes equal. */
function synchronizeScrolling(one: HTMLElement, other: HTMLElement): void {
  const set = new Map<HTMLElement, string>();
  const place = ({ scrollLeft, scrollTop }: HTMLElement) => `${Math.round(scrollLeft)},${Math.round(scrollTop)}`;
  const follow = (from: HTMLElement, to: HTMLElement) => {
    // ignore the event that this function caused itself
    if (set.get(from) === place(from)) return;
    to.scrollTo({ left: from.scrollLeft, top: from.scrollTop });
    set.set(to, place(to));
  };
  one.addEventListener("scroll", () => follow(one, other));
  other.addEventListener("scroll", () => follow(other, one));
}

/** Two drawings, moved and zoomed together. */
export class PairedGraphs extends PairedViews<GraphView> {
  constructor(state: State, artifacts: Two<Artifact>, compiles: Two<string>) {
    const { nodes, alignedItems } = compareGraphs(artifacts);
    const views = artifacts.map((artifact, i) => {
      const subject = drawableGraph(artifact, artifact.graph as Graph, state.findCompile(compiles[i]), state);
      return new GraphView({ ...subject, differing: nodes[i] }, state);
    }) as Two<GraphView>;
    super(state, views, artifacts, alignedItems);
    const count = nodes[0].size + nodes[1].size;
    const status = count
      ? `${plural(count, "node is", "nodes are")} not the same on the other side.`
      : "No node differs.";
    this.element.append(h("div", { class: "moves" }, status), this.layOutHalves(compiles));
    views[0].linkWith(views[1]);
    views[1].linkWith(views[0]);
  }
}

/** Two compiles pane against pane: a text or a drawing of each, looked at together, with what differs marked. */

import { h, plural } from "../dom/dom";
import { differing, oneGraph } from "../graph/scene/subject";
import { GraphView } from "../graph/view";
import type { Content } from "../model/content";
import { type Side, sides } from "../model/diff";
import type { Artifact, Graph, ItemId } from "../model/record";
import type { State } from "../model/state";
import { TextView } from "./text";

/** The left one of two, and the right one. */
export type Two<T> = [left: T, right: T];

abstract class Pair<C extends Content> implements Content {
  readonly element = h("div", { class: "pair" });

  protected constructor(
    protected readonly state: State,
    protected readonly halves: Two<C>,
    protected readonly artifacts: Two<Artifact>,
    private readonly twins: Map<ItemId, ItemId>,
  ) {
    state.twins = twins;
  }

  /** The halves under the ids of their compiles. */
  protected laid(names: Two<string>): HTMLElement {
    const half = (content: C, name: string) =>
      h("div", { class: "half" }, h("h4", {}, name), h("div", { class: "body" }, content.element));
    return h("div", { class: "halves" }, ...this.halves.map((content, i) => half(content, names[i])));
  }

  light(): void {
    for (const half of this.halves) half.light();
  }

  /** The first half that has any of `items` goes there, and takes the other along. */
  reveal(items: Set<ItemId>): void {
    const touched = new Set([...items].map((item) => this.state.links.artifactOf(item)));
    const at = this.artifacts.findIndex((artifact) => touched.has(artifact));
    if (at >= 0) this.halves[at].reveal(items);
  }

  destroy(): void {
    for (const half of this.halves) half.destroy();
    if (this.state.twins === this.twins) this.state.twins = new Map();
  }
}

/** Two texts; the same lines stand at the same height. */
export class TextPair extends Pair<TextView> {
  private at = -1;

  constructor(state: State, artifacts: Two<Artifact>, names: Two<string>) {
    const lines = artifacts.map((artifact) => artifact.text.replace(/\n$/, "").split("\n"));
    const { left, right, starts } = sides(lines[0], lines[1]);
    const views = artifacts.map((a, i) => new TextView(a, state, `${names[i]} ${a.name}`, [left, right][i]));
    super(state, views as Two<TextView>, artifacts, textTwins(views as Two<TextView>, [left, right]));
    const go = (by: number) => {
      this.at = (this.at + by + starts.length) % starts.length;
      this.halves[0].showLine(starts[this.at].left);
      said.textContent = `${this.at + 1} of ${plural(starts.length, "difference")}`;
    };
    const said = h(
      "span",
      { role: "status" },
      starts.length ? plural(starts.length, "difference") : "No line differs.",
    );
    const moves = [
      h("button", { class: "icon", "aria-label": "Difference before", onclick: () => go(this.at < 0 ? 0 : -1) }, "↑"),
      h("button", { class: "icon", "aria-label": "Next difference", onclick: () => go(1) }, "↓"),
    ];
    this.element.append(h("div", { class: "moves" }, said, ...(starts.length ? moves : [])), this.laid(names));
    together(views[0].scroller, views[1].scroller);
  }
}

/** The items of lines that stand beside each other. */
function textTwins(views: Two<TextView>, [left]: Two<Side>): Map<ItemId, ItemId> {
  const twins = new Map<ItemId, ItemId>();
  for (const [here, there] of left.beside) {
    const [[one], [other]] = [views[0].itemsAt(here), views[1].itemsAt(there)];
    if (one === undefined || other === undefined) continue;
    twins.set(one, other);
    twins.set(other, one);
  }
  return twins;
}

/** Scroll two boxes as one. */
function together(one: HTMLElement, other: HTMLElement): void {
  const set = new Map<HTMLElement, string>();
  const place = ({ scrollLeft, scrollTop }: HTMLElement) => `${Math.round(scrollLeft)},${Math.round(scrollTop)}`;
  const follow = (from: HTMLElement, to: HTMLElement) => {
    // what was set from the other side is no new movement
    if (set.get(from) === place(from)) return;
    to.scrollTo({ left: from.scrollLeft, top: from.scrollTop });
    set.set(to, place(to));
  };
  one.addEventListener("scroll", () => follow(one, other));
  other.addEventListener("scroll", () => follow(other, one));
}

/** Two drawings, moved as one. */
export class GraphPair extends Pair<GraphView> {
  constructor(state: State, artifacts: Two<Artifact>, compiles: Two<string>) {
    const { nodes, twins } = differing(artifacts);
    const views = artifacts.map((artifact, i) => {
      const subject = oneGraph(artifact, artifact.graph as Graph, state.findCompile(compiles[i]), state);
      return new GraphView({ ...subject, differing: nodes[i] }, state);
    }) as Two<GraphView>;
    super(state, views, artifacts, twins);
    const count = nodes[0].size + nodes[1].size;
    const said = count
      ? `${plural(count, "node is", "nodes are")} not the same on the other side.`
      : "No node differs.";
    this.element.append(h("div", { class: "moves" }, said), this.laid(compiles));
    views[0].lead(views[1]);
    views[1].lead(views[0]);
  }
}

/** What the user chose to see of a graph: the grouping, the expanded groups, a subset of the nodes, and a search. */

import type { Compile, ItemId } from "../../model/record/record";
import { GROUPINGS, Groupings, type Groups } from "./grouping";
import type { IndexedGraph } from "./indexed_graph";
import { parseQuery } from "./query";
import type { SceneOptions } from "./scene";

/** Graphs with more nodes are initially grouped, if a grouping makes them small enough. */
const MAX_UNGROUPED = 90;

export class ViewOptions implements SceneOptions {
  groups: Groups = [];
  readonly expanded = new Set<string>();
  only: ReadonlySet<number> | null = null;
  readonly groupings: Groupings;
  /** The parameters that are in the box of the node that reads them; empty if they are drawn. */
  folded: ReadonlyMap<number, number>;
  /** The nodes that match the search; null without a search. */
  found: number[] | null = null;
  /** Index of the current match in `found`; -1 if none. */
  foundAt = -1;
  /** Size of the neighbourhood that is shown, in edges. */
  private neighbourhoodSteps = 0;

  constructor(
    private readonly graph: IndexedGraph,
    compile: Compile | null,
    readonly parameters: ReadonlyMap<number, number>,
  ) {
    this.folded = parameters;
    this.groupings = new Groupings(graph, compile);
  }

  /** Groups a large graph by the first grouping that leaves less than a third of the boxes. Returns its name, or "". */
  initialGrouping(): string {
    const { nodes } = this.graph;
    if (nodes.length - this.parameters.size <= MAX_UNGROUPED) return "";
    const good = GROUPINGS.find(({ name }) => {
      const boxes = new Set(this.groupings.of(name).map((own, i) => own[0] ?? i));
      return boxes.size < nodes.length / 3;
    });
    if (good) this.setGrouping(good.name);
    return good?.name ?? "";
  }

  setGrouping(name: string): void {
    this.groups = this.groupings.of(name);
    this.expanded.clear();
  }

  /** Draws the parameters as separate nodes, or in the boxes of the nodes that read them. */
  showParameters(shown: boolean): void {
    this.folded = shown ? new Map() : this.parameters;
  }

  /** Collapses the innermost expanded group of a node. Returns false if there is none. */
  collapse(node: number): boolean {
    const group = this.groups[node]?.findLast((g) => this.expanded.has(g));
    if (group === undefined) return false;
    for (const own of this.groups) {
      const at = own.indexOf(group);
      if (at >= 0) for (const inner of own.slice(at)) this.expanded.delete(inner);
    }
    return true;
  }

  /** Expands all groups of a node. Returns false if they are expanded already. */
  expandTo(node: number): boolean {
    const closed = (this.groups[node] ?? []).filter((group) => !this.expanded.has(group));
    for (const group of closed) this.expanded.add(group);
    return closed.length > 0;
  }

  /** Shows only these nodes; null shows all. */
  narrow(only: ReadonlySet<number> | null): void {
    this.only = only;
    if (!only) this.neighbourhoodSteps = 0;
  }

  /** Returns the neighbourhood of nodes, and its size as text; each call extends it by one step. */
  nextNeighbourhood(nodes: number[]): { nodes: Set<number>; steps: string } {
    this.neighbourhoodSteps++;
    return {
      nodes: this.graph.neighbourhood(nodes, this.neighbourhoodSteps),
      steps: this.neighbourhoodSteps === 1 ? "1 step" : `${this.neighbourhoodSteps} steps`,
    };
  }

  search(text: string, userLine: (item: ItemId) => ItemId | null): void {
    const fits = parseQuery(text);
    const { nodes, items } = this.graph;
    this.foundAt = -1;
    this.found = fits && nodes.flatMap((node, i) => (fits(node, () => userLine(items[i])) ? [i] : []));
  }

  /** Moves to the next match (1) or the previous one (-1), and returns its node. */
  nextFound(by: number): number | undefined {
    const count = this.found?.length ?? 0;
    if (!count) return undefined;
    this.foundAt = (this.foundAt + by + count + (this.foundAt < 0 && by < 0 ? 1 : 0)) % count;
    return this.found?.[this.foundAt];
  }
}

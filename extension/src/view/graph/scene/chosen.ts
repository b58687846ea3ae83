/** What a person chose to see of a graph: groups and which of them are expanded, a part of the nodes, what was searched for. */

import type { Compile, ItemId } from "../../model/record";
import type { Flow } from "./flow";
import { GROUPINGS, Groupings, type Groups } from "./grouping";
import { parseQuery } from "./query";
import type { Choice } from "./scene";

/** A graph of more nodes is shown collapsed to begin with, where it has modules. */
const MOST_AT_ONCE = 400;

export class Chosen implements Choice {
  groups: Groups = [];
  readonly open = new Set<string>();
  only: ReadonlySet<number> | null = null;
  readonly groupings: Groupings;
  /** The nodes that a search found; null: nothing is searched for. */
  found: number[] | null = null;
  /** Which of these was gone to last. */
  foundAt = -1;
  /** How many steps of a neighbourhood are shown. */
  private reach = 0;

  constructor(
    private readonly flow: Flow,
    compile: Compile | null,
  ) {
    this.groupings = new Groupings(flow, compile);
  }

  /** A large graph begins with its modules collapsed, where that makes it readable: the grouping's name, or "". */
  begin(): string {
    const { nodes } = this.flow;
    if (nodes.length <= MOST_AT_ONCE) return "";
    const good = GROUPINGS.find(({ name }) => {
      const boxes = new Set(this.groupings.of(name).map((own, i) => own[0] ?? i));
      return boxes.size < nodes.length / 3;
    });
    if (good) this.group(good.name);
    return good?.name ?? "";
  }

  group(name: string): void {
    this.groups = this.groupings.of(name);
    this.open.clear();
  }

  /** Collapse the innermost expanded group that a node is in; false: there is none. */
  collapse(node: number): boolean {
    const group = this.groups[node]?.findLast((g) => this.open.has(g));
    if (group === undefined) return false;
    for (const own of this.groups) {
      const at = own.indexOf(group);
      if (at >= 0) for (const inner of own.slice(at)) this.open.delete(inner);
    }
    return true;
  }

  /** Expand all groups that a node is in; false: they are. */
  expandTo(node: number): boolean {
    const closed = (this.groups[node] ?? []).filter((group) => !this.open.has(group));
    for (const group of closed) this.open.add(group);
    return closed.length > 0;
  }

  /** See these nodes alone; null: all again. */
  narrow(only: ReadonlySet<number> | null): void {
    this.only = only;
    if (!only) this.reach = 0;
  }

  /** The neighbourhood of nodes; asked for again, one step more of it. */
  around(nodes: number[]): { nodes: Set<number>; steps: string } {
    this.reach++;
    return { nodes: this.flow.around(nodes, this.reach), steps: this.reach === 1 ? "1 step" : `${this.reach} steps` };
  }

  search(text: string, userLine: (item: ItemId) => ItemId | null): void {
    const fits = parseQuery(text);
    const { nodes, items } = this.flow;
    this.foundAt = -1;
    this.found = fits && nodes.flatMap((node, i) => (fits(node, () => userLine(items[i])) ? [i] : []));
  }

  /** The next of what was found, or the one before. */
  nextFound(by: number): number | undefined {
    const count = this.found?.length ?? 0;
    if (!count) return undefined;
    this.foundAt = (this.foundAt + by + count + (this.foundAt < 0 && by < 0 ? 1 : 0)) % count;
    return this.found?.[this.foundAt];
  }
}

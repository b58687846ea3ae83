/** A graph as indices: who reads whom, what lies between two nodes, what comes after the tangents. */

import type { Graph, ItemId, Node } from "../../model/record";
import type { Pair } from "../layout/layout";

export class Flow {
  readonly users: number[][];
  readonly inputs: number[][];
  /** 1 for what belongs to the backward: in a joint graph, what is computed from tangents. */
  readonly late: Uint8Array;
  /** All nodes, what belongs to the backward after the rest. */
  readonly order: number[];

  constructor(
    readonly nodes: Node[],
    /** The item of each node. */
    readonly items: ItemId[],
    readonly edges: Pair[],
    late?: Uint8Array,
  ) {
    this.users = nodes.map(() => []);
    this.inputs = nodes.map(() => []);
    for (const [from, to] of edges) {
      this.users[from].push(to);
      this.inputs[to].push(from);
    }
    this.late = late ?? this.afterTangents();
    this.order = [...nodes.keys()].sort((a, b) => this.late[a] - this.late[b] || a - b);
  }

  private afterTangents(): Uint8Array {
    const tangents = this.nodes.flatMap((n, i) => (n.role === "tangent" ? [i] : []));
    const after = this.reach(tangents, this.users);
    return Uint8Array.from(this.nodes, (_, i) => (after.has(i) ? 1 : 0));
  }

  /** `start` and all that steps lead to, at most `far` steps away. */
  reach(start: Iterable<number>, step: number[][], far = Number.POSITIVE_INFINITY): Set<number> {
    const seen = new Set(start);
    let edge = [...seen];
    for (let n = 0; n < far && edge.length; n++) {
      const next: number[] = [];
      for (const at of edge) {
        for (const to of step[at]) {
          if (seen.has(to)) continue;
          seen.add(to);
          next.push(to);
        }
      }
      edge = next;
    }
    return seen;
  }

  /** What lies within a few steps of `start`, up or down. */
  around(start: number[], far: number): Set<number> {
    return new Set([...this.reach(start, this.inputs, far), ...this.reach(start, this.users, far)]);
  }

  /** All that lies on a way from one to the other, whichever is first; empty where there is none. */
  between(one: number[], other: number[]): Set<number> {
    return this.ways(one, other) ?? this.ways(other, one) ?? new Set();
  }

  private ways(from: number[], to: number[]): Set<number> | null {
    const above = this.reach(to, this.inputs);
    const found = [...this.reach(from, this.users)].filter((i) => above.has(i));
    return found.length ? new Set(found) : null;
  }
}

/** A record's edges as pairs of indices; those whose ends are not there are left out. */
export function pairsOf(graph: Graph): Pair[] {
  const at = new Map(graph.nodes.map((n, i) => [n.key, i]));
  return graph.edges.flatMap(([from, to]): Pair[] => {
    const [a, b] = [at.get(from), at.get(to)];
    return a === undefined || b === undefined ? [] : [[a, b]];
  });
}

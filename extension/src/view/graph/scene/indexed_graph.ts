/** A graph with nodes as indices, for traversals: inputs and users, neighbourhoods, paths. */

import type { Graph, ItemId, Node } from "../../model/record/record";
import type { Pair } from "../layout/layout";

export class IndexedGraph {
  readonly users: number[][];
  readonly inputs: number[][];
  /** 1 for nodes of the backward: in a joint graph, those that depend on tangents. */
  readonly isBackward: Uint8Array;
  /** All nodes, those of the backward last. */
  readonly order: number[];

  constructor(
    readonly nodes: Node[],
    /** The item id of each node. */
    readonly items: ItemId[],
    readonly edges: Pair[],
    late?: Uint8Array,
    /** What the user calls the inputs, by node, where that is not the node's name. */
    readonly names: ReadonlyMap<number, string> = new Map(),
  ) {
    this.users = nodes.map(() => []);
    this.inputs = nodes.map(() => []);
    for (const [from, to] of edges) {
      this.users[from].push(to);
      this.inputs[to].push(from);
    }
    this.isBackward = late ?? this.findBackward();
    this.order = [...nodes.keys()].sort((a, b) => this.isBackward[a] - this.isBackward[b] || a - b);
  }

  private findBackward(): Uint8Array {
    const tangents = this.nodes.flatMap((n, i) => (n.role === "tangent" ? [i] : []));
    const after = this.reachable(tangents, this.users);
    return Uint8Array.from(this.nodes, (_, i) => (after.has(i) ? 1 : 0));
  }

  /** Returns `start` and the nodes that are reached from it by at most `far` edges of `step`. */
  reachable(start: Iterable<number>, step: number[][], far = Number.POSITIVE_INFINITY): Set<number> {
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

  /** Returns `start` and the nodes that are at most `far` edges above or below it. */
  neighbourhood(start: number[], far: number): Set<number> {
    return new Set([...this.reachable(start, this.inputs, far), ...this.reachable(start, this.users, far)]);
  }

  /** Returns the nodes on paths from one set of nodes to the other, in whichever direction there are any. */
  nodesBetween(one: number[], other: number[]): Set<number> {
    return this.nodesOnPaths(one, other) ?? this.nodesOnPaths(other, one) ?? new Set();
  }

  private nodesOnPaths(from: number[], to: number[]): Set<number> | null {
    const above = this.reachable(to, this.inputs);
    const found = [...this.reachable(from, this.users)].filter((i) => above.has(i));
    return found.length ? new Set(found) : null;
  }
}

/** Returns the edges of a recorded graph as pairs of indices; edges with an unknown end are omitted. */
export function pairsOf(graph: Graph): Pair[] {
  const at = new Map(graph.nodes.map((n, i) => [n.key, i]));
  return graph.edges.flatMap(([from, to]): Pair[] => {
    const [a, b] = [at.get(from), at.get(to)];
    return a === undefined || b === undefined ? [] : [[a, b]];
  });
}

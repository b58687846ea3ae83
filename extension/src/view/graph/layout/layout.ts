/** Where the boxes and edges of a graph go: Graphviz while it is small, our own layered layout beyond. */

import { runDot } from "./dot";
import { layered, ranksOf } from "./layered";

export interface Box {
  width: number;
  height: number;
}

/** A pair of indices of boxes: from, to. */
export type Pair = [number, number];

export interface Layout extends Box {
  /** Middle of each box. */
  x: Float64Array;
  y: Float64Array;
  /** Of each edge a start, then three points for each cubic curve, as x and y in turn. */
  edges: Float32Array[];
  /** 1 for an edge too long to be drawn among the others: its ends are, and all of it where it is asked for. */
  long: Uint8Array;
  /** Of facing pages, the line between them. */
  gutter?: number;
}

/** Up to here Graphviz answers while one looks: so many boxes, edges, and ranks that edges pass. */
const MOST_FOR_DOT = 300;
const MOST_EDGES_FOR_DOT = 600;
const MOST_PASSED_FOR_DOT = 1500;

export async function layOut(boxes: Box[], edges: Pair[]): Promise<Layout> {
  if (!isSmall(boxes, edges)) return layered(boxes, edges);
  // where Graphviz cannot run (a page that forbids workers) or takes too long, ours does
  return runDot(boxes, edges).catch(() => layered(boxes, edges));
}

/** Graphviz has a node wherever an edge passes a rank: what keeps it busy is not the boxes but the long edges. */
export function isSmall(boxes: Box[], edges: Pair[]): boolean {
  if (boxes.length > MOST_FOR_DOT || edges.length > MOST_EDGES_FOR_DOT) return false;
  const ranks = ranksOf(boxes.length, edges);
  const passed = edges.reduce((sum, [from, to]) => sum + Math.max(0, Math.abs(ranks[to] - ranks[from]) - 1), 0);
  return passed <= MOST_PASSED_FOR_DOT;
}

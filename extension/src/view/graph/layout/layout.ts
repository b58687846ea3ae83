/** Lays out the boxes and edges of a graph: Graphviz for small graphs, our layered layout for larger ones. */

import { runDot } from "./dot";
import { layered, ranksOf } from "./layered";

export interface Box {
  width: number;
  height: number;
  /** The groups around it, the outermost first: Graphviz keeps the boxes of a group together. */
  within?: string[];
}

/** A pair of indices of boxes: from, to. */
export type Pair = [number, number];

export interface Layout extends Box {
  /** Middle of each box, in pixels. */
  x: Float64Array;
  y: Float64Array;
  /** Each edge as a start point, then three points for each cubic curve; x and y alternate. */
  edges: Float32Array[];
  /** 1 for an edge that is too long to be drawn with the others: only its ends are drawn, all of it on demand. */
  isLong: Uint8Array;
  /** For two graphs side by side: x coordinate of the line between them. */
  gutter?: number;
}

/** Limits up to which Graphviz is fast enough: boxes, edges, and ranks that edges pass in total. */
const MAX_DOT_BOXES = 300;
const MAX_DOT_EDGES = 600;
const MAX_DOT_PASSED_RANKS = 1500;

export async function layOut(boxes: Box[], edges: Pair[]): Promise<Layout> {
  if (!fitsGraphviz(boxes, edges)) return layered(boxes, edges);
  // fallback if Graphviz cannot run (a page may forbid workers) or takes too long
  return runDot(boxes, edges).catch(() => layered(boxes, edges));
}

/**
 * Whether Graphviz lays a graph out fast. It adds a node wherever an edge passes a rank, so long edges dominate its
 * time.
 */
export function fitsGraphviz(boxes: Box[], edges: Pair[]): boolean {
  if (boxes.length > MAX_DOT_BOXES || edges.length > MAX_DOT_EDGES) return false;
  const ranks = ranksOf(boxes.length, edges);
  const passed = edges.reduce((sum, [from, to]) => sum + Math.max(0, Math.abs(ranks[to] - ranks[from]) - 1), 0);
  return passed <= MAX_DOT_PASSED_RANKS;
}

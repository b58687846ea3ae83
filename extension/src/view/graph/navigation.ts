/** Navigation in a drawing with the arrow keys, and its initial position. */

import type { Picture } from "./draw/picture";
import type { Layout } from "./layout/layout";

export const ARROWS = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"] as const;
export type Arrow = (typeof ARROWS)[number];

/** Boxes whose middles differ by less than this in y are in the same row. */
const ROW_TOLERANCE = 19;

/**
 * Returns the box that an arrow key leads to: up to the first input, down to the first user, left and right in the row.
 */
export function nextBox(picture: Picture, at: number, arrow: Arrow): number | undefined {
  switch (arrow) {
    case "ArrowUp":
      return picture.neighbours(at, 0)[0];
    case "ArrowDown":
      return picture.neighbours(at, 1)[0];
    case "ArrowLeft":
      return nextInRow(picture, at, -1);
    case "ArrowRight":
      return nextInRow(picture, at, 1);
  }
}

function nextInRow({ layout, index }: Picture, at: number, side: -1 | 1): number | undefined {
  const inBand = index.between(layout.y[at], layout.y[at]).boxes;
  const inRow = inBand.filter(
    (i) => Math.abs(layout.y[i] - layout.y[at]) < ROW_TOLERANCE && (layout.x[i] - layout.x[at]) * side > 0,
  );
  return inRow.sort((a, b) => (layout.x[a] - layout.x[b]) * side)[0];
}

/** Returns the x coordinate at which a window of this size at the top of a drawing is centred to contain most boxes. */
export function densestX({ x, y }: Layout, width: number, height: number): number {
  const top = y.reduce((least, at) => Math.min(least, at), Number.POSITIVE_INFINITY);
  const seen = x.filter((_, box) => y[box] < top + height).sort();
  let best = [0, 0];
  for (let [from, to] = [0, 0]; to < seen.length; to++) {
    while (seen[to] - seen[from] > width) from++;
    if (to - from > best[1] - best[0]) best = [from, to];
  }
  return seen.length ? (seen[best[0]] + seen[best[1]]) / 2 : 0;
}

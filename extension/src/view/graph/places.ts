/** Where one is in a drawing, and where the arrow keys lead. */

import type { Picture } from "./draw/picture";
import type { Layout } from "./layout/layout";

export const ARROWS = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"] as const;
export type Arrow = (typeof ARROWS)[number];

/** Boxes of one row differ by less in height. */
const ROW = 19;

/** Up: the first of a box's inputs; down: its first reader; left and right: along its row. */
export function nextBox(picture: Picture, at: number, arrow: Arrow): number | undefined {
  switch (arrow) {
    case "ArrowUp":
      return picture.neighbours(at, 0)[0];
    case "ArrowDown":
      return picture.neighbours(at, 1)[0];
    case "ArrowLeft":
      return beside(picture, at, -1);
    case "ArrowRight":
      return beside(picture, at, 1);
  }
}

function beside({ layout, index }: Picture, at: number, side: -1 | 1): number | undefined {
  const near = index.between(layout.y[at], layout.y[at]).boxes;
  const there = near.filter(
    (i) => Math.abs(layout.y[i] - layout.y[at]) < ROW && (layout.x[i] - layout.x[at]) * side > 0,
  );
  return there.sort((a, b) => (layout.x[a] - layout.x[b]) * side)[0];
}

/** Where a window of this size at the top of a drawing has most boxes: its middle, across. */
export function whereMostIs({ x, y }: Layout, width: number, height: number): number {
  const top = y.reduce((least, at) => Math.min(least, at), Number.POSITIVE_INFINITY);
  const seen = x.filter((_, box) => y[box] < top + height).sort();
  let best = [0, 0];
  for (let [from, to] = [0, 0]; to < seen.length; to++) {
    while (seen[to] - seen[from] > width) from++;
    if (to - from > best[1] - best[0]) best = [from, to];
  }
  return seen.length ? (seen[best[0]] + seen[best[1]]) / 2 : 0;
}

/** Where one is in a drawing, and where the arrow keys lead. */

import type { Layout } from "./layout";
import type { Picture } from "./picture";

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

/** The middle of the boxes at the very top: the first in a graph's order may be a parameter that is read far below. */
export function middleOfTop({ x, y }: Layout): number {
  const top = y.reduce((least, at) => Math.min(least, at), Number.POSITIVE_INFINITY);
  const highest = x.filter((_, box) => y[box] < top + 1);
  return highest.reduce((sum, at) => sum + at, 0) / (highest.length || 1);
}

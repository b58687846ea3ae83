/** An index of the boxes and edges of a drawing by position. */

import type { Layout } from "../layout/layout";
import type { SceneBox } from "./scene";

const BAND_HEIGHT = 400;

export interface Visible {
  boxes: number[];
  edges: number[];
}

/** Boxes and edges by the horizontal bands that they intersect. */
export class SpatialIndex {
  private readonly boxes: number[][] = [];
  private readonly edges: number[][] = [];
  private last = { first: 0, last: -1, found: { boxes: [], edges: [] } as Visible };

  constructor(
    private readonly shown: SceneBox[],
    private readonly layout: Layout,
  ) {
    shown.forEach((box, i) => {
      this.add(this.boxes, i, layout.y[i] - box.height / 2, layout.y[i] + box.height / 2);
    });
    layout.edges.forEach((points, i) => {
      if (!points.length || layout.isLong[i]) return;
      this.add(this.edges, i, points[1], points[points.length - 1]);
    });
  }

  private add(bands: number[][], at: number, one: number, other: number): void {
    const [top, bottom] = one < other ? [one, other] : [other, one];
    for (let band = Math.floor(top / BAND_HEIGHT); band <= Math.floor(bottom / BAND_HEIGHT); band++) {
      if (band < 0) continue;
      while (bands.length <= band) bands.push([]);
      bands[band].push(at);
    }
  }

  /** Returns the boxes and edges in the bands between two y coordinates. The last result is cached. */
  between(top: number, bottom: number): Visible {
    const [first, last] = [Math.max(0, Math.floor(top / BAND_HEIGHT)), Math.floor(bottom / BAND_HEIGHT)];
    if (first !== this.last.first || last !== this.last.last) {
      const found = { boxes: uniqueInBands(this.boxes, first, last), edges: uniqueInBands(this.edges, first, last) };
      this.last = { first, last, found };
    }
    return this.last.found;
  }

  /** Returns the box at a position, or -1. */
  at(x: number, y: number): number {
    for (const i of this.boxes[Math.floor(y / BAND_HEIGHT)] ?? []) {
      const { width, height } = this.shown[i];
      if (Math.abs(x - this.layout.x[i]) <= width / 2 && Math.abs(y - this.layout.y[i]) <= height / 2) return i;
    }
    return -1;
  }
}

function uniqueInBands(bands: number[][], first: number, last: number): number[] {
  if (first === last) return bands[first] ?? [];
  const seen = new Set<number>();
  for (let band = first; band <= Math.min(last, bands.length - 1); band++) for (const i of bands[band]) seen.add(i);
  return [...seen];
}

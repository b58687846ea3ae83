/** What lies in a part of a drawing, found without looking at the rest. */

import type { Layout } from "../layout/layout";
import type { Shown } from "./scene";

const BAND = 400;

export interface Found {
  boxes: number[];
  edges: number[];
}

/** Boxes and edges by the horizontal bands that they touch. */
export class Index {
  private readonly boxes: number[][] = [];
  private readonly edges: number[][] = [];
  private last = { first: 0, last: -1, found: { boxes: [], edges: [] } as Found };

  constructor(
    private readonly shown: Shown[],
    private readonly layout: Layout,
  ) {
    shown.forEach((box, i) => {
      this.add(this.boxes, i, layout.y[i] - box.height / 2, layout.y[i] + box.height / 2);
    });
    layout.edges.forEach((points, i) => {
      if (!points.length || layout.long[i]) return;
      this.add(this.edges, i, points[1], points[points.length - 1]);
    });
  }

  private add(bands: number[][], at: number, one: number, other: number): void {
    const [top, bottom] = one < other ? [one, other] : [other, one];
    for (let band = Math.floor(top / BAND); band <= Math.floor(bottom / BAND); band++) {
      if (band < 0) continue;
      while (bands.length <= band) bands.push([]);
      bands[band].push(at);
    }
  }

  /** Boxes and edges whose bands the window touches, each once; most frames touch those of the one before. */
  between(top: number, bottom: number): Found {
    const [first, last] = [Math.max(0, Math.floor(top / BAND)), Math.floor(bottom / BAND)];
    if (first !== this.last.first || last !== this.last.last) {
      const found = { boxes: once(this.boxes, first, last), edges: once(this.edges, first, last) };
      this.last = { first, last, found };
    }
    return this.last.found;
  }

  /** The box at a place, or -1. */
  at(x: number, y: number): number {
    for (const i of this.boxes[Math.floor(y / BAND)] ?? []) {
      const { width, height } = this.shown[i];
      if (Math.abs(x - this.layout.x[i]) <= width / 2 && Math.abs(y - this.layout.y[i]) <= height / 2) return i;
    }
    return -1;
  }
}

function once(bands: number[][], first: number, last: number): number[] {
  if (first === last) return bands[first] ?? [];
  const seen = new Set<number>();
  for (let band = first; band <= Math.min(last, bands.length - 1); band++) for (const i of bands[band]) seen.add(i);
  return [...seen];
}

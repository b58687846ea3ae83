/** Everything that the painter needs to draw one scene. */

import { shorten } from "../../dom/dom";
import type { Layout } from "../layout/layout";
import type { Groups } from "../scene/grouping";
import { Index } from "../scene/index";
import type { Scene } from "../scene/scene";
import type { Crossing } from "../scene/subject";
import type { Palette } from "./palette";

/** How a box stands out, as bits. */
export const LIT = { pinned: 1, "pin-linked": 2, hovered: 4, "hover-linked": 8, stepped: 16 } as const;

/** A group of boxes that is expanded: where it lies, for its name to be read from afar. */
export interface Place {
  title: string;
  depth: number;
  top: number;
  bottom: number;
  left: number;
}

export class Picture {
  readonly index: Index;
  readonly places: Place[];
  lit = new Map<number, number>();
  /** The boxes that a search found; null: nothing is searched for. */
  found: Set<number> | null = null;
  /** The box that the keys move from; -1: none. */
  current = -1;
  /** What colours the boxes instead of their roles, and what is written on them. */
  tint: Tint | null = null;
  /** The colour of each box's user line, -1 for none. */
  readonly stripes: Int8Array;
  /** What the partition cuts. */
  crossing: Crossing | null = null;
  private readonly edges: number[][];
  private readonly ends: Uint8Array;

  constructor(
    readonly scene: Scene,
    readonly layout: Layout,
    groups: Groups,
    stripe: (node: number) => number | null,
  ) {
    this.index = new Index(scene.shown, layout);
    const isLarge = scene.shown.length > MOST_WITHOUT_PLACES && layout.gutter === undefined;
    this.places = isLarge ? placesOf(scene, layout, groups) : [];
    this.stripes = Int8Array.from(scene.shown, (box) => (box.group === null ? (stripe(box.nodes[0]) ?? -1) : -1));
    this.edges = scene.shown.map(() => []);
    this.ends = new Uint8Array(scene.shown.length);
    scene.edges.forEach(([from, to], i) => {
      this.edges[from].push(i);
      this.edges[to].push(i);
      if (!layout.long[i]) return;
      this.ends[from] |= LONG_FROM;
      this.ends[to] |= LONG_TO;
    });
  }

  edgesOf(box: number): number[] {
    return this.edges[box];
  }

  /** Whether a long edge leaves, or reaches, a box. */
  longFrom(box: number): boolean {
    return Boolean(this.ends[box] & LONG_FROM);
  }

  longTo(box: number): boolean {
    return Boolean(this.ends[box] & LONG_TO);
  }

  /** The boxes that these edges lead to from `box` (`step` 1) or come from (`step` 0), in the edges' order. */
  neighbours(box: number, step: 0 | 1): number[] {
    return this.edges[box]
      .map((i) => this.scene.edges[i])
      .filter((e) => e[1 - step] === box)
      .map((e) => e[step]);
  }
}

const LONG_FROM = 1;
const LONG_TO = 2;

/** A colour for each box: an index into what `colours` gives, and a text. */
export interface Tint {
  colours(palette: Palette): [fill: string, frame: string][];
  of: Uint8Array;
  text: (string | null)[];
  legend: { text: string; swatch: string }[];
}

const LEAST_BOXES = 2;
const LONGEST = 40;
const MOST_WITHOUT_PLACES = 60;

function placesOf(scene: Scene, layout: Layout, groups: Groups): Place[] {
  const places = new Map<string, Place & { boxes: number }>();
  scene.shown.forEach((box, i) => {
    const own = groups[box.nodes[0]] ?? [];
    own.forEach((title, depth) => {
      if (title === box.group) return;
      const [top, bottom] = [layout.y[i] - box.height / 2, layout.y[i] + box.height / 2];
      const left = layout.x[i] - box.width / 2;
      const known = places.get(title);
      if (!known) places.set(title, { title: shorten(title, LONGEST), depth, top, bottom, left, boxes: 1 });
      else {
        known.boxes++;
        known.top = Math.min(known.top, top);
        known.bottom = Math.max(known.bottom, bottom);
        known.left = Math.min(known.left, left);
      }
    });
  });
  return [...places.values()].filter((p) => p.boxes >= LEAST_BOXES).sort((a, b) => a.depth - b.depth);
}

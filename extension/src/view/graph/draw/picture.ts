/** A scene with its layout, colours and highlights: everything that the painter needs. */

import { shorten } from "../../dom/format";
import type { Layout } from "../layout/layout";
import type { CutDrawing } from "../scene/drawable_graph";
import type { Groups } from "../scene/grouping";
import type { Scene } from "../scene/scene";
import { SpatialIndex } from "../scene/spatial_index";
import type { Palette } from "./palette";

/** How a box is highlighted, as bits. */
export const HIGHLIGHT = { pinned: 1, "pin-linked": 2, hovered: 4, "hover-linked": 8, stepped: 16 } as const;

/** The extent of an expanded group, beside which its name is drawn at small scales. */
export interface GroupExtent {
  title: string;
  depth: number;
  top: number;
  bottom: number;
  left: number;
}

export class Picture {
  readonly index: SpatialIndex;
  readonly groupExtents: GroupExtent[];
  highlighted = new Map<number, number>();
  /** The boxes that match the search; null without a search. */
  found: Set<number> | null = null;
  /** The box that the keys move from; -1 for none. */
  current = -1;
  /** The colours and texts of an overlay; null for the colours of the roles. */
  colouring: Colouring | null = null;
  /** The colour of each box's user line; -1 for none. */
  readonly stripes: Int8Array;
  /** The cut of the partition. */
  cut: CutDrawing | null = null;
  private readonly edges: number[][];
  private readonly longEnds: Uint8Array;

  constructor(
    readonly scene: Scene,
    readonly layout: Layout,
    groups: Groups,
    stripe: (node: number) => number | null,
  ) {
    this.index = new SpatialIndex(scene.boxes, layout);
    const isLarge = scene.boxes.length > MAX_WITHOUT_NAMES && layout.gutter === undefined;
    this.groupExtents = isLarge ? groupExtentsOf(scene, layout, groups) : [];
    this.stripes = Int8Array.from(scene.boxes, (box) => (box.group === null ? (stripe(box.nodes[0]) ?? -1) : -1));
    this.edges = scene.boxes.map(() => []);
    this.longEnds = new Uint8Array(scene.boxes.length);
    scene.edges.forEach(([from, to], i) => {
      this.edges[from].push(i);
      this.edges[to].push(i);
      if (!layout.isLong[i]) return;
      this.longEnds[from] |= LONG_FROM;
      this.longEnds[to] |= LONG_TO;
    });
  }

  edgesOf(box: number): number[] {
    return this.edges[box];
  }

  /** Whether a long edge leaves a box. */
  hasLongOutput(box: number): boolean {
    return Boolean(this.longEnds[box] & LONG_FROM);
  }

  hasLongInput(box: number): boolean {
    return Boolean(this.longEnds[box] & LONG_TO);
  }

  /** Returns the boxes that edges lead to from `box` (`step` 1) or come from (`step` 0), in the edges' order. */
  neighbours(box: number, step: 0 | 1): number[] {
    return this.edges[box]
      .map((i) => this.scene.edges[i])
      .filter((e) => e[1 - step] === box)
      .map((e) => e[step]);
  }
}

const LONG_FROM = 1;
const LONG_TO = 2;

/** A colour for each box, as an index into `colours`, and a text that replaces the subtitle. */
export interface Colouring {
  colours(palette: Palette): [fill: string, frame: string][];
  colourOf: Uint8Array;
  text: (string | null)[];
  legend: { text: string; swatch: string }[];
}

const MIN_GROUP_BOXES = 2;
const MAX_TITLE = 40;
const MAX_WITHOUT_NAMES = 60;

function groupExtentsOf(scene: Scene, layout: Layout, groups: Groups): GroupExtent[] {
  const places = new Map<string, GroupExtent & { boxes: number }>();
  scene.boxes.forEach((box, i) => {
    const own = groups[box.nodes[0]] ?? [];
    own.forEach((title, depth) => {
      if (title === box.group) return;
      const [top, bottom] = [layout.y[i] - box.height / 2, layout.y[i] + box.height / 2];
      const left = layout.x[i] - box.width / 2;
      const known = places.get(title);
      if (!known) places.set(title, { title: shorten(title, MAX_TITLE), depth, top, bottom, left, boxes: 1 });
      else {
        known.boxes++;
        known.top = Math.min(known.top, top);
        known.bottom = Math.max(known.bottom, bottom);
        known.left = Math.min(known.left, left);
      }
    });
  });
  return [...places.values()].filter((p) => p.boxes >= MIN_GROUP_BOXES).sort((a, b) => a.depth - b.depth);
}

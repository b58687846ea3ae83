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

/** The rectangle around the boxes of an expanded group that has no other box in it. */
export interface GroupFrame {
  title: string;
  left: number;
  top: number;
  width: number;
  height: number;
}

export class Picture {
  readonly index: SpatialIndex;
  readonly groupFrames: GroupFrame[];
  readonly groupExtents: GroupExtent[];
  highlighted = new Map<number, number>();
  /** The boxes that match the search; null without a search. */
  found: Set<number> | null = null;
  /** The boxes whose nodes are created after the current step of the symbolic interpreter. */
  later = new Set<number>();
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
    this.groupFrames = groupFramesOf(scene, layout);
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

  /** Whether a box is drawn faintly: it does not match the search, or is not there yet. */
  isFaint(box: number): boolean {
    return this.later.has(box) || (this.found !== null && !this.found.has(box));
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

/** Drawings of more boxes have no frames. */
const MAX_FRAMED_BOXES = 400;
const FRAME_PX = 7;

function groupFramesOf({ boxes }: Scene, layout: Layout): GroupFrame[] {
  if (boxes.length > MAX_FRAMED_BOXES) return [];
  const groups = new Map<string, { own: Set<number>; below: number }>();
  boxes.forEach(({ within }, i) => {
    within.forEach((name, depth) => {
      const known = groups.get(name) ?? { own: new Set(), below: 0 };
      known.own.add(i);
      known.below = Math.max(known.below, within.length - 1 - depth);
      groups.set(name, known);
    });
  });
  const frames: GroupFrame[] = [];
  for (const [title, { own, below }] of groups) {
    if (own.size < MIN_GROUP_BOXES) continue;
    const room = FRAME_PX * (1 + below);
    const edge = (side: (i: number) => number, most: (...values: number[]) => number) => most(...[...own].map(side));
    const left = edge((i) => layout.x[i] - boxes[i].width / 2, Math.min) - room;
    const right = edge((i) => layout.x[i] + boxes[i].width / 2, Math.max) + room;
    const top = edge((i) => layout.y[i] - boxes[i].height / 2, Math.min) - room;
    const bottom = edge((i) => layout.y[i] + boxes[i].height / 2, Math.max) + room;
    const isApart = boxes.every(
      ({ width, height }, i) =>
        own.has(i) ||
        layout.x[i] + width / 2 < left ||
        layout.x[i] - width / 2 > right ||
        layout.y[i] + height / 2 < top ||
        layout.y[i] - height / 2 > bottom,
    );
    if (isApart)
      frames.push({ title: shorten(title, MAX_TITLE), left, top, width: right - left, height: bottom - top });
  }
  return frames;
}

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

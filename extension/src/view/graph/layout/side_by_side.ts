/**
 * Two graphs side by side. A backward is drawn upwards beside its forward: values saved last are next to where they are
 * used first.
 */

import { type Box, type Layout, layOut, type Pair } from "./layout";

const GUTTER = 150;

export interface PageSplit {
  isRight(box: number): boolean;
  /** Whether the right graph is drawn upwards. */
  isUpwards: boolean;
  /** Whether an edge leads from one graph to the other. */
  joins(edge: Pair): boolean;
}

export async function layOutSideBySide(boxes: Box[], edges: Pair[], pages: PageSplit): Promise<Layout> {
  const sides = [0, 1].map((side) => pageOf(boxes, edges, pages, side));
  const [left, right] = await Promise.all(sides.map((page) => layOut(page.boxes, page.edges)));
  const height = Math.max(left.height, right.height);
  const offset = left.width + GUTTER;
  const layout: Layout = {
    width: offset + right.width,
    height,
    x: new Float64Array(boxes.length),
    y: new Float64Array(boxes.length),
    edges: edges.map(() => new Float32Array()),
    isLong: new Uint8Array(edges.length),
    gutter: left.width + GUTTER / 2,
  };
  placePage(
    layout,
    sides[0],
    left,
    (x) => x,
    (y) => y + height - left.height,
  );
  placePage(
    layout,
    sides[1],
    right,
    (x) => x + offset,
    (y) => (pages.isUpwards ? height - y : y + height - right.height),
  );
  edges.forEach((edge, i) => {
    if (pages.joins(edge)) layout.edges[i] = joiningCurve(layout, boxes, edge);
  });
  return layout;
}

interface Page {
  boxes: Box[];
  edges: Pair[];
  /** Indices of its boxes and edges among all. */
  boxAt: number[];
  edgeAt: number[];
}

function pageOf(boxes: Box[], edges: Pair[], pages: PageSplit, side: number): Page {
  const boxAt = [...boxes.keys()].filter((box) => Number(pages.isRight(box)) === side);
  const own = new Map(boxAt.map((box, i) => [box, i]));
  const edgeAt = [...edges.keys()].filter((i) => edges[i].every((end) => own.has(end)));
  const inside = edgeAt.map((i): Pair => [own.get(edges[i][0]) ?? 0, own.get(edges[i][1]) ?? 0]);
  return { boxes: boxAt.map((box) => boxes[box]), edges: inside, boxAt, edgeAt };
}

type Move = (value: number) => number;

function placePage(layout: Layout, page: Page, from: Layout, moveX: Move, moveY: Move): void {
  page.boxAt.forEach((box, i) => {
    layout.x[box] = moveX(from.x[i]);
    layout.y[box] = moveY(from.y[i]);
  });
  page.edgeAt.forEach((edge, i) => {
    layout.edges[edge] = from.edges[i].map((value, at) => (at % 2 ? moveY(value) : moveX(value)));
    layout.isLong[edge] = from.isLong[i];
  });
}

/** Returns the curve of an edge across the gutter, from the right side of one box to the left side of the other. */
function joiningCurve({ x, y }: Layout, boxes: Box[], [from, to]: Pair): Float32Array {
  const start = x[from] + boxes[from].width / 2;
  const end = x[to] - boxes[to].width / 2;
  const reach = Math.max(40, (end - start) / 2);
  return Float32Array.of(start, y[from], start + reach, y[from], end - reach, y[to], end, y[to]);
}

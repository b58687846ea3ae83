/** Two graphs as facing pages: one reads down, the other up, so that what is used last faces what was made first. */

import { type Box, type Layout, layOut, type Pair } from "./layout";

const GUTTER = 150;

export interface Pages {
  isRight(box: number): boolean;
  /** Whether an edge goes from one page to the other. */
  joins(edge: Pair): boolean;
}

export async function facing(boxes: Box[], edges: Pair[], pages: Pages): Promise<Layout> {
  const sides = [0, 1].map((side) => pageOf(boxes, edges, pages, side));
  const [left, right] = await Promise.all(sides.map((page) => layOut(page.boxes, page.edges)));
  const height = Math.max(left.height, right.height);
  const offset = left.width + GUTTER;
  const made: Layout = {
    width: offset + right.width,
    height,
    x: new Float64Array(boxes.length),
    y: new Float64Array(boxes.length),
    edges: edges.map(() => new Float32Array()),
    long: new Uint8Array(edges.length),
    gutter: left.width + GUTTER / 2,
  };
  set(
    made,
    sides[0],
    left,
    (x) => x,
    (y) => y + height - left.height,
  );
  set(
    made,
    sides[1],
    right,
    (x) => x + offset,
    (y) => height - y,
  );
  edges.forEach((edge, i) => {
    if (pages.joins(edge)) made.edges[i] = join(made, boxes, edge);
  });
  return made;
}

interface Page {
  boxes: Box[];
  edges: Pair[];
  /** Where its boxes and edges are among all. */
  boxAt: number[];
  edgeAt: number[];
}

function pageOf(boxes: Box[], edges: Pair[], pages: Pages, side: number): Page {
  const boxAt = [...boxes.keys()].filter((box) => Number(pages.isRight(box)) === side);
  const own = new Map(boxAt.map((box, i) => [box, i]));
  const edgeAt = [...edges.keys()].filter((i) => edges[i].every((end) => own.has(end)));
  const inside = edgeAt.map((i): Pair => [own.get(edges[i][0]) ?? 0, own.get(edges[i][1]) ?? 0]);
  return { boxes: boxAt.map((box) => boxes[box]), edges: inside, boxAt, edgeAt };
}

type Move = (value: number) => number;

function set(made: Layout, page: Page, from: Layout, moveX: Move, moveY: Move): void {
  page.boxAt.forEach((box, i) => {
    made.x[box] = moveX(from.x[i]);
    made.y[box] = moveY(from.y[i]);
  });
  page.edgeAt.forEach((edge, i) => {
    made.edges[edge] = from.edges[i].map((value, at) => (at % 2 ? moveY(value) : moveX(value)));
    made.long[edge] = from.long[i];
  });
}

/** Across the gutter, from the side of one box to the side of the other. */
function join({ x, y }: Layout, boxes: Box[], [from, to]: Pair): Float32Array {
  const start = x[from] + boxes[from].width / 2;
  const end = x[to] - boxes[to].width / 2;
  const reach = Math.max(40, (end - start) / 2);
  return Float32Array.of(start, y[from], start + reach, y[from], end - reach, y[to], end, y[to]);
}

/**
 * Our own layered layout, linear in nodes and edges: ranks by the longest path, order within a rank by a
 * few sweeps of barycentres, positions by least squares that keep the order.  After Sugiyama, Tagawa and
 * Toda (1981); an edge is bent around boxes where it is short, and drawn on demand where it is long.
 */

import type { Box, Layout, Pair } from "./layout";

const RANK_GAP = 24;
const BOX_GAP = 16;
const BEND_WIDTH = 8;
const LONGEST_BENT = 24;
const SWEEPS = 4;

/** Boxes and, after them, the bends of edges that pass ranks; `up` and `down` are neighbours in the next ranks. */
interface Items {
  /** How many of them are boxes: they come first. */
  boxes: number;
  rank: Int32Array;
  width: Float64Array;
  up: number[][];
  down: number[][];
  /** The items of each edge, its ends included; empty for a long one. */
  chains: number[][];
}

/** Boxes are given in an order in which most edges go forwards; those that do not are drawn upwards. */
export function layered(boxes: Box[], edges: Pair[]): Layout {
  const ranks = ranksOf(boxes.length, edges);
  const items = bend(boxes, edges, ranks);
  const rows = fillRows(items);
  for (let i = 0; i < SWEEPS; i++) order(rows, i % 2 ? items.down : items.up, i % 2 === 1);
  const x = place(rows, items);
  return draw(boxes, edges, items, rows, x);
}

/** The longest path to each box; then parameters, and what is made of one alone, go down to their readers. */
export function ranksOf(count: number, edges: Pair[]): Int32Array {
  const rank = new Int32Array(count);
  const after: number[][] = Array.from({ length: count }, () => []);
  const inputs = new Int32Array(count);
  for (const [from, to] of edges) {
    if (from === to) continue;
    after[Math.min(from, to)].push(Math.max(from, to));
    inputs[Math.max(from, to)]++;
  }
  const loose = Uint8Array.from(inputs, (n) => (n === 0 ? 1 : 0));
  for (let at = 0; at < count; at++) {
    for (const to of after[at]) {
      rank[to] = Math.max(rank[to], rank[at] + 1);
      if (loose[at] && inputs[to] === 1) loose[to] = 1;
    }
  }
  for (let at = count - 1; at >= 0; at--) {
    if (!loose[at] || !after[at].length) continue;
    let least = Number.POSITIVE_INFINITY;
    for (const to of after[at]) least = Math.min(least, rank[to] - 1);
    rank[at] = least;
  }
  return rank;
}

function bend(boxes: Box[], edges: Pair[], ranks: Int32Array): Items {
  const spans = edges.map(([from, to]) => Math.abs(ranks[to] - ranks[from]));
  const most = longestBent(spans, 3 * boxes.length + 1000);
  const rank = [...ranks];
  const width = boxes.map((box) => box.width);
  const up: number[][] = boxes.map(() => []);
  const down: number[][] = boxes.map(() => []);
  const chains = edges.map(([from, to], i) => {
    if (!spans[i] || spans[i] > most) return [];
    const [high, low] = ranks[from] < ranks[to] ? [from, to] : [to, from];
    const chain = [high];
    for (let at = ranks[high] + 1; at < ranks[low]; at++) {
      chain.push(rank.length);
      rank.push(at);
      width.push(BEND_WIDTH);
      up.push([]);
      down.push([]);
    }
    chain.push(low);
    for (let at = 1; at < chain.length; at++) {
      down[chain[at - 1]].push(chain[at]);
      up[chain[at]].push(chain[at - 1]);
    }
    return from === high ? chain : chain.reverse();
  });
  return { boxes: boxes.length, rank: Int32Array.from(rank), width: Float64Array.from(width), up, down, chains };
}

/** The longest span at which all edges up to it take no more than `most` bends. */
function longestBent(spans: number[], most: number): number {
  const counts = new Array(LONGEST_BENT + 1).fill(0);
  for (const span of spans) if (span <= LONGEST_BENT) counts[span]++;
  let bends = 0;
  for (let span = 2; span <= LONGEST_BENT; span++) {
    bends += counts[span] * (span - 1);
    if (bends > most) return span - 1;
  }
  return LONGEST_BENT;
}

function fillRows(items: Items): number[][] {
  const rows: number[][] = [];
  items.rank.forEach((rank, item) => {
    while (rows.length <= rank) rows.push([]);
    rows[rank].push(item);
  });
  return rows;
}

/** Sort each row by the mean place of its items' neighbours in the row before it. */
function order(rows: number[][], neighbours: number[][], upwards: boolean): void {
  const place = new Float64Array(neighbours.length);
  const walk = upwards ? [...rows].reverse() : rows;
  for (const row of walk) {
    const want = row.map((item, i) => {
      const near = neighbours[item];
      let sum = 0;
      for (const other of near) sum += place[other];
      return near.length ? sum / near.length : (i + 0.5) / row.length;
    });
    const sorted = row.map((_, i) => i).sort((a, b) => want[a] - want[b]);
    const before = [...row];
    sorted.forEach((from, i) => {
      row[i] = before[from];
      // between 0 and 1, so that wide and narrow rows compare
      place[row[i]] = (i + 0.5) / row.length;
    });
  }
}

/** Sweep down and up; each item goes as near to the middle of its neighbours as its row allows. */
function place(rows: number[][], items: Items): Float64Array {
  const x = new Float64Array(items.rank.length);
  for (const row of rows) centre(row, items, x);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const upwards = sweep % 2 === 1;
    const near = upwards ? items.down : items.up;
    for (const row of upwards ? [...rows].reverse() : rows) fit(row, near, items, x);
  }
  return x;
}

function centre(row: number[], items: Items, x: Float64Array): void {
  let end = 0;
  for (const item of row) {
    x[item] = end + items.width[item] / 2;
    end += items.width[item] + BOX_GAP;
  }
  for (const item of row) x[item] -= (end - BOX_GAP) / 2;
}

/** Least squares with a kept order: "pool adjacent violators" over places less the room taken before. */
function fit(row: number[], near: number[][], items: Items, x: Float64Array): void {
  const before = roomBefore(row, items);
  const blocks: { sum: number; weight: number; count: number }[] = [];
  row.forEach((item, i) => {
    const [want, weight] = wanted(item, near[item], items, x);
    let block = { sum: (want - before[i]) * weight, weight, count: 1 };
    for (let last = blocks.at(-1); last && last.sum / last.weight > block.sum / block.weight; last = blocks.at(-1)) {
      blocks.pop();
      block = { sum: last.sum + block.sum, weight: last.weight + block.weight, count: last.count + block.count };
    }
    blocks.push(block);
  });
  let i = 0;
  for (const block of blocks) {
    for (const end = i + block.count; i < end; i++) x[row[i]] = block.sum / block.weight + before[i];
  }
}

/** From the middle of the first item of a row to the middle of each. */
function roomBefore(row: number[], items: Items): number[] {
  const room = [0];
  for (let i = 1; i < row.length; i++) {
    room.push(room[i - 1] + (items.width[row[i - 1]] + items.width[row[i]]) / 2 + BOX_GAP);
  }
  return room;
}

/** Where an item wants to be, and how much. */
function wanted(item: number, near: number[], items: Items, x: Float64Array): [place: number, weight: number] {
  let [sum, weight] = [0, 0];
  for (const other of near) {
    // the bends of one edge stand straight above each other
    const stiff = item >= items.boxes && other >= items.boxes ? 8 : 1;
    sum += stiff * x[other];
    weight += stiff;
  }
  return weight ? [sum / weight, weight] : [x[item], 0.1];
}

function draw(boxes: Box[], edges: Pair[], items: Items, rows: number[][], x: Float64Array): Layout {
  let [left, right] = [0, 0];
  for (let item = 0; item < x.length; item++) {
    left = Math.min(left, x[item] - items.width[item] / 2);
    right = Math.max(right, x[item] + items.width[item] / 2);
  }
  const heights = rows.map((row) =>
    row.reduce((most, i) => (i < boxes.length ? Math.max(most, boxes[i].height) : most), 0),
  );
  let height = 0;
  const middles = heights.map((own) => {
    height += own + RANK_GAP;
    return height - RANK_GAP - own / 2;
  });
  for (let item = 0; item < x.length; item++) x[item] -= left;
  const y = Float64Array.from(items.rank, (rank) => middles[rank]);
  return {
    width: right - left,
    height: Math.max(0, height - RANK_GAP),
    x: x.slice(0, boxes.length),
    y: y.slice(0, boxes.length),
    edges: edges.map(([from, to], i) => curve(items.chains[i].length ? items.chains[i] : [from, to], x, y, boxes)),
    long: Uint8Array.from(items.chains, (chain) => (chain.length ? 0 : 1)),
  };
}

/** From the foot of the first item to the head of the last, upright at each bend between. */
function curve(chain: number[], x: Float64Array, y: Float64Array, boxes: Box[]): Float32Array {
  const points = new Float32Array(2 + 6 * (chain.length - 1));
  const last = chain.length - 1;
  const upwards = y[chain[0]] > y[chain[last]];
  const side = (at: number) =>
    (at === 0 ? 1 : at === last ? -1 : 0) * (upwards ? -0.5 : 0.5) * (boxes[chain[at]]?.height ?? 0);
  let [px, py] = [x[chain[0]], y[chain[0]] + side(0)];
  points.set([px, py]);
  for (let at = 1; at <= last; at++) {
    const [nx, ny] = [x[chain[at]], y[chain[at]] + side(at)];
    const middle = (py + ny) / 2;
    points.set([px, middle, nx, middle, nx, ny], 6 * at - 4);
    [px, py] = [nx, ny];
  }
  return points;
}

/**
 * Layered layout in linear time in nodes and edges, after Sugiyama, Tagawa and Toda (1981): ranks by the
 * longest path, order within a rank by a few barycentre sweeps, positions by least squares with fixed order.
 * Short edges are bent around boxes; long ones are drawn only on demand.
 */

import type { Box, Layout, Pair } from "./layout";

const RANK_GAP = 24;
const BOX_GAP = 16;
const BEND_WIDTH = 8;
const MAX_BENT_SPAN = 24;
const SWEEPS = 4;

/** Boxes followed by the bends of edges that span ranks; `up` and `down` are the neighbours in the adjacent ranks. */
interface LayerItems {
  /** The number of boxes, which come first. */
  boxes: number;
  rank: Int32Array;
  width: Float64Array;
  up: number[][];
  down: number[][];
  /** The items of each edge including its ends; empty for a long edge. */
  chains: number[][];
}

/** Lays out boxes, given in an order in which most edges lead forwards; other edges are drawn upwards. */
export function layered(boxes: Box[], edges: Pair[]): Layout {
  const ranks = ranksOf(boxes.length, edges);
  const items = addBends(boxes, edges, ranks);
  const rows = fillRows(items);
  for (let i = 0; i < SWEEPS; i++) orderRows(rows, i % 2 ? items.down : items.up, i % 2 === 1);
  const x = assignX(rows, items);
  return makeLayout(boxes, edges, items, rows, x);
}

/**
 * Ranks boxes by the longest path to them; then inputs, and chains from a single input, are moved down to their users.
 */
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

function addBends(boxes: Box[], edges: Pair[], ranks: Int32Array): LayerItems {
  const spans = edges.map(([from, to]) => Math.abs(ranks[to] - ranks[from]));
  const most = maxBentSpan(spans, 3 * boxes.length + 1000);
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

/** Returns the largest span such that all edges up to it need at most `most` bends. */
function maxBentSpan(spans: number[], most: number): number {
  const counts = new Array(MAX_BENT_SPAN + 1).fill(0);
  for (const span of spans) if (span <= MAX_BENT_SPAN) counts[span]++;
  let bends = 0;
  for (let span = 2; span <= MAX_BENT_SPAN; span++) {
    bends += counts[span] * (span - 1);
    if (bends > most) return span - 1;
  }
  return MAX_BENT_SPAN;
}

function fillRows(items: LayerItems): number[][] {
  const rows: number[][] = [];
  items.rank.forEach((rank, item) => {
    while (rows.length <= rank) rows.push([]);
    rows[rank].push(item);
  });
  return rows;
}

/** Sorts each row by the mean position of its items' neighbours in the previous row. */
function orderRows(rows: number[][], neighbours: number[][], upwards: boolean): void {
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
      // between 0 and 1, so that positions in wide and narrow rows are comparable
      place[row[i]] = (i + 0.5) / row.length;
    });
  }
}

/** Returns x coordinates: sweeps down and up move each item as close to its neighbours' mean as its row allows. */
function assignX(rows: number[][], items: LayerItems): Float64Array {
  const x = new Float64Array(items.rank.length);
  for (const row of rows) centreRow(row, items, x);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const upwards = sweep % 2 === 1;
    const near = upwards ? items.down : items.up;
    for (const row of upwards ? [...rows].reverse() : rows) fitRow(row, near, items, x);
  }
  return x;
}

function centreRow(row: number[], items: LayerItems, x: Float64Array): void {
  let end = 0;
  for (const item of row) {
    x[item] = end + items.width[item] / 2;
    end += items.width[item] + BOX_GAP;
  }
  for (const item of row) x[item] -= (end - BOX_GAP) / 2;
}

/** Least squares with fixed order: pool adjacent violators on positions minus minimal offsets. */
function fitRow(row: number[], near: number[][], items: LayerItems, x: Float64Array): void {
  const before = minOffsets(row, items);
  const blocks: { sum: number; weight: number; count: number }[] = [];
  row.forEach((item, i) => {
    const [want, weight] = desiredX(item, near[item], items, x);
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

/** Returns the minimal distance of each item's middle from the middle of the row's first item. */
function minOffsets(row: number[], items: LayerItems): number[] {
  const offsets = [0];
  for (let i = 1; i < row.length; i++) {
    offsets.push(offsets[i - 1] + (items.width[row[i - 1]] + items.width[row[i]]) / 2 + BOX_GAP);
  }
  return offsets;
}

/** Returns the desired x coordinate of an item, and its weight. */
function desiredX(item: number, near: number[], items: LayerItems, x: Float64Array): [place: number, weight: number] {
  let [sum, weight] = [0, 0];
  for (const other of near) {
    // keeps the bends of an edge in a straight line
    const stiff = item >= items.boxes && other >= items.boxes ? 8 : 1;
    sum += stiff * x[other];
    weight += stiff;
  }
  return weight ? [sum / weight, weight] : [x[item], 0.1];
}

function makeLayout(boxes: Box[], edges: Pair[], items: LayerItems, rows: number[][], x: Float64Array): Layout {
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
    isLong: Uint8Array.from(items.chains, (chain) => (chain.length ? 0 : 1)),
  };
}

/** Returns the curve from the bottom of the first item to the top of the last, vertical at each bend. */
function curve(chain: number[], x: Float64Array, y: Float64Array, boxes: Box[]): Float32Array {
  const points = new Float32Array(2 + 6 * (chain.length - 1));
  const last = chain.length - 1;
  const direction = y[chain[0]] > y[chain[last]] ? -1 : 1;
  // from the middle of an item to the end of the edge: the border of a box, or the middle of a bend
  const halfHeight = (at: number) => (boxes[chain[at]]?.height ?? 0) / 2;
  const offset = (at: number) => {
    if (at === 0) return direction * halfHeight(at);
    return at === last ? -direction * halfHeight(at) : 0;
  };
  let [px, py] = [x[chain[0]], y[chain[0]] + offset(0)];
  points.set([px, py]);
  for (let at = 1; at <= last; at++) {
    const [nx, ny] = [x[chain[at]], y[chain[at]] + offset(at)];
    const middle = (py + ny) / 2;
    points.set([px, middle, nx, middle, nx, ny], 6 * at - 4);
    [px, py] = [nx, ny];
  }
  return points;
}

/** The iteration space of a loop nest as a small grid: what a thread, a block and a vector cover, and in which order. */

import type { NestLoop, Rewrite } from "../record/record";

/** A cell's range on one axis: a vector, or one element. */
export interface Unit {
  start: number;
  size: number;
  /** Whether it is the first one of a block. */
  startsBlock: boolean;
  /** Whether others before it are left out. */
  afterGap: boolean;
}

/** One index of the loop nest. */
export interface Axis {
  index: string;
  units: Unit[];
  /** Whether there are more units after the last one: the end is not known. */
  isOpen: boolean;
  /** The number of elements of a block; 0 if the loop is not split. */
  block: number;
  /** What one iteration of the loop that threads or programs share covers; null: everything. */
  own: [start: number, end: number] | null;
}

export interface IterationSpace {
  /** The loops around the innermost line that is drawn, outermost first. */
  loops: NestLoop[];
  rows: Axis | null;
  columns: Axis;
  /** The drawn cells of one iteration of the loops over threads, as row and column, in the order of execution. */
  order: [row: number, column: number][];
  /** How many of these, from the first on, are executed without others between them. */
  consecutive: number;
}

const MAX_UNITS = 7;
const MAX_UNITS_OF_BLOCK = 3;
const MAX_BLOCKS = 3;
const MAX_ORDER = 150;
const MAX_DEPTH = 20;

/** The loops of the first sweep with the most loops around it, outermost first. */
export function deepestLoops({ loops }: Rewrite): NestLoop[] {
  const depths: number[] = [];
  for (const { parent } of loops) depths.push((depths[parent] ?? 0) + 1);
  const depth = depths.reduce((most, each) => Math.max(most, each), 0);
  if (depth > MAX_DEPTH) return [];
  const found: NestLoop[] = [];
  for (let at = depths.indexOf(depth); found.length < depth; at = loops[at].parent) found.unshift(loops[at]);
  return found;
}

/** Returns the indices that are drawn, rows first: the last two of the nest that the schedule starts with. */
export function drawnIndices(start: Rewrite): string[] {
  return [...new Set(deepestLoops(start).map(({ index }) => index))].slice(-2);
}

/** Returns the iteration space of a nest over `indices`; null if it has no loop over the last one. */
export function iterationSpace(nest: Rewrite, indices: string[]): IterationSpace | null {
  const loops = deepestLoops(nest);
  const last = indices.at(-1);
  if (last !== undefined && !loops.some(({ index }) => index === last))
    return iterationSpaceOf(loops, ownIndices(loops));
  return iterationSpaceOf(loops, indices);
}

/** The last two indices of a nest whose loops were fused: those that are not over blocks. */
function ownIndices(loops: NestLoop[]): string[] {
  return [
    ...new Set(loops.filter(({ index }) => !loops.some(({ block }) => block === index)).map(({ index }) => index)),
  ].slice(-2);
}

function iterationSpaceOf(loops: NestLoop[], indices: string[]): IterationSpace | null {
  const axes = indices.map((index) => axisOf(index, ofIndex(loops, index)));
  const columns = axes.at(-1);
  if (!columns) return null;
  const rows = axes.length > 1 ? axes[0] : null;
  const order = [...drawnOrder(loops, rows, columns)];
  return { loops, rows, columns, order, consecutive: consecutive(order, rows, columns) };
}

/** Whether threads, or the programs of a GPU, share the iterations of a loop. */
export function isShared({ is_threaded, is_program }: NestLoop): boolean {
  return is_threaded || is_program;
}

/** Whether several elements of a loop are processed at a time: in vectors, or by the threads of a program. */
function isWhole({ is_vector, is_block }: NestLoop): boolean {
  return is_vector || is_block;
}

/** The loops over an index and over its blocks, outermost first. */
function ofIndex(loops: NestLoop[], index: string): NestLoop[] {
  const names = new Set([index]);
  for (const loop of [...loops].reverse()) if (names.has(loop.index) && loop.block) names.add(loop.block);
  return loops.filter((loop) => names.has(loop.index));
}

function axisOf(index: string, loops: NestLoop[]): Axis | null {
  const first = loops.at(0);
  const last = loops.at(-1);
  if (!first || !last) return null;
  const start = Number(first.start) || 0;
  const end = typeof first.end === "number" ? first.end : Number.POSITIVE_INFINITY;
  const block = last.block ? Math.max(1, last.size) : 0;
  const unit = stepOf(last, block || end - start);
  const thread = loops.find(isShared);
  const own: Axis["own"] = thread ? [start, start + stepOf(thread, thread === last ? block || end - start : 0)] : null;
  const units: Unit[] = [];
  let before = start;
  for (const from of starts(start, end, block || end - start, MAX_BLOCKS)) {
    const to = Math.min(from + (block || end - start), end);
    for (const at of starts(from, to, unit, block ? MAX_UNITS_OF_BLOCK : MAX_UNITS)) {
      const size = Math.min(unit, to - at);
      units.push({ start: at, size, startsBlock: block > 0 && at === from && units.length > 0, afterGap: at > before });
      before = at + size;
    }
  }
  return { index, units, isOpen: before < end, block, own };
}

/** The elements of one iteration of a loop; a vector without a number of lanes counts as all `length` elements. */
function stepOf(loop: NestLoop, length: number): number {
  return Math.max(1, isWhole(loop) ? loop.lanes || length : loop.step);
}

/** Returns where the first parts of a range start, and the last part, in steps of `step`. */
function starts(from: number, to: number, step: number, most: number): number[] {
  const count = Math.ceil((to - from) / step) || 1; // a symbolic range in one part
  const shown = Math.min(count, most);
  const found = Array.from({ length: shown }, (_, n) => from + n * step || from);
  if (Number.isFinite(count)) found[shown - 1] = from + (count - 1) * step || from;
  return found;
}

/** Yields the drawn cells that one iteration of the loops over threads visits, in the order of execution. */
function* drawnOrder(loops: NestLoop[], rows: Axis | null, columns: Axis): Generator<[row: number, column: number]> {
  const axes = new Map<NestLoop, Axis>();
  for (const axis of rows ? [rows, columns] : [columns])
    for (const loop of ofIndex(loops, axis.index)) axes.set(loop, axis);
  const shown = [...axes.keys()].sort((a, b) => loops.indexOf(a) - loops.indexOf(b));
  let count = 0;
  function* visit(at: number, values: Map<string, number>): Generator<[number, number]> {
    const loop = shown[at];
    if (!loop) {
      const row = rows ? unitAt(rows, values) : 0;
      const column = unitAt(columns, values);
      if (row >= 0 && column >= 0 && count++ < MAX_ORDER) yield [row, column];
      return;
    }
    const [from, to] = rangeOf(loop, values);
    const step = stepOf(loop, to - from);
    const inside = axes.get(loop)?.units.filter(({ start }) => start >= from && start < to) ?? [];
    const reached = new Set(inside.map(({ start }) => from + (Math.floor((start - from) / step) * step || 0)));
    for (const value of [...reached].slice(0, isShared(loop) ? 1 : undefined))
      yield* visit(at + 1, new Map(values).set(loop.index, value));
  }
  yield* visit(0, new Map());
}

function unitAt({ index, units }: Axis, values: Map<string, number>): number {
  return units.findIndex(({ start }) => start === values.get(index));
}

function rangeOf(loop: NestLoop, values: Map<string, number>): [from: number, to: number] {
  const end = typeof loop.end === "number" ? loop.end : Number.POSITIVE_INFINITY;
  const from = loop.block ? (values.get(loop.block) ?? 0) : Number(loop.start) || 0;
  return [from, loop.block ? Math.min(from + loop.size, end) : end];
}

/** Counts the cells of `order` that are executed without others between them, from the first one on. */
function consecutive(order: [number, number][], rows: Axis | null, columns: Axis): number {
  const skips = (axis: Axis | null, from: number, to: number) =>
    axis !== null && from !== to && (axis.units[to].afterGap || (axis.isOpen && from === axis.units.length - 1));
  const stop = order.findIndex(([row, column], n) => {
    const [lastRow, lastColumn] = order[n - 1] ?? [row, column];
    return skips(rows, lastRow, row) || skips(columns, lastColumn, column);
  });
  return stop < 0 ? order.length : stop;
}

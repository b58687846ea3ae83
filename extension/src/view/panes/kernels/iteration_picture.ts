/** Draws the iteration space of a loop nest: its cells, its blocks, and the order in which one thread visits them. */

import { h, svg } from "../../dom/elements";
import { bytes, plural } from "../../dom/format";
import { type Axis, deepestLoops, type IterationSpace, type Unit } from "../../model/analysis/iteration_space";
import type { Kernel, NestLoop, Rewrite } from "../../model/record/record";
import { code } from "../linked_content";

const CELL = { width: 32, height: 20 };
const SPACE = 2;
const BLOCK_SPACE = 7;
const GAP = 16;
const LEFT = 44;
const TOP = 32;
/** Cells of an axis at most that have a number: beyond these it would not fit. */
const MAX_NUMBER = 99;

/** Returns the picture, and notes that say what each loop does and what the kernel reads and writes. */
export function iterationPicture(space: IterationSpace, kernel: Kernel | undefined, start: Rewrite): HTMLElement[] {
  const indices = space.rows ? `${space.rows.index} and ${space.columns.index}` : space.columns.index;
  const label = `The iteration space over ${indices}; an arrow is the order in one thread`;
  const notes = [...space.loops.map((loop) => loopNote(loop, space)), ...general(space)].map((note) =>
    h("li", {}, ...note),
  );
  const traffic = trafficNote(kernel, start);
  if (traffic) notes.push(h("li", {}, traffic));
  return [h("figure", { class: "space" }, drawing(space, label)), h("ul", { class: "space-notes" }, ...notes)];
}

function drawing({ rows, columns, order, consecutive }: IterationSpace, label: string): SVGElement {
  const [x, width] = places(columns, CELL.width);
  const [y, height] = rows ? places(rows, CELL.height) : [[0], CELL.height];
  const [wide, high] = [LEFT + width + GAP, TOP + height + GAP];
  const picture = svg("svg", {
    viewBox: `0 0 ${wide} ${high}`,
    style: `width:${wide}px`,
    role: "img",
    "aria-label": label,
  });
  picture.append(svg("text", { class: "axis", x: LEFT, y: 11 }, `${columns.index} →`));
  if (rows) picture.append(svg("text", { class: "axis", x: 2, y: TOP - 5 }, `${rows.index} ↓`));
  for (const [c, unit] of columns.units.entries()) {
    picture.append(svg("text", { class: "tick", x: LEFT + x[c] + CELL.width / 2, y: TOP - 5 }, String(unit.start)));
    if (unit.afterGap) picture.append(dots(LEFT + x[c] - GAP / 2, TOP + CELL.height / 2));
  }
  if (columns.isOpen) picture.append(dots(LEFT + width + GAP / 2, TOP + CELL.height / 2));
  const numbers = new Map(order.slice(0, Math.min(consecutive, MAX_NUMBER)).map((cell, n) => [cell.join(), n + 1]));
  for (const [r, row] of (rows?.units ?? [null]).entries()) {
    const top = TOP + y[r];
    if (row) picture.append(svg("text", { class: "tick row", x: LEFT - 6, y: top + 14 }, String(row.start)));
    if (row?.afterGap) picture.append(dots(LEFT + CELL.width / 2, top - GAP / 2));
    for (const [c, column] of columns.units.entries()) {
      const isOwn = (rows?.own || columns.own) && isInside(rows, row) && isInside(columns, column);
      const place = { x: LEFT + x[c], y: top, ...CELL, rx: 2 };
      picture.append(
        svg("rect", { class: isOwn ? "own" : "", ...place }, svg("title", {}, cellTitle(rows, row, columns, column))),
      );
    }
  }
  if (rows?.isOpen) picture.append(dots(LEFT + CELL.width / 2, TOP + height + GAP / 2));
  const centre = ([r, c]: [number, number]) => [LEFT + x[c] + CELL.width / 2, TOP + y[r] + CELL.height / 2];
  const path = order.map((cell, n) => `${n ? "L" : "M"}${centre(cell).join(" ")}`).join("");
  if (order.length > 1)
    picture.append(
      svg("path", { d: path }),
      arrowHead(centre(order[order.length - 2]), centre(order[order.length - 1])),
    );
  for (const [cell, number] of numbers) {
    const [cx, cy] = centre(cell.split(",").map(Number) as [number, number]);
    picture.append(
      svg("circle", { cx, cy, r: 7.5 }),
      svg("text", { class: "number", x: cx, y: cy + 3 }, String(number)),
    );
  }
  return picture;
}

/** Returns where the cells of an axis start, and the length of all. */
function places({ units }: Axis, length: number): [number[], number] {
  let end = 0;
  const found = units.map(({ startsBlock, afterGap }, n) => {
    const start = end + (n ? (afterGap ? GAP : startsBlock ? BLOCK_SPACE : SPACE) : 0);
    end = start + length;
    return start;
  });
  return [found, end];
}

function isInside(axis: Axis | null, unit: Unit | null): boolean {
  return !axis?.own || !unit || (unit.start >= axis.own[0] && unit.start < axis.own[1]);
}

function dots(x: number, y: number): SVGElement {
  return svg("text", { class: "dots", x, y: y + 3 }, "…");
}

function arrowHead([fromX, fromY]: number[], [x, y]: number[]): SVGElement {
  const angle = (Math.atan2(y - fromY, x - fromX) * 180) / Math.PI;
  return svg("path", { class: "head", d: "M0 0L-7 -4L-7 4Z", transform: `translate(${x} ${y}) rotate(${angle})` });
}

function cellTitle(rows: Axis | null, row: Unit | null, columns: Axis, column: Unit): string {
  const range = ({ index }: Axis, { start, size }: Unit) => {
    if (size === 1) return `${index} = ${start}`;
    return Number.isFinite(size) ? `${index} = ${start} to ${start + size - 1}` : `${index} from ${start} on`;
  };
  return rows && row ? `${range(rows, row)}, ${range(columns, column)}` : range(columns, column);
}

/** What a loop does, in a few words. */
function loopNote(loop: NestLoop, { loops, rows, columns }: IterationSpace): (Node | string)[] {
  const isBlocks = loops.some(({ block }) => block === loop.index);
  const elements = isBlocks ? loops.find(({ block }) => block === loop.index)?.index : loop.index;
  const drawn = [rows, columns].some((axis) => axis?.index === elements);
  const words = [
    isBlocks ? `${iterations(loop, "block")} of ${loop.step.toLocaleString("en")}` : iterations(loop, "iteration"),
  ];
  if (loop.is_vector)
    words.push(loop.lanes ? `in vectors of ${loop.lanes}` : "in vectors that the C++ compiler chooses");
  if (loop.is_block) words.push("at a time, by the threads of a program");
  if (loop.is_threaded) words.push("divided among threads");
  if (loop.is_program) words.push("one for each program");
  return [code(loop.index), `: ${words.join(", ")}${drawn ? "" : " (not drawn)"}`];
}

function iterations({ start, end, block, size, step }: NestLoop, noun: string): string {
  const length = block ? size : typeof start === "number" && typeof end === "number" ? end - start : null;
  return length === null ? `${noun}s up to ${end}` : plural(Math.ceil(length / Math.max(1, step)), noun);
}

function general({ rows, columns, order }: IterationSpace): string[][] {
  const isDivided = rows?.own || columns.own;
  const own = isDivided ? [["Blue: what one iteration of the shared loop covers."]] : [];
  const arrow = order.length > 1 ? [["Arrow: the order in one thread."]] : [];
  return [...own, ...arrow];
}

/** What the kernel reads and writes, in all and for each iteration. */
function trafficNote(kernel: Kernel | undefined, start: Rewrite): string {
  if (!kernel || kernel.bytes_read === null || kernel.bytes_written === null) return "";
  const loops = deepestLoops(start);
  const sizes = loops.map(({ start: from, end }) => Number(end) - Number(from));
  const count = sizes.reduce((product, size) => product * size, 1);
  const all = `Reads ${bytes(kernel.bytes_read)}, writes ${bytes(kernel.bytes_written)}`;
  if (!Number.isFinite(count) || count <= 0) return `${all}.`;
  const [read, written] = [kernel.bytes_read, kernel.bytes_written].map(
    (n) => `${Number((n / count).toPrecision(3))} B`,
  );
  return `${all}: ${read} and ${written} for each of ${count.toLocaleString("en")} iterations.`;
}

/** The boxes of a picture: their colours, what is written on them, and what marks them. */

import type { Layout } from "../layout/layout";
import type { Shown } from "../scene/scene";
import { LIT } from "./picture";
import { CROWDED, CURVES, type Sheet, STRIPES, TITLES } from "./sheet";

const DOTS = 65_536;
const TITLE = 11.5;
const UNDER = 10;

export function drawBoxes(sheet: Sheet, boxes: number[]): void {
  const { picture, palette } = sheet;
  const { scene, found, lit, tint } = picture;
  const colours = tint?.colours(palette);
  const plain = new Map<string, { look: [string, string]; boxes: number[] }>();
  const special: number[] = [];
  for (const i of boxes) {
    if (lit.has(i) || i === picture.current || found?.has(i)) {
      special.push(i);
      continue;
    }
    const kind = tint ? String(tint.of[i]) : scene.shown[i].role;
    const own = plain.get(kind);
    if (own) own.boxes.push(i);
    else {
      const look = colours?.[tint?.of[i] ?? 0] ?? palette.roles.get(kind) ?? ["", ""];
      plain.set(kind, { look, boxes: [i] });
    }
  }
  sheet.c.globalAlpha = found ? 0.35 : 1;
  for (const { look, boxes: own } of plain.values()) fillBoxes(sheet, own, look[0], look[1], 1);
  sheet.c.globalAlpha = 1;
  for (const i of special) {
    const look = colours?.[tint?.of[i] ?? 0] ?? palette.roles.get(scene.shown[i].role) ?? ["", ""];
    const [fill, frame, width] = litLook(sheet, i, look);
    fillBoxes(sheet, [i], fill, frame, width);
  }
}

function litLook(
  sheet: Sheet,
  i: number,
  [fill, frame]: [string, string],
): [fill: string, frame: string, width: number] {
  const { palette, picture } = sheet;
  const bits = picture.lit.get(i) ?? 0;
  const inside =
    bits & (LIT.hovered | LIT["hover-linked"])
      ? palette.hover
      : bits & (LIT.pinned | LIT["pin-linked"])
        ? palette.pin
        : bits & LIT.stepped
          ? palette.step
          : fill;
  if (i === picture.current || bits & (LIT.pinned | LIT.hovered)) return [inside, palette.accent, 2];
  if (picture.found?.has(i)) return [inside, palette.accent, 1.5];
  return [inside, frame, 1];
}

function fillBoxes(sheet: Sheet, boxes: number[], fill: string, frame: string, width: number): void {
  const { c, scale } = sheet;
  const { layout, scene } = sheet.picture;
  const round = scale >= TITLES;
  // from afar a box keeps a dot's height, or nothing would be seen
  const least = 1 / scale;
  c.fillStyle = scale < CURVES ? frame : fill;
  c.beginPath();
  for (const i of scale < CROWDED ? oneForEachDot(boxes, layout, scale) : boxes) {
    const w = scene.shown[i].width;
    const h = Math.max(least, scene.shown[i].height);
    if (round) c.roundRect(layout.x[i] - w / 2, layout.y[i] - h / 2, w, h, 4);
    else c.rect(layout.x[i] - w / 2, layout.y[i] - h / 2, w, h);
  }
  c.fill();
  if (scale < CURVES && width === 1) return;
  c.strokeStyle = frame;
  c.lineWidth = Math.max(width, width > 1 ? width / scale / 1.5 : 0);
  c.stroke();
  if (scale >= STRIPES) for (const i of boxes) if (scene.shown[i].group !== null) stack(sheet, i, frame);
}

/** A collapsed group looks like a stack of boxes. */
function stack(sheet: Sheet, i: number, frame: string): void {
  const { c } = sheet;
  const { layout, scene } = sheet.picture;
  const { width, height } = scene.shown[i];
  const [right, bottom] = [layout.x[i] + width / 2, layout.y[i] + height / 2];
  c.lineWidth = 1;
  // the knob that expands it
  c.strokeStyle = sheet.palette.text;
  c.beginPath();
  c.moveTo(right - width + 5, layout.y[i]);
  c.lineTo(right - width + 11, layout.y[i]);
  c.moveTo(right - width + 8, layout.y[i] - 3);
  c.lineTo(right - width + 8, layout.y[i] + 3);
  c.stroke();
  c.strokeStyle = frame;
  c.beginPath();
  for (const step of [3, 6]) {
    c.moveTo(right + step, bottom - height + step + 3);
    c.lineTo(right + step, bottom + step);
    c.lineTo(right - width + step + 3, bottom + step);
  }
  c.stroke();
}

export function drawStripes(sheet: Sheet, boxes: number[]): void {
  const { c, picture, palette } = sheet;
  const { layout, scene, stripes } = picture;
  palette.lines.forEach((colour, line) => {
    c.fillStyle = colour;
    for (const i of boxes) {
      if (stripes[i] !== line) continue;
      const { width, height } = scene.shown[i];
      c.fillRect(layout.x[i] - width / 2, layout.y[i] - height / 2 + 4, 3, height - 8);
    }
  });
}

export function drawTexts(sheet: Sheet, boxes: number[]): void {
  const { c, picture, palette } = sheet;
  const { layout, scene, tint } = picture;
  const dim = (i: number) => (picture.found && !picture.found.has(i) ? 0.5 : 1);
  c.textAlign = "center";
  c.textBaseline = "alphabetic";
  c.font = `600 ${TITLE}px ${palette.mono}`;
  c.fillStyle = palette.text;
  const under = (i: number) => tint?.text[i] ?? scene.shown[i].under;
  for (const i of boxes) {
    c.globalAlpha = dim(i);
    c.fillText(scene.shown[i].title, layout.x[i], layout.y[i] + (under(i) ? -3 : 4));
  }
  c.font = `${UNDER}px ${palette.mono}`;
  c.fillStyle = palette.soft;
  for (const i of boxes) {
    c.globalAlpha = dim(i);
    if (under(i)) c.fillText(under(i), layout.x[i], layout.y[i] + 11, scene.shown[i].width - 8);
  }
  c.globalAlpha = 1;
}

/** The titles alone, as large as their boxes let them be. */
export function drawTitles(sheet: Sheet, boxes: number[]): void {
  const { c, picture, palette } = sheet;
  const { layout, scene } = picture;
  c.textAlign = "center";
  c.textBaseline = "middle";
  c.fillStyle = palette.text;
  for (const i of boxes) {
    c.globalAlpha = picture.found && !picture.found.has(i) ? 0.5 : 1;
    c.font = `600 ${titleSize(scene.shown[i], sheet.scale)}px ${palette.mono}`;
    c.fillText(scene.shown[i].title, layout.x[i], layout.y[i] + 1);
  }
  c.globalAlpha = 1;
}

/** The bytes of what is saved, on a label at the box's corner. */
export function drawNotes(sheet: Sheet, boxes: number[]): void {
  const { c, picture, palette } = sheet;
  const { layout, scene, crossing } = picture;
  if (!crossing?.notes.size) return;
  const size = Math.min(16, Math.max(9.5, 9 / sheet.scale));
  c.font = `600 ${size}px ${palette.sans}`;
  c.textAlign = "center";
  c.textBaseline = "middle";
  for (const i of boxes) {
    const note = crossing.notes.get(i);
    if (note === undefined) continue;
    const [x, y] = [layout.x[i] + scene.shown[i].width / 2, layout.y[i] - scene.shown[i].height / 2 - size / 2];
    const width = c.measureText(note).width + 8;
    c.fillStyle = palette.cut;
    c.beginPath();
    c.roundRect(x - width + 6, y - size / 2 - 2, width, size + 4, 3);
    c.fill();
    c.fillStyle = palette.bg;
    c.fillText(note, x - width / 2 + 6, y + 0.5);
  }
}

function titleSize({ title, width }: Shown, scale: number): number {
  return Math.round(Math.min(11 / scale, 30, (width - 12) / (0.62 * Math.max(1, title.length))));
}

/** Where many boxes fall on one dot of the screen, the first of them. */
function oneForEachDot(boxes: number[], { x, y }: Layout, scale: number): number[] {
  const seen = new Set<number>();
  return boxes.filter((i) => {
    const dot = Math.round(x[i] * scale) * DOTS + Math.round(y[i] * scale);
    if (seen.has(dot)) return false;
    seen.add(dot);
    return true;
  });
}

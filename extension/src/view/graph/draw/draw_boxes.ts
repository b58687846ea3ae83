/** Draws the boxes of a picture: their colours, texts and marks. */

import type { Layout } from "../layout/layout";
import type { SceneBox } from "../scene/scene";
import { CROWDED_BELOW, CURVES_FROM, type DrawContext, STRIPES_FROM, TITLES_FROM } from "./draw_context";
import type { Palette } from "./palette";
import { HIGHLIGHT } from "./picture";

const PIXEL_KEY_BASE = 65_536;
const TITLE_PX = 11.5;
const SUBTITLE_PX = 10;
const FAINT = 0.35;
const FAINT_TEXT = 0.5;

export function drawBoxes(context: DrawContext, boxes: number[]): void {
  const { picture, palette } = context;
  const { scene, found, highlighted, colouring } = picture;
  const colours = colouring?.colours(palette);
  const plain = new Map<string, { look: [string, string]; alpha: number; boxes: number[] }>();
  const special: number[] = [];
  for (const i of boxes) {
    if (highlighted.has(i) || i === picture.current || found?.has(i)) {
      special.push(i);
      continue;
    }
    const alpha = picture.isFaint(i) ? FAINT : 1;
    const kind = `${colouring ? colouring.colourOf[i] : scene.boxes[i].role} ${alpha}`;
    const own = plain.get(kind);
    if (own) own.boxes.push(i);
    else {
      const look = colours?.[colouring?.colourOf[i] ?? 0] ?? palette.roles.get(scene.boxes[i].role) ?? ["", ""];
      plain.set(kind, { look, alpha, boxes: [i] });
    }
  }
  for (const { look, alpha, boxes: own } of plain.values()) {
    context.canvas.globalAlpha = alpha;
    fillBoxes(context, own, look[0], look[1], 1);
  }
  context.canvas.globalAlpha = 1;
  for (const i of special) {
    const look = colours?.[colouring?.colourOf[i] ?? 0] ?? palette.roles.get(scene.boxes[i].role) ?? ["", ""];
    const [fill, frame, width] = highlightedLook(context, i, look);
    fillBoxes(context, [i], fill, frame, width);
  }
}

function highlightedLook(
  context: DrawContext,
  i: number,
  [fill, frame]: [string, string],
): [fill: string, frame: string, width: number] {
  const { palette, picture } = context;
  const bits = picture.highlighted.get(i) ?? 0;
  const inside = highlightedFill(palette, bits) ?? fill;
  if (i === picture.current || bits & (HIGHLIGHT.pinned | HIGHLIGHT.hovered)) return [inside, palette.accent, 2];
  if (picture.found?.has(i)) return [inside, palette.accent, 1.5];
  return [inside, frame, 1];
}

function highlightedFill(palette: Palette, bits: number): string | null {
  if (bits & (HIGHLIGHT.hovered | HIGHLIGHT["hover-linked"])) return palette.hover;
  if (bits & (HIGHLIGHT.pinned | HIGHLIGHT["pin-linked"])) return palette.pin;
  return bits & HIGHLIGHT.stepped ? palette.step : null;
}

function fillBoxes(context: DrawContext, boxes: number[], fill: string, frame: string, width: number): void {
  const { canvas, scale } = context;
  const { layout, scene } = context.picture;
  const round = scale >= TITLES_FROM;
  // a box is at least one pixel high, or it would be invisible at a small scale
  const least = 1 / scale;
  canvas.fillStyle = scale < CURVES_FROM ? frame : fill;
  canvas.beginPath();
  for (const i of scale < CROWDED_BELOW ? onePerPixel(boxes, layout, scale) : boxes) {
    const w = scene.boxes[i].width;
    const h = Math.max(least, scene.boxes[i].height);
    if (round) canvas.roundRect(layout.x[i] - w / 2, layout.y[i] - h / 2, w, h, 4);
    else canvas.rect(layout.x[i] - w / 2, layout.y[i] - h / 2, w, h);
  }
  canvas.fill();
  if (scale < CURVES_FROM && width === 1) return;
  canvas.strokeStyle = frame;
  canvas.lineWidth = Math.max(width, width > 1 ? width / scale / 1.5 : 0);
  canvas.stroke();
  if (scale >= STRIPES_FROM) for (const i of boxes) if (scene.boxes[i].group !== null) drawStack(context, i, frame);
}

/** Draws a collapsed group as a stack of boxes, with a plus sign that expands it. */
function drawStack(context: DrawContext, i: number, frame: string): void {
  const { canvas } = context;
  const { layout, scene } = context.picture;
  const { width, height } = scene.boxes[i];
  const [right, bottom] = [layout.x[i] + width / 2, layout.y[i] + height / 2];
  canvas.lineWidth = 1;
  // the plus sign
  canvas.strokeStyle = context.palette.text;
  canvas.beginPath();
  canvas.moveTo(right - width + 5, layout.y[i]);
  canvas.lineTo(right - width + 11, layout.y[i]);
  canvas.moveTo(right - width + 8, layout.y[i] - 3);
  canvas.lineTo(right - width + 8, layout.y[i] + 3);
  canvas.stroke();
  canvas.strokeStyle = frame;
  canvas.beginPath();
  for (const step of [3, 6]) {
    canvas.moveTo(right + step, bottom - height + step + 3);
    canvas.lineTo(right + step, bottom + step);
    canvas.lineTo(right - width + step + 3, bottom + step);
  }
  canvas.stroke();
}

export function drawStripes(context: DrawContext, boxes: number[]): void {
  const { canvas, picture, palette } = context;
  const { layout, scene, stripes } = picture;
  palette.lines.forEach((colour, line) => {
    canvas.fillStyle = colour;
    for (const i of boxes) {
      if (stripes[i] !== line) continue;
      const { width, height } = scene.boxes[i];
      canvas.globalAlpha = picture.isFaint(i) ? FAINT : 1;
      canvas.fillRect(layout.x[i] - width / 2, layout.y[i] - height / 2 + 4, 3, height - 8);
    }
  });
  canvas.globalAlpha = 1;
}

export function drawTexts(context: DrawContext, boxes: number[]): void {
  const { canvas, picture, palette } = context;
  const { layout, scene, colouring } = picture;
  const dim = (i: number) => (picture.isFaint(i) ? FAINT_TEXT : 1);
  canvas.textAlign = "center";
  canvas.textBaseline = "alphabetic";
  canvas.font = `600 ${TITLE_PX}px ${palette.mono}`;
  canvas.fillStyle = palette.text;
  const under = (i: number) => colouring?.text[i] ?? scene.boxes[i].subtitle;
  for (const i of boxes) {
    canvas.globalAlpha = dim(i);
    canvas.fillText(scene.boxes[i].title, layout.x[i], layout.y[i] + (under(i) ? -3 : 4));
  }
  canvas.font = `${SUBTITLE_PX}px ${palette.mono}`;
  canvas.fillStyle = palette.mutedText;
  for (const i of boxes) {
    canvas.globalAlpha = dim(i);
    if (under(i)) canvas.fillText(under(i), layout.x[i], layout.y[i] + 11, scene.boxes[i].width - 8);
  }
  canvas.globalAlpha = 1;
}

/** Draws only the titles, as large as the boxes allow. */
export function drawTitles(context: DrawContext, boxes: number[]): void {
  const { canvas, picture, palette } = context;
  const { layout, scene } = picture;
  canvas.textAlign = "center";
  canvas.textBaseline = "middle";
  canvas.fillStyle = palette.text;
  for (const i of boxes) {
    canvas.globalAlpha = picture.isFaint(i) ? FAINT_TEXT : 1;
    canvas.font = `600 ${titleSize(scene.boxes[i], context.scale)}px ${palette.mono}`;
    canvas.fillText(scene.boxes[i].title, layout.x[i], layout.y[i] + 1);
  }
  canvas.globalAlpha = 1;
}

/** Draws the bytes of saved values on a label at the box's corner. */
export function drawNotes(context: DrawContext, boxes: number[]): void {
  const { canvas, picture, palette } = context;
  const { layout, scene, cut } = picture;
  if (!cut?.notes.size) return;
  const size = Math.min(16, Math.max(9.5, 9 / context.scale));
  canvas.font = `600 ${size}px ${palette.sans}`;
  canvas.textAlign = "center";
  canvas.textBaseline = "middle";
  for (const i of boxes) {
    const note = cut.notes.get(i);
    if (note === undefined) continue;
    const [x, y] = [layout.x[i] + scene.boxes[i].width / 2, layout.y[i] - scene.boxes[i].height / 2 - size / 2];
    const width = canvas.measureText(note).width + 8;
    canvas.fillStyle = palette.cut;
    canvas.beginPath();
    canvas.roundRect(x - width + 6, y - size / 2 - 2, width, size + 4, 3);
    canvas.fill();
    canvas.fillStyle = palette.bg;
    canvas.fillText(note, x - width / 2 + 6, y + 0.5);
  }
}

function titleSize({ title, width }: SceneBox, scale: number): number {
  return Math.round(Math.min(11 / scale, 30, (width - 12) / (0.62 * Math.max(1, title.length))));
}

/** Returns the first of the boxes that fall on the same pixel. */
function onePerPixel(boxes: number[], { x, y }: Layout, scale: number): number[] {
  const seen = new Set<number>();
  return boxes.filter((i) => {
    const pixel = Math.round(x[i] * scale) * PIXEL_KEY_BASE + Math.round(y[i] * scale);
    if (seen.has(pixel)) return false;
    seen.add(pixel);
    return true;
  });
}

/** Labels drawn over a picture: the summary of the cut, and the names of groups. */

import { type DrawContext, TITLES_FROM } from "./draw_context";
import type { Palette } from "./palette";
import type { Picture } from "./picture";
import type { Viewport } from "./viewport";

const NAME_PX = 11;
const MIN_EXTENT_PX = 3;
const CUT_HEIGHT = 18;
const DIRECTION_PX = 76;

/** Draws the summary of the cut; with two graphs side by side, also the line between them. */
export function drawCut(
  canvas: CanvasRenderingContext2D,
  { layout }: Picture,
  viewport: Viewport,
  palette: Palette,
  text: string,
): void {
  canvas.font = `600 ${NAME_PX}px ${palette.sans}`;
  canvas.textBaseline = "middle";
  const x = layout.gutter === undefined ? null : (layout.gutter - viewport.visibleArea().left) * viewport.view.scale;
  if (x !== null) {
    canvas.strokeStyle = palette.cut;
    canvas.lineWidth = 1;
    canvas.setLineDash([2, 4]);
    canvas.beginPath();
    canvas.moveTo(x, CUT_HEIGHT);
    canvas.lineTo(x, viewport.height);
    canvas.stroke();
    canvas.setLineDash([]);
  }
  const width = canvas.measureText(text).width + 12;
  const halfRoom = width / 2 + DIRECTION_PX;
  const middle = x === null ? 6 + width / 2 : Math.min(viewport.width - halfRoom, Math.max(halfRoom, x));
  canvas.fillStyle = palette.bg;
  canvas.globalAlpha = 0.9;
  canvas.fillRect(middle - width / 2, 2, width, CUT_HEIGHT);
  canvas.globalAlpha = 1;
  canvas.fillStyle = palette.cut;
  canvas.textAlign = "center";
  canvas.fillText(text, middle, 2 + CUT_HEIGHT / 2);
  if (x === null) return;
  canvas.fillStyle = palette.mutedText;
  canvas.textAlign = "right";
  canvas.fillText("forward ↓", middle - width / 2 - 8, 2 + CUT_HEIGHT / 2);
  canvas.textAlign = "left";
  canvas.fillText("↑ backward", middle + width / 2 + 8, 2 + CUT_HEIGHT / 2);
}

/** Draws the frames of expanded groups, in the coordinates of the drawing. */
export function drawGroupFrames({ canvas, picture, palette, scale }: DrawContext): void {
  canvas.strokeStyle = palette.mutedText;
  canvas.lineWidth = 1 / Math.max(scale, TITLES_FROM);
  canvas.globalAlpha = 0.6;
  for (const { left, top, width, height } of picture.groupFrames) {
    canvas.beginPath();
    canvas.roundRect(left, top, width, height, 6);
    canvas.stroke();
  }
  canvas.globalAlpha = 1;
}

/** Draws the names of framed groups at the left ends of the upper lines of their frames. */
export function drawFrameNames({ canvas, picture, palette, scale }: DrawContext): void {
  if (scale < TITLES_FROM) return;
  const size = NAME_PX / Math.min(1, Math.max(scale, 0.6));
  canvas.font = `${size}px ${palette.sans}`;
  canvas.textAlign = "left";
  canvas.textBaseline = "middle";
  for (const { title, left, top } of picture.groupFrames) {
    canvas.fillStyle = palette.bg;
    canvas.fillRect(left + 6, top - size / 2, canvas.measureText(title).width + 6, size);
    canvas.fillStyle = palette.mutedText;
    canvas.fillText(title, left + 9, top);
  }
}

/** Draws the names of groups beside their part of the graph, the outermost first, as far as they do not overlap. */
export function drawGroupNames(
  canvas: CanvasRenderingContext2D,
  picture: Picture,
  viewport: Viewport,
  palette: Palette,
): void {
  const { scale } = viewport.view;
  const window = viewport.visibleArea();
  const taken: [number, number][] = [];
  canvas.font = `${NAME_PX}px ${palette.sans}`;
  canvas.textAlign = "right";
  canvas.textBaseline = "middle";
  for (const place of picture.groupExtents) {
    const top = (Math.max(place.top, window.top) - window.top) * scale;
    const bottom = (Math.min(place.bottom, window.bottom) - window.top) * scale;
    if (bottom - top < MIN_EXTENT_PX) continue;
    const y = (top + bottom) / 2;
    if (taken.some(([a, b]) => y + NAME_PX > a && y - NAME_PX < b)) continue;
    taken.push([y - NAME_PX, y + NAME_PX]);
    drawGroupName(canvas, place.title, Math.max(0, (place.left - window.left) * scale), y, [top, bottom], palette);
  }
}

function drawGroupName(
  canvas: CanvasRenderingContext2D,
  title: string,
  left: number,
  y: number,
  [top, bottom]: [number, number],
  palette: Palette,
): void {
  const width = canvas.measureText(title).width;
  const x = Math.max(left - 10, width + 12);
  canvas.strokeStyle = palette.mutedText;
  canvas.lineWidth = 1;
  canvas.beginPath();
  canvas.moveTo(x + 6, top + 1);
  canvas.lineTo(x + 3, top + 1);
  canvas.lineTo(x + 3, bottom - 1);
  canvas.lineTo(x + 6, bottom - 1);
  canvas.stroke();
  canvas.fillStyle = palette.bg;
  canvas.globalAlpha = 0.85;
  canvas.fillRect(x - width - 4, y - NAME_PX / 2 - 3, width + 6, NAME_PX + 6);
  canvas.globalAlpha = 1;
  canvas.fillStyle = palette.mutedText;
  canvas.fillText(title, x, y);
}

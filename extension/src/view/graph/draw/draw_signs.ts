/** What is written over a drawing: what the cut amounts to, the names of groups. */

import type { Palette } from "./palette";
import type { Picture } from "./picture";
import type { Viewport } from "./viewport";

const PLACE_PX = 11;
const LEAST_PLACE = 3;
const CUT_HEIGHT = 18;
const BESIDE = 76;

/** What the cut amounts to; between facing pages, the line that it crosses. */
export function drawCut(
  c: CanvasRenderingContext2D,
  { layout }: Picture,
  viewport: Viewport,
  palette: Palette,
  text: string,
): void {
  c.font = `600 ${PLACE_PX}px ${palette.sans}`;
  c.textBaseline = "middle";
  const x = layout.gutter === undefined ? null : (layout.gutter - viewport.window().left) * viewport.view.scale;
  if (x !== null) {
    c.strokeStyle = palette.cut;
    c.lineWidth = 1;
    c.setLineDash([2, 4]);
    c.beginPath();
    c.moveTo(x, CUT_HEIGHT);
    c.lineTo(x, viewport.height);
    c.stroke();
    c.setLineDash([]);
  }
  const width = c.measureText(text).width + 12;
  const room = width / 2 + BESIDE;
  const middle = x === null ? 6 + width / 2 : Math.min(viewport.width - room, Math.max(room, x));
  c.fillStyle = palette.bg;
  c.globalAlpha = 0.9;
  c.fillRect(middle - width / 2, 2, width, CUT_HEIGHT);
  c.globalAlpha = 1;
  c.fillStyle = palette.cut;
  c.textAlign = "center";
  c.fillText(text, middle, 2 + CUT_HEIGHT / 2);
  if (x === null) return;
  c.fillStyle = palette.soft;
  c.textAlign = "right";
  c.fillText("forward ↓", middle - width / 2 - 8, 2 + CUT_HEIGHT / 2);
  c.textAlign = "left";
  c.fillText("↑ backward", middle + width / 2 + 8, 2 + CUT_HEIGHT / 2);
}

/** The names of groups beside their stretch of the graph, the outermost first, as many as there is room for. */
export function drawPlaces(c: CanvasRenderingContext2D, picture: Picture, viewport: Viewport, palette: Palette): void {
  const { scale } = viewport.view;
  const window = viewport.window();
  const taken: [number, number][] = [];
  c.font = `${PLACE_PX}px ${palette.sans}`;
  c.textAlign = "right";
  c.textBaseline = "middle";
  for (const place of picture.places) {
    const top = (Math.max(place.top, window.top) - window.top) * scale;
    const bottom = (Math.min(place.bottom, window.bottom) - window.top) * scale;
    if (bottom - top < LEAST_PLACE) continue;
    const y = (top + bottom) / 2;
    if (taken.some(([a, b]) => y + PLACE_PX > a && y - PLACE_PX < b)) continue;
    taken.push([y - PLACE_PX, y + PLACE_PX]);
    drawPlace(c, place.title, Math.max(0, (place.left - window.left) * scale), y, [top, bottom], palette);
  }
}

function drawPlace(
  c: CanvasRenderingContext2D,
  title: string,
  left: number,
  y: number,
  [top, bottom]: [number, number],
  palette: Palette,
): void {
  const width = c.measureText(title).width;
  const x = Math.max(left - 10, width + 12);
  c.strokeStyle = palette.soft;
  c.lineWidth = 1;
  c.beginPath();
  c.moveTo(x + 6, top + 1);
  c.lineTo(x + 3, top + 1);
  c.lineTo(x + 3, bottom - 1);
  c.lineTo(x + 6, bottom - 1);
  c.stroke();
  c.fillStyle = palette.bg;
  c.globalAlpha = 0.85;
  c.fillRect(x - width - 4, y - PLACE_PX / 2 - 3, width + 6, PLACE_PX + 6);
  c.globalAlpha = 1;
  c.fillStyle = palette.soft;
  c.fillText(title, x, y);
}

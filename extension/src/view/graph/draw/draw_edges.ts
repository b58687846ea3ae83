/** The edges of a picture, with as much detail as the scale lets one read. */

import { LIT } from "./picture";
import { CROWDED, CURVES, HEADS, type Sheet, TITLES } from "./sheet";

const STUB = 12;
/** Pointing at a large group marks it, not its hundreds of edges. */
const MOST_MARKED = 300;

export function drawEdges(sheet: Sheet, edges: number[]): void {
  const { c, picture, palette } = sheet;
  const { scene } = picture;
  const cuts = picture.crossing?.cuts;
  c.lineWidth = Math.max(1, 0.6 / sheet.scale);
  c.globalAlpha = picture.found || picture.lit.size ? 0.45 : 0.75;
  stroke(
    sheet,
    edges.filter((i) => !cuts?.[i] && !scene.bridge[i]),
    palette.soft,
  );
  const bridges = edges.filter((i) => scene.bridge[i]);
  if (bridges.length) {
    c.setLineDash([4, 4]);
    stroke(sheet, bridges, palette.soft);
    c.setLineDash([]);
  }
  c.globalAlpha = 1;
  const cut = edges.filter((i) => cuts?.[i]);
  if (!cut.length) return;
  c.lineWidth = Math.max(2, 1 / sheet.scale);
  c.setLineDash([6, 3]);
  stroke(sheet, cut, palette.cut);
  c.setLineDash([]);
}

function stroke(sheet: Sheet, edges: number[], colour: string): void {
  const { c } = sheet;
  const { edges: points } = sheet.picture.layout;
  c.strokeStyle = colour;
  c.beginPath();
  // what is shorter than two dots lies under its boxes
  const least = sheet.scale < CROWDED ? 2 / sheet.scale : 0;
  if (sheet.scale < CURVES) for (const i of edges) line(c, points[i], least);
  else for (const i of edges) curve(c, points[i]);
  c.stroke();
  if (sheet.scale < HEADS) return;
  const dash = c.getLineDash();
  c.setLineDash([]);
  c.beginPath();
  for (const i of edges) head(c, points[i]);
  c.stroke();
  c.setLineDash(dash);
}

/** Of an edge that is too long to follow, its two ends. */
export function drawStubs(sheet: Sheet, boxes: number[]): void {
  if (sheet.scale < TITLES) return;
  const { c, picture, palette } = sheet;
  const { scene, layout } = picture;
  c.strokeStyle = palette.soft;
  c.lineWidth = 1;
  c.setLineDash([2, 2]);
  c.beginPath();
  for (const i of boxes) {
    const { height } = scene.shown[i];
    const [x, y] = [layout.x[i], layout.y[i]];
    if (picture.longTo(i)) {
      c.moveTo(x - 6, y - height / 2);
      c.lineTo(x - 6 - STUB / 2, y - height / 2 - STUB);
    }
    if (picture.longFrom(i)) {
      c.moveTo(x + 6, y + height / 2);
      c.lineTo(x + 6 + STUB / 2, y + height / 2 + STUB);
    }
  }
  c.stroke();
  c.setLineDash([]);
}

/** The edges of what is pointed at or pinned, long ones too. */
export function drawLitEdges(sheet: Sheet): void {
  const { c, picture, palette } = sheet;
  const marked = [...picture.lit].filter(([, bits]) => bits & (LIT.pinned | LIT.hovered)).map(([box]) => box);
  if (picture.current >= 0) marked.push(picture.current);
  if (!marked.length || marked.length > MOST_MARKED) return;
  const edges = [...new Set(marked.flatMap((box) => picture.edgesOf(box)))];
  c.lineWidth = Math.max(1.5, 1 / sheet.scale);
  stroke(sheet, edges, palette.accent);
}

function curve(c: CanvasRenderingContext2D, p: Float32Array): void {
  if (!p.length) return;
  c.moveTo(p[0], p[1]);
  for (let i = 2; i + 5 < p.length; i += 6) c.bezierCurveTo(p[i], p[i + 1], p[i + 2], p[i + 3], p[i + 4], p[i + 5]);
}

function line(c: CanvasRenderingContext2D, p: Float32Array, least: number): void {
  const n = p.length;
  if (!n || Math.abs(p[n - 1] - p[1]) + Math.abs(p[n - 2] - p[0]) < least) return;
  c.moveTo(p[0], p[1]);
  for (let i = 6; i < p.length; i += 6) c.lineTo(p[i], p[i + 1]);
}

/** An arrow's head, along the last of the way. */
function head(c: CanvasRenderingContext2D, p: Float32Array): void {
  const n = p.length;
  if (n < 4) return;
  const [x, y] = [p[n - 2], p[n - 1]];
  const [dx, dy] = [x - p[n - 4], y - p[n - 3]];
  const length = Math.hypot(dx, dy) || 1;
  const [ux, uy] = [dx / length, dy / length];
  c.moveTo(x - 5.5 * ux - 3.2 * uy, y - 5.5 * uy + 3.2 * ux);
  c.lineTo(x, y);
  c.lineTo(x - 5.5 * ux + 3.2 * uy, y - 5.5 * uy - 3.2 * ux);
}

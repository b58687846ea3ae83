/** Draws a picture on a canvas, with as much detail as the scale lets one read. */

import { drawBoxes, drawNotes, drawStripes, drawTexts, drawTitles } from "./draw_boxes";
import { drawEdges, drawLitEdges, drawStubs } from "./draw_edges";
import { drawCut, drawPlaces } from "./draw_signs";
import type { Palette } from "./palette";
import type { Picture } from "./picture";
import { BOTH_LINES, PLACES, type Sheet, STRIPES, TITLES } from "./sheet";
import type { Viewport } from "./viewport";

export class Painter {
  private readonly context: CanvasRenderingContext2D;

  constructor(private readonly canvas: HTMLCanvasElement) {
    // no alpha: what is drawn covers all
    this.context = canvas.getContext("2d", { alpha: false }) as CanvasRenderingContext2D;
    // before anything is drawn it would be black
    canvas.hidden = true;
  }

  paint(picture: Picture, viewport: Viewport, palette: Palette): void {
    const { context: c } = this;
    this.canvas.hidden = false;
    const dots = this.fitCanvas(viewport);
    const { x, y, scale } = viewport.view;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.fillStyle = palette.bg;
    c.fillRect(0, 0, this.canvas.width, this.canvas.height);
    const k = scale * dots;
    c.setTransform(k, 0, 0, k, this.canvas.width / 2 - x * k, this.canvas.height / 2 - y * k);
    const { top, bottom, left, right } = viewport.window();
    const near = picture.index.between(top, bottom);
    const { layout, scene } = picture;
    const boxes = near.boxes.filter((i) => {
      const half = scene.shown[i].width / 2;
      return layout.x[i] + half >= left && layout.x[i] - half <= right;
    });
    draw({ c, picture, palette, scale }, boxes, near.edges);
    c.setTransform(dots, 0, 0, dots, 0, 0);
    if (scale < PLACES) drawPlaces(c, picture, viewport, palette);
    if (picture.crossing) drawCut(c, picture, viewport, palette, picture.crossing.text);
  }

  /** The canvas has the screen's own dots. */
  private fitCanvas({ width, height }: Viewport): number {
    const dots = devicePixelRatio || 1;
    const [w, h] = [Math.max(1, Math.round(width * dots)), Math.max(1, Math.round(height * dots))];
    if (this.canvas.width !== w || this.canvas.height !== h) {
      this.canvas.width = w;
      this.canvas.height = h;
    }
    return dots;
  }
}

function draw(sheet: Sheet, boxes: number[], edges: number[]): void {
  drawEdges(sheet, edges);
  drawStubs(sheet, boxes);
  drawLitEdges(sheet);
  drawBoxes(sheet, boxes);
  if (sheet.scale >= STRIPES) drawStripes(sheet, boxes);
  if (sheet.scale >= BOTH_LINES) drawTexts(sheet, boxes);
  else if (sheet.scale >= TITLES) drawTitles(sheet, boxes);
  if (sheet.scale >= TITLES) drawNotes(sheet, boxes);
}

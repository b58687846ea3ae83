/** Draws a picture on a canvas, with the detail that is visible at the scale. */

import { drawBoxes, drawNotes, drawStripes, drawTexts, drawTitles } from "./draw_boxes";
import { type DrawContext, GROUP_NAMES_BELOW, STRIPES_FROM, SUBTITLES_FROM, TITLES_FROM } from "./draw_context";
import { drawEdges, drawHighlightedEdges, drawStubs } from "./draw_edges";
import { drawCut, drawFrameNames, drawGroupFrames, drawGroupNames } from "./draw_labels";
import type { Palette } from "./palette";
import type { Picture } from "./picture";
import type { Viewport } from "./viewport";

export class Painter {
  private readonly context: CanvasRenderingContext2D;

  constructor(private readonly canvas: HTMLCanvasElement) {
    // no alpha: the whole canvas is drawn
    this.context = canvas.getContext("2d", { alpha: false }) as CanvasRenderingContext2D;
    // an opaque canvas is black before it is drawn
    canvas.hidden = true;
  }

  paint(picture: Picture, viewport: Viewport, palette: Palette): void {
    const { context: canvas } = this;
    this.canvas.hidden = false;
    const pixelRatio = this.fitCanvas(viewport);
    const { x, y, scale } = viewport.view;
    canvas.setTransform(1, 0, 0, 1, 0, 0);
    canvas.fillStyle = palette.bg;
    canvas.fillRect(0, 0, this.canvas.width, this.canvas.height);
    const k = scale * pixelRatio;
    canvas.setTransform(k, 0, 0, k, this.canvas.width / 2 - x * k, this.canvas.height / 2 - y * k);
    const { top, bottom, left, right } = viewport.visibleArea();
    const inBands = picture.index.between(top, bottom);
    const { layout, scene } = picture;
    const boxes = inBands.boxes.filter((i) => {
      const half = scene.boxes[i].width / 2;
      return layout.x[i] + half >= left && layout.x[i] - half <= right;
    });
    draw({ canvas, picture, palette, scale }, boxes, inBands.edges);
    canvas.setTransform(pixelRatio, 0, 0, pixelRatio, 0, 0);
    if (scale < GROUP_NAMES_BELOW) drawGroupNames(canvas, picture, viewport, palette);
    if (picture.cut) drawCut(canvas, picture, viewport, palette, picture.cut.text);
  }

  /** Sets the canvas's size to the screen's resolution; returns the device pixels per CSS pixel. */
  private fitCanvas({ width, height }: Viewport): number {
    const pixelRatio = devicePixelRatio || 1;
    const [w, h] = [Math.max(1, Math.round(width * pixelRatio)), Math.max(1, Math.round(height * pixelRatio))];
    if (this.canvas.width !== w || this.canvas.height !== h) {
      this.canvas.width = w;
      this.canvas.height = h;
    }
    return pixelRatio;
  }
}

function draw(context: DrawContext, boxes: number[], edges: number[]): void {
  drawGroupFrames(context);
  drawEdges(context, edges);
  drawStubs(context, boxes);
  drawHighlightedEdges(context);
  drawBoxes(context, boxes);
  if (context.scale >= STRIPES_FROM) drawStripes(context, boxes);
  drawFrameNames(context);
  if (context.scale >= SUBTITLES_FROM) drawTexts(context, boxes);
  else if (context.scale >= TITLES_FROM) drawTitles(context, boxes);
  if (context.scale >= TITLES_FROM) drawNotes(context, boxes);
}

/** The overview map beside a drawing: the whole graph in a strip, what is lit or found in it, and the window. */

import { h } from "../../dom/dom";
import type { Palette } from "./palette";
import { LIT, type Picture } from "./picture";
import type { Viewport } from "./viewport";

const WIDTH = 64;
const LEAST_BOXES = 30;

export class OverviewMap {
  readonly element = h("canvas", { class: "map", "aria-hidden": "true" });
  private readonly context = this.element.getContext("2d") as CanvasRenderingContext2D;
  /** The graph itself, drawn once for each picture and theme. */
  private base: { picture: Picture; palette: Palette; image: HTMLCanvasElement } | null = null;
  private scale = { x: 1, y: 1, left: 0, top: 0 };

  constructor(private readonly viewport: Viewport) {
    this.element.addEventListener("pointerdown", (event) => {
      this.element.setPointerCapture(event.pointerId);
      this.goTo(event, true);
    });
    this.element.addEventListener("pointermove", (event) => {
      if (event.buttons & 1) this.goTo(event, false);
    });
  }

  private goTo(event: PointerEvent, glide: boolean): void {
    const corner = this.element.getBoundingClientRect();
    const { x, y, left, top } = this.scale;
    const { scale } = this.viewport.view;
    const to = { x: (event.clientX - corner.left - left) / x, y: (event.clientY - corner.top - top) / y, scale };
    this.viewport.go(to, glide);
  }

  /** Only a graph of some size has one. */
  setPicture({ scene }: Picture): void {
    this.element.hidden = scene.shown.length < LEAST_BOXES;
  }

  paint(picture: Picture, palette: Palette): void {
    const { height } = this.viewport;
    if (this.element.hidden || !height) return;
    const dots = devicePixelRatio || 1;
    if (this.element.height !== Math.round(height * dots)) {
      this.element.width = WIDTH * dots;
      this.element.height = Math.round(height * dots);
      this.base = null;
    }
    this.fit(picture, height);
    if (this.base?.picture !== picture || this.base.palette !== palette) {
      this.base = { picture, palette, image: this.drawBase(picture, palette, dots) };
    }
    const c = this.context;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, this.element.width, this.element.height);
    c.drawImage(this.base.image, 0, 0);
    c.setTransform(dots, 0, 0, dots, 0, 0);
    this.drawMarks(c, picture, palette);
    this.drawWindow(c, palette);
  }

  /** The whole height is used: long graphs are squeezed more in height than in width. */
  private fit({ layout }: Picture, height: number): void {
    const y = (height - 8) / Math.max(1, layout.height);
    const x = Math.min((WIDTH - 8) / Math.max(1, layout.width), y * 12);
    this.scale = { x, y, left: (WIDTH - layout.width * x) / 2, top: 4 };
  }

  private drawBase(picture: Picture, palette: Palette, dots: number): HTMLCanvasElement {
    const image = h("canvas", { width: this.element.width, height: this.element.height });
    const c = image.getContext("2d") as CanvasRenderingContext2D;
    c.setTransform(dots, 0, 0, dots, 0, 0);
    const { shown } = picture.scene;
    const boxesOf = (role: string) => [...shown.keys()].filter((i) => shown[i].role === role);
    for (const role of palette.roles.keys()) {
      c.fillStyle = role ? (palette.roles.get(role)?.[1] ?? "") : palette.soft;
      this.drawBoxes(c, picture, boxesOf(role));
    }
    return image;
  }

  private drawBoxes(c: CanvasRenderingContext2D, { layout, scene }: Picture, boxes: Iterable<number>): void {
    const { x, y, left, top } = this.scale;
    c.beginPath();
    for (const i of boxes) {
      const [w, h] = [Math.max(1, scene.shown[i].width * x), Math.max(0.5, scene.shown[i].height * y * 0.8)];
      c.rect(left + layout.x[i] * x - w / 2, top + layout.y[i] * y - h / 2, w, h);
    }
    c.fill();
  }

  private drawMarks(c: CanvasRenderingContext2D, picture: Picture, palette: Palette): void {
    const { y, top } = this.scale;
    const mark = (boxes: Iterable<number>, colour: string, from: number, width: number) => {
      c.fillStyle = colour;
      for (const i of boxes) c.fillRect(from, top + picture.layout.y[i] * y - 1, width, 2);
    };
    const lit = (bits: number) => [...picture.lit].filter(([, own]) => own & bits).map(([i]) => i);
    if (picture.found) mark(picture.found, palette.accent, 0, 5);
    mark(lit(LIT.hovered | LIT["hover-linked"]), palette.step, 0, WIDTH);
    mark(lit(LIT.pinned | LIT["pin-linked"]), palette.accent, 0, WIDTH);
  }

  private drawWindow(c: CanvasRenderingContext2D, palette: Palette): void {
    const { x, y, left, top } = this.scale;
    const window = this.viewport.window();
    const inside = (value: number, most: number) => Math.min(most - 1, Math.max(1, value));
    const [x0, x1] = [inside(left + window.left * x, WIDTH), inside(left + window.right * x, WIDTH)];
    const [y0, y1] = [
      inside(top + window.top * y, this.viewport.height),
      inside(top + window.bottom * y, this.viewport.height),
    ];
    c.strokeStyle = palette.accent;
    c.lineWidth = 1.5;
    c.strokeRect(x0, y0, Math.max(4, x1 - x0), Math.max(4, y1 - y0));
  }
}

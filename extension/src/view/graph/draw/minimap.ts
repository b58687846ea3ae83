/** The minimap beside a drawing: the whole graph, its highlighted and found nodes, and the visible area. */

import { h } from "../../dom/elements";
import type { Palette } from "./palette";
import { HIGHLIGHT, type Picture } from "./picture";
import type { Viewport } from "./viewport";

const WIDTH = 64;
const MIN_BOXES = 30;

export class Minimap {
  readonly element = h("canvas", { class: "map", "aria-hidden": "true" });
  private readonly context = this.element.getContext("2d") as CanvasRenderingContext2D;
  /** The image of the graph, drawn once for each picture and theme. */
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

  /** Hides the minimap of small graphs. */
  setPicture({ scene }: Picture): void {
    this.element.hidden = scene.boxes.length < MIN_BOXES;
  }

  paint(picture: Picture, palette: Palette): void {
    const { height } = this.viewport;
    if (this.element.hidden || !height) return;
    const pixelRatio = devicePixelRatio || 1;
    if (this.element.height !== Math.round(height * pixelRatio)) {
      this.element.width = WIDTH * pixelRatio;
      this.element.height = Math.round(height * pixelRatio);
      this.base = null;
    }
    this.fit(picture, height);
    if (this.base?.picture !== picture || this.base.palette !== palette) {
      this.base = { picture, palette, image: this.drawBase(picture, palette, pixelRatio) };
    }
    const canvas = this.context;
    canvas.setTransform(1, 0, 0, 1, 0, 0);
    canvas.clearRect(0, 0, this.element.width, this.element.height);
    canvas.drawImage(this.base.image, 0, 0);
    canvas.setTransform(pixelRatio, 0, 0, pixelRatio, 0, 0);
    this.drawMarks(canvas, picture, palette);
    this.drawWindow(canvas, palette);
  }

  /** Scales the graph to the whole height; long graphs are compressed more in height than in width. */
  private fit({ layout }: Picture, height: number): void {
    const y = (height - 8) / Math.max(1, layout.height);
    const x = Math.min((WIDTH - 8) / Math.max(1, layout.width), y * 12);
    this.scale = { x, y, left: (WIDTH - layout.width * x) / 2, top: 4 };
  }

  private drawBase(picture: Picture, palette: Palette, pixelRatio: number): HTMLCanvasElement {
    const image = h("canvas", { width: this.element.width, height: this.element.height });
    const canvas = image.getContext("2d") as CanvasRenderingContext2D;
    canvas.setTransform(pixelRatio, 0, 0, pixelRatio, 0, 0);
    const { boxes } = picture.scene;
    const boxesOf = (role: string) => [...boxes.keys()].filter((i) => boxes[i].role === role);
    for (const role of palette.roles.keys()) {
      canvas.fillStyle = role ? (palette.roles.get(role)?.[1] ?? "") : palette.mutedText;
      this.drawBoxes(canvas, picture, boxesOf(role));
    }
    return image;
  }

  private drawBoxes(canvas: CanvasRenderingContext2D, { layout, scene }: Picture, boxes: Iterable<number>): void {
    const { x, y, left, top } = this.scale;
    canvas.beginPath();
    for (const i of boxes) {
      const [w, h] = [Math.max(1, scene.boxes[i].width * x), Math.max(0.5, scene.boxes[i].height * y * 0.8)];
      canvas.rect(left + layout.x[i] * x - w / 2, top + layout.y[i] * y - h / 2, w, h);
    }
    canvas.fill();
  }

  private drawMarks(canvas: CanvasRenderingContext2D, picture: Picture, palette: Palette): void {
    const { y, top } = this.scale;
    const mark = (boxes: Iterable<number>, colour: string, from: number, width: number) => {
      canvas.fillStyle = colour;
      for (const i of boxes) canvas.fillRect(from, top + picture.layout.y[i] * y - 1, width, 2);
    };
    const boxesWith = (bits: number) => [...picture.highlighted].filter(([, own]) => own & bits).map(([i]) => i);
    if (picture.found) mark(picture.found, palette.accent, 0, 5);
    mark(boxesWith(HIGHLIGHT.hovered | HIGHLIGHT["hover-linked"]), palette.step, 0, WIDTH);
    mark(boxesWith(HIGHLIGHT.pinned | HIGHLIGHT["pin-linked"]), palette.accent, 0, WIDTH);
  }

  private drawWindow(canvas: CanvasRenderingContext2D, palette: Palette): void {
    const { x, y, left, top } = this.scale;
    const window = this.viewport.visibleArea();
    const inside = (value: number, most: number) => Math.min(most - 1, Math.max(1, value));
    const [x0, x1] = [inside(left + window.left * x, WIDTH), inside(left + window.right * x, WIDTH)];
    const [y0, y1] = [
      inside(top + window.top * y, this.viewport.height),
      inside(top + window.bottom * y, this.viewport.height),
    ];
    canvas.strokeStyle = palette.accent;
    canvas.lineWidth = 1.5;
    canvas.strokeRect(x0, y0, Math.max(4, x1 - x0), Math.max(4, y1 - y0));
  }
}

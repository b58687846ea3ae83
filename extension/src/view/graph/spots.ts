/**
 * An unseen element over each node on the canvas: what a screen reader reads and the keyboard's focus is told
 * by.  They lie in one layer that moves with the drawing; of a large graph there are those that are in sight.
 */

import { h } from "../dom/dom";
import { LIT, type Picture } from "./draw/picture";
import type { Viewport } from "./draw/viewport";
import type { Flow } from "./scene/flow";
import { saidOf } from "./scene/scene";

const FEW = 400;
const SETTLED_MS = 120;

let views = 0;

export class Spots {
  readonly element = h("div", { class: "spots" });
  private readonly made = new Map<number, HTMLElement>();
  private readonly name = `cutaway-graph-${views++}`;
  private picture: Picture | null = null;
  private timer = 0;

  constructor(
    private readonly viewport: Viewport,
    private readonly flow: Flow,
  ) {}

  id(box: number): string {
    return `${this.name}-${box}`;
  }

  setPicture(picture: Picture): void {
    this.picture = picture;
    this.made.clear();
    this.element.replaceChildren();
    this.fill();
  }

  move(): void {
    const { x, y, scale } = this.viewport.view;
    const [dx, dy] = [this.viewport.width / 2 - x * scale, this.viewport.height / 2 - y * scale];
    this.element.style.transform = `translate(${dx}px, ${dy}px) scale(${scale})`;
    if (!this.picture || this.picture.scene.shown.length <= FEW) return;
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.fill(), SETTLED_MS);
  }

  /** Those that are in sight, and the current one. */
  private fill(): void {
    const { picture } = this;
    if (!picture) return;
    const wanted = new Set(this.wanted(picture));
    for (const [box, element] of this.made) {
      if (wanted.has(box)) continue;
      element.remove();
      this.made.delete(box);
    }
    for (const box of wanted) this.spot(box);
    this.light();
  }

  private wanted(picture: Picture): Iterable<number> {
    const { shown } = picture.scene;
    if (shown.length <= FEW) return shown.keys();
    const { top, bottom, left, right } = this.viewport.window();
    const { x, y } = picture.layout;
    const seen = picture.index
      .between(top, bottom)
      .boxes.filter((i) => y[i] >= top && y[i] <= bottom && x[i] >= left && x[i] <= right);
    return seen.length <= FEW ? seen : [];
  }

  /** The element of a box, made where there is none. */
  spot(box: number): HTMLElement {
    const known = this.made.get(box);
    if (known) return known;
    const { scene, layout } = this.picture as Picture;
    const { width, height, role } = scene.shown[box];
    const said = saidOf(this.flow, scene.shown[box]);
    const place = `left:${layout.x[box] - width / 2}px;top:${layout.y[box] - height / 2}px;width:${width}px;height:${height}px`;
    const element = h("div", {
      class: `node ${role}`,
      id: this.id(box),
      role: "option",
      title: said,
      style: place,
      "aria-label": said.replaceAll("\n", ", "),
    });
    this.made.set(box, element);
    this.element.append(element);
    return element;
  }

  light(): void {
    const { picture } = this;
    if (!picture) return;
    for (const [box, element] of this.made) {
      const bits = picture.lit.get(box) ?? 0;
      for (const [name, bit] of Object.entries(LIT)) element.classList.toggle(name, Boolean(bits & bit));
      element.setAttribute("aria-selected", String(Boolean(bits & LIT.pinned)));
      element.classList.toggle("current", box === picture.current);
    }
  }

  destroy(): void {
    clearTimeout(this.timer);
  }
}

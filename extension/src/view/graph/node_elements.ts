/**
 * Invisible elements over the nodes on the canvas, for screen readers and for the keyboard focus. They are in one layer
 * that moves with the drawing; a large graph has elements for the visible nodes only.
 */

import { h } from "../dom/elements";
import { HIGHLIGHT, type Picture } from "./draw/picture";
import type { Viewport } from "./draw/viewport";
import type { IndexedGraph } from "./scene/indexed_graph";
import { describeBox } from "./scene/scene";

const MAX_ELEMENTS = 400;
const SETTLE_MS = 120;

let instances = 0;

export class NodeElements {
  readonly element = h("div", { class: "node-elements" });
  private readonly elements = new Map<number, HTMLElement>();
  private readonly idPrefix = `cutaway-graph-${instances++}`;
  private picture: Picture | null = null;
  private timer = 0;

  constructor(
    private readonly viewport: Viewport,
    private readonly graph: IndexedGraph,
  ) {}

  id(box: number): string {
    return `${this.idPrefix}-${box}`;
  }

  setPicture(picture: Picture): void {
    this.picture = picture;
    this.elements.clear();
    this.element.replaceChildren();
    this.update();
  }

  move(): void {
    const { x, y, scale } = this.viewport.view;
    const [dx, dy] = [this.viewport.width / 2 - x * scale, this.viewport.height / 2 - y * scale];
    this.element.style.transform = `translate(${dx}px, ${dy}px) scale(${scale})`;
    if (!this.picture || this.picture.scene.boxes.length <= MAX_ELEMENTS) return;
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.update(), SETTLE_MS);
  }

  /** Those that are in sight, and the current one. */
  private update(): void {
    const { picture } = this;
    if (!picture) return;
    const visible = new Set(this.visibleBoxes(picture));
    for (const [box, element] of this.elements) {
      if (visible.has(box)) continue;
      element.remove();
      this.elements.delete(box);
    }
    for (const box of visible) this.elementOf(box);
    this.highlight();
  }

  private visibleBoxes(picture: Picture): Iterable<number> {
    const { boxes } = picture.scene;
    if (boxes.length <= MAX_ELEMENTS) return boxes.keys();
    const { top, bottom, left, right } = this.viewport.visibleArea();
    const { x, y } = picture.layout;
    const seen = picture.index
      .between(top, bottom)
      .boxes.filter((i) => y[i] >= top && y[i] <= bottom && x[i] >= left && x[i] <= right);
    return seen.length <= MAX_ELEMENTS ? seen : [];
  }

  /** The element of a box, made where there is none. */
  elementOf(box: number): HTMLElement {
    const known = this.elements.get(box);
    if (known) return known;
    const { scene, layout } = this.picture as Picture;
    const { width, height, role } = scene.boxes[box];
    const description = describeBox(this.graph, scene.boxes[box]);
    const place = `left:${layout.x[box] - width / 2}px;top:${layout.y[box] - height / 2}px;width:${width}px;height:${height}px`;
    const element = h("div", {
      class: `node ${role}`,
      id: this.id(box),
      role: "option",
      title: description,
      style: place,
      "aria-label": description.replaceAll("\n", ", "),
    });
    this.elements.set(box, element);
    this.element.append(element);
    return element;
  }

  highlight(): void {
    const { picture } = this;
    if (!picture) return;
    for (const [box, element] of this.elements) {
      const bits = picture.highlighted.get(box) ?? 0;
      for (const [name, bit] of Object.entries(HIGHLIGHT)) element.classList.toggle(name, Boolean(bits & bit));
      element.setAttribute("aria-selected", String(Boolean(bits & HIGHLIGHT.pinned)));
      element.classList.toggle("current", box === picture.current);
      element.classList.toggle("later", picture.later.has(box));
    }
  }

  destroy(): void {
    clearTimeout(this.timer);
  }
}

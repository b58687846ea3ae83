/** The surface of a drawing: the canvas, the node elements over it, the minimap, and what the pointer does there. */

import { h } from "../dom/elements";
import { Minimap } from "./draw/minimap";
import { Painter } from "./draw/painter";
import { onTheme, type Palette, readPalette } from "./draw/palette";
import type { Picture } from "./draw/picture";
import { type Area, READABLE_SCALE, Viewport } from "./draw/viewport";
import { densestX } from "./navigation";
import { NodeElements } from "./node_elements";
import type { DrawableGraph } from "./scene/drawable_graph";

/** Width of the plus sign on a collapsed group, from the left side of its box. */
const EXPAND_BUTTON_PX = 18;

interface Point {
  x: number;
  y: number;
}

/** What happens on the canvas; a box is -1 where there is none. */
interface CanvasListeners {
  onKey(event: KeyboardEvent): void;
  onHover(box: number): void;
  onClick(box: number): void;
  /** A click on the plus sign of a collapsed group, or a double click on a box. */
  onExpand(box: number): void;
  /** The canvas has a size, or another one; `before` is what was visible, null if it had none. */
  onResized(before: Area | null): void;
}

export class GraphCanvas {
  readonly element: HTMLElement;
  readonly viewport: Viewport;
  picture: Picture | null = null;
  private readonly host: HTMLElement;
  private readonly canvas = h("canvas", { "aria-hidden": "true" });
  private readonly painter = new Painter(this.canvas);
  private readonly nodeElements: NodeElements;
  private readonly minimap: Minimap;
  private readonly stopTheme: () => void;
  private readonly resizeObserver: ResizeObserver;
  private palette: Palette | null = null;
  private paintRequest = 0;
  private isMounted = false;

  constructor(
    subject: DrawableGraph,
    private readonly listeners: CanvasListeners,
  ) {
    const { name, graph } = subject;
    const count = graph.nodes.length.toLocaleString("en");
    this.host = h("div", {
      class: "window",
      role: "listbox",
      tabindex: 0,
      "aria-label": `${name}: ${count} nodes; arrow keys move along edges, Enter pins, / searches`,
      onkeydown: (event: KeyboardEvent) => listeners.onKey(event),
      onpointermove: (event: PointerEvent) => this.handlePointer(event),
      onpointerleave: () => listeners.onHover(-1),
      onclick: (event: MouseEvent) => this.handleClick(event),
      ondblclick: (event: MouseEvent) => listeners.onExpand(this.boxAt(event)),
      onscroll: () => this.handleScroll(),
    });
    this.viewport = new Viewport(this.host, () => this.handleMove());
    this.nodeElements = new NodeElements(this.viewport, graph);
    this.minimap = new Minimap(this.viewport);
    this.host.append(this.canvas, this.nodeElements.element);
    this.element = h("div", { class: "middle" }, this.host, this.minimap.element);
    this.stopTheme = onTheme(() => this.handleThemeChange());
    this.resizeObserver = new ResizeObserver(() => this.handleResize());
  }

  /** Shows a picture. The node `anchor` (-1 for none) stays in place if the previous picture had it. */
  setPicture(picture: Picture, anchor: number): void {
    const before = this.positionOf(anchor);
    this.picture = picture;
    this.viewport.setSize(picture.layout.width, picture.layout.height);
    this.nodeElements.setPicture(picture);
    this.minimap.setPicture(picture);
    if (picture.current >= 0) this.setCurrent(picture.current);
    const after = this.positionOf(anchor);
    if (before && after) this.moveBy(after.x - before.x, after.y - before.y);
    else if (this.viewport.width) this.setInitialView();
    this.schedulePaint();
  }

  /** Observes the size; call it once there is a picture. */
  observeSize(): void {
    this.resizeObserver.observe(this.host);
  }

  private positionOf(node: number): Point | null {
    if (!this.picture || node < 0) return null;
    const { scene, layout } = this.picture;
    const box = scene.boxOf[node];
    return box >= 0 ? { x: layout.x[box], y: layout.y[box] } : null;
  }

  private moveBy(dx: number, dy: number): void {
    const { x, y, scale } = this.viewport.view;
    this.viewport.go({ x: x + dx, y: y + dy, scale }, false);
  }

  private setInitialView(): void {
    if (!this.picture) return;
    const { layout } = this.picture;
    this.viewport.setInitialView((width, height) => densestX(layout, width, height));
  }

  // ---- drawing ----

  /** Draws the picture at the next animation frame. */
  schedulePaint(): void {
    if (this.paintRequest) return;
    this.paintRequest = requestAnimationFrame(() => {
      this.paintRequest = 0;
      this.paint();
    });
  }

  private paint(): void {
    if (!this.picture || !this.viewport.width) return;
    this.palette ??= readPalette(this.element);
    this.painter.paint(this.picture, this.viewport, this.palette);
    this.minimap.paint(this.picture, this.palette);
  }

  /** Updates the node elements and the drawing to the picture's highlights. */
  highlight(): void {
    this.nodeElements.highlight();
    this.schedulePaint();
  }

  private handleThemeChange(): void {
    this.palette = null;
    this.schedulePaint();
  }

  private handleMove(): void {
    this.nodeElements.move();
    this.schedulePaint();
  }

  private handleResize(): void {
    const before = this.isMounted && this.viewport.width ? this.viewport.targetArea() : null;
    const isOtherType = this.viewport.measure();
    this.viewport.settle();
    if (!this.viewport.width) return;
    if (!this.isMounted || isOtherType) this.setInitialView();
    this.isMounted = true;
    this.listeners.onResized(before);
  }

  // ---- current box ----

  /** Sets the box that the keys move from, and announces it to screen readers. */
  setCurrent(box: number): void {
    const picture = this.picture as Picture;
    picture.current = box;
    this.nodeElements.elementOf(box);
    this.host.setAttribute("aria-activedescendant", this.nodeElements.id(box));
    this.highlight();
  }

  /** Returns the first box whose middle is in the visible area, or 0. */
  firstVisible(): number {
    const { top, bottom } = this.viewport.visibleArea();
    const { index, layout } = this.picture as Picture;
    return index.between(top, bottom).boxes.find((i) => layout.y[i] >= top) ?? 0;
  }

  /** Scrolls to a box if it is not visible, at a readable scale. */
  reveal(box: number): void {
    const { x, y } = (this.picture as Picture).layout;
    const { scale } = this.viewport.view;
    if (this.isIn(this.viewport.visibleArea(), box) && scale > 0.2) return;
    const readable = Math.max(scale, READABLE_SCALE);
    this.viewport.go({ x: x[box], y: y[box] + this.viewport.height / readable / 6, scale: readable });
  }

  /** Whether the middle of a box is in a rectangle of the drawing. */
  isIn({ left, right, top, bottom }: Area, box: number): boolean {
    const { x, y } = (this.picture as Picture).layout;
    return x[box] > left && x[box] < right && y[box] > top && y[box] < bottom;
  }

  focus(): void {
    this.host.focus();
  }

  // ---- pointer ----

  private boxAt(event: MouseEvent): number {
    const { x, y } = this.viewport.toDrawing(event);
    return this.picture?.index.at(x, y) ?? -1;
  }

  private handlePointer(event: PointerEvent): void {
    if (this.viewport.isDragging) return;
    const box = this.boxAt(event);
    this.host.classList.toggle("on-node", box >= 0);
    this.listeners.onHover(box);
  }

  private handleClick(event: MouseEvent): void {
    const box = this.boxAt(event);
    if (this.viewport.isDragging || box < 0) return;
    this.setCurrent(box);
    if (this.isOnExpandButton(event, box)) this.listeners.onExpand(box);
    else this.listeners.onClick(box);
  }

  /** Whether a click hits the plus sign of a collapsed group. */
  private isOnExpandButton(event: MouseEvent, box: number): boolean {
    const { layout, scene } = this.picture as Picture;
    const { group, width } = scene.boxes[box];
    return group !== null && this.viewport.toDrawing(event).x < layout.x[box] - width / 2 + EXPAND_BUTTON_PX;
  }

  /** The browser scrolled to a node element, for example for a screen reader: pan the drawing instead. */
  private handleScroll(): void {
    const { scrollLeft, scrollTop } = this.host;
    if (!scrollLeft && !scrollTop) return;
    this.host.scrollTo(0, 0);
    this.viewport.pan(scrollLeft, scrollTop);
  }

  destroy(): void {
    cancelAnimationFrame(this.paintRequest);
    this.viewport.destroy();
    this.nodeElements.destroy();
    this.stopTheme();
    this.resizeObserver.disconnect();
  }
}

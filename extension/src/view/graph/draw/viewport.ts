/** The visible part of a drawing: its position and scale, changed by wheel, drag and keys. */

import { prefersReducedMotion } from "../../dom/elements";

const MIN_SCALE = 0.002;
const MAX_SCALE = 3;
/** Usual width of a box. */
const BOX_WIDTH = 120;
const ANIMATION_MS = 160;
/** Margin around the drawing; the summary of the cut is drawn in it. */
const MARGIN = 30;
/** From this scale on, all texts on boxes can be read. */
export const READABLE_SCALE = 0.8;
/** From this scale on, most texts can be read. */
const LEGIBLE_SCALE = 0.6;
const DRAG_PX = 4;

interface View {
  /** The point of the drawing in the middle of the window. */
  x: number;
  y: number;
  scale: number;
}

/** A rectangle of the drawing. */
export interface Area {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

export class Viewport {
  view: View = { x: 0, y: 0, scale: 1 };
  /** The view at which an animation ends. */
  private target = this.view;
  /** The window's size in pixels. */
  width = 0;
  height = 0;
  /** The scale of a drawing that has room: 1, or more in larger type. */
  private usualScale = 1;
  /** Another viewport that shows the same position and scale. */
  linked: Viewport | null = null;
  private isFollowing = false;
  private size = { width: 0, height: 0 };
  private animation = 0;
  /** Whether the pointer drags the drawing, so that releasing it is not a click. */
  isDragging = false;

  constructor(
    private readonly host: HTMLElement,
    private readonly changed: () => void,
  ) {
    host.addEventListener("wheel", (event) => this.handleWheel(event), { passive: false });
    host.addEventListener("pointerdown", (event) => this.handleDrag(event));
  }

  /** Reads the window's size, and the usual scale from the style `--drawing-scale`; returns whether the latter changed. */
  measure(): boolean {
    const before = this.usualScale;
    this.width = this.host.clientWidth;
    this.height = this.host.clientHeight;
    this.usualScale = Number(getComputedStyle(this.host).getPropertyValue("--drawing-scale")) || 1;
    return this.usualScale !== before;
  }

  setSize(width: number, height: number): void {
    this.size = { width, height };
  }

  /** Converts a position on the page to one in the drawing. */
  toDrawing(event: { clientX: number; clientY: number }): { x: number; y: number } {
    const corner = this.host.getBoundingClientRect();
    const { x, y, scale } = this.view;
    return {
      x: x + (event.clientX - corner.left - this.width / 2) / scale,
      y: y + (event.clientY - corner.top - this.height / 2) / scale,
    };
  }

  /** Returns the visible rectangle of the drawing. */
  visibleArea({ x, y, scale } = this.view): Area {
    const [w, h] = [this.width / 2 / scale, this.height / 2 / scale];
    return { left: x - w, top: y - h, right: x + w, bottom: y + h };
  }

  /** Returns the rectangle that is visible once an animation has ended. */
  targetArea(): Area {
    return this.visibleArea(this.target);
  }

  /** Ends an animation, and keeps the window inside the drawing. */
  settle(): void {
    this.go(this.target, false);
  }

  /** Returns the scale at which the whole drawing is visible, at most the usual one. */
  fitScale(): number {
    const { width, height } = this.size;
    return Math.min(this.usualScale, this.width / (width + 2 * MARGIN), this.height / (height + 2 * MARGIN));
  }

  showAll(): void {
    this.go({ x: this.size.width / 2, y: this.size.height / 2, scale: this.fitScale() });
  }

  /**
   * Sets the initial view: the top of the drawing at a readable scale. `across` returns the best x for a window's size.
   */
  setInitialView(across: (width: number, height: number) => number): void {
    const fitWidth = this.width / (this.size.width + 2 * MARGIN);
    const scale = Math.max(
      this.fitScale(),
      fitWidth < LEGIBLE_SCALE ? READABLE_SCALE : Math.min(this.usualScale, fitWidth),
    );
    const y = Math.min(this.size.height / 2, (this.height / 2 - MARGIN) / scale);
    // keep boxes at the window's edge from being cut off
    const x = across(this.width / scale - BOX_WIDTH, this.height / scale);
    this.go({ x, y, scale }, false);
  }

  /** Changes the scale by a factor; the point `at` of the drawing, by default the middle, stays in place. */
  zoom(by: number, at: { x: number; y: number } = this.view): void {
    const { x, y, scale } = this.view;
    const next = Math.min(MAX_SCALE, Math.max(MIN_SCALE, this.fitScale() / 2, scale * by));
    const ratio = scale / next;
    this.go({ x: at.x + (x - at.x) * ratio, y: at.y + (y - at.y) * ratio, scale: next }, false);
  }

  /** Moves by pixels of the page. */
  pan(dx: number, dy: number): void {
    const { x, y, scale } = this.view;
    this.go({ x: x + dx / scale, y: y + dy / scale, scale }, false);
  }

  go(to: View, glide = true): void {
    cancelAnimationFrame(this.animation);
    const end = this.clampToDrawing(to);
    this.target = end;
    if (!glide || prefersReducedMotion() || !this.width) {
      this.set(end);
      return;
    }
    const from = this.view;
    const start = performance.now();
    const step = (now: number) => {
      const t = Math.min(1, Math.max(0, (now - start) / ANIMATION_MS));
      const eased = 1 - (1 - t) ** 3;
      const mix = (a: number, b: number) => a + (b - a) * eased;
      this.set({ x: mix(from.x, end.x), y: mix(from.y, end.y), scale: mix(from.scale, end.scale) });
      if (t < 1) this.animation = requestAnimationFrame(step);
    };
    this.animation = requestAnimationFrame(step);
  }

  private set(view: View): void {
    this.view = view;
    this.changed();
    if (this.linked && !this.isFollowing) this.linked.follow(view);
  }

  private follow(view: View): void {
    this.isFollowing = true;
    this.go(view, false);
    this.isFollowing = false;
  }

  /** Keeps the window inside the drawing; a drawing that is smaller stays in the middle. */
  private clampToDrawing({ x, y, scale }: View): View {
    const keep = (at: number, size: number, room: number) => {
      const half = room / 2 / scale - MARGIN / scale;
      return 2 * half >= size ? size / 2 : Math.min(size - half, Math.max(half, at));
    };
    return { x: keep(x, this.size.width, this.width), y: keep(y, this.size.height, this.height), scale };
  }

  private handleWheel(event: WheelEvent): void {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 300), this.toDrawing(event));
      return;
    }
    const before = this.view;
    const unit = event.deltaMode === 1 ? 16 : 1;
    const [dx, dy] = event.shiftKey && !event.deltaX ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
    this.pan(dx * unit, dy * unit);
    // at the end of the drawing the page scrolls, as for any scrollable element
    if (this.view.x !== before.x || this.view.y !== before.y) event.preventDefault();
  }

  private handleDrag(down: PointerEvent): void {
    this.isDragging = false;
    if (down.button !== 0) return;
    let [x, y] = [down.clientX, down.clientY];
    const move = (event: PointerEvent) => {
      if (!this.isDragging && Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) < DRAG_PX) return;
      if (!this.isDragging) this.host.setPointerCapture(down.pointerId);
      this.isDragging = true;
      this.host.classList.add("dragging");
      this.pan(x - event.clientX, y - event.clientY);
      [x, y] = [event.clientX, event.clientY];
    };
    const up = () => {
      this.host.removeEventListener("pointermove", move);
      this.host.classList.remove("dragging");
    };
    this.host.addEventListener("pointermove", move);
    this.host.addEventListener("pointerup", up, { once: true });
    this.host.addEventListener("pointercancel", up, { once: true });
  }

  destroy(): void {
    cancelAnimationFrame(this.animation);
  }
}

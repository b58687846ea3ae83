/** Where one looks at a drawing: its place and scale, moved by wheel, drag and keys. */

import { reducedMotion } from "../../dom/dom";

const LEAST_SCALE = 0.002;
const MOST_SCALE = 3;
/** As wide as most boxes are. */
const WIDE = 120;
const GLIDE_MS = 160;
/** Room around the drawing, in which what the cut amounts to is written. */
const MARGIN = 30;
/** From this scale on all that is written on a box can be read. */
export const READABLE = 0.8;
/** From here on most of it. */
const LEGIBLE = 0.6;
const DRAG_PX = 4;

interface View {
  /** The drawing's point in the middle of the window. */
  x: number;
  y: number;
  scale: number;
}

export class Viewport {
  view: View = { x: 0, y: 0, scale: 1 };
  /** The window's size, and the drawing's. */
  width = 0;
  height = 0;
  /** Another one that goes along. */
  beside: Viewport | null = null;
  private isLed = false;
  private size = { width: 0, height: 0 };
  private glide = 0;
  /** Whether the pointer moves the drawing now, so that letting go is no click. */
  dragged = false;

  constructor(
    private readonly host: HTMLElement,
    private readonly changed: () => void,
  ) {
    host.addEventListener("wheel", (event) => this.wheeled(event), { passive: false });
    host.addEventListener("pointerdown", (event) => this.drag(event));
  }

  setSize(width: number, height: number): void {
    this.size = { width, height };
  }

  /** From a place on the page to one in the drawing. */
  at(event: { clientX: number; clientY: number }): { x: number; y: number } {
    const corner = this.host.getBoundingClientRect();
    const { x, y, scale } = this.view;
    return {
      x: x + (event.clientX - corner.left - this.width / 2) / scale,
      y: y + (event.clientY - corner.top - this.height / 2) / scale,
    };
  }

  /** What of the drawing is seen. */
  window(): { left: number; top: number; right: number; bottom: number } {
    const { x, y, scale } = this.view;
    const [w, h] = [this.width / 2 / scale, this.height / 2 / scale];
    return { left: x - w, top: y - h, right: x + w, bottom: y + h };
  }

  /** The scale at which the whole drawing is seen. */
  whole(): number {
    const { width, height } = this.size;
    return Math.min(1, this.width / (width + 2 * MARGIN), this.height / (height + 2 * MARGIN));
  }

  showAll(): void {
    this.go({ x: this.size.width / 2, y: this.size.height / 2, scale: this.whole() });
  }

  /** To begin with: as much as can be read, from the top; `across` says where a window of a size stands best. */
  begin(across: (width: number, height: number) => number): void {
    const wide = this.width / (this.size.width + 2 * MARGIN);
    const scale = Math.max(this.whole(), wide < LEGIBLE ? READABLE : Math.min(1, wide));
    const y = Math.min(this.size.height / 2, (this.height / 2 - MARGIN) / scale);
    // a box at the window's very edge would be cut
    const x = across(this.width / scale - WIDE, this.height / scale);
    this.go({ x, y, scale }, false);
  }

  /** Change the scale; what is at `at`, a place in the drawing (else the middle), stays where it is. */
  zoom(by: number, at: { x: number; y: number } = this.view): void {
    const { x, y, scale } = this.view;
    const next = Math.min(MOST_SCALE, Math.max(LEAST_SCALE, this.whole() / 2, scale * by));
    const kept = scale / next;
    this.go({ x: at.x + (x - at.x) * kept, y: at.y + (y - at.y) * kept, scale: next }, false);
  }

  /** Move by pixels of the page. */
  pan(dx: number, dy: number): void {
    const { x, y, scale } = this.view;
    this.go({ x: x + dx / scale, y: y + dy / scale, scale }, false);
  }

  go(to: View, glide = true): void {
    cancelAnimationFrame(this.glide);
    const end = this.keptInside(to);
    if (!glide || reducedMotion() || !this.width) {
      this.set(end);
      return;
    }
    const from = this.view;
    const start = performance.now();
    const step = (now: number) => {
      const t = Math.min(1, Math.max(0, (now - start) / GLIDE_MS));
      const eased = 1 - (1 - t) ** 3;
      const mix = (a: number, b: number) => a + (b - a) * eased;
      this.set({ x: mix(from.x, end.x), y: mix(from.y, end.y), scale: mix(from.scale, end.scale) });
      if (t < 1) this.glide = requestAnimationFrame(step);
    };
    this.glide = requestAnimationFrame(step);
  }

  private set(view: View): void {
    this.view = view;
    this.changed();
    if (this.beside && !this.isLed) this.beside.goAlong(view);
  }

  private goAlong(view: View): void {
    this.isLed = true;
    this.go(view, false);
    this.isLed = false;
  }

  /** The drawing does not leave the window: what is smaller stays in the middle. */
  private keptInside({ x, y, scale }: View): View {
    const keep = (at: number, size: number, room: number) => {
      const half = room / 2 / scale - MARGIN / scale;
      return 2 * half >= size ? size / 2 : Math.min(size - half, Math.max(half, at));
    };
    return { x: keep(x, this.size.width, this.width), y: keep(y, this.size.height, this.height), scale };
  }

  private wheeled(event: WheelEvent): void {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 300), this.at(event));
      return;
    }
    const before = this.view;
    const unit = event.deltaMode === 1 ? 16 : 1;
    const [dx, dy] = event.shiftKey && !event.deltaX ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
    this.pan(dx * unit, dy * unit);
    // at an end the page scrolls on, as it does around any box
    if (this.view.x !== before.x || this.view.y !== before.y) event.preventDefault();
  }

  private drag(down: PointerEvent): void {
    this.dragged = false;
    if (down.button !== 0) return;
    let [x, y] = [down.clientX, down.clientY];
    const move = (event: PointerEvent) => {
      if (!this.dragged && Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) < DRAG_PX) return;
      if (!this.dragged) this.host.setPointerCapture(down.pointerId);
      this.dragged = true;
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
    cancelAnimationFrame(this.glide);
  }
}

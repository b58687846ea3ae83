/**
 * Splits and joins kernels: their handles are dragged onto one another, or onto the place below the table; with the
 * keyboard, or by clicks, one handle is chosen and then another. The cell runs again, and the kernels of both runs are timed.
 */

import { h } from "../../dom/elements";
import type { State } from "../../model/state";
import { experimentsOf } from "../../model/widget_model";

const MOVED = 4; // pixels; less is a click

export class FusionHandles {
  readonly element: HTMLElement;
  /** A kernel may have two rows: its own, and that of a group of which it is the first. */
  private readonly rows: { kernel: string; row: HTMLElement; handle: HTMLButtonElement }[] = [];
  private readonly splitPlace: HTMLButtonElement;
  private readonly status = h("span", { role: "status" });
  private chosen: string | null = null;

  private constructor(private readonly state: State) {
    this.splitPlace = h("button", { class: "split-place", disabled: true }, "Drop a kernel here to split it");
    this.splitPlace.onclick = () => this.chosen && this.send("split", this.chosen);
    this.element = h("p", { class: "fusion-handles" }, this.splitPlace, this.status);
  }

  /** Returns the handles for a table of kernels; null if the cell cannot run again with other fusions. */
  static of(state: State): FusionHandles | null {
    return experimentsOf(state.model) ? new FusionHandles(state) : null;
  }

  /** Creates the handle of a kernel, whose row in the table is a place to drop another one. */
  handle(kernel: string, row: HTMLElement): HTMLElement {
    const title = `Drag ${kernel} onto another kernel to join both, or to the place below to split it`;
    const handle = h(
      "button",
      { class: "handle", title, "aria-label": `Choose ${kernel}`, "aria-pressed": "false" },
      "⠿",
    );
    this.rows.push({ kernel, row, handle });
    handle.onclick = (event) => {
      event.stopPropagation(); // the row pins its nodes
      if (event.detail === 0 || !this.wasDragged) this.choose(kernel);
    };
    handle.onkeydown = (event) => {
      event.stopPropagation();
      if (event.key === "Escape") this.release();
    };
    handle.onpointerdown = (event) => this.drag(handle, kernel, event);
    return handle;
  }

  private wasDragged = false;

  /** Chooses a kernel; the second one is joined with the first. */
  private choose(kernel: string): void {
    if (this.chosen === null) this.pick(kernel);
    else if (this.chosen === kernel) this.release();
    else this.send("join", `${this.chosen},${kernel}`);
  }

  private pick(kernel: string): void {
    this.chosen = kernel;
    for (const each of this.rows) each.handle.setAttribute("aria-pressed", String(each.kernel === kernel));
    this.splitPlace.disabled = false;
    this.status.textContent = `${kernel}: choose another kernel to join it with, or split it.`;
  }

  private release(): void {
    this.chosen = null;
    for (const { handle } of this.rows) handle.setAttribute("aria-pressed", "false");
    this.splitPlace.disabled = true;
    this.status.textContent = "";
    this.mark(null);
  }

  private drag(handle: HTMLElement, kernel: string, down: PointerEvent): void {
    if (down.button !== 0) return;
    this.wasDragged = false;
    handle.setPointerCapture(down.pointerId);
    const move = (event: PointerEvent) => {
      if (!this.wasDragged && Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) < MOVED) return;
      if (!this.wasDragged) this.pick(kernel);
      this.wasDragged = true;
      this.mark(this.placeAt(event));
    };
    const end = (event: PointerEvent) => {
      handle.removeEventListener("pointermove", move);
      if (!this.wasDragged) return; // a click
      const place = event.type === "pointerup" ? this.placeAt(event) : null;
      this.release();
      if (place === this.splitPlace) this.send("split", kernel);
      else if (place) this.send("join", `${kernel},${this.kernelOf(place)}`);
    };
    handle.addEventListener("pointermove", move);
    handle.addEventListener("pointerup", end, { once: true });
    handle.addEventListener("pointercancel", end, { once: true });
  }

  /** Returns the row or the place to split under the pointer, unless it is the row of the dragged kernel. */
  private placeAt(event: PointerEvent): HTMLElement | null {
    const root = this.element.getRootNode() as Document | ShadowRoot;
    const under = root.elementFromPoint(event.clientX, event.clientY);
    if (under && this.splitPlace.contains(under)) return this.splitPlace;
    return this.rows.find(({ kernel, row }) => kernel !== this.chosen && row.contains(under))?.row ?? null;
  }

  private kernelOf(row: HTMLElement): string {
    return this.rows.find((each) => each.row === row)?.kernel ?? "";
  }

  private mark(place: HTMLElement | null): void {
    for (const each of [...this.rows.map(({ row }) => row), this.splitPlace])
      each.classList.toggle("drop", each === place);
  }

  private send(experiment: "join" | "split", item: string): void {
    this.release();
    this.state.model.send({ type: "try", experiment, item });
    const words = experiment === "join" ? `with ${item.replace(",", " and ")} joined` : `with ${item} split`;
    this.status.textContent = `The cell runs again ${words} ...`;
  }
}

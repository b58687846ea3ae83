/**
 * The line for presenting: the views of the record, one after another, and larger type. PageDown and PageUp go to the next
 * and the previous view; the address of a report names one (`#2`), or any view (`address.ts`).
 */

import { h } from "../dom/elements";
import { plural } from "../dom/format";
import { loadSetting, saveSetting } from "../dom/storage";
import { viewOf } from "../model/address";
import type { State } from "../model/state";

const LARGE_TYPE = "large-type";

/** Creates the list of views with its buttons; hidden if the record has none. */
export class Presentation {
  readonly element = h("nav", { class: "presentation", "aria-label": "Views to present" });
  private readonly list = h("select", { "aria-label": "View" });
  private readonly previous = h("button", { title: "Previous view (PageUp)", onclick: () => this.move(-1) }, "‹");
  private readonly next = h("button", { title: "Next view (PageDown)", onclick: () => this.move(1) }, "›");
  private at = -1;

  constructor(private readonly state: State) {
    const { views } = state.record;
    this.element.hidden = !views.length;
    this.list.append(
      h("option", { value: -1 }, plural(views.length, "view")),
      ...views.map(({ title }, at) => h("option", { value: at }, `${at + 1}. ${title}`)),
    );
    this.list.onchange = () => this.show(Number(this.list.value));
    this.element.append(this.previous, this.list, this.next);
    this.update();
  }

  /** Shows the view that the page's address names, if it names one. */
  showNamed(): void {
    const named = /^#(\d+)$/.exec(location.hash);
    if (named) this.show(Number(named[1]) - 1);
    const view = viewOf(location.hash.slice(1));
    if (view) this.state.present(view);
  }

  handleKey(event: KeyboardEvent): boolean {
    const step = event.key === "PageDown" ? 1 : event.key === "PageUp" ? -1 : 0;
    if (!step || !this.state.record.views.length) return false;
    this.move(step);
    return true;
  }

  private move(step: number): void {
    this.show(this.at + step);
  }

  private show(at: number): void {
    const view = this.state.record.views[at];
    if (!view) return;
    this.at = at;
    this.update();
    this.state.present(view);
  }

  private update(): void {
    this.list.value = String(this.at);
    this.previous.disabled = this.at <= 0;
    this.next.disabled = this.at >= this.state.record.views.length - 1;
  }
}

/** Creates the button that makes the type larger, as for a projector. The choice is kept. */
export function largeTypeButton(): HTMLElement {
  const button = h("button", { class: "larger", title: "Larger type, for a projector" }, "A+");
  const set = (large: boolean) => {
    button.closest(".cutaway")?.classList.toggle(LARGE_TYPE, large);
    button.setAttribute("aria-pressed", String(large));
  };
  button.onclick = () => {
    const large = button.getAttribute("aria-pressed") !== "true";
    set(large);
    saveSetting(LARGE_TYPE, large);
  };
  const isBoolean = (value: unknown) => typeof value === "boolean";
  requestAnimationFrame(() => set(loadSetting(LARGE_TYPE, isBoolean as (value: unknown) => value is boolean) ?? false));
  return button;
}

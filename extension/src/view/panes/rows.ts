/** Content made of elements that stand for items: tables and the overview. */

import { h, scrollInside } from "../dom/dom";
import type { Content } from "../model/content";
import type { ItemId } from "../model/record";
import type { State } from "../model/state";
import { litClasses } from "./text";

const LIT = ["pinned", "pin-linked", "hovered", "hover-linked", "stepped"];

export class Rows implements Content {
  readonly element = h("div", { class: "rows" });
  private readonly rows: { element: HTMLElement; items: ItemId[] }[] = [];

  constructor(protected readonly state: State) {}

  /** Make `element` stand for `items`: it lights up with them, and pins them when it is clicked. */
  protected standsFor<E extends HTMLElement>(element: E, items: (ItemId | null)[]): E {
    const known = items.filter(
      (item): item is ItemId => item !== null && this.state.links.artifactOf(item) !== undefined,
    );
    if (!known.length) return element;
    this.rows.push({ element, items: known });
    const colour = this.state.links.colour(known[0]);
    element.classList.add("item", ...(colour === null ? [] : ["line", `c${colour}`]));
    element.tabIndex = 0;
    element.addEventListener("mouseenter", () => this.state.hover(known));
    element.addEventListener("mouseleave", () => this.state.hover([]));
    element.addEventListener("click", () => this.state.pin(known));
    element.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.target === element) this.state.pin(known);
    });
    return element;
  }

  protected table(heads: string[], rows: HTMLTableRowElement[]): HTMLTableElement {
    const head = h("tr", {}, ...heads.map((text) => h("th", { scope: "col" }, text)));
    return h("table", {}, h("thead", {}, head), h("tbody", {}, ...rows));
  }

  light(): void {
    for (const { element, items } of this.rows) {
      const classes = litClasses(items, this.state);
      for (const name of LIT) element.classList.toggle(name, classes.split(" ").includes(name));
    }
  }

  reveal(items: Set<ItemId>): void {
    const row = this.rows.find((r) => r.items.some((item) => items.has(item)))?.element;
    if (row) scrollInside(this.element, row);
  }

  destroy(): void {}
}

/** The cells of a row; `short` is for what is never broken into lines. */
export function cells(...contents: (Node | string)[]): HTMLTableCellElement[] {
  return contents.map((content) => (content instanceof HTMLTableCellElement ? content : h("td", {}, content)));
}

export function short(content: Node | string): HTMLTableCellElement {
  return h("td", { class: "short" }, content);
}

/** Two lines that give way to the cells beside them: what is too long for them is in the tip. */
export function stacked(first: Node | string, second: Node | string): HTMLTableCellElement {
  const lines = [h("div", {}, first), h("div", {}, h("small", {}, second))];
  return h("td", { class: "stacked", title: lines.map((line) => line.textContent).join("\n") }, ...lines);
}

export function code(text: string): HTMLElement {
  return h("code", {}, text);
}

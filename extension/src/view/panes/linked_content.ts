/** Content made of HTML elements that are linked to items: tables and the overview. */

import { h, scrollInside } from "../dom/elements";
import { percent } from "../dom/format";
import type { ModuleCost } from "../model/analysis/costs";
import type { Content } from "../model/content";
import type { ItemId } from "../model/record/record";
import type { State } from "../model/state";
import { highlightClasses } from "./highlight_classes";
import { makeSortable, rowElements, type TableRow } from "./table_rows";
import { addTools } from "./table_tools";

const HIGHLIGHT_CLASSES = ["pinned", "pin-linked", "hovered", "hover-linked", "stepped", "later"];

/** The places in code at which a line may end: within dotted and snake_case names, and after a bracket. */
const BREAKS = /(?<=\w[._]|[([])(?=[a-z])/i;

/** From so many characters on, a text in a cell may be cut: four lines of the narrowest column. */
const LONG = 32;

/** Modules of a smaller share of the cost are not listed. */
const MIN_MODULE_SHARE = 0.005;
const MAX_LINKED = 500;

/** The base class of tables and of the overview. */
export class LinkedContent implements Content {
  readonly element = h("div", { class: "rows" });
  private readonly linked: { element: HTMLElement; items: ItemId[] }[] = [];

  constructor(protected readonly state: State) {}

  /** Links `element` to `items`: it is highlighted with them, and a click pins them. Unknown items are ignored. */
  protected linkTo<E extends HTMLElement>(element: E, items: (ItemId | null)[]): E {
    const known = items.filter(
      (item): item is ItemId => item !== null && this.state.links.artifactOf(item) !== undefined,
    );
    if (!known.length) return element;
    this.linked.push({ element, items: known });
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

  /** A table that is sorted by the column whose heading is pressed, and whose rows can be filtered and copied. */
  protected table(heads: string[], rows: TableRow[]): HTMLTableElement {
    const head = h("tr", {}, ...heads.map((text) => h("th", { scope: "col" }, text)));
    const table = h("table", {}, h("thead", {}, head), h("tbody", {}, ...rowElements(rows)));
    makeSortable(table);
    addTools(table);
    return table;
  }

  /** A table whose last column has sentences or code; in a narrow pane they are below the other columns. */
  protected sentences(heads: string[], rows: TableRow[]): HTMLTableElement {
    const table = this.table(heads, rows);
    table.classList.add("sentences");
    table.style.setProperty("--columns", String(heads.length));
    return table;
  }

  /** The modules of a model as a table, each below the one around it; nothing if there are fewer than two. */
  protected modules(
    modules: ModuleCost[],
    heads: string[],
    figures: (cost: ModuleCost) => HTMLTableCellElement[],
  ): HTMLElement[] {
    const shown = modules.filter(({ share }) => share >= MIN_MODULE_SHARE);
    if (shown.length < 2) return [];
    const rows = shown.map((cost) => {
      const count = cost.count > 1 && h("small", {}, ` × ${cost.count}`);
      const name = h("div", { style: `padding-left:${1.2 * cost.depth}em` }, code(cost.name), count);
      return this.linkTo(h("tr", {}, ...cells(name, ...figures(cost))), cost.nodes.slice(0, MAX_LINKED));
    });
    return [h("h3", {}, "Modules"), this.table(["Module", "Share", ...heads], rows)];
  }

  highlight(): void {
    for (const { element, items } of this.linked) {
      const classes = highlightClasses(items, this.state);
      for (const name of HIGHLIGHT_CLASSES) element.classList.toggle(name, classes.split(" ").includes(name));
    }
  }

  reveal(items: Set<ItemId>): void {
    const row = this.linked.find((r) => !r.element.hidden && r.items.some((item) => items.has(item)))?.element;
    if (row) scrollInside(this.element, this.around(row));
  }

  /** What has to be visible of a linked element's surroundings. */
  protected around(row: HTMLElement): Element {
    return row;
  }

  destroy(): void {}
}

/** Creates the cells of a row; contents that are cells already stay as they are. */
export function cells(...contents: (Node | string)[]): HTMLTableCellElement[] {
  return contents.map((content) => (content instanceof HTMLTableCellElement ? content : h("td", {}, content)));
}

/** Creates a cell whose text is not wrapped. */
export function shortCell(content: Node | string): HTMLTableCellElement {
  return h("td", { class: "short" }, content);
}

/** Creates a cell with a share, 0 to 1, as a number and a bar. */
export function shareCell(share: number): HTMLTableCellElement {
  const bar = h("span", { class: "bar ok", style: `width:${Math.round(100 * share)}%` });
  return shortCell(h("span", { class: "share" }, percent(share), h("span", { class: "track" }, bar)));
}

/** Creates a cell of two lines that are cut off where the other cells need the width; the tooltip has the full text. */
export function stackedCell(first: Node | string, second: Node | string): HTMLTableCellElement {
  const lines = [h("div", {}, first), h("div", {}, h("small", {}, second))];
  return h("td", { class: "stacked", title: lines.map((line) => line.textContent).join("\n") }, ...lines);
}

/**
 * Creates a text in code; where it is too long for a line it is broken between names, if it can be. A cell shows the first
 * lines of a long text; the tooltip has all of it.
 */
export function code(text: string): HTMLElement {
  const parts = text.split(BREAKS).flatMap((part) => [h("wbr"), part]);
  return h("code", { title: text.length > LONG && text }, ...parts.slice(1));
}

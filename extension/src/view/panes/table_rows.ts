/** Rows of tables: sorted by a column, and groups of equal rows, which are one row until they are asked for. */

import { h } from "../dom/elements";
import { quantity } from "../dom/format";

/** Rows that are equal but for the module that they are in, below one row that has their sums. */
export interface RowGroup {
  head: HTMLTableRowElement;
  rows: HTMLTableRowElement[];
}

export type TableRow = HTMLTableRowElement | RowGroup;

/** Returns the elements of rows, in order; those of a group are hidden at first. */
export function rowElements(rows: TableRow[]): HTMLTableRowElement[] {
  return rows.flatMap((row) => (row instanceof HTMLTableRowElement ? [row] : groupElements(row)));
}

function groupElements({ head, rows }: RowGroup): HTMLTableRowElement[] {
  const title = `Show the ${rows.length} rows that this one stands for`;
  const button = h("button", { class: "unfold-rows", title, "aria-label": title, "aria-expanded": "false" }, "▸");
  button.onclick = (event) => {
    event.stopPropagation(); // the row pins its items
    const isShown = button.getAttribute("aria-expanded") === "false";
    button.setAttribute("aria-expanded", String(isShown));
    button.textContent = isShown ? "▾" : "▸";
    for (const row of rows) row.hidden = !isShown;
  };
  const [cell] = head.cells;
  (cell.firstElementChild ?? cell).prepend(button);
  for (const row of rows) {
    row.hidden = true;
    row.classList.add("in-group");
  }
  return [head, ...rows];
}

/** Lets the headings of a table sort its rows: first as is usual for the column, then the other way, then as before. */
export function makeSortable(table: HTMLTableElement): void {
  const [body] = table.tBodies;
  const units = unitsOf(body);
  if (units.length < 2) return;
  const heads = [...(table.tHead?.rows[0].cells ?? [])];
  heads.forEach((head, column) => {
    const text = head.textContent ?? "";
    if (!text) return;
    const button = h("button", { class: "sort", title: `Sort by ${text}` }, text);
    button.onclick = () => {
      const key = sortKeys(units, column);
      const usual = key.isNumeric ? "descending" : "ascending";
      const other = key.isNumeric ? "ascending" : "descending";
      const order = { none: usual, [usual]: other, [other]: "none" }[head.ariaSort ?? "none"] ?? usual;
      for (const each of heads) each.ariaSort = null;
      if (order !== "none") head.ariaSort = order;
      const sorted = order === "none" ? units : units.toSorted((a, b) => key.compare(a, b, order === "ascending"));
      body.append(...sorted.flat());
    };
    head.replaceChildren(button);
  });
}

/** The rows that stay together: a row alone, or the head of a group and its rows. */
export function unitsOf(body: HTMLTableSectionElement): HTMLTableRowElement[][] {
  const units: HTMLTableRowElement[][] = [];
  for (const row of body.rows) {
    if (row.classList.contains("in-group")) units.at(-1)?.push(row);
    else units.push([row]);
  }
  return units;
}

interface SortKeys {
  isNumeric: boolean;
  compare(a: HTMLTableRowElement[], b: HTMLTableRowElement[], isAscending: boolean): number;
}

/** A column is numeric if more of its cells are quantities than other texts; what has no value comes last. */
function sortKeys(units: HTMLTableRowElement[][], column: number): SortKeys {
  const texts = new Map(units.map((unit) => [unit, unit[0].cells[column]?.textContent?.trim() ?? ""]));
  const quantities = new Map([...texts].map(([unit, text]) => [unit, quantity(text)]));
  const full = [...texts.values()].filter(Boolean).length;
  const isNumeric = 2 * [...quantities.values()].filter((value) => value !== null).length > full;
  const compareTexts = (a: string, b: string) => (a && b ? a.localeCompare(b, "en", { numeric: true }) : 0);
  return {
    isNumeric,
    compare: (a, b, isAscending) => {
      const sign = isAscending ? 1 : -1;
      if (!isNumeric) return sign * compareTexts(texts.get(a) as string, texts.get(b) as string);
      const [x, y] = [quantities.get(a) ?? null, quantities.get(b) ?? null];
      if (x === null || y === null) return Number(x === null) - Number(y === null);
      return sign * (x - y);
    },
  };
}

/** The tools of a table: a field that filters its rows, and a button that copies those that are seen. */

import { copyButton } from "../dom/copy";
import { h } from "../dom/elements";
import { unitsOf } from "./table_rows";

/** Smaller tables are read at a glance: they have no filter. */
const MIN_FILTERED = 8;

/** Adds the button, and to a table of many rows the field. */
export function addTools(table: HTMLTableElement): void {
  const [body] = table.tBodies;
  const units = unitsOf(body);
  if (!units.length) return;
  const caption = addCopy(table);
  if (units.length < MIN_FILTERED) return;
  caption.classList.remove("beside");
  caption.prepend(...filter(body, units.length));
}

/** Adds the button alone; returns the caption, which has it. */
export function addCopy(table: HTMLTableElement): HTMLTableCaptionElement {
  const heads = [...(table.tHead?.rows[0].cells ?? [])].map((cell) => cell.textContent ?? "");
  table.setAttribute("aria-label", heads.filter(Boolean).join(", "));
  const caption = table.createCaption();
  caption.classList.add("beside");
  const title = "Copy these rows, for a spreadsheet or a text";
  caption.append(copyButton("Copy", title, () => tableText(table), "copy"));
  return caption;
}

/** Creates the field and the count of the rows that match it. */
function filter(body: HTMLTableSectionElement, total: number): HTMLElement[] {
  const count = h("span", { class: "found", "aria-live": "polite" });
  const field = h("input", {
    type: "search",
    placeholder: "filter rows",
    "aria-label": "Filter the rows of this table",
  });
  field.oninput = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let matching = 0;
    for (const unit of unitsOf(body)) {
      const text = unit.map(rowText).join("\n").toLowerCase();
      const matches = words.every((word) => text.includes(word));
      for (const row of unit) row.classList.toggle("filtered", !matches);
      matching += Number(matches);
    }
    count.textContent = words.length ? `${matching.toLocaleString("en")} of ${total.toLocaleString("en")}` : "";
  };
  field.onkeydown = (event) => {
    if (event.key !== "Escape" || !field.value) return;
    event.preventDefault();
    field.value = "";
    field.dispatchEvent(new Event("input"));
  };
  return [field, count];
}

/** Returns the rows that are seen as text: a line for each, with tabs between the cells. */
function tableText(table: HTMLTableElement): string {
  const rows = [...table.rows].filter((row) => !row.hidden && !row.classList.contains("filtered"));
  return `${rows.map(rowText).join("\n")}\n`;
}

/** The texts of a row's cells; lines of a cell are separated by spaces, and the sign that unfolds rows is none. */
function rowText(row: HTMLTableRowElement): string {
  const text = (node: Node): string => {
    if (node instanceof Element && node.matches(".unfold-rows")) return "";
    const inner = node instanceof Text ? node.data : [...node.childNodes].map(text).join("");
    return node instanceof HTMLDivElement ? `${inner} ` : inner;
  };
  return [...row.cells].map((cell) => text(cell).replace(/\s+/g, " ").trim()).join("\t");
}

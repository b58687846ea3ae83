/** Compares two runs by the user's lines: two engines, before and after an edit, or two ranks. */

import { h } from "../../dom/elements";
import { bytes, duration, plural } from "../../dom/format";
import type { Comparison, Difference, ItemId, Total } from "../../model/record/record";
import type { State } from "../../model/state";
import { cells, code, LinkedContent, shortCell } from "../linked_content";
import { triedChange } from "../source_change";
import { addCopy } from "../table_tools";

const STATES: Difference["state"][] = ["changed", "added", "removed", "same"];
const MAX_TEXTS = 4;

export class RunsTable extends LinkedContent {
  private readonly body = h("tbody");

  constructor(
    state: State,
    private readonly comparison: Comparison,
  ) {
    super(state);
    this.element.classList.add("runs");
    const { totals, shared, notes, edit, before, after } = comparison;
    this.element.append(
      ...(edit ? [triedChange(edit)] : []),
      ...(comparison.values ? [valuesSummary(comparison.values, comparison)] : []),
      ...notes.map((note) => h("p", { class: "block warn" }, note)),
      ...shared.map((name) => h("p", { class: "block warn" }, `Not copied, so both runs used it: ${name}`)),
      this.table(
        ["", before, after],
        totals.map((total) => totalRow(total)),
      ),
      h("h3", {}, "By your lines"),
      this.choices(),
      this.linesTable(before, after),
    );
    this.highlight();
  }

  private linesTable(before: string, after: string): HTMLTableElement {
    const table = h("table", {}, h("thead", {}, heads(["", before, after])), this.body);
    this.fill(new Set(["changed", "added", "removed"]));
    addCopy(table);
    return table;
  }

  /** Check boxes for which lines are listed; at first those that differ. */
  private choices(): HTMLElement {
    const wanted = new Set<Difference["state"]>(["changed", "added", "removed"]);
    const choice = (state: Difference["state"]) => {
      const count = this.comparison.lines.filter((each) => each.state === state).length;
      const box = h("input", { type: "checkbox" });
      box.checked = wanted.has(state);
      box.onchange = () => {
        if (box.checked) wanted.add(state);
        else wanted.delete(state);
        this.fill(wanted);
        this.highlight();
      };
      return h("label", {}, box, ` ${state} (${count})`);
    };
    return h("div", { class: "choices", role: "group", "aria-label": "Lines to list" }, ...STATES.map(choice));
  }

  private fill(wanted: Set<Difference["state"]>): void {
    const groups = new Map<string, Difference[]>();
    for (const each of this.comparison.lines.filter(({ state }) => wanted.has(state))) {
      const place = `${each.file}:${each.line}`;
      groups.set(place, [...(groups.get(place) ?? []), each]);
    }
    const rows = [...groups.values()].sort(byLine).flatMap((group) => this.group(group));
    const none = h("tr", {}, h("td", { colSpan: 3 }, "No such line."));
    this.body.replaceChildren(...(rows.length ? rows : [none]));
  }

  /** The rows of one user line: what each run has there. */
  private group(group: Difference[]): HTMLTableRowElement[] {
    const { file, line, text } = group[0];
    const place = line ? `${this.state.label(file)}:${line} ` : "without a line";
    const head = h("tr", { class: "place" }, h("td", { colSpan: 3 }, h("small", {}, place), code(text.trim())));
    const rows = group.map((each) =>
      h(
        "tr",
        { class: each.state },
        shortCell(h("div", {}, each.aspect, h("br"), h("span", { class: `chip ${each.state}` }, each.state))),
        ...cells(...differingTexts(each)),
      ),
    );
    return [this.linkTo(head, [this.item(file, line)]), ...rows];
  }

  private item(file: string, line: number): ItemId | null {
    const source = this.state.record.sources.find((each) => each.name === file);
    return source ? `${source.id}#${line}` : null;
  }
}

function byLine([a]: Difference[], [b]: Difference[]): number {
  if (a.file === b.file) return a.line - b.line;
  return a.file < b.file ? -1 : 1;
}

function heads(names: string[]): HTMLElement {
  return h("tr", {}, ...names.map((name) => h("th", { scope: "col" }, name)));
}

/** How values differ; where random numbers explain that, it is no fault. */
function valuesSummary(values: { [name: string]: string }, { before, after, random }: Comparison): HTMLElement {
  const names = Object.entries(values);
  if (!names.length) return h("p", { class: "lead" }, `The values of ${before} and ${after} are the same.`);
  const lines = names.map(([name, how]) => h("p", {}, code(name), ` ${how}`));
  return h(
    "div",
    { class: random ? "block" : "block bad" },
    h("h4", {}, `${plural(names.length, "value differs", "values differ")}`),
    random && h("p", {}, `This may be right: ${random}.`),
    ...lines,
  );
}

function totalRow({ name, before, after }: Total): HTMLTableRowElement {
  const [shownName, unit] = nameAndUnit(name);
  const text = (value: number) =>
    unit ? duration(value * unit) : name === "saved bytes" ? bytes(value) : value.toLocaleString("en");
  const figure = (value: number | null) => shortCell(value === null ? "" : text(value));
  const row = h("tr", {}, ...cells(shownName, figure(before), figure(after)));
  if (before !== after) row.classList.add("changed");
  return row;
}

/** The name of a total without its unit, and of a time the nanoseconds in one unit. */
function nameAndUnit(name: string): [name: string, ns: number | null] {
  if (name.endsWith(" microseconds")) return [name.replace("microseconds", "time"), 1e3];
  if (name === "compile seconds") return ["compile time", 1e9];
  return [name, name.startsWith("of these in ") ? 1e9 : null];
}

/** What each run has at a line; of a changed one, what the other run has not. */
function differingTexts({ state, before, after }: Difference): HTMLElement[] {
  const [left, right] = [without(before, after), without(after, before)];
  if (state !== "changed" || !(left.length || right.length)) return [texts(before), texts(after)];
  const same = before.length - left.length;
  const note = same ? h("small", {}, `and ${plural(same, "equal one", "equal ones")}`) : null;
  return [h("div", {}, texts(left), note), texts(right)];
}

/** Returns the texts of a list that another one lacks; of equal ones, as many as there are more. */
function without(found: string[], others: string[]): string[] {
  const rest = [...others];
  return found.filter((text) => {
    const at = rest.indexOf(text);
    if (at >= 0) rest.splice(at, 1);
    return at < 0;
  });
}

/** What one run has at a line; a long list is collapsed. */
function texts(found: string[]): HTMLElement {
  const lines = found.map((text) => h("div", {}, code(text)));
  if (found.length <= MAX_TEXTS) return h("div", {}, ...(lines.length ? lines : ["–"]));
  const rest = lines.slice(MAX_TEXTS);
  return h("div", {}, ...lines.slice(0, MAX_TEXTS), h("details", {}, h("summary", {}, `${rest.length} more`), ...rest));
}

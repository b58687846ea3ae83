/** The controls around a drawing: search, grouping, colours above; legend, neighbourhood and zoom below. */

import { h } from "../dom/dom";
import { OVERLAYS } from "./draw/overlays";
import type { Tint } from "./draw/picture";
import type { Arrow } from "./places";
import type { Groupings } from "./scene/grouping";
import { ROLES } from "./scene/labels";
import type { Subject } from "./scene/subject";

/** Who asked for these wants to see them, on a small graph too. */
const ON_DEMAND = new Set(["time", "error"]);
const SMALL = 12;
const KEYS = `Arrow keys go along the edges, Enter pins
/ searches: words, or op:mm shape:[8,10] dtype:f32 module:layers.0 line:12
n and N go to the next and the previous that was found
e expands a group, c collapses it
a shows what is around a node, again: one step more
w shows the ways between the pinned node and this one
Esc shows all again; + - 0 zoom, Ctrl and the wheel too`;

/** What one can do with a drawing, by its controls and its keys. */
export interface Actions {
  search(text: string): void;
  /** To the next that was found, or the one before. */
  step(by: number): void;
  onlyFound(): void;
  group(name: string): void;
  colour(name: string): void;
  around(): void;
  way(): void;
  expand(): void;
  collapse(): void;
  /** Whether a part of the graph is shown alone. */
  isNarrowed(): boolean;
  all(): void;
  zoom(by: number): void;
  fit(): void;
  turn(pages: number): void;
  first(): void;
  last(): void;
  walk(arrow: Arrow): void;
  pin(): void;
  /** Go to the field of the search. */
  find(): void;
  /** Give the focus back to the drawing. */
  back(): void;
}

export class Tools {
  readonly top: HTMLElement;
  readonly bottom: HTMLElement;
  private readonly input: HTMLInputElement;
  private readonly count = h("span", { class: "count", role: "status" });
  private readonly only: HTMLButtonElement;
  private readonly grouping: HTMLSelectElement;
  private readonly legend = h("div", { class: "legend" });
  private readonly narrowed: HTMLButtonElement;
  private readonly wayButton: HTMLButtonElement;
  private readonly collapser: HTMLButtonElement;

  constructor(
    private readonly subject: Subject,
    groupings: Groupings,
    private readonly actions: Actions,
  ) {
    this.input = h("input", {
      type: "search",
      placeholder: "Search (/)",
      title: "Words, or op:mm shape:[8,10] dtype:f32 module:layers.0 line:12",
      "aria-label": "Search the graph's nodes",
      oninput: () => actions.search(this.input.value),
      onkeydown: (event: KeyboardEvent) => this.typed(event),
    });
    this.only = this.button("Only these", "Show only the nodes that were found", () => actions.onlyFound());
    this.only.hidden = true;
    const useful = groupings.useful().map((g): [string, string] => [g.name, g.title]);
    this.grouping = this.select("Collapse by", [["", "No groups"], ...useful], (name) => actions.group(name));
    const colours = OVERLAYS.filter((o) => o.can(subject)).map((o): [string, string] => [o.name, o.title]);
    const colouring = this.select("Colour by", colours, (name) => actions.colour(name));
    colouring.hidden = colours.length < 2;
    this.grouping.hidden = this.grouping.options.length < 2;
    this.top = h(
      "div",
      { class: "tools", role: "toolbar", "aria-label": "Find and group" },
      this.input,
      this.count,
      this.only,
      this.grouping,
      colouring,
    );
    const isMeasured = OVERLAYS.some((o) => ON_DEMAND.has(o.name) && o.can(subject));
    this.top.hidden = subject.flow.nodes.length <= SMALL && !isMeasured;
    this.narrowed = h("button", {
      class: "narrowed",
      title: "Show all again (Esc)",
      hidden: true,
      onclick: () => actions.all(),
    });
    this.wayButton = this.button("Ways", "What lies between the pinned node and this one (w)", () => actions.way());
    this.collapser = this.button("Collapse", "Collapse the group that this node is in (c)", () => actions.collapse());
    this.bottom = h(
      "div",
      { class: "tools", role: "toolbar", "aria-label": "What is shown" },
      this.legend,
      this.narrowed,
      this.collapser,
      this.button("Around", "What is around this node; again: one step more (a)", () => actions.around()),
      this.wayButton,
      this.button("−", "Smaller (-)", () => actions.zoom(0.8)),
      this.button("+", "Larger (+)", () => actions.zoom(1.25)),
      this.button("Fit", "Show the whole graph (0)", () => actions.fit()),
      h("span", { class: "keys", title: KEYS, role: "note", "aria-label": KEYS, tabindex: 0 }, "?"),
    );
    this.collapser.hidden = true;
    this.setPinned(false);
  }

  private button(text: string, label: string, onclick: () => void): HTMLButtonElement {
    // whoever speaks to the page says what they see
    const name = /\w/.test(text) ? `${text}: ${label}` : label;
    return h("button", { title: label, "aria-label": name, onclick }, text);
  }

  private select(label: string, options: [string, string][], changed: (value: string) => void): HTMLSelectElement {
    const made = h(
      "select",
      { "aria-label": label, title: label },
      ...options.map(([value, text]) => h("option", { value }, text)),
    );
    made.addEventListener("change", () => changed(made.value));
    made.addEventListener("change", () => this.afterGrouping());
    return made;
  }

  private afterGrouping(): void {
    this.collapser.hidden = !this.grouping.value;
  }

  private typed(event: KeyboardEvent): void {
    if (event.key === "Enter") this.actions.step(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape" && this.input.value) {
      this.input.value = "";
      this.actions.search("");
      this.actions.back();
    } else if (event.key === "Escape") this.actions.back();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  focusSearch(): void {
    this.top.hidden = false;
    this.input.focus();
    this.input.select();
  }

  setGrouping(name: string): void {
    this.grouping.value = name;
    this.afterGrouping();
  }

  /** How many were found, null where nothing is searched for; the one that is shown, from 0. */
  setFound(count: number | null, at = -1): void {
    this.only.hidden = !count;
    const of = (count ?? 0).toLocaleString("en");
    this.count.textContent = count === null ? "" : at < 0 ? `${of} found` : `${(at + 1).toLocaleString("en")} of ${of}`;
  }

  setNarrowed(why: string): void {
    this.narrowed.hidden = !why;
    this.narrowed.textContent = why && `${why} ×`;
  }

  setPinned(some: boolean): void {
    this.wayButton.disabled = !some;
  }

  say(text: string): void {
    this.top.hidden = false;
    this.count.textContent = text;
  }

  setLegend(tint: Tint | null): void {
    if (tint) {
      this.legend.replaceChildren(...tint.legend.map(({ text, swatch }) => h("span", { class: swatch }, text)));
      return;
    }
    const present = ROLES.filter((role) => this.subject.roles.includes(role));
    this.legend.replaceChildren(...present.map((role) => h("span", { class: role }, role)));
  }
}

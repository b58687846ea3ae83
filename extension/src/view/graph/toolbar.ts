/** The controls of a drawing: search, grouping and colours above it; legend, neighbourhood and zoom below. */

import { h } from "../dom/elements";
import { plural } from "../dom/format";
import { OVERLAYS } from "./draw/overlays";
import type { Colouring } from "./draw/picture";
import type { Arrow } from "./navigation";
import type { DrawableGraph } from "./scene/drawable_graph";
import type { Groupings } from "./scene/grouping";
import { ROLES } from "./scene/labels";

/** Overlays of values that are measured on demand; they are offered on small graphs too. */
const MEASURED_OVERLAYS = new Set(["time", "error"]);
const SMALL_GRAPH = 12;
const KEYS_HELP = `Arrow keys move along the edges, Enter pins
/ searches: words, or op:mm shape:[8,10] dtype:f32 module:layers.0 line:12
n and N go to the next and the previous match
e expands a group, c collapses it
a shows the neighbours of a node; again: one step further
w shows the paths between the pinned node and this one
Esc shows all again; + - 0 and Ctrl + wheel zoom`;

/** What the colours of the boxes mean. */
const ROLE_TITLES: { [role: string]: string } = {
  "": "An operation, or an input of the captured graph",
  primal: "An input of the forward",
  tangent: "The gradient of an output, with which the backward starts",
  saved: "A value that the forward saves for the backward",
  output: "A result",
  gradient: "The gradient of an input",
};

/** The actions of a drawing, for its controls and its keys. */
export interface GraphActions {
  search(text: string): void;
  /** Goes to the next match (1) or the previous one (-1). */
  goToFound(by: number): void;
  showOnlyFound(): void;
  setGrouping(name: string): void;
  setOverlay(name: string): void;
  showParameters(shown: boolean): void;
  showNeighbourhood(): void;
  showPaths(): void;
  expand(): void;
  collapse(): void;
  /** Whether only a part of the graph is shown. */
  isNarrowed(): boolean;
  showAll(): void;
  zoom(by: number): void;
  fit(): void;
  scrollPages(pages: number): void;
  goToFirst(): void;
  goToLast(): void;
  move(arrow: Arrow): void;
  pin(): void;
  /** Focuses the search field. */
  focusSearch(): void;
  /** Returns the focus to the drawing. */
  focusDrawing(): void;
}

export class Toolbar {
  readonly top: HTMLElement;
  readonly bottom: HTMLElement;
  private readonly searchInput: HTMLInputElement;
  private readonly foundCount = h("span", { class: "count", role: "status" });
  private readonly foundButtons: HTMLButtonElement[];
  private readonly onlyFoundButton: HTMLButtonElement;
  private readonly groupingSelect: HTMLSelectElement;
  private readonly legend = h("div", { class: "legend" });
  private readonly narrowedButton: HTMLButtonElement;
  private readonly pathsButton: HTMLButtonElement;
  private readonly collapseButton: HTMLButtonElement;

  constructor(
    private readonly subject: DrawableGraph,
    groupings: Groupings,
    private readonly actions: GraphActions,
  ) {
    this.searchInput = h("input", {
      type: "search",
      placeholder: "Search (/)",
      title: "Words, or op:mm shape:[8,10] dtype:f32 module:layers.0 line:12",
      "aria-label": "Search the graph's nodes",
      oninput: () => actions.search(this.searchInput.value),
      onkeydown: (event: KeyboardEvent) => this.handleSearchKey(event),
    });
    this.onlyFoundButton = this.button("Only matches", "Show only the nodes that were found", () =>
      actions.showOnlyFound(),
    );
    this.foundButtons = [
      this.button("‹", "Previous match (N)", () => actions.goToFound(-1)),
      this.button("›", "Next match (n)", () => actions.goToFound(1)),
    ];
    this.groupingSelect = this.createGroupingSelect(groupings);
    this.narrowedButton = h("button", {
      class: "narrowed",
      title: "Show all again (Esc)",
      onclick: () => actions.showAll(),
    });
    this.collapseButton = this.button("Collapse", "Collapse the group that this node is in (c)", () =>
      actions.collapse(),
    );
    this.pathsButton = this.button("Paths", "Show the paths between the pinned node and this one (w)", () =>
      actions.showPaths(),
    );
    for (const button of [...this.foundButtons, this.onlyFoundButton, this.narrowedButton, this.collapseButton]) {
      button.hidden = true;
    }
    this.top = this.createTop();
    this.bottom = this.createBottom();
    this.setHasPinned(false);
  }

  private createGroupingSelect(groupings: Groupings): HTMLSelectElement {
    const available = groupings.available().map(({ name, title }): [string, string] => [name, title]);
    const select = this.select("Collapse by", [["", "No groups"], ...available], (name) =>
      this.actions.setGrouping(name),
    );
    select.hidden = !available.length;
    return select;
  }

  private createTop(): HTMLElement {
    const { actions, subject } = this;
    const overlays = OVERLAYS.filter((overlay) => overlay.isAvailable(subject));
    const options = overlays.map(({ name, title }): [string, string] => [name, title]);
    const overlaySelect = this.select("Colour by", options, (name) => actions.setOverlay(name));
    overlaySelect.hidden = options.length < 2;
    const top = h(
      "div",
      { class: "tools", role: "toolbar", "aria-label": "Find and group" },
      this.searchInput,
      this.foundCount,
      ...this.foundButtons,
      this.onlyFoundButton,
      this.groupingSelect,
      overlaySelect,
      this.parametersButton(),
    );
    const isMeasured = overlays.some(({ name }) => MEASURED_OVERLAYS.has(name));
    top.hidden = subject.graph.nodes.length <= SMALL_GRAPH && !isMeasured;
    return top;
  }

  /** Creates the button that draws the parameters as nodes; at first they are in the boxes of their readers. */
  private parametersButton(): HTMLButtonElement {
    const count = this.subject.parameters.size;
    const title = `Draw the ${plural(count, "parameter")} that one operation reads as separate boxes`;
    const button = h("button", { class: "parameters", title, "aria-pressed": "false" }, "Parameters");
    button.hidden = !count;
    button.onclick = () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(shown));
      this.actions.showParameters(shown);
    };
    return button;
  }

  private createBottom(): HTMLElement {
    const { actions } = this;
    return h(
      "div",
      { class: "tools", role: "toolbar", "aria-label": "Show and zoom" },
      this.legend,
      h(
        "span",
        { class: "buttons" },
        this.narrowedButton,
        this.collapseButton,
        this.button("Neighbours", "Show the neighbours of this node; again: one step further (a)", () =>
          actions.showNeighbourhood(),
        ),
        this.pathsButton,
        this.button("−", "Smaller (-)", () => actions.zoom(0.8)),
        this.button("+", "Larger (+)", () => actions.zoom(1.25)),
        this.button("Fit", "Show the whole graph (0)", () => actions.fit()),
        h("span", { class: "keys", title: KEYS_HELP, role: "note", "aria-label": KEYS_HELP, tabindex: 0 }, "?"),
      ),
    );
  }

  private button(text: string, label: string, onclick: () => void): HTMLButtonElement {
    // the accessible name starts with the visible text, for voice control
    const name = /\w/.test(text) ? `${text}: ${label}` : label;
    return h("button", { title: label, "aria-label": name, onclick }, text);
  }

  private select(label: string, options: [string, string][], changed: (value: string) => void): HTMLSelectElement {
    const select = h(
      "select",
      { "aria-label": label, title: label },
      ...options.map(([value, text]) => h("option", { value }, text)),
    );
    select.addEventListener("change", () => changed(select.value));
    select.addEventListener("change", () => this.updateCollapseButton());
    return select;
  }

  private updateCollapseButton(): void {
    this.collapseButton.hidden = !this.groupingSelect.value;
  }

  private handleSearchKey(event: KeyboardEvent): void {
    if (event.key === "Enter") this.actions.goToFound(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape" && this.searchInput.value) {
      this.searchInput.value = "";
      this.actions.search("");
      this.actions.focusDrawing();
    } else if (event.key === "Escape") this.actions.focusDrawing();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  focusSearch(): void {
    this.top.hidden = false;
    this.searchInput.focus();
    this.searchInput.select();
  }

  setGrouping(name: string): void {
    this.groupingSelect.value = name;
    this.updateCollapseButton();
  }

  /** Shows the number of matches (null: no search) and the index of the current one (-1: none). */
  setFound(count: number | null, at = -1): void {
    for (const button of [...this.foundButtons, this.onlyFoundButton]) button.hidden = !count;
    if (count === null) {
      this.foundCount.textContent = "";
      return;
    }
    const total = count.toLocaleString("en");
    this.foundCount.textContent = at < 0 ? `${total} found` : `${(at + 1).toLocaleString("en")} of ${total}`;
  }

  setNarrowed(why: string): void {
    this.narrowedButton.hidden = !why;
    this.narrowedButton.textContent = why && `${why} ×`;
  }

  setHasPinned(some: boolean): void {
    this.pathsButton.disabled = !some;
  }

  showMessage(text: string): void {
    this.top.hidden = false;
    this.foundCount.textContent = text;
  }

  setLegend(tint: Colouring | null): void {
    if (tint) {
      this.legend.replaceChildren(...tint.legend.map(({ text, swatch }) => h("span", { class: swatch }, text)));
      return;
    }
    const { roles } = this.subject;
    const present = ["", ...ROLES].filter((role) => roles.includes(role));
    const names = present.map((role) =>
      h("span", { class: role || "plain", title: ROLE_TITLES[role] }, role || "operation"),
    );
    const stripe = h(
      "span",
      { class: "stripe", title: "The stripe of a box has the colour of your line" },
      "your line",
    );
    this.legend.replaceChildren(...names, stripe);
  }
}

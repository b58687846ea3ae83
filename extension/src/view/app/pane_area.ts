/**
 * The panes, in columns. There are as many columns as can be read; panes that do not get a whole one share the
 * last ones, one above the other. The widths of columns follow from the panes' texts, until the user drags a splitter;
 * none is wider than that of the pane that was opened last.
 * Where a column is too low for its panes, the one that was opened last has the place, and others are their titles.
 */

import { h } from "../dom/elements";
import { splitter } from "../dom/splitter";
import type { ItemId } from "../model/record/record";
import { MAX_PANES, type State } from "../model/state";
import { hasContent, PANES, parsePane } from "../panes/registry";
import { Pane } from "./pane";

/** Minimal width and height in pixels at which a pane can be read. */
const READABLE_WIDTH_PX = 360;
/** Minimal width of a drawing or a table, if the columns leave it. */
const TABLE_PX = 375;
/** Width of the whole from which there are four columns: a table needs more than what can just be read. */
const FOUR_COLUMNS_PX = 1600;
const READABLE_HEIGHT_PX = 180;
/** The height of a pane of which only the title is shown. */
const TITLE_PX = 29;
const MIN_COLUMN_PX = 80;

/** How many panes each of `columns` columns has: the last ones have more. */
export function panesPerColumn(panes: number, columns: number): number[] {
  const used = Math.min(panes, columns);
  return Array.from({ length: used }, (_, at) => Math.floor((panes + at) / used));
}

/** What a pane needs: at least so many pixels of height, and of what is left a part in proportion to `weight`. */
interface Need {
  least: number;
  weight: number;
}

/**
 * Divides the height of a column among its panes. Those that do not fit are only titles: `last`, the one that was opened
 * last, stays open, then the lowest ones.
 */
export function heightsOf(needs: Need[], height: number, last: number): number[] {
  const lowestFirst = needs.map((_, at) => at).reverse();
  const order = [...lowestFirst.filter((at) => at === last), ...lowestFirst.filter((at) => at !== last)];
  const open = new Set<number>();
  let free = height - TITLE_PX * needs.length;
  for (const at of order) {
    const more = needs[at].least - TITLE_PX;
    if (open.size && more > free) continue;
    open.add(at);
    free -= more;
  }
  const weights = needs.reduce((sum, { weight }, at) => sum + (open.has(at) ? weight : 0), 0);
  return needs.map(({ least, weight }, at) => (open.has(at) ? least + (free * weight) / weights : TITLE_PX));
}

export class PaneArea {
  readonly element = h("div", { class: "panes" });
  private panes: Pane[] = [];
  private splitters: HTMLElement[] = [];
  private columns = 2;
  /** The widths that the user has chosen, by column; empty if they follow from the content. */
  private widths: number[] = [];
  /** The pane that the explorer has grown for. */
  private grownFor = "";
  private readonly resizeObserver = new ResizeObserver(() => this.measure());

  constructor(private readonly state: State) {
    this.resizeObserver.observe(this.element);
  }

  private measure(): void {
    const { clientWidth, clientHeight } = this.element;
    if (!clientWidth) return;
    const most = clientWidth < FOUR_COLUMNS_PX ? 3 : MAX_PANES;
    const columns = Math.min(most, Math.max(1, Math.floor(clientWidth / READABLE_WIDTH_PX)));
    const rows = Math.max(1, Math.min(2, Math.floor(clientHeight / READABLE_HEIGHT_PX)));
    if (columns !== this.columns) this.widths = [];
    this.columns = columns;
    // with two columns, the source keeps one of them
    this.state.setPaneCapacity(columns === 2 ? 1 + rows : Math.max(columns, rows));
    this.place();
  }

  /** Creates or removes panes to match the state; panes that stay keep their content. */
  update(): void {
    const { shown } = this.state;
    const before = this.panes.length;
    while (this.panes.length > shown.length) this.remove(this.panes.length - 1);
    while (this.panes.length < shown.length) this.append();
    if (before !== shown.length) this.widths = [];
    this.panes.forEach((pane, i) => {
      pane.update(i);
    });
    this.place();
    if (this.state.lastOpened !== this.grownFor) this.grow();
  }

  /** Lets the explorer in a cell grow, as far as its style allows, until the pane that was opened last fits. */
  private grow(): void {
    this.grownFor = this.state.lastOpened;
    const lacking = this.panes.find(({ kindName }) => kindName === this.grownFor)?.lackingHeight() ?? 0;
    const explorer = this.element.closest<HTMLElement>(".cutaway");
    if (explorer && lacking > 0) {
      explorer.style.setProperty("--content-height", `${Math.ceil(explorer.offsetHeight + lacking)}px`);
    }
  }

  private append(): void {
    const pane: Pane = new Pane(this.state, this.panes.length, () => this.close(this.panes.indexOf(pane)));
    this.element.append(pane.element);
    this.panes.push(pane);
  }

  private remove(at: number): void {
    const [pane] = this.panes.splice(at, 1);
    pane.destroy();
    pane.element.remove();
  }

  private close(at: number): void {
    this.remove(at);
    this.state.close(at);
  }

  /** Opens another pane, with the first of the usual stages that is not shown yet. */
  add(): void {
    const open = new Set(this.state.shown.map((s) => parsePane(s).kind));
    const usual = ["kernel", "forward", "guards", "generated", "overview"].map((name) => parsePane(name).kind);
    const next = [...usual, ...PANES].find((p) => !open.has(p) && hasContent(p, this.state));
    this.state.setShown([...this.state.shown, next?.name ?? "overview"]);
  }

  /** Gives each pane its column and its height, and each column its width. */
  private place(): void {
    const counts = panesPerColumn(this.panes.length, this.columns);
    let next = 0;
    const columns = counts.map((count) => {
      next += count;
      return this.panes.slice(next - count, next);
    });
    const ends = columns.map((panes) => this.endsOf(panes));
    const edges = [...new Set(ends.flat())].sort((a, b) => a - b);
    columns.forEach((panes, column) => {
      panes.forEach(({ element }, row) => {
        const from = row ? edges.indexOf(ends[column][row - 1]) + 2 : 1;
        const to = row === panes.length - 1 ? -1 : edges.indexOf(ends[column][row]) + 2;
        element.style.gridArea = `${from} / ${column + 1} / ${to} / auto`;
        element.classList.toggle("below", row > 0);
      });
    });
    const widest = Math.max(...this.panes.map(({ wantedWidth }) => wantedWidth));
    const widths = columns.map((panes) => {
      const isLast = panes.some(({ kindName }) => kindName === this.state.lastOpened);
      const width = isLast ? widest : Math.max(...panes.map(({ wantedWidth }) => wantedWidth));
      return { width, isText: panes.every(({ isText }) => isText) };
    });
    const least = `min(${TABLE_PX}px, ${100 / Math.max(1, widths.filter(({ isText }) => !isText).length)}%)`;
    const tracks = widths.map(({ width, isText }, at) =>
      this.widths[at] ? `${this.widths[at]}px` : `minmax(${isText ? 0 : least}, ${width}fr)`,
    );
    this.element.style.gridTemplateColumns = tracks.join(" ");
    const rows = edges.map((edge, at) => `${edge - (edges[at - 1] ?? 0)}px`);
    this.element.style.gridTemplateRows = [...rows, "minmax(0, 1fr)"].join(" ");
    this.placeSplitters(counts.length - 1);
  }

  /** Where the panes of a column end, but the last one; shuts those that have too little room. */
  private endsOf(panes: Pane[]): number[] {
    const last = panes.findIndex(({ kindName }) => kindName === this.state.lastOpened);
    const needs = panes.map((pane, at) => ({
      least: pane.leastHeight(at === last),
      weight: pane.wantedHeight * (at === last ? 2 : 1),
    }));
    const heights = panes.length > 1 ? heightsOf(needs, this.element.clientHeight, last) : [0];
    panes.forEach((pane, at) => {
      pane.setShut(panes.length > 1 && heights[at] === TITLE_PX);
    });
    let end = 0;
    return heights.slice(0, -1).map((height) => {
      end += Math.round(height);
      return end;
    });
  }

  private placeSplitters(count: number): void {
    while (this.splitters.length > count) this.splitters.pop()?.remove();
    while (this.splitters.length < count) {
      const column = this.splitters.length;
      const element = splitter(`column ${column + 1}`, {
        width: () => this.columnWidths()[column] ?? 0,
        resize: (width) => this.resizeColumn(column, width),
      });
      element.style.gridArea = `1 / ${column + 1} / -1 / auto`;
      this.splitters.push(element);
      this.element.append(element);
    }
  }

  private columnWidths(): number[] {
    return getComputedStyle(this.element).gridTemplateColumns.split(" ").map(Number.parseFloat);
  }

  /** Sets the width of a column; the next one gets the rest of both. */
  private resizeColumn(column: number, wanted: number): void {
    const widths = this.columnWidths();
    const both = widths[column] + widths[column + 1];
    const width = Math.min(Math.max(MIN_COLUMN_PX, wanted), both - MIN_COLUMN_PX);
    this.widths = widths.with(column, width).with(column + 1, 0);
    this.place();
  }

  /** Draws again the panes whose content depends on the compile. */
  updateContent(): void {
    for (const pane of this.panes) pane.update();
    this.place();
  }

  redraw(kind: string): void {
    for (const pane of this.panes) pane.redraw(kind);
  }

  /** Scrolls all panes to what is linked to the pinned items. */
  revealPinned(): void {
    for (const pane of this.panes) pane.reveal();
  }

  revealStep(): void {
    for (const pane of this.panes) pane.revealStep();
  }

  /** Scrolls the panes named `name` to `items`. */
  reveal(name: string, items: Set<ItemId>): void {
    this.state.shown.forEach((shown, i) => {
      if (parsePane(shown).kind.name === name) this.panes[i].goTo(items);
    });
  }

  highlight(): void {
    for (const pane of this.panes) pane.highlight();
  }

  destroy(): void {
    this.resizeObserver.disconnect();
    for (const pane of this.panes) pane.destroy();
  }
}

/** The commands of a drawing: search, grouping, subsets of the nodes, and moving with the keys. */

import { keyOf } from "../model/analysis/links";
import type { ItemId } from "../model/record/record";
import type { State } from "../model/state";
import type { Picture } from "./draw/picture";
import type { GraphCanvas } from "./graph_canvas";
import { type Arrow, nextBox } from "./navigation";
import type { DrawableGraph } from "./scene/drawable_graph";
import type { ViewOptions } from "./scene/view_options";
import { type GraphActions, Toolbar } from "./toolbar";

/** Share of the window that a page key scrolls by. */
const PAGE = 0.8;

/** What the commands need of the view of a graph. */
interface View {
  /** Builds the picture again for the current options; the node `anchor` stays in place on the page. */
  rebuild(anchor?: number): Promise<void>;
  setOverlay(name: string): void;
}

export class GraphCommands implements GraphActions {
  readonly toolbar: Toolbar;
  /** Whether only the matches of the search are shown. */
  private isNarrowedToFound = false;
  private readonly nodeOf: Map<ItemId, number>;

  constructor(
    private readonly subject: DrawableGraph,
    private readonly state: State,
    private readonly options: ViewOptions,
    private readonly canvas: GraphCanvas,
    private readonly view: View,
  ) {
    this.nodeOf = new Map(subject.graph.items.map((item, i) => [item, i]));
    this.toolbar = new Toolbar(subject, options.groupings, this);
  }

  /** Returns the nodes of items that belong to this graph. */
  nodesOf(items: Iterable<ItemId>): number[] {
    return [...items].flatMap((item) => this.nodeOf.get(item) ?? []);
  }

  /** Returns the items of a box; none for -1. */
  itemsOf(box: number): ItemId[] {
    if (box < 0) return [];
    return this.picture.scene.boxes[box].nodes.map((node) => this.subject.graph.items[node]);
  }

  private get picture(): Picture {
    return this.canvas.picture as Picture;
  }

  // ---- moving ----

  /** The box that the keys move from: the current one, or else a pinned one, or else the first visible one. */
  private currentBox(): number {
    const { current, scene } = this.picture;
    if (current >= 0) return current;
    const [pinned] = this.nodesOf(this.state.pinned).map((node) => scene.boxOf[node]);
    return pinned !== undefined && pinned >= 0 ? pinned : this.canvas.firstVisible();
  }

  private goTo(box: number): void {
    this.canvas.setCurrent(box);
    this.state.hover(this.itemsOf(box));
    this.canvas.reveal(box);
  }

  private goToNode(node: number): void {
    const box = this.canvas.picture?.scene.boxOf[node] ?? -1;
    if (box >= 0) this.goTo(box);
  }

  move(arrow: Arrow): void {
    const at = this.currentBox();
    // the first key press only selects the current box
    const next = this.picture.current < 0 ? at : nextBox(this.picture, at, arrow);
    if (next !== undefined) this.goTo(next);
  }

  goToFirst(): void {
    this.goTo(0);
  }

  goToLast(): void {
    this.goTo(this.picture.scene.boxes.length - 1);
  }

  pin(): void {
    const box = this.currentBox();
    this.canvas.setCurrent(box);
    this.state.pin(this.itemsOf(box));
  }

  zoom(by: number): void {
    this.canvas.viewport.zoom(by);
  }

  fit(): void {
    this.canvas.viewport.showAll();
  }

  scrollPages(pages: number): void {
    const { viewport } = this.canvas;
    viewport.pan(0, pages * viewport.height * PAGE);
  }

  focusSearch(): void {
    this.toolbar.focusSearch();
  }

  focusDrawing(): void {
    this.canvas.focus();
  }

  // ---- groups and colours ----

  setGrouping(name: string): void {
    this.options.setGrouping(name);
    void this.view.rebuild();
  }

  setOverlay(name: string): void {
    this.view.setOverlay(name);
  }

  showParameters(shown: boolean): void {
    this.options.showParameters(shown);
    void this.view.rebuild();
  }

  expand(): void {
    this.expandBox(this.currentBox());
  }

  /** Expands a collapsed group; does nothing for other boxes. */
  expandBox(box: number): void {
    const group = box < 0 ? undefined : this.picture.scene.boxes[box];
    if (!group || group.group === null) return;
    this.options.expanded.add(group.group);
    void this.view.rebuild(group.nodes[0]);
  }

  /** Collapses the innermost expanded group of the current box. */
  collapse(): void {
    const [node] = this.picture.scene.boxes[this.currentBox()].nodes;
    if (this.options.collapse(node)) void this.view.rebuild(node);
  }

  // ---- search ----

  search(text: string): void {
    this.options.search(text, (item) => this.state.links.userLine(item));
    this.toolbar.setFound(this.options.found?.length ?? null);
    if (!text.trim() && this.isNarrowedToFound) this.showAll();
    this.markFound();
    this.canvas.schedulePaint();
  }

  /** Updates the boxes that match the search. */
  markFound(): void {
    const { picture } = this.canvas;
    if (!picture) return;
    const { found } = this.options;
    picture.found = found && new Set(found.map((node) => picture.scene.boxOf[node]));
  }

  goToFound(by: number): void {
    void this.revealFound(by);
  }

  /** Goes to the next match, and expands its group if it is collapsed. */
  private async revealFound(by: number): Promise<void> {
    const node = this.options.nextFound(by);
    if (node === undefined) return;
    this.toolbar.setFound(this.options.found?.length ?? null, this.options.foundAt);
    if (this.options.expandTo(node)) await this.view.rebuild(node);
    this.goToNode(node);
  }

  // ---- subsets of the nodes ----

  isNarrowed(): boolean {
    return this.options.only !== null;
  }

  showAll(): void {
    this.narrow(null, "");
  }

  showOnlyFound(): void {
    const found = this.options.found ?? [];
    this.narrow(found.length ? new Set(found) : null, `${found.length} found`);
    this.isNarrowedToFound = found.length > 0;
  }

  /** Shows the neighbourhood of the current box; each call extends it by one step. */
  showNeighbourhood(): void {
    const { nodes, title } = this.picture.scene.boxes[this.currentBox()];
    const neighbourhood = this.options.nextNeighbourhood(nodes);
    const name = nodes.length > 1 ? title : keyOf(this.subject.graph.items[nodes[0]]);
    this.narrow(neighbourhood.nodes, `within ${neighbourhood.steps} of ${name}`);
  }

  /** Shows the paths between the pinned nodes and the current one. */
  showPaths(): void {
    const to = this.picture.scene.boxes[this.currentBox()].nodes;
    const from = this.nodesOf(this.state.pinned).filter((node) => !to.includes(node));
    if (!from.length) {
      this.toolbar.showMessage("Pin one node, go to another, then press w");
      return;
    }
    const between = this.subject.graph.nodesBetween(from, to);
    if (between.size) this.narrow(between, "paths between");
    else this.toolbar.showMessage("No path between them");
  }

  /** Shows only these nodes, with a description of the subset; null shows all. */
  private narrow(only: ReadonlySet<number> | null, description: string): void {
    const node = this.picture.scene.boxes[this.currentBox()]?.nodes[0] ?? -1;
    this.isNarrowedToFound = false;
    this.options.narrow(only);
    this.toolbar.setNarrowed(only ? description : "");
    void this.view.rebuild(node).then(() => this.goToNode(node));
  }
}

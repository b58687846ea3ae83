/** The view of a graph as a drawing, with highlighting, pinning, search, groups and keyboard navigation. */

import { h } from "../dom/elements";
import type { Content } from "../model/content";
import type { BudgetPoint, ItemId } from "../model/record/record";
import type { State } from "../model/state";
import { GraphCommands } from "./commands";
import { OVERLAYS, type Overlay } from "./draw/overlays";
import { HIGHLIGHT, Picture } from "./draw/picture";
import type { Area } from "./draw/viewport";
import { GraphCanvas } from "./graph_canvas";
import { actionOfKey } from "./keyboard";
import type { DrawableGraph } from "./scene/drawable_graph";
import { GROUPINGS } from "./scene/grouping";
import { makeScene } from "./scene/scene";
import { ViewOptions } from "./scene/view_options";

/** A layout that takes longer shows that the view is busy. */
const BUSY_AFTER_MS = 200;

export class GraphView implements Content {
  readonly element = h("div", { class: "graph" });
  private readonly options: ViewOptions;
  private readonly canvas: GraphCanvas;
  private readonly commands: GraphCommands;
  private itemsToReveal = new Set<ItemId>();
  /** Counts layouts: one that was started earlier than the last is discarded. */
  private layoutNumber = 0;
  private overlay: Overlay;
  private budget: BudgetPoint | null = null;

  constructor(
    private readonly subject: DrawableGraph,
    private readonly state: State,
  ) {
    this.options = new ViewOptions(subject.graph, subject.compile, subject.parameters);
    this.overlay = OVERLAYS.find((overlay) => overlay.isAvailable(subject)) ?? OVERLAYS[0];
    this.canvas = new GraphCanvas(subject, {
      onKey: (event) => this.handleKey(event),
      onHover: (box) => this.state.hover(this.commands.itemsOf(box)),
      onClick: (box) => this.state.pin(this.commands.itemsOf(box)),
      onExpand: (box) => this.commands.expandBox(box),
      onResized: (before) => this.revealAgain(before),
    });
    this.commands = new GraphCommands(subject, state, this.options, this.canvas, this);
    const { toolbar } = this.commands;
    this.element.append(toolbar.top, this.canvas.element, toolbar.bottom);
    toolbar.setGrouping(this.options.initialGrouping());
    void this.rebuild().then(() => this.canvas.observeSize());
  }

  /** Builds the picture for the current options; the node `anchor` stays in place on the page. */
  async rebuild(anchor = -1): Promise<void> {
    const number = ++this.layoutNumber;
    const scene = makeScene(this.subject.graph, this.subject.roles, this.options);
    const busy = setTimeout(() => this.element.classList.add("busy"), BUSY_AFTER_MS);
    const layout = await this.subject.layOut(scene);
    clearTimeout(busy);
    this.element.classList.remove("busy");
    if (number !== this.layoutNumber) return;
    const { items } = this.subject.graph;
    // without a grouping, the names of modules are shown
    const { groups, groupings } = this.options;
    const named = groups.length ? groups : groupings.of(GROUPINGS[0].name);
    const picture = new Picture(scene, layout, named, (node) => this.state.links.colour(items[node]));
    const previous = this.canvas.picture;
    const current = previous?.scene.boxes[previous.current]?.nodes[0];
    picture.current = current === undefined ? -1 : scene.boxOf[current];
    this.updateCut(picture);
    this.canvas.setPicture(picture, anchor);
    this.setOverlay(this.overlay.name);
    this.commands.markFound();
    this.highlight();
  }

  /** Updates the cut to the current memory budget. */
  private updateCut(picture: Picture): void {
    this.budget = this.state.budget;
    picture.cut = this.subject.cutOf(picture.scene);
  }

  setOverlay(name: string): void {
    this.overlay = OVERLAYS.find((overlay) => overlay.name === name) ?? OVERLAYS[0];
    const { picture } = this.canvas;
    if (!picture) return;
    picture.colouring = this.overlay.colour(this.subject, picture.scene, this.state);
    this.commands.toolbar.setLegend(picture.colouring);
    this.canvas.schedulePaint();
  }

  /** Keeps `other` at the same position and scale as this view. */
  linkWith(other: GraphView): void {
    this.canvas.viewport.linked = other.canvas.viewport;
  }

  highlight(): void {
    const { state } = this;
    const { picture } = this.canvas;
    if (!picture) return;
    const highlighted = new Map<number, number>();
    const add = (items: Iterable<ItemId>, bit: number, replacedBit = 0) => {
      for (const node of this.commands.nodesOf(items)) {
        const box = picture.scene.boxOf[node];
        if (box >= 0) highlighted.set(box, ((highlighted.get(box) ?? 0) & ~replacedBit) | bit);
      }
    };
    add(state.pinLinked, HIGHLIGHT["pin-linked"]);
    add(state.pinned, HIGHLIGHT.pinned, HIGHLIGHT["pin-linked"]);
    add(state.hoverLinked, HIGHLIGHT["hover-linked"]);
    add(state.hovered, HIGHLIGHT.hovered, HIGHLIGHT["hover-linked"]);
    add(state.stepItems, HIGHLIGHT.stepped);
    picture.highlighted = highlighted;
    picture.later = this.laterBoxes(picture);
    if (this.budget !== state.budget) this.updateCut(picture);
    this.commands.toolbar.setHasPinned(this.commands.nodesOf(state.pinned).length > 0);
    this.canvas.highlight();
  }

  private laterBoxes({ scene }: Picture): Set<number> {
    const { laterItems } = this.state;
    const { items } = this.subject.graph;
    const isLater = (node: number) => laterItems.has(items[node]);
    if (!laterItems.size) return new Set();
    return new Set(scene.boxes.flatMap((box, i) => (box.nodes.every(isLater) ? [i] : [])));
  }

  reveal(items: Set<ItemId>): void {
    this.itemsToReveal = items;
    const box = this.boxToReveal();
    if (box >= 0 && this.canvas.viewport.width) this.canvas.reveal(box);
  }

  /** The topmost box of the items that are shown; -1 if there is none. */
  private boxToReveal(): number {
    const { picture } = this.canvas;
    if (!picture) return -1;
    const { scene, layout } = picture;
    const boxes = this.commands.nodesOf(this.itemsToReveal).map((node) => scene.boxOf[node]);
    return boxes.reduce((top, box) => (box >= 0 && (top < 0 || layout.y[box] < layout.y[top]) ? box : top), -1);
  }

  /** What was visible `before` the size changed stays so: a press that shows items may also open a pane beside this. */
  private revealAgain(before: Area | null): void {
    const box = this.boxToReveal();
    if (box >= 0 && (!before || this.canvas.isIn(before, box))) this.canvas.reveal(box);
  }

  private handleKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.canvas.picture) return;
    const action = actionOfKey(event.key, this.commands);
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  }

  destroy(): void {
    this.layoutNumber++;
    this.canvas.destroy();
  }
}

/** A graph as a drawing: boxes that light up, are pinned, searched for, collapsed, and walked with the keys. */

import { h, whenSized } from "../dom/dom";
import type { Content } from "../model/content";
import { keyOf } from "../model/links";
import type { BudgetPoint, ItemId } from "../model/record";
import type { State } from "../model/state";
import { OverviewMap } from "./draw/map";
import { OVERLAYS, type Overlay } from "./draw/overlays";
import { Painter } from "./draw/painter";
import { onTheme, type Palette, readPalette } from "./draw/palette";
import { LIT, Picture } from "./draw/picture";
import { READABLE, Viewport } from "./draw/viewport";
import { keyAction } from "./keys";
import { type Arrow, nextBox, whereMostIs } from "./places";
import { Chosen } from "./scene/chosen";
import { GROUPINGS } from "./scene/grouping";
import { makeScene } from "./scene/scene";
import type { Subject } from "./scene/subject";
import { Spots } from "./spots";
import { type Actions, Tools } from "./tools";

const PAGE = 0.8;

export class GraphView implements Content {
  readonly element = h("div", { class: "graph" });
  private readonly host: HTMLElement;
  private readonly canvas = h("canvas", { "aria-hidden": "true" });
  private readonly viewport: Viewport;
  private readonly painter = new Painter(this.canvas);
  private readonly spots: Spots;
  private readonly map: OverviewMap;
  private readonly tools: Tools;
  private readonly nodeOf: Map<ItemId, number>;
  private readonly stopTheme: () => void;
  private readonly resized: ResizeObserver;
  private palette: Palette | null = null;
  private picture: Picture | null = null;
  private readonly chosen: Chosen;
  private readonly actions: Actions = {
    search: (text) => this.search(text),
    step: (by) => void this.goToFound(by),
    onlyFound: () => this.narrowToFound(),
    group: (name) => this.group(name),
    colour: (name) => this.colour(name),
    around: () => this.around(),
    way: () => this.way(),
    expand: () => this.toggle(this.current()),
    collapse: () => this.collapse(),
    isNarrowed: () => this.chosen.only !== null,
    all: () => this.narrow(null, ""),
    zoom: (by) => this.viewport.zoom(by),
    fit: () => this.viewport.showAll(),
    turn: (pages) => this.viewport.pan(0, pages * this.viewport.height * PAGE),
    first: () => this.goTo(0),
    last: () => this.goTo((this.picture as Picture).scene.shown.length - 1),
    walk: (arrow) => this.walk(arrow),
    pin: () => this.pinCurrent(),
    find: () => this.tools.focusSearch(),
    back: () => this.host.focus(),
  };
  private wanted: Set<ItemId> | null = null;
  private painting = 0;
  private laying = 0;
  private overlay: Overlay;
  private budget: BudgetPoint | null = null;

  constructor(
    private readonly subject: Subject,
    private readonly state: State,
  ) {
    const { flow } = subject;
    this.chosen = new Chosen(flow, subject.compile);
    this.overlay = OVERLAYS.find((overlay) => overlay.can(subject)) ?? OVERLAYS[0];
    this.nodeOf = new Map(flow.items.map((item, i) => [item, i]));
    this.host = h("div", {
      class: "window",
      role: "listbox",
      tabindex: 0,
      "aria-label": `${subject.name}: ${flow.nodes.length.toLocaleString("en")} nodes; arrow keys go along edges, Enter pins, / searches`,
      onkeydown: (event: KeyboardEvent) => this.keyed(event),
      onpointermove: (event: PointerEvent) => this.pointed(event),
      onpointerleave: () => this.state.hover([]),
      onclick: (event: MouseEvent) => this.clicked(event),
      ondblclick: (event: MouseEvent) => this.toggle(this.boxAt(event)),
      onscroll: () => this.scrolled(),
    });
    this.viewport = new Viewport(this.host, () => this.moved());
    this.spots = new Spots(this.viewport, flow);
    this.map = new OverviewMap(this.viewport);
    this.host.append(this.canvas, this.spots.element);
    this.tools = new Tools(subject, this.chosen.groupings, this.actions);
    const middle = h("div", { class: "middle" }, this.host, this.map.element);
    this.element.append(this.tools.top, middle, this.tools.bottom);
    this.stopTheme = onTheme(() => this.themed());
    this.resized = new ResizeObserver(() => this.sized());
    this.tools.setGrouping(this.chosen.begin());
    void this.rebuild().then(() => whenSized(this.host, () => this.mounted()));
  }

  /** Make the drawing of what is chosen now; `anchor`, a node, stays where it is on the page. */
  private async rebuild(anchor = -1): Promise<void> {
    const number = ++this.laying;
    const scene = makeScene(this.subject.flow, this.subject.roles, this.chosen);
    const late = setTimeout(() => this.element.classList.add("busy"), 200);
    const layout = await this.subject.layOut(scene);
    clearTimeout(late);
    this.element.classList.remove("busy");
    if (number !== this.laying) return;
    const before = this.place(anchor);
    const current = this.picture?.scene.shown[this.picture.current]?.nodes[0];
    const { items } = this.subject.flow;
    // where nothing is grouped, the modules name the parts
    const { groups, groupings } = this.chosen;
    const named = groups.length ? groups : groupings.of(GROUPINGS[0].name);
    this.picture = new Picture(scene, layout, named, (node) => this.state.links.colour(items[node]));
    this.picture.current = current === undefined ? -1 : scene.boxOf[current];
    this.viewport.setSize(layout.width, layout.height);
    this.colour(this.overlay.name);
    this.cross(this.picture);
    this.spots.setPicture(this.picture);
    this.map.setPicture(this.picture);
    this.markFound();
    this.light();
    if (this.picture.current >= 0) this.setCurrent(this.picture.current);
    const after = this.place(anchor);
    if (before && after) this.keep(before, after);
    else if (this.viewport.width) this.begin();
    this.paintSoon();
  }

  /** Draw the cut of the memory budget that is looked at. */
  private cross(picture: Picture): void {
    this.budget = this.state.budget;
    picture.crossing = this.subject.crossing(picture.scene);
  }

  private place(node: number): { x: number; y: number } | null {
    const box = node < 0 ? -1 : (this.picture?.scene.boxOf[node] ?? -1);
    const layout = this.picture?.layout;
    return layout && box >= 0 ? { x: layout.x[box], y: layout.y[box] } : null;
  }

  private keep(before: { x: number; y: number }, after: { x: number; y: number }): void {
    const { x, y, scale } = this.viewport.view;
    this.viewport.go({ x: x + after.x - before.x, y: y + after.y - before.y, scale }, false);
  }

  private mounted(): void {
    this.sized();
    this.resized.observe(this.host);
    this.begin();
    if (this.wanted) this.reveal(this.wanted);
  }

  private begin(): void {
    const { layout } = this.picture as Picture;
    this.viewport.begin((width, height) => whereMostIs(layout, width, height));
  }

  private sized(): void {
    this.viewport.width = this.host.clientWidth;
    this.viewport.height = this.host.clientHeight;
    this.viewport.go(this.viewport.view, false);
  }

  private themed(): void {
    this.palette = null;
    this.paintSoon();
  }

  private moved(): void {
    this.spots.move();
    this.paintSoon();
  }

  private paintSoon(): void {
    if (this.painting) return;
    this.painting = requestAnimationFrame(() => {
      this.painting = 0;
      this.paint();
    });
  }

  private paint(): void {
    if (!this.picture || !this.viewport.width) return;
    this.palette ??= readPalette(this.element);
    this.painter.paint(this.picture, this.viewport, this.palette);
    this.map.paint(this.picture, this.palette);
  }

  /** Take `other` along. */
  lead(other: GraphView): void {
    this.viewport.beside = other.viewport;
  }

  // ---- light ----

  light(): void {
    const { picture, state } = this;
    if (!picture) return;
    const lit = new Map<number, number>();
    const add = (items: Iterable<ItemId>, bit: number, instead = 0) => {
      for (const item of items) {
        const box = picture.scene.boxOf[this.nodeOf.get(item) ?? -1] ?? -1;
        if (box >= 0) lit.set(box, ((lit.get(box) ?? 0) & ~instead) | bit);
      }
    };
    add(state.pinLinked, LIT["pin-linked"]);
    add(state.pinned, LIT.pinned, LIT["pin-linked"]);
    add(state.hoverLinked, LIT["hover-linked"]);
    add(state.hovered, LIT.hovered, LIT["hover-linked"]);
    add(state.stepped, LIT.stepped);
    picture.lit = lit;
    if (this.budget !== state.budget) this.cross(picture);
    this.spots.light();
    this.tools.setPinned(this.nodesOf(state.pinned).length > 0);
    this.paintSoon();
  }

  reveal(items: Set<ItemId>): void {
    this.wanted = items;
    const { picture } = this;
    if (!picture || !this.viewport.width) return;
    const boxes = this.nodesOf(items)
      .map((node) => picture.scene.boxOf[node])
      .filter((box) => box >= 0);
    const first = boxes.reduce(
      (best, box) => (best < 0 || picture.layout.y[box] < picture.layout.y[best] ? box : best),
      -1,
    );
    if (first >= 0) this.show(first);
  }

  private nodesOf(items: Iterable<ItemId>): number[] {
    return [...items].flatMap((item) => this.nodeOf.get(item) ?? []);
  }

  /** Bring a box into sight, large enough to be read. */
  private show(box: number): void {
    const { x, y } = (this.picture as Picture).layout;
    const { left, right, top, bottom } = this.viewport.window();
    const { scale } = this.viewport.view;
    if (x[box] > left && x[box] < right && y[box] > top && y[box] < bottom && scale > 0.2) return;
    const readable = Math.max(scale, READABLE);
    this.viewport.go({ x: x[box], y: y[box] + this.viewport.height / readable / 6, scale: readable });
  }

  private itemsOf(box: number): ItemId[] {
    return (this.picture as Picture).scene.shown[box].nodes.map((node) => this.subject.flow.items[node]);
  }

  // ---- pointer ----

  private boxAt(event: MouseEvent): number {
    const { x, y } = this.viewport.at(event);
    return this.picture?.index.at(x, y) ?? -1;
  }

  private pointed(event: PointerEvent): void {
    if (this.viewport.dragged) return;
    const box = this.boxAt(event);
    this.host.classList.toggle("on-node", box >= 0);
    this.state.hover(box < 0 ? [] : this.itemsOf(box));
  }

  private clicked(event: MouseEvent): void {
    const box = this.boxAt(event);
    if (this.viewport.dragged || box < 0) return;
    this.setCurrent(box);
    if (this.onKnob(event, box)) this.toggle(box);
    else this.state.pin(this.itemsOf(box));
  }

  /** Whether a collapsed group is clicked at its knob, which expands it. */
  private onKnob(event: MouseEvent, box: number): boolean {
    const { layout, scene } = this.picture as Picture;
    const { group, width } = scene.shown[box];
    return group !== null && this.viewport.at(event).x < layout.x[box] - width / 2 + KNOB;
  }

  /** Something in the browser scrolled a node into sight: the drawing goes there instead. */
  private scrolled(): void {
    const { scrollLeft, scrollTop } = this.host;
    if (!scrollLeft && !scrollTop) return;
    this.host.scrollTo(0, 0);
    this.viewport.pan(scrollLeft, scrollTop);
  }

  // ---- keys ----

  private keyed(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.picture) return;
    const act = keyAction(event.key, this.actions);
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  /** The box that the keys move from: the last one that was gone to, else a pinned one, else the first in sight. */
  private current(): number {
    const picture = this.picture as Picture;
    if (picture.current >= 0) return picture.current;
    const [pinned] = this.nodesOf(this.state.pinned).map((node) => picture.scene.boxOf[node]);
    if (pinned !== undefined && pinned >= 0) return pinned;
    const { top, bottom } = this.viewport.window();
    const { y } = picture.layout;
    return picture.index.between(top, bottom).boxes.find((i) => y[i] >= top) ?? 0;
  }

  private setCurrent(box: number): void {
    const picture = this.picture as Picture;
    picture.current = box;
    this.spots.spot(box);
    this.host.setAttribute("aria-activedescendant", this.spots.id(box));
    this.spots.light();
    this.paintSoon();
  }

  private goTo(box: number): void {
    this.setCurrent(box);
    this.state.hover(this.itemsOf(box));
    this.show(box);
  }

  private pinCurrent(): void {
    const box = this.current();
    this.setCurrent(box);
    this.state.pin(this.itemsOf(box));
  }

  private walk(arrow: Arrow): void {
    const picture = this.picture as Picture;
    const at = this.current();
    // the first key only says where one is
    const next = picture.current < 0 ? at : nextBox(picture, at, arrow);
    if (next !== undefined) this.goTo(next);
  }

  // ---- groups ----

  private group(name: string): void {
    this.chosen.group(name);
    void this.rebuild();
  }

  /** Expand a collapsed group. */
  private toggle(box: number): void {
    const shown = box < 0 ? undefined : this.picture?.scene.shown[box];
    if (!shown || shown.group === null) return;
    this.chosen.open.add(shown.group);
    void this.rebuild(shown.nodes[0]);
  }

  /** Collapse the innermost expanded group that the current box is in. */
  private collapse(): void {
    const picture = this.picture as Picture;
    const [node] = picture.scene.shown[this.current()].nodes;
    if (this.chosen.collapse(node)) void this.rebuild(node);
  }

  // ---- search, neighbourhood, path ----

  private search(text: string): void {
    this.chosen.search(text, (item) => this.state.links.userLine(item));
    this.tools.setFound(this.chosen.found?.length ?? null);
    this.markFound();
    this.paintSoon();
  }

  private markFound(): void {
    const { picture } = this;
    if (!picture) return;
    const { found } = this.chosen;
    picture.found = found && new Set(found.map((node) => picture.scene.boxOf[node]));
  }

  /** Go to the next node that was found, out of its collapsed group where it is in one. */
  private async goToFound(by: number): Promise<void> {
    const node = this.chosen.nextFound(by);
    if (node === undefined) return;
    this.tools.setFound(this.chosen.found?.length ?? null, this.chosen.foundAt);
    if (this.chosen.expandTo(node)) await this.rebuild(node);
    const box = this.picture?.scene.boxOf[node] ?? -1;
    if (box >= 0) this.goTo(box);
  }

  /** Show these nodes alone; null: all again. */
  private narrow(only: ReadonlySet<number> | null, why: string): void {
    const node = this.picture?.scene.shown[this.current()]?.nodes[0] ?? -1;
    this.chosen.narrow(only);
    this.tools.setNarrowed(only ? why : "");
    void this.rebuild(node).then(() => {
      const box = this.picture?.scene.boxOf[node] ?? -1;
      if (box >= 0) this.goTo(box);
    });
  }

  private narrowToFound(): void {
    const found = this.chosen.found ?? [];
    this.narrow(found.length ? new Set(found) : null, `${found.length} found`);
  }

  /** The neighbourhood of the current box; asked for again, one step more of it. */
  private around(): void {
    const { nodes, title } = (this.picture as Picture).scene.shown[this.current()];
    const around = this.chosen.around(nodes);
    const name = nodes.length > 1 ? title : keyOf(this.subject.flow.items[nodes[0]]);
    this.narrow(around.nodes, `within ${around.steps} of ${name}`);
  }

  /** All that lies between the pinned nodes and the current one. */
  private way(): void {
    const { flow } = this.subject;
    const picture = this.picture as Picture;
    const to = picture.scene.shown[this.current()].nodes;
    const from = this.nodesOf(this.state.pinned).filter((node) => !to.includes(node));
    const between = from.length ? flow.between(from, to) : new Set<number>();
    if (between.size) this.narrow(between, "ways between");
    else this.tools.say(from.length ? "No way joins them" : "Pin one node, go to another, then ask");
  }

  // ---- colours ----

  private colour(name: string): void {
    this.overlay = OVERLAYS.find((o) => o.name === name) ?? OVERLAYS[0];
    if (!this.picture) return;
    this.picture.tint = this.overlay.of(this.subject, this.picture.scene, this.state);
    this.tools.setLegend(this.picture.tint);
    this.paintSoon();
  }

  destroy(): void {
    cancelAnimationFrame(this.painting);
    this.laying++;
    this.viewport.destroy();
    this.spots.destroy();
    this.stopTheme();
    this.resized.disconnect();
  }
}

const KNOB = 18;

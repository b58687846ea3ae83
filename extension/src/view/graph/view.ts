/** A graph as a drawing: boxes that light up, are pinned, searched for, collapsed, and walked with the keys. */

import { h, whenSized } from "../dom";
import { keyOf } from "../links";
import type { Content } from "../pane";
import type { BudgetPoint, ItemId } from "../record";
import type { State } from "../state";
import { GROUPINGS, Groupings, type Groups } from "./grouping";
import { OverviewMap } from "./map";
import { OVERLAYS } from "./overlays";
import { Painter } from "./painter";
import { onTheme, type Palette, readPalette } from "./palette";
import { LIT, Picture } from "./picture";
import { parseQuery } from "./query";
import { makeScene } from "./scene";
import { Spots } from "./spots";
import type { Subject } from "./subject";
import { Tools } from "./tools";
import { Viewport } from "./viewport";

/** A graph of more nodes is shown collapsed to begin with, where it has modules. */
const MOST_AT_ONCE = 400;
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
  private groups: Groups = [];
  private readonly groupings: Groupings;
  private readonly open = new Set<string>();
  private only: ReadonlySet<number> | null = null;
  private reach = 0;
  private found: number[] = [];
  private wanted: Set<ItemId> | null = null;
  private painting = 0;
  private laying = 0;
  private overlay = OVERLAYS[0];
  private budget: BudgetPoint | null = null;

  constructor(
    private readonly subject: Subject,
    private readonly state: State,
  ) {
    const { flow } = subject;
    this.groupings = new Groupings(flow, subject.compile);
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
    this.tools = new Tools(subject, this.groupings, {
      search: (text) => this.search(text),
      step: (by) => this.goToFound(by),
      onlyFound: () => this.narrow(this.found.length ? new Set(this.found) : null, `${this.found.length} found`),
      group: (name) => this.group(name),
      colour: (name) => this.colour(name),
      around: () => this.around(),
      way: () => this.way(),
      collapse: () => this.collapse(),
      all: () => this.narrow(null, ""),
      zoom: (by) => this.viewport.zoom(by),
      fit: () => this.viewport.showAll(),
      back: () => this.host.focus(),
    });
    const middle = h("div", { class: "middle" }, this.host, this.map.element);
    this.element.append(this.tools.top, middle, this.tools.bottom);
    this.stopTheme = onTheme(() => this.themed());
    this.resized = new ResizeObserver(() => this.sized());
    this.chooseBeginning();
    void this.rebuild().then(() => whenSized(this.host, () => this.mounted()));
  }

  /** A large graph begins with its modules collapsed, where that makes it readable. */
  private chooseBeginning(): void {
    const { flow } = this.subject;
    if (flow.nodes.length <= MOST_AT_ONCE) return;
    const good = GROUPINGS.find(({ name }) => {
      const boxes = new Set(this.groupings.of(name).map((own, i) => own[0] ?? i));
      return boxes.size < flow.nodes.length / 3;
    });
    if (!good) return;
    this.groups = this.groupings.of(good.name);
    this.tools.setGrouping(good.name);
  }

  /** Make the drawing of what is chosen now; `anchor`, a node, stays where it is on the page. */
  private async rebuild(anchor = -1): Promise<void> {
    const number = ++this.laying;
    const scene = makeScene(this.subject.flow, this.subject.roles, {
      groups: this.groups,
      open: this.open,
      only: this.only,
    });
    const late = setTimeout(() => this.element.classList.add("busy"), 200);
    const layout = await this.subject.layOut(scene);
    clearTimeout(late);
    this.element.classList.remove("busy");
    if (number !== this.laying) return;
    const before = this.place(anchor);
    const current = this.picture?.scene.shown[this.picture.current]?.nodes[0];
    const { items } = this.subject.flow;
    // where nothing is grouped, the modules name the parts
    const named = this.groups.length ? this.groups : this.groupings.of(GROUPINGS[0].name);
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
    this.viewport.begin(layout.gutter ?? layout.x[0] ?? 0);
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
    const readable = Math.max(scale, 0.6);
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
    const act = this.action(event.key);
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  private action(key: string): (() => void) | undefined {
    const { viewport } = this;
    if (key === "Escape") return this.only ? () => this.narrow(null, "") : undefined;
    const page = viewport.height * PAGE;
    const actions: { [key: string]: () => void } = {
      "/": () => this.tools.focusSearch(),
      "+": () => viewport.zoom(1.25),
      "=": () => viewport.zoom(1.25),
      "-": () => viewport.zoom(0.8),
      "0": () => viewport.showAll(),
      PageUp: () => viewport.pan(0, -page),
      PageDown: () => viewport.pan(0, page),
      Home: () => this.goTo(0),
      End: () => this.goTo((this.picture as Picture).scene.shown.length - 1),
      Enter: () => this.pinCurrent(),
      " ": () => this.pinCurrent(),
      n: () => this.goToFound(1),
      N: () => this.goToFound(-1),
      e: () => this.toggle(this.current()),
      c: () => this.collapse(),
      a: () => this.around(),
      w: () => this.way(),
      ...Object.fromEntries(ARROWS.map((arrow) => [arrow, () => this.walk(arrow)])),
    };
    return actions[key];
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

  /** Up: the first of a box's inputs; down: its first reader; left and right: along its row. */
  private walk(arrow: string): void {
    const picture = this.picture as Picture;
    const at = this.current();
    const ways: { [arrow: string]: () => number | undefined } = {
      ArrowUp: () => picture.neighbours(at, 0)[0],
      ArrowDown: () => picture.neighbours(at, 1)[0],
      ArrowLeft: () => this.beside(at, -1),
      ArrowRight: () => this.beside(at, 1),
    };
    // the first key only says where one is
    const next = picture.current < 0 ? at : ways[arrow]();
    if (next !== undefined) this.goTo(next);
  }

  private beside(at: number, side: number): number | undefined {
    const { layout, index } = this.picture as Picture;
    const row = index
      .between(layout.y[at], layout.y[at])
      .boxes.filter((i) => Math.abs(layout.y[i] - layout.y[at]) < 19);
    const there = row.filter((i) => (layout.x[i] - layout.x[at]) * side > 0);
    return there.sort((a, b) => (layout.x[a] - layout.x[b]) * side)[0];
  }

  // ---- groups ----

  private group(name: string): void {
    this.groups = this.groupings.of(name);
    this.open.clear();
    void this.rebuild();
  }

  /** Expand a collapsed group. */
  private toggle(box: number): void {
    const shown = box < 0 ? undefined : this.picture?.scene.shown[box];
    if (!shown || shown.group === null) return;
    this.open.add(shown.group);
    void this.rebuild(shown.nodes[0]);
  }

  /** Collapse the innermost expanded group that the current box is in. */
  private collapse(): void {
    const picture = this.picture as Picture;
    const [node] = picture.scene.shown[this.current()].nodes;
    const group = this.groups[node]?.findLast((g) => this.open.has(g));
    if (group === undefined) return;
    for (const own of this.groups) {
      const at = own.indexOf(group);
      if (at >= 0) for (const inner of own.slice(at)) this.open.delete(inner);
    }
    void this.rebuild(node);
  }

  // ---- search, neighbourhood, path ----

  private search(text: string): void {
    const fits = parseQuery(text);
    const { nodes, items } = this.subject.flow;
    this.found = fits
      ? nodes.flatMap((node, i) => (fits(node, () => this.state.links.userLine(items[i])) ? [i] : []))
      : [];
    this.foundAt = -1;
    this.tools.setFound(fits ? this.found.length : null);
    this.searching = fits !== null;
    this.markFound();
    this.paintSoon();
  }

  private searching = false;
  private foundAt = -1;

  private markFound(): void {
    const { picture } = this;
    if (!picture) return;
    picture.found = this.searching ? new Set(this.found.map((node) => picture.scene.boxOf[node])) : null;
  }

  /** Go to the next node that was found, out of its collapsed group where it is in one. */
  private async goToFound(by: number): Promise<void> {
    if (!this.found.length) return;
    this.foundAt = (this.foundAt + by + this.found.length + (this.foundAt < 0 && by < 0 ? 1 : 0)) % this.found.length;
    this.tools.setFound(this.found.length, this.foundAt);
    const node = this.found[this.foundAt];
    const closed = (this.groups[node] ?? []).filter((group) => !this.open.has(group));
    if (closed.length) {
      for (const group of closed) this.open.add(group);
      await this.rebuild(node);
    }
    const box = this.picture?.scene.boxOf[node] ?? -1;
    if (box >= 0) this.goTo(box);
  }

  /** Show these nodes alone; null: all again. */
  private narrow(only: ReadonlySet<number> | null, why: string): void {
    const node = this.picture?.scene.shown[this.current()]?.nodes[0] ?? -1;
    this.only = only;
    if (!only) this.reach = 0;
    this.tools.setNarrowed(only ? why : "");
    void this.rebuild(node).then(() => {
      const box = this.picture?.scene.boxOf[node] ?? -1;
      if (box >= 0) this.goTo(box);
    });
  }

  /** The neighbourhood of the current box; asked for again, one step more of it. */
  private around(): void {
    const { nodes, title } = (this.picture as Picture).scene.shown[this.current()];
    this.reach++;
    const { flow } = this.subject;
    const steps = this.reach === 1 ? "1 step" : `${this.reach} steps`;
    this.narrow(
      flow.around(nodes, this.reach),
      `within ${steps} of ${nodes.length > 1 ? title : keyOf(flow.items[nodes[0]])}`,
    );
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
const ARROWS = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"];

/** A graph as a drawing: nodes that light up, can be pinned, and are walked with the arrow keys. */

import { bytes, h, reducedMotion, shorten, svg, tensorType, whenSized } from "./dom";
import { type Layout, layOut } from "./layout";
import type { Content } from "./pane";
import type { Artifact, Graph, ItemId, Node } from "./record";
import type { State } from "./state";
import { litClasses, TextView } from "./text";

/** Beyond this a drawing says less than the text. */
export const MOST_DRAWN = 400;

const CHARACTER = 6.4;
const HEIGHT = 38;
const MARGIN = 14;
const LONGEST_LABEL = 32;
const ROLES = ["primal", "tangent", "saved", "output", "gradient"];
const LIT = ["pinned", "pin-linked", "hovered", "hover-linked", "stepped"];

const layouts = new WeakMap<Graph, Promise<Layout>>();

interface Drawn {
  node: Node;
  item: ItemId;
  group: SVGGElement;
  x: number;
  y: number;
}

export class GraphView implements Content {
  readonly element = h("div", { class: "graph" });
  private readonly scroller = h("div", { class: "scroller" });
  private readonly drawn = new Map<string, Drawn>();
  private readonly roles: Map<string, string>;
  private picture: SVGSVGElement | null = null;
  private instead: TextView | null = null;
  private size = { width: 0, height: 0 };
  private scale = 1;
  private wanted: Set<ItemId> | null = null;

  constructor(
    private readonly artifact: Artifact,
    private readonly graph: Graph,
    private readonly state: State,
  ) {
    this.roles = rolesOf(artifact, graph, state);
    this.element.append(this.scroller);
    if (graph.nodes.length > MOST_DRAWN) {
      this.showText(`With ${graph.nodes.length.toLocaleString("en")} nodes, this graph is easier to read as text.`);
    } else {
      this.start().catch((error: Error) =>
        this.showText(`The graph could not be drawn (${error.message}); this is its text.`),
      );
    }
  }

  private async start(): Promise<void> {
    const late = setTimeout(() => this.scroller.append(h("p", { class: "empty" }, "Drawing the graph…")), 200);
    const layout = await this.findLayout().finally(() => clearTimeout(late));
    this.draw(layout);
    this.light();
    if (this.wanted) this.reveal(this.wanted);
  }

  private findLayout(): Promise<Layout> {
    const known = layouts.get(this.graph);
    if (known) return known;
    const { nodes, edges } = this.graph;
    const at = new Map(nodes.map((n, i) => [n.key, i]));
    const pairs = edges.flatMap(([from, to]): [number, number][] => {
      const [a, b] = [at.get(from), at.get(to)];
      return a === undefined || b === undefined ? [] : [[a, b]];
    });
    const found = layOut(nodes.map(box), pairs);
    layouts.set(this.graph, found);
    found.catch(() => layouts.delete(this.graph));
    return found;
  }

  private showText(why: string): void {
    this.instead = new TextView(this.artifact, this.state, `${this.artifact.name} as text`);
    this.element.classList.add("as-text");
    this.element.replaceChildren(h("p", { class: "note" }, why), this.instead.element);
    if (this.wanted) this.reveal(this.wanted);
  }

  private draw(layout: Layout): void {
    this.size = { width: layout.width + 2 * MARGIN, height: layout.height + 2 * MARGIN };
    const edges = svg("g", { class: "edges" }, ...layout.edges.map((points) => svg("path", { d: curve(points) })));
    const nodes = svg("g", { class: "nodes" });
    this.graph.nodes.forEach((node, i) => {
      const { x, y } = layout.nodes[i];
      const group = this.drawNode(node, x, y);
      this.drawn.set(node.key, { node, item: `${this.artifact.id}#${node.key}`, group, x, y });
      nodes.append(group);
    });
    this.picture = svg(
      "svg",
      {
        viewBox: `${-MARGIN} ${-MARGIN} ${this.size.width} ${this.size.height}`,
        role: "application",
        "aria-label": `${this.artifact.name}: ${this.graph.nodes.length} nodes; arrow keys go along its edges`,
        onkeydown: (event: KeyboardEvent) => this.keyed(event),
      },
      edges,
      nodes,
    );
    this.scroller.replaceChildren(this.picture);
    this.scroller.addEventListener("wheel", (event) => this.wheeled(event), { passive: false });
    this.scroller.addEventListener("pointerdown", (event) => this.dragged(event));
    this.element.append(this.tools());
    this.drawn.values().next().value?.group.setAttribute("tabindex", "0");
    whenSized(this.scroller, () => this.fit());
  }

  private drawNode(node: Node, x: number, y: number): SVGGElement {
    const item = `${this.artifact.id}#${node.key}`;
    const { width } = box(node);
    const role = this.roles.get(node.key) ?? "";
    const colour = this.state.links.colour(item);
    const [title, under] = labels(node);
    const group = svg(
      "g",
      {
        class: `node ${role} ${node.op}`,
        transform: `translate(${x - width / 2} ${y - HEIGHT / 2})`,
        tabindex: -1,
        role: "button",
        "aria-label": description(node, role).replaceAll("\n", ", "),
        onmouseenter: () => this.state.hover([item]),
        onmouseleave: () => this.state.hover([]),
        onclick: () => this.state.pin([item]),
        onfocus: () => this.state.hover([item]),
        onblur: () => this.state.hover([]),
      },
      svg("title", {}, description(node, role)),
      svg("rect", { class: "frame", width, height: HEIGHT, rx: 4 }),
      colour === null ? null : svg("rect", { class: `stripe c${colour}`, x: 0, y: 4, width: 3, height: HEIGHT - 8 }),
      svg("text", { class: "title", x: width / 2, y: under ? 16 : 23 }, title),
      svg("text", { class: "under", x: width / 2, y: 30 }, under),
    );
    return group;
  }

  private tools(): HTMLElement {
    const tool = (text: string, label: string, onclick: () => void) =>
      h("button", { title: label, "aria-label": label, onclick }, text);
    return h(
      "div",
      { class: "tools" },
      this.legend(),
      tool("−", "Smaller", () => this.zoom(this.scale / 1.25)),
      tool("+", "Larger", () => this.zoom(this.scale * 1.25)),
      tool("Fit", "Show the whole graph", () => this.zoom(this.whole())),
    );
  }

  private legend(): HTMLElement {
    const present = ROLES.filter((role) => [...this.roles.values()].includes(role));
    const entries = present.map((role) => h("span", { class: role }, role));
    return h("div", { class: "legend" }, ...entries);
  }

  /** The scale at which the whole graph is seen. */
  private whole(): number {
    const { clientWidth, clientHeight } = this.scroller;
    return Math.min(1, clientWidth / this.size.width, clientHeight / this.size.height);
  }

  /** To begin with, as much as can be read. */
  private fit(): void {
    this.zoom(Math.max(this.whole(), Math.min(1, Math.max(0.6, this.scroller.clientWidth / this.size.width))));
    if (this.wanted) this.reveal(this.wanted);
  }

  /** Change the scale; what is at `at` (else the middle) stays where it is. */
  private zoom(scale: number, at?: { x: number; y: number }): void {
    const box = this.scroller;
    const { x, y } = at ?? { x: box.clientWidth / 2, y: box.clientHeight / 2 };
    const next = Math.min(3, Math.max(0.05, scale));
    const [left, top] = [(box.scrollLeft + x) / this.scale, (box.scrollTop + y) / this.scale];
    this.scale = next;
    this.picture?.setAttribute("width", String(this.size.width * next));
    this.picture?.setAttribute("height", String(this.size.height * next));
    box.scrollLeft = left * next - x;
    box.scrollTop = top * next - y;
  }

  private wheeled(event: WheelEvent): void {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const corner = this.scroller.getBoundingClientRect();
    this.zoom(this.scale * Math.exp(-event.deltaY / 300), {
      x: event.clientX - corner.left,
      y: event.clientY - corner.top,
    });
  }

  private dragged(down: PointerEvent): void {
    if (down.button !== 0 || (down.target as Element).closest(".node")) return;
    const box = this.scroller;
    const start = { left: box.scrollLeft, top: box.scrollTop };
    const move = (event: PointerEvent) => {
      box.scrollLeft = start.left - (event.clientX - down.clientX);
      box.scrollTop = start.top - (event.clientY - down.clientY);
    };
    box.setPointerCapture(down.pointerId);
    box.classList.add("dragging");
    box.addEventListener("pointermove", move);
    const up = () => {
      box.removeEventListener("pointermove", move);
      box.classList.remove("dragging");
    };
    box.addEventListener("pointerup", up, { once: true });
    box.addEventListener("pointercancel", up, { once: true });
  }

  private keyed(event: KeyboardEvent): void {
    const own = [...this.drawn.values()].find((d) => d.group === document.activeElement);
    if (!own) return;
    if (event.key === "Enter" || event.key === " ") this.state.pin([own.item]);
    else {
      const next = this.neighbour(own, event.key);
      if (!next) return;
      own.group.setAttribute("tabindex", "-1");
      next.group.setAttribute("tabindex", "0");
      next.group.focus({ preventScroll: true });
      this.reveal(new Set([next.item]));
    }
    event.preventDefault();
  }

  /** Up: the first of a node's inputs; down: its first user; left and right: along its row. */
  private neighbour(own: Drawn, key: string): Drawn | undefined {
    const { edges } = this.graph;
    if (key === "ArrowUp") return this.drawn.get(edges.find(([, to]) => to === own.node.key)?.[0] ?? "");
    if (key === "ArrowDown") return this.drawn.get(edges.find(([from]) => from === own.node.key)?.[1] ?? "");
    const row = [...this.drawn.values()].filter((d) => Math.abs(d.y - own.y) < HEIGHT / 2).sort((a, b) => a.x - b.x);
    const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
    return step === undefined ? undefined : row[row.indexOf(own) + step];
  }

  light(): void {
    this.instead?.light();
    for (const { item, group } of this.drawn.values()) {
      const classes = litClasses([item], this.state).split(" ");
      for (const name of LIT) group.classList.toggle(name, classes.includes(name));
    }
  }

  reveal(items: Set<ItemId>): void {
    this.wanted = items;
    this.instead?.reveal(items);
    const first = [...this.drawn.values()].filter((d) => items.has(d.item)).sort((a, b) => a.y - b.y)[0];
    if (!first || !this.scroller.clientHeight) return;
    const box = this.scroller;
    const [x, y] = [(first.x + MARGIN) * this.scale, (first.y + MARGIN) * this.scale];
    const inside =
      x > box.scrollLeft &&
      x < box.scrollLeft + box.clientWidth &&
      y > box.scrollTop &&
      y < box.scrollTop + box.clientHeight;
    if (inside) return;
    box.scrollTo({
      left: x - box.clientWidth / 2,
      top: y - box.clientHeight / 3,
      behavior: reducedMotion() ? "auto" : "smooth",
    });
  }

  destroy(): void {
    this.instead?.destroy();
  }
}

/** Nodes' roles as the graph says, and "saved" for what the partition saves. */
function rolesOf(artifact: Artifact, graph: Graph, state: State): Map<string, string> {
  const saved = new Set(state.compile?.partition?.values.filter((v) => v.decision === "saved").map((v) => v.node));
  return new Map(
    graph.nodes.flatMap((n): [string, string][] => {
      const role = saved.has(`${artifact.id}#${n.key}`) ? "saved" : (n.role ?? (n.op === "output" ? "output" : null));
      return role !== null && ROLES.includes(role) ? [[n.key, role]] : [];
    }),
  );
}

function box(node: Node): { width: number; height: number } {
  const longest = Math.max(...labels(node).map((text) => text.length));
  return { width: Math.max(48, longest * CHARACTER + 20), height: HEIGHT };
}

/** The two lines of text on a node. */
function labels(node: Node): [string, string] {
  const type = shorten(tensorType(node.dtype, node.shape), LONGEST_LABEL);
  const name = shorten(node.key, LONGEST_LABEL);
  if (node.op === "placeholder") return [name, type];
  if (node.op === "output") return ["output", ""];
  const title = shorten(operator(node.target), LONGEST_LABEL);
  if (!type) return [title, name];
  return [title, name === title ? type : `${name}: ${type}`];
}

/** "aten.cos.default" as "cos", "operator.truediv" as "truediv". */
function operator(target: string): string {
  const words = target.split(".");
  return words[0] === "aten" ? words[1] : words[words.length - 1];
}

/** What is written on a node, and more about it. */
function description(node: Node, role: string): string {
  const size = node.bytes === null ? null : bytes(node.bytes);
  const facts = [
    labels(node).filter(Boolean).join(" "),
    node.op === "placeholder" ? "input" : node.op === "output" ? null : `${node.key} = ${node.target}`,
    [node.device, size].filter(Boolean).join(", "),
    node.module && `in ${node.module}`,
    role,
  ];
  return facts.filter(Boolean).join("\n");
}

/** A start and three points for each cubic curve, with an arrow's head at the end. */
function curve(points: [number, number][]): string {
  const [start, ...rest] = points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`);
  const [x, y] = points[points.length - 1];
  const head = `M${(x - 3.2).toFixed(1)} ${(y - 5.5).toFixed(1)}L${x.toFixed(1)} ${y.toFixed(1)}L${(x + 3.2).toFixed(1)} ${(y - 5.5).toFixed(1)}`;
  return `M${start}C${rest.join(" ")}${head}`;
}

/**
 * Ways to divide the joint graph into forward and backward, drawn beside one another: save everything, the default, the
 * minimum cut, and the budgets of the memory curve that save something else.
 */

import { h, svg } from "../../dom/elements";
import { bytes, plural, shorten } from "../../dom/format";
import { type Layout, layOut } from "../../graph/layout/layout";
import { computeCut, savedNodes } from "../../graph/scene/cut";
import { IndexedGraph, pairsOf } from "../../graph/scene/indexed_graph";
import { operator } from "../../graph/scene/labels";
import type { Artifact, Compile, Graph, Partition } from "../../model/record/record";
import type { State } from "../../model/state";
import { LinkedContent } from "../linked_content";

const MAX_DRAWN = 200; // nodes; larger graphs are compared as bars only
const MAX_BUDGETS = 4;
const BOX = { width: 124, height: 36 };
const MAX_LABEL = 14;

interface Plan {
  name: string;
  saved: Set<number>;
  bytes: number;
  recomputed: Set<number>;
}

export class PartitionPlans extends LinkedContent {
  constructor(state: State, compile: Compile, joint: Artifact) {
    super(state);
    const nodes = (joint.graph as Graph).nodes;
    const items = nodes.map(({ key }) => `${joint.id}#${key}`);
    const graph = new IndexedGraph(nodes, items, pairsOf(joint.graph as Graph));
    const plans = plansOf(graph, compile);
    const most = Math.max(1, ...plans.map((plan) => plan.bytes));
    const figures = plans.map((plan) => {
      const bar = h("span", { class: "bar saved", style: `width:${(100 * plan.bytes) / most}%` });
      const caption = h("figcaption", {}, h("b", {}, plan.name), h("span", { class: "track" }, bar), summary(plan));
      return h("figure", {}, caption);
    });
    this.element.append(h("p", { class: "lead" }, lead(plans)), h("div", { class: "plans" }, ...figures));
    if (nodes.length > MAX_DRAWN) {
      const text = `With ${plural(nodes.length, "node")} the joint graph is too large to be drawn for each.`;
      this.element.append(h("p", { class: "note" }, text));
      return;
    }
    const boxes = nodes.map(() => BOX);
    void layOut(boxes, graph.edges).then((layout) => {
      for (const [at, plan] of plans.entries())
        figures[at].append(h("div", { class: "drawn", tabindex: 0 }, this.drawing(graph, plan, layout)));
      this.highlight();
    });
  }

  private drawing(graph: IndexedGraph, plan: Plan, layout: Layout): SVGElement {
    const label = `The joint graph under ${plan.name}: ${summary(plan)}`;
    const picture = svg("svg", {
      viewBox: `0 0 ${layout.width} ${layout.height}`,
      style: `width:${layout.width}px`,
      role: "img",
      "aria-label": label,
    });
    picture.append(...layout.edges.map((edge) => svg("path", { d: pathOf(edge) })));
    for (const [i, node] of graph.nodes.entries()) {
      const kind = plan.saved.has(i) ? "saved" : plan.recomputed.has(i) ? "recomputed" : "";
      const side = kind || (graph.isBackward[i] ? "backward" : "forward");
      const [x, y] = [layout.x[i], layout.y[i]];
      const place = { x: x - BOX.width / 2, y: y - BOX.height / 2, ...BOX, rx: 3 };
      const name = shorten(node.op.startsWith("call") ? operator(node.target) : node.key, MAX_LABEL);
      const under = kind && node.bytes ? `${kind}, ${bytes(node.bytes)}` : kind;
      picture.append(
        svg(
          "g",
          { class: side },
          svg("title", {}, `${node.key}\n${side}${node.bytes ? `, ${bytes(node.bytes)}` : ""}`),
          svg("rect", place),
          svg("text", { x, y: y + (under ? -3 : 4) }, name),
          svg("text", { class: "under", x, y: y + 11 }, under),
        ),
      );
    }
    return picture;
  }
}

function plansOf(graph: IndexedGraph, compile: Compile): Plan[] {
  const { nodes } = graph;
  const outputs = nodes.flatMap((node, i) => (node.role === "output" ? [i] : []));
  const forward = graph.reachable(outputs, graph.inputs);
  for (const [i, node] of nodes.entries()) if (node.role === "primal") forward.add(i);
  const isTensor = (i: number) => Boolean(nodes[i].bytes);
  const isRead = (i: number) => graph.users[i].some((user) => !forward.has(user) && nodes[user].op !== "output");
  const plan = (name: string, saved: Set<number>): Plan => {
    const { backward } = computeCut(graph, saved);
    const size = [...saved].reduce((sum, i) => sum + (nodes[i].bytes ?? 0), 0);
    return { name, saved, bytes: size, recomputed: new Set([...backward].filter((i) => forward.has(i))) };
  };
  const inForward = [...forward].filter(isTensor);
  const plans = [
    plan("save everything", new Set(inForward)),
    plan("default", new Set(inForward.filter(isRead))),
    plan("minimum cut", savedNodes(graph, compile, null)),
  ];
  const different = new Map<string, Plan>();
  for (const point of (compile.partition as Partition).curve) {
    const made = plan(`budget ${point.budget.toFixed(1)}`, savedNodes(graph, compile, point));
    const key = [...made.saved].sort().join();
    if (key !== [...plans[2].saved].sort().join() && !different.has(key)) different.set(key, made);
  }
  return [...plans, ...[...different.values()].slice(0, MAX_BUDGETS)];
}

function summary({ saved, bytes: size, recomputed }: Plan): string {
  const again = recomputed.size ? `; ${plural(recomputed.size, "operation")} computed again` : "";
  return `${plural(saved.size, "tensor")} saved, ${bytes(size)}${again}`;
}

function lead(plans: Plan[]): string {
  const [everything, , cut] = plans;
  return `The minimum cut saves ${bytes(cut.bytes)} for the backward; saving every value of the forward takes ${bytes(everything.bytes)}.`;
}

/** Returns an edge of a layout as a path of cubic curves. */
function pathOf(points: Float32Array): string {
  let path = `M${points[0]} ${points[1]}`;
  for (let at = 2; at + 5 < points.length; at += 6) path += `C${Array.from(points.subarray(at, at + 6)).join(" ")}`;
  return path;
}

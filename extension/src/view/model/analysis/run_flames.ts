/** The time of a run of one compile as trees: compiled and eager, by module, line and kernel or operation. */

import type { Compile, ItemId, Node } from "../record/record";
import { type KernelCost, kernelCosts } from "./costs";
import type { Flame } from "./flames";
import { keyOf, type Links } from "./links";
import { pathWords } from "./module_path";
import { wholeStep } from "./training_step";

type Direction = "forward" | "backward";
const DIRECTIONS: Direction[] = ["forward", "backward"];

/** Returns the trees of the compiled run and of the eager one, if they were timed. */
export function runFlames(compile: Compile, links: Links): Flame[] {
  return [compiledRun(compile, links), eagerRun(compile, links)].filter((flame) => flame.ns > 0);
}

/** Returns the time of a graph as a whole, if it was measured. */
function wholeTime(compile: Compile, graph: Direction, form: "compiled" | "eager"): number {
  return compile.graph_times.find((time) => time.graph === graph && time.form === form)?.ns ?? 0;
}

function compiledRun(compile: Compile, links: Links): Flame {
  const root = flame("compiled", "all");
  const costs = kernelCosts([compile], links).filter(({ kernel }) => kernel.time_ns !== null);
  if (!costs.length) return root;
  if (compile.guards_ns) {
    add(root, [{ name: "guards", stage: "guards" }], compile.guards_ns, "Guards, which each call checks");
  }
  const inOrder = new Map(compile.kernels.map((kernel, i) => [kernel, i]));
  costs.sort((a, b) => (inOrder.get(a.kernel) ?? 0) - (inOrder.get(b.kernel) ?? 0));
  for (const graph of DIRECTIONS) {
    const own = costs.filter(({ kernel }) => kernel.graph === graph);
    for (const cost of own) addKernel(root, cost, graphName(compile, graph), links);
    const kernels = own.reduce((sum, { ns }) => sum + ns, 0);
    const launches = wholeTime(compile, graph, "compiled") - kernels;
    const place = [{ name: graphName(compile, graph), stage: graph }, LAUNCHES];
    if (own.length && launches > 0) {
      add(root, place, launches, "Launches: Python between the kernels, and memory allocated");
    }
  }
  return root;
}

/** The name of a graph: that of a whole training step has more than the forward. */
function graphName(compile: Compile, graph: Direction): string {
  return graph === "forward" && wholeStep(compile) ? "step" : graph;
}

/** Adds a kernel below the module and line of each node that it computes, with equal parts of its time. */
function addKernel(root: Flame, { kernel, nodes, ns }: KernelCost, graph: string, links: Links): void {
  const parts: (ItemId | null)[] = nodes.length ? nodes : [kernel.item];
  for (const part of parts) {
    const node = part === null ? undefined : links.node(part);
    const steps = [{ name: graph, stage: kernel.graph }, ...placeOf(node, part, links)];
    const items = [kernel.item, part].filter((item) => item !== null);
    add(root, [...steps, { name: kernel.name, stage: "kernel", items }], ns / parts.length);
  }
}

function eagerRun(compile: Compile, links: Links): Flame {
  const root = flame("eager PyTorch", "all");
  for (const graph of DIRECTIONS) {
    let operations = 0;
    for (const time of compile.eager_times) {
      const ns = graph === "forward" ? time.forward_ns : time.backward_ns;
      if (!ns) continue;
      operations += ns;
      const node = links.node(time.node);
      const steps = [{ name: graph, stage: graph }, ...placeOf(node, time.node, links)];
      const name = graph === "forward" ? (node?.target ?? keyOf(time.node)) : `backward of ${keyOf(time.node)}`;
      add(root, [...steps, { name, stage: "kernel", items: [time.node] }], ns);
    }
    const rest = wholeTime(compile, graph, "eager") - operations;
    if (operations && rest > 0) {
      const where = graph === "forward" ? "Python between the operations" : "Autograd between its functions";
      add(
        root,
        [
          { name: graph, stage: graph },
          { ...LAUNCHES, name: "between" },
        ],
        rest,
        where,
      );
    }
  }
  return root;
}

interface Step {
  name: string;
  stage: string;
  items?: ItemId[];
}

const INDEX = "\u0000";
const LAUNCHES: Step = { name: "launches", stage: "launch" };

/** Returns the modules and the line of a node. */
function placeOf(node: Node | undefined, item: ItemId | null, links: Links): Step[] {
  // an index belongs to the name before it
  const path = pathWords(node?.module ?? null)
    .join(".")
    .replace(/\.(?=\d)/g, INDEX)
    .split(".");
  const names = path.map((name) => name.replaceAll(INDEX, ".")).filter(Boolean);
  const steps: Step[] = names.map((name) => ({ name, stage: "module" }));
  const line = item === null ? null : links.userLine(item);
  if (line !== null) steps.push({ name: links.text(line), stage: "line", items: [line] });
  return steps;
}

function flame(name: string, stage: string, title = name, items: ItemId[] = []): Flame {
  return { name, title, stage, start: 0, ns: 0, children: [], items };
}

/** Adds time at the end of a path of steps; steps of one name below one step are one. */
function add(root: Flame, path: Step[], ns: number, title?: string): void {
  let at = root;
  at.ns += ns;
  for (const step of path) {
    let next = at.children.find((child) => child.name === step.name && child.stage === step.stage);
    if (!next) {
      const isLast = step === path[path.length - 1];
      const inside = at.stage === "module" && step.stage === "module" ? `${at.title}.${step.name}` : step.name;
      next = flame(step.name, step.stage, (isLast && title) || inside, []);
      at.children.push(next);
    }
    next.items = [...new Set([...(next.items ?? []), ...(step.items ?? [])])];
    next.ns += ns;
    at = next;
  }
}

/** Sets where each part of a tree starts: parts follow one another within the one around them. */
export function placed(root: Flame, start = 0): Flame {
  root.start = start;
  let at = start;
  for (const child of root.children) {
    placed(child, at);
    at += child.ns;
  }
  return root;
}

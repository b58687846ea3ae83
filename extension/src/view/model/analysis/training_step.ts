/**
 * A training step: which nodes and kernels are of the forward, of the backward and of the update of the parameters, and
 * the gradient and the update of each parameter.
 *
 * The step is one graph if the backward was captured with it (`capture_backward`): the captured graph then has calls of
 * `torch.autograd.grad`. Otherwise the forward and the backward are two graphs, without an update.
 */

import type { Artifact, Compile, Graph, ItemId, Node } from "../record/record";
import type { KernelCost } from "./costs";
import { appendTo, type Links } from "./links";

/** In the order in which they run. */
export const PHASES = ["forward", "backward", "update"] as const;
export type Phase = (typeof PHASES)[number];

export interface TrainingStep {
  isWhole: boolean;
  /** The graphs that have the step: one, or the forward and the backward. */
  graphs: Artifact[];
  /** The phase of each node of these graphs. */
  phases: Map<ItemId, Phase>;
  parameters: ParameterUse[];
}

/** A parameter, and the nodes that are its gradient and its new value. */
export interface ParameterUse {
  item: ItemId;
  name: string;
  node: Node;
  gradients: ItemId[];
  updates: ItemId[];
}

const GRADIENTS = "torch.autograd.grad";
const found = new WeakMap<Compile, TrainingStep | null>();

/** Returns the captured graph of a compile that has a whole step: it computes gradients itself. */
export function wholeStep(compile: Compile | null): Artifact | undefined {
  return compile?.artifacts.find(
    ({ pane, graph }) => pane === "captured" && graph?.nodes.some(({ target }) => target === GRADIENTS),
  );
}

/** Whether a compile has a backward, in whichever graph. */
export function hasBackward(compile: Compile | null): boolean {
  const isBackward = ({ pane, graph }: Artifact) => pane === "backward" && graph;
  return Boolean(compile?.artifacts.some(isBackward) || wholeStep(compile));
}

/** Returns the training step of a compile; null if it has no backward. */
export function trainingStep(compile: Compile, links: Links): TrainingStep | null {
  const known = found.get(compile);
  if (known !== undefined) return known;
  const whole = wholeStep(compile);
  const step = whole ? inOneGraph(compile, whole, links) : hasBackward(compile) ? inTwoGraphs(compile, links) : null;
  found.set(compile, step);
  return step;
}

/** Returns the phases of a kernel's nodes, in order; of a kernel without nodes, its graph's. */
export function kernelPhases({ kernel, nodes, compile }: KernelCost, links: Links): Phase[] {
  const own = new Set(nodes.map((node) => nodePhase(node, compile, links)));
  const known = PHASES.filter((phase) => own.has(phase));
  return known.length ? known : [kernel.graph];
}

/** Returns the phase of a node of a graph; null if its compile has no graph of a whole step. */
export function nodePhase(node: ItemId, compile: Compile, links: Links): Phase | null {
  return wholeStep(compile) ? (trainingStep(compile, links)?.phases.get(node) ?? null) : null;
}

/** The phases of a kernel as a text. */
export function phaseText(cost: KernelCost, links: Links): string {
  return kernelPhases(cost, links).join(", ");
}

// ---- one graph

function inOneGraph(compile: Compile, captured: Artifact, links: Links): TrainingStep {
  const phases = capturedPhases(captured);
  const traced = compile.artifacts.find(({ pane, graph }) => pane === "forward" && graph);
  if (traced) addTracedPhases(traced, phases, compile, links);
  const graph = traced ?? captured;
  const inGraph = (item: ItemId) =>
    traced ? links.derived(item).filter((i) => links.artifactOf(i) === traced) : [item];
  const nodes = captured.graph?.nodes ?? [];
  const written = writtenBy(captured.graph as Graph);
  const writes = new Map<string, ItemId[]>();
  for (const { key } of nodes) {
    const item = `${captured.id}#${key}`;
    const target = written.get(key);
    if (target !== undefined && phases.get(item) === "update") appendTo(writes, target, item);
  }
  const gradients = nodes.filter(({ op, role }) => op !== "placeholder" && role === "gradient");
  const parameters = parametersOf(captured).map((node): ParameterUse => {
    const own = gradients.filter(({ place }) => place === `${node.place}.grad`);
    const last = (writes.get(node.key) ?? []).slice(-1); // the new value is what the last one writes
    return {
      item: `${captured.id}#${node.key}`,
      name: node.place || node.key,
      node,
      gradients: own.flatMap(({ key }) => inGraph(`${captured.id}#${key}`)),
      updates: last.flatMap((item) => newValue(inGraph(item), links)),
    };
  });
  return { isWhole: true, graphs: [graph], phases, parameters };
}

/** Of the nodes that an operation in place became, the one that is the new value. */
function newValue(items: ItemId[], links: Links): ItemId[] {
  const written = items.filter((item) => links.node(item)?.role === "mutation");
  return written.length ? written : items.slice(-1);
}

/**
 * The phases of a captured graph. The forward is what a call for gradients depends on. Of what comes after the first
 * call, the update is what depends on gradients, what writes in place, and what these read.
 */
function capturedPhases({ id, graph }: Artifact): Map<ItemId, Phase> {
  const { nodes, edges } = graph as Graph;
  const inputs = new Map<string, string[]>();
  const users = new Map<string, string[]>();
  for (const [from, to] of edges) {
    appendTo(inputs, to, from);
    appendTo(users, from, to);
  }
  const calls = nodes.filter(({ target }) => target === GRADIENTS).map(({ key }) => key);
  const before = reachable(calls, inputs);
  const first = nodes.findIndex(({ key }) => key === calls[0]);
  const late = nodes.slice(first + 1).filter(({ key, op }) => op !== "output" && !before.has(key));
  const isLate = new Set(late.map(({ key }) => key));
  const afterGradients = reachable(calls, users);
  const written = writtenBy(graph as Graph);
  const changing = late.filter(({ key }) => afterGradients.has(key) || written.has(key)).map(({ key }) => key);
  const updating = reachable(changing, inputs);
  const isBackward = ({ key, role, target }: Node) => target === GRADIENTS || (role === "gradient" && !before.has(key));
  return new Map(
    nodes
      .filter(({ op }) => op.startsWith("call_"))
      .map((node) => {
        const isUpdate = isLate.has(node.key) && updating.has(node.key);
        return [`${id}#${node.key}`, isBackward(node) ? "backward" : isUpdate ? "update" : "forward"];
      }),
  );
}

/** Returns, for each operation in place, the value that it writes to: its first argument. */
function writtenBy({ nodes, edges }: Graph): Map<string, string> {
  const firsts = new Map<string, string>();
  for (const [from, to] of edges) if (!firsts.has(to)) firsts.set(to, from);
  const inPlace = nodes.filter(({ op, target }) => op.startsWith("call_") && IN_PLACE.test(target));
  return new Map(inPlace.flatMap(({ key }) => (firsts.has(key) ? [[key, firsts.get(key) as string]] : [])));
}

/** `add_`, `torch._foreach_add_`, and the operators of `+=` and its like; not `__and__`. */
const IN_PLACE = /[a-z\d]_$|^operator\.i(add|sub|mul|truediv|floordiv|mod|pow|and|or|xor|lshift|rshift)$/;

/**
 * Adds the phases of the graph of operators that the captured graph became. Nodes of the backward are made by functions
 * of autograd; nodes that a pass made, such as changes of layout, belong to the latest phase that they read.
 */
function addTracedPhases({ id, graph }: Artifact, phases: Map<ItemId, Phase>, compile: Compile, links: Links): void {
  const { nodes, edges } = graph as Graph;
  const rules = new Map(compile.edges.map(({ made, rule }) => [made, rule]));
  const inputs = new Map<string, string[]>();
  for (const [from, to] of edges) appendTo(inputs, to, from);
  for (const { key, op } of nodes) {
    if (!op.startsWith("call_")) continue;
    const item = `${id}#${key}`;
    const rule = rules.get(item) ?? "";
    const origin = phases.get(links.captured(item) ?? "");
    if (rule.startsWith("autograd ")) phases.set(item, "backward");
    else if (origin && /^(trace|decompose)\b/.test(rule)) phases.set(item, origin);
    else {
      const read = (inputs.get(key) ?? []).map((input) => phases.get(`${id}#${input}`));
      phases.set(item, PHASES.findLast((phase) => phase === origin || read.includes(phase)) ?? "forward");
    }
  }
}

// ---- two graphs

function inTwoGraphs(compile: Compile, links: Links): TrainingStep {
  const phases = new Map<ItemId, Phase>();
  const graphs = (["forward", "backward"] as const).flatMap((pane) => {
    const artifact = compile.artifacts.find((each) => each.pane === pane && each.graph);
    for (const { key, op } of artifact?.graph?.nodes ?? []) {
      if (op.startsWith("call_")) phases.set(`${artifact?.id}#${key}`, pane);
    }
    return artifact ?? [];
  });
  const captured = compile.artifacts.find(({ pane, graph }) => pane === "captured" && graph);
  const parameters = (captured ? parametersOf(captured) : []).map((node): ParameterUse => {
    const item = `${captured?.id}#${node.key}`;
    const joint = links.derived(item).filter((each) => links.node(each)?.role === "gradient");
    const gradients = joint.flatMap((each) => links.derived(each)).filter((each) => phases.get(each) === "backward");
    return { item, name: node.place || node.key, node, gradients, updates: [] };
  });
  return { isWhole: false, graphs, phases, parameters };
}

function parametersOf({ graph }: Artifact): Node[] {
  return (graph?.nodes ?? []).filter(({ op, role }) => op === "placeholder" && role === "parameter");
}

function reachable(start: Iterable<string>, step: Map<string, string[]>): Set<string> {
  const seen = new Set(start);
  // iterating over a Set includes values that are added during the iteration
  for (const at of seen) for (const next of step.get(at) ?? []) seen.add(next);
  return seen;
}

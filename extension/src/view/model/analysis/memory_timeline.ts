/** The memory that the graphs of a compile allocate, step by step over forward and backward. */

import type { Artifact, Compile, ItemId, Kernel, Node, PlannedMemory } from "../record/record";
import type { Links } from "./links";

type Direction = "forward" | "backward";

/** A buffer, in use from step `first` to step `last`. */
export interface MemoryBuffer {
  name: string;
  bytes: number;
  first: number;
  last: number;
  kind: "result" | "saved" | "intermediate";
  node: ItemId | null;
  /** The buffer in whose memory it lies. */
  within: string | null;
  /** Whether others lie in it: it has no value itself. */
  holds: boolean;
}

export interface MemoryTimeline {
  /** The bytes in use at each step; forward first. */
  bytes: number[];
  /** How many of the steps are the forward's. */
  forwardSteps: number;
  buffers: MemoryBuffer[];
  /** The step with the most bytes. */
  peak: number;
  /** The kernel of each step; empty if the graphs have no plan. */
  launches: Kernel[];
}

/** Backends that run the operations of the graphs one by one, with no plan. */
const ONE_BY_ONE = ["aot_eager", "aot_eager_decomp_partition"];

/** Returns the timeline of a compile; null if the record does not have what the compiled code allocates. */
export function memoryTimeline(compile: Compile, links: Links): MemoryTimeline | null {
  const isPlan = compile.memory.length > 0;
  if (!isPlan && !ONE_BY_ONE.includes(compile.backend)) return null;
  const found = isPlan ? fromPlans(compile) : fromGraphs(compile, links);
  if (!found.buffers.length) return null;
  const steps = found.forwardSteps + found.backwardSteps;
  const bytes = usedBytes(found.buffers, steps);
  const launches = isPlan ? ["forward", "backward"].flatMap((graph) => kernelsOf(compile, graph)) : [];
  const { forwardSteps, buffers } = found;
  return {
    bytes,
    forwardSteps,
    buffers,
    peak: indexOfMost(bytes),
    launches: launches.length === steps ? launches : [],
  };
}

/** The kernels of a graph, in the order of their launches: one for each step of its plan. */
function kernelsOf({ kernels }: Compile, graph: string): Kernel[] {
  return kernels.filter((kernel) => kernel.graph === graph);
}

interface Found {
  buffers: MemoryBuffer[];
  forwardSteps: number;
  backwardSteps: number;
}

/** Returns the buffers in use at a step, the largest first; one in which others lie has the bytes that these leave. */
export function buffersAt(timeline: MemoryTimeline, step: number): MemoryBuffer[] {
  const there = timeline.buffers.filter((b) => b.first <= step && step <= b.last);
  const taken = new Map<string, number>();
  for (const { within, bytes } of there) {
    if (within !== null) taken.set(within, (taken.get(within) ?? 0) + bytes);
  }
  return there
    .map((buffer) => ({ ...buffer, bytes: buffer.bytes - (taken.get(buffer.name) ?? 0) }))
    .filter(({ bytes }) => bytes > 0)
    .sort((a, b) => b.bytes - a.bytes);
}

function usedBytes(buffers: MemoryBuffer[], steps: number): number[] {
  const changes = new Array<number>(steps + 1).fill(0);
  for (const { bytes, first, last, within } of buffers) {
    if (within !== null) continue;
    changes[first] += bytes;
    changes[Math.min(last, steps - 1) + 1] -= bytes;
  }
  let now = 0;
  return changes.slice(0, steps).map((change) => {
    now += change;
    return now;
  });
}

function indexOfMost(values: number[]): number {
  return values.reduce((best, value, i) => (value > values[best] ? i : best), 0);
}

/** The artifact with the graph of a direction: ours, or the last one of stock. */
function graphOf(compile: Compile, direction: Direction): Artifact | undefined {
  const names = [`${direction}.post_grad`, direction];
  return names.map((name) => compile.artifacts.find((a) => a.name === name && a.graph)).find(Boolean);
}

// ---- the plans of compiled programs

function fromPlans(compile: Compile): Found {
  const [forward, backward] = (["forward", "backward"] as const).map((graph) =>
    compile.memory.find((plan) => plan.graph === graph),
  );
  const forwardSteps = Math.max(stepCount(forward), kernelsOf(compile, "forward").length);
  const backwardSteps = Math.max(stepCount(backward), kernelsOf(compile, "backward").length);
  const end = forwardSteps + backwardSteps - 1;
  const buffers = forward ? planned(forward, compile, 0, end) : [];
  for (const buffer of buffers) {
    if (buffer.kind !== "result") continue;
    const released = backward?.released[buffer.name];
    if (released === undefined) continue;
    buffer.kind = "saved";
    buffer.last = forwardSteps + released;
  }
  if (backward) buffers.push(...planned(backward, compile, forwardSteps, end));
  return { buffers, forwardSteps, backwardSteps };
}

function stepCount(plan: PlannedMemory | undefined): number {
  if (!plan) return 0;
  const steps = plan.buffers.flatMap(({ first, last }) => [first, last ?? first]);
  return 1 + Math.max(-1, ...steps, ...Object.values(plan.released));
}

/** Returns the buffers of a plan; `offset` is the number of its first step. */
function planned(plan: PlannedMemory, compile: Compile, offset: number, end: number): MemoryBuffer[] {
  const takenAt = new Map(plan.buffers.map((buffer) => [buffer.takes, buffer.first]));
  const graph = graphOf(compile, plan.graph);
  const keys = new Set(graph?.graph?.nodes.map((node) => node.key));
  const holding = new Set(plan.buffers.map(({ within }) => within));
  return plan.buffers
    .filter(({ bytes }) => bytes > 0)
    .map(({ name, bytes, first, last, within }) => {
      const taken = takenAt.get(name);
      const until = taken === undefined ? last : taken - 1; // its memory waits for the buffer that takes it
      return {
        name,
        bytes,
        first: offset + first,
        last: until === null ? end : offset + until,
        kind: last === null ? "result" : "intermediate",
        node: graph && keys.has(name) ? `${graph.id}#${name}` : null,
        within,
        holds: holding.has(name),
      };
    });
}

// ---- graphs without a plan

const VIEWS =
  /\b(view|_unsafe_view|reshape|permute|transpose|t|expand|squeeze|unsqueeze|slice|select|split|split_with_sizes|unbind|detach|alias|as_strided|diagonal|getitem|_reshape_alias|numel|size)(\.|$)/;

function fromGraphs(compile: Compile, links: Links): Found {
  const forward = graphOf(compile, "forward") ?? compile.artifacts.find((a) => a.pane === "captured" && a.graph);
  const backward = graphOf(compile, "backward");
  const forwardSteps = operations(forward).length;
  const backwardSteps = operations(backward).length;
  const end = forwardSteps + backwardSteps - 1;
  const buffers = forward ? ofGraph(forward, 0, end) : [];
  if (backward) {
    const uses = lastUses(backward);
    const inputs = new Set(backward.graph?.nodes.filter((node) => node.op === "placeholder").map((node) => node.key));
    for (const buffer of buffers) {
      if (buffer.kind !== "result" || !inputs.has(buffer.name)) continue;
      buffer.kind = "saved";
      buffer.last = forwardSteps + (uses.get(buffer.name) ?? 0);
    }
    buffers.push(...ofGraph(backward, forwardSteps, end));
  }
  return { buffers: buffers.filter(({ node }) => node === null || links.has(node)), forwardSteps, backwardSteps };
}

function operations(artifact: Artifact | undefined): Node[] {
  return (artifact?.graph?.nodes ?? []).filter((node) => node.op.startsWith("call_"));
}

/** Returns the last step that uses each value, also through views of it; results are used to the end. */
function lastUses(artifact: Artifact): Map<string, number> {
  const nodes = artifact.graph?.nodes ?? [];
  const at = new Map(operations(artifact).map((node, i) => [node.key, i]));
  const ops = new Map(nodes.map((node) => [node.key, node]));
  const uses = new Map<string, number>();
  // from the last reader to the first: a view passes its own last use on
  const edges = [...(artifact.graph?.edges ?? [])].sort((a, b) => (at.get(b[1]) ?? 1e9) - (at.get(a[1]) ?? 1e9));
  for (const [from, to] of edges) {
    const isOutput = ops.get(to)?.op === "output";
    const isView = VIEWS.test(ops.get(to)?.target ?? "");
    const use = isOutput ? Number.POSITIVE_INFINITY : Math.max(at.get(to) ?? 0, isView ? (uses.get(to) ?? 0) : 0);
    uses.set(from, Math.max(uses.get(from) ?? 0, use));
  }
  return uses;
}

function ofGraph(artifact: Artifact, offset: number, end: number): MemoryBuffer[] {
  const uses = lastUses(artifact);
  return operations(artifact).flatMap((node, i) => {
    if (!node.bytes || VIEWS.test(node.target)) return [];
    const last = uses.get(node.key) ?? i;
    const isResult = last === Number.POSITIVE_INFINITY;
    return [
      {
        name: node.key,
        bytes: node.bytes,
        first: offset + i,
        last: isResult ? end : offset + last,
        kind: isResult ? ("result" as const) : ("intermediate" as const),
        node: `${artifact.id}#${node.key}`,
        within: null,
        holds: false,
      },
    ];
  });
}

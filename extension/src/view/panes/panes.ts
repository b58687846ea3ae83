/** The panes that there are: titles, what each can show, and what it says when it is empty. */

import { facingPages, oneGraph, pagesOf } from "../graph/scene/subject";
import { GraphView } from "../graph/view";
import type { Content } from "../model/content";
import type { Artifact, Comparison, Compile, Graph, Partition } from "../model/record";
import type { PaneName, State } from "../model/state";
import { AccuracyTable } from "./accuracy";
import { ComparePane, others, type Way } from "./compare_pane";
import { CostsTable } from "./costs_table";
import { RunsTable } from "./engines";
import { FusionTable } from "./fusion";
import { Overview } from "./overview";
import { TextPair } from "./pair";
import { PartitionTable } from "./partition";
import { RooflineTable } from "./roofline";
import { SizesTable } from "./sizes_table";
import { StepsView } from "./steps";
import { ExpansionTable, GuardTable, TimingsTable } from "./tables";
import { TextView } from "./text";
import { TuningTable } from "./tuning";

/** One way to show a pane, where there is something to show that way. */
export interface Mode {
  name: string;
  /** Whether it shows one artifact, of which a pane may have several. */
  ofArtifact: boolean;
  can(state: State, artifact: Artifact | undefined): boolean;
  make(state: State, artifact: Artifact | undefined, label: string): Content;
}

export interface PaneKind {
  name: PaneName;
  title: string;
  /** The title where there is little room; the title itself where there is none. */
  short?: string;
  modes: Mode[];
  /** Why there is nothing, for this compile. */
  empty(compile: Compile): string;
}

function text(name = "Text"): Mode {
  return {
    name,
    ofArtifact: true,
    can: (_, artifact) => artifact !== undefined,
    make: (state, artifact, label) => new TextView(artifact as Artifact, state, label),
  };
}

function table(can: (compile: Compile) => unknown, make: (state: State, compile: Compile) => Content): Mode {
  return {
    name: "Table",
    ofArtifact: false,
    can: (state) => Boolean(state.compile && can(state.compile)),
    make: (state) => make(state, state.compile as Compile),
  };
}

const drawing: Mode = {
  name: "Drawing",
  ofArtifact: true,
  can: (_, artifact) => Boolean(artifact?.graph),
  make: (state, artifact) =>
    new GraphView(oneGraph(artifact as Artifact, artifact?.graph as Graph, state.compile, state), state),
};
const facing: Mode = {
  name: "Facing",
  ofArtifact: false,
  can: (state) => pagesOf(state.compile) !== null,
  make: (state) => new GraphView(facingPages(state), state),
};
const overview: Mode = { name: "Text", ofArtifact: false, can: () => true, make: (state) => new Overview(state) };
const guards = table(
  (c) => c.guards.length,
  (state, c) => new GuardTable(state, c),
);
const partition = table(
  (c) => c.partition,
  (state, c) => new PartitionTable(state, c.partition as Partition),
);
const fusion = table(
  (c) => c.fusions.length || c.refusals.length,
  (state, c) => new FusionTable(state, c),
);
const steps = table(
  (c) => c.steps.length,
  (state, c) => new StepsView(state, c),
);
const sizes = table(
  (c) => c.symbols.length || c.guards.some((guard) => guard.sizes),
  (state, c) => new SizesTable(state, c),
);
const costs = table(
  (c) => c.kernels.length,
  (state, c) => new CostsTable(state, c),
);
const roofline = table(
  (c) => c.kernels.some((kernel) => kernel.bytes_read !== null),
  (state, c) => new RooflineTable(state, c),
);
const accuracy = table(
  (c) => c.accuracy.length,
  (state, c) => new AccuracyTable(state, c),
);
const tuning = table(
  (c) => c.tunings.length,
  (state, c) => new TuningTable(state, c),
);
const timings = table(
  (c) => c.events.length,
  (state, c) => new TimingsTable(state, c),
);
function compare(name: string, way: Way): Mode {
  return {
    name,
    ofArtifact: false,
    can: (state) => state.compile !== null && others(state, state.compile).length > 0,
    make: (state) => new ComparePane(state, state.compile as Compile, way),
  };
}
const runs: Mode = {
  name: "Table",
  ofArtifact: false,
  can: (state) => state.record.comparison !== null,
  make: (state) => new RunsTable(state, state.record.comparison as Comparison),
};
const expansions = table(
  (c) => c.expansions.length,
  (state, c) => new ExpansionTable(state, c),
);
const graph = [drawing, text("Python")];
/** A graph after a pass beside the graph that the pass was given. */
const change: Mode = {
  name: "Change",
  ofArtifact: true,
  can: (state, artifact) => Boolean(artifact?.graph && state.links.graphBefore(artifact)),
  make: (state, artifact) => {
    const after = artifact as Artifact;
    const before = state.links.graphBefore(after) as Artifact;
    return new TextPair(state, [before, after], [before.name, after.name]);
  },
};

function noGraph(compile: Compile): string {
  return compile.outcome === "compiled"
    ? "No tensor operation was captured in this compile, so there is no graph."
    : "This compile did not get as far as a graph.";
}

/** Only stock torch.compile has these. */
function stockOnly(compile: Compile): string {
  return compile.artifacts.length ? "This compile has none: they are stock torch.compile's, through Inductor." : "";
}

function noKernel(compile: Compile): string {
  return ["", "cpp", "triton", "cpp + triton", "inductor"].includes(compile.backend)
    ? "No kernel was made in this compile."
    : `The backend “${compile.backend}” makes no kernels of its own.`;
}

function noKernelOr(compile: Compile, reason: string): string {
  return compile.kernels.length ? reason : noKernel(compile);
}

function noTraffic(compile: Compile): string {
  return noKernelOr(compile, "The record does not say what these kernels read and write: they are not ours.");
}

const notInstalled = () => "No bytecode was installed: the frame runs as plain Python.";

/** In the order in which a compile visits them. */
export const PANES: PaneKind[] = [
  { name: "overview", title: "Overview", modes: [overview], empty: () => "" },
  { name: "source", title: "Source", modes: [text()], empty: () => "The source of this frame is not known." },
  { name: "bytecode", title: "Bytecode", modes: [text()], empty: () => "The bytecode of this frame was not recorded." },
  {
    name: "steps",
    title: "Symbolic steps",
    short: "Steps",
    modes: [steps],
    empty: () => "The steps of the symbolic interpreter are recorded on demand: %%compile --steps.",
  },
  { name: "guards", title: "Guards", modes: [guards, text("Python")], empty: () => "This compile has no guards." },
  {
    name: "sizes",
    title: "Sizes",
    modes: [sizes],
    empty: () => "No size or number was looked at in this compile.",
  },
  { name: "captured", title: "Captured graph", short: "Captured", modes: [...graph, expansions], empty: noGraph },
  { name: "pregrad", title: "Graph before autograd", short: "Pre-grad", modes: [...graph, change], empty: stockOnly },
  {
    name: "joint",
    title: "Joint graph",
    short: "Joint",
    modes: graph,
    empty: () => "This compile has no joint graph: no input needs a gradient, or its backend makes none.",
  },
  {
    name: "partition",
    title: "Partition",
    modes: [partition],
    empty: () => "Nothing was partitioned: without a backward there is nothing to save for it.",
  },
  { name: "forward", title: "Forward graph", short: "Forward", modes: [...graph, facing], empty: noGraph },
  {
    name: "backward",
    title: "Backward graph",
    short: "Backward",
    modes: [...graph, facing],
    empty: () => "This compile has no backward: no input needs a gradient.",
  },
  { name: "postgrad", title: "Graph after autograd", short: "Post-grad", modes: [...graph, change], empty: stockOnly },
  { name: "passes", title: "Graph after each pass", short: "Passes", modes: [...graph, change], empty: stockOnly },
  { name: "fusion", title: "Fusion", modes: [fusion, text("Loops")], empty: noKernel },
  { name: "kernel", title: "Kernels", modes: [text()], empty: noKernel },
  { name: "costs", title: "Costs", modes: [costs], empty: noKernel },
  { name: "roofline", title: "Roofline", modes: [roofline], empty: noTraffic },
  {
    name: "accuracy",
    title: "Accuracy",
    modes: [accuracy],
    empty: (c) => noKernelOr(c, "Values are compared with eager PyTorch in float64 on demand: %%compile --check."),
  },
  {
    name: "tuning",
    title: "Autotuning",
    short: "Tuning",
    modes: [tuning],
    empty: (c) => noKernelOr(c, "Block sizes of Triton kernels are tried on demand, on a GPU: %%compile --tune."),
  },
  { name: "wrapper", title: "Wrapper", modes: [text()], empty: noKernel },
  {
    name: "machine",
    title: "Machine code",
    short: "Machine",
    modes: [text()],
    empty: () =>
      "No machine code was kept for this compile. Ask for it with a target, for example %%compile --target sm_90.",
  },
  { name: "generated", title: "Generated bytecode", short: "Generated", modes: [text()], empty: notInstalled },
  { name: "decompiled", title: "Generated, as Python", short: "As Python", modes: [text()], empty: notInstalled },
  { name: "timings", title: "Timings", modes: [timings], empty: () => "No step was timed in this compile." },
  { name: "other", title: "What else PyTorch wrote", short: "Other", modes: [text()], empty: stockOnly },
  {
    name: "compare",
    title: "Beside another compile",
    short: "Two compiles",
    modes: [compare("Table", "table"), compare("Text", "text"), compare("Drawing", "drawing")],
    empty: () => "There is no other compile in this record to set it against.",
  },
  {
    name: "engines",
    title: "Beside another run",
    short: "Two runs",
    modes: [runs],
    empty: () => "This run is compared with no other: %%compile --engine core,torch does that.",
  },
];

/** Whether there is anything to show in a pane. */
export function hasContent(kind: PaneKind, state: State): boolean {
  return kind.modes.some((mode) => mode.can(state, state.artifacts(kind.name)[0]));
}

/** The kind that a `shown` entry ("kernel" or "kernel:backward.cpp") names, and its artifact's name. */
export function parsePane(shown: string): { kind: PaneKind; artifact: string | null } {
  const at = shown.indexOf(":");
  const name = at < 0 ? shown : shown.slice(0, at);
  const kind = PANES.find((p) => p.name === name) ?? PANES[0];
  return { kind, artifact: at < 0 ? null : shown.slice(at + 1) };
}

export function shortTitle(pane: string): string {
  const kind = PANES.find((p) => p.name === pane);
  return kind?.short ?? kind?.title ?? pane;
}

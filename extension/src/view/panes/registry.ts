/** The list of panes: their titles, their modes, and the text of an empty pane. */

import { wholeStep } from "../model/analysis/training_step";
import type { PaneName } from "../model/content";
import type { Compile } from "../model/record/record";
import type { State } from "../model/state";
import type { Mode } from "./modes";
import * as modes from "./modes";

export interface PaneKind {
  name: PaneName;
  title: string;
  /** The title in the stage bar, if it is another one. */
  short?: string;
  group: PaneGroup;
  /** The first mode that is available is the default. */
  modes: Mode[];
  /** Why the pane is empty for this compile. */
  empty(compile: Compile): string;
  /** The experiment that fills it, and what its button says. */
  fill?: [experiment: string, text: string];
  /** Whether its first rows are the answer, also while something is pinned. */
  isRanked?: boolean;
  /** How many characters wide it should be, if more than is usual. */
  width?: number;
}

/** The groups of panes in menus. */
export const GROUPS = ["Stages", "Answers", "Capture", "More graphs", "More code", "Comparisons"] as const;
export type PaneGroup = (typeof GROUPS)[number];

const graph = [modes.drawing, modes.textMode("Python")];

/** In the order of the stages of a compile. */
export const PANES: PaneKind[] = [
  { name: "overview", title: "Overview", group: "Answers", modes: [modes.overview], empty: () => "" },
  {
    name: "source",
    title: "Source",
    short: "Python",
    group: "Stages",
    modes: [modes.textMode()],
    empty: () => "The source of this frame is not known.",
  },
  {
    name: "bytecode",
    title: "Bytecode",
    group: "Stages",
    modes: [modes.textMode()],
    empty: () => "The bytecode of this frame was not recorded.",
  },
  {
    name: "steps",
    title: "Symbolic steps",
    group: "Capture",
    short: "Steps",
    modes: [modes.steps],
    empty: () => "The steps of the symbolic interpreter are recorded on demand: %%compile --steps.",
    fill: ["steps", "Record them"],
  },
  {
    name: "guards",
    title: "Guards",
    group: "Capture",
    modes: [modes.guards, modes.textMode("Python")],
    empty: () => "This compile has no guards.",
  },
  {
    name: "frames",
    title: "Python frames",
    group: "Capture",
    modes: [modes.frames],
    empty: () => "The frames of a call are recorded on demand: %%compile --frames, %frames f(x), or Try… above.",
  },
  {
    name: "sizes",
    title: "Sizes",
    group: "Capture",
    modes: [modes.sizes],
    empty: () => "No size or number was used in this compile.",
  },
  {
    name: "captured",
    title: "Captured graph",
    group: "Stages",
    short: "Graph",
    modes: [...graph, modes.expansions],
    empty: noGraph,
  },
  {
    name: "subgraphs",
    title: "Subgraphs",
    group: "More graphs",
    modes: graph,
    empty: () => "No operator of this compile calls functions, as torch.cond, while_loop, map and scan do.",
  },
  {
    name: "pregrad",
    title: "Pre-grad graph",
    group: "More graphs",
    short: "Pre-grad",
    modes: [...graph, modes.change],
    empty: stockOnly,
  },
  {
    name: "joint",
    title: "Joint graph",
    group: "More graphs",
    short: "Joint",
    modes: graph,
    empty: (c) =>
      wholeStep(c) ? IN_STEP : "This compile has no joint graph: no input needs a gradient, or its backend makes none.",
  },
  {
    name: "partition",
    title: "Partition",
    group: "More graphs",
    modes: [modes.partition, modes.plans],
    empty: (c) =>
      wholeStep(c) ? IN_STEP : "Nothing was partitioned: without a backward there is nothing to save for it.",
  },
  {
    name: "forward",
    title: "Forward graph",
    group: "Stages",
    short: "Forward",
    modes: [...graph, modes.sideBySide],
    empty: noGraph,
  },
  {
    name: "backward",
    title: "Backward graph",
    group: "Stages",
    short: "Backward",
    modes: [...graph, modes.sideBySide],
    empty: (c) => (wholeStep(c) ? IN_STEP : "This compile has no backward: no input needs a gradient."),
  },
  {
    name: "postgrad",
    title: "Post-grad graph",
    group: "More graphs",
    short: "Post-grad",
    modes: [...graph, modes.change],
    empty: stockOnly,
  },
  { name: "passes", title: "Passes", group: "More graphs", modes: [...graph, modes.change], empty: noPass },
  { name: "fusion", title: "Fusion", group: "Stages", modes: [modes.fusion, modes.textMode("Loops")], empty: noKernel },
  {
    name: "schedule",
    title: "Schedule",
    group: "Stages",
    modes: [modes.schedule, modes.textMode()],
    empty: noSchedule,
  },
  { name: "kernel", title: "Kernels", short: "Kernel", group: "Stages", modes: [modes.textMode()], empty: noKernel },
  {
    name: "costs",
    title: "Costs",
    group: "Answers",
    modes: [modes.costs, modes.runFlames],
    empty: noKernel,
    isRanked: true,
  },
  {
    name: "training",
    title: "Training step",
    group: "Answers",
    modes: [modes.training],
    width: 90,
    empty: () => "This compile has no backward: no input needs a gradient.",
  },
  {
    name: "memory",
    title: "Memory",
    group: "Answers",
    modes: [modes.memory],
    empty: (c) => (c.artifacts.length ? "The graphs of this compile allocate no memory." : noGraph(c)),
  },
  { name: "roofline", title: "Roofline", group: "Answers", modes: [modes.roofline], empty: noTraffic },
  {
    name: "accuracy",
    title: "Accuracy",
    group: "Answers",
    modes: [modes.accuracy],
    empty: (c) => noKernelOr(c, "Values are compared with eager PyTorch in float64 on demand: %%compile --check."),
    fill: ["check", "Compare them"],
  },
  {
    name: "tuning",
    title: "Autotuning",
    group: "Answers",
    modes: [modes.autotuning],
    empty: (c) => noKernelOr(c, "Block sizes of Triton kernels are tried on demand, on a GPU: %%compile --tune."),
  },
  { name: "wrapper", title: "Wrapper", group: "More code", modes: [modes.textMode()], empty: noKernel },
  {
    name: "machine",
    title: "Machine code",
    short: "Machine",
    group: "Stages",
    modes: [modes.textMode()],
    empty: () =>
      "Machine code is recorded on demand, also for devices that are not present: %%compile --target cpu, sm_90, gfx942 …",
    fill: ["machine", "Record it"],
  },
  {
    name: "generated",
    title: "Generated bytecode",
    group: "More code",
    short: "Generated",
    modes: [modes.textMode()],
    empty: notInstalled,
  },
  { name: "decompiled", title: "Decompiled", group: "More code", modes: [modes.textMode()], empty: notInstalled },
  {
    name: "speed",
    title: "Speed",
    group: "Answers",
    modes: [modes.speed],
    empty: () => "The cell was not timed: press “Time it” above, or run it with %%compile --time.",
  },
  {
    name: "timings",
    title: "Timings",
    group: "Answers",
    modes: [modes.timings, modes.flames, modes.compileLines],
    empty: () => "No step was timed in this compile.",
  },
  { name: "other", title: "Other", group: "More code", modes: [modes.textMode()], empty: stockOnly },
  {
    name: "compare",
    title: "Two compiles",
    group: "Comparisons",
    modes: [
      modes.compilesMode("Table", "table"),
      modes.compilesMode("Text", "text"),
      modes.compilesMode("Drawing", "drawing"),
    ],
    empty: () => "This record has no other compile to compare with.",
  },
  {
    name: "engines",
    title: "Two runs",
    group: "Comparisons",
    modes: [modes.runs],
    empty: () => "This run was not compared with another one: %%compile --engine core,torch does that.",
    fill: ["stock", "Run it with stock torch.compile"],
  },
];

const IN_STEP = "The backward is in one graph with the forward: the pane Training step has it.";

function noGraph(compile: Compile): string {
  return compile.outcome === "compiled"
    ? "No tensor operation was captured in this compile, so there is no graph."
    : "This compile ended before there was a graph.";
}

/** For artifacts that only stock torch.compile has. */
function stockOnly(compile: Compile): string {
  if (!compile.artifacts.length) return "";
  const hasRun = !compile.cache_lookups.some((each) => each.cache === "AOTAutograd cache" && each.outcome === "hit");
  return hasRun
    ? "This compile has none: only stock torch.compile with Inductor writes them."
    : "This compile has none: PyTorch found it in its AOTAutograd cache, so that this stage did not run.";
}

function noPass(compile: Compile): string {
  return compile.artifacts.length
    ? "No pass of yours changed a graph of this compile. %%graph_pass NAME makes the function of a cell a pass."
    : "";
}

function noKernel(compile: Compile): string {
  return ["", "cpp", "triton", "cpp + triton", "inductor"].includes(compile.backend)
    ? "No kernel was generated in this compile."
    : `The backend “${compile.backend}” generates no kernels.`;
}

function noSchedule(compile: Compile): string {
  const reason = "The schedules of these kernels are not recorded: only those of our own kernels are.";
  return compile.kernels.some(({ language }) => language !== "extern") ? reason : noKernel(compile);
}

function noKernelOr(compile: Compile, reason: string): string {
  return compile.kernels.length ? reason : noKernel(compile);
}

function noTraffic(compile: Compile): string {
  return noKernelOr(
    compile,
    "What these kernels read and write is not recorded: it is known for our own kernels only.",
  );
}

function notInstalled(): string {
  return "No bytecode was installed: the frame runs as plain Python.";
}

/** Whether there is anything to show in a pane. */
export function hasContent(kind: PaneKind, state: State): boolean {
  return kind.modes.some((mode) => mode.isAvailable(state, state.artifacts(kind.name)[0]));
}

/** Parses an entry of `shown` ("kernel" or "kernel:backward.cpp") into a kind of pane and an artifact's name. */
export function parsePane(shown: string): { kind: PaneKind; artifact: string | null } {
  const at = shown.indexOf(":");
  const name = at < 0 ? shown : shown.slice(0, at);
  const kind = PANES.find((p) => p.name === name) ?? PANES[0];
  return { kind, artifact: at < 0 ? null : shown.slice(at + 1) };
}

/** Returns the title of a pane: a whole training step is one graph, which the record has in place of the forward. */
export function paneTitle({ name, title }: PaneKind, compile: Compile | null): string {
  return name === "forward" && wholeStep(compile) ? "Graph of the step" : title;
}

/** Returns the title of a pane for places with little room. */
export function shortTitle(pane: string, compile: Compile | null): string {
  if (pane === "forward" && wholeStep(compile)) return "Step";
  const kind = PANES.find((p) => p.name === pane);
  return kind?.short ?? kind?.title ?? pane;
}

/** The modes in which panes are shown: text, table, drawing, comparison. */

import { GraphView } from "../graph/graph_view";
import { drawableGraph, forwardAndBackward, forwardBackwardOf } from "../graph/scene/drawable_graph";
import { type MemoryTimeline, memoryTimeline } from "../model/analysis/memory_timeline";
import { hasBackward, type TrainingStep, trainingStep } from "../model/analysis/training_step";
import type { Content } from "../model/content";
import type { Artifact, Comparison, Compile, Graph, Partition, Timings } from "../model/record/record";
import type { State } from "../model/state";
import { ExpansionsTable } from "./autograd/expansions_table";
import { PartitionPlans } from "./autograd/partition_plans";
import { PartitionTable } from "./autograd/partition_table";
import { FramesTable } from "./capture/frames_table";
import { GuardsTable } from "./capture/guards_table";
import { Overview } from "./capture/overview";
import { SizesTable } from "./capture/sizes_table";
import { StepsView } from "./capture/steps_view";
import { type ComparisonKind, CompilesPane, comparableCompiles } from "./comparison/compiles_pane";
import { PairedTexts } from "./comparison/paired_views";
import { RunsTable } from "./comparison/runs_table";
import { lineChart, phaseChart, runChart } from "./flame_chart";
import { AccuracyTable } from "./kernels/accuracy_table";
import { AutotuningTable } from "./kernels/autotuning_table";
import { CostsTable } from "./kernels/costs_table";
import { FusionTable } from "./kernels/fusion_table";
import { MemoryView } from "./kernels/memory_view";
import { RooflineTable } from "./kernels/roofline_table";
import { ScheduleView } from "./kernels/schedule_view";
import { SpeedTable } from "./speed_table";
import { TextView } from "./text/text_view";
import { TimingsTable } from "./timings_table";
import { TrainingStepView } from "./training_step_view";

/** One way to show a pane. */
export interface Mode {
  name: string;
  /** Whether it shows one artifact, of which the pane may have several. */
  showsArtifact: boolean;
  /** Whether it shows the artifact's text. */
  showsText?: boolean;
  /** Whether there is anything to show in this mode. */
  isAvailable(state: State, artifact: Artifact | undefined): boolean;
  create(state: State, artifact: Artifact | undefined, label: string): Content;
}

export function textMode(name = "Text"): Mode {
  return {
    name,
    showsArtifact: true,
    showsText: true,
    isAvailable: (_, artifact) => artifact !== undefined,
    create: (state, artifact, label) => new TextView(artifact as Artifact, state, label),
  };
}

function tableMode(
  isAvailable: (compile: Compile) => unknown,
  create: (state: State, compile: Compile) => Content,
): Mode {
  return {
    name: "Table",
    showsArtifact: false,
    isAvailable: (state) => Boolean(state.compile && isAvailable(state.compile)),
    create: (state) => create(state, state.compile as Compile),
  };
}

/** A graph as a drawing. */
export const drawing: Mode = {
  name: "Drawing",
  showsArtifact: true,
  isAvailable: (_, artifact) => Boolean(artifact?.graph),
  create: (state, artifact) =>
    new GraphView(drawableGraph(artifact as Artifact, artifact?.graph as Graph, state.compile, state), state),
};

/** The forward and the backward graph side by side in one drawing. */
export const sideBySide: Mode = {
  name: "Side by side",
  showsArtifact: false,
  isAvailable: (state) => forwardBackwardOf(state.compile) !== null,
  create: (state) => new GraphView(forwardAndBackward(state), state),
};

/** A graph after a pass, compared with the graph before it. */
export const change: Mode = {
  name: "Change",
  showsArtifact: true,
  isAvailable: (state, artifact) => Boolean(artifact?.graph && state.links.inputGraph(artifact)),
  create: (state, artifact) => {
    const after = artifact as Artifact;
    const before = state.links.inputGraph(after) as Artifact;
    return new PairedTexts(state, [before, after], [before.name, after.name]);
  },
};

export const overview: Mode = {
  name: "Text",
  showsArtifact: false,
  isAvailable: () => true,
  create: (state) => new Overview(state),
};

export const guards = tableMode(
  (compile) => compile.guards.length,
  (state, compile) => new GuardsTable(state, compile),
);

export const partition = tableMode(
  (compile) => compile.partition,
  (state, compile) => new PartitionTable(state, compile.partition as Partition),
);

/** Ways to divide the joint graph, drawn beside one another. */
export const plans: Mode = {
  name: "Plans",
  showsArtifact: false,
  isAvailable: ({ compile }) => Boolean(compile?.partition && jointOf(compile)),
  create: (state) => new PartitionPlans(state, state.compile as Compile, jointOf(state.compile as Compile) as Artifact),
};

function jointOf({ artifacts }: Compile): Artifact | undefined {
  return artifacts.find(({ name, graph }) => name === "joint" && graph);
}

export const fusion = tableMode(
  (compile) => compile.fusions.length || compile.refusals.length,
  (state, compile) => new FusionTable(state, compile),
);

/** The rewrites of a kernel's loop nest, one at a time. */
export const schedule: Mode = {
  name: "Steps",
  showsArtifact: false,
  isAvailable: ({ compile }) => Boolean(compile?.schedules.length),
  create: (state) => new ScheduleView(state, state.compile as Compile),
};

export const steps = tableMode(
  (compile) => compile.steps.length,
  (state, compile) => new StepsView(state, compile),
);

export const sizes = tableMode(
  (compile) => compile.symbols.length || compile.guards.some((guard) => guard.sizes),
  (state, compile) => new SizesTable(state, compile),
);

export const costs = tableMode(
  (compile) => compile.kernels.length,
  (state, compile) => new CostsTable(state, compile),
);

export const roofline = tableMode(
  (compile) => compile.kernels.some((kernel) => kernel.bytes_read !== null),
  (state, compile) => new RooflineTable(state, compile),
);

export const accuracy = tableMode(
  (compile) => compile.accuracy.length,
  (state, compile) => new AccuracyTable(state, compile),
);

export const autotuning = tableMode(
  (compile) => compile.tunings.length,
  (state, compile) => new AutotuningTable(state, compile),
);

export const timings = tableMode(
  (compile) => compile.events.length,
  (state, compile) => new TimingsTable(state, compile),
);

/** The time of all compiles, by phase and pass. */
export const flames: Mode = {
  name: "Flames",
  showsArtifact: false,
  isAvailable: (state) => Boolean(state.compile?.events.length),
  create: phaseChart,
};

/** The time of all compiles, by line. */
export const compileLines: Mode = {
  name: "Lines",
  showsArtifact: false,
  isAvailable: ({ record }) =>
    record.frames.some((frame) => frame.compiles.some((c) => c.line_times.some(({ line }) => line !== null))),
  create: lineChart,
};

/** The time of a run, compiled and eager. */
export const runFlames: Mode = {
  name: "Flames",
  showsArtifact: false,
  isAvailable: (state) => Boolean(state.compile?.kernels.some((kernel) => kernel.time_ns !== null)),
  create: (state) => runChart(state, state.compile as Compile),
};

/** The memory of the graphs, step by step. */
export const memory: Mode = {
  name: "Timeline",
  showsArtifact: false,
  isAvailable: (state) => state.compile !== null && memoryTimeline(state.compile, state.links) !== null,
  create: (state) => {
    const compile = state.compile as Compile;
    return new MemoryView(state, compile, memoryTimeline(compile, state.links) as MemoryTimeline);
  },
};

/** A training step on one page. */
export const training: Mode = {
  name: "Page",
  showsArtifact: false,
  isAvailable: ({ compile }) => hasBackward(compile),
  create: (state) => {
    const compile = state.compile as Compile;
    return new TrainingStepView(state, compile, trainingStep(compile, state.links) as TrainingStep);
  },
};

export const expansions = tableMode(
  (compile) => compile.expansions.length,
  (state, compile) => new ExpansionsTable(state, compile),
);

/** The times of the cell as plain PyTorch and compiled. */
export const speed: Mode = {
  name: "Table",
  showsArtifact: false,
  isAvailable: (state) => state.record.timings !== null,
  create: (state) => new SpeedTable(state, state.record.timings as Timings),
};

/** The Python frames that ran in the compiled call. */
export const frames: Mode = {
  name: "Table",
  showsArtifact: false,
  isAvailable: (state) => state.record.seen.length > 0,
  create: (state) => new FramesTable(state),
};

/** The comparison of this run with another. */
export const runs: Mode = {
  name: "Table",
  showsArtifact: false,
  isAvailable: (state) => state.record.comparison !== null,
  create: (state) => new RunsTable(state, state.record.comparison as Comparison),
};

/** The comparison of the current compile with another one of the record. */
export function compilesMode(name: string, kind: ComparisonKind): Mode {
  return {
    name,
    showsArtifact: false,
    isAvailable: (state) => state.compile !== null && comparableCompiles(state, state.compile).length > 0,
    create: (state) => new CompilesPane(state, state.compile as Compile, kind),
  };
}

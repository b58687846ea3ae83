/**
 * Overlays that colour a drawing by bytes, traffic, time, error, saved or recomputed, or kernels instead of by roles.
 */

import { bytes, duration, errorText, shorten } from "../../dom/format";
import { COLOURS, keyOf } from "../../model/analysis/links";
import { PHASES, type Phase } from "../../model/analysis/training_step";
import type { Kernel } from "../../model/record/record";
import type { State } from "../../model/state";
import type { DrawableGraph } from "../scene/drawable_graph";
import type { Scene } from "../scene/scene";
import { HEAT_LEVELS } from "./palette";
import type { Colouring } from "./picture";

const MAX_NAME = 32;

export interface Overlay {
  name: string;
  title: string;
  isAvailable(subject: DrawableGraph): boolean;
  /** Returns the colours; null stands for the colours of the roles. */
  colour(subject: DrawableGraph, scene: Scene, state: State): Colouring | null;
}

/** The first one that is available is the default. */
export const OVERLAYS: Overlay[] = [
  {
    name: "differing",
    title: "Differences",
    isAvailable: (subject) => subject.differing !== undefined,
    colour: colourByDifference,
  },
  { name: "phase", title: "Phases", isAvailable: ({ phases }) => phases !== undefined, colour: colourByPhase },
  { name: "role", title: "Roles", isAvailable: () => true, colour: () => null },
  {
    name: "bytes",
    title: "Bytes",
    isAvailable: ({ graph }) => graph.nodes.some((n) => n.bytes),
    colour: ({ graph }, scene) => heatMap(scene, (node) => graph.nodes[node].bytes, bytes),
  },
  kernelHeat("traffic", "Kernel traffic", (k) => (k.bytes_read ?? 0) + (k.bytes_written ?? 0) || null, bytes),
  kernelHeat("time", "Kernel time", (k) => k.time_ns, duration),
  {
    name: "error",
    title: "Error against float64",
    isAvailable: ({ graph, compile }) => Boolean(compile?.accuracy.some(({ node }) => graph.items.includes(node))),
    colour: colourByError,
  },
  {
    name: "saved",
    title: "Saved or recomputed",
    isAvailable: ({ compile, roles }) => Boolean(compile?.partition) && roles.includes("saved"),
    colour: colourByDecision,
  },
  {
    name: "kernel",
    title: "Kernels",
    isAvailable: (subject) => Boolean(subject.compile?.kernels.some((k) => k.item)),
    colour: colourByKernel,
  },
];

/** Returns the kernel that computes each node. */
function kernelsOf({ graph, compile }: DrawableGraph, state: State): (Kernel | undefined)[] {
  const nodes = new Map(graph.items.map((item, i) => [item, i]));
  const found: (Kernel | undefined)[] = [];
  for (const kernel of compile?.kernels ?? []) {
    for (const item of kernel.item ? state.links.linked([kernel.item]) : []) {
      const node = nodes.get(item);
      if (node !== undefined) found[node] ??= kernel;
    }
  }
  return found;
}

function kernelHeat(
  name: string,
  title: string,
  measure: (kernel: Kernel) => number | null,
  text: (value: number) => string,
): Overlay {
  return {
    name,
    title,
    isAvailable: ({ compile }) => Boolean(compile?.kernels.some((k) => k.item && measure(k))),
    colour: (subject, scene, state) => {
      const kernels = kernelsOf(subject, state);
      // each node of a kernel shows the kernel's value, which counts once in a group
      return heatMap(
        scene,
        (node) => (kernels[node] ? measure(kernels[node]) : null),
        text,
        (node) => kernels[node],
      );
    },
  };
}

/** Stands for an error that is NaN or infinite. */
const NOT_A_NUMBER = 1e6;

function colourByError({ graph, compile }: DrawableGraph, scene: Scene): Colouring {
  const known = new Map(compile?.accuracy.map(({ node, error }) => [node, error ?? NOT_A_NUMBER]));
  return heatMap(
    scene,
    (node) => known.get(graph.items[node]) ?? null,
    (error) => errorText(error >= NOT_A_NUMBER ? null : error),
    (node) => node,
    Math.max,
  );
}

/**
 * Colours boxes by the logarithm of a value: the values of a box's nodes combined by `join`, by default their sum. Of
 * nodes with the same `unit`, one counts.
 */
function heatMap(
  scene: Scene,
  measure: (node: number) => number | null,
  text: (value: number) => string,
  unit: (node: number) => unknown = (node) => node,
  join: (a: number, b: number) => number = (a, b) => a + b,
): Colouring {
  const own = scene.boxes.map((box) => {
    const units = new Map(box.nodes.map((node) => [unit(node), measure(node) ?? 0]));
    return [...units.values()].reduce((all, value) => join(all, value), 0);
  });
  const known = own.filter((value) => value > 0);
  const [least, most] = known.length ? extremes(known) : [1, 1];
  const range = Math.log(most / least) || 1;
  return {
    colours: (palette) => [palette.roles.get("") ?? ["", ""], ...palette.heat],
    colourOf: Uint8Array.from(own, (v) =>
      v > 0 ? 1 + Math.round((Math.log(v / least) / range) * (HEAT_LEVELS - 1)) : 0,
    ),
    text: own.map((value) => (value > 0 ? text(value) : "")),
    legend: known.length
      ? [
          { text: text(least), swatch: "heat little" },
          { text: text(most), swatch: "heat much" },
          ...(own.some((value) => value <= 0) ? [{ text: "none, or not known", swatch: "plain" }] : []),
        ]
      : [],
  };
}

function extremes(values: number[]): [least: number, most: number] {
  return values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [values[0], values[0]]);
}

function colourByDifference({ differing }: DrawableGraph, scene: Scene): Colouring {
  const kinds = ["same", "changed", "only"];
  const kind = (node: number) => kinds.indexOf(differing?.get(node) ?? "same");
  return {
    colours: (palette) => [palette.roles.get("") ?? ["", ""], ...palette.differing],
    colourOf: Uint8Array.from(scene.boxes, ({ nodes }) => Math.max(...nodes.map(kind))),
    text: scene.boxes.map(() => null),
    legend: [
      { text: "the same on both sides", swatch: "plain" },
      { text: "changed", swatch: "differing" },
      { text: "only on this side", swatch: "differing only" },
    ],
  };
}

const PHASE_SWATCHES = ["plain", "primal", "tangent", "output"];

/** Colours boxes by the phase of a training step: the latest of its nodes. */
function colourByPhase({ phases = [] }: DrawableGraph, scene: Scene): Colouring {
  const number = (node: number) => PHASES.indexOf(phases[node] as Phase);
  return {
    colours: (palette) => PHASE_SWATCHES.map((role) => palette.roles.get(role) ?? palette.roles.get("") ?? ["", ""]),
    colourOf: Uint8Array.from(scene.boxes, ({ nodes }) => 1 + Math.max(...nodes.map(number))),
    text: scene.boxes.map(() => null),
    legend: ["input or output", ...PHASES].map((text, i) => ({ text, swatch: PHASE_SWATCHES[i] })),
  };
}

const DECISIONS = ["neither", "saved", "recomputed"] as const;

function colourByDecision({ graph, compile }: DrawableGraph, scene: Scene): Colouring {
  const values = new Map(compile?.partition?.values.map((value) => [keyOf(value.node), value]));
  const of = scene.boxes.map((box) => {
    const own = box.nodes.map((node) => values.get(graph.nodes[node].key)?.decision ?? "neither");
    return DECISIONS.findLastIndex((decision) => own.includes(decision));
  });
  const sizes = scene.boxes.map((box) => {
    const saved = box.nodes.map((node) => values.get(graph.nodes[node].key)).filter((v) => v?.decision === "saved");
    return saved.length ? `saved: ${bytes(saved.reduce((sum, v) => sum + (v?.bytes ?? 0), 0))}` : null;
  });
  return {
    colours: (palette) => ["", "saved", "recomputed"].map((role) => palette.roles.get(role) ?? ["", ""]),
    colourOf: Uint8Array.from(of),
    text: sizes,
    legend: [
      { text: "saved", swatch: "saved" },
      { text: "recomputed", swatch: "recomputed" },
      { text: "neither", swatch: "plain" },
    ],
  };
}

function colourByKernel(subject: DrawableGraph, scene: Scene, state: State): Colouring {
  const kernels = kernelsOf(subject, state);
  const colours = new Map((subject.compile?.kernels ?? []).map((kernel, i) => [kernel, 1 + (i % COLOURS)]));
  const own = scene.boxes.map((box) => {
    const all = new Set(box.nodes.flatMap((node) => kernels[node] ?? []));
    return all.size === 1 ? [...all][0] : undefined;
  });
  return {
    colours: (palette) => [palette.roles.get("") ?? ["", ""], ...palette.lineBoxes],
    colourOf: Uint8Array.from(own, (kernel) => (kernel ? (colours.get(kernel) ?? 0) : 0)),
    text: own.map((kernel) => (kernel ? shorten(kernel.name, MAX_NAME) : null)),
    legend: [{ text: "one colour per kernel; no colour: not in a single kernel", swatch: "heat" }],
  };
}

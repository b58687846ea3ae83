/** What may colour a drawing instead of the nodes' roles: bytes, traffic, time, saved or computed again, kernels. */

import { bytes, duration, errorText, shorten } from "../../dom/dom";
import { COLOURS, keyOf } from "../../model/links";
import type { Kernel } from "../../model/record";
import type { State } from "../../model/state";
import type { Scene } from "../scene/scene";
import type { Subject } from "../scene/subject";
import { HEATS } from "./palette";
import type { Tint } from "./picture";

const LONGEST = 32;

export interface Overlay {
  name: string;
  title: string;
  can(subject: Subject): boolean;
  /** Null: the roles' own colours. */
  of(subject: Subject, scene: Scene, state: State): Tint | null;
}

/** A drawing begins with the first that it can have. */
export const OVERLAYS: Overlay[] = [
  {
    name: "differing",
    title: "Differences",
    can: (subject) => subject.differing !== undefined,
    of: differences,
  },
  { name: "role", title: "Roles", can: () => true, of: () => null },
  {
    name: "bytes",
    title: "Bytes",
    can: ({ flow }) => flow.nodes.some((n) => n.bytes),
    of: ({ flow }, scene) => heat(scene, (node) => flow.nodes[node].bytes, bytes),
  },
  kernelHeat("traffic", "Kernels' traffic", (k) => (k.bytes_read ?? 0) + (k.bytes_written ?? 0) || null, bytes),
  kernelHeat("time", "Kernels' time", (k) => k.time_ns, duration),
  {
    name: "error",
    title: "Error beside float64",
    can: ({ flow, compile }) => Boolean(compile?.accuracy.some(({ node }) => flow.items.includes(node))),
    of: errors,
  },
  {
    name: "saved",
    title: "Saved or computed again",
    can: ({ compile, roles }) => Boolean(compile?.partition) && roles.includes("saved"),
    of: decisions,
  },
  {
    name: "kernel",
    title: "Kernels",
    can: (subject) => Boolean(subject.compile?.kernels.some((k) => k.item)),
    of: byKernel,
  },
];

/** The kernel that a node became a part of, by node. */
function kernelsOf({ flow, compile }: Subject, state: State): (Kernel | undefined)[] {
  const nodes = new Map(flow.items.map((item, i) => [item, i]));
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
    can: ({ compile }) => Boolean(compile?.kernels.some((k) => k.item && measure(k))),
    of: (subject, scene, state) => {
      const kernels = kernelsOf(subject, state);
      // a kernel's own measure stands on each of its nodes, and counts once in a group
      return heat(
        scene,
        (node) => (kernels[node] ? measure(kernels[node]) : null),
        text,
        (node) => kernels[node],
      );
    },
  };
}

/** What stands for an error that is no number. */
const WRONG = 1e6;

function errors({ flow, compile }: Subject, scene: Scene): Tint {
  const known = new Map(compile?.accuracy.map(({ node, error }) => [node, error ?? WRONG]));
  return heat(
    scene,
    (node) => known.get(flow.items[node]) ?? null,
    (error) => errorText(error >= WRONG ? null : error),
    (node) => node,
    Math.max,
  );
}

/**
 * A box's colour by the logarithm of what its nodes come to, their sum if nothing else is said; of nodes with the
 * same `unit` one counts.
 */
function heat(
  scene: Scene,
  measure: (node: number) => number | null,
  text: (value: number) => string,
  unit: (node: number) => unknown = (node) => node,
  join: (a: number, b: number) => number = (a, b) => a + b,
): Tint {
  const own = scene.shown.map((box) => {
    const units = new Map(box.nodes.map((node) => [unit(node), measure(node) ?? 0]));
    return [...units.values()].reduce((all, value) => join(all, value), 0);
  });
  const known = own.filter((value) => value > 0);
  const [least, most] = known.length ? extremes(known) : [1, 1];
  const range = Math.log(most / least) || 1;
  return {
    colours: (palette) => [palette.roles.get("") ?? ["", ""], ...palette.heat],
    of: Uint8Array.from(own, (v) => (v > 0 ? 1 + Math.round((Math.log(v / least) / range) * (HEATS - 1)) : 0)),
    text: own.map((value) => (value > 0 ? text(value) : "")),
    legend: known.length
      ? [
          { text: text(least), swatch: "heat little" },
          { text: text(most), swatch: "heat much" },
        ]
      : [],
  };
}

function extremes(values: number[]): [least: number, most: number] {
  return values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [values[0], values[0]]);
}

function differences({ differing }: Subject, scene: Scene): Tint {
  const kinds = ["same", "changed", "only"];
  const kind = (node: number) => kinds.indexOf(differing?.get(node) ?? "same");
  return {
    colours: (palette) => [palette.roles.get("") ?? ["", ""], ...palette.differing],
    of: Uint8Array.from(scene.shown, ({ nodes }) => Math.max(...nodes.map(kind))),
    text: scene.shown.map(() => null),
    legend: [
      { text: "changed", swatch: "differing" },
      { text: "on this side alone", swatch: "differing only" },
    ],
  };
}

const DECISIONS = ["neither", "saved", "recomputed"] as const;

function decisions({ flow, compile }: Subject, scene: Scene): Tint {
  const values = new Map(compile?.partition?.values.map((value) => [keyOf(value.node), value]));
  const of = scene.shown.map((box) => {
    const own = box.nodes.map((node) => values.get(flow.nodes[node].key)?.decision ?? "neither");
    return DECISIONS.findLastIndex((decision) => own.includes(decision));
  });
  const sizes = scene.shown.map((box) => {
    const saved = box.nodes.map((node) => values.get(flow.nodes[node].key)).filter((v) => v?.decision === "saved");
    return saved.length ? `saved: ${bytes(saved.reduce((sum, v) => sum + (v?.bytes ?? 0), 0))}` : null;
  });
  return {
    colours: (palette) => ["", "saved", "recomputed"].map((role) => palette.roles.get(role) ?? ["", ""]),
    of: Uint8Array.from(of),
    text: sizes,
    legend: [
      { text: "saved", swatch: "saved" },
      { text: "computed again", swatch: "recomputed" },
    ],
  };
}

function byKernel(subject: Subject, scene: Scene, state: State): Tint {
  const kernels = kernelsOf(subject, state);
  const colours = new Map((subject.compile?.kernels ?? []).map((kernel, i) => [kernel, 1 + (i % COLOURS)]));
  const own = scene.shown.map((box) => {
    const all = new Set(box.nodes.flatMap((node) => kernels[node] ?? []));
    return all.size === 1 ? [...all][0] : undefined;
  });
  return {
    colours: (palette) => [palette.roles.get("") ?? ["", ""], ...palette.lineBoxes],
    of: Uint8Array.from(own, (kernel) => (kernel ? (colours.get(kernel) ?? 0) : 0)),
    text: own.map((kernel) => (kernel ? shorten(kernel.name, LONGEST) : null)),
    legend: [{ text: "a colour for each kernel; none: no kernel of its own", swatch: "heat" }],
  };
}

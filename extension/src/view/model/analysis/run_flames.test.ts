import assert from "node:assert/strict";
import { test } from "node:test";
import type { Artifact, Compile, Kernel } from "../record/record";
import { compileOf, node, recordOf } from "../record/testing";
import { chromeTrace } from "./chrome_trace";
import { kernelCosts, moduleCosts } from "./costs";
import type { Flame } from "./flames";
import { lineFlames } from "./line_flames";
import { Links } from "./links";
import { buffersAt, memoryTimeline } from "./memory_timeline";
import { placed, runFlames } from "./run_flames";

const NAMES = ["a", "b", "c"];

function graph(name: "captured" | "forward" | "backward"): Artifact {
  const nodes = NAMES.map((key, i) => node(key, { module: `L['self'].layers.${i}.mlp`, bytes: 8 }));
  const spans = NAMES.map((key, i) => ({ key, first: i + 1, last: i + 1 }));
  const text = NAMES.join("\n");
  return { id: `0/0:${name}`, pane: name, name, language: "python", text, spans, graph: { nodes, edges: [] } };
}

function kernel(name: string, time_ns: number, which: "forward" | "backward"): Kernel {
  const none = { bytes_read: 8, bytes_written: 8, operations: null, timed_on: "cpu", device: "cpu", reason: "" };
  return { key: name, name, language: "cpp", graph: which, item: null, time_ns, ...none };
}

function timed(): Compile {
  const nodes = (which: string) => NAMES.map((name) => `0/0:${which}#${name}`);
  const links = ["captured", "forward"].flatMap((which) =>
    nodes(which).map((made, i): [string, string[]] => [made, [`src:0#${10 + i}`]]),
  );
  const fusion = { kind: "loops", bytes_saved: null };
  return {
    ...compileOf("0/0", links),
    artifacts: [graph("captured"), graph("forward")],
    guards_ns: 50,
    kernels: [kernel("k0", 200, "forward"), kernel("k1", 100, "forward")],
    fusions: [
      { ...fusion, key: "f0", nodes: nodes("forward").slice(0, 2), kernel: "k0" },
      { ...fusion, key: "f1", nodes: nodes("forward").slice(2), kernel: "k1" },
    ],
    graph_times: [
      { graph: "forward", form: "compiled", ns: 330, timed_on: "cpu" },
      { graph: "forward", form: "eager", ns: 1000, timed_on: "cpu" },
    ],
    eager_times: nodes("captured").map((item) => ({ node: item, forward_ns: 300, backward_ns: 0 })),
  };
}

const record = (compile: Compile) => recordOf(["10", "11", "12"], [compile]);

/** Every part must be as long as the parts inside it, and lie within the part around it. */
function checkPlaces(flame: Flame): void {
  if (!flame.children.length) return;
  const inside = flame.children.reduce((sum, { ns }) => sum + ns, 0);
  assert.ok(Math.abs(inside - flame.ns) < 1e-6, flame.title);
  assert.equal(flame.children[0].start, flame.start);
  flame.children.forEach(checkPlaces);
}

test("a run is divided by module, line and kernel, with guards and launches", () => {
  const compile = timed();
  const [compiled, eager] = runFlames(compile, new Links(record(compile))).map((root) => placed(root));
  checkPlaces(compiled);
  checkPlaces(eager);
  assert.deepEqual([compiled.ns, eager.ns], [380, 1000]);
  assert.deepEqual(
    compiled.children.map(({ name, ns }) => [name, ns]),
    [
      ["guards", 50],
      ["forward", 330],
    ],
  );
  const parts = compiled.children[1].children.map(({ name, ns }) => [name, ns]);
  assert.deepEqual(parts, [
    ["layers.0", 100],
    ["layers.1", 100],
    ["layers.2", 100],
    ["launches", 30],
  ]);
  const [layer] = compiled.children[1].children;
  const [mlp] = layer.children;
  assert.deepEqual(
    [mlp.title, mlp.children[0].stage, mlp.children[0].children[0].name],
    ["layers.0.mlp", "line", "k0"],
  );
});

test("a compile that was not timed has no run", () => {
  const compile = { ...timed(), kernels: [], eager_times: [] };
  assert.deepEqual(runFlames(compile, new Links(record(compile))), []);
});

test("equal layers are one row of the modules", () => {
  const compile = timed();
  const links = new Links(record(compile));
  const rows = moduleCosts(kernelCosts([compile], links), links, true);
  assert.deepEqual(
    rows.map(({ name, count, depth, share }) => [name, count, depth, Math.round(100 * share)]),
    [
      ["layers.*", 3, 0, 100],
      ["mlp", 3, 1, 100],
    ],
  );
});

test("the time of compiling by line adds up to the whole", () => {
  const events = [
    { stage: "backend" as const, name: "cache", start: 100, end: 200, outcome: "ok" as const, detail: "" },
    { stage: "joint" as const, name: "joint", start: 110, end: 190, outcome: "ok" as const, detail: "" },
    { stage: "capture" as const, name: "capture", start: 0, end: 100, outcome: "ok" as const, detail: "" },
  ];
  const line_times = [
    { stage: "capture" as const, line: "src:0#10", ns: 60 },
    { stage: "capture" as const, line: null, ns: 40 },
    { stage: "joint" as const, line: "src:0#10", ns: 30 },
    { stage: "joint" as const, line: "src:0#11", ns: 20 },
  ];
  const whole = { ...timed(), events, line_times };
  const root = placed(lineFlames(record(whole), new Links(record(whole))));
  checkPlaces(root);
  assert.deepEqual(
    root.children.map(({ name, ns }) => [name, ns]),
    [
      ["10", 90],
      ["11", 20],
      ["graphs as a whole", 90],
    ],
  );
});

test("a trace has an event for each bar", () => {
  const compile = timed();
  const roots = runFlames(compile, new Links(record(compile))).map((root) => placed(root));
  const { traceEvents } = chromeTrace("a test", roots);
  const kernels = traceEvents.filter(({ cat }) => cat === "kernel");
  assert.deepEqual(kernels.map(({ name, tid }) => `${name} ${tid}`).slice(0, 4), ["k0 1", "k0 1", "k1 1", "a 2"]);
});

const buffer = { takes: null, kept: false, within: null };

test("saved buffers are held until the backward releases them", () => {
  const compile: Compile = {
    ...timed(),
    artifacts: [graph("forward"), graph("backward")],
    memory: [
      {
        graph: "forward",
        peak_before: 0,
        peak: 24,
        released: {},
        buffers: [
          { ...buffer, name: "a", bytes: 8, first: 0, last: null },
          { ...buffer, name: "b", bytes: 16, first: 0, last: 1 },
          { ...buffer, name: "c", bytes: 16, first: 2, last: null, takes: "b" },
        ],
      },
      {
        graph: "backward",
        peak_before: 0,
        peak: 4,
        released: { a: 0 },
        buffers: [{ ...buffer, name: "b", bytes: 4, first: 1, last: null }],
      },
    ],
  };
  const timeline = memoryTimeline(compile, new Links(record(compile)));
  assert.deepEqual([timeline?.bytes, timeline?.forwardSteps, timeline?.peak], [[24, 24, 24, 24, 20], 3, 0]);
  assert.deepEqual(timeline && buffersAt(timeline, 3).map(({ name, kind }) => [name, kind]), [
    ["c", "result"],
    ["a", "saved"],
  ]);
});

test("what lies in another buffer is counted once", () => {
  const buffers = [
    { ...buffer, name: "workspace", bytes: 24, first: 0, last: 2 },
    { ...buffer, name: "a", bytes: 16, first: 0, last: 1, within: "workspace" },
    { ...buffer, name: "b", bytes: 8, first: 1, last: 1, within: "r" },
    { ...buffer, name: "r", bytes: 8, first: 0, last: null },
  ];
  const memory: Compile["memory"] = [{ graph: "forward", peak_before: 0, peak: 32, released: {}, buffers }];
  const compile: Compile = { ...timed(), artifacts: [graph("forward")], memory };
  const timeline = memoryTimeline(compile, new Links(record(compile)));
  assert.deepEqual(timeline?.bytes, [32, 32, 32]);
  const shown = [0, 1, 2].map((step) => timeline && buffersAt(timeline, step).map((b) => `${b.name} ${b.bytes}`));
  assert.deepEqual(shown, [
    ["a 16", "workspace 8", "r 8"],
    ["a 16", "workspace 8", "b 8"],
    ["workspace 24", "r 8"],
  ]);
});

test("with a backend that runs operations one by one, values live from their operation to the last use, also through views", () => {
  const nodes = [
    node("x", { op: "placeholder", bytes: 8 }),
    node("a", { target: "aten.sin.default", bytes: 8 }),
    node("v", { target: "aten.view.default", bytes: 8 }),
    node("b", { target: "aten.cos.default", bytes: 8 }),
    node("c", { target: "aten.add.Tensor", bytes: 8 }),
    node("d", { target: "aten.neg.default", bytes: 8 }),
    node("output", { op: "output" }),
  ];
  const edges = ["x a", "a v", "x b", "v c", "b c", "c d", "d output"].map((edge) => edge.split(" "));
  const spans = nodes.map(({ key }, i) => ({ key, first: i + 1, last: i + 1 }));
  const text = nodes.map(({ key }) => key).join("\n");
  const forward: Artifact = { ...graph("forward"), text, spans, graph: { nodes, edges } };
  const compile = { ...compileOf("0/0", []), artifacts: [forward], backend: "aot_eager" };
  assert.deepEqual(memoryTimeline(compile, new Links(record(compile)))?.bytes, [8, 8, 16, 24, 16]);
  compile.backend = "inductor"; // its kernels fuse operations
  assert.equal(memoryTimeline(compile, new Links(record(compile))), null);
});

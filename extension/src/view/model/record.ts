// Made by record_types.py from compiler_core/records: change that, then run it.

export const SCHEMA_VERSION = 2;

export type ItemId = string;

export type Stage =
  | "capture"
  | "guards"
  | "bytecode"
  | "joint"
  | "partition"
  | "lower"
  | "fuse"
  | "codegen"
  | "build"
  | "backend"
  | "run";

export type Pane =
  | "source"
  | "bytecode"
  | "generated"
  | "decompiled"
  | "guards"
  | "captured"
  | "pregrad"
  | "joint"
  | "forward"
  | "backward"
  | "postgrad"
  | "passes"
  | "fusion"
  | "kernel"
  | "wrapper"
  | "machine"
  | "other";

export type Language =
  | "python"
  | "bytecode"
  | "cpp"
  | "triton"
  | "asm"
  | "ptx"
  | "sass"
  | "mlir"
  | "llvm"
  | "text";

export type Outcome = "running" | "ok" | "failed";

/** A code object that was at work.  `lines` has 0 for an instruction without a line. */
export interface StepCode {
  name: string;
  filename: string;
  instructions: string[];
  lines: number[];
}

/** One call at work: the frame's own, or one that was inlined into `caller`. */
export interface StepCall {
  code: number;
  caller: number | null;
}

/** What a step changed on the stack of another call: a return gives its caller the result. */
export interface StepResult {
  step: number;
  call: number;
  pops: number;
  pushes: number[];
}

/** A local or cell got a value, or (None) lost it. */
export interface StepStore {
  step: number;
  call: number;
  name: string;
  value: number | null;
}

/** A value looks different from this step on: a list grew, an iterator moved. */
export interface StepText {
  step: number;
  value: number;
  text: string;
}

/** What a step added to the graph, the guards or the side effects, or why the attempt ended there. */
export interface StepNote {
  step: number;
  kind: "node" | "guard" | "effect" | "break";
  text: string;
  item: string | null;
}

/** One attempt of the symbolic interpreter; the last of a compile is the one that counts. */
export interface Steps {
  outcome: "captured" | "broke";
  dropped: number;
  codes: StepCode[];
  calls: StepCall[];
  values: string[];
  call: number[];
  at: number[];
  pops: number[];
  pushes: number[][];
  results: StepResult[];
  stores: StepStore[];
  texts: StepText[];
  notes: StepNote[];
}

/** What one line of the user's has on each side, for one aspect. */
export interface Difference {
  aspect: "graph break" | "guard" | "captured" | "forward" | "backward" | "saved" | "kernel" | "kernel time" | "compile time";
  file: string;
  line: number;
  text: string;
  state: "same" | "added" | "removed" | "changed";
  before: string[];
  after: string[];
}

/** One number of each side. */
export interface Total {
  name: string;
  before: number | null;
  after: number | null;
}

/** Totals, and every line that has something on either side. */
export interface Comparison {
  before: string;
  after: string;
  totals: Total[];
  lines: Difference[];
  values: { [name: string]: string } | null;
  shared: string[];
}

/** Lines ``first..last`` (from 1, inclusive) of an artifact's text are the item `key`. */
export interface Span {
  key: string;
  first: number;
  last: number;
}

/** A node of an FX graph.  `shape` and `dtype` are of its (first) tensor, `bytes` of all. */
export interface Node {
  key: string;
  op: string;
  target: string;
  shape: (number | string)[] | null;
  dtype: string | null;
  device: string | null;
  bytes: number | null;
  module: string | null;
  role: string | null;
}

/** The artifact's text as nodes and ``[from, to]`` pairs of node keys. */
export interface Graph {
  nodes: Node[];
  edges: string[][];
}

/** One text that the compiler made or read. */
export interface Artifact {
  id: string;
  pane: "source" | "bytecode" | "generated" | "decompiled" | "guards" | "captured" | "pregrad" | "joint" | "forward" | "backward" | "postgrad" | "passes" | "fusion" | "kernel" | "wrapper" | "machine" | "other";
  name: string;
  language: "python" | "bytecode" | "cpp" | "triton" | "asm" | "ptx" | "sass" | "mlir" | "llvm" | "text";
  text: string;
  spans: Span[];
  graph: Graph | null;
}

/** Item `made` came from `sources` by `rule` (``capture``, ``autograd``, a lowering ...). */
export interface Edge {
  made: string;
  sources: string[];
  rule: string;
}

/** One step of a stage; times are nanoseconds since the record was opened. */
export interface Event {
  stage: "capture" | "guards" | "bytecode" | "joint" | "partition" | "lower" | "fuse" | "codegen" | "build" | "backend" | "run";
  name: string;
  start: number;
  end: number | null;
  outcome: "running" | "ok" | "failed";
  detail: string;
}

/** Something in the compiler failed and the program went on without it. */
export interface Failure {
  stage: "capture" | "guards" | "bytecode" | "joint" | "partition" | "lower" | "fuse" | "codegen" | "build" | "backend" | "run";
  message: string;
  detail: string;
  kind: "bug" | "tool" | "refusal";
  meaning: string;
  filename: string;
  lineno: number;
  line: string | null;
}

/** One condition under which a compile may be reused. */
export interface Guard {
  key: string;
  kind: string;
  source: string;
  code: string;
  expected: string;
  line: string | null;
  cost_ns: number | null;
  dropped: boolean;
  sizes: (number | null)[] | null;
}

/** A size, stride or number that may be another in a later call, or was to be: which line made it static? */
export interface Symbol {
  key: string;
  source: string;
  value: number;
  why: string;
  low: number | null;
  high: number | null;
  line: string | null;
  became: string | null;
  condition: string | null;
  condition_line: string | null;
}

/** One line of the user's stack; `line` links it where its file is among the sources. */
export interface StackLine {
  filename: string;
  lineno: number;
  function: string;
  text: string;
  line: string | null;
}

/** Why a graph ended before its frame did.  `resumes` are ids of resume functions' frames. */
export interface GraphBreak {
  key: string;
  kind: string;
  explanation: string;
  hint: string;
  stack: StackLine[];
  instruction: string | null;
  resumes: number[];
}

/** The guard of compile `of` that failed, and what it saw. */
export interface Recompile {
  of: string;
  guard: string;
  source: string;
  expected: string;
  got: string;
  line: string | null;
}

/** What one captured operation became: nodes of the joint graph (of the forward, where there is no backward). */
export interface Expansion {
  node: string;
  target: string;
  forward: string[];
  backward: string[];
  functions: string[];
  decomposed: string[];
}

/** What the partition decided for one value of the forward graph, and why. */
export interface Value {
  node: string;
  decision: "saved" | "recomputed" | "neither";
  bytes: number;
  reason: string;
  cut: string[] | null;
  drop_ns: number | null;
}

/** What a memory budget (a share of the plain cut's bytes) gives: bytes saved, and the estimated time that */
export interface BudgetPoint {
  budget: number;
  saved_bytes: number;
  again_ns: number;
  saved: string[];
}

/** The min-cut beside the default, which saves all that the backward reads. */
export interface Partition {
  values: Value[];
  saved_count: number;
  saved_bytes: number;
  default_saved_count: number;
  default_saved_bytes: number;
  again_ns: number;
  curve: BudgetPoint[];
}

/** Graph nodes that became one kernel; `bytes_saved` is the traffic that fusing avoided, where that is known. */
export interface Fusion {
  key: string;
  kind: string;
  nodes: string[];
  kernel: string | null;
  bytes_saved: number | null;
}

/** Two groups that stayed apart. */
export interface FusionRefusal {
  kind: string;
  first: string;
  second: string;
  reason: string;
}

/** A generated kernel or a call to one of PyTorch's own (`language` "extern"). */
export interface Kernel {
  key: string;
  name: string;
  language: "cpp" | "triton" | "extern";
  graph: "forward" | "backward";
  item: string | null;
  bytes_read: number | null;
  bytes_written: number | null;
  time_ns: number | null;
  operations: number | null;
  timed_on: string | null;
  device: string | null;
  reason: string;
}

/** A device that kernels were timed on. */
export interface Device {
  target: string;
  name: string;
  copy: number;
  operations: number;
}

/** How far what a kernel left in memory lies from eager PyTorch's value in float64. */
export interface Accuracy {
  node: string;
  error: number | null;
  eager: number | null;
}

/** What a kernel's machine code takes of a target. */
export interface KernelResources {
  kernel: string;
  target: string;
  registers: number;
  shared_bytes: number;
  spilled_bytes: number;
}

/** Memory that a graph's program asks for, from step `first` to step `last`; `takes`: the dead buffer in whose */
export interface PlannedBuffer {
  name: string;
  bytes: number;
  first: number;
  last: number | null;
  takes: string | null;
  kept: boolean;
}

/** The most bytes that a graph's own buffers take at one time, and would take, were each kept to the end. */
export interface MemoryPlan {
  graph: "forward" | "backward";
  peak_before: number;
  peak: number;
  buffers: PlannedBuffer[];
}

/** One way to share out a kernel's work that autotuning tried. */
export interface Tried {
  kernel: string;
  how: string;
  time_ns: number | null;
  registers: number | null;
  spilled_bytes: number | null;
  why_not: string;
  chosen: boolean;
  cached: boolean;
}

/** What became of the wish to tune a graph's kernels (``tune=True``). */
export interface Tuning {
  graph: "forward" | "backward";
  target: string;
  reason: string;
  tried: Tried[];
}

/** What became of the wish to replay a graph's launches (``mode="reduce-overhead"``). */
export interface CudaGraph {
  graph: "forward" | "backward";
  reason: string;
  recorded: number;
  copied: number;
}

/** One compile of one frame.  Append-only; stages write through the methods below. */
export interface Compile {
  id: string;
  frame: number;
  cause: Recompile | null;
  outcome: "running" | "compiled" | "skipped" | "failed";
  reason: string;
  backend: string;
  events: Event[];
  artifacts: Artifact[];
  guards: Guard[];
  symbols: Symbol[];
  guards_ns: number | null;
  breaks: GraphBreak[];
  expansions: Expansion[];
  partition: Partition | null;
  fusions: Fusion[];
  refusals: FusionRefusal[];
  kernels: Kernel[];
  resources: KernelResources[];
  accuracy: Accuracy[];
  memory: MemoryPlan[];
  tunings: Tuning[];
  cuda_graphs: CudaGraph[];
  edges: Edge[];
  failures: Failure[];
  steps: Steps[];
}

/** One code object that the hook saw.  A resume function's frame names the break before it. */
export interface Frame {
  id: number;
  name: string;
  filename: string;
  line: number;
  kind: "root" | "resume" | "called";
  resumes: string | null;
  calls: number;
  skipped: string;
  compiles: Compile[];
}

/** All that one run did.  Open one with `compiler_core.record()`. */
export interface Record {
  schema_version: number;
  engine: "core" | "torch";
  title: string;
  created: string;
  versions: { [name: string]: string };
  options: { [name: string]: string };
  sources: Artifact[];
  labels: { [name: string]: string };
  frames: Frame[];
  notes: string[];
  devices: Device[];
  comparison: Comparison | null;
}

/** What targets do in a nanosecond: `compiler_core.api.roofline`. */
export const PEAKS: { [target: string]: { device: string; bytes: number; operations: number } } = {
  cpu: { device: "one core of a server", bytes: 10, operations: 50 },
  "x86-64-v2": { device: "one core with SSE4", bytes: 10, operations: 12 },
  "x86-64-v3": { device: "one core with AVX2", bytes: 10, operations: 25 },
  "x86-64-v4": { device: "one core with AVX-512", bytes: 10, operations: 50 },
  sm_75: { device: "T4", bytes: 320, operations: 4000 },
  sm_80: { device: "A100 80 GB", bytes: 2039, operations: 9750 },
  sm_86: { device: "A10", bytes: 600, operations: 15600 },
  sm_89: { device: "L40S", bytes: 864, operations: 45800 },
  sm_90: { device: "H200", bytes: 4800, operations: 33500 },
  sm_100: { device: "B200", bytes: 8000, operations: 37000 },
  sm_120: { device: "RTX PRO 6000", bytes: 1792, operations: 62500 },
  gfx90a: { device: "MI250X", bytes: 3277, operations: 23950 },
  gfx942: { device: "MI300X", bytes: 5300, operations: 81700 },
  gfx950: { device: "MI355X", bytes: 8000, operations: 78650 },
  gfx1100: { device: "RX 7900 XTX", bytes: 960, operations: 30700 },
  gfx1201: { device: "RX 9070 XT", bytes: 640, operations: 24300 },
};

/** A type as a value: what a field of a record must be. */
export type Shape =
  | "string"
  | "int"
  | "number"
  | "boolean"
  | { is: string }
  | { list: Shape }
  | { map: Shape }
  | { one: string[] }
  | { maybe: Shape }
  | { any: Shape[] };

export const SHAPES: { [type: string]: { [field: string]: Shape } } = {
  StepCode: {
    name: "string",
    filename: "string",
    instructions: { list: "string" },
    lines: { list: "int" },
  },
  StepCall: {
    code: "int",
    caller: { maybe: "int" },
  },
  StepResult: {
    step: "int",
    call: "int",
    pops: "int",
    pushes: { list: "int" },
  },
  StepStore: {
    step: "int",
    call: "int",
    name: "string",
    value: { maybe: "int" },
  },
  StepText: {
    step: "int",
    value: "int",
    text: "string",
  },
  StepNote: {
    step: "int",
    kind: { one: ["node", "guard", "effect", "break"] },
    text: "string",
    item: { maybe: "string" },
  },
  Steps: {
    outcome: { one: ["captured", "broke"] },
    dropped: "int",
    codes: { list: { is: "StepCode" } },
    calls: { list: { is: "StepCall" } },
    values: { list: "string" },
    call: { list: "int" },
    at: { list: "int" },
    pops: { list: "int" },
    pushes: { list: { list: "int" } },
    results: { list: { is: "StepResult" } },
    stores: { list: { is: "StepStore" } },
    texts: { list: { is: "StepText" } },
    notes: { list: { is: "StepNote" } },
  },
  Difference: {
    aspect: { one: ["graph break", "guard", "captured", "forward", "backward", "saved", "kernel", "kernel time", "compile time"] },
    file: "string",
    line: "int",
    text: "string",
    state: { one: ["same", "added", "removed", "changed"] },
    before: { list: "string" },
    after: { list: "string" },
  },
  Total: {
    name: "string",
    before: { maybe: "number" },
    after: { maybe: "number" },
  },
  Comparison: {
    before: "string",
    after: "string",
    totals: { list: { is: "Total" } },
    lines: { list: { is: "Difference" } },
    values: { maybe: { map: "string" } },
    shared: { list: "string" },
  },
  Span: {
    key: "string",
    first: "int",
    last: "int",
  },
  Node: {
    key: "string",
    op: "string",
    target: "string",
    shape: { maybe: { list: { any: ["int", "string"] } } },
    dtype: { maybe: "string" },
    device: { maybe: "string" },
    bytes: { maybe: "int" },
    module: { maybe: "string" },
    role: { maybe: "string" },
  },
  Graph: {
    nodes: { list: { is: "Node" } },
    edges: { list: { list: "string" } },
  },
  Artifact: {
    id: "string",
    pane: { one: ["source", "bytecode", "generated", "decompiled", "guards", "captured", "pregrad", "joint", "forward", "backward", "postgrad", "passes", "fusion", "kernel", "wrapper", "machine", "other"] },
    name: "string",
    language: { one: ["python", "bytecode", "cpp", "triton", "asm", "ptx", "sass", "mlir", "llvm", "text"] },
    text: "string",
    spans: { list: { is: "Span" } },
    graph: { maybe: { is: "Graph" } },
  },
  Edge: {
    made: "string",
    sources: { list: "string" },
    rule: "string",
  },
  Event: {
    stage: { one: ["capture", "guards", "bytecode", "joint", "partition", "lower", "fuse", "codegen", "build", "backend", "run"] },
    name: "string",
    start: "int",
    end: { maybe: "int" },
    outcome: { one: ["running", "ok", "failed"] },
    detail: "string",
  },
  Failure: {
    stage: { one: ["capture", "guards", "bytecode", "joint", "partition", "lower", "fuse", "codegen", "build", "backend", "run"] },
    message: "string",
    detail: "string",
    kind: { one: ["bug", "tool", "refusal"] },
    meaning: "string",
    filename: "string",
    lineno: "int",
    line: { maybe: "string" },
  },
  Guard: {
    key: "string",
    kind: "string",
    source: "string",
    code: "string",
    expected: "string",
    line: { maybe: "string" },
    cost_ns: { maybe: "number" },
    dropped: "boolean",
    sizes: { maybe: { list: { maybe: "int" } } },
  },
  Symbol: {
    key: "string",
    source: "string",
    value: "number",
    why: "string",
    low: { maybe: "number" },
    high: { maybe: "number" },
    line: { maybe: "string" },
    became: { maybe: "string" },
    condition: { maybe: "string" },
    condition_line: { maybe: "string" },
  },
  StackLine: {
    filename: "string",
    lineno: "int",
    function: "string",
    text: "string",
    line: { maybe: "string" },
  },
  GraphBreak: {
    key: "string",
    kind: "string",
    explanation: "string",
    hint: "string",
    stack: { list: { is: "StackLine" } },
    instruction: { maybe: "string" },
    resumes: { list: "int" },
  },
  Recompile: {
    of: "string",
    guard: "string",
    source: "string",
    expected: "string",
    got: "string",
    line: { maybe: "string" },
  },
  Expansion: {
    node: "string",
    target: "string",
    forward: { list: "string" },
    backward: { list: "string" },
    functions: { list: "string" },
    decomposed: { list: "string" },
  },
  Value: {
    node: "string",
    decision: { one: ["saved", "recomputed", "neither"] },
    bytes: "int",
    reason: "string",
    cut: { maybe: { list: "string" } },
    drop_ns: { maybe: "int" },
  },
  BudgetPoint: {
    budget: "number",
    saved_bytes: "int",
    again_ns: "int",
    saved: { list: "string" },
  },
  Partition: {
    values: { list: { is: "Value" } },
    saved_count: "int",
    saved_bytes: "int",
    default_saved_count: "int",
    default_saved_bytes: "int",
    again_ns: "int",
    curve: { list: { is: "BudgetPoint" } },
  },
  Fusion: {
    key: "string",
    kind: "string",
    nodes: { list: "string" },
    kernel: { maybe: "string" },
    bytes_saved: { maybe: "int" },
  },
  FusionRefusal: {
    kind: "string",
    first: "string",
    second: "string",
    reason: "string",
  },
  Kernel: {
    key: "string",
    name: "string",
    language: { one: ["cpp", "triton", "extern"] },
    graph: { one: ["forward", "backward"] },
    item: { maybe: "string" },
    bytes_read: { maybe: "int" },
    bytes_written: { maybe: "int" },
    time_ns: { maybe: "number" },
    operations: { maybe: "int" },
    timed_on: { maybe: "string" },
    device: { maybe: "string" },
    reason: "string",
  },
  Device: {
    target: "string",
    name: "string",
    copy: "number",
    operations: "number",
  },
  Accuracy: {
    node: "string",
    error: { maybe: "number" },
    eager: { maybe: "number" },
  },
  KernelResources: {
    kernel: "string",
    target: "string",
    registers: "int",
    shared_bytes: "int",
    spilled_bytes: "int",
  },
  PlannedBuffer: {
    name: "string",
    bytes: "int",
    first: "int",
    last: { maybe: "int" },
    takes: { maybe: "string" },
    kept: "boolean",
  },
  MemoryPlan: {
    graph: { one: ["forward", "backward"] },
    peak_before: "int",
    peak: "int",
    buffers: { list: { is: "PlannedBuffer" } },
  },
  Tried: {
    kernel: "string",
    how: "string",
    time_ns: { maybe: "number" },
    registers: { maybe: "int" },
    spilled_bytes: { maybe: "int" },
    why_not: "string",
    chosen: "boolean",
    cached: "boolean",
  },
  Tuning: {
    graph: { one: ["forward", "backward"] },
    target: "string",
    reason: "string",
    tried: { list: { is: "Tried" } },
  },
  CudaGraph: {
    graph: { one: ["forward", "backward"] },
    reason: "string",
    recorded: "int",
    copied: "int",
  },
  Compile: {
    id: "string",
    frame: "int",
    cause: { maybe: { is: "Recompile" } },
    outcome: { one: ["running", "compiled", "skipped", "failed"] },
    reason: "string",
    backend: "string",
    events: { list: { is: "Event" } },
    artifacts: { list: { is: "Artifact" } },
    guards: { list: { is: "Guard" } },
    symbols: { list: { is: "Symbol" } },
    guards_ns: { maybe: "number" },
    breaks: { list: { is: "GraphBreak" } },
    expansions: { list: { is: "Expansion" } },
    partition: { maybe: { is: "Partition" } },
    fusions: { list: { is: "Fusion" } },
    refusals: { list: { is: "FusionRefusal" } },
    kernels: { list: { is: "Kernel" } },
    resources: { list: { is: "KernelResources" } },
    accuracy: { list: { is: "Accuracy" } },
    memory: { list: { is: "MemoryPlan" } },
    tunings: { list: { is: "Tuning" } },
    cuda_graphs: { list: { is: "CudaGraph" } },
    edges: { list: { is: "Edge" } },
    failures: { list: { is: "Failure" } },
    steps: { list: { is: "Steps" } },
  },
  Frame: {
    id: "int",
    name: "string",
    filename: "string",
    line: "int",
    kind: { one: ["root", "resume", "called"] },
    resumes: { maybe: "string" },
    calls: "int",
    skipped: "string",
    compiles: { list: { is: "Compile" } },
  },
  Record: {
    schema_version: "int",
    engine: { one: ["core", "torch"] },
    title: "string",
    created: "string",
    versions: { map: "string" },
    options: { map: "string" },
    sources: { list: { is: "Artifact" } },
    labels: { map: "string" },
    frames: { list: { is: "Frame" } },
    notes: { list: "string" },
    devices: { list: { is: "Device" } },
    comparison: { maybe: { is: "Comparison" } },
  },
};

/** What a field is where an earlier version did not write it. */
export const DEFAULTS: { [type: string]: { [field: string]: unknown } } = {
  StepNote: { item: null },
  Steps: { outcome: "captured", dropped: 0, codes: [], calls: [], values: [], call: [], at: [], pops: [], pushes: [], results: [], stores: [], texts: [], notes: [] },
  Comparison: { values: null, shared: [] },
  Node: { shape: null, dtype: null, device: null, bytes: null, module: null, role: null },
  Artifact: { graph: null, spans: [] },
  Event: { end: null, outcome: "running", detail: "" },
  Failure: { detail: "", kind: "bug", meaning: "", filename: "", lineno: 0, line: null },
  Guard: { line: null, cost_ns: null, dropped: false, sizes: null },
  Symbol: { low: null, high: null, line: null, became: null, condition: null, condition_line: null },
  StackLine: { line: null },
  GraphBreak: { instruction: null, resumes: [] },
  Recompile: { line: null },
  Value: { cut: null, drop_ns: null },
  BudgetPoint: { saved: [] },
  Partition: { again_ns: 0, curve: [] },
  Kernel: { bytes_read: null, bytes_written: null, time_ns: null, operations: null, timed_on: null, device: null, reason: "" },
  PlannedBuffer: { takes: null, kept: false },
  Tried: { time_ns: null, registers: null, spilled_bytes: null, why_not: "", chosen: false, cached: false },
  Tuning: { target: "", reason: "", tried: [] },
  CudaGraph: { reason: "", recorded: 0, copied: 0 },
  Compile: { cause: null, outcome: "running", reason: "", backend: "", guards_ns: null, partition: null, events: [], artifacts: [], guards: [], symbols: [], breaks: [], expansions: [], fusions: [], refusals: [], kernels: [], resources: [], accuracy: [], memory: [], tunings: [], cuda_graphs: [], edges: [], failures: [], steps: [] },
  Frame: { resumes: null, calls: 0, skipped: "", compiles: [] },
  Record: { schema_version: 2, engine: "core", title: "", created: "", comparison: null, versions: {}, options: {}, sources: [], labels: {}, frames: [], notes: [], devices: [] },
};

/** Small records for unit tests. */

import { type Compile, type Record as CutawayRecord, type Node, SCHEMA_VERSION } from "./record";

/** Returns a compile with these links: each item and what it was made from. */
export function compileOf(id: string, edges: [made: string, sources: string[]][]): Compile {
  return {
    id,
    frame: 0,
    cause: null,
    outcome: "compiled",
    reason: "",
    raised: "",
    raised_at: null,
    caller: null,
    backend: "cpp",
    events: [],
    artifacts: [],
    guards: [],
    symbols: [],
    no_symbols: "",
    guards_ns: null,
    breaks: [],
    expansions: [],
    changes: [],
    partition: null,
    fusions: [],
    refusals: [],
    schedules: [],
    kernels: [],
    resources: [],
    accuracy: [],
    memory: [],
    tunings: [],
    cuda_graphs: [],
    edges: edges.map(([made, sources]) => ({ made, sources, rule: "test" })),
    failures: [],
    steps: [],
    cache_lookups: [],
    line_times: [],
    graph_times: [],
    eager_times: [],
  };
}

/** Returns a record of one frame with these compiles and one source, whose lines have these numbers. */
export function recordOf(lines: string[], compiles: Compile[]): CutawayRecord {
  const spans = lines.map((key, i) => ({ key, first: i + 1, last: i + 1 }));
  return {
    schema_version: SCHEMA_VERSION,
    engine: "core",
    title: "a test",
    created: "",
    versions: {},
    labels: {},
    options: {},
    sources: [
      { id: "src:0", pane: "source", name: "a.py", language: "python", text: lines.join("\n"), spans, graph: null },
    ],
    frames: [
      {
        id: 0,
        name: "f",
        filename: "a.py",
        line: 10,
        kind: "root",
        resumes: null,
        carried: [],
        calls: 1,
        skipped: "",
        skipped_line: 0,
        limit_reached: false,
        compiles,
      },
    ],
    problems: [],
    notes: [],
    raised: "",
    devices: [],
    seen: [],
    collectives: [],
    comparison: null,
    verdict: null,
    timings: null,
    covered: [],
    views: [],
  };
}

/** Returns a graph node, by default an operation; `more` overrides its fields. */
export function node(key: string, more: Partial<Node> = {}): Node {
  return {
    key,
    op: "call_function",
    target: key,
    shape: null,
    dtype: null,
    device: null,
    bytes: null,
    module: null,
    role: null,
    place: "",
    ...more,
  };
}

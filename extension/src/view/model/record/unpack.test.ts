import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { unpack } from "../../dom/unpack";
import { Links } from "../analysis/links";
import { marksOf } from "../analysis/marks";
import { DETAILS, graphCount, isUnread, summaryOf } from "./details";
import type { Record as CutawayRecord, Kernel } from "./record";
import { compileOf, recordOf } from "./testing";
import { unpackRecord } from "./unpack";

const record = recordOf(["1", "2 é 🙂"], [compileOf("0/0", [["a#1", ["src:0#1"]]])]);
const packed = (text: string) => ({ encoding: "gzip+base64", data: gzipSync(text).toString("base64") });

test("a record is unpacked, and read as it is where an earlier version saved it", async () => {
  assert.deepEqual(await unpackRecord(packed(JSON.stringify(record))), record);
  assert.deepEqual(await unpackRecord(structuredClone(record)), record);
  assert.deepEqual(await unpackRecord(JSON.stringify(record)), record);
});

/** Packs a record by compile, as `kernel_magics/display/packing.py` does. */
function byCompile(whole: CutawayRecord, change: (details: { [name: string]: unknown }) => void = () => {}) {
  const index = structuredClone(whole) as unknown as { frames: { compiles: { [name: string]: unknown }[] }[] };
  const details = index.frames
    .flatMap((frame) => frame.compiles)
    .map((compile) => {
      const own: { [name: string]: unknown } = Object.fromEntries(DETAILS.map((name) => [name, compile[name]]));
      for (const name of DETAILS) delete compile[name];
      change(own);
      return gzipSync(JSON.stringify(own)).toString("base64");
    });
  const kernel_lines = [["src:0#1"], ["src:0#2"]];
  const summaries = details.map(() => ({ nodes: 1, saved_count: 0, saved_bytes: 0, lines: ["src:0#1"], kernel_lines }));
  const { data } = packed(JSON.stringify({ record: index, summaries }));
  return { encoding: "gzip+base64 by compile", data, details };
}

test("the details of a compile are read when they are used", async () => {
  const read = await unpackRecord(byCompile(record));
  const [compile] = read.frames[0].compiles;
  assert.ok(isUnread(compile));
  assert.equal(summaryOf(compile).nodes, 1);
  const links = new Links(read);
  assert.ok(links.isLinked("src:0#1"));
  assert.ok(isUnread(compile));
  assert.deepEqual(links.sources("0/0:a#1"), []); // of another text of the compile, which is now read
  assert.ok(!isUnread(compile));
  assert.deepEqual(read, record);
});

test("a graph of what Python reads is not counted, as in the texts", () => {
  const graphs = (role: string | null) => {
    const node = { key: "a", op: "call_method", target: "select", shape: null, dtype: null, device: null };
    const graph = { nodes: [{ ...node, bytes: null, module: null, role, place: "" }], edges: [] };
    const compile = compileOf("0/0", []);
    compile.artifacts = [
      { id: "0/0:captured", pane: "captured", name: "", language: "python", text: "", spans: [], graph },
    ];
    return graphCount(compile);
  };
  assert.deepEqual([graphs("read"), graphs(null)], [0, 1]);
});

test("which line costs most is marked before details are read", async () => {
  const kernel = (key: string, bytes_read: number): Kernel => ({
    ...{ key, name: key, language: "cpp", graph: "forward", item: null, bytes_read, bytes_written: 0, time_ns: null },
    ...{ operations: null, timed_on: null, device: null, reason: "" },
  });
  const compile = { ...compileOf("0/0", []), kernels: [kernel("k0", 9e6), kernel("k1", 1e6)] };
  const read = await unpackRecord(byCompile(recordOf(["1", "2"], [compile])));
  const marks = marksOf(read, new Links(read));
  assert.deepEqual(
    marks.map(({ line, title }) => [line, title]),
    [["src:0#1", "hot: 90 % of the traffic"]],
  );
  assert.ok(isUnread(read.frames[0].compiles[0]));
});

test("details that are wrong are not shown, and a failure says why", async () => {
  const [whole, ...changes]: ((own: { [name: string]: unknown }) => void)[] = [
    () => {},
    (own) => Object.assign(own, { more: 1 }),
    (own) => Object.assign(own, { edges: [{ made: 3 }] }),
    (own) =>
      Object.assign(own, { artifacts: [{ id: "0/1:a", pane: "joint", name: "a", language: "python", text: "" }] }),
  ];
  assert.equal((await unpackRecord(byCompile(record, whole))).frames[0].compiles[0].failures.length, 0);
  for (const change of changes) {
    const [compile] = (await unpackRecord(byCompile(record, change))).frames[0].compiles;
    assert.deepEqual([compile.edges, compile.artifacts], [[], []]);
    assert.match(compile.failures[0].message, /cannot be shown: /);
  }
  const truncated = byCompile(record);
  truncated.details = ["H4sI"];
  assert.match((await unpackRecord(truncated)).frames[0].compiles[0].edges.length.toString(), /0/);
});

test("an index without the details of each compile is refused", async () => {
  await assert.rejects(unpackRecord({ ...byCompile(record), details: [] }), /does not have the details of each/);
  await assert.rejects(unpackRecord({ ...byCompile(record), details: undefined }), /no details of its compiles/);
  const { data } = packed(
    JSON.stringify({ record, summaries: [{ nodes: 0, saved_count: 0, saved_bytes: 0, lines: [] }] }),
  );
  await assert.rejects(unpackRecord({ ...byCompile(record), data }), /index of the record has details/);
});

const wrong: [name: string, given: unknown, message: RegExp][] = [
  ["nothing", null, /no schema_version/],
  ["another encoding", { encoding: "zstd", data: "" }, /not encoded as gzip\+base64: a newer Cutaway/],
  ["no text", { encoding: "gzip+base64", data: 3 }, /not encoded/],
  ["not base64", { encoding: "gzip+base64", data: "*" }, /cannot be decompressed/],
  ["not gzip", { encoding: "gzip+base64", data: btoa("{}") }, /cannot be decompressed/],
  ["truncated", { encoding: "gzip+base64", data: packed("{}").data.slice(0, 12) }, /cannot be decompressed/],
  ["not a record", packed("{}"), /no schema_version/],
];

for (const [name, given, message] of wrong) {
  test(`refused: ${name}`, () => assert.rejects(unpackRecord(given), { name: "Error", message }));
}

test("no more bytes are decompressed than allowed", async () => {
  const { data } = packed(" ".repeat(1_000_000));
  assert.equal((await unpack(data, 1_000_000)).byteLength, 1_000_000);
  await assert.rejects(unpack(data, 999_999), /more than 999999 bytes/);
});

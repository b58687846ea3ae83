import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { unpack } from "../../dom/unpack";
import { compileOf, recordOf } from "./testing";
import { unpackRecord } from "./unpack";

const record = recordOf(["1", "2 é 🙂"], [compileOf("0/0", [["a#1", ["src:0#1"]]])]);
const packed = (text: string) => ({ encoding: "gzip+base64", data: gzipSync(text).toString("base64") });

test("a record is unpacked, and read as it is where an earlier version saved it", async () => {
  assert.deepEqual(await unpackRecord(packed(JSON.stringify(record))), record);
  assert.deepEqual(await unpackRecord(structuredClone(record)), record);
  assert.deepEqual(await unpackRecord(JSON.stringify(record)), record);
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

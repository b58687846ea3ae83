import assert from "node:assert/strict";
import { test } from "node:test";
import { RecordError, readRecord } from "./read";
import { compileOf, recordOf } from "./testing";

const record = recordOf(["1", "2"], [compileOf("0/0", [["a#1", ["src:0#1"]]])]);

// biome-ignore lint/suspicious/noExplicitAny: these are changes that the types forbid
function changed(change: (plain: any) => void): unknown {
  const plain = structuredClone(record);
  change(plain);
  return plain;
}

test("a record is read from JSON text and from parsed JSON", () => {
  assert.deepEqual(readRecord(JSON.stringify(record)), record);
  assert.deepEqual(readRecord(structuredClone(record)), record);
});

const wrong: [name: string, given: unknown, message: RegExp][] = [
  ["not JSON", "{", /not JSON/],
  ["not a record", [1], /no schema_version/],
  ["another version", changed((r) => (r.schema_version = 99)), /schema version 99/],
  [
    "a missing field",
    changed((r) => delete r.frames[0].name),
    /record\.frames\[0\]\.name: expected string, got nothing/,
  ],
  ["an unknown field", changed((r) => (r.frames[0].evil = 1)), /frames\[0\]: unknown field "evil"\..* reload the page/],
  [
    "the name of a field that every object inherits",
    changed((r) => Object.assign(r.frames[0], { toString: 1 })),
    /unknown field "toString"/,
  ],
  ["a wrong type", changed((r) => (r.frames[0].line = "3")), /line: expected int, got string/],
  ["a wrong number", changed((r) => (r.frames[0].line = 3.5)), /line: expected int/],
  [
    "a string that is not one of the allowed ones",
    changed((r) => (r.frames[0].kind = "leaf")),
    /kind: "leaf" is not one of root, resume, called/,
  ],
  ["not a list", changed((r) => (r.notes = {})), /notes: expected a list, got object/],
  [
    "a map with a value of the wrong type",
    changed((r) => (r.versions.torch = 2)),
    /versions\["torch"\]: expected string/,
  ],
];

for (const [name, given, message] of wrong) {
  test(`refused, with the place: ${name}`, () => {
    assert.throws(
      () => readRecord(given),
      (error: Error) => error instanceof RecordError && message.test(error.message),
    );
  });
}

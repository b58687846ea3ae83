/** Reading a record that may come from a stranger: every field is checked before anything uses it. */

import { type Record as CutawayRecord, SCHEMA_VERSION, SHAPES, type Shape } from "./record";

const MAX_CHARACTERS = 512 * 1024 * 1024;

/** What was given is not a record that this version can show; the message says where and why. */
export class RecordError extends Error {}

/** The record in `given`, a JSON text or what was read from one. */
export function readRecord(given: unknown): CutawayRecord {
  const plain = typeof given === "string" ? parse(given) : given;
  if (!isObject(plain) || !("schema_version" in plain)) {
    throw new RecordError("This is not a Cutaway record: it has no schema_version.");
  }
  if (plain.schema_version !== SCHEMA_VERSION) {
    throw new RecordError(
      `The record has schema version ${JSON.stringify(plain.schema_version)} and this Cutaway shows ` +
        `${SCHEMA_VERSION}. Open it with the version of Cutaway that wrote it, or run the cell again.`,
    );
  }
  check(plain, { is: "Record" }, "record");
  return plain as unknown as CutawayRecord;
}

function parse(text: string): unknown {
  if (text.length > MAX_CHARACTERS) {
    throw new RecordError(`The record has ${text.length} characters; at most ${MAX_CHARACTERS} are read.`);
  }
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new RecordError(`The record is not JSON: ${(error as Error).message}`);
  }
}

/** Throw a RecordError that names the place `at` unless `value` has the shape. */
function check(value: unknown, shape: Shape, at: string): void {
  if (typeof shape === "string") {
    const right = shape === "int" ? Number.isInteger(value) : typeof value === shape;
    if (!right) throw wrong(at, shape, value);
  } else if ("maybe" in shape) {
    if (value !== null) check(value, shape.maybe, at);
  } else if ("one" in shape) {
    if (!shape.one.includes(value as string)) throw wrong(at, `one of ${shape.one.join(", ")}`, value);
  } else if ("list" in shape) {
    if (!Array.isArray(value)) throw wrong(at, "a list", value);
    value.forEach((v, i) => {
      check(v, shape.list, `${at}[${i}]`);
    });
  } else if ("map" in shape) {
    if (!isObject(value)) throw wrong(at, "an object", value);
    for (const [name, v] of Object.entries(value)) check(v, shape.map, `${at}[${JSON.stringify(name)}]`);
  } else if ("any" in shape) {
    if (!shape.any.some((s) => fits(value, s, at))) throw wrong(at, "another type", value);
  } else {
    checkFields(value, SHAPES[shape.is], at);
  }
}

function checkFields(value: unknown, fields: { [name: string]: Shape }, at: string): void {
  if (!isObject(value)) throw wrong(at, "an object", value);
  for (const name in value) {
    if (!Object.hasOwn(fields, name)) throw new RecordError(`${at}: unknown field ${JSON.stringify(name)}`);
  }
  for (const name in fields) check(value[name], fields[name], `${at}.${name}`);
}

function fits(value: unknown, shape: Shape, at: string): boolean {
  try {
    check(value, shape, at);
    return true;
  } catch {
    return false;
  }
}

function wrong(at: string, wanted: string, value: unknown): RecordError {
  const got =
    value === undefined ? "nothing" : value === null ? "null" : Array.isArray(value) ? "a list" : typeof value;
  return new RecordError(`${at}: expected ${wanted}, got ${got}`);
}

function isObject(value: unknown): value is { [name: string]: unknown } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Reading a record that may come from a stranger: every field is checked before anything uses it. */

import { type Record as CutawayRecord, DEFAULTS, SCHEMA_VERSION, SHAPES, type Shape } from "./record";
import { broken } from "./rules";

const MOST_ECHOED = 60;
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
      `The record has schema version ${echo(plain.schema_version)} and this Cutaway shows ` +
        `${SCHEMA_VERSION}. Open it with the version of Cutaway that wrote it, or run the cell again.`,
    );
  }
  check(plain, { is: "Record" }, "record");
  const record = plain as unknown as CutawayRecord;
  const rule = broken(record);
  if (rule !== null) throw new RecordError(rule);
  return record;
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
    if (!fitsScalar(value, shape)) throw wrong(at, shape, value);
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
    for (const [name, v] of Object.entries(value)) check(v, shape.map, `${at}[${echo(name)}]`);
  } else if ("any" in shape) {
    if (!shape.any.some((s) => fits(value, s, at))) throw wrong(at, "another type", value);
  } else {
    checkFields(value, shape.is, at);
  }
}

/** Numbers are finite, and whole ones exact. */
function fitsScalar(value: unknown, shape: string): boolean {
  if (shape === "int") return Number.isSafeInteger(value);
  return shape === "number" ? Number.isFinite(value) : typeof value === shape;
}

/** A field that is not there, as in a record of an earlier version, gets its default. */
function checkFields(value: unknown, type: string, at: string): void {
  if (!isObject(value)) throw wrong(at, "an object", value);
  const [fields, defaults] = [SHAPES[type], DEFAULTS[type] ?? {}];
  for (const name in value) {
    if (!Object.hasOwn(fields, name)) throw new RecordError(`${at}: unknown field ${echo(name)}`);
  }
  for (const name in fields) {
    if (!Object.hasOwn(value, name) && Object.hasOwn(defaults, name)) value[name] = structuredClone(defaults[name]);
    check(Object.hasOwn(value, name) ? value[name] : undefined, fields[name], `${at}.${name}`);
  }
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

/** A value in few characters. */
function echo(value: unknown): string {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > MOST_ECHOED ? `${text.slice(0, MOST_ECHOED)}...` : text;
}

function isObject(value: unknown): value is { [name: string]: unknown } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

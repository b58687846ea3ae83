/** Reads an untrusted record: every field is checked before anything uses it. */

import { type Compile, type Record as CutawayRecord, DEFAULTS, SCHEMA_VERSION, SHAPES, type Shape } from "./record";
import { compileViolation, firstViolation } from "./rules";

const MAX_ECHOED = 60;
const OF_NEWER =
  "If a newer Cutaway wrote the record: reload the page, or update Cutaway (in a clone, `make lab` builds the explorer).";
export const MAX_CHARACTERS = 512 * 1024 * 1024;

/** The input is not a record that this version can show. The message has the place and the reason. */
export class RecordError extends Error {}

/**
 * Returns the record in `given`, a JSON text or parsed JSON, with defaults for fields that earlier versions did not
 * write. Throws a RecordError for anything else.
 */
export function readRecord(given: unknown): CutawayRecord {
  const plain = typeof given === "string" ? parse(given) : given;
  if (!isPlainObject(plain) || !("schema_version" in plain)) {
    throw new RecordError("This is not a Cutaway record: it has no schema_version.");
  }
  if (plain.schema_version !== SCHEMA_VERSION) {
    throw new RecordError(
      `The record has schema version ${shorten(plain.schema_version)} and this Cutaway shows ` +
        `${SCHEMA_VERSION}. Open it with the version of Cutaway that wrote it, or run the cell again.`,
    );
  }
  // the quick check has no messages: a record may have millions of values
  if (!validator({ is: "Record" })(plain)) check(plain, { is: "Record" }, "record");
  const record = plain as unknown as CutawayRecord;
  const rule = firstViolation(record);
  if (rule !== null) throw new RecordError(rule);
  return record;
}

/** Returns what is wrong with a compile; null if nothing is. Missing fields of its parts get their defaults. */
export function compileFault(compile: Compile): string | null {
  try {
    if (!validator({ is: "Compile" })(compile)) check(compile, { is: "Compile" }, `compile ${compile.id}`);
  } catch (error) {
    return (error as Error).message;
  }
  return compileViolation(compile);
}

export function parse(text: string): unknown {
  if (text.length > MAX_CHARACTERS) {
    throw new RecordError(`The record has ${text.length} characters; at most ${MAX_CHARACTERS} are read.`);
  }
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new RecordError(`The record is not JSON: ${(error as Error).message}`);
  }
}

type Validator = (value: unknown) => boolean;
const validators = new Map<string, Validator>();

/** Returns a function that says whether a value has the shape; it gives missing fields their defaults, as `check` does. */
function validator(shape: Shape): Validator {
  if (shape === "int") return Number.isSafeInteger;
  if (shape === "number") return Number.isFinite;
  if (typeof shape === "string") return (value) => typeof value === shape;
  if ("maybe" in shape) {
    const inner = validator(shape.maybe);
    return (value) => value === null || inner(value);
  }
  if ("one" in shape) return (value) => shape.one.includes(value as string);
  if ("list" in shape) {
    const inner = validator(shape.list);
    return (value) => {
      if (!Array.isArray(value)) return false;
      for (let i = 0; i < value.length; i++) if (!inner(value[i])) return false;
      return true;
    };
  }
  if ("map" in shape) {
    const inner = validator(shape.map);
    return (value) => isPlainObject(value) && Object.values(value).every(inner);
  }
  if ("any" in shape) {
    const inner = shape.any.map(validator);
    return (value) => inner.some((each) => each(value));
  }
  return objectValidator(shape.is);
}

function objectValidator(type: string): Validator {
  const known = validators.get(type);
  if (known) return known;
  const fields: { [name: string]: Validator } = Object.create(null);
  const defaults = DEFAULTS[type] ?? {};
  const names = Object.keys(SHAPES[type]);
  const validate: Validator = (value) => {
    if (!isPlainObject(value)) return false;
    let count = 0;
    for (const name in value) {
      const field = fields[name];
      if (field === undefined || !field(value[name])) return false;
      count++;
    }
    if (count === names.length) return true;
    for (const name of names) {
      if (Object.hasOwn(value, name)) continue;
      if (!Object.hasOwn(defaults, name)) return false;
      value[name] = structuredClone(defaults[name]);
    }
    return true;
  };
  validators.set(type, validate);
  for (const name of names) fields[name] = validator(SHAPES[type][name]);
  return validate;
}

/** Throws a RecordError that names the place `at` unless `value` has the shape. */
function check(value: unknown, shape: Shape, at: string): void {
  if (typeof shape === "string") {
    if (!matchesScalar(value, shape)) throw typeError(at, shape, value);
  } else if ("maybe" in shape) {
    if (value !== null) check(value, shape.maybe, at);
  } else if ("one" in shape) {
    if (!shape.one.includes(value as string)) {
      throw new RecordError(`${at}: ${shorten(value)} is not one of ${shape.one.join(", ")}`);
    }
  } else if ("list" in shape) {
    if (!Array.isArray(value)) throw typeError(at, "a list", value);
    value.forEach((v, i) => {
      check(v, shape.list, `${at}[${i}]`);
    });
  } else if ("map" in shape) {
    if (!isPlainObject(value)) throw typeError(at, "an object", value);
    for (const [name, v] of Object.entries(value)) check(v, shape.map, `${at}[${shorten(name)}]`);
  } else if ("any" in shape) {
    if (!shape.any.some((s) => matches(value, s, at))) throw typeError(at, "another type", value);
  } else {
    checkFields(value, shape.is, at);
  }
}

/** Numbers must be finite, and integers exactly representable. */
function matchesScalar(value: unknown, shape: string): boolean {
  if (shape === "int") return Number.isSafeInteger(value);
  return shape === "number" ? Number.isFinite(value) : typeof value === shape;
}

/** Checks the fields of an object; a missing field, as in a record of an earlier version, gets its default. */
function checkFields(value: unknown, type: string, at: string): void {
  if (!isPlainObject(value)) throw typeError(at, "an object", value);
  const [fields, defaults] = [SHAPES[type], DEFAULTS[type] ?? {}];
  for (const name in value) {
    if (!Object.hasOwn(fields, name)) throw new RecordError(`${at}: unknown field ${shorten(name)}. ${OF_NEWER}`);
  }
  for (const name in fields) {
    if (!Object.hasOwn(value, name) && Object.hasOwn(defaults, name)) value[name] = structuredClone(defaults[name]);
    check(Object.hasOwn(value, name) ? value[name] : undefined, fields[name], `${at}.${name}`);
  }
}

function matches(value: unknown, shape: Shape, at: string): boolean {
  try {
    check(value, shape, at);
    return true;
  } catch {
    return false;
  }
}

function typeError(at: string, expected: string, value: unknown): RecordError {
  return new RecordError(`${at}: expected ${expected}, got ${typeName(value)}`);
}

function typeName(value: unknown): string {
  if (value === undefined) return "nothing";
  if (value === null) return "null";
  return Array.isArray(value) ? "a list" : typeof value;
}

/** Formats a value for an error message. */
function shorten(value: unknown): string {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > MAX_ECHOED ? `${text.slice(0, MAX_ECHOED)}...` : text;
}

export function isPlainObject(value: unknown): value is { [name: string]: unknown } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

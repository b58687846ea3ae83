/** Unpacks a record as `kernel_magics/display/packing.py` packs it: JSON text as gzip in base64. */

import { unpack } from "../../dom/unpack";
import { readLater, type Summary } from "./details";
import { isPlainObject, MAX_CHARACTERS, parse, RecordError, readRecord } from "./read";
import type { Record as CutawayRecord } from "./record";

const ENCODING = "gzip+base64";
const BY_COMPILE = "gzip+base64 by compile";
const MAX_BYTES = 4 * MAX_CHARACTERS;

/**
 * Returns the record in `given`: packed, or, in notebooks of earlier versions, as parsed JSON or JSON text. Rejects
 * with a RecordError for anything else.
 */
export async function unpackRecord(given: unknown): Promise<CutawayRecord> {
  if (!isPlainObject(given) || !("encoding" in given)) return readRecord(given);
  const { encoding, data, details } = given;
  if ((encoding !== ENCODING && encoding !== BY_COMPILE) || typeof data !== "string") {
    throw new RecordError(`The record is not encoded as ${ENCODING}: a newer Cutaway may have written it.`);
  }
  let text: string;
  try {
    text = new TextDecoder().decode(await unpack(data, MAX_BYTES));
  } catch (error) {
    throw new RecordError(`The record cannot be decompressed: ${(error as Error).message}`);
  }
  return encoding === ENCODING ? readRecord(text) : readIndex(text, details);
}

/** Returns the record of an index; the details of its compiles are read when they are first used. */
function readIndex(text: string, details: unknown): CutawayRecord {
  const index = parse(text);
  if (!isPlainObject(index) || !Array.isArray(details) || !Array.isArray(index.summaries)) {
    throw new RecordError("The record has no index, or no details of its compiles.");
  }
  const { summaries } = index;
  const record = readRecord(index.record);
  const compiles = record.frames.flatMap((frame) => frame.compiles);
  const isComplete = compiles.length === details.length && compiles.length === summaries.length;
  if (!isComplete || !details.every((each) => typeof each === "string") || !summaries.every(isSummary)) {
    throw new RecordError("The record does not have the details of each compile.");
  }
  if (compiles.some((compile) => compile.artifacts.length || compile.guards.length || compile.edges.length)) {
    throw new RecordError("The index of the record has details of a compile.");
  }
  compiles.forEach((compile, at) => {
    readLater(compile, details[at], summaries[at]);
  });
  return record;
}

function isSummary(given: unknown): given is Summary {
  if (!isPlainObject(given)) return false;
  const { nodes, saved_count, saved_bytes, lines, kernel_lines = [] } = given;
  const numbers = [nodes ?? 0, saved_count, saved_bytes];
  const areLines = Array.isArray(kernel_lines) && kernel_lines.every(isStrings);
  return numbers.every(Number.isSafeInteger) && isStrings(lines) && areLines;
}

function isStrings(given: unknown): boolean {
  return Array.isArray(given) && given.every((each) => typeof each === "string");
}

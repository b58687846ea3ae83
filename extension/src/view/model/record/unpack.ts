/** Unpacks a record as `kernel_magics/display/packing.py` packs it: JSON text as gzip in base64. */

import { unpack } from "../../dom/unpack";
import { isPlainObject, MAX_CHARACTERS, RecordError, readRecord } from "./read";
import type { Record as CutawayRecord } from "./record";

const ENCODING = "gzip+base64";
const MAX_BYTES = 4 * MAX_CHARACTERS;

/**
 * Returns the record in `given`: packed, or, in notebooks of earlier versions, as parsed JSON or JSON text. Rejects
 * with a RecordError for anything else.
 */
export async function unpackRecord(given: unknown): Promise<CutawayRecord> {
  if (!isPlainObject(given) || !("encoding" in given)) return readRecord(given);
  if (given.encoding !== ENCODING || typeof given.data !== "string") {
    throw new RecordError(`The record is not encoded as ${ENCODING}: a newer Cutaway may have written it.`);
  }
  let bytes: ArrayBuffer;
  try {
    bytes = await unpack(given.data, MAX_BYTES);
  } catch (error) {
    throw new RecordError(`The record cannot be decompressed: ${(error as Error).message}`);
  }
  return readRecord(new TextDecoder().decode(bytes));
}

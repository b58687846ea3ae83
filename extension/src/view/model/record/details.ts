/**
 * The details of compiles: their texts, graphs and links. In a record of many compiles each compile's details are packed
 * separately, and are read when something first uses them. Until then a summary says what lists show of the compile.
 */

import { gunzipSync } from "fflate";
import { decodeBase64 } from "../../dom/unpack";
import { compileFault, MAX_CHARACTERS, RecordError } from "./read";
import type { Compile, Graph, ItemId } from "./record";

export const DETAILS = ["artifacts", "guards", "edges", "partition", "expansions"] as const;
type Details = Pick<Compile, (typeof DETAILS)[number]>;

/** What is shown of a compile without its details. */
export interface Summary {
  /** The number of captured graphs that compute something; packed records of earlier versions have none. */
  graphs?: number;
  /** The number of nodes of the captured graph; null without a graph. */
  nodes: number | null;
  saved_count: number;
  saved_bytes: number;
  /** The user's lines from which something was made. */
  lines: ItemId[];
  /** The user's lines of each kernel; packed records of earlier versions have none. */
  kernel_lines?: ItemId[][];
}

const summaries = new WeakMap<Compile, Summary>();
const unread = new WeakSet<Compile>();

/** Returns the summary of a compile. */
export function summaryOf(compile: Compile): Summary {
  const known = summaries.get(compile);
  if (known) return known;
  const all = compile.artifacts.filter(({ pane }) => pane === "captured");
  const [captured] = all;
  const sources = compile.edges.flatMap((edge) => edge.sources.filter((item) => item.startsWith("src:")));
  const guarded = compile.guards.flatMap(({ line }) => (line === null ? [] : [line]));
  const made: Summary = {
    graphs: all.filter(({ graph }) => graph && computes(graph)).length,
    nodes: captured ? (captured.graph?.nodes.length ?? 0) : null,
    saved_count: compile.partition?.saved_count ?? 0,
    saved_bytes: compile.partition?.saved_bytes ?? 0,
    lines: [...new Set([...sources, ...guarded])],
  };
  summaries.set(compile, made);
  return made;
}

/** Whether a graph has operations, and not only what Python reads, as `Graph.computes` says. */
function computes({ nodes }: Graph): boolean {
  return nodes.some(({ op, role }) => op.startsWith("call_") && role !== "read");
}

/** Returns the number of graphs of a compile that compute something, as `Compile.captured_graphs` has them. */
export function graphCount(compile: Compile): number {
  const { graphs, nodes } = summaryOf(compile);
  return graphs ?? (nodes === null ? 0 : 1);
}

/** Whether the details of a compile are packed, and nothing has used them yet. */
export function isUnread(compile: Compile): boolean {
  return unread.has(compile);
}

/** Makes the details of a compile be read from `packed` when they are first used. */
export function readLater(compile: Compile, packed: string, summary: Summary): void {
  summaries.set(compile, summary);
  unread.add(compile);
  for (const name of DETAILS) {
    Object.defineProperty(compile, name, {
      configurable: true,
      enumerable: true,
      get: () => {
        setDetails(compile, packed);
        return compile[name];
      },
    });
  }
}

/** Reads the details of a compile; if they are not right, the compile has none, and a failure that says why. */
function setDetails(compile: Compile, packed: string): void {
  unread.delete(compile);
  let details: Details = { artifacts: [], guards: [], edges: [], partition: null, expansions: [] };
  let fault = "";
  try {
    details = detailsOf(packed);
  } catch (error) {
    fault = (error as Error).message;
  }
  for (const name of DETAILS) {
    Object.defineProperty(compile, name, {
      configurable: true,
      enumerable: true,
      writable: true,
      value: details[name],
    });
  }
  fault ||= compileFault(compile) ?? "";
  if (!fault) return;
  Object.assign(compile, { artifacts: [], guards: [], edges: [], partition: null, expansions: [] });
  const message = `The details of this compile cannot be shown: ${fault}`;
  compile.failures.push({
    stage: "run",
    kind: "bug",
    message,
    detail: "",
    meaning: "",
    filename: "",
    lineno: 0,
    line: null,
  });
}

function detailsOf(packed: string): Details {
  const bytes = decodeBase64(packed);
  if (bytes.length < 18) throw new RecordError("they are truncated");
  // gzip ends with the size, by which the output is allocated; fflate writes no more than that
  const size = new DataView(bytes.buffer, bytes.byteOffset + bytes.length - 4).getUint32(0, true);
  if (size > MAX_CHARACTERS) throw new RecordError(`they have ${size} bytes`);
  const plain: unknown = JSON.parse(new TextDecoder().decode(gunzipSync(bytes, { out: new Uint8Array(size) })));
  const names = typeof plain === "object" && plain !== null ? Object.keys(plain) : [];
  if (names.length !== DETAILS.length || !DETAILS.every((name) => names.includes(name))) {
    throw new RecordError("they have other fields");
  }
  return plain as Details;
}

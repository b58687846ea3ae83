/** The rules of a record beyond the types of its fields, the same as in compiler_core/tools/record_reading.py. */

import type { Artifact, Compile, Record as CutawayRecord, Graph } from "./record";
import { isConsistent } from "./step_rules";

const PART = "(?!\\.{1,2}(?:/|$))[A-Za-z0-9_!.\\[\\]-]{1,40}";
const COMPILE_ID = new RegExp(`^${PART}(?:/${PART}){0,5}$`);

/** Returns the first violation with its place, or null if all rules hold. */
export function firstViolation(record: CutawayRecord): string | null {
  for (const found of violations(record)) return found;
  return null;
}

/** Returns the first violation of a compile alone, or null. Its texts must have its own id, as no other compile's have. */
export function compileViolation(compile: Compile): string | null {
  const at = `compile ${compile.id}`;
  const ids = compile.artifacts.map(({ id }) => id);
  if (hasDuplicates(ids)) return `${at}: two artifacts have one id`;
  if (!ids.every((id) => id.startsWith(`${compile.id}:`))) return `${at}: an artifact is of another compile`;
  for (const found of compileViolations(compile, at)) return found;
  return null;
}

function* violations({ sources, frames }: CutawayRecord): Iterable<string> {
  const compiles = frames.flatMap((frame) => frame.compiles);
  const artifacts = [...sources, ...compiles.flatMap((compile) => compile.artifacts)];
  if (hasDuplicates(frames.map(({ id }) => id))) yield "record.frames: two frames have one id";
  if (hasDuplicates(compiles.map(({ id }) => id))) yield "record.frames: two compiles have one id";
  if (hasDuplicates(artifacts.map(({ id }) => id))) yield "record: two artifacts have one id";
  for (const [i, source] of sources.entries()) yield* artifactViolations(source, `record.sources[${i}]`);
  for (const [i, frame] of frames.entries()) {
    for (const [j, compile] of frame.compiles.entries()) {
      const at = `record.frames[${i}].compiles[${j}]`;
      if (compile.frame !== frame.id) yield `${at}.frame: the compile is of another frame`;
      yield* compileViolations(compile, at);
    }
  }
}

function hasDuplicates(values: unknown[]): boolean {
  return new Set(values).size !== values.length;
}

function* compileViolations({ id, artifacts, steps }: Compile, at: string): Iterable<string> {
  if (!COMPILE_ID.test(id)) yield `${at}.id: not the id of a compile, such as 0/1`;
  for (const [i, artifact] of artifacts.entries()) yield* artifactViolations(artifact, `${at}.artifacts[${i}]`);
  for (const [i, attempt] of steps.entries()) {
    if (!isConsistent(attempt)) yield `${at}.steps[${i}]: the steps are inconsistent`;
  }
}

function* artifactViolations({ text, spans, graph }: Artifact, at: string): Iterable<string> {
  const lines = lineCount(text);
  if (hasDuplicates(spans.map(({ key }) => key))) yield `${at}.spans: two items have one key`;
  for (let i = 0; i < spans.length; i++) {
    const { first, last } = spans[i];
    if (!(1 <= first && first <= last && last <= lines)) {
      yield `${at}.spans[${i}]: no lines of the text, which has ${lines.toLocaleString("en")}`;
    }
  }
  if (graph) yield* graphViolations(graph, `${at}.graph`);
}

function* graphViolations({ nodes, edges }: Graph, at: string): Iterable<string> {
  const keys = new Set(nodes.map(({ key }) => key));
  if (keys.size !== nodes.length) yield `${at}.nodes: two nodes have one key`;
  for (let i = 0; i < edges.length; i++) {
    const edge = edges[i];
    if (edge.length !== 2 || !keys.has(edge[0]) || !keys.has(edge[1])) {
      yield `${at}.edges[${i}]: not from one node to another`;
    }
  }
}

function lineCount(text: string): number {
  let count = 1;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) count++;
  return count;
}

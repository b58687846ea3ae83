/** What must hold in a record beyond the types of its fields: compiler_core/records/rules.py, for the browser. */

import type { Artifact, Compile, Record as CutawayRecord, Graph } from "./record";
import { fit } from "./replay";

const PART = "(?!\\.{1,2}(?:/|$))[A-Za-z0-9_!.\\[\\]-]{1,40}";
const COMPILE_ID = new RegExp(`^${PART}(?:/${PART}){0,5}$`);

/** The first rule that is broken, with the place; null: all hold. */
export function broken(record: CutawayRecord): string | null {
  for (const found of all(record)) return found;
  return null;
}

function* all({ sources, frames }: CutawayRecord): Iterable<string> {
  const compiles = frames.flatMap((frame) => frame.compiles);
  const artifacts = [...sources, ...compiles.flatMap((compile) => compile.artifacts)];
  if (repeats(frames.map(({ id }) => id))) yield "record.frames: two frames have one id";
  if (repeats(compiles.map(({ id }) => id))) yield "record.frames: two compiles have one id";
  if (repeats(artifacts.map(({ id }) => id))) yield "record: two texts have one id";
  for (const [i, source] of sources.entries()) yield* ofArtifact(source, `record.sources[${i}]`);
  for (const [i, frame] of frames.entries()) {
    for (const [j, compile] of frame.compiles.entries()) {
      const at = `record.frames[${i}].compiles[${j}]`;
      if (compile.frame !== frame.id) yield `${at}.frame: the compile is of another frame`;
      yield* ofCompile(compile, at);
    }
  }
}

function repeats(values: unknown[]): boolean {
  return new Set(values).size !== values.length;
}

function* ofCompile({ id, artifacts, steps }: Compile, at: string): Iterable<string> {
  if (!COMPILE_ID.test(id)) yield `${at}.id: not the id of a compile, such as 0/1`;
  for (const [i, artifact] of artifacts.entries()) yield* ofArtifact(artifact, `${at}.artifacts[${i}]`);
  for (const [i, attempt] of steps.entries()) {
    if (!fit(attempt)) yield `${at}.steps[${i}]: the steps do not fit together`;
  }
}

function* ofArtifact({ text, spans, graph }: Artifact, at: string): Iterable<string> {
  const lines = text.split("\n").length;
  if (repeats(spans.map(({ key }) => key))) yield `${at}.spans: two items have one key`;
  for (const [i, { first, last }] of spans.entries()) {
    if (!(1 <= first && first <= last && last <= lines)) {
      yield `${at}.spans[${i}]: no lines of the text, which has ${lines}`;
    }
  }
  if (graph) yield* ofGraph(graph, `${at}.graph`);
}

function* ofGraph({ nodes, edges }: Graph, at: string): Iterable<string> {
  const keys = new Set(nodes.map(({ key }) => key));
  if (keys.size !== nodes.length) yield `${at}.nodes: two nodes have one key`;
  for (const [i, edge] of edges.entries()) {
    if (edge.length !== 2 || !edge.every((key) => keys.has(key)))
      yield `${at}.edges[${i}]: not from one node to another`;
  }
}

/** Provenance: which items of a record are linked, and the user's line that each was made from. */

import { isUnread, summaryOf } from "../record/details";
import type { Artifact, Compile, Record as CutawayRecord, ItemId, Node } from "../record/record";

/** Number of colours by which the user's lines are distinguished: `--c0` to `--c7` in theme.css. */
export const COLOURS = 8;

/** The links between all items of a record, in both directions. */
export class Links {
  private readonly sourcesOf = new Map<ItemId, ItemId[]>();
  private readonly derivedFrom = new Map<ItemId, ItemId[]>();
  private readonly artifacts = new Map<string, Artifact>();
  /** The keys of an artifact's items, collected on first use: a record may have a million. */
  private readonly keys = new Map<Artifact, Set<string>>();
  private readonly nodes = new Map<Artifact, Map<string, Node>>();
  private readonly lines = new Map<ItemId, ItemId | null>();
  private readonly colours = new Map<ItemId, number>();

  /** The compiles whose details nothing has used yet, by id. */
  private readonly unread = new Map<string, Compile>();
  /** The user's lines from which something was made. */
  private readonly used = new Set<ItemId>();

  constructor(record: CutawayRecord) {
    for (const source of record.sources) this.artifacts.set(source.id, source);
    for (const compile of record.frames.flatMap((frame) => frame.compiles)) {
      for (const line of summaryOf(compile).lines) this.used.add(line);
      if (isUnread(compile)) this.unread.set(compile.id, compile);
      else this.addCompile(compile);
    }
    this.colourLines(record.sources);
  }

  /** Adds the links of a compile whose details are not read yet; returns whether there was one. */
  include(id: string): boolean {
    const compile = this.unread.get(id);
    if (!compile) return false;
    this.unread.delete(id);
    this.addCompile(compile);
    return true;
  }

  /** Adds the links of the compile that an item belongs to. */
  private includeFor(item: ItemId): void {
    if (this.unread.size) this.include(item.slice(0, Math.max(0, item.indexOf(":"))));
  }

  private addCompile(compile: Compile): void {
    for (const artifact of compile.artifacts) this.artifacts.set(artifact.id, artifact);
    for (const { made, sources } of compile.edges) this.addEdge(made, sources);
    const guards = compile.artifacts.find((a) => a.pane === "guards");
    for (const guard of compile.guards) {
      if (guards && guard.line) this.addEdge(`${guards.id}#${guard.key}`, [guard.line]);
    }
  }

  private addEdge(made: ItemId, sources: ItemId[]): void {
    const known = this.sourcesOf.get(made);
    this.sourcesOf.set(made, known ? [...known, ...sources] : sources);
    for (const source of sources) appendTo(this.derivedFrom, source, made);
  }

  /** Assigns colours in turn to the lines from which something was made, so that neighbouring lines differ. */
  private colourLines(sources: Artifact[]): void {
    let next = 0;
    for (const source of sources) {
      for (const span of source.spans) {
        const item = `${source.id}#${span.key}`;
        if (this.used.has(item)) this.colours.set(item, next++ % COLOURS);
      }
    }
  }

  /** Returns `items`, everything they were made from, and everything made from them. */
  linked(items: Iterable<ItemId>): Set<ItemId> {
    const start = [...items];
    for (const item of start) this.includeFor(item);
    return new Set([...reachable(start, this.sourcesOf), ...reachable(start, this.derivedFrom)]);
  }

  /** Returns what `item` was made from directly. */
  sources(item: ItemId): ItemId[] {
    this.includeFor(item);
    return this.sourcesOf.get(item) ?? [];
  }

  /** Returns the node of a graph that an item is. */
  node(item: ItemId): Node | undefined {
    const artifact = this.artifactOf(item);
    if (!artifact?.graph) return undefined;
    let nodes = this.nodes.get(artifact);
    if (!nodes) {
      nodes = new Map(artifact.graph.nodes.map((node) => [node.key, node]));
      this.nodes.set(artifact, nodes);
    }
    return nodes.get(keyOf(item));
  }

  /** Returns the name that an input of a graph has in the captured graph; empty for other nodes. */
  inputName(item: ItemId): string {
    if (this.node(item)?.op !== "placeholder") return "";
    const origin = this.captured(item);
    return origin === undefined ? "" : keyOf(origin);
  }

  /** Returns the node of the captured graph that a node was made from: itself, or over the forward and joint graph. */
  captured(item: ItemId): ItemId | undefined {
    for (let at: ItemId | undefined = item, graphs = 0; at !== undefined && graphs < 4; graphs++) {
      if (this.artifactOf(at)?.pane === "captured") return at;
      [at] = this.sources(at);
    }
    return undefined;
  }

  /** Returns the graph that the nodes of a graph were made from. */
  inputGraph(artifact: Artifact): Artifact | undefined {
    for (const { key } of artifact.spans) {
      for (const source of this.sources(`${artifact.id}#${key}`)) {
        const found = this.artifactOf(source);
        if (found?.graph) return found;
      }
    }
    return undefined;
  }

  /** Returns those of `passed`, graphs after passes, that were made from `graph`, possibly over other passes. */
  passesOver(graph: Artifact, passed: Artifact[]): Artifact[] {
    return passed.filter((each) => {
      const seen = new Set<Artifact>();
      for (let at = this.inputGraph(each); at && !seen.has(at); at = this.inputGraph(at)) {
        if (at === graph) return true;
        if (at.pane !== "passes") return false;
        seen.add(at);
      }
      return false;
    });
  }

  /** Returns what was made directly from `item`. */
  derived(item: ItemId): ItemId[] {
    this.includeFor(item);
    return this.derivedFrom.get(item) ?? [];
  }

  isLinked(item: ItemId): boolean {
    this.includeFor(item);
    return this.sourcesOf.has(item) || this.derivedFrom.has(item) || this.used.has(item);
  }

  /** Whether the record has this item. */
  has(item: ItemId): boolean {
    const artifact = this.artifactOf(item);
    if (!artifact) return false;
    const keys = this.keys.get(artifact) ?? new Set(artifact.spans.map((span) => span.key));
    this.keys.set(artifact, keys);
    return keys.has(keyOf(item));
  }

  artifactOf(item: ItemId): Artifact | undefined {
    this.includeFor(item);
    return this.artifacts.get(item.slice(0, item.indexOf("#")));
  }

  /** Returns the first line of an item's text. */
  text(item: ItemId): string {
    const artifact = this.artifactOf(item);
    const key = keyOf(item);
    const span = artifact?.spans.find((s) => s.key === key);
    return (span && artifact?.text.split("\n")[span.first - 1]?.trim()) || key;
  }

  /** Returns the user's line that `item` was made from: the one fewest links away, and the first of several. */
  userLine(item: ItemId): ItemId | null {
    const known = this.lines.get(item);
    if (known !== undefined) return known;
    const found = this.findUserLine(item);
    this.lines.set(item, found);
    return found;
  }

  private findUserLine(item: ItemId): ItemId | null {
    this.includeFor(item);
    const seen = new Set([item]);
    for (const at of seen) {
      if (this.colours.has(at)) return at;
      for (const source of this.sourcesOf.get(at) ?? []) seen.add(source);
    }
    return null;
  }

  /** Returns the colour of `item`'s user line, 0 to COLOURS - 1. */
  colour(item: ItemId): number | null {
    const line = this.userLine(item);
    return line === null ? null : (this.colours.get(line) ?? null);
  }
}

/** Returns the key of an item, the part after its artifact's id. */
export function keyOf(item: ItemId): string {
  return item.slice(item.indexOf("#") + 1);
}

/** Appends a value to the list at a key of a map. */
export function appendTo<K, V>(map: Map<K, V[]>, at: K, value: V): void {
  const list = map.get(at);
  if (list) list.push(value);
  else map.set(at, [value]);
}

function reachable(start: ItemId[], step: Map<ItemId, ItemId[]>): Set<ItemId> {
  const seen = new Set(start);
  // iterating over a Set includes values that are added during the iteration
  for (const item of seen) {
    for (const next of step.get(item) ?? []) seen.add(next);
  }
  return seen;
}

/** Provenance: which items of a record belong together, and the user's line behind each. */

import type { Artifact, Compile, Record as CutawayRecord, ItemId } from "./record";

/** How many colours the user's lines are told apart by; explorer.css has one for each. */
export const COLOURS = 8;

export class Links {
  private readonly above = new Map<ItemId, ItemId[]>();
  private readonly below = new Map<ItemId, ItemId[]>();
  private readonly artifacts = new Map<string, Artifact>();
  /** The keys of an artifact's items, found when they are first asked for: a record may have a million. */
  private readonly keys = new Map<Artifact, Set<string>>();
  private readonly lines = new Map<ItemId, ItemId | null>();
  private readonly colours = new Map<ItemId, number>();

  constructor(record: CutawayRecord) {
    for (const source of record.sources) this.artifacts.set(source.id, source);
    for (const frame of record.frames) {
      for (const compile of frame.compiles) this.addCompile(compile);
    }
    this.colourLines(record.sources);
  }

  private addCompile(compile: Compile): void {
    for (const artifact of compile.artifacts) this.artifacts.set(artifact.id, artifact);
    for (const { made, sources } of compile.edges) this.add(made, sources);
    const guards = compile.artifacts.find((a) => a.pane === "guards");
    for (const guard of compile.guards) {
      if (guards && guard.line) this.add(`${guards.id}#${guard.key}`, [guard.line]);
    }
  }

  private add(made: ItemId, sources: ItemId[]): void {
    const known = this.above.get(made);
    this.above.set(made, known ? [...known, ...sources] : sources);
    for (const source of sources) push(this.below, source, made);
  }

  /** Lines from which something was made take the colours in turn, so that neighbours differ. */
  private colourLines(sources: Artifact[]): void {
    let next = 0;
    for (const source of sources) {
      for (const span of source.spans) {
        const item = `${source.id}#${span.key}`;
        if (this.below.has(item)) this.colours.set(item, next++ % COLOURS);
      }
    }
  }

  /** All that `items` came from and all that came from them, themselves included. */
  linked(items: Iterable<ItemId>): Set<ItemId> {
    const start = [...items];
    return new Set([...reach(start, this.above), ...reach(start, this.below)]);
  }

  /** What `item` was made from, one edge above. */
  sources(item: ItemId): ItemId[] {
    return this.above.get(item) ?? [];
  }

  /** The graph that a graph's nodes were made from. */
  graphBefore(artifact: Artifact): Artifact | undefined {
    for (const { key } of artifact.spans) {
      for (const source of this.sources(`${artifact.id}#${key}`)) {
        const found = this.artifactOf(source);
        if (found?.graph) return found;
      }
    }
    return undefined;
  }

  /** What was made from `item`, one edge below. */
  made(item: ItemId): ItemId[] {
    return this.below.get(item) ?? [];
  }

  isLinked(item: ItemId): boolean {
    return this.above.has(item) || this.below.has(item);
  }

  /** Whether there is such an item. */
  has(item: ItemId): boolean {
    const artifact = this.artifactOf(item);
    if (!artifact) return false;
    const keys = this.keys.get(artifact) ?? new Set(artifact.spans.map((span) => span.key));
    this.keys.set(artifact, keys);
    return keys.has(keyOf(item));
  }

  artifactOf(item: ItemId): Artifact | undefined {
    return this.artifacts.get(item.slice(0, item.indexOf("#")));
  }

  /** The first line of an item's text. */
  text(item: ItemId): string {
    const artifact = this.artifactOf(item);
    const key = keyOf(item);
    const span = artifact?.spans.find((s) => s.key === key);
    return (span && artifact?.text.split("\n")[span.first - 1]?.trim()) || key;
  }

  /** The user's line nearest above `item`: by the fewest edges, the first where several are as near. */
  userLine(item: ItemId): ItemId | null {
    const known = this.lines.get(item);
    if (known !== undefined) return known;
    const found = this.searchUserLine(item);
    this.lines.set(item, found);
    return found;
  }

  private searchUserLine(item: ItemId): ItemId | null {
    const seen = new Set([item]);
    for (const at of seen) {
      if (this.colours.has(at)) return at;
      for (const source of this.above.get(at) ?? []) seen.add(source);
    }
    return null;
  }

  /** The colour of the user's line behind `item`, 0 to COLOURS - 1. */
  colour(item: ItemId): number | null {
    const line = this.userLine(item);
    return line === null ? null : (this.colours.get(line) ?? null);
  }
}

export function keyOf(item: ItemId): string {
  return item.slice(item.indexOf("#") + 1);
}

export function push<K, V>(map: Map<K, V[]>, at: K, value: V): void {
  const list = map.get(at);
  if (list) list.push(value);
  else map.set(at, [value]);
}

function reach(start: ItemId[], step: Map<ItemId, ItemId[]>): Set<ItemId> {
  const seen = new Set(start);
  // a Set is walked in the order of insertion and sees what is added on the way
  for (const item of seen) {
    for (const next of step.get(item) ?? []) seen.add(next);
  }
  return seen;
}

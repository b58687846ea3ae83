/** What is looked at: compile, panes, the items pointed at and pinned.  The one thing that changes. */

import { isWords, recall, remember } from "../dom/memory";
import { failuresOf } from "./failures";
import type { Model } from "./host";
import { keyOf, Links } from "./links";
import { type Mark, marksOf } from "./marks";
import type { Artifact, BudgetPoint, Compile, Record as CutawayRecord, Frame, ItemId } from "./record";

export type Change = "compile" | "hover" | "pin" | "shown" | "step" | "budget" | "attempt";
export type PaneName =
  | Artifact["pane"]
  | "overview"
  | "steps"
  | "partition"
  | "timings"
  | "sizes"
  | "costs"
  | "roofline"
  | "accuracy"
  | "tuning"
  | "compare"
  | "engines";

const DEFAULT_SHOWN = ["source", "captured"];
export const MOST_PANES = 4;

/** The frame with this id; stock's ids count all frames of the process, so they are no indices. */
export function frameOf(record: CutawayRecord, id: number): Frame | null {
  return record.frames.find((frame) => frame.id === id) ?? null;
}

export class State {
  readonly links: Links;
  /** What the user's lines are marked with. */
  readonly marks: Mark[];
  frame: Frame | null;
  compile: Compile | null;
  hovered = new Set<ItemId>();
  pinned = new Set<ItemId>();
  /** What the hovered and the pinned items are linked to, in any compile. */
  hoverLinked = new Set<ItemId>();
  pinLinked = new Set<ItemId>();
  /** What the step of the symbolic interpreter that is looked at belongs to. */
  stepped = new Set<ItemId>();
  /** The memory budget that is looked at, where it is another than was compiled with. */
  budget: BudgetPoint | null = null;
  /** The attempt and the step that was looked at last, for each compile. */
  readonly stoodAt = new Map<string, [attempt: number, step: number]>();
  /** What stands beside an item where two compiles are set against each other: it lights up with it. */
  twins = new Map<ItemId, ItemId>();
  /** The compile that each was set against last. */
  readonly comparedWith = new Map<string, string>();
  /** The attempt and the step to go to, until the pane of steps is there. */
  wantedStep: [attempt: number, step: number] | null = null;
  shown: string[];
  /** How many panes there is room for. */
  room = 2;
  private readonly listeners = new Map<Change, (() => void)[]>();
  private readonly followed: [string, () => void][] = [];

  constructor(
    readonly record: CutawayRecord,
    readonly model: Model,
  ) {
    this.links = new Links(record);
    this.marks = marksOf(record, this.links);
    this.compile = this.findCompile(model.get("compile")) ?? this.firstCompile();
    this.frame = this.compile ? frameOf(record, this.compile.frame) : (record.frames[0] ?? null);
    this.shown = this.wantedPanes();
    this.takePins();
    this.follow("compile", () => this.select(this.findCompile(model.get("compile")) ?? this.compile));
    this.follow("shown", () => {
      this.shown = this.wantedPanes();
      this.tell("shown");
    });
    this.follow("selection", () => {
      this.takePins();
      this.tell("pin");
    });
  }

  private follow(trait: string, changed: () => void): void {
    this.model.on(`change:${trait}`, changed);
    this.followed.push([`change:${trait}`, changed]);
  }

  destroy(): void {
    for (const [event, callback] of this.followed) this.model.off(event, callback);
  }

  on(change: Change, callback: () => void): void {
    this.listeners.set(change, [...(this.listeners.get(change) ?? []), callback]);
  }

  private tell(change: Change): void {
    for (const callback of this.listeners.get(change) ?? []) callback();
  }

  /** What the reader calls a file: a cell by its number, another by its last name. */
  label(filename: string): string {
    return this.record.labels[filename] ?? (filename.split("/").pop() || filename);
  }

  findCompile(id: string): Compile | null {
    for (const frame of this.record.frames) {
      for (const compile of frame.compiles) if (compile.id === id) return compile;
    }
    return null;
  }

  /** To begin with: the compile with the largest graph. */
  private firstCompile(): Compile | null {
    const size = (c: Compile) => c.artifacts.find((a) => a.pane === "captured")?.graph?.nodes.length ?? 0;
    const all = this.record.frames.flatMap((f) => f.compiles);
    return all.reduce<Compile | null>((best, c) => (best && size(best) >= size(c) ? best : c), null);
  }

  private wantedPanes(): string[] {
    const wanted = this.model.get("shown");
    const usual = this.record.comparison ? ["source", "engines"] : (recall("shown", isWords) ?? DEFAULT_SHOWN);
    if (wanted.length) return wanted.slice(0, MOST_PANES);
    // what failed is seen at once
    const failed = failuresOf(this.record).some(({ failure }) => failure.kind !== "refusal");
    return (failed && !usual.includes("overview") ? [usual[0], "overview"] : usual).slice(0, MOST_PANES);
  }

  private takePins(): void {
    this.pinned = new Set(this.model.get("selection"));
    this.pinLinked = this.links.linked(this.pinned);
  }

  /** Look at a compile. */
  select(compile: Compile | null): void {
    if (!compile || compile === this.compile) return;
    const pinned = this.pinnedIn(compile);
    this.compile = compile;
    this.budget = null;
    this.frame = frameOf(this.record, compile.frame);
    this.write("compile", compile.id);
    this.tell("compile");
    if (!same(pinned, this.pinned)) this.pin(pinned);
  }

  /** What is pinned, in another compile: the items of the same name there, where there are any. */
  private pinnedIn(compile: Compile): Set<ItemId> {
    const there = [...this.pinned].map((item) => {
      const artifact = this.links.artifactOf(item);
      const same = compile.artifacts.find((a) => a.name === artifact?.name);
      const key = keyOf(item);
      return same?.spans.some((s) => s.key === key) ? `${same.id}#${key}` : item;
    });
    return new Set(there);
  }

  /** Look at a frame, at its first compile where it has one. */
  selectFrame(frame: Frame): void {
    if (frame.compiles.length) {
      this.select(frame.compiles[0]);
    } else if (frame !== this.frame) {
      this.frame = frame;
      this.compile = null;
      this.tell("compile");
    }
  }

  /** Look at the cut of another memory budget; null: the one that was compiled. */
  weigh(budget: BudgetPoint | null): void {
    this.budget = budget;
    this.tell("budget");
  }

  hover(items: Iterable<ItemId>): void {
    const next = new Set(items);
    for (const item of [...next]) next.add(this.twins.get(item) ?? item);
    if (same(next, this.hovered)) return;
    this.hovered = next;
    this.hoverLinked = this.links.linked(next);
    this.tell("hover");
  }

  /** Look at a step of the symbolic interpreter. */
  stepTo(attempt: number, step: number): void {
    this.wantedStep = [attempt, step];
    this.open("steps");
    if (this.wantedStep) this.tell("attempt");
  }

  /** Stand at a step that belongs to `items`. */
  stand(items: Iterable<ItemId>): void {
    const next = new Set(items);
    if (same(next, this.stepped)) return;
    this.stepped = next;
    this.tell("step");
  }

  /** Pin `items`, or let go of them where they are pinned already. */
  pin(items: Iterable<ItemId>): void {
    const next = new Set(items);
    const chosen = same(next, this.pinned) ? [] : [...next];
    // the trait's own change comes back through takePins
    this.write("selection", chosen);
  }

  /** Show what a mark or a count is about: its compile, the pane that tells more, and its line, pinned. */
  goTo({ compile, pane, line }: { compile: string; pane: PaneName; line: ItemId | null }): void {
    this.select(this.findCompile(compile));
    this.open(pane);
    if (line !== null && !same(new Set([line]), this.pinned)) this.pin([line]);
  }

  /** Show `pane`; where it is not shown, beside the others if there is room, else in place of the last that may go. */
  open(pane: string, mayGo: (pane: string) => boolean = () => true): void {
    const names = this.shown.map((shown) => shown.split(":")[0]);
    if (names.includes(pane)) return;
    const free = names.findLastIndex(mayGo);
    if (free < 0 || names.length < this.room) this.setShown([...this.shown, pane]);
    else this.show(pane, free);
  }

  /** Show `pane` in place `at`. */
  show(pane: string, at: number): void {
    this.setShown(this.shown.map((s, i) => (i === at ? pane : s)));
  }

  setShown(wanted: string[]): void {
    const shown = wanted.slice(0, MOST_PANES);
    remember("shown", shown);
    this.write("shown", shown);
  }

  private write<K extends "selection" | "shown" | "compile">(
    trait: K,
    value: Parameters<typeof this.model.set<K>>[1],
  ): void {
    this.model.set(trait, value);
    this.model.save_changes();
  }

  /** The artifacts that `pane` can show of what is looked at. */
  artifacts(pane: string): Artifact[] {
    if (pane === "source") return this.sources();
    return this.compile?.artifacts.filter((a) => a.pane === pane) ?? [];
  }

  /** The user's files, that of the frame first. */
  private sources(): Artifact[] {
    const own = this.record.sources.filter((s) => s.name === this.frame?.filename);
    return [...own, ...this.record.sources.filter((s) => !own.includes(s))];
  }

  /** Of `items`, those that a pane can show now. */
  visible(items: Iterable<ItemId>): ItemId[] {
    const here = new Set([...this.record.sources, ...(this.compile?.artifacts ?? [])]);
    return [...items].filter((item) => {
      const artifact = this.links.artifactOf(item);
      return artifact !== undefined && here.has(artifact);
    });
  }
}

function same(a: Set<ItemId>, b: Set<ItemId>): boolean {
  return a.size === b.size && [...a].every((item) => b.has(item));
}

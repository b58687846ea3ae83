/**
 * The state of an explorer: the current compile, the panes, the hovered and pinned items. Everything else follows from
 * it.
 */

import { isStringList, loadSetting, saveSetting } from "../dom/storage";
import { addressOf } from "./address";
import { keyOf, Links } from "./analysis/links";
import { type Mark, marksOf } from "./analysis/marks";
import type { PaneName } from "./content";
import { summaryOf } from "./record/details";
import type {
  Artifact,
  BudgetPoint,
  Compile,
  Record as CutawayRecord,
  Frame,
  ItemId,
  Problem,
  View,
} from "./record/record";
import { stageRank, USUAL_PANES } from "./stages";
import type { WidgetModel } from "./widget_model";

export type Change = "compile" | "hover" | "pin" | "shown" | "step" | "budget" | "attempt" | "cover";

export const MAX_PANES = 4;

/** Files of installed packages, and how much less likely than the user's own code they are what is looked for. */
const LIBRARY = /[\\/](site|dist)-packages[\\/]/;
const LIBRARY_WEIGHT = 0.1;
/** How much more likely a graph with a backward is what is looked for: the model, not what clips its gradients. */
const BACKWARD_WEIGHT = 4;

/** The options that ask for more than a compile, each with the pane that has the answer. */
const ANSWERS: [option: string, pane: PaneName][] = [
  ["frames", "frames"],
  ["check", "accuracy"],
  ["tune", "tuning"],
  ["measure", "costs"],
  ["steps", "steps"],
  ["memory_curve", "partition"],
  ["capture_backward", "training"],
];

/** Returns the frame with this id. Ids of stock torch.compile count all frames of the process: they are not indices. */
export function frameOf(record: CutawayRecord, id: number): Frame | null {
  return record.frames.find((frame) => frame.id === id) ?? null;
}

export class State {
  readonly links: Links;
  /** The marks on the user's lines. */
  readonly marks: Mark[];
  frame: Frame | null;
  compile: Compile | null;
  hovered = new Set<ItemId>();
  pinned = new Set<ItemId>();
  /** The items that are linked to the hovered and to the pinned ones, in any compile. */
  hoverLinked = new Set<ItemId>();
  pinLinked = new Set<ItemId>();
  /** The items of the current step of the symbolic interpreter. */
  stepItems = new Set<ItemId>();
  /** The items that later steps of the symbolic interpreter create. */
  laterItems = new Set<ItemId>();
  /** The memory budget whose cut is shown, if it is not the one that was compiled with. */
  budget: BudgetPoint | null = null;
  /** The attempt and the step that were shown last, by compile. */
  readonly lastSteps = new Map<string, [attempt: number, step: number]>();
  /** Where two compiles are compared: the item aligned with each item. Both are hovered together. */
  alignedItems = new Map<ItemId, ItemId>();
  /** The id of the compile that each compile was last compared with. */
  readonly comparedCompile = new Map<string, string>();
  /** The attempt and the step that the steps pane shows once it is created. */
  requestedStep: [attempt: number, step: number] | null = null;
  shown: string[];
  /** The panes to show until the user chooses others: as many of them are shown as fit. */
  private usual: string[];
  /** The panes that are covered until their user has predicted what is in them. */
  readonly covered: Set<string>;
  /** The texts after the predictions that were made, by pane. */
  readonly predictions = new Map<string, string>();
  /** How many panes fit. */
  paneCapacity = 2;
  /**
   * The pane that was opened last, which gets most of the room; the next one replaces it if there is none, and the others
   * stay as they are.
   */
  lastOpened = "";
  private readonly listeners = new Map<Change, (() => void)[]>();
  private readonly traitListeners: [string, () => void][] = [];

  constructor(
    readonly record: CutawayRecord,
    readonly model: WidgetModel,
    current = "",
  ) {
    this.links = new Links(record);
    this.covered = new Set(record.covered);
    this.marks = marksOf(record, this.links);
    this.compile = this.findCompile(model.get("compile")) ?? this.findCompile(current) ?? this.firstCompile();
    if (this.compile) this.links.include(this.compile.id);
    this.frame = this.compile ? frameOf(record, this.compile.frame) : (record.frames[0] ?? null);
    this.shown = this.initialPanes();
    this.usual = this.shown;
    this.readPins();
    this.onTrait("compile", () => this.select(this.findCompile(model.get("compile")) ?? this.compile));
    this.onTrait("shown", () => {
      this.shown = this.initialPanes();
      this.notify("shown");
    });
    this.onTrait("selection", () => {
      this.readPins();
      this.notify("pin");
    });
  }

  /** Whether the cell still compiles, and the record is what there is so far. */
  get isLive(): boolean {
    return !this.model.get("record");
  }

  private onTrait(trait: string, changed: () => void): void {
    this.model.on(`change:${trait}`, changed);
    this.traitListeners.push([`change:${trait}`, changed]);
  }

  destroy(): void {
    for (const [event, callback] of this.traitListeners) this.model.off(event, callback);
  }

  on(change: Change, callback: () => void): void {
    this.listeners.set(change, [...(this.listeners.get(change) ?? []), callback]);
  }

  private notify(change: Change): void {
    for (const callback of this.listeners.get(change) ?? []) callback();
  }

  /** The displayed name of a file: a cell's number, or the last part of a path. */
  label(filename: string): string {
    return this.record.labels[filename] ?? (filename.split("/").pop() || filename);
  }

  findCompile(id: string): Compile | null {
    for (const frame of this.record.frames) {
      for (const compile of frame.compiles) if (compile.id === id) return compile;
    }
    return null;
  }

  /**
   * The compile shown first: one of a function that was compiled too often, or one that could not be compiled, else the
   * one with the largest captured graph.
   */
  private firstCompile(): Compile | null {
    const blocks = (wanted: string) => this.record.problems.find((p) => p.kind === wanted && p.grade === "blocking");
    const blocking = blocks("recompile") ?? blocks("graph break");
    return this.findCompile(blocking?.compiles[0] ?? "") ?? this.largestCompile();
  }

  /**
   * The compile with the largest captured graph; one with a backward counts for more, a library's for little. Of a whole
   * training step, that of the steps after the first, which makes gradients and state.
   */
  private largestCompile(): Compile | null {
    const size = ({ filename }: Frame, c: Compile) =>
      (summaryOf(c).nodes ?? 0) *
      (LIBRARY.test(filename) ? LIBRARY_WEIGHT : 1) *
      (summaryOf(c).saved_count ? BACKWARD_WEIGHT : 1);
    const all = this.record.frames.flatMap((f) => f.compiles.map((c) => ({ compile: c, size: size(f, c) })));
    const best = all.reduce<(typeof all)[0] | null>((best, c) => (best && best.size >= c.size ? best : c), null);
    const frame = best && frameOf(this.record, best.compile.frame);
    return frame?.compiles.find(({ cause }) => cause?.is_of_first_step) ?? best?.compile ?? null;
  }

  /** The panes that the model asks for, or else the stored ones, or else the defaults. */
  private initialPanes(): string[] {
    const requested = this.model.get("shown");
    const { covered } = this.record;
    if (!requested.length && covered.length) return ["source", ...covered].slice(0, MAX_PANES);
    const usual = this.record.comparison ? ["source", "engines"] : (loadSetting("shown", isStringList) ?? USUAL_PANES);
    if (requested.length) return requested.slice(0, MAX_PANES);
    const wanted = this.wantedPane();
    this.lastOpened = wanted;
    if (wanted === "steps") return ["source", "steps", "captured"]; // which grows with the steps
    return (wanted && !usual.includes(wanted) ? [usual[0], wanted] : usual).slice(0, MAX_PANES);
  }

  /** The pane that is shown at once: that of a failure, or of what the cell was run for, as --measure says. */
  private wantedPane(): string {
    const { problems, options } = this.record;
    if (problems.some(({ grade }) => grade === "blocking")) return "overview";
    return ANSWERS.find(([option]) => options[option])?.[1] ?? "";
  }

  /** Shows other panes in place of those that were chosen for an earlier record and have nothing in this one. */
  replaceEmptyPanes(hasContent: (pane: string) => boolean): void {
    if (this.model.get("shown").length) return;
    const filled = this.shown.filter(hasContent);
    const others = [...USUAL_PANES, "overview"].filter((pane) => hasContent(pane) && !filled.includes(pane));
    this.shown = filled.length < 2 ? [...filled, ...others.slice(0, 2 - filled.length)] : filled;
    this.usual = this.shown;
  }

  /** Notes how many panes fit; of the usual panes, only those are shown. */
  setPaneCapacity(capacity: number): void {
    this.paneCapacity = capacity;
    if (this.model.get("shown").length || loadSetting("shown", isStringList)) return;
    const fitting = this.usual.slice(0, Math.max(2, capacity));
    if (fitting.length === this.shown.length) return;
    this.shown = fitting;
    this.notify("shown");
  }

  private readPins(): void {
    this.pinned = new Set(this.model.get("selection"));
    this.pinLinked = this.links.linked(this.pinned);
  }

  /** Makes a compile current. */
  select(compile: Compile | null): void {
    if (!compile || compile === this.compile) return;
    const pinned = this.pinnedItemsIn(compile);
    if (this.links.include(compile.id)) this.pinLinked = this.links.linked(this.pinned);
    this.compile = compile;
    this.budget = null;
    this.frame = frameOf(this.record, compile.frame);
    this.setTrait("compile", compile.id);
    this.notify("compile");
    if (!equalSets(pinned, this.pinned)) this.pin(pinned);
  }

  /**
   * The items of another compile that correspond to the pinned ones: same artifact name and key. Others stay as they
   * are.
   */
  private pinnedItemsIn(compile: Compile): Set<ItemId> {
    const corresponding = [...this.pinned].map((item) => {
      const artifact = this.links.artifactOf(item);
      const counterpart = compile.artifacts.find((a) => a.name === artifact?.name);
      const key = keyOf(item);
      return counterpart?.spans.some((s) => s.key === key) ? `${counterpart.id}#${key}` : item;
    });
    return new Set(corresponding);
  }

  /** Makes a frame current, with its first compile if it has one. */
  selectFrame(frame: Frame): void {
    if (frame.compiles.length) {
      this.select(frame.compiles[0]);
    } else if (frame !== this.frame) {
      this.frame = frame;
      this.compile = null;
      this.notify("compile");
    }
  }

  /** Shows the cut of another memory budget; null is the one that was compiled with. */
  chooseBudget(budget: BudgetPoint | null): void {
    this.budget = budget;
    this.notify("budget");
  }

  /** Hovers `items` and what is aligned with them, in place of what was hovered. */
  hover(items: Iterable<ItemId>): void {
    const next = new Set(items);
    for (const item of [...next]) next.add(this.alignedItems.get(item) ?? item);
    if (equalSets(next, this.hovered)) return;
    this.hovered = next;
    this.hoverLinked = this.links.linked(next);
    this.notify("hover");
  }

  /** Shows a step of the symbolic interpreter, and opens its pane if needed. */
  goToStep(attempt: number, step: number): void {
    this.requestedStep = [attempt, step];
    this.open("steps");
    if (this.requestedStep) this.notify("attempt");
  }

  /** Sets the items of the current step, and those that are created after it. */
  setStepItems(items: Iterable<ItemId>, later: Iterable<ItemId> = []): void {
    const [next, nextLater] = [new Set(items), new Set(later)];
    if (equalSets(next, this.stepItems) && equalSets(nextLater, this.laterItems)) return;
    this.stepItems = next;
    this.laterItems = nextLater;
    this.notify("step");
  }

  /** Pins `items` in place of what was pinned, or unpins them if they are pinned already. */
  pin(items: Iterable<ItemId>): void {
    const next = new Set(items);
    const chosen = equalSets(next, this.pinned) ? [] : [...next];
    // the change of the trait calls readPins
    this.setTrait("selection", chosen);
  }

  /** Shows the target of a mark or a count: selects the compile, opens the pane, and pins the line. */
  goTo({ compile, pane, line }: { compile: string; pane: PaneName; line: ItemId | null }): void {
    this.select(this.findCompile(compile));
    this.open(pane);
    if (line !== null && !equalSets(new Set([line]), this.pinned)) this.pin([line]);
  }

  /** Shows a problem in the overview, beside its line. */
  goToProblem({ compiles, line }: Problem): void {
    const known = line !== null && this.links.has(line) ? line : null;
    this.goTo({ compile: compiles[0] ?? "", pane: "overview", line: known });
  }

  /** Uncovers a pane; `verdict` says whether the prediction was right, if one was made. */
  uncover(pane: string, verdict: string): void {
    this.covered.delete(pane);
    if (verdict) this.predictions.set(pane, verdict);
    this.notify("cover");
  }

  /** Shows one of the views that are presented. */
  present({ compile, panes, pinned }: View): void {
    this.select(this.findCompile(compile));
    const known = pinned.filter((item) => this.links.has(item));
    if (panes.length) this.setTrait("shown", panes.slice(0, MAX_PANES));
    if (!equalSets(new Set(known), this.pinned)) this.setTrait("selection", known);
  }

  /** The address of what is shown now. */
  address(): string {
    return addressOf({ compile: this.compile?.id ?? "", panes: this.shown, pinned: [...this.pinned] });
  }

  isShown(pane: string): boolean {
    return this.shown.some((shown) => paneName(shown) === pane);
  }

  /**
   * Opens `pane` unless it is shown: as another pane if one more fits, or else in place of the one opened last, or of
   * the last replaceable one. A source stays if it can. This is not stored as a setting.
   */
  open(pane: string, isReplaceable: (pane: string) => boolean = () => true): void {
    const before = this.lastOpened;
    this.lastOpened = pane;
    if (this.isShown(pane)) {
      if (before !== pane) this.notify("shown");
      return;
    }
    const names = this.shown.map(paneName);
    const candidates = names.filter((name) => isReplaceable(name) && name !== "source");
    const replaced = candidates.includes(before) ? before : candidates.at(-1);
    if (names.length < this.paneCapacity || (replaced === undefined && names.length < MAX_PANES)) {
      this.setTrait("shown", this.with(pane));
    } else {
      const at = names.indexOf(replaced ?? names[names.length - 1]);
      this.setTrait("shown", this.shown.with(at, pane));
    }
  }

  /** The shown panes and `pane`, which is placed in the order of the stages. */
  private with(pane: string): string[] {
    const after = this.shown.findIndex((shown) => stageRank(paneName(shown)) > stageRank(pane));
    return this.shown.toSpliced(after < 0 ? this.shown.length : after, 0, pane);
  }

  /** Closes the pane at index `at`. */
  close(at: number): void {
    this.setShown(this.shown.toSpliced(at, 1));
  }

  /** Shows `pane` as the pane at index `at`. */
  show(pane: string, at: number): void {
    this.lastOpened = paneName(pane);
    this.setShown(this.shown.map((s, i) => (i === at ? pane : s)));
  }

  /** Sets the panes from left to right, and stores them as the user's setting. */
  setShown(panes: string[]): void {
    const shown = panes.slice(0, MAX_PANES);
    saveSetting("shown", shown);
    this.setTrait("shown", shown);
  }

  private setTrait<K extends "selection" | "shown" | "compile">(
    trait: K,
    value: Parameters<typeof this.model.set<K>>[1],
  ): void {
    this.model.set(trait, value);
    this.model.save_changes();
  }

  /** The artifacts that `pane` can show of the current frame and compile. */
  artifacts(pane: string): Artifact[] {
    if (pane === "source") return this.sources();
    return this.compile?.artifacts.filter((a) => a.pane === pane) ?? [];
  }

  /** The user's sources, that of the current frame, or of the line that called a library's, first. */
  private sources(): Artifact[] {
    const file = this.compile?.caller?.filename ?? this.frame?.filename;
    const own = this.record.sources.filter((s) => s.name === file);
    return [...own, ...this.record.sources.filter((s) => !own.includes(s))];
  }

  /** The user's line that the first of `items` was made from: the innermost one, inside inlined functions. */
  innermostLine(items: Iterable<ItemId>): ItemId | null {
    const all = [...items];
    const own = all.find((item) => this.links.artifactOf(item)?.pane === "source");
    if (own !== undefined) return own;
    for (const item of all) {
      const line = this.links.userLine(item);
      if (line !== null) return line;
    }
    return null;
  }

  /** The line of a problem that ended the compile. */
  blockingLine(): ItemId | null {
    const line = this.record.problems.find(({ grade }) => grade === "blocking")?.line ?? null;
    return line !== null && this.links.has(line) ? line : null;
  }

  /** Those of `items` that belong to a source or to the current compile. */
  visible(items: Iterable<ItemId>): ItemId[] {
    const visible = new Set([...this.record.sources, ...(this.compile?.artifacts ?? [])]);
    return [...items].filter((item) => {
      const artifact = this.links.artifactOf(item);
      return artifact !== undefined && visible.has(artifact);
    });
  }
}

/** The name of a pane without the artifact that it shows. */
function paneName(shown: string): string {
  return shown.split(":")[0];
}

function equalSets(a: Set<ItemId>, b: Set<ItemId>): boolean {
  return a.size === b.size && [...a].every((item) => b.has(item));
}

/** The state of the symbolic interpreter after any recorded step, as compiler_core/tools/questions/step_states.py computes it. */

import type { ItemId, StepCode, StepNote, StepStore, Steps, StepText } from "../record/record";
import { isConsistent } from "../record/step_rules";
import { appendTo } from "./links";

type Stack = { value: number; below: Stack } | null;

/** The text of a value at a step, and whether that step created or changed it. */
export interface ShownValue {
  text: string;
  isNew: boolean;
}

/** The position of a call in its code. */
export interface CodePosition {
  code: StepCode;
  instruction: string;
  line: number;
}

/** Replays the recorded steps of one attempt to capture a frame. Steps are counted from 0. */
export class Replay {
  readonly length: number;
  /** For each call: its steps, its stack after each step that changed it, and the history of its locals. */
  private readonly stepsOfCall: number[][];
  private readonly stacks: { step: number; stack: Stack }[][];
  private readonly stores: Map<string, StepStore[]>[];
  private readonly texts = new Map<number, StepText[]>();
  private readonly stepsOfItem = new Map<ItemId, number[]>();
  /** Whether the source of each code object is in the record. */
  private readonly hasSource: boolean[];

  constructor(
    readonly steps: Steps,
    private readonly lineItem: (filename: string, line: number) => ItemId | null,
    private readonly instructionItem: (at: number) => ItemId,
  ) {
    if (!isConsistent(steps)) throw new Error("the steps of this record are inconsistent");
    this.length = steps.call.length;
    this.hasSource = steps.codes.map(({ filename, lines }) => lines.some((line) => lineItem(filename, line) !== null));
    this.stepsOfCall = steps.calls.map(() => []);
    this.stacks = steps.calls.map(() => []);
    this.stores = steps.calls.map(() => new Map());
    let result = 0;
    steps.call.forEach((call, n) => {
      this.stepsOfCall[call].push(n);
      this.changeStack(n, call, steps.pops[n], steps.pushes[n]);
      for (; steps.results[result]?.step === n; result++) {
        const { call, pops, pushes } = steps.results[result];
        this.changeStack(n, call, pops, pushes);
      }
    });
    for (const store of steps.stores) appendTo(this.stores[store.call], store.name, store);
    for (const text of steps.texts) appendTo(this.texts, text.value, text);
    for (let n = 0; n < this.length; n++) for (const item of this.itemsOf(n)) appendTo(this.stepsOfItem, item, n);
  }

  private changeStack(step: number, call: number, pops: number, pushes: number[]): void {
    if (!pops && !pushes.length) return;
    const history = this.stacks[call];
    let stack = history[history.length - 1]?.stack ?? null;
    for (let i = 0; i < pops && stack; i++) stack = stack.below;
    for (const value of pushes) stack = { value, below: stack };
    history.push({ step, stack });
  }

  /** Returns the active calls at a step, the outermost first. */
  calls(n: number): number[] {
    const found: number[] = [];
    for (let call: number | null = this.steps.call[n] ?? null; call !== null; call = this.steps.calls[call].caller) {
      found.unshift(call);
    }
    return found;
  }

  /** Returns the position of a call at a step. */
  positionOf(call: number, n: number): CodePosition {
    const rows = this.stepsOfCall[call];
    const at = this.steps.at[rows[Math.max(0, countUpTo(rows, n, (row) => row) - 1)]] ?? 0;
    const code = this.steps.codes[this.steps.calls[call].code];
    return { code, instruction: code.instructions[at], line: code.lines[at] };
  }

  /** Returns the value stack of a call after a step, the top first. */
  stack(call: number, n: number): ShownValue[] {
    const history = this.stacks[call];
    const last = history[countUpTo(history, n, stepOf) - 1];
    const before = history[countUpTo(history, n - 1, stepOf) - 1];
    const kept = last?.step === n ? commonTail(last.stack, before?.stack ?? null) : null;
    const found: ShownValue[] = [];
    let isNew = last?.step === n;
    for (let at = last?.stack ?? null; at; at = at.below) {
      isNew &&= at !== kept;
      found.push({ text: this.text(at.value, n), isNew: isNew || this.isTextNew(at.value, n) });
    }
    return found;
  }

  /** Returns the locals and cells of a call after a step, in the order of their first assignment. */
  locals(call: number, n: number): [name: string, value: ShownValue][] {
    return [...this.stores[call]].flatMap(([name, history]): [string, ShownValue][] => {
      const store = history[countUpTo(history, n, stepOf) - 1];
      if (!store || store.value === null) return [];
      const isNew = store.step === n || this.isTextNew(store.value, n);
      return [[name, { text: this.text(store.value, n), isNew }]];
    });
  }

  private text(value: number, n: number): string {
    const history = this.texts.get(value) ?? [];
    return history[countUpTo(history, n, stepOf) - 1]?.text ?? this.steps.values[value];
  }

  private isTextNew(value: number, n: number): boolean {
    const history = this.texts.get(value) ?? [];
    return history[countUpTo(history, n, stepOf) - 1]?.step === n;
  }

  /** Returns the graph nodes, guards, side effects and graph breaks of a step. */
  notes(n: number): StepNote[] {
    return this.steps.notes.slice(countUpTo(this.steps.notes, n - 1, stepOf), countUpTo(this.steps.notes, n, stepOf));
  }

  /** Returns the notes of all steps up to and including `n`. */
  notesSoFar(n: number): StepNote[] {
    return this.steps.notes.slice(0, countUpTo(this.steps.notes, n, stepOf));
  }

  /** Returns the items of a step: the frame's instruction, the user's line, and what the step added. */
  itemsOf(n: number): ItemId[] {
    const own = this.stepsOfCall[0];
    const at = this.steps.at[own[Math.max(0, countUpTo(own, n, (row) => row) - 1)]];
    const added = this.notes(n).map((note) => note.item);
    const found = [this.instructionItem(at), this.lineOf(n), ...added];
    return [...new Set(found)].filter((item) => item !== null);
  }

  /** Returns the line of the innermost call whose source is in the record; null at an instruction without a line. */
  lineOf(n: number): ItemId | null {
    const call = this.calls(n).findLast((each) => this.hasSource[this.steps.calls[each].code]);
    if (call === undefined) return null;
    const { code, line } = this.positionOf(call, n);
    return this.lineItem(code.filename, line);
  }

  /** Returns the nodes and guards that only steps after `n` create. */
  itemsAfter(n: number): ItemId[] {
    const items = this.steps.notes.map((note) => note.item).filter((item) => item !== null);
    return [...new Set(items)].filter((item) => (this.stepsOfItem.get(item)?.[0] ?? 0) > n);
  }

  /** Returns the steps that created an item (a node, a guard) or that belong to it (a line, an instruction). */
  stepsOf(item: ItemId): number[] {
    return this.stepsOfItem.get(item) ?? [];
  }

  /** Returns the next step (`by` 1) or the previous one (`by` -1) that is not inside a call made at step `n`. */
  stepOver(n: number, by: 1 | -1): number {
    const depth = this.calls(n).length;
    let at = n + by;
    while (at > 0 && at < this.length - 1 && this.calls(at).length > depth) at += by;
    return Math.min(Math.max(at, 0), this.length - 1);
  }
}

function stepOf(entry: { step: number }): number {
  return entry.step;
}

/** Returns how many entries of a list that is sorted by step have a step of at most `n`. */
function countUpTo<E>(entries: E[], n: number, step: (entry: E) => number): number {
  let [low, high] = [0, entries.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (step(entries[middle]) <= n) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Returns the common bottom of two stacks, which are linked lists that share their tails. */
function commonTail(a: Stack, b: Stack): Stack {
  const below = new Set<Stack>();
  for (let at = b; at; at = at.below) below.add(at);
  for (let at = a; at; at = at.below) if (below.has(at)) return at;
  return null;
}

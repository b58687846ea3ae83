/** The symbolic interpreter's state after any recorded step: what compiler_core/records/steps.py does, for the browser. */

import { push } from "./links";
import type { ItemId, StepCode, StepNote, StepStore, Steps, StepText } from "./record";

type Stack = { value: number; below: Stack } | null;

/** A value as it looks at a step, and whether that step put it there or changed it. */
export interface Shown {
  text: string;
  isNew: boolean;
}

export interface Place {
  code: StepCode;
  instruction: string;
  line: number;
}

export class Replay {
  readonly length: number;
  /** The steps of each call, what its stack was from each on, and its locals' values. */
  private readonly rows: number[][];
  private readonly stacks: { step: number; stack: Stack }[][];
  private readonly stores: Map<string, StepStore[]>[];
  private readonly texts = new Map<number, StepText[]>();
  private readonly stepsOfItem = new Map<ItemId, number[]>();

  constructor(
    readonly steps: Steps,
    private readonly lineItem: (filename: string, line: number) => ItemId | null,
    private readonly instructionItem: (at: number) => ItemId,
  ) {
    if (!fit(steps)) throw new Error("the steps of this record do not fit together");
    this.length = steps.call.length;
    this.rows = steps.calls.map(() => []);
    this.stacks = steps.calls.map(() => []);
    this.stores = steps.calls.map(() => new Map());
    let result = 0;
    steps.call.forEach((call, n) => {
      this.rows[call].push(n);
      this.move(n, call, steps.pops[n], steps.pushes[n]);
      for (; steps.results[result]?.step === n; result++) {
        const { call, pops, pushes } = steps.results[result];
        this.move(n, call, pops, pushes);
      }
    });
    for (const store of steps.stores) push(this.stores[store.call], store.name, store);
    for (const text of steps.texts) push(this.texts, text.value, text);
    for (let n = 0; n < this.length; n++) for (const item of this.items(n)) push(this.stepsOfItem, item, n);
  }

  private move(step: number, call: number, pops: number, pushes: number[]): void {
    if (!pops && !pushes.length) return;
    const history = this.stacks[call];
    let stack = history[history.length - 1]?.stack ?? null;
    for (let i = 0; i < pops && stack; i++) stack = stack.below;
    for (const value of pushes) stack = { value, below: stack };
    history.push({ step, stack });
  }

  /** The calls at work at a step, the frame's own first. */
  calls(n: number): number[] {
    const found: number[] = [];
    for (let call: number | null = this.steps.call[n] ?? null; call !== null; call = this.steps.calls[call].caller) {
      found.unshift(call);
    }
    return found;
  }

  /** Where a call is at a step. */
  place(call: number, n: number): Place {
    const rows = this.rows[call];
    const at = this.steps.at[rows[Math.max(0, after(rows, n, (row) => row) - 1)]] ?? 0;
    const code = this.steps.codes[this.steps.calls[call].code];
    return { code, instruction: code.instructions[at], line: code.lines[at] };
  }

  /** A call's stack after a step, the top first. */
  stack(call: number, n: number): Shown[] {
    const history = this.stacks[call];
    const last = history[after(history, n, stepOf) - 1];
    const before = history[after(history, n - 1, stepOf) - 1];
    const kept = last?.step === n ? common(last.stack, before?.stack ?? null) : null;
    const found: Shown[] = [];
    let isNew = last?.step === n;
    for (let at = last?.stack ?? null; at; at = at.below) {
      isNew &&= at !== kept;
      found.push({ text: this.text(at.value, n), isNew: isNew || this.textIsNew(at.value, n) });
    }
    return found;
  }

  /** A call's locals and cells after a step, in the order in which they got their first values. */
  locals(call: number, n: number): [name: string, value: Shown][] {
    return [...this.stores[call]].flatMap(([name, history]): [string, Shown][] => {
      const store = history[after(history, n, stepOf) - 1];
      if (!store || store.value === null) return [];
      const isNew = store.step === n || this.textIsNew(store.value, n);
      return [[name, { text: this.text(store.value, n), isNew }]];
    });
  }

  private text(value: number, n: number): string {
    const history = this.texts.get(value) ?? [];
    return history[after(history, n, stepOf) - 1]?.text ?? this.steps.values[value];
  }

  private textIsNew(value: number, n: number): boolean {
    const history = this.texts.get(value) ?? [];
    return history[after(history, n, stepOf) - 1]?.step === n;
  }

  /** What a step added to the graph, the guards or the side effects; or the break. */
  notes(n: number): StepNote[] {
    return this.steps.notes.slice(after(this.steps.notes, n - 1, stepOf), after(this.steps.notes, n, stepOf));
  }

  /** What was added up to a step and with it. */
  notesSoFar(n: number): StepNote[] {
    return this.steps.notes.slice(0, after(this.steps.notes, n, stepOf));
  }

  /** The items that a step belongs to: the frame's instruction, the user's line, and what it added. */
  items(n: number): ItemId[] {
    const own = this.rows[0];
    const at = this.steps.at[own[Math.max(0, after(own, n, (row) => row) - 1)]];
    const added = this.notes(n).map((note) => note.item);
    const found = [this.instructionItem(at), this.line(n), ...added];
    return [...new Set(found)].filter((item) => item !== null);
  }

  /** The innermost line whose source is in the record. */
  private line(n: number): ItemId | null {
    for (const call of this.calls(n).reverse()) {
      const { code, line } = this.place(call, n);
      const item = this.lineItem(code.filename, line);
      if (item !== null) return item;
    }
    return null;
  }

  /** The steps that made an item (a node, a guard), or that belong to it (a line, an instruction). */
  stepsOf(item: ItemId): number[] {
    return this.stepsOfItem.get(item) ?? [];
  }

  /** The next step, or the one before (`by` -1), that is not within a call made at step `n`. */
  over(n: number, by: 1 | -1): number {
    const depth = this.calls(n).length;
    let at = n + by;
    while (at > 0 && at < this.length - 1 && this.calls(at).length > depth) at += by;
    return Math.min(Math.max(at, 0), this.length - 1);
  }
}

function stepOf(entry: { step: number }): number {
  return entry.step;
}

/** How many entries of a sorted list come at step `n` or before. */
function after<E>(entries: E[], n: number, step: (entry: E) => number): number {
  let [low, high] = [0, entries.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (step(entries[middle]) <= n) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** What two stacks share at their bottom: they are lists that share their tails. */
function common(a: Stack, b: Stack): Stack {
  const below = new Set<Stack>();
  for (let at = b; at; at = at.below) below.add(at);
  for (let at = a; at; at = at.below) if (below.has(at)) return at;
  return null;
}

/** Throw unless every number, which may come from a stranger, leads somewhere. */
/** Calls within one another: no more than Python itself allows. */
const MOST_CALLS = 1000;

/** Whether every number in `steps`, which may come from a stranger, leads somewhere. */
export function fit(steps: Steps): boolean {
  const { call, at, pops, pushes, calls, codes, values } = steps;
  const inside = (i: number | null, list: unknown[]) => i === null || (i >= 0 && i < list.length);
  const laws = [
    () => call.length === at.length && call.length === pops.length && call.length === pushes.length,
    () => codes.every((c) => c.instructions.length === c.lines.length),
    () => calls.every((c) => inside(c.code, codes) && codes[c.code].lines.length > 0),
    () => calls.every((c, i) => c.caller === null || (c.caller >= 0 && c.caller < i)),
    () => deepest(steps) <= MOST_CALLS,
    () => call.every((c, n) => inside(c, calls) && inside(at[n], codes[calls[c].code].lines)),
    () => pops.every((n) => n >= 0) && steps.results.every((r) => r.pops >= 0),
    () => pushes.every((pushed) => pushed.every((v) => inside(v, values))),
    () => steps.results.every((r) => inside(r.call, calls) && r.pushes.every((v) => inside(v, values))),
    () => steps.stores.every((s) => inside(s.call, calls) && inside(s.value, values)),
    () => steps.texts.every((t) => inside(t.value, values)),
    () =>
      [steps.results, steps.stores, steps.texts, steps.notes].every((entries) =>
        entries.every((entry, i) => !i || entries[i - 1].step <= entry.step),
      ),
  ];
  return laws.every((law) => law());
}

/** How many calls are at work at once, at most. */
function deepest({ calls }: Steps): number {
  const depths: number[] = [];
  for (const { caller } of calls) depths.push(caller === null ? 1 : depths[caller] + 1);
  return depths.reduce((most, depth) => Math.max(most, depth), 0);
}

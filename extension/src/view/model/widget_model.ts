/** The widget model that the explorer reads and writes: anywidget's, or one without a kernel. */

import type { SourceEdit } from "./record/record";

interface Traits {
  /** The record as `unpackRecord` reads it; null while the cell compiles. */
  record: unknown;
  progress: Progress | null;
  /** The packed record so far, while a long compile runs; null or empty if there is none. */
  partial: object | null;
  /** What is shown of timing the cell; null or empty if it cannot be timed. */
  timing: TimingState | Record<string, never> | null;
  /** What can be tried with the cell; null or empty if nothing can. */
  experiments: Experiments | Record<string, never> | null;
  /** Ids of the pinned items. */
  selection: string[];
  /** The panes from left to right: a pane's name, followed by `:artifact` if one of several artifacts is chosen. */
  shown: string[];
  /** Id of the current compile ("0/1"); if empty, the explorer chooses one. */
  compile: string;
}

export interface Progress {
  compile: string;
  frame: string;
  stage: string;
  name: string;
  /** Seconds since the record was opened. */
  elapsed: number;
  /** The steps that have ended, the latest last. */
  done: { stage: string; name: string; ms: number; outcome: string }[];
  /** The stages of the current compile that have started, with the time in each. */
  stages: { stage: string; ms: number; running: boolean }[];
  compiles: number;
  /** How many kernels were built. */
  kernels: number;
  /** While the cell is timed: the share that is done. */
  share?: number;
  /** Why there is no record, although the cell has run. */
  ended?: string;
}

/** The state of timing the cell again, which runs in the kernel. */
export interface TimingState {
  /** The forms that can be timed besides plain PyTorch and the cell as it was compiled. */
  forms: string[];
  /** What is being timed; empty if nothing is. */
  running: string;
  /** The share of it that is done. */
  share: number;
  /** Why the cell was not timed. */
  message: string;
}

/** Experiments: the cell runs again with one thing changed. */
export interface Experiments {
  choices: {
    name: string;
    label: string;
    /** Why it cannot be made; empty if it can be. */
    why: string;
  }[];
  /** Changes of the code that may remove a problem. */
  changes: {
    /** The number of the problem in the record. */
    problem: number;
    edit: SourceEdit;
  }[];
  /** The runs that were made, the cell's own first. */
  runs: string[];
  /** Which of them is shown. */
  shown: number;
}

/** Whether the page can change and run cells: the extension for JupyterLab says so. */
export function canEditCells(): boolean {
  return "cutawayPanel" in document.body.dataset;
}

/** Asks the page to change a cell of the notebook and run it; the extension for JupyterLab listens. */
export const NOTEBOOK_EDIT_EVENT = "cutaway-edit";

/** The detail of that event. */
export interface EditRequest {
  edit: SourceEdit;
  /** Called with what was done. */
  answer(text: string): void;
}

/** Asks the page for a new cell; the extension for JupyterLab inserts it and prevents the default. */
export const NEW_CELL_EVENT = "cutaway-new-cell";

/** The detail of that event. */
export interface CellRequest {
  text: string;
  /** Called with what was done. */
  answer(text: string): void;
}

/** The part of anywidget's model interface that the explorer uses. */
export interface WidgetModel {
  get<K extends keyof Traits>(name: K): Traits[K];
  set<K extends keyof Traits>(name: K, value: Traits[K]): void;
  save_changes(): void;
  send(message: unknown): void;
  on(event: string, callback: () => void): void;
  off(event: string, callback: () => void): void;
}

/** Returns what can be tried with the cell; null if nothing can. */
export function experimentsOf(model: WidgetModel): Experiments | null {
  const found = model.get("experiments");
  return found && Array.isArray(found.choices) ? (found as Experiments) : null;
}

/** Copies what the user has chosen from one model of a record to another. */
export function takeOver(from: WidgetModel, to: WidgetModel): void {
  const copy = <K extends "compile" | "shown" | "selection">(trait: K) => {
    if (from.get(trait).length) to.set(trait, from.get(trait));
  };
  copy("compile");
  copy("shown");
  copy("selection");
  to.save_changes();
}

/** A model without a kernel, for saved notebooks and reports. */
export class StaticModel implements WidgetModel {
  private readonly traits: Traits;
  private readonly listeners = new Map<string, Set<() => void>>();

  /** `file`: the name of the notebook that has the record; empty for a report. */
  constructor(
    record: unknown,
    readonly file = "",
  ) {
    this.traits = {
      record,
      progress: null,
      partial: null,
      timing: null,
      experiments: null,
      selection: [],
      shown: [],
      compile: "",
    };
  }

  get<K extends keyof Traits>(name: K): Traits[K] {
    return this.traits[name];
  }

  set<K extends keyof Traits>(name: K, value: Traits[K]): void {
    this.traits[name] = value;
    for (const callback of this.listeners.get(`change:${name}`) ?? []) callback();
  }

  save_changes(): void {}

  send(): void {}

  on(event: string, callback: () => void): void {
    const known = this.listeners.get(event);
    if (known) known.add(callback);
    else this.listeners.set(event, new Set([callback]));
  }

  off(event: string, callback: () => void): void {
    this.listeners.get(event)?.delete(callback);
  }
}

/** What the explorer needs of the place it is in: anywidget's model, or a stand-in without a kernel. */

interface Traits {
  /** The record as JSON text, or what was read from one; empty while the cell compiles. */
  record: unknown;
  progress: Progress | null;
  /** Items that are pinned. */
  selection: string[];
  /** What the panes show: a pane's name, with `:artifact` where it has several. */
  shown: string[];
  /** Id of the compile that is looked at ("0/1"); empty: the explorer's choice. */
  compile: string;
}

interface Progress {
  compile: string;
  frame: string;
  stage: string;
  name: string;
  /** Seconds since the record was opened. */
  elapsed: number;
  /** The steps that have ended, the latest last. */
  done: { stage: string; name: string; ms: number; outcome: string }[];
}

export interface Model {
  get<K extends keyof Traits>(name: K): Traits[K];
  set<K extends keyof Traits>(name: K, value: Traits[K]): void;
  save_changes(): void;
  send(message: unknown): void;
  on(event: string, callback: () => void): void;
  off(event: string, callback: () => void): void;
}

/** A model that lives in the page alone: a saved notebook, a report. */
export class StaticModel implements Model {
  private readonly traits: Traits;
  private readonly listeners = new Map<string, Set<() => void>>();

  constructor(record: unknown) {
    this.traits = { record, progress: null, selection: [], shown: [], compile: "" };
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

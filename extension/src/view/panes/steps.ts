/** The pane that goes through the steps of the symbolic interpreter, forward and backward. */

import { h, plural } from "../dom/dom";
import type { Content } from "../model/content";
import type { Compile, ItemId, StepNote, Steps } from "../model/record";
import { Replay, type Shown } from "../model/replay";
import type { State } from "../model/state";
import { code } from "./rows";

/** So many of the latest nodes are listed; the graph itself is in a pane of its own. */
const LATEST = 8;

export class StepsView implements Content {
  readonly element = h("div", { class: "stepper", onkeydown: (event: KeyboardEvent) => this.keyed(event) });
  private readonly slider = h("input", { type: "range", min: 0, step: 1, "aria-label": "Step" });
  private readonly count = h("output", { class: "count" });
  private readonly finder = h("span", { class: "finder", role: "group", "aria-label": "Steps of what is selected" });
  private readonly page = h("div", { class: "page rows", "aria-live": "polite" });
  private replay: Replay | null = null;
  private attempt: number;
  private at: number;
  /** The call whose stack and locals are shown; null: the innermost. */
  private looked: number | null = null;
  /** Steps of what is pinned. */
  private found: number[] = [];
  private pins: Set<ItemId> | null = null;

  constructor(
    private readonly state: State,
    private readonly compile: Compile,
  ) {
    const last = compile.steps.length - 1;
    const wanted = state.wantedStep;
    [this.attempt, this.at] = wanted ?? state.stoodAt.get(compile.id) ?? [last, 0];
    this.slider.oninput = () => this.go(Number(this.slider.value));
    this.element.append(this.controls(), this.page);
    this.open(this.attempt, this.at);
    if (wanted) this.takePins();
    state.wantedStep = null;
  }

  private controls(): HTMLElement {
    const button = (text: string, label: string, to: () => number) =>
      h("button", { class: "icon", title: label, "aria-label": label, onclick: () => this.go(to()) }, text);
    const end = () => (this.replay?.length ?? 1) - 1;
    return h(
      "div",
      { class: "controls" },
      this.compile.steps.length > 1 && this.attempts(),
      h(
        "span",
        { class: "moves", role: "group", "aria-label": "Go through the steps" },
        button("⇤", "First step (Home)", () => 0),
        button("←", "One step back (←)", () => this.at - 1),
        button("→", "One step on (→)", () => this.at + 1),
        button("⇥", "Last step (End)", end),
      ),
      this.slider,
      this.count,
      this.finder,
    );
  }

  private attempts(): HTMLElement {
    const { steps } = this.compile;
    const name = (s: Steps, i: number) => `Attempt ${i + 1}: ${s.outcome === "broke" ? "met a break" : "captured"}`;
    const options = steps.map((s, i) => h("option", { value: i, selected: i === this.attempt }, name(s, i)));
    const picker = h("select", { "aria-label": "Which attempt to capture the frame" }, ...options);
    picker.onchange = () => this.open(Number(picker.value), 0);
    return picker;
  }

  /** Show an attempt from step `at` on. */
  private open(attempt: number, at: number): void {
    const { record, links } = this.state;
    const sources = new Map(record.sources.map((s) => [s.name, s.id]));
    const line = (filename: string, number: number) => {
      const item = `${sources.get(filename)}#${number}`;
      return links.has(item) ? item : null;
    };
    this.attempt = attempt;
    try {
      this.replay = new Replay(this.compile.steps[attempt], line, (i) => `${this.compile.id}:bytecode#${i}`);
    } catch (error) {
      this.replay = null;
      this.page.replaceChildren(h("p", { class: "empty" }, (error as Error).message));
      return;
    }
    this.slider.max = String(this.replay.length - 1);
    this.find();
    this.go(at);
  }

  /** Stand at step `at`, or at the first or the last where there is none. */
  private go(at: number): void {
    const { replay } = this;
    if (!replay?.length) return;
    this.at = Math.min(Math.max(at, 0), replay.length - 1);
    this.state.stoodAt.set(this.compile.id, [this.attempt, this.at]);
    this.slider.value = String(this.at);
    const counted = `step ${(this.at + 1).toLocaleString("en")} of ${replay.length.toLocaleString("en")}`;
    this.count.textContent = counted;
    this.slider.setAttribute("aria-valuetext", `${counted}: ${this.instruction(replay)}`);
    this.drawFinder();
    this.draw(replay);
    this.state.stand(replay.items(this.at));
  }

  private instruction(replay: Replay): string {
    return replay.place(replay.steps.call[this.at], this.at).instruction;
  }

  // ------------------------------------------------------------ the page

  private draw(replay: Replay): void {
    const calls = replay.calls(this.at);
    const call = this.looked !== null && calls.includes(this.looked) ? this.looked : calls[calls.length - 1];
    const notes = replay.notes(this.at);
    // what had the keyboard is about to go
    if (this.page.matches(":focus-within")) this.slider.focus();
    this.page.replaceChildren(
      this.path(replay, calls, call),
      h("div", { class: "instruction" }, code(replay.place(call, this.at).instruction)),
      ...notes.map((note) => this.note(note)),
      h(
        "div",
        { class: "columns" },
        this.table(
          "Stack, top first",
          replay.stack(call, this.at).map((value): [string, Shown] => ["", value]),
        ),
        this.table("Locals", replay.locals(call, this.at)),
      ),
      ...this.growth(replay.notesSoFar(this.at)),
    );
    if (this.at === replay.length - 1 && replay.steps.dropped) {
      this.page.append(h("p", { class: "note" }, `${plural(replay.steps.dropped, "later step")} were not kept.`));
    }
  }

  /** The calls at work: the frame, what is inlined in it, and so on; each can be looked into. */
  private path(replay: Replay, calls: number[], looked: number): HTMLElement {
    const links = calls.map((call) => {
      const { code, line } = replay.place(call, this.at);
      const look = () => {
        this.looked = call === calls[calls.length - 1] ? null : call;
        this.draw(replay);
      };
      const text = `${code.name === "<module>" ? "top level" : code.name}${line ? `:${line}` : ""}`;
      return h("button", { "aria-pressed": String(call === looked), title: code.filename, onclick: look }, text);
    });
    return h("div", { class: "path", role: "group", "aria-label": "Calls at work" }, ...links);
  }

  private note(note: StepNote): HTMLElement {
    const words = { node: "new node", guard: "new guard", effect: "side effect", break: "graph break" }[note.kind];
    const element = h("div", { class: `added ${note.kind}` }, h("b", {}, words), code(note.text));
    const { item } = note;
    if (item === null || !this.state.links.has(item)) return element;
    const pin = h("button", { class: "link", title: "Select it in all panes", onclick: () => this.state.pin([item]) });
    pin.append(...element.childNodes);
    element.append(pin);
    return element;
  }

  private table(title: string, rows: [name: string, value: Shown][]): HTMLElement {
    const named = rows.some(([name]) => name);
    const body = rows.map(([name, { text, isNew }]) =>
      h(
        "tr",
        { class: isNew ? "changed" : "" },
        named && h("td", { class: "short" }, code(name)),
        h("td", {}, code(text), isNew && h("span", { class: "unseen" }, " (changed)")),
      ),
    );
    const none = h("tr", {}, h("td", { class: "none" }, "empty"));
    const head = h("tr", {}, h("th", { scope: "col", colspan: named ? 2 : 1 }, title));
    return h("table", {}, h("thead", {}, head), h("tbody", {}, ...(body.length ? body : [none])));
  }

  /** The graph so far: how large, and its latest nodes. */
  private growth(notes: StepNote[]): HTMLElement[] {
    const nodes = notes.filter((n) => n.kind === "node");
    const guards = notes.filter((n) => n.kind === "guard").length;
    const effects = notes.filter((n) => n.kind === "effect").length;
    const sizes = [plural(nodes.length, "node"), plural(guards, "guard"), effects && plural(effects, "side effect")];
    const latest = nodes.slice(-LATEST).map((note) => {
      const go = h("button", { class: "link", title: "Go to the step that made it" }, code(note.text));
      go.onclick = () => this.go(note.step);
      return h("tr", { class: note.step === this.at ? "changed" : "" }, h("td", {}, go));
    });
    const more =
      nodes.length > LATEST && h("p", { class: "lead" }, `… and ${nodes.length - LATEST} nodes before these`);
    const title = h("h4", {}, `So far: ${sizes.filter(Boolean).join(", ")}`);
    return [title, ...(more ? [more] : []), h("table", { class: "latest" }, h("tbody", {}, ...latest))];
  }

  // ------------------------------------------------------------ moving

  private keyed(event: KeyboardEvent): void {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target instanceof HTMLSelectElement) return;
    const { replay } = this;
    if (!replay) return;
    const page = Math.max(10, Math.round(replay.length / 20));
    const next: { [key: string]: () => number } = {
      ArrowRight: () => this.at + 1,
      ArrowLeft: () => this.at - 1,
      ArrowDown: () => replay.over(this.at, 1),
      ArrowUp: () => replay.over(this.at, -1),
      PageDown: () => this.at + page,
      PageUp: () => this.at - page,
      Home: () => 0,
      End: () => replay.length - 1,
      n: () => this.next(1),
      p: () => this.next(-1),
    };
    if (!(event.key in next)) return;
    this.go(next[event.key]());
    event.preventDefault();
  }

  /** Look for the steps of what is pinned: its own, else those that made the nodes that it is linked to. */
  private find(): void {
    const { pinned, pinLinked } = this.state;
    const steps = (items: Iterable<ItemId>) => [...items].flatMap((item) => this.replay?.stepsOf(item) ?? []);
    const graph = `${this.compile.id}:captured#`;
    const own = steps(pinned);
    const found = own.length ? own : steps([...pinLinked].filter((item) => item.startsWith(graph)));
    this.found = [...new Set(found)].sort((a, b) => a - b);
  }

  /** The next of the steps that were found, or the one before. */
  private next(by: 1 | -1): number {
    const onward = by > 0 ? this.found.find((n) => n > this.at) : this.found.findLast((n) => n < this.at);
    return onward ?? this.at;
  }

  private drawFinder(): void {
    this.finder.hidden = !this.found.length;
    const reached = this.found.filter((n) => n <= this.at).length;
    const button = (text: string, label: string, by: 1 | -1) =>
      h("button", { class: "icon", title: label, "aria-label": label, onclick: () => this.go(this.next(by)) }, text);
    this.finder.replaceChildren(
      button("‹", "Back to the selection's step before (p)", -1),
      `selection: ${reached} of ${this.found.length}`,
      button("›", "Run to the selection's next step (n)", 1),
    );
  }

  light(): void {
    this.takePins();
  }

  /** Something was pinned elsewhere: go to the step that made it. */
  reveal(): void {
    if (this.takePins() && this.found.length) this.go(this.found[0]);
  }

  /** Whether other items are pinned than when this was last asked. */
  private takePins(): boolean {
    if (this.pins === this.state.pinned) return false;
    this.pins = this.state.pinned;
    this.find();
    this.drawFinder();
    return true;
  }

  destroy(): void {
    this.state.stand([]);
  }
}

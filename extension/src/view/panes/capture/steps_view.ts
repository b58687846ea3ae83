/** Shows the state of the symbolic interpreter at any of its recorded steps. */

import { h } from "../../dom/elements";
import { keyOf } from "../../model/analysis/links";
import { Replay } from "../../model/analysis/replay";
import { NOTES, type Stop, stopsOf } from "../../model/analysis/stops";
import type { Content } from "../../model/content";
import type { Compile, ItemId, Steps } from "../../model/record/record";
import type { State } from "../../model/state";
import { StepPage } from "./step_page";

/** The name of the stops that the pinned items are. */
const SELECTION = "what is pinned";

export class StepsView implements Content {
  readonly element = h("div", { class: "stepper", onkeydown: (event: KeyboardEvent) => this.handleKey(event) });
  private readonly slider = h("input", { type: "range", min: 0, step: 1, "aria-label": "Step" });
  private readonly counter = h("output", { class: "count" });
  private readonly stopPicker = h("select", { "aria-label": "Stop at", title: "Where n and p stop" });
  private readonly stopCount = h("output", {});
  private readonly finder = h("span", { class: "finder", role: "group", "aria-label": "Stops" });
  private readonly page: StepPage;
  private replay: Replay | null = null;
  private attempt: number;
  private at: number;
  /** The steps at which the pinned items are reached. */
  private found: number[] = [];
  private stops: Stop[] = [];
  /** Where n and p stop. */
  private stop: Stop | null = null;
  /** What was chosen in the picker last. */
  private chosenStop = NOTES.node;
  private knownPins: Set<ItemId> | null = null;

  constructor(
    private readonly state: State,
    private readonly compile: Compile,
  ) {
    const last = compile.steps.length - 1;
    const requested = state.requestedStep;
    [this.attempt, this.at] = requested ?? state.lastSteps.get(compile.id) ?? [last, 0];
    this.page = new StepPage(
      state,
      (step) => this.go(step),
      () => this.slider.focus(),
    );
    this.slider.oninput = () => this.go(Number(this.slider.value));
    this.element.append(this.controls(), this.page.element);
    this.showAttempt(this.attempt, this.at);
    if (requested) this.updatePins();
    state.requestedStep = null;
  }

  private controls(): HTMLElement {
    const button = (text: string, label: string, to: () => number) =>
      h("button", { class: "icon", title: label, "aria-label": label, onclick: () => this.go(to()) }, text);
    const end = () => (this.replay?.length ?? 1) - 1;
    this.finder.append(
      "stop at ",
      this.stopPicker,
      button("‹", "Previous stop (p)", () => this.nextStop(-1)),
      button("›", "Next stop (n)", () => this.nextStop(1)),
      this.stopCount,
    );
    return h(
      "div",
      { class: "controls" },
      this.compile.steps.length > 1 && this.attempts(),
      h(
        "span",
        { class: "moves", role: "group", "aria-label": "Move between steps" },
        button("⇤", "First step (Home)", () => 0),
        button("←", "Previous step (←)", () => this.at - 1),
        button("→", "Next step (→)", () => this.at + 1),
        button("⇥", "Last step (End)", end),
      ),
      this.slider,
      this.counter,
      this.finder,
    );
  }

  private attempts(): HTMLElement {
    const { steps } = this.compile;
    const name = (s: Steps, i: number) => `Attempt ${i + 1}: ${s.outcome === "broke" ? "graph break" : "captured"}`;
    const options = steps.map((s, i) => h("option", { value: i, selected: i === this.attempt }, name(s, i)));
    const picker = h("select", { "aria-label": "Attempt to capture the frame" }, ...options);
    picker.onchange = () => this.showAttempt(Number(picker.value), 0);
    return picker;
  }

  /** Shows an attempt at step `at`. */
  private showAttempt(attempt: number, at: number): void {
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
      this.page.element.replaceChildren(h("p", { class: "empty" }, (error as Error).message));
      return;
    }
    this.slider.max = String(this.replay.length - 1);
    this.stops = stopsOf(this.replay);
    this.findSelectionSteps();
    this.fillStops();
    this.go(at);
  }

  /** Goes to step `at`, limited to the steps of the attempt. */
  private go(at: number): void {
    const { replay } = this;
    if (!replay?.length) return;
    this.at = Math.min(Math.max(at, 0), replay.length - 1);
    this.state.lastSteps.set(this.compile.id, [this.attempt, this.at]);
    this.slider.value = String(this.at);
    const counted = `step ${(this.at + 1).toLocaleString("en")} of ${replay.length.toLocaleString("en")}`;
    this.counter.textContent = counted;
    this.slider.setAttribute("aria-valuetext", `${counted}: ${this.instruction(replay)}`);
    this.countStops();
    this.page.draw(replay, this.at);
    this.state.setStepItems(replay.itemsOf(this.at), this.itemsAfter(replay));
  }

  /** What later steps create, and with it the output of the graph, which no single step makes. */
  private itemsAfter(replay: Replay): ItemId[] {
    const later = replay.itemsAfter(this.at);
    const graph = this.compile.artifacts.find(({ pane }) => pane === "captured");
    const outputs = graph?.graph?.nodes.filter(({ op }) => op === "output") ?? [];
    return later.length ? [...later, ...outputs.map(({ key }) => `${graph?.id}#${key}`)] : [];
  }

  private instruction(replay: Replay): string {
    return replay.positionOf(replay.steps.call[this.at], this.at).instruction;
  }

  private handleKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target instanceof HTMLSelectElement) return;
    const { replay } = this;
    if (!replay) return;
    const page = Math.max(10, Math.round(replay.length / 20));
    const next: { [key: string]: () => number } = {
      ArrowRight: () => this.at + 1,
      ArrowLeft: () => this.at - 1,
      ArrowDown: () => replay.stepOver(this.at, 1),
      ArrowUp: () => replay.stepOver(this.at, -1),
      PageDown: () => this.at + page,
      PageUp: () => this.at - page,
      Home: () => 0,
      End: () => replay.length - 1,
      n: () => this.nextStop(1),
      p: () => this.nextStop(-1),
    };
    if (!(event.key in next)) return;
    this.go(next[event.key]());
    event.preventDefault();
  }

  /** Finds the steps of the pinned items, or else those that created the nodes that these are linked to. */
  private findSelectionSteps(): void {
    const { pinned, pinLinked } = this.state;
    const steps = (items: Iterable<ItemId>) => [...items].flatMap((item) => this.replay?.stepsOf(item) ?? []);
    const graph = `${this.compile.id}:captured#`;
    const own = steps(pinned);
    const found = own.length ? own : steps([...pinLinked].filter((item) => item.startsWith(graph)));
    const sorted = [...new Set(found)].sort((a, b) => a - b);
    this.found = sorted.filter((n, i) => n !== sorted[i - 1] + 1); // where it is reached
  }

  /** Returns the next step to stop at, or the previous one; the current step if there is none. */
  private nextStop(by: 1 | -1): number {
    const steps = this.stop?.steps ?? [];
    return (by > 0 ? steps.find((n) => n > this.at) : steps.findLast((n) => n < this.at)) ?? this.at;
  }

  /** Offers the stops in the picker; those of the selection are chosen as soon as there is one. */
  private fillStops(): void {
    const { links } = this.state;
    const own: Stop[] = this.found.length ? [{ group: "Events", name: SELECTION, steps: this.found }] : [];
    const stops = [...own, ...this.stops];
    this.stop = stops.find(({ name }) => name === (own.length ? SELECTION : this.chosenStop)) ?? stops[0] ?? null;
    const text = ({ group, name }: Stop) => (group === "Lines" ? `${keyOf(name)} ${links.text(name).trim()}` : name);
    const option = (stop: Stop) => h("option", { value: stop.name, selected: stop === this.stop }, text(stop));
    const groups = [...new Set(stops.map(({ group }) => group))].map((group) =>
      h("optgroup", { label: group }, ...stops.filter((stop) => stop.group === group).map(option)),
    );
    this.stopPicker.replaceChildren(...groups);
    this.stopPicker.onchange = () => {
      const chosen = stops.find(({ name }) => name === this.stopPicker.value) ?? null;
      this.stop = chosen;
      if (chosen && chosen.name !== SELECTION) this.chosenStop = chosen.name;
      this.countStops();
    };
    this.finder.hidden = !stops.length;
    this.countStops();
  }

  /** Says how many of the stops were reached. */
  private countStops(): void {
    const steps = this.stop?.steps ?? [];
    this.stopCount.textContent = `${steps.filter((n) => n <= this.at).length} of ${steps.length}`;
  }

  highlight(): void {
    this.updatePins();
  }

  /** Goes to the step that created what was pinned in another pane. */
  reveal(): void {
    if (this.updatePins() && this.found.length) this.go(this.found[0]);
  }

  /** Updates the steps of the selection; returns whether the pinned items changed since the last call. */
  private updatePins(): boolean {
    if (this.knownPins === this.state.pinned) return false;
    this.knownPins = this.state.pinned;
    this.findSelectionSteps();
    this.fillStops();
    return true;
  }

  destroy(): void {
    this.state.setStepItems([]);
  }
}

/** Shows how the loop nest of a kernel was made: its rewrites, and the nest and its iteration space after each. */

import { h } from "../../dom/elements";
import { kernelCosts } from "../../model/analysis/costs";
import { matchTexts } from "../../model/analysis/diff";
import { drawnIndices, iterationSpace } from "../../model/analysis/iteration_space";
import type { Content } from "../../model/content";
import type { Compile, ItemId, Rewrite, Schedule } from "../../model/record/record";
import type { State } from "../../model/state";
import { cellButton, scheduleCell } from "../edit_button";
import { code, LinkedContent } from "../linked_content";
import { iterationPicture } from "./iteration_picture";

export class ScheduleView implements Content {
  readonly element = h("div", {
    class: "stepper schedule",
    onkeydown: (event: KeyboardEvent) => this.handleKey(event),
  });
  private readonly picker = h("select", { "aria-label": "Kernel" });
  private readonly counter = h("output", { class: "count" });
  private readonly list = h("ol", { class: "rewrites", "aria-label": "Rewrites" });
  private readonly place = h("div", { class: "page" });
  private page: NestPage | null = null;
  private chosen: Schedule;
  private at = 0;
  private knownPins: Set<ItemId>;
  private readonly edit: HTMLElement | null;

  constructor(
    private readonly state: State,
    private readonly compile: Compile,
  ) {
    this.knownPins = state.pinned;
    this.chosen = this.pinnedSchedule() ?? this.mostExpensive();
    this.picker.append(...compile.schedules.map(({ kernel }, n) => h("option", { value: n }, kernel)));
    this.picker.onchange = () => this.choose(compile.schedules[Number(this.picker.value)]);
    this.edit = cellButton(state, "this schedule", () => scheduleCell(compile, this.chosen));
    const controls = h("div", { class: "controls" }, this.picker, this.moves(), this.counter, this.edit);
    this.element.append(controls, this.list, this.place);
    this.choose(this.chosen);
  }

  private moves(): HTMLElement {
    const button = (text: string, label: string, to: () => number) =>
      h("button", { class: "icon", title: label, "aria-label": label, onclick: () => this.go(to()) }, text);
    return h(
      "span",
      { class: "moves", role: "group", "aria-label": "Move between rewrites" },
      button("⇤", "Naive nest (Home)", () => 0),
      button("←", "Previous rewrite (←)", () => this.at - 1),
      button("→", "Next rewrite (→)", () => this.at + 1),
      button("⇥", "Final nest (End)", () => Number.POSITIVE_INFINITY),
    );
  }

  /** The schedule of the first kernel that is linked to what is pinned. */
  private pinnedSchedule(): Schedule | undefined {
    const { pinned, pinLinked } = this.state;
    if (!pinned.size) return undefined;
    const isIn = (items: Set<ItemId>) => (schedule: Schedule) => items.has(this.itemOf(schedule));
    return this.compile.schedules.find(isIn(pinned)) ?? this.compile.schedules.find(isIn(pinLinked));
  }

  private mostExpensive(): Schedule {
    const { schedules } = this.compile;
    for (const { kernel } of kernelCosts([this.compile], this.state.links)) {
      const found = schedules.find((schedule) => schedule.kernel === kernel.name && schedule.graph === kernel.graph);
      if (found) return found;
    }
    return schedules[0];
  }

  /** The item of a kernel's loops, or of one of their statements. */
  private itemOf({ graph, kernel }: Schedule, statement?: number): ItemId {
    const part = kernel.slice(0, kernel.lastIndexOf(".") + 1);
    const artifact = this.compile.artifacts.find(({ name }) => name === `${part}${graph}.loops`);
    const key = kernel.slice(part.length);
    return `${artifact?.id}#${key}${statement === undefined ? "" : `.${statement}`}`;
  }

  private choose(schedule: Schedule): void {
    this.chosen = schedule;
    this.picker.value = String(this.compile.schedules.indexOf(schedule));
    if (this.edit) this.edit.hidden = schedule.kernel.includes("."); // of a part of a graph
    this.go(0);
  }

  private get rewrites(): Rewrite[] {
    const { like, rewrites } = this.chosen;
    const nests = this.compile.schedules.find(({ kernel }) => kernel === like)?.rewrites;
    return nests ? rewrites.map((rewrite, n) => ({ ...(nests[n] ?? rewrite), text: rewrite.text })) : rewrites;
  }

  /** Shows the nest after rewrite `at`; 0 is the naive nest. */
  private go(at: number): void {
    const { rewrites } = this;
    this.at = Math.max(0, Math.min(at, rewrites.length - 1));
    const hadFocus = this.element.contains(document.activeElement);
    this.list.replaceChildren(...rewrites.map((rewrite, n) => this.step(rewrite, n)));
    this.counter.textContent = `${this.at} of ${rewrites.length - 1}`;
    this.counter.title = "Rewrites so far";
    this.page = rewrites.length ? this.nestPage(rewrites) : null;
    this.place.replaceChildren(this.page?.element ?? h("p", { class: "empty" }, "The record has no rewrites of it."));
    const current = this.list.querySelector<HTMLElement>("[aria-current]");
    if (hadFocus && !this.element.contains(document.activeElement)) current?.focus();
    current?.scrollIntoView?.({ block: "nearest" });
  }

  private step({ text, reason }: Rewrite, n: number): HTMLElement {
    const words = text ? [code(text), reason && h("span", { class: "reason" }, reason)] : [h("span", {}, "naive nest")];
    const isCurrent = n === this.at;
    const button = h("button", { "aria-current": isCurrent ? "step" : null, onclick: () => this.go(n) }, ...words);
    return h("li", {}, button);
  }

  private nestPage(rewrites: Rewrite[]): NestPage {
    const { chosen } = this;
    const note = chosen.like ? `${chosen.kernel} has the schedule of ${chosen.like}, whose names are shown.` : "";
    const kernel = this.compile.kernels.find(({ name, graph }) => name === chosen.kernel && graph === chosen.graph);
    const page = new NestPage(this.state, rewrites, this.at, (statement) => this.itemOf(chosen, statement), note);
    const space = iterationSpace(rewrites[this.at], drawnIndices(rewrites[0]));
    const none = h("p", { class: "note" }, "Without loops, there is no iteration space to draw.");
    page.element.append(...(space ? iterationPicture(space, kernel, rewrites[0]) : [none]));
    return page;
  }

  private handleKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target instanceof HTMLSelectElement) return;
    const next: { [key: string]: number } = {
      ArrowRight: this.at + 1,
      ArrowLeft: this.at - 1,
      ArrowDown: this.at + 1,
      ArrowUp: this.at - 1,
      Home: 0,
      End: Number.POSITIVE_INFINITY,
    };
    if (!(event.key in next)) return;
    this.go(next[event.key]);
    event.preventDefault();
  }

  highlight(): void {
    this.page?.highlight();
  }

  /** Shows the kernel that is linked to what was pinned elsewhere, and its first linked line. */
  reveal(items: Set<ItemId>): void {
    if (this.knownPins !== this.state.pinned) {
      this.knownPins = this.state.pinned;
      const found = this.pinnedSchedule();
      if (found && !this.state.pinLinked.has(this.itemOf(this.chosen))) this.choose(found);
    }
    this.page?.reveal(items);
  }

  destroy(): void {}
}

/** The lines of a nest, linked to the statements of the kernel's loops; those that the rewrite changed are marked. */
class NestPage extends LinkedContent {
  constructor(state: State, rewrites: Rewrite[], at: number, itemOf: (statement: number) => ItemId, note: string) {
    super(state);
    const { nest, statements } = rewrites[at];
    const lines = nest.split("\n");
    const before = at ? matchTexts(lines, rewrites[at - 1].nest.split("\n")) : null;
    const elements = lines.map((line, n) => {
      const isChanged = before !== null && before[n] < 0;
      const text = [
        line.replace(/^ +/, (indent) => indent.slice(indent.length / 2)) || " ",
        isChanged && h("span", { class: "unseen" }, " (changed)"),
      ];
      const element = h("div", { class: isChanged ? "changed" : "" }, ...text);
      return statements[n] >= 0 ? this.linkTo(element, [itemOf(statements[n])]) : element;
    });
    const text = h("div", { class: "nest", role: "group", "aria-label": "Loop nest" }, ...elements);
    this.element.append(h("div", { class: "code" }, note ? h("p", { class: "note" }, note) : null, text));
    this.highlight();
  }
}

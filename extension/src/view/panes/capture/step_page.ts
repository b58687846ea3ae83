/** The state of the symbolic interpreter after one step: call stack, instruction, what was added, stack and locals. */

import { h } from "../../dom/elements";
import { plural } from "../../dom/format";
import type { Replay, ShownValue } from "../../model/analysis/replay";
import { NOTES } from "../../model/analysis/stops";
import type { StepNote } from "../../model/record/record";
import type { State } from "../../model/state";
import { code } from "../linked_content";

/** Number of latest nodes, guards and side effects that are listed; the whole graph and all guards have their own panes. */
const LATEST = { node: 8, guard: 4, effect: 4 };

export class StepPage {
  readonly element = h("div", { class: "page rows", "aria-live": "polite" });
  private at = 0;
  /** The call whose stack and locals are shown; null: the innermost. */
  private selectedCall: number | null = null;

  constructor(
    private readonly state: State,
    private readonly go: (step: number) => void,
    /** Focuses another element, before the focused one is replaced. */
    private readonly takeFocus: () => void,
  ) {}

  /** Shows the state after step `at`. */
  draw(replay: Replay, at: number): void {
    this.at = at;
    if (this.element.matches(":focus-within")) this.takeFocus();
    const calls = replay.calls(at);
    const call =
      this.selectedCall !== null && calls.includes(this.selectedCall) ? this.selectedCall : calls[calls.length - 1];
    const notes = replay.notes(this.at);
    this.element.replaceChildren(
      this.callStack(replay, calls, call),
      h("div", { class: "instruction" }, code(replay.positionOf(call, this.at).instruction)),
      ...notes.map((note) => this.note(note)),
      h(
        "div",
        { class: "columns" },
        this.table(
          "Stack, top first",
          replay.stack(call, this.at).map((value): [string, ShownValue] => ["", value]),
        ),
        this.table("Locals", replay.locals(call, this.at)),
      ),
      ...this.recordedSoFar(replay.notesSoFar(this.at)),
    );
    if (this.at === replay.length - 1 && replay.steps.dropped) {
      this.element.append(
        h("p", { class: "note" }, `${plural(replay.steps.dropped, "later step")} were not recorded.`),
      );
    }
  }

  /** The active calls: the frame and the calls inlined in it. A press on one shows its stack and locals. */
  private callStack(replay: Replay, calls: number[], selected: number): HTMLElement {
    const links = calls.map((call) => {
      const { code, line } = replay.positionOf(call, this.at);
      const select = () => {
        this.selectedCall = call === calls[calls.length - 1] ? null : call;
        this.draw(replay, this.at);
      };
      const own = code.name.replace(/(\.<resumed>)+$/, ""); // its line follows
      const name = own === "<module>" ? "top level" : own;
      const text = line ? `${name}:${line}` : name;
      return h("button", { "aria-pressed": String(call === selected), title: code.filename, onclick: select }, text);
    });
    return h("div", { class: "path", role: "group", "aria-label": "Call stack" }, ...links);
  }

  private note(note: StepNote): HTMLElement {
    const element = h("div", { class: `added ${note.kind}` }, h("b", {}, NOTES[note.kind]), code(note.text));
    const { item } = note;
    if (item === null || !this.state.links.has(item)) return element;
    const pin = h("button", { class: "link", title: "Pin it in all panes", onclick: () => this.state.pin([item]) });
    pin.append(...element.childNodes);
    element.append(pin);
    return element;
  }

  private table(title: string, rows: [name: string, value: ShownValue][]): HTMLElement {
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

  /** The graph, the guards and the side effects so far: how many, and the latest ones. */
  private recordedSoFar(notes: StepNote[]): HTMLElement[] {
    return [
      ...this.latest("node", "Graph so far", "node", notes),
      ...this.latest("guard", "Guards so far", "guard", notes),
      ...this.latest("effect", "Side effects so far", "side effect", notes),
    ];
  }

  private latest(kind: keyof typeof LATEST, title: string, name: string, notes: StepNote[]): HTMLElement[] {
    const all = notes.filter((note) => note.kind === kind);
    if (!all.length) return [];
    const rows = all.slice(-LATEST[kind]).map((note) => {
      const go = h("button", { class: "link", title: "Go to the step that created it" }, code(note.text));
      go.onclick = () => this.go(note.step);
      return h("tr", { class: note.step === this.at ? "changed" : "" }, h("td", {}, go));
    });
    const head = h("h4", {}, `${title}: ${plural(all.length, name)}`);
    const earlier = all.length - rows.length;
    const more = earlier && h("p", { class: "lead" }, `… and ${plural(earlier, `earlier ${name}`)}`);
    return [head, ...(more ? [more] : []), h("table", { class: "latest" }, h("tbody", {}, ...rows))];
  }
}

/**
 * The line on top of the explorer: was compiling worth it? It has a button that times the cell again in the kernel,
 * and shows its progress. Without a kernel, or for a record that was loaded, it says why the cell cannot be timed.
 */

import { h } from "../dom/elements";
import type { Verdict } from "../model/record/record";
import type { State } from "../model/state";
import { StaticModel, type TimingState } from "../model/widget_model";

export class VerdictLine {
  readonly element = h("div", { class: "verdict", role: "status" });
  private readonly controls = h("span", { class: "controls" });
  private readonly notes = h("div", { class: "notes" });
  private readonly bar = h("progress", { max: 1, "aria-label": "Progress of timing" });
  private readonly text = h("span");
  private isRunning: boolean | null = null;
  private readonly listener = () => this.update();

  constructor(private readonly state: State) {
    const { verdict } = state.record;
    const parts = verdict ? this.parts(verdict) : [];
    this.element.append(h("span", { class: "parts" }, ...parts), this.controls, this.notes);
    this.element.hidden = !verdict;
    state.model.on("change:timing", this.listener);
    this.update();
  }

  private parts({ speed, change, compile, memory, problems }: Verdict): HTMLElement[] {
    const show = () => this.state.open("speed");
    const times = h("button", { class: `speed ${change}`, title: "Show all times", onclick: show }, speed);
    const facts = [compile, memory].filter((text) => text).map((text) => h("span", {}, text));
    return [...(speed ? [times] : []), ...facts, this.problems(problems)];
  }

  /** The number of problems; if there are any, a button that shows them. */
  private problems(text: string): HTMLElement {
    const { problems } = this.state.record;
    const worst = problems.find(({ grade }) => grade !== "expected");
    if (!worst) return h("span", {}, text);
    const { line, compiles } = worst;
    const known = line !== null && this.state.links.has(line) ? line : null;
    const show = () => this.state.goTo({ compile: compiles[0] ?? "", pane: "overview", line: known });
    const tone = worst.grade === "blocking" ? "bad" : "warns";
    return h("button", { class: `count ${tone}`, title: "Show the worst one", onclick: show }, text);
  }

  private update(): void {
    const timing = timingState(this.state);
    const isRunning = Boolean(timing?.running);
    if (isRunning) this.showProgress(timing as TimingState);
    // controls stay the same elements while the cell is timed, so that a click is not lost
    if (isRunning !== this.isRunning || !isRunning) {
      this.controls.replaceChildren(...(isRunning ? this.progress() : this.buttons(timing)));
    }
    this.isRunning = isRunning;
    const notes = [timing?.message, ...(this.state.record.verdict?.warnings ?? [])].filter((text) => text);
    this.notes.replaceChildren(...notes.map((text) => h("p", { class: "note" }, text)));
  }

  private showProgress({ running, share }: TimingState): void {
    this.text.textContent = running;
    if (share) this.bar.value = share;
    else this.bar.removeAttribute("value");
  }

  private progress(): HTMLElement[] {
    const stop = h("button", { class: "stop" }, "Stop");
    stop.onclick = () => {
      this.state.model.send({ type: "cancel" });
      stop.disabled = true;
      stop.textContent = "Stopping…";
    };
    return [this.bar, this.text, stop];
  }

  private buttons(timing: TimingState | null): HTMLElement[] {
    const { timings } = this.state.record;
    if (!timing) return timings ? [] : [whyNot(this.state)];
    const timed = (timings?.rows ?? []).map(({ name }) => name).filter((name) => timing.forms.includes(name));
    const title = "Run the cell again, as plain PyTorch and compiled, in turn; its effects on variables are undone";
    const button = h("button", { class: "time", title }, timings ? "Time again" : "Time it");
    const label = { "aria-label": "Time it beside another form", title: "Time it beside another form" };
    const others = timing.forms.filter((form) => !timed.includes(form));
    const choices = others.map((form) => h("option", { value: form }, form));
    const picker = h("select", label, h("option", { value: "" }, "beside…"), ...choices);
    const start = (forms: string[]) => {
      this.state.model.send({ type: "time", forms });
      button.disabled = picker.disabled = true;
    };
    button.onclick = () => start(timed);
    picker.onchange = () => start([...timed, picker.value]);
    return [button, picker];
  }

  destroy(): void {
    this.state.model.off("change:timing", this.listener);
  }
}

/** The state of timing the cell; null if its inputs are not kept. */
function timingState({ model }: State): TimingState | null {
  const timing = model.get("timing");
  return timing && Array.isArray(timing.forms) ? (timing as TimingState) : null;
}

function whyNot({ model }: State): HTMLElement {
  const [text, title] =
    model instanceof StaticModel
      ? ["not timed: this page has no kernel", "Run the cell again in a notebook with its kernel"]
      : ["not timed: the cell's inputs are not kept", "Run the cell again with %%compile in this kernel"];
  return h("span", { class: "whynot", title }, text);
}

/**
 * The line on top of the explorer: was compiling worth it? It has a button that times the cell again in the kernel, and a
 * menu of what can be tried with it, and shows their progress and the runs that were made. Without a kernel, or for a
 * record that was loaded, it says why the cell cannot be timed.
 */

import { h } from "../dom/elements";
import { shorten } from "../dom/format";
import type { Verdict } from "../model/record/record";
import type { State } from "../model/state";
import { experimentsOf, StaticModel, type TimingState } from "../model/widget_model";

const MAX_LABEL = 44;

export class VerdictLine {
  readonly element = h("div", { class: "verdict", role: "status" });
  private readonly controls = h("span", { class: "controls" });
  private readonly notes = h("div", { class: "notes" });
  private readonly runs = h("span", { class: "runs", role: "group", "aria-label": "Runs of the cell" });
  private readonly bar = h("progress", { max: 1, "aria-label": "Progress of the run" });
  private readonly text = h("span");
  private isRunning: boolean | null = null;
  private readonly listener = () => this.update();

  constructor(private readonly state: State) {
    const { verdict } = state.record;
    const parts = verdict ? this.parts(verdict) : [];
    this.element.append(this.runs, h("span", { class: "parts" }, ...parts), this.controls, unfoldButton(), this.notes);
    this.element.hidden = !verdict;
    state.model.on("change:timing", this.listener);
    state.model.on("change:experiments", this.listener);
    state.on("pin", this.listener);
    this.update();
  }

  private parts({ speed, change, compile, memory, problems }: Verdict): HTMLElement[] {
    const show = () => this.state.open("speed");
    const times = h("button", { class: `speed ${change}`, title: "Show all times", onclick: show }, speed);
    const facts = [compile, memory].filter((text) => text).map((text) => h("span", {}, text));
    const parts = [...(speed ? [times] : []), ...facts, this.problems(problems)];
    return parts.map((part) => h("span", {}, part)); // with the dot before it
  }

  /** The number of problems; if there are any, a button that shows them. */
  private problems(text: string): HTMLElement {
    const { problems } = this.state.record;
    const worst = problems.find(({ grade }) => grade !== "expected");
    if (!worst) return h("span", {}, text);
    const show = () => this.state.goToProblem(worst);
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
    this.drawRuns(isRunning);
    const notes = [timing?.forms.length ? timing.message : "", ...(this.state.record.verdict?.warnings ?? [])].filter(
      (text) => text,
    );
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
    if (!timing.forms.length) {
      if (this.state.record.raised) return []; // the verdict says so already
      return [h("span", { class: "whynot" }, `not timed: ${timing.message}`)];
    }
    const timed = (timings?.rows ?? []).map(({ name }) => name).filter((name) => timing.forms.includes(name));
    const title = "Run the cell again, as plain PyTorch and compiled, in turn; its effects on variables are undone";
    const button = h("button", { class: "time", title }, timings ? "Time again" : "Time it");
    const menu = this.menu(timing.forms.filter((form) => !timed.includes(form)));
    const send = (message: object) => {
      this.state.model.send(message);
      button.disabled = menu.disabled = true;
    };
    button.onclick = () => send({ type: "time", forms: timed });
    menu.onchange = () => {
      const [kind, name] = menu.value.split("|");
      if (kind === "time") send({ type: "time", forms: [...timed, name] });
      else send({ type: "try", experiment: name, item: name === "guard" ? this.pinnedGuard() : "" });
    };
    return [button, menu];
  }

  /** The menu of what can be tried: the experiments, and the other forms in which the cell can be timed. */
  private menu(forms: string[]): HTMLSelectElement {
    const title = "Run the cell again with one thing changed, on the variables as they are now; they do not change";
    const choices = (experimentsOf(this.state.model)?.choices ?? []).map(({ name, label, why }) => {
      const reason = why || (name === "guard" && !this.pinnedGuard() ? "pin one in the pane Guards" : "");
      const text = reason ? `${label} (${reason})` : label;
      return h("option", { value: `try|${name}`, disabled: Boolean(reason) }, text);
    });
    const timed = forms.map((form) => h("option", { value: `time|${form}` }, form));
    return h(
      "select",
      { class: "try", "aria-label": "Try", title },
      h("option", { value: "" }, "Try…"),
      ...(choices.length ? [h("optgroup", { label: "Run it again" }, ...choices)] : []),
      h("optgroup", { label: "Time it beside" }, ...timed),
    );
  }

  private pinnedGuard(): string {
    const { pinned, links } = this.state;
    return [...pinned].find((item) => links.artifactOf(item)?.pane === "guards") ?? "";
  }

  /** Shows the runs that were made, as buttons. */
  private drawRuns(isDisabled: boolean): void {
    const { runs = [], shown = 0 } = experimentsOf(this.state.model) ?? {};
    this.runs.hidden = runs.length < 2;
    this.runs.replaceChildren(
      ...runs.map((label, run) => {
        const show = () => this.state.model.send({ type: "run", run });
        const state = { "aria-pressed": String(run === shown), disabled: isDisabled };
        return h("button", { ...state, title: label, onclick: show }, shorten(label, MAX_LABEL));
      }),
    );
  }

  destroy(): void {
    this.state.model.off("change:timing", this.listener);
    this.state.model.off("change:experiments", this.listener);
  }
}

/** The state of timing the cell; null if its inputs are not kept. */
function timingState({ model }: State): TimingState | null {
  const timing = model.get("timing");
  return timing && Array.isArray(timing.forms) ? (timing as TimingState) : null;
}

/** The button that shows the rest of an explorer that is one line. */
function unfoldButton(): HTMLElement {
  const button = h("button", { class: "unfold try", title: "Show what was compiled before the exception" }, "Explore");
  button.onclick = () => button.closest(".cutaway")?.classList.remove("folded");
  return button;
}

function whyNot({ model }: State): HTMLElement {
  const [text, title] =
    model instanceof StaticModel
      ? ["not timed: this is a saved result", "Run the cell again in a notebook to time it"]
      : ["not timed: the cell's inputs are not kept", "Run the cell again with %%compile in this kernel"];
  return h("span", { class: "whynot", title }, text);
}

/** The view while a cell compiles: the stages, the latest steps, the elapsed time, and a button to stop it. */

import { h } from "../dom/elements";
import { plural } from "../dom/format";
import { shownName } from "../model/frame_names";
import type { Progress, WidgetModel } from "../model/widget_model";

/** After how long between two steps the cell's own code is said to run. */
const RUNNING_AFTER_MS = 700;
/** After how long without news the kernel is asked for its state, which may be lost; each time after twice as long. */
const ASK_AFTER_MS = 4000;
const ASK_AT_MOST_EVERY_MS = 60_000;

export class ProgressView {
  readonly element = h("div", { class: "compiling", role: "status" });
  private readonly time = h("span", { class: "time" });
  private readonly heading = h("h3", {}, "Compiling…");
  private readonly facts = h("span", { class: "time" });
  private readonly stages = h("ol", { class: "stages", "aria-label": "Stages of this compile" });
  private readonly steps = h("ol", { class: "latest", "aria-label": "Latest steps" });
  private readonly bar = h("progress", { max: 1, "aria-label": "Progress of timing", hidden: true });
  private readonly stop = h("button", { class: "stop" }, "Stop");
  private readonly timer: number;
  private started = performance.now();
  private lastNews = performance.now();
  private askAt = performance.now() + ASK_AFTER_MS;
  private pause = ASK_AFTER_MS;
  private readonly listener = () => {
    this.pause = ASK_AFTER_MS;
    this.lastNews = performance.now();
    this.askAt = this.lastNews + this.pause;
    this.update();
  };

  constructor(private readonly model: WidgetModel) {
    this.stop.onclick = () => {
      model.send({ type: "cancel" });
      this.stop.disabled = true;
      this.stop.textContent = "Stopping…";
    };
    const header = h("header", {}, this.heading, this.time, this.facts, this.bar, this.stop);
    this.element.append(header, this.stages, this.steps);
    model.on("change:progress", this.listener);
    this.timer = window.setInterval(() => {
      this.tick();
      this.askIfSilent();
    }, 100);
    this.update();
  }

  private update(): void {
    const progress = this.model.get("progress");
    if (progress?.ended) this.end(progress.ended);
    else if (progress?.share !== undefined) this.showTiming(progress.name, progress.share);
    else if (progress?.frame) this.showCompile(progress);
  }

  /** The cell has run and is timed beside plain PyTorch. */
  private showTiming(name: string, share: number): void {
    this.heading.textContent = `Timing the cell: ${name}`;
    this.bar.hidden = false;
    if (share) this.bar.value = share;
    else this.bar.removeAttribute("value");
    this.facts.textContent = "";
    this.stages.replaceChildren();
    this.steps.replaceChildren();
  }

  private showCompile(progress: Progress): void {
    this.started = performance.now() - progress.elapsed * 1000;
    this.heading.textContent = `Compiling ${shownName(progress.frame)} (${progress.compile})`;
    const kernels = progress.kernels ? `${plural(progress.kernels, "kernel")} built` : "";
    const compiles = progress.compiles > 1 ? `${plural(progress.compiles, "compile")} so far` : "";
    this.facts.textContent = [kernels, compiles].filter((text) => text).join(" · ");
    // stages may be nested, as in stock: the innermost is highlighted
    const current = progress.stage || progress.stages.findLast(({ running }) => running)?.stage;
    this.stages.replaceChildren(
      ...progress.stages.map(({ stage, ms, running }) =>
        h("li", { class: stage === current ? "running" : "" }, stage, h("small", {}, running ? "…" : milliseconds(ms))),
      ),
    );
    const done = progress.done.map((step) =>
      h(
        "li",
        { class: step.outcome },
        h("span", {}, step.outcome === "failed" ? "✗" : "✓"),
        h("span", {}, step.stage === step.name ? step.stage : `${step.stage}: ${step.name}`),
        h("span", { class: "ms" }, milliseconds(step.ms)),
      ),
    );
    const now =
      progress.stage &&
      h("li", { class: "running" }, h("span", {}, "…"), h("span", {}, progress.name || progress.stage));
    this.steps.replaceChildren(...done, ...(now ? [now] : []));
    this.tick();
  }

  /** Asks the kernel for its state after some seconds without news: the message with the record may be lost. */
  private askIfSilent(): void {
    if (performance.now() < this.askAt) return;
    this.pause = Math.min(2 * this.pause, ASK_AT_MOST_EVERY_MS);
    this.askAt = performance.now() + this.pause;
    try {
      this.model.send({ type: "resend" });
    } catch {
      this.end("The kernel has ended, so there is no record.");
    }
  }

  /** Says why no record will come. */
  private end(why: string): void {
    window.clearInterval(this.timer);
    this.element.classList.add("ended");
    this.heading.textContent = why;
    this.time.textContent = "";
    this.facts.textContent = "";
    this.bar.hidden = this.stop.hidden = true;
    this.stages.replaceChildren();
    this.steps.replaceChildren();
  }

  private tick(): void {
    const progress = this.model.get("progress");
    const isBetween = progress?.frame && !progress.stage && !progress.stages.some(({ running }) => running);
    if (isBetween && performance.now() - this.lastNews > RUNNING_AFTER_MS) {
      this.heading.textContent = `The cell runs; compiled last: ${shownName(progress.frame)} (${progress.compile})`;
    }
    this.time.textContent = `${((performance.now() - this.started) / 1000).toFixed(1)} s`;
  }

  destroy(): void {
    window.clearInterval(this.timer);
    this.model.off("change:progress", this.listener);
  }
}

function milliseconds(ms: number): string {
  return `${ms.toFixed(ms < 10 ? 1 : 0)} ms`;
}

/** The view while a cell compiles: the stages, the latest steps, the elapsed time, and a button to stop it. */

import { h } from "../dom/elements";
import { plural } from "../dom/format";
import { shownName } from "../model/frame_names";
import type { Progress, WidgetModel } from "../model/widget_model";

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
  private readonly listener = () => this.update();

  constructor(private readonly model: WidgetModel) {
    this.stop.onclick = () => {
      model.send({ type: "cancel" });
      this.stop.disabled = true;
      this.stop.textContent = "Stopping…";
    };
    const header = h("header", {}, this.heading, this.time, this.facts, this.bar, this.stop);
    this.element.append(header, this.stages, this.steps);
    model.on("change:progress", this.listener);
    this.timer = window.setInterval(() => this.tick(), 100);
    this.update();
  }

  private update(): void {
    const progress = this.model.get("progress");
    if (progress?.share !== undefined) this.showTiming(progress.name, progress.share);
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

  private tick(): void {
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

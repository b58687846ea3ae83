/** The view while a cell compiles: the steps that ended, the elapsed time, and a button to cancel. */

import { h } from "../dom/elements";
import type { WidgetModel } from "../model/widget_model";

export class ProgressView {
  readonly element = h("div", { class: "compiling", role: "status" });
  private readonly time = h("span", { class: "time" });
  private readonly heading = h("h3", {}, "Compiling…");
  private readonly steps = h("ol", {});
  private readonly cancel = h("button", { class: "cancel" }, "Cancel");
  private readonly timer: number;
  private started = performance.now();
  private readonly listener = () => this.update();

  constructor(private readonly model: WidgetModel) {
    this.cancel.onclick = () => {
      model.send({ type: "cancel" });
      this.cancel.disabled = true;
      this.cancel.textContent = "Cancelling…";
    };
    this.element.append(h("header", {}, this.heading, this.time, this.cancel), this.steps);
    model.on("change:progress", this.listener);
    this.timer = window.setInterval(() => this.tick(), 100);
    this.update();
  }

  private update(): void {
    const progress = this.model.get("progress");
    if (!progress?.frame) return;
    this.started = performance.now() - progress.elapsed * 1000;
    this.heading.textContent = `Compiling ${progress.frame} (${progress.compile})`;
    const done = progress.done.map((step) =>
      h(
        "li",
        { class: step.outcome },
        h("span", {}, step.outcome === "failed" ? "✗" : "✓"),
        h("span", {}, step.stage === step.name ? step.stage : `${step.stage}: ${step.name}`),
        h("span", { class: "ms" }, `${step.ms.toFixed(step.ms < 10 ? 1 : 0)} ms`),
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

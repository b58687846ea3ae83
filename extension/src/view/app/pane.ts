/** One pane: a head that says what it shows, and the content. */

import { h } from "../dom/dom";
import { isWord, recall, remember } from "../dom/memory";
import type { Content } from "../model/content";
import type { Artifact, ItemId } from "../model/record";
import type { State } from "../model/state";
import { frameName } from "../panes/overview";
import { hasContent, type Mode, PANES, type PaneKind, parsePane } from "../panes/panes";

export class Pane {
  readonly element = h("section", { class: "pane" });
  private readonly kindPicker = h("select", { "aria-label": "What this pane shows" });
  private readonly artifactPicker = h("select", { "aria-label": "Which one of them" });
  private readonly modeButtons = h("div", { class: "modes", role: "group", "aria-label": "How it is shown" });
  private readonly closer = h(
    "button",
    { class: "icon", title: "Close this pane", "aria-label": "Close this pane" },
    "×",
  );
  private readonly body = h("div", { class: "body" });
  private content: Content | null = null;
  private kind: PaneKind = PANES[0];
  private artifact: Artifact | undefined;
  /** The mode of each kind of pane here: what the reader chose, or chose last when this was opened. */
  private readonly chosen = new Map<string, string | null>();
  private drawn = "";

  constructor(
    private readonly state: State,
    private at: number,
    close: () => void,
  ) {
    this.kindPicker.onchange = () => state.show(this.kindPicker.value, this.at);
    this.artifactPicker.onchange = () => state.show(`${this.kind.name}:${this.artifactPicker.value}`, this.at);
    this.closer.onclick = close;
    this.element.append(
      h("header", {}, this.kindPicker, this.artifactPicker, this.modeButtons, this.closer),
      this.body,
    );
    // what was hovered is gone when the pointer is
    this.element.addEventListener("mouseleave", () => state.hover([]));
    this.update(at);
  }

  /** Bring the pane in line with the state, as the one in place `at`; what has not changed stays as it is. */
  update(at = this.at): void {
    this.at = at;
    this.closer.hidden = this.state.shown.length < 2;
    const { kind, artifact } = parsePane(this.state.shown[this.at]);
    const artifacts = this.state.artifacts(kind.name);
    this.kind = kind;
    this.artifact = artifacts.find((a) => a.name === artifact) ?? this.bestArtifact(artifacts);
    this.fillPickers(artifacts);
    const modes = kind.modes.filter((mode) => mode.can(this.state, this.artifact));
    const mode = modes.find((m) => m.name === this.modeOf(kind)) ?? modes[0];
    this.artifactPicker.hidden = artifacts.length < 2 || !mode?.ofArtifact;
    // a source is the same text for all compiles of its frame
    const subject = kind.name === "source" ? this.state.frame?.id : (this.state.compile ?? this.state.frame)?.id;
    const now = [kind.name, this.artifact?.id, mode?.name, subject].join("|");
    if (now === this.drawn) return;
    this.drawn = now;
    this.draw(modes, mode);
  }

  private modeOf({ name }: PaneKind): string | null {
    if (!this.chosen.has(name)) this.chosen.set(name, recall(`mode.${name}`, isWord));
    return this.chosen.get(name) ?? null;
  }

  /** Make the content anew where it is of this kind. */
  redraw(kind: string): void {
    if (this.kind.name === kind) this.drawn = "";
    this.update();
  }

  /** Where none is asked for: the first that has something of what is pinned, else the first. */
  private bestArtifact(artifacts: Artifact[]): Artifact | undefined {
    const linked = new Set([...this.state.pinLinked].map((item) => this.state.links.artifactOf(item)));
    return artifacts.find((a) => linked.has(a)) ?? artifacts[0];
  }

  private fillPickers(artifacts: Artifact[]): void {
    this.kindPicker.replaceChildren(
      ...PANES.map((p) => h("option", { value: p.name }, hasContent(p, this.state) ? p.title : `${p.title} (none)`)),
    );
    this.kindPicker.value = this.kind.name;
    this.artifactPicker.replaceChildren(
      ...artifacts.map((a) => h("option", { value: a.name, title: a.name }, this.state.label(a.name))),
    );
    if (this.artifact) this.artifactPicker.value = this.artifact.name;
  }

  private draw(modes: Mode[], mode: Mode | undefined): void {
    const label = `${this.kind.title}${this.artifact ? ` ${this.state.label(this.artifact.name)}` : ""}`;
    this.element.setAttribute("aria-label", label);
    this.fillModes(modes, mode);
    this.content?.destroy();
    this.content = mode?.make(this.state, this.artifact, label) ?? null;
    this.body.replaceChildren(this.content?.element ?? h("p", { class: "empty" }, this.emptyText()));
    this.content?.reveal(this.state.pinned.size ? this.state.pinLinked : this.beginning());
  }

  /** Where a source is first shown at: its frame's first line. */
  private beginning(): Set<ItemId> {
    return new Set(this.kind.name === "source" ? [`${this.artifact?.id}#${this.state.frame?.line}`] : []);
  }

  private fillModes(modes: Mode[], current: Mode | undefined): void {
    this.modeButtons.hidden = modes.length < 2;
    this.modeButtons.replaceChildren(
      ...modes.map((mode) => {
        const choose = () => {
          this.chosen.set(this.kind.name, mode.name);
          remember(`mode.${this.kind.name}`, mode.name);
          this.update();
        };
        return h("button", { "aria-pressed": String(mode === current), onclick: choose }, mode.name);
      }),
    );
  }

  private emptyText(): string {
    const { compile, frame } = this.state;
    if (compile) return this.kind.empty(compile);
    if (frame?.skipped) return `${frameName(frame)} runs as plain Python: ${frame.skipped}`;
    if (frame) return `${frameName(frame)} was never reached, so nothing was compiled for it.`;
    return "Nothing was compiled: no frame ran any tensor operation.";
  }

  light(): void {
    this.content?.light();
  }

  /** Bring what is linked to the pinned items into sight, unless the pointer is here: it chose them here. */
  reveal(): void {
    this.update();
    if (!this.element.matches(":hover")) this.content?.reveal(this.state.pinLinked);
  }

  /** Show the artifact of `items`, where there are several, and scroll to them. */
  goTo(items: Set<ItemId>): void {
    const [first] = items;
    const artifact = this.state.links.artifactOf(first);
    if (artifact && artifact !== this.artifact) this.state.show(`${this.kind.name}:${artifact.name}`, this.at);
    this.content?.reveal(items);
  }

  /** Bring what the step that is looked at belongs to into sight, in the panes beside the one that goes through them. */
  follow(): void {
    if (this.kind.name !== "steps") this.content?.reveal(this.state.stepped);
  }

  destroy(): void {
    this.content?.destroy();
  }
}

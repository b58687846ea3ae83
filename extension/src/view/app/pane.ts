/** One pane: a header with what it shows and how, and the content. */

import { h } from "../dom/elements";
import { isString, loadSetting, saveSetting } from "../dom/storage";
import type { Content } from "../model/content";
import { frameName, NOTHING_COMPILED } from "../model/frame_names";
import type { Artifact, ItemId } from "../model/record/record";
import type { State } from "../model/state";
import { editButton } from "../panes/edit_button";
import { drawing, type Mode } from "../panes/modes";
import { coverOf } from "../panes/prediction";
import { PANES, type PaneKind, paneTitle, parsePane } from "../panes/registry";
import { tryButton } from "../panes/try_button";
import { paneOptions } from "./pane_menu";

/** The size that a pane wants, in characters and lines: of a text its own, within limits, of anything else this. */
const USUAL_WIDTH = 62;
const USUAL_HEIGHT = 26;
const EMPTY_WIDTH = 26;
const MIN_HEIGHT = 7;
/** The least heights in pixels at which a pane can be read; of an answer that was just asked for, so that it is whole. */
const LEAST_TEXT_PX = 125;
const TITLE_AND_EDGES_PX = 40;
const LINE_PX = 20;
const LEAST_TABLE_PX = 190;
const LEAST_DRAWING_PX = 240;
const LEAST_ASKED_TEXT_PX = 240;
const LEAST_ANSWER_PX = 420;
const MIN_WIDTH = 46;
const MAX_WIDTH = 84;
/** The languages of machine code that a device runs, the last of a compiler first. */
const FINAL: Artifact["language"][] = ["sass", "asm", "ptx"];
/** What the names of graphs after the user's passes begin with. */
const MEASURED_CHARACTERS = 100_000;

export class Pane {
  readonly element = h("section", { class: "pane" });
  private readonly kindPicker = h("select", { "aria-label": "What this pane shows" });
  private readonly artifactPicker = h("select", { "aria-label": "Artifact" });
  private readonly modeButtons = h("div", { class: "modes", role: "group", "aria-label": "View" });
  private readonly closeButton = h(
    "button",
    { class: "icon", title: "Close this pane", "aria-label": "Close this pane" },
    "×",
  );
  private readonly openButton = h(
    "button",
    { class: "icon open", title: "Show this pane", "aria-label": "Show this pane" },
    "▸",
  );
  private readonly editing = h("div", { class: "modes" });
  private readonly prediction = h("p", { class: "prediction", role: "status" });
  /** What changed the graph after what is shown. */
  private readonly note = h("p", { class: "changed-later" });
  private readonly body = h("div", { class: "body" });
  private content: Content | null = null;
  private kind: PaneKind = PANES[0];
  private artifact: Artifact | undefined;
  /** The artifact that was shown last because of what was pinned or stepped to; it precedes the chosen one. */
  private followed: Artifact | undefined;
  /** The mode chosen for each kind of pane: in this pane, or else the one stored when it was first shown. */
  private readonly chosenModes = new Map<string, string | null>();
  private drawnKey = "";
  /** How large the pane should be beside and above others, in characters and lines. */
  wantedWidth = USUAL_WIDTH;
  wantedHeight = USUAL_HEIGHT;
  /** Whether it needs no more than that: a text, or the reason why there is nothing. */
  isText = false;
  private isDrawing = false;
  /** The lines of the text that is shown; those of an empty pane's reason are not counted. */
  private lines = Number.POSITIVE_INFINITY;

  constructor(
    private readonly state: State,
    private index: number,
    close: () => void,
  ) {
    this.kindPicker.onchange = () => this.choose(this.kindPicker.value);
    this.artifactPicker.onchange = () => this.choose(`${this.kind.name}:${this.artifactPicker.value}`);
    this.closeButton.onclick = close;
    this.openButton.onclick = () => state.open(this.kind.name);
    this.element.append(
      h(
        "header",
        {},
        this.openButton,
        this.kindPicker,
        this.artifactPicker,
        this.modeButtons,
        this.editing,
        this.closeButton,
      ),
      this.prediction,
      this.note,
      this.body,
    );
    // moving the pointer out of the pane ends hovering
    this.element.addEventListener("mouseleave", () => state.hover([]));
    this.update(index);
  }

  get kindName(): string {
    return this.kind.name;
  }

  /** The height below which the pane cannot be read; `isAsked`: it is the one that was opened last. */
  leastHeight(isAsked: boolean): number {
    const leastText = isAsked ? LEAST_ASKED_TEXT_PX : LEAST_TEXT_PX;
    if (this.isText) return Math.min(leastText, TITLE_AND_EDGES_PX + LINE_PX * this.lines);
    if (this.isDrawing) return LEAST_DRAWING_PX;
    return isAsked && this.kind.group === "Answers" ? LEAST_ANSWER_PX : LEAST_TABLE_PX;
  }

  /** How many pixels of a text or of a table have no place; 0 of a drawing, which is scaled. */
  lackingHeight(): number {
    const { element } = this.content ?? { element: this.body };
    if (this.isDrawing || !this.body.clientHeight) return 0;
    return this.isText ? LINE_PX * this.lines - this.body.clientHeight : element.scrollHeight - element.clientHeight;
  }

  /** Shows only the title, or all again. */
  setShut(isShut: boolean): void {
    this.element.classList.toggle("shut", isShut);
  }

  private choose(shown: string): void {
    this.followed = undefined;
    this.state.show(shown, this.index);
    this.update(); // also if the state has not changed
  }

  /** Updates the pane to the state, as the pane at index `at`; draws the content only if it is another one. */
  update(at = this.index): void {
    this.index = at;
    this.closeButton.hidden = this.state.shown.length < 2;
    const { kind, artifact } = parsePane(this.state.shown[this.index]);
    const artifacts = this.state.artifacts(kind.name);
    this.kind = kind;
    if (this.followed && !artifacts.includes(this.followed)) this.followed = undefined;
    this.artifact = this.followed ?? artifacts.find((a) => a.name === artifact) ?? this.bestArtifact(artifacts);
    this.fillPickers(artifacts);
    const modes = kind.modes.filter((mode) => mode.isAvailable(this.state, this.artifact));
    const mode = modes.find((m) => m.name === this.chosenMode(kind)) ?? modes[0];
    this.artifactPicker.hidden = artifacts.length < 2 || !mode?.showsArtifact || this.state.covered.has(kind.name);
    // a source is the same text for all compiles of its frame
    const subject = kind.name === "source" ? this.state.frame?.id : (this.state.compile ?? this.state.frame)?.id;
    const isCovered = this.state.covered.has(kind.name);
    const shown = mode && !mode.showsArtifact ? "" : this.artifact?.id;
    const key = [kind.name, shown, mode?.name, subject, isCovered].join("|");
    if (key === this.drawnKey) return;
    this.drawnKey = key;
    this.draw(modes, mode);
  }

  private chosenMode({ name }: PaneKind): string | null {
    if (!this.chosenModes.has(name)) this.chosenModes.set(name, loadSetting(`mode.${name}`, isString));
    return this.chosenModes.get(name) ?? null;
  }

  /** Draws the content again if the pane is of this kind. */
  redraw(kind: string): void {
    if (this.kind.name === kind) this.drawnKey = "";
    this.update();
  }

  /**
   * The artifact shown if none is chosen: the first with an item linked to what is pinned, or else the first; of
   * sources, that of the innermost line, or of what made the compile fail.
   */
  private bestArtifact(artifacts: Artifact[]): Artifact | undefined {
    if (this.kind.name === "source") {
      const line = this.state.innermostLine(this.state.pinned) ?? this.state.blockingLine();
      const found = line === null ? undefined : this.state.links.artifactOf(line);
      return found && artifacts.includes(found) ? found : artifacts[0];
    }
    const linked = new Set([...this.state.pinLinked].map((item) => this.state.links.artifactOf(item)));
    const found = artifacts.find((a) => linked.has(a));
    if (found || this.kind.name !== "machine") return found ?? artifacts[0];
    return FINAL.flatMap((language) => artifacts.filter((a) => a.language === language))[0] ?? artifacts[0];
  }

  private fillPickers(artifacts: Artifact[]): void {
    this.kindPicker.replaceChildren(...paneOptions(PANES, this.state));
    this.kindPicker.value = this.kind.name;
    this.artifactPicker.replaceChildren(
      ...artifacts.map((a) => h("option", { value: a.name, title: a.name }, this.state.label(a.name))),
    );
    if (this.artifact) this.artifactPicker.value = this.artifact.name;
  }

  private draw(modes: Mode[], mode: Mode | undefined): void {
    const label = `${paneTitle(this.kind, this.state.compile)}${this.artifact ? ` ${this.state.label(this.artifact.name)}` : ""}`;
    this.element.setAttribute("aria-label", label);
    this.fillModes(modes, mode);
    this.editing.replaceChildren(
      ...[mode?.showsArtifact ? editButton(this.state, this.artifact) : null].filter((e) => e !== null),
    );
    const text = mode?.showsText ? this.artifact?.text : undefined;
    this.isText = text !== undefined || !mode;
    this.isDrawing = mode === drawing;
    this.lines = text === undefined ? Number.POSITIVE_INFINITY : linesIn(text);
    this.wantedWidth = text === undefined ? (mode ? (this.kind.width ?? USUAL_WIDTH) : EMPTY_WIDTH) : textWidth(text);
    this.wantedHeight = text === undefined ? USUAL_HEIGHT : Math.min(USUAL_HEIGHT, MIN_HEIGHT + this.lines);
    this.content?.destroy();
    this.note.replaceChildren(...this.passNote(mode));
    this.note.hidden = !this.note.childNodes.length;
    this.prediction.textContent = this.state.predictions.get(this.kind.name) ?? "";
    this.prediction.hidden = !this.prediction.textContent;
    if (this.state.covered.has(this.kind.name)) {
      this.content = null;
      this.modeButtons.hidden = true;
      this.body.replaceChildren(coverOf(this.state, this.kind));
      return;
    }
    this.content = mode?.create(this.state, this.artifact, label) ?? null;
    this.body.replaceChildren(this.content?.element ?? this.emptyContent());
    this.makeFocusable();
    if (!this.kind.isRanked) this.content?.reveal(this.state.pinned.size ? this.pinnedItems() : this.initialItems());
  }

  /** Lets the keyboard scroll a content that has no element to focus. */
  private makeFocusable(): void {
    const element = this.content?.element;
    if (element && !element.querySelector("a, button, input, select, [tabindex]")) element.tabIndex = 0;
  }

  /** The items that a new pane is scrolled to: for a source, the first line of the frame. */
  private initialItems(): Set<ItemId> {
    if (this.kind.name !== "source") return new Set();
    return new Set([this.state.blockingLine() ?? `${this.artifact?.id}#${this.state.frame?.line}`]);
  }

  /** What is linked to the pinned items; in a source, first the innermost line. */
  private pinnedItems(): Set<ItemId> {
    const line = this.kind.name === "source" ? this.state.innermostLine(this.state.pinned) : null;
    return line !== null && this.state.links.artifactOf(line) === this.artifact
      ? new Set([line])
      : this.state.pinLinked;
  }

  private fillModes(modes: Mode[], current: Mode | undefined): void {
    this.modeButtons.hidden = modes.length < 2;
    this.modeButtons.replaceChildren(
      ...modes.map((mode) => {
        const choose = () => {
          this.chosenModes.set(this.kind.name, mode.name);
          saveSetting(`mode.${this.kind.name}`, mode.name);
          this.update();
        };
        return h("button", { "aria-pressed": String(mode === current), onclick: choose }, mode.name);
      }),
    );
  }

  /** That passes or a backend of the user's changed the graph that is shown, with a button that shows it as they left it. */
  private passNote(mode: Mode | undefined): (HTMLElement | string)[] {
    const { artifact, state } = this;
    if (!artifact?.graph || !mode?.showsArtifact || artifact.pane === "passes" || state.covered.has(this.kind.name)) {
      return [];
    }
    const changed = state.links.passesOver(artifact, state.artifacts("passes"));
    const made = changed.flatMap(({ name }) => name.match(/^(?:pass|backend)\..+/)?.[0].replace(".", " ") ?? []);
    if (!made.length) return [];
    const show = h("button", { class: "link", onclick: () => state.open("passes") }, "Passes");
    return [`This is the graph before the ${made.join(" and the ")} changed it: `, show, "."];
  }

  private emptyContent(): HTMLElement {
    const { fill } = this.kind;
    const button = this.state.compile && fill ? tryButton(this.state, ...fill) : null;
    return h("p", { class: "empty" }, this.emptyText(), button ? " " : "", button);
  }

  private emptyText(): string {
    const { compile, frame } = this.state;
    if (compile) return this.kind.empty(compile);
    if (frame?.skipped) return `${frameName(frame)} runs as plain Python: ${frame.skipped}`;
    if (frame) return `${frameName(frame)} was not reached, so it was not compiled.`;
    return NOTHING_COMPILED;
  }

  highlight(): void {
    this.content?.highlight();
  }

  /** Scrolls to what is linked to the pinned items, unless the pointer is over this pane, where they were chosen. */
  reveal(): void {
    const isHovered = this.element.matches(":hover");
    if (this.kind.name === "source" && !isHovered) this.followLine(this.state.innermostLine(this.state.pinned));
    this.update();
    if (!isHovered) this.content?.reveal(this.pinnedItems());
  }

  /** Shows the source of a line. */
  private followLine(line: ItemId | null): void {
    if (line === null) return;
    this.followed = this.state.links.artifactOf(line);
    this.update();
  }

  /** Shows the artifact that contains `items` and scrolls to them. */
  goTo(items: Set<ItemId>): void {
    const [first] = items;
    const artifact = this.state.links.artifactOf(first);
    this.followed = artifact;
    this.update();
    this.content?.reveal(items);
  }

  /** Scrolls to the items of the current interpreter step; not in the pane that shows the steps. */
  revealStep(): void {
    if (this.kind.name === "steps") return;
    if (this.kind.name === "source") this.followLine(this.state.innermostLine(this.state.stepItems));
    this.content?.reveal(this.state.stepItems);
  }

  destroy(): void {
    this.content?.destroy();
  }
}

function linesIn(text: string): number {
  return text.slice(0, MEASURED_CHARACTERS).split("\n").length;
}

/** The length of the longest line of a text, within limits. */
function textWidth(text: string): number {
  const lines = text.slice(0, MEASURED_CHARACTERS).split("\n");
  return lines.reduce((most, line) => Math.min(MAX_WIDTH, Math.max(most, line.length)), MIN_WIDTH);
}

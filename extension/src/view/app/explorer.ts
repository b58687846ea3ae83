/** The explorer of one record: the verdict, the bar, the stages, the list of frames, and the panes. */

import { h, onceSized, scrollerOf } from "../dom/elements";
import { splitter } from "../dom/splitter";
import { isString, loadSetting, saveSetting } from "../dom/storage";
import type { Mark } from "../model/analysis/marks";
import type { Record as CutawayRecord } from "../model/record/record";
import { unpackRecord } from "../model/record/unpack";
import { MAX_PANES, State } from "../model/state";
import type { WidgetModel } from "../model/widget_model";
import { hasContent, parsePane } from "../panes/registry";
import { createBar } from "./bar";
import { contentHeight, isFolded } from "./content_height";
import { leaveExplorer, SHOWN_EVENT } from "./focus";
import { hasOwnPage } from "./link_button";
import { PaneArea } from "./pane_area";
import { largeTypeButton, Presentation } from "./presentation";
import { ProblemLine } from "./problem_line";
import { ProgressView } from "./progress";
import { StageBar } from "./stage_bar";
import { Tree } from "./tree";
import { VerdictLine } from "./verdict_line";
import { windowButtons } from "./window_buttons";

/** Width of the explorer in pixels below which the list of frames is hidden at first. */
const WIDE_PX = 1000;

/** The panel of the active cell, which has room. */
const PANEL = ".cutaway-panel";

/** Event by which a mark in a notebook's editor opens the explorer; its detail is the mark. */
const GO_EVENT = "cutaway-go";

/** Packed records that came while a page showed their compile: the cells have just ended. */
const arrived = new WeakSet<object>();

/**
 * Adds the explorer of `model`'s record to `host`, and follows changes of the record. It is drawn at once if the cell
 * compiles or has just ended, wherever the page is scrolled to; else it takes its place, and is drawn once that comes
 * near the visible part of the page. Returns a function that removes the explorer.
 */
export function mount(host: HTMLElement, model: WidgetModel): () => void {
  // the attribute keeps JupyterLab's one-letter shortcuts from handling keys that are typed in the explorer
  const root = h("div", { class: "cutaway", "data-lm-suppress-shortcuts": "true" });
  host.append(root);
  let shown: Shown | null = null;
  let wanted: Mark | null = null;
  let updates = 0;
  let stopWaiting = () => {};
  const draw = (content: Content) => {
    remove(shown);
    shown = content.create();
    root.replaceChildren(...shown.elements);
    if (wanted) shown.goTo(wanted);
    wanted = null;
    root.dispatchEvent(new CustomEvent(SHOWN_EVENT, { detail: model, bubbles: true }));
  };
  const update = async () => {
    const number = ++updates;
    const content = await contentOf(model);
    if (number !== updates) return; // the record has changed since, or the explorer was removed
    root.style.setProperty("--content-height", content.height ? `${content.height}px` : "");
    root.classList.toggle("folded", content.isFolded && !root.closest(PANEL));
    stopWaiting();
    if (shown || isNew) draw(content);
    else stopWaiting = onceNear(root, () => draw(content));
  };
  const onGoTo = (event: Event) => {
    const mark = (event as CustomEvent<Mark>).detail;
    root.classList.remove("folded");
    if (shown) shown.goTo(mark);
    else wanted = mark;
  };
  const onRecord = () => {
    const packed = model.get("record");
    if (packed instanceof Object) arrived.add(packed);
    void update();
  };
  const onPartial = () => {
    if (!model.get("record")) void update();
  };
  const packed = model.get("record");
  const isNew = !packed || (packed instanceof Object && arrived.has(packed));
  void update();
  model.on("change:record", onRecord);
  model.on("change:partial", onPartial);
  root.addEventListener(GO_EVENT, onGoTo);
  return () => {
    stopWaiting();
    model.off("change:record", onRecord);
    model.off("change:partial", onPartial);
    updates++;
    shown?.destroy();
    root.remove();
  };
}

/** Removes what was shown; an error in that must not keep what comes next from being shown. */
function remove(shown: Shown | null): void {
  try {
    shown?.destroy();
  } catch (error) {
    reportError(error);
  }
}

/** Calls `callback` once `element` is within a page's height of the visible part; returns a function to cancel it. */
function onceNear(element: HTMLElement, callback: () => void): () => void {
  let observer: IntersectionObserver | null = null;
  const stop = onceSized(element, () => {
    const options = { root: scrollerOf(element), rootMargin: "100%", scrollMargin: "100%" };
    observer = new IntersectionObserver((entries) => {
      if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
      observer?.disconnect();
      callback();
    }, options as IntersectionObserverInit);
    observer.observe(element);
  });
  return () => {
    stop();
    observer?.disconnect();
  };
}

/** What an explorer's element will show; its place in the page is known before it is drawn. */
interface Content {
  /** The height in pixels that it needs; 0 if it is not known. */
  height: number;
  /** Whether only the first line is shown at first. */
  isFolded: boolean;
  create(): Shown;
}

/** What an explorer's element shows. */
interface Shown {
  elements: HTMLElement[];
  goTo(mark: Mark): void;
  destroy(): void;
}

/** Returns the progress of a compile, the explorer, or the reason why a record is refused. */
async function contentOf(model: WidgetModel): Promise<Content> {
  const packed = model.get("record");
  if (!packed) return compiling(model);
  try {
    const record = await unpackRecord(packed);
    const create = () => {
      try {
        return new Explorer(record, model);
      } catch (error) {
        return refusal(error as Error);
      }
    };
    return { height: contentHeight(record), isFolded: isFolded(record), create };
  } catch (error) {
    return withoutPlace(() => refusal(error as Error));
  }
}

/** Returns the progress of a compile, and, once it has run for a while, the panes so far. */
async function compiling(model: WidgetModel): Promise<Content> {
  const withoutPanes = () => withoutExplorer(new ProgressView(model));
  const partial = model.get("partial");
  if (!partial || !("encoding" in partial)) return withoutPlace(withoutPanes);
  try {
    const record = await unpackRecord(partial);
    const create = () => {
      try {
        return withPanes(record, model);
      } catch {
        return withoutPanes(); // what is not complete may be inconsistent
      }
    };
    return { height: contentHeight(record), isFolded: false, create };
  } catch {
    return withoutPlace(withoutPanes);
  }
}

function withPanes(record: CutawayRecord, model: WidgetModel): Shown {
  const explorer = new Explorer(record, model, model.get("progress")?.compile);
  const progress = new ProgressView(model);
  progress.element.classList.add("with-panes");
  const destroy = () => {
    progress.destroy();
    explorer.destroy();
  };
  const goTo = (mark: Mark) => explorer.goTo(mark);
  return { elements: [progress.element, ...explorer.elements], goTo, destroy };
}

function refusal({ message }: Error): Shown {
  const head = h("h3", {}, "This record cannot be shown");
  const element = h("div", { class: "broken", role: "alert" }, head, h("p", {}, message));
  return withoutExplorer({ element, destroy: () => {} });
}

function withoutExplorer(content: { element: HTMLElement; destroy(): void }): Shown {
  return { elements: [content.element], goTo: () => {}, destroy: () => content.destroy() };
}

function withoutPlace(create: () => Shown): Content {
  return { height: 0, isFolded: false, create };
}

class Explorer implements Shown {
  readonly elements: HTMLElement[];
  private readonly state: State;
  private readonly verdict: VerdictLine;
  private readonly panes: PaneArea;
  private readonly presentation: Presentation;
  private readonly stages: StageBar;
  private readonly main = h("div", { class: "main" });
  private readonly addButton = h("button", { class: "add", title: "Open another pane" }, "+ pane");
  private frameRequest = 0;
  private readonly onAddress = () => this.presentation.showNamed();

  /** `current`: the id of the compile that is shown first; without it, the largest one is. */
  constructor(record: CutawayRecord, model: WidgetModel, current = "") {
    this.state = new State(record, model, current);
    this.presentation = new Presentation(this.state);
    this.state.replaceEmptyPanes((pane) => hasContent(parsePane(pane).kind, this.state));
    this.panes = new PaneArea(this.state);
    this.addButton.onclick = () => this.panes.add();
    const tree = new Tree(this.state);
    const { main } = this;
    main.append(tree.element, splitter("the list of frames"), this.panes.element);
    this.stages = new StageBar(this.state, (pane, items) => this.panes.reveal(pane, items));
    this.verdict = new VerdictLine(this.state);
    const buttons = [this.addButton, largeTypeButton(), ...windowButtons()];
    const bar = createBar(this.state, this.presentation.element, this.treeToggle(tree.element), ...buttons);
    if (record.views.length) main.tabIndex = -1; // so that PageDown goes on from wherever the pointer was pressed
    const problems = new ProblemLine(this.state);
    this.elements = [this.verdict.element, problems.element, bar, this.stages.element, main, this.stages.chain];
    for (const element of this.elements) element.addEventListener("keydown", (event) => this.handleKey(event));
    // a text would take ← and → to move its cursor
    this.panes.element.addEventListener("keydown", (event) => this.moveFromPinned(event), { capture: true });
    this.followState();
    this.updatePanes();
    requestAnimationFrame(() => this.updateCover()); // once it is in the page
    if (hasOwnPage(this.state)) {
      this.presentation.showNamed();
      window.addEventListener("hashchange", this.onAddress);
    }
  }

  /** Hides what would give an answer away while a pane is covered. */
  private updateCover(): void {
    this.panes.element.closest(".cutaway")?.classList.toggle("covering", this.state.covered.size > 0);
  }

  private followState(): void {
    const { state, panes } = this;
    const highlight = () => this.scheduleHighlight();
    state.on("shown", () => this.updatePanes());
    state.on("compile", () => panes.updateContent());
    state.on("attempt", () => panes.redraw("steps"));
    state.on("cover", () => {
      panes.updateContent();
      this.updateCover();
      if (document.activeElement === document.body) this.main.focus({ preventScroll: true });
    });
    state.on("hover", highlight);
    state.on("budget", highlight);
    state.on("pin", () => {
      panes.revealPinned();
      highlight();
    });
    state.on("step", () => {
      panes.revealStep();
      highlight();
    });
  }

  /** Shows the compile, pane and line of a mark. */
  goTo(mark: Mark): void {
    this.state.goTo(mark);
  }

  private handleKey(event: KeyboardEvent): void {
    if (event.key === "Escape" && !event.defaultPrevented) {
      if (this.state.pinned.size) this.state.pin([]);
      else leaveExplorer(this.main);
    }
    if (this.presentation.handleKey(event)) event.preventDefault();
  }

  /** Moves along the chain from the text or the row of a table in which an item was pinned. */
  private moveFromPinned(event: KeyboardEvent): void {
    const isAlong = (event.key === "ArrowLeft" || event.key === "ArrowRight") && !event.shiftKey;
    const isPinned = event.target instanceof Element && event.target.closest(".cm-content, .item.pinned");
    if (!isAlong || !isPinned || !this.state.pinned.size || !this.stages.handleKey(event)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Creates the button that hides and shows the list of frames. At first it is shown if there is room and a choice. */
  private treeToggle(tree: HTMLElement): HTMLElement {
    const button = h("button", { class: "switch", title: "Show or hide the list of frames and compiles" }, "Frames");
    const set = (shown: boolean) => {
      tree.hidden = !shown;
      button.setAttribute("aria-expanded", String(shown));
    };
    button.onclick = () => {
      set(Boolean(tree.hidden));
      saveSetting("tree", tree.hidden ? "hidden" : "shown");
    };
    const chosen = loadSetting("tree", isString);
    set(chosen !== "hidden");
    if (chosen === null) {
      const { frames, notes } = this.state.record;
      const isChoice = frames.reduce((sum, frame) => sum + Math.max(frame.compiles.length, 1), 0) > 1;
      onceSized(button, () => set((isChoice || notes.length > 0) && this.width() >= WIDE_PX));
    }
    return button;
  }

  private width(): number {
    return this.main.parentElement?.clientWidth ?? 0;
  }

  private updatePanes(): void {
    this.panes.update();
    this.addButton.hidden = this.state.shown.length >= MAX_PANES;
    this.scheduleHighlight();
  }

  /** Highlights at the next animation frame, so that several changes are drawn once. */
  private scheduleHighlight(): void {
    if (this.frameRequest) return;
    this.frameRequest = requestAnimationFrame(() => {
      this.frameRequest = 0;
      this.panes.highlight();
    });
  }

  destroy(): void {
    cancelAnimationFrame(this.frameRequest);
    window.removeEventListener("hashchange", this.onAddress);
    this.panes.destroy();
    this.verdict.destroy();
    this.state.destroy();
  }
}

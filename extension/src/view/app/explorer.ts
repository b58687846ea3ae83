/** The explorer of one record: the bar, the list of frames, the panes, and the chain of links below them. */

import { h } from "../dom/elements";
import { splitter } from "../dom/splitter";
import { isString, loadSetting, saveSetting } from "../dom/storage";
import type { Mark } from "../model/analysis/marks";
import type { Record as CutawayRecord, Frame, ItemId } from "../model/record/record";
import { unpackRecord } from "../model/record/unpack";
import { MAX_PANES, State } from "../model/state";
import type { WidgetModel } from "../model/widget_model";
import { hasContent, PANES, parsePane } from "../panes/registry";
import { createBar } from "./bar";
import { LinkChain } from "./link_chain";
import { Pane } from "./pane";
import { ProgressView } from "./progress";
import { Tree } from "./tree";
import { VerdictLine } from "./verdict_line";

/** Minimal width in pixels at which a pane can be read. */
const READABLE_PANE_PX = 340;

/** Event by which a mark in a notebook's editor opens the explorer; its detail is the mark. */
const GO_EVENT = "cutaway-go";

/**
 * Adds the explorer of `model`'s record to `host`, and follows changes of the record. A finished record is unpacked
 * once the host comes near the visible part of the page. Returns a function that removes the explorer.
 */
export function mount(host: HTMLElement, model: WidgetModel): () => void {
  // the attribute keeps JupyterLab's one-letter shortcuts from handling keys that are typed in the explorer
  const root = h("div", { class: "cutaway", "data-lm-suppress-shortcuts": "true" });
  host.append(root);
  let shown: Shown | null = null;
  let wanted: Mark | null = null;
  let updates = 0;
  const update = async () => {
    const number = ++updates;
    const content = await contentOf(model);
    if (number !== updates) return; // the record has changed since, or the explorer was removed
    shown?.destroy();
    shown = content();
    root.classList.toggle("without-graphs", shown.withoutGraphs);
    root.replaceChildren(...shown.elements);
    if (wanted) shown.goTo(wanted);
    wanted = null;
  };
  const onGoTo = (event: Event) => {
    const mark = (event as CustomEvent<Mark>).detail;
    if (shown) shown.goTo(mark);
    else wanted = mark;
  };
  const start = () => {
    void update();
    model.on("change:record", update);
  };
  const isCompiling = !model.get("record");
  const stopWaiting = isCompiling ? () => {} : onceNear(root, start);
  if (isCompiling) start();
  root.addEventListener(GO_EVENT, onGoTo);
  return () => {
    stopWaiting();
    model.off("change:record", update);
    updates++;
    shown?.destroy();
    root.remove();
  };
}

/** Calls `callback` once `element` is within a page's height of the visible part; returns a function to cancel it. */
function onceNear(element: HTMLElement, callback: () => void): () => void {
  const observer = new IntersectionObserver(
    (entries) => {
      if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
      observer.disconnect();
      callback();
    },
    { rootMargin: "100%", scrollMargin: "100%" } as IntersectionObserverInit,
  );
  observer.observe(element);
  return () => observer.disconnect();
}

/** What an explorer's element shows. */
interface Shown {
  elements: HTMLElement[];
  withoutGraphs: boolean;
  goTo(mark: Mark): void;
  destroy(): void;
}

/** Returns a function that makes the progress of a compile, the explorer, or the reason why a record is refused. */
async function contentOf(model: WidgetModel): Promise<() => Shown> {
  const packed = model.get("record");
  if (!packed) return () => withoutExplorer(new ProgressView(model));
  try {
    const record = await unpackRecord(packed);
    return () => {
      try {
        return new Explorer(record, model);
      } catch (error) {
        return refusal(error as Error);
      }
    };
  } catch (error) {
    return () => refusal(error as Error);
  }
}

function refusal({ message }: Error): Shown {
  const head = h("h3", {}, "This record cannot be shown");
  const element = h("div", { class: "broken", role: "alert" }, head, h("p", {}, message));
  return withoutExplorer({ element, destroy: () => {} });
}

function withoutExplorer(content: { element: HTMLElement; destroy(): void }): Shown {
  return { elements: [content.element], withoutGraphs: false, goTo: () => {}, destroy: () => content.destroy() };
}

function hasGraph(frame: Frame): boolean {
  return frame.compiles.some(({ artifacts }) => artifacts.some(({ pane }) => pane === "captured"));
}

class Explorer implements Shown {
  readonly elements: HTMLElement[];
  readonly withoutGraphs: boolean;
  private readonly state: State;
  private readonly verdict: VerdictLine;
  private readonly paneArea = h("div", { class: "panes" });
  private readonly addButton = h("button", { class: "add", title: "Open another pane" }, "+ pane");
  private panes: Pane[] = [];
  private frameRequest = 0;
  private readonly resizeObserver = new ResizeObserver(() => {
    this.state.paneCapacity = Math.floor(this.paneArea.clientWidth / READABLE_PANE_PX);
  });

  constructor(record: CutawayRecord, model: WidgetModel) {
    this.state = new State(record, model);
    this.withoutGraphs = !record.frames.some(hasGraph);
    this.state.replaceEmptyPanes((pane) => hasContent(parsePane(pane).kind, this.state));
    this.addButton.onclick = () => this.addPane();
    const tree = new Tree(this.state);
    const main = h("div", { class: "main" }, tree.element, splitter("the list of frames"), this.paneArea);
    const strip = new LinkChain(this.state, (pane, items) => this.reveal(pane, items));
    this.verdict = new VerdictLine(this.state);
    const bar = createBar(this.state, this.treeToggle(tree.element), this.addButton);
    this.elements = [this.verdict.element, bar, main, strip.element];
    for (const element of this.elements) {
      element.addEventListener("keydown", (event) => {
        if (event.key === "Escape") this.state.pin([]);
      });
    }
    this.state.on("shown", () => this.updatePanes());

    this.state.on("compile", () => {
      for (const pane of this.panes) pane.update();
    });
    this.state.on("attempt", () => {
      for (const pane of this.panes) pane.redraw("steps");
    });
    this.state.on("hover", () => this.scheduleHighlight());
    this.state.on("budget", () => this.scheduleHighlight());
    this.state.on("pin", () => {
      for (const pane of this.panes) pane.reveal();
      this.scheduleHighlight();
    });
    this.state.on("step", () => {
      for (const pane of this.panes) pane.revealStep();
      this.scheduleHighlight();
    });
    this.resizeObserver.observe(this.paneArea);
    this.updatePanes();
  }

  /** Shows the compile, pane and line of a mark. */
  goTo(mark: Mark): void {
    this.state.goTo(mark);
  }

  /** Creates the button that hides and shows the list of frames. */
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
    set(loadSetting("tree", isString) !== "hidden");
    return button;
  }

  /** Creates or removes panes to match the state; panes that stay keep their content. */
  private updatePanes(): void {
    const { shown } = this.state;
    while (this.panes.length > shown.length) this.removePane(this.panes.length - 1);
    while (this.panes.length < shown.length) this.appendPane();
    this.panes.forEach((pane, i) => {
      pane.update(i);
    });
    this.addButton.hidden = shown.length >= MAX_PANES;
    this.scheduleHighlight();
  }

  private appendPane(): void {
    const pane: Pane = new Pane(this.state, this.panes.length, () => this.closePane(this.panes.indexOf(pane)));
    if (this.panes.length) this.paneArea.append(splitter("the previous pane"));
    this.paneArea.append(pane.element);
    this.panes.push(pane);
    this.resetWidths();
  }

  /** Removes a pane with the splitter before it, or after it if it is the first. */
  private removePane(at: number): void {
    const [pane] = this.panes.splice(at, 1);
    pane.destroy();
    (pane.element.previousElementSibling ?? pane.element.nextElementSibling)?.remove();
    pane.element.remove();
    this.resetWidths();
  }

  private resetWidths(): void {
    for (const pane of this.panes) pane.element.style.flex = "";
  }

  /** Opens another pane, with the first of the usual stages that is not shown yet. */
  private addPane(): void {
    const open = new Set(this.state.shown.map((s) => parsePane(s).kind));
    const usual = ["kernel", "forward", "guards", "generated", "overview"].map((name) => parsePane(name).kind);
    const next = [...usual, ...PANES].find((p) => !open.has(p) && hasContent(p, this.state));
    this.state.setShown([...this.state.shown, next?.name ?? "overview"]);
  }

  private closePane(at: number): void {
    this.removePane(at);
    this.state.setShown(this.state.shown.filter((_, i) => i !== at));
  }

  /** Scrolls the panes named `pane` to `items`. */
  private reveal(pane: string, items: Set<ItemId>): void {
    this.state.shown.forEach((shown, i) => {
      if (parsePane(shown).kind.name === pane) this.panes[i].goTo(items);
    });
  }

  /** Highlights at the next animation frame, so that several changes are drawn once. */
  private scheduleHighlight(): void {
    if (this.frameRequest) return;
    this.frameRequest = requestAnimationFrame(() => {
      this.frameRequest = 0;
      for (const pane of this.panes) pane.highlight();
    });
  }

  destroy(): void {
    cancelAnimationFrame(this.frameRequest);
    this.resizeObserver.disconnect();
    for (const pane of this.panes) pane.destroy();
    this.verdict.destroy();
    this.state.destroy();
  }
}

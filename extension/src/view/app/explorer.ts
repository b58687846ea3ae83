/** The explorer of one record: the bar, the list of frames, the panes, and the chain of links below them. */

import { h } from "../dom/elements";
import { splitter } from "../dom/splitter";
import { isString, loadSetting, saveSetting } from "../dom/storage";
import type { Mark } from "../model/analysis/marks";
import { readRecord } from "../model/record/read";
import type { Record as CutawayRecord, Frame, ItemId } from "../model/record/record";
import { MAX_PANES, State } from "../model/state";
import type { WidgetModel } from "../model/widget_model";
import { hasContent, PANES, parsePane } from "../panes/registry";
import { createBar } from "./bar";
import { LinkChain } from "./link_chain";
import { Pane } from "./pane";
import { ProgressView } from "./progress";
import { Tree } from "./tree";

/** Minimal width in pixels at which a pane can be read. */
const READABLE_PANE_PX = 340;

/** Event by which a mark in a notebook's editor opens the explorer; its detail is the mark. */
const GO_EVENT = "cutaway-go";

/**
 * Adds the explorer of `model`'s record to `host`, and follows changes of the record. Returns a function that removes
 * it.
 */
export function mount(host: HTMLElement, model: WidgetModel): () => void {
  // the attribute keeps JupyterLab's one-letter shortcuts from handling keys that are typed in the explorer
  const root = h("div", { class: "cutaway", "data-lm-suppress-shortcuts": "true" });
  host.append(root);
  let remove = render(root, model);
  const changed = () => {
    remove();
    remove = render(root, model);
  };
  model.on("change:record", changed);
  return () => {
    model.off("change:record", changed);
    remove();
    root.remove();
  };
}

/** Shows the progress of a compile, the explorer, or why a record is refused. Returns a function that frees it. */
function render(root: HTMLElement, model: WidgetModel): () => void {
  const plain = model.get("record");
  if (!plain) {
    const progress = new ProgressView(model);
    root.replaceChildren(progress.element);
    return () => progress.destroy();
  }
  try {
    const record = readRecord(plain);
    const explorer = new Explorer(record, model);
    root.classList.toggle("without-graphs", !record.frames.some(hasGraph));
    root.replaceChildren(...explorer.elements);
    const onGoTo = (event: Event) => explorer.goTo((event as CustomEvent<Mark>).detail);
    root.addEventListener(GO_EVENT, onGoTo);
    return () => {
      root.removeEventListener(GO_EVENT, onGoTo);
      explorer.destroy();
    };
  } catch (error) {
    root.replaceChildren(
      h(
        "div",
        { class: "broken", role: "alert" },
        h("h3", {}, "This record cannot be shown"),
        h("p", {}, (error as Error).message),
      ),
    );
    return () => {};
  }
}

function hasGraph(frame: Frame): boolean {
  return frame.compiles.some(({ artifacts }) => artifacts.some(({ pane }) => pane === "captured"));
}

class Explorer {
  readonly elements: HTMLElement[];
  private readonly state: State;
  private readonly paneArea = h("div", { class: "panes" });
  private readonly addButton = h("button", { class: "add", title: "Open another pane" }, "+ pane");
  private panes: Pane[] = [];
  private frameRequest = 0;
  private readonly resizeObserver = new ResizeObserver(() => {
    this.state.paneCapacity = Math.floor(this.paneArea.clientWidth / READABLE_PANE_PX);
  });

  constructor(record: CutawayRecord, model: WidgetModel) {
    this.state = new State(record, model);
    this.state.replaceEmptyPanes((pane) => hasContent(parsePane(pane).kind, this.state));
    this.addButton.onclick = () => this.addPane();
    const tree = new Tree(this.state);
    const main = h("div", { class: "main" }, tree.element, splitter("the list of frames"), this.paneArea);
    const strip = new LinkChain(this.state, (pane, items) => this.reveal(pane, items));
    this.elements = [createBar(this.state, this.treeToggle(tree.element), this.addButton), main, strip.element];
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
    this.state.destroy();
  }
}

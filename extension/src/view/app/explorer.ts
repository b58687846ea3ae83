/** The explorer: the tree, the panes and the strip, around one record. */

import { h } from "../dom/dom";
import { isWord, recall, remember } from "../dom/memory";
import { splitter } from "../dom/splitter";
import { readRecord } from "../model/check";
import type { Model } from "../model/host";
import type { Mark } from "../model/marks";
import type { Record as CutawayRecord, ItemId } from "../model/record";
import { MOST_PANES, State } from "../model/state";
import { hasContent, PANES, parsePane } from "../panes/panes";
import { bar } from "./bar";
import { Pane } from "./pane";
import { ProgressView } from "./progress";
import { Strip } from "./strip";
import { Tree } from "./tree";

/** A pane of this width can be read. */
const READABLE = 340;

/** What a mark in a notebook's own editor tells the explorer, with the mark as its detail. */
const GO = "cutaway-go";

/** Fill `host` with the explorer of `model`'s record; call what comes back to take it off. */
export function mount(host: HTMLElement, model: Model): () => void {
  // the attribute keeps JupyterLab's one-letter commands away from the keys that are meant for us
  const root = h("div", { class: "cutaway", "data-lm-suppress-shortcuts": "true" });
  host.append(root);
  let clean = fill(root, model);
  const changed = () => {
    clean();
    clean = fill(root, model);
  };
  model.on("change:record", changed);
  return () => {
    model.off("change:record", changed);
    clean();
    root.remove();
  };
}

function fill(root: HTMLElement, model: Model): () => void {
  const given = model.get("record");
  if (!given) {
    const progress = new ProgressView(model);
    root.replaceChildren(progress.element);
    return () => progress.destroy();
  }
  try {
    const explorer = new Explorer(readRecord(given), model);
    root.replaceChildren(...explorer.elements);
    const went = (event: Event) => explorer.goTo((event as CustomEvent<Mark>).detail);
    root.addEventListener(GO, went);
    return () => {
      root.removeEventListener(GO, went);
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

class Explorer {
  readonly elements: HTMLElement[];
  private readonly state: State;
  private readonly area = h("div", { class: "panes" });
  private readonly add = h("button", { class: "add", title: "Open another pane beside these" }, "+ pane");
  private panes: Pane[] = [];
  private frameRequest = 0;
  private readonly sizes = new ResizeObserver(() => {
    this.state.room = Math.floor(this.area.clientWidth / READABLE);
  });

  constructor(record: CutawayRecord, model: Model) {
    this.state = new State(record, model);
    this.add.onclick = () => this.addPane();
    const tree = new Tree(this.state);
    const main = h("div", { class: "main" }, tree.element, splitter("the list of frames"), this.area);
    const strip = new Strip(this.state, (pane, items) => this.reveal(pane, items));
    this.elements = [bar(this.state, this.treeSwitch(tree.element), this.add), main, strip.element];
    for (const element of this.elements) {
      element.addEventListener("keydown", (event) => {
        if (event.key === "Escape") this.state.pin([]);
      });
    }
    this.state.on("shown", () => this.layPanes());

    this.state.on("compile", () => {
      for (const pane of this.panes) pane.update();
    });
    this.state.on("attempt", () => {
      for (const pane of this.panes) pane.redraw("steps");
    });
    this.state.on("hover", () => this.lightSoon());
    this.state.on("budget", () => this.lightSoon());
    this.state.on("pin", () => {
      for (const pane of this.panes) pane.reveal();
      this.lightSoon();
    });
    this.state.on("step", () => {
      for (const pane of this.panes) pane.follow();
      this.lightSoon();
    });
    this.sizes.observe(this.area);
    this.layPanes();
  }

  /** Show what a mark is about. */
  goTo(mark: Mark): void {
    this.state.goTo(mark);
  }

  /** The button that puts the list of frames away, where room is short, and brings it back. */
  private treeSwitch(tree: HTMLElement): HTMLElement {
    const button = h("button", { class: "switch", title: "Show or hide the list of frames and compiles" }, "Frames");
    const set = (shown: boolean) => {
      tree.hidden = !shown;
      button.setAttribute("aria-expanded", String(shown));
    };
    button.onclick = () => {
      set(Boolean(tree.hidden));
      remember("tree", tree.hidden ? "hidden" : "shown");
    };
    set(recall("tree", isWord) !== "hidden");
    return button;
  }

  /** Make as many panes as are shown; those that stay are kept as they are. */
  private layPanes(): void {
    const { shown } = this.state;
    while (this.panes.length > shown.length) this.remove(this.panes.length - 1);
    while (this.panes.length < shown.length) this.append();
    this.panes.forEach((pane, i) => {
      pane.update(i);
    });
    this.add.hidden = shown.length >= MOST_PANES;
    this.lightSoon();
  }

  private append(): void {
    const pane: Pane = new Pane(this.state, this.panes.length, () => this.close(this.panes.indexOf(pane)));
    if (this.panes.length) this.area.append(splitter("the pane before"));
    this.area.append(pane.element);
    this.panes.push(pane);
    this.shareWidth();
  }

  /** Take a pane off, with the splitter before it, or after it where it is the first. */
  private remove(at: number): void {
    const [pane] = this.panes.splice(at, 1);
    pane.destroy();
    (pane.element.previousElementSibling ?? pane.element.nextElementSibling)?.remove();
    pane.element.remove();
    this.shareWidth();
  }

  private shareWidth(): void {
    for (const pane of this.panes) pane.element.style.flex = "";
  }

  /** Another pane, with the first stage that is not shown yet. */
  private addPane(): void {
    const open = new Set(this.state.shown.map((s) => parsePane(s).kind));
    const wanted = ["kernel", "forward", "guards", "generated", "overview"].map((name) => parsePane(name).kind);
    const next = [...wanted, ...PANES].find((p) => !open.has(p) && hasContent(p, this.state));
    this.state.setShown([...this.state.shown, next?.name ?? "overview"]);
  }

  private close(at: number): void {
    this.remove(at);
    this.state.setShown(this.state.shown.filter((_, i) => i !== at));
  }

  /** Scroll the panes of a kind to `items`. */
  private reveal(pane: string, items: Set<ItemId>): void {
    this.state.shown.forEach((shown, i) => {
      if (parsePane(shown).kind.name === pane) this.panes[i].goTo(items);
    });
  }

  /** Many changes of a pointer's move are drawn once. */
  private lightSoon(): void {
    if (this.frameRequest) return;
    this.frameRequest = requestAnimationFrame(() => {
      this.frameRequest = 0;
      for (const pane of this.panes) pane.light();
    });
  }

  destroy(): void {
    cancelAnimationFrame(this.frameRequest);
    this.sizes.disconnect();
    for (const pane of this.panes) pane.destroy();
    this.state.destroy();
  }
}

/**
 * The stages of the compile, from the user's Python to the machine code: one button for each, which shows its pane.
 * While an item is pinned, the stages show what it is linked to: the chain of its links.  They stay where they are; the
 * line at the bottom of the explorer has the other panes with links, such as guards.
 */

import { h, scrollInside } from "../dom/elements";
import { plural, shorten } from "../dom/format";
import { appendTo, keyOf } from "../model/analysis/links";
import { wholeStep } from "../model/analysis/training_step";
import type { Artifact, ItemId } from "../model/record/record";
import { MAIN_STAGES, STAGES } from "../model/stages";
import type { State } from "../model/state";
import { hasContent, PANES, paneTitle, parsePane, shortTitle } from "../panes/registry";
import { linkButton } from "./link_button";
import { paneOptions } from "./pane_menu";

const MACHINE_ORDER: Artifact["language"][] = ["mlir", "llvm", "sass", "asm", "ptx"];
const MAX_TEXT = 40;
const HINT = "Click a line, an operation or a row to see what it became.";

/** One stage: the items that are linked to the pinned one, of which one is current. */
interface Stage {
  pane: Artifact["pane"];
  items: ItemId[];
  at: number;
  element: HTMLElement;
}

export class StageBar {
  readonly element = h("div", { class: "stages" });
  private readonly list = h("div", { class: "steps", role: "toolbar", "aria-label": "Stages of the compile" });
  private readonly buttons = h("span", { class: "extras" });
  /** The line at the bottom. */
  readonly chain = h("div", { class: "chain" });
  private readonly others = h("div", { class: "steps", role: "toolbar", "aria-label": "Other panes with links" });
  private readonly link: HTMLElement | null;
  private stages: Stage[] = [];

  constructor(
    private readonly state: State,
    private readonly reveal: (pane: string, items: Set<ItemId>) => void,
  ) {
    this.link = linkButton(state);
    this.element.append(this.list, this.buttons);
    for (const change of ["pin", "compile"] as const) state.on(change, () => this.draw());
    state.on("shown", () => this.updateShown());
    for (const list of [this.list, this.others]) {
      list.addEventListener("keydown", (event) => {
        if (this.handleKey(event)) event.preventDefault();
      });
    }
    this.draw();
  }

  private draw(): void {
    const hadFocus = [this.list, this.others].some((list) => list.contains(document.activeElement));
    const linked = this.itemsByPane();
    const main = MAIN_STAGES.filter((pane) => pane !== "backward" || !wholeStep(this.state.compile));
    const shown = STAGES.filter((pane) => main.includes(pane) || linked.has(pane));
    this.stages = shown.map((pane) => this.createStage(pane, linked.get(pane) ?? []));
    const elements = (isMain: boolean) =>
      this.stages.filter(({ pane }) => MAIN_STAGES.includes(pane) === isMain).map(({ element }) => element);
    this.list.replaceChildren(...elements(true));
    this.others.replaceChildren(...elements(false));
    this.buttons.replaceChildren(this.menu());
    this.chain.replaceChildren(...this.chainParts(linked.size), ...(this.link ? [this.link] : []));
    const own = this.stages.find(({ element }) => element.classList.contains("own")) ?? this.stages[0];
    this.setCurrent(own);
    this.updateShown();
    scrollInside(this.list, own.element);
    if (hadFocus) own.element.focus();
  }

  private setCurrent(current: Stage): void {
    for (const stage of this.stages) stage.element.tabIndex = stage === current ? 0 : -1;
  }

  /** Marks the stages that are shown in a pane. */
  private updateShown(): void {
    for (const { pane, element } of this.stages) element.setAttribute("aria-pressed", String(this.state.isShown(pane)));
  }

  /**
   * The line at the bottom: while an item is pinned, the other panes with links, the step that created the item, if steps
   * were recorded, and unpinning.
   */
  private chainParts(linkedStages: number): HTMLElement[] {
    const { state } = this;
    if (!state.pinned.size) return [h("span", { class: "hint" }, state.compile ? HINT : "")];
    const nowhere = "The pinned item belongs to another compile.";
    const also = this.others.childElementCount ? "Also linked in" : linkedStages ? "" : nowhere;
    const title = "Go to the symbolic step that created it";
    const step = h("button", { class: "made", title, onclick: () => state.open("steps") }, "Step ⤴");
    const label = { title: "Unpin (Esc)", "aria-label": "Unpin the item" };
    const clear = h("button", { class: "unpin", ...label, onclick: () => state.pin([]) }, "Unpin");
    return [h("span", { class: "hint" }, also), this.others, ...(state.compile?.steps.length ? [step] : []), clear];
  }

  /** The menu of the panes that are not main stages. */
  private menu(): HTMLElement {
    const kinds = PANES.filter(({ group }) => group !== "Stages");
    const title = { title: "Other panes: answers, guards, sizes, more graphs and code" };
    const head = h("option", { value: "" }, "More…");
    const options = paneOptions(kinds, this.state);
    const menu = h("select", { class: "more", "aria-label": "More panes", ...title }, head, ...options);
    menu.onchange = () => {
      this.state.open(menu.value);
      menu.value = "";
    };
    return menu;
  }

  /**
   * The items linked to the pinned ones, by pane: operations before the inputs of a graph, machine code in the order
   * PTX, assembly, SASS, LLVM, MLIR.
   */
  private itemsByPane(): Map<string, ItemId[]> {
    const groups = new Map<string, ItemId[]>();
    for (const item of this.state.visible(this.state.pinLinked)) {
      const pane = this.state.links.artifactOf(item)?.pane ?? "";
      appendTo(groups, pane, item);
    }
    const rank = (item: ItemId) => MACHINE_ORDER.indexOf(this.state.links.artifactOf(item)?.language ?? "text");
    groups.get("machine")?.sort((a, b) => rank(b) - rank(a));
    for (const [pane, items] of groups) {
      const graph = this.state.links.artifactOf(items[0])?.graph;
      if (!graph) continue;
      const inputs = new Set(graph.nodes.filter(({ op }) => op === "placeholder").map(({ key }) => key));
      const isInput = (item: ItemId) => Number(inputs.has(keyOf(item)));
      groups.set(
        pane,
        items.toSorted((a, b) => isInput(a) - isInput(b)),
      );
    }
    return groups;
  }

  private createStage(pane: Artifact["pane"], items: ItemId[]): Stage {
    const own = items.findIndex((item) => this.state.pinned.has(item));
    const classes = ["step", own >= 0 && "own", items.length && "linked", this.isEmpty(pane) && "none"];
    const element = h("button", { class: classes.filter(Boolean).join(" ") });
    const stage = { pane, items, at: Math.max(own, 0), element };
    element.onclick = () => this.go(stage, element.classList.contains("walked") ? stage.at + 1 : stage.at);
    element.onmouseenter = () => this.state.hover(items);
    element.onmouseleave = () => this.state.hover([]);
    this.updateLabel(stage);
    return stage;
  }

  private isEmpty(pane: string): boolean {
    return !hasContent(parsePane(pane).kind, this.state);
  }

  /** Updates the text of a stage: its current item and which of how many it is; if nothing is pinned, its size. */
  private updateLabel({ pane, items, at, element }: Stage): void {
    const text = items.length ? this.itemText(items[at]) : "";
    const title = shortTitle(pane, this.state.compile);
    const which = items.length > 1 && `${at + 1}/${items.length}`;
    const keys = "← and → move along the stages, ↑ and ↓ between the items of this stage";
    element.title = items.length ? `${title}: ${shorten(text, 300)}\n${keys}` : this.stageTitle(pane);
    const below = items.length ? shorten(text, MAX_TEXT) : this.state.pinned.size ? "–" : this.sizeText(pane);
    const [count, unit] = items.length ? [below, ""] : below.split(/(?<=\d)(?= )/);
    const under = h("span", {}, which ? h("i", {}, which) : "", count, unit && h("span", { class: "unit" }, unit));
    element.replaceChildren(h("b", {}, title), under);
  }

  private stageTitle(pane: string): string {
    const { kind } = parsePane(pane);
    const empty = this.state.compile && this.isEmpty(pane) ? kind.empty(this.state.compile) : "";
    const title = paneTitle(kind, this.state.compile);
    return empty ? `${title}: ${empty}` : `Show: ${title}`;
  }

  /** How much there is of a stage. */
  private sizeText(pane: Artifact["pane"]): string {
    const artifacts = pane === "source" ? this.state.artifacts(pane).slice(0, 1) : this.state.artifacts(pane);
    if (pane === "fusion" && this.state.compile?.kernels.length) {
      const groups = this.state.compile.fusions.length;
      return groups ? plural(groups, "group") : "none";
    }
    if (!artifacts.length) return "none";
    const nodes = artifacts.reduce((sum, { graph }) => sum + (graph?.nodes.length ?? 0), 0);
    if (nodes) return plural(nodes, "node");
    if (pane === "kernel") return this.kernelText();
    return plural(
      artifacts.reduce((sum, { text }) => sum + text.trimEnd().split("\n").length, 0),
      "line",
    );
  }

  private kernelText(): string {
    const kernels = this.state.compile?.kernels.filter(({ language }) => language !== "extern") ?? [];
    return kernels.length ? plural(kernels.length, "kernel") : "PyTorch's own";
  }

  /** The text of an item: the name of a node, or else the first line of its text. */
  private itemText(item: ItemId): string {
    const artifact = this.state.links.artifactOf(item);
    const key = item.slice(item.indexOf("#") + 1);
    if (artifact?.graph?.nodes.some((node) => node.key === key)) return key;
    const line = this.state.links.text(item).trim().replace(/\s+/g, " ");
    return artifact?.pane === "source" ? `${key}: ${line}` : line;
  }

  /** Shows the pane of a stage; scrolls to its current item, and highlights what that is linked to. */
  private go(stage: Stage, at: number): void {
    const count = Math.max(stage.items.length, 1);
    stage.at = (at + count) % count;
    for (const each of this.stages) each.element.classList.toggle("walked", each === stage);
    this.setCurrent(stage);
    this.updateLabel(stage);
    stage.element.focus();
    const item = stage.items[stage.at];
    const pinned = new Set([...this.state.pinned].map((pin) => this.state.links.artifactOf(pin)?.pane as string));
    this.state.open(stage.pane, (shown) => !pinned.has(shown));
    if (item === undefined) return;
    this.state.hover([item]);
    this.reveal(stage.pane, new Set([item]));
  }

  /**
   * Moves along the stages with ← and →, and between the items of a stage with ↑ and ↓: from the stage that has the
   * focus, or else, while something is pinned, from its own. Returns whether the key was used.
   */
  handleKey(event: KeyboardEvent): boolean {
    const linked = this.stages.filter(({ items }) => items.length);
    const stages = linked.length ? linked : this.stages;
    const current =
      this.stages.find(({ element }) => element === document.activeElement) ??
      linked.find(({ element }) => element.tabIndex === 0);
    if (!current || event.ctrlKey || event.metaKey || event.altKey) return false;
    const at = stages.indexOf(current);
    const along = { ArrowLeft: stages[at - 1], ArrowRight: stages[at + 1] }[event.key];
    const within = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (along) this.go(along, along.at);
    else if (within && current.items.length) this.go(current, current.at + within);
    else return false;
    return true;
  }
}

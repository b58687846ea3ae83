/** The chain of links of the pinned item: one button for each stage, from the user's line to the machine code. */

import { h, scrollInside } from "../dom/elements";
import { shorten } from "../dom/format";
import { appendTo } from "../model/analysis/links";
import type { PaneName } from "../model/content";
import type { Artifact, ItemId } from "../model/record/record";
import type { State } from "../model/state";
import { shortTitle } from "../panes/registry";

const STAGE_ORDER: Artifact["pane"][] = [
  "source",
  "bytecode",
  "guards",
  "captured",
  "pregrad",
  "joint",
  "forward",
  "backward",
  "postgrad",
  "passes",
  "fusion",
  "kernel",
  "wrapper",
  "machine",
  "generated",
  "decompiled",
];

const MACHINE_ORDER: Artifact["language"][] = ["mlir", "llvm", "sass", "asm", "ptx"];

/** Characters of item texts that fit beside the stage names, in an output of usual width. */
const MAX_CHARACTERS = 110;

/** One link of the chain: the linked items of one stage, of which one is current. */
interface Stage {
  pane: PaneName;
  items: ItemId[];
  at: number;
  element: HTMLElement;
}

export class LinkChain {
  readonly element = h("div", { class: "strip", role: "toolbar", "aria-label": "Links of the pinned item" });
  private stages: Stage[] = [];
  /** Characters shown of each stage's text: the more stages, the fewer. */
  private maxLength = 30;

  constructor(
    private readonly state: State,
    private readonly reveal: (pane: string, items: Set<ItemId>) => void,
  ) {
    state.on("pin", () => this.draw());
    state.on("compile", () => this.draw());
    this.element.addEventListener("keydown", (event) => this.handleKey(event));
    this.draw();
  }

  private draw(): void {
    const hadFocus = this.element.contains(document.activeElement);
    this.stages = [];
    if (!this.state.pinned.size) {
      this.element.replaceChildren(
        h(
          "span",
          { class: "hint" },
          "Point at a line or a node to see what it was made from and what was made from it. Click to pin it, Esc to unpin.",
        ),
      );
      return;
    }
    const groups = this.itemsByPane();
    this.maxLength = Math.min(30, Math.max(6, Math.floor(MAX_CHARACTERS / groups.size)));
    this.stages = STAGE_ORDER.flatMap((pane) => {
      const items = groups.get(pane);
      return items ? [this.createStage(pane, items)] : [];
    });
    const nothing = this.stages.length
      ? null
      : h("span", { class: "hint" }, "The pinned item belongs to another compile.");
    const clear = h(
      "button",
      {
        class: "icon",
        title: "Unpin (Esc)",
        "aria-label": "Unpin the item",
        onclick: () => this.state.pin([]),
      },
      "×",
    );
    const list = h("span", { class: "steps" }, ...this.stages.map(({ element }) => element), nothing);
    this.element.replaceChildren(list, ...this.stepButton(), clear);
    const own = this.stages.find(({ element }) => element.classList.contains("own")) ?? this.stages[0];
    for (const stage of this.stages) stage.element.tabIndex = stage === own ? 0 : -1;
    if (own) scrollInside(list, own.element);
    if (own && hadFocus) own.element.focus();
  }

  /** If the steps of the symbolic interpreter were recorded: the button that shows the step that created the item. */
  private stepButton(): HTMLElement[] {
    if (!this.state.compile?.steps.length) return [];
    const title = "Go to the symbolic step that created it";
    return [h("button", { class: "made", title, onclick: () => this.state.open("steps") }, "Step ⤴")];
  }

  /** The linked items by pane; machine code in the order PTX, assembly, SASS, LLVM, MLIR. */
  private itemsByPane(): Map<string, ItemId[]> {
    const groups = new Map<string, ItemId[]>();
    for (const item of this.state.visible(this.state.pinLinked)) {
      const pane = this.state.links.artifactOf(item)?.pane ?? "";
      appendTo(groups, pane, item);
    }
    const rank = (item: ItemId) => MACHINE_ORDER.indexOf(this.state.links.artifactOf(item)?.language ?? "text");
    groups.get("machine")?.sort((a, b) => rank(b) - rank(a));
    return groups;
  }

  private createStage(pane: Artifact["pane"], items: ItemId[]): Stage {
    const own = items.findIndex((item) => this.state.pinned.has(item));
    const element = h("button", { class: own >= 0 ? "step own" : "step" });
    const stage = { pane, items, at: Math.max(own, 0), element };
    element.onclick = () => this.go(stage, element.classList.contains("walked") ? stage.at + 1 : stage.at);
    element.onmouseenter = () => this.state.hover(items);
    element.onmouseleave = () => this.state.hover([]);
    this.updateLabel(stage);
    return stage;
  }

  /** Updates the text of a stage: its current item, and which of how many it is. */
  private updateLabel({ pane, items, at, element }: Stage): void {
    const text = this.itemText(items[at]);
    const which = items.length > 1 && `${at + 1}/${items.length}`;
    element.title = `${shortTitle(pane)}: ${shorten(text, 300)}\n← and → move along the chain, ↑ and ↓ between the items of this stage`;
    element.replaceChildren(
      h("b", {}, shortTitle(pane)),
      h("span", {}, shorten(text, this.maxLength)),
      which ? h("i", {}, which) : "",
    );
  }

  /** The text of an item: the name of a node, or else the first line of its text. */
  private itemText(item: ItemId): string {
    const artifact = this.state.links.artifactOf(item);
    const key = item.slice(item.indexOf("#") + 1);
    if (artifact?.graph?.nodes.some((node) => node.key === key)) return key;
    const line = this.state.links.text(item).replace(/\s+/g, " ");
    return artifact?.pane === "source" ? `${key}: ${line}` : line;
  }

  /** Makes an item current: shows its pane, scrolls to it, and highlights what it is linked to. */
  private go(stage: Stage, at: number): void {
    stage.at = (at + stage.items.length) % stage.items.length;
    for (const each of this.stages) {
      each.element.classList.toggle("walked", each === stage);
      each.element.tabIndex = each === stage ? 0 : -1;
    }
    this.updateLabel(stage);
    stage.element.focus();
    const item = stage.items[stage.at];
    const pinned = new Set([...this.state.pinned].map((pin) => this.state.links.artifactOf(pin)?.pane as string));
    this.state.open(stage.pane, (shown) => !pinned.has(shown));
    this.state.hover([item]);
    this.reveal(stage.pane, new Set([item]));
  }

  private handleKey(event: KeyboardEvent): void {
    const at = this.stages.findIndex(({ element }) => element === document.activeElement);
    const stage = this.stages[at];
    if (!stage) return;
    const along = { ArrowLeft: this.stages[at - 1], ArrowRight: this.stages[at + 1] }[event.key];
    const within = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (along) this.go(along, along.at);
    else if (within) this.go(stage, stage.at + within);
    else return;
    event.preventDefault();
  }
}

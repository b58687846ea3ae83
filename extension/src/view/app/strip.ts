/** The way of the pinned item, from the user's line to the machine code: a chain that is walked by mouse and keys. */

import { h, scrollInside, shorten } from "../dom/dom";
import { push } from "../model/links";
import type { Artifact, ItemId } from "../model/record";
import type { PaneName, State } from "../model/state";
import { shortTitle } from "../panes/panes";

const ORDER: Artifact["pane"][] = [
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

const MACHINE: Artifact["language"][] = ["mlir", "llvm", "sass", "asm", "ptx"];

/** Characters of items' texts that fit beside the names of the steps, in an output of common width. */
const WIDTH = 110;

/** One step of the chain: the items of one stage, one of which is looked at. */
interface Step {
  pane: PaneName;
  items: ItemId[];
  at: number;
  element: HTMLElement;
}

export class Strip {
  readonly element = h("div", { class: "strip", role: "toolbar", "aria-label": "What the pinned item is linked to" });
  private steps: Step[] = [];
  /** Characters of each step's text: the more steps, the fewer. */
  private most = 30;

  constructor(
    private readonly state: State,
    private readonly reveal: (pane: string, items: Set<ItemId>) => void,
  ) {
    state.on("pin", () => this.draw());
    state.on("compile", () => this.draw());
    this.element.addEventListener("keydown", (event) => this.keyed(event));
    this.draw();
  }

  private draw(): void {
    const hadFocus = this.element.contains(document.activeElement);
    this.steps = [];
    if (!this.state.pinned.size) {
      this.element.replaceChildren(
        h(
          "span",
          { class: "hint" },
          "Point at a line or a node to see what it came from and what became of it. Click to pin, Esc to let go.",
        ),
      );
      return;
    }
    const groups = this.groups();
    this.most = Math.min(30, Math.max(6, Math.floor(WIDTH / groups.size)));
    this.steps = ORDER.flatMap((pane) => {
      const items = groups.get(pane);
      return items ? [this.step(pane, items)] : [];
    });
    const nothing = this.steps.length
      ? null
      : h("span", { class: "hint" }, "The pinned item belongs to another compile.");
    const clear = h(
      "button",
      {
        class: "icon",
        title: "Let go (Esc)",
        "aria-label": "Let go of the pinned item",
        onclick: () => this.state.pin([]),
      },
      "×",
    );
    const list = h("span", { class: "steps" }, ...this.steps.map(({ element }) => element), nothing);
    this.element.replaceChildren(list, ...this.toSteps(), clear);
    const own = this.steps.find(({ element }) => element.classList.contains("own")) ?? this.steps[0];
    for (const step of this.steps) step.element.tabIndex = step === own ? 0 : -1;
    if (own) scrollInside(list, own.element);
    if (own && hadFocus) own.element.focus();
  }

  /** Where the symbolic interpreter's steps were recorded: to the step that made the item. */
  private toSteps(): HTMLElement[] {
    if (!this.state.compile?.steps.length) return [];
    const title = "Go to the symbolic interpreter's step that made it";
    return [h("button", { class: "made", title, onclick: () => this.state.open("steps") }, "Step ⤴")];
  }

  /** The items by their stages; of machine code, first what people read most. */
  private groups(): Map<string, ItemId[]> {
    const groups = new Map<string, ItemId[]>();
    for (const item of this.state.visible(this.state.pinLinked)) {
      const pane = this.state.links.artifactOf(item)?.pane ?? "";
      push(groups, pane, item);
    }
    const rank = (item: ItemId) => MACHINE.indexOf(this.state.links.artifactOf(item)?.language ?? "text");
    groups.get("machine")?.sort((a, b) => rank(b) - rank(a));
    return groups;
  }

  private step(pane: Artifact["pane"], items: ItemId[]): Step {
    const own = items.findIndex((item) => this.state.pinned.has(item));
    const element = h("button", { class: own >= 0 ? "step own" : "step" });
    const step = { pane, items, at: Math.max(own, 0), element };
    element.onclick = () => this.go(step, element.classList.contains("walked") ? step.at + 1 : step.at);
    element.onmouseenter = () => this.state.hover(items);
    element.onmouseleave = () => this.state.hover([]);
    this.label(step);
    return step;
  }

  /** Which item of the step is looked at, and how many there are. */
  private label({ pane, items, at, element }: Step): void {
    const text = this.itemText(items[at]);
    const which = items.length > 1 && `${at + 1}/${items.length}`;
    element.title = `${shortTitle(pane)}: ${shorten(text, 300)}\n← and → go along the chain, ↑ and ↓ through this step`;
    element.replaceChildren(
      h("b", {}, shortTitle(pane)),
      h("span", {}, shorten(text, this.most)),
      which ? h("i", {}, which) : "",
    );
  }

  /** What an item is called: a node by its name, anything else by the first line of its text. */
  private itemText(item: ItemId): string {
    const artifact = this.state.links.artifactOf(item);
    const key = item.slice(item.indexOf("#") + 1);
    if (artifact?.graph?.nodes.some((node) => node.key === key)) return key;
    const line = this.state.links.text(item).replace(/\s+/g, " ");
    return artifact?.pane === "source" ? `${key}: ${line}` : line;
  }

  /** Look at one item of a step: show its pane, scroll there, and light what it is linked to. */
  private go(step: Step, at: number): void {
    step.at = (at + step.items.length) % step.items.length;
    for (const each of this.steps) {
      each.element.classList.toggle("walked", each === step);
      each.element.tabIndex = each === step ? 0 : -1;
    }
    this.label(step);
    step.element.focus();
    const item = step.items[step.at];
    const pinned = new Set([...this.state.pinned].map((pin) => this.state.links.artifactOf(pin)?.pane as string));
    this.state.open(step.pane, (shown) => !pinned.has(shown));
    this.state.hover([item]);
    this.reveal(step.pane, new Set([item]));
  }

  private keyed(event: KeyboardEvent): void {
    const at = this.steps.findIndex(({ element }) => element === document.activeElement);
    const step = this.steps[at];
    if (!step) return;
    const along = { ArrowLeft: this.steps[at - 1], ArrowRight: this.steps[at + 1] }[event.key];
    const within = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (along) this.go(along, along.at);
    else if (within) this.go(step, step.at + within);
    else return;
    event.preventDefault();
  }
}

/** The way of the pinned item, from the user's line to the kernel: each step can be gone to. */

import { h, scrollInside, shorten } from "./dom";
import { keyOf, push } from "./links";
import { parsePane, shortTitle } from "./panes";
import type { Artifact, ItemId } from "./record";
import { MOST_PANES, type State } from "./state";

const ORDER: Artifact["pane"][] = [
  "source",
  "bytecode",
  "guards",
  "captured",
  "joint",
  "forward",
  "backward",
  "fusion",
  "kernel",
  "wrapper",
  "machine",
  "generated",
  "decompiled",
];

/** Characters of items' texts that fit beside the names of the steps, in an output of common width. */
const WIDTH = 110;

export class Strip {
  readonly element = h("div", { class: "strip", role: "status", "aria-label": "What the pinned item is linked to" });

  constructor(
    private readonly state: State,
    private readonly reveal: (pane: string) => void,
  ) {
    state.on("pin", () => this.draw());
    state.on("compile", () => this.draw());
    this.draw();
  }

  private draw(): void {
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
    // the more steps, the fewer words of each
    const most = Math.min(30, Math.max(6, Math.floor(WIDTH / groups.size)));
    const steps = ORDER.flatMap((pane) => {
      const items = groups.get(pane);
      return items ? [this.step(pane, items, most)] : [];
    });
    const nothing = steps.length ? null : h("span", { class: "hint" }, "The pinned item belongs to another compile.");
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
    const list = h("span", { class: "steps" }, ...steps, nothing);
    this.element.replaceChildren(list, clear);
    const own = list.querySelector(".own");
    if (own) scrollInside(list, own);
  }

  private groups(): Map<string, ItemId[]> {
    const groups = new Map<string, ItemId[]>();
    for (const item of this.state.visible(this.state.pinLinked)) {
      const pane = this.state.links.artifactOf(item)?.pane ?? "";
      push(groups, pane, item);
    }
    return groups;
  }

  private step(pane: Artifact["pane"], items: ItemId[], most: number): HTMLElement {
    const own = items.some((item) => this.state.pinned.has(item));
    const text = this.itemText(items.find((item) => this.state.pinned.has(item)) ?? items[0]);
    return h(
      "button",
      { class: own ? "step own" : "step", title: `${shortTitle(pane)}: ${text}`, onclick: () => this.go(pane) },
      h("b", {}, shortTitle(pane)),
      h("span", {}, shorten(text, most)),
      items.length > 1 && h("i", {}, `+${items.length - 1}`),
    );
  }

  /** The first line of an item's text. */
  private itemText(item: ItemId): string {
    const artifact = this.state.links.artifactOf(item);
    const key = keyOf(item);
    const node = artifact?.graph?.nodes.find((n) => n.key === key);
    if (node) return node.key;
    const span = artifact?.spans.find((s) => s.key === key);
    const line = span && artifact ? artifact.text.split("\n")[span.first - 1]?.trim().replace(/\s+/g, " ") : key;
    return artifact?.pane === "source" ? `${key}: ${line}` : (line ?? key);
  }

  /** Show `pane`, in place of one that does not show the pinned item, and scroll there. */
  private go(pane: string): void {
    const { shown } = this.state;
    const panes = shown.map((s) => parsePane(s).kind.name as string);
    if (!panes.includes(pane)) {
      const pinned = new Set([...this.state.pinned].map((item) => this.state.links.artifactOf(item)?.pane as string));
      const free = panes.findLastIndex((name) => !pinned.has(name));
      if (free >= 0) this.state.show(pane, free);
      else if (shown.length < MOST_PANES) this.state.setShown([...shown, pane]);
    }
    this.reveal(pane);
  }
}

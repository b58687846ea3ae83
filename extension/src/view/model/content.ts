/** The names of panes, and the interface of what is shown in a pane. */

import type { Artifact, ItemId } from "./record/record";

/** The stages of a compile that have artifacts, and the panes that are derived from the record. */
export type PaneName =
  | Artifact["pane"]
  | "overview"
  | "steps"
  | "frames"
  | "partition"
  | "speed"
  | "timings"
  | "sizes"
  | "costs"
  | "memory"
  | "training"
  | "roofline"
  | "accuracy"
  | "tuning"
  | "compare"
  | "engines";

/** The content of a pane. */
export interface Content {
  readonly element: HTMLElement;
  /** Highlights the items that are hovered, pinned, or part of the current interpreter step. */
  highlight(): void;
  /** Scrolls, within the pane, to the first of `items`. */
  reveal(items: Set<ItemId>): void;
  destroy(): void;
}

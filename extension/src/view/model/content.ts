/** What every view in a pane has in common. */

import type { ItemId } from "./record";

/** What fills a pane. */
export interface Content {
  readonly element: HTMLElement;
  /** Show what is hovered and pinned now. */
  light(): void;
  /** Scroll, within the pane, to the first of `items`. */
  reveal(items: Set<ItemId>): void;
  destroy(): void;
}

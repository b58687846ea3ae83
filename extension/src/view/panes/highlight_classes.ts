/** The CSS classes of highlighted items. */

import type { ItemId } from "../model/record/record";
import type { State } from "../model/state";

/**
 * Returns the classes of an element that stands for `items`: pinned, hovered, linked to these, of the current step, or of later
 * ones alone.
 */
export function highlightClasses(items: ItemId[], state: State): string {
  const classes: string[] = [];
  if (items.some((item) => state.pinned.has(item))) classes.push("pinned");
  else if (items.some((item) => state.pinLinked.has(item))) classes.push("pin-linked");
  if (items.some((item) => state.hovered.has(item))) classes.push("hovered");
  else if (items.some((item) => state.hoverLinked.has(item))) classes.push("hover-linked");
  if (items.some((item) => state.stepItems.has(item))) classes.push("stepped");
  if (state.laterItems.size && items.every((item) => state.laterItems.has(item))) classes.push("later");
  return classes.join(" ");
}

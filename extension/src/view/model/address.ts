/**
 * The address of a view: the compile, the panes and the pinned items, as the part of a page's address after `#`, and of the
 * argument of `kernel_magics.view` (kernel_magics/command/view.py reads the same).
 */

import type { View } from "./record/record";

/** More items, as of a group of rows, would make the address unwieldy. */
const MAX_PINNED = 50;

export function addressOf({ compile, panes, pinned }: Omit<View, "title">): string {
  const fields = [
    ...(compile ? [["compile", compile]] : []),
    ...panes.map((pane) => ["pane", pane]),
    ...pinned.slice(0, MAX_PINNED).map((item) => ["pinned", item]),
  ];
  return fields.map(([name, value]) => `${name}=${encode(value)}`).join("&");
}

/** Returns the view of an address; null if it is none. */
export function viewOf(address: string): View | null {
  const fields = new URLSearchParams(address);
  const view = { compile: fields.get("compile") ?? "", panes: fields.getAll("pane"), pinned: fields.getAll("pinned") };
  return view.compile || view.panes.length || view.pinned.length ? { title: "", ...view } : null;
}

/** Encodes a value; what an address may have as it is stays readable. */
function encode(value: string): string {
  return encodeURIComponent(value).replace(/%(2F|3A|2C)/g, decodeURIComponent);
}

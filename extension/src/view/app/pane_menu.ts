/** The menus of panes: the options by group, those that have nothing to show last. */

import { h } from "../dom/elements";
import { GROUPS, type PaneKind } from "../panes/registry";

const EMPTY = "Nothing in this compile";

/** Creates the options of a menu of panes. */
export function paneOptions(kinds: PaneKind[], hasContent: (kind: PaneKind) => boolean): HTMLOptGroupElement[] {
  const options = (of: PaneKind[]) => of.map(({ name, title }) => h("option", { value: name }, title));
  const full = kinds.filter(hasContent);
  const groups = GROUPS.map((group) => [group, full.filter((kind) => kind.group === group)] as const);
  const empty = kinds.filter((kind) => !full.includes(kind));
  return [...groups, [EMPTY, empty] as const]
    .filter(([, of]) => of.length)
    .map(([label, of]) => h("optgroup", { label }, ...options(of)));
}

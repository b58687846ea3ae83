/** The menus of panes: the options by group, those that have nothing to show last. */

import { h } from "../dom/elements";
import type { State } from "../model/state";
import { GROUPS, hasContent, type PaneKind, paneTitle } from "../panes/registry";

const EMPTY = "Nothing in this compile";

/** Creates the options of a menu of panes. */
export function paneOptions(kinds: PaneKind[], state: State): HTMLOptGroupElement[] {
  const options = (of: PaneKind[]) =>
    of.map((kind) => h("option", { value: kind.name }, paneTitle(kind, state.compile)));
  const full = kinds.filter((kind) => hasContent(kind, state));
  const groups = GROUPS.map((group) => [group, full.filter((kind) => kind.group === group)] as const);
  const empty = kinds.filter((kind) => !full.includes(kind));
  return [...groups, [EMPTY, empty] as const]
    .filter(([, of]) => of.length)
    .map(([label, of]) => h("optgroup", { label }, ...options(of)));
}

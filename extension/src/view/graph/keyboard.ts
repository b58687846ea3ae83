/** The keyboard shortcuts of a drawing. */

import { ARROWS } from "./navigation";
import type { GraphActions } from "./toolbar";

/** Returns the action of a key, or undefined if the drawing does not handle it. */
export function actionOfKey(key: string, actions: GraphActions): (() => void) | undefined {
  if (key === "Escape") return actions.isNarrowed() ? () => actions.showAll() : undefined;
  const known: { [key: string]: () => void } = {
    "/": () => actions.focusSearch(),
    "+": () => actions.zoom(1.25),
    "=": () => actions.zoom(1.25),
    "-": () => actions.zoom(0.8),
    "0": () => actions.fit(),
    PageUp: () => actions.scrollPages(-1),
    PageDown: () => actions.scrollPages(1),
    Home: () => actions.goToFirst(),
    End: () => actions.goToLast(),
    Enter: () => actions.pin(),
    " ": () => actions.pin(),
    n: () => actions.goToFound(1),
    N: () => actions.goToFound(-1),
    e: () => actions.expand(),
    c: () => actions.collapse(),
    a: () => actions.showNeighbourhood(),
    w: () => actions.showPaths(),
    ...Object.fromEntries(ARROWS.map((arrow) => [arrow, () => actions.move(arrow)])),
  };
  return known[key];
}

/** The keys of a drawing. */

import { ARROWS } from "./places";
import type { Actions } from "./tools";

/** What a key does; nothing for a key that is not the drawing's. */
export function keyAction(key: string, actions: Actions): (() => void) | undefined {
  if (key === "Escape") return actions.isNarrowed() ? actions.all : undefined;
  const known: { [key: string]: () => void } = {
    "/": actions.find,
    "+": () => actions.zoom(1.25),
    "=": () => actions.zoom(1.25),
    "-": () => actions.zoom(0.8),
    "0": actions.fit,
    PageUp: () => actions.turn(-1),
    PageDown: () => actions.turn(1),
    Home: actions.first,
    End: actions.last,
    Enter: actions.pin,
    " ": actions.pin,
    n: () => actions.step(1),
    N: () => actions.step(-1),
    e: actions.expand,
    c: actions.collapse,
    a: actions.around,
    w: actions.way,
    ...Object.fromEntries(ARROWS.map((arrow) => [arrow, () => actions.walk(arrow)])),
  };
  return known[key];
}

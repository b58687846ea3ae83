/** Moves the keyboard focus into an explorer, and out of it again. */

/** Event by which an explorer gives the focus back to its cell. */
export const LEAVE_EVENT = "cutaway-leave";

/** Event of an explorer that shows other content; its detail is the model. */
export const SHOWN_EVENT = "cutaway-shown";

/** What gets the focus: the worst problem, or else the first stage; of a folded explorer, the button that unfolds it. */
const FIRST = [".unfold", ".problem .what", ".stages .step[tabindex='0']", "button"];

/** Scrolls to an explorer and focuses it, once it is drawn. */
export function focusExplorer(root: HTMLElement): void {
  root.scrollIntoView({ block: "nearest" });
  const candidates = FIRST.flatMap((selector) => [...root.querySelectorAll<HTMLElement>(selector)]);
  const first = candidates.find((element) => element.checkVisibility());
  if (first) first.focus({ preventScroll: true });
  else root.addEventListener(SHOWN_EVENT, () => focusExplorer(root), { once: true });
}

/** Gives the focus back to the cell, if the explorer is in a notebook. */
export function leaveExplorer(element: Element): void {
  element.dispatchEvent(new CustomEvent(LEAVE_EVENT, { bubbles: true }));
}

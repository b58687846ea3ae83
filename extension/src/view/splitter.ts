/** The line between two parts that is dragged, or moved with the arrow keys, to share out the width. */

import { h, whenSized } from "./dom";

const STEP = 24;
const LEAST = 80;

/** A splitter that sets the width of `before`, which stands on its left. */
export function splitter(before: HTMLElement, name: string): HTMLElement {
  const bar = h("div", {
    class: "splitter",
    role: "separator",
    tabindex: 0,
    "aria-orientation": "vertical",
    "aria-label": `Width of ${name}`,
    "aria-valuemin": LEAST,
  });
  const tell = () => bar.setAttribute("aria-valuenow", before.getBoundingClientRect().width.toFixed(0));
  const resize = (width: number) => {
    before.style.flex = `0 0 ${Math.max(LEAST, width)}px`;
    tell();
  };
  whenSized(before, tell);
  bar.addEventListener("pointerdown", (down) => {
    const start = before.getBoundingClientRect().width;
    const move = (event: PointerEvent) => resize(start + event.clientX - down.clientX);
    bar.setPointerCapture(down.pointerId);
    bar.addEventListener("pointermove", move);
    bar.addEventListener("lostpointercapture", () => bar.removeEventListener("pointermove", move), { once: true });
    down.preventDefault();
  });
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key];
    if (step !== undefined) resize(before.getBoundingClientRect().width + step);
  });
  return bar;
}

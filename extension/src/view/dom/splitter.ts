/** The line between two parts that is dragged, or moved with the arrow keys, to share out the width. */

import { h, whenSized } from "./dom";

const STEP = 24;
const LEAST = 80;

/** A splitter that sets the width of the element before it. */
export function splitter(name: string): HTMLElement {
  const bar = h("div", {
    class: "splitter",
    role: "separator",
    tabindex: 0,
    "aria-orientation": "vertical",
    "aria-label": `Width of ${name}`,
    "aria-valuemin": LEAST,
  });
  const before = () => bar.previousElementSibling as HTMLElement;
  const width = () => before().getBoundingClientRect().width;
  const tell = () => bar.setAttribute("aria-valuenow", width().toFixed(0));
  const resize = (wanted: number) => {
    before().style.flex = `0 0 ${Math.max(LEAST, wanted)}px`;
    tell();
  };
  whenSized(bar, tell);
  bar.addEventListener("pointerdown", (down) => {
    const start = width();
    const move = (event: PointerEvent) => resize(start + event.clientX - down.clientX);
    bar.setPointerCapture(down.pointerId);
    bar.addEventListener("pointermove", move);
    bar.addEventListener("lostpointercapture", () => bar.removeEventListener("pointermove", move), { once: true });
    down.preventDefault();
  });
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key];
    if (step !== undefined) resize(width() + step);
  });
  return bar;
}

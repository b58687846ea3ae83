/** A separator between two elements that is dragged, or moved with the arrow keys, to resize them. */

import { h, onceSized } from "./elements";

const KEY_STEP_PX = 24;
const MIN_WIDTH_PX = 80;

/** Creates a splitter that sets the width of the element before it. */
export function splitter(name: string): HTMLElement {
  const bar = h("div", {
    class: "splitter",
    role: "separator",
    tabindex: 0,
    "aria-orientation": "vertical",
    "aria-label": `Width of ${name}`,
    "aria-valuemin": MIN_WIDTH_PX,
  });
  const before = () => bar.previousElementSibling as HTMLElement;
  const width = () => before().getBoundingClientRect().width;
  const updateValue = () => bar.setAttribute("aria-valuenow", width().toFixed(0));
  const resize = (wanted: number) => {
    before().style.flex = `0 0 ${Math.max(MIN_WIDTH_PX, wanted)}px`;
    updateValue();
  };
  onceSized(bar, updateValue);
  bar.addEventListener("pointerdown", (down) => {
    const start = width();
    const move = (event: PointerEvent) => resize(start + event.clientX - down.clientX);
    bar.setPointerCapture(down.pointerId);
    bar.addEventListener("pointermove", move);
    bar.addEventListener("lostpointercapture", () => bar.removeEventListener("pointermove", move), { once: true });
    down.preventDefault();
  });
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -KEY_STEP_PX, ArrowRight: KEY_STEP_PX }[event.key];
    if (step !== undefined) resize(width() + step);
  });
  return bar;
}

/** A separator between two elements that is dragged, or moved with the arrow keys, to resize them. */

import { h, onceSized } from "./elements";

const KEY_STEP_PX = 24;
const MIN_WIDTH_PX = 80;

/** What a splitter resizes. */
export interface Resized {
  width(): number;
  resize(width: number): void;
}

/** Creates a splitter that sets the width of `resized`, or else of the element before it. */
export function splitter(name: string, resized?: Resized): HTMLElement {
  const bar = h("div", {
    class: "splitter",
    role: "separator",
    tabindex: 0,
    "aria-orientation": "vertical",
    "aria-label": `Width of ${name}`,
    "aria-valuemin": MIN_WIDTH_PX,
  });
  const before: Resized = {
    width: () => (bar.previousElementSibling as HTMLElement).getBoundingClientRect().width,
    resize: (width) => {
      (bar.previousElementSibling as HTMLElement).style.flex = `0 0 ${Math.max(MIN_WIDTH_PX, width)}px`;
    },
  };
  const target = resized ?? before;
  const updateValue = () => bar.setAttribute("aria-valuenow", target.width().toFixed(0));
  const resize = (wanted: number) => {
    target.resize(wanted);
    updateValue();
  };
  onceSized(bar, updateValue);
  bar.addEventListener("pointerdown", (down) => {
    const start = target.width();
    const move = (event: PointerEvent) => resize(start + event.clientX - down.clientX);
    bar.setPointerCapture(down.pointerId);
    bar.addEventListener("pointermove", move);
    bar.addEventListener("lostpointercapture", () => bar.removeEventListener("pointermove", move), { once: true });
    down.preventDefault();
  });
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -KEY_STEP_PX, ArrowRight: KEY_STEP_PX }[event.key];
    if (step !== undefined) resize(target.width() + step);
  });
  return bar;
}

/** Elements and numbers.  Text from a record only ever becomes a text node or an attribute's value. */

const MOST_CHARACTERS = 10_000;

type Child = Node | string | null | undefined | false;
type Props = { [name: string]: string | number | boolean | null | undefined | ((event: never) => void) };

/** An element with attributes (functions are listeners: `onclick`) and children. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), props, children);
}

/** The same for SVG. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function fill<E extends Element>(element: E, props: Props, children: Child[]): E {
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value as EventListener);
    else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : clip(String(value)));
    }
  }
  for (const child of children) if (child) element.append(typeof child === "string" ? clip(child) : child);
  return element;
}

/** Text of any length, from a stranger, must not keep the page busy. */
function clip(text: string): string {
  return shorten(text, MOST_CHARACTERS);
}

export function shorten(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

export function plural(count: number, noun: string, nouns = `${noun}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? noun : nouns}`;
}

/** 2048 as "2.0 KiB". */
export function bytes(count: number): string {
  let value = count;
  let unit = "B";
  for (const next of ["KiB", "MiB", "GiB", "TiB"]) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return `${unit === "B" ? value : value.toFixed(1)} ${unit}`;
}

/** Nanoseconds as "1.2 ms". */
export function duration(ns: number): string {
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toPrecision(3)} µs`;
  if (ns < 1e9) return `${(ns / 1e6).toPrecision(3)} ms`;
  return `${(ns / 1e9).toPrecision(3)} s`;
}

const DTYPES: { [start: string]: string } = { float: "f", bfloat: "bf", complex: "c", int: "i", uint: "u" };

/** "float32", [8, 10] as "f32[8, 10]", as PyTorch's own printing has it. */
export function tensorType(dtype: string | null, shape: (number | string)[] | null): string {
  if (dtype === null) return "";
  const [, letters, digits] = /^(\D*)(.*)$/.exec(dtype) ?? ["", dtype, ""];
  return `${DTYPES[letters] ?? letters}${digits}${shape ? `[${shape.join(", ")}]` : ""}`;
}

export function reducedMotion(): boolean {
  return window.matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** Scroll `box`, and nothing around it, so that `element` is seen. */
export function scrollInside(box: Element, element: Element): void {
  const outer = box.getBoundingClientRect();
  const inner = element.getBoundingClientRect();
  const high = inner.top >= outer.top && inner.bottom <= outer.bottom;
  const wide = inner.left >= outer.left && inner.left <= outer.right;
  box.scrollBy({
    top: high ? 0 : inner.top - outer.top - outer.height / 3,
    left: wide ? 0 : inner.left - outer.left - outer.width / 3,
    behavior: reducedMotion() ? "auto" : "smooth",
  });
}

/** Call `then` once `element` is on the page with a size. */
export function whenSized(element: Element, then: () => void): void {
  const observer = new ResizeObserver(() => {
    if (!element.clientWidth) return;
    observer.disconnect();
    then();
  });
  observer.observe(element);
}

/** 4.7e-7 as such; 0 as "0". */
export function errorText(error: number | null): string {
  if (error === null) return "no number";
  return error === 0 ? "0" : error.toExponential(1);
}

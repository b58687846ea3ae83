/** Creates and scrolls elements. Text of a record only ever becomes a text node or an attribute value, never markup. */

import { shorten } from "./format";

const MAX_CHARACTERS = 10_000;

type Child = Node | string | null | undefined | false;
type Props = { [name: string]: string | number | boolean | null | undefined | ((event: never) => void) };

/** Creates an HTML element with attributes (a function is an event listener, as in `onclick`) and children. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), props, children);
}

/** Creates an SVG element; arguments as for `h`. */
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
      element.setAttribute(name, value === true ? "" : truncate(String(value)));
    }
  }
  for (const child of children) if (child) element.append(typeof child === "string" ? truncate(child) : child);
  return element;
}

/** Returns the children of an element for a text in which backquotes enclose code. */
export function prose(text: string): (Node | string)[] {
  const parts = text.split("`");
  if (parts.length % 2 === 0) parts.splice(-2, 2, parts.slice(-2).join("`")); // the last one has no partner
  return parts.map((part, at) => (at % 2 ? h("code", {}, part) : truncate(part)));
}

/** Limits the length of a text: an untrusted record may contain texts that are too long to lay out. */
function truncate(text: string): string {
  return shorten(text, MAX_CHARACTERS);
}

/** The space above an element that fills most of the box that is scrolled to it. */
const MARGIN_PX = 8;

export function prefersReducedMotion(): boolean {
  return window.matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** Scrolls `box`, but none of its ancestors, so that `element` is visible. */
export function scrollInside(box: Element, element: Element): void {
  const outer = box.getBoundingClientRect();
  const inner = element.getBoundingClientRect();
  const visibleVertically = inner.top >= outer.top && inner.bottom <= outer.bottom;
  const visibleHorizontally = inner.left >= outer.left && inner.left <= outer.right;
  const above = inner.height > outer.height / 2 ? MARGIN_PX : outer.height / 3;
  box.scrollBy({
    top: visibleVertically ? 0 : inner.top - outer.top - above,
    left: visibleHorizontally ? 0 : inner.left - outer.left - outer.width / 3,
    behavior: prefersReducedMotion() ? "auto" : "smooth",
  });
}

/** Calls `then` once, when `element` is attached to the page and has a width; returns a function to cancel it. */
export function onceSized(element: Element, then: () => void): () => void {
  const observer = new ResizeObserver(() => {
    if (!element.clientWidth) return;
    observer.disconnect();
    then();
  });
  observer.observe(element);
  return () => observer.disconnect();
}

/**
 * The outermost box in which `element` scrolls; null if that is the page. An IntersectionObserver needs it as its root:
 * JupyterLab's notebook clips with `contain`, where the margins of the page as the root have no effect.
 */
export function scrollerOf(element: Element): Element | null {
  let found: Element | null = null;
  for (let at = element.parentElement; at && at !== document.body; at = at.parentElement) {
    if (/auto|scroll/.test(getComputedStyle(at).overflowY)) found = at;
  }
  return found;
}

/** The colours and fonts of the page's theme, as a canvas takes them. */

import { h } from "../../dom/dom";
import { COLOURS } from "../../model/links";
import { ROLES } from "../scene/labels";

export const HEATS = 6;

export interface Palette {
  bg: string;
  line: string;
  text: string;
  soft: string;
  accent: string;
  hover: string;
  pin: string;
  step: string;
  cut: string;
  /** What is not so in the graph beside, and what is not there at all. */
  differing: [fill: string, frame: string][];
  /** By role, "" for none: a box's fill and its frame. */
  roles: Map<string, [fill: string, frame: string]>;
  /** The user's lines. */
  lines: string[];
  /** Boxes in their colours. */
  lineBoxes: [fill: string, frame: string][];
  /** From little to much. */
  heat: [fill: string, frame: string][];
  mono: string;
  sans: string;
}

/** Read them as they are at `host`. */
export function readPalette(host: HTMLElement): Palette {
  // where the page has the system's few colours, a plain element would have no other
  const probe = h("span", { style: "forced-color-adjust: none" });
  host.append(probe);
  const read = (colour: string) => {
    probe.style.color = colour;
    return getComputedStyle(probe).color;
  };
  const pair = (): [string, string] => [read("color-mix(in srgb, var(--role) 14%, var(--bg))"), read("var(--role)")];
  const roles = new Map<string, [string, string]>();
  for (const role of ["", ...ROLES, "recomputed"]) {
    probe.className = `node ${role}`;
    roles.set(role, pair());
  }
  probe.className = "";
  const made: Palette = {
    bg: read("var(--bg)"),
    line: read("var(--line)"),
    text: read("var(--text)"),
    soft: read("var(--soft)"),
    accent: read("var(--accent)"),
    hover: read("var(--hover)"),
    pin: read("var(--pin)"),
    step: read("var(--step)"),
    cut: roles.get("saved")?.[1] ?? "",
    differing: [14, 45].map((share) => [
      read(`color-mix(in srgb, var(--differing) ${share}%, var(--bg))`),
      read("var(--differing)"),
    ]),
    roles,
    lines: Array.from({ length: COLOURS }, (_, i) => read(`var(--c${i})`)),
    lineBoxes: Array.from({ length: COLOURS }, (_, i) => [
      read(`color-mix(in srgb, var(--c${i}) 22%, var(--bg))`),
      read(`var(--c${i})`),
    ]),
    heat: Array.from({ length: HEATS }, (_, i) => {
      const share = 8 + (i * 62) / (HEATS - 1);
      return [
        read(`color-mix(in srgb, var(--heat) ${share}%, var(--bg))`),
        read(`color-mix(in srgb, var(--heat) ${share + 25}%, var(--line))`),
      ];
    }),
    mono: family(probe, "var(--mono)"),
    sans: family(probe, "var(--sans)"),
  };
  probe.remove();
  return made;
}

function family(probe: HTMLElement, font: string): string {
  probe.style.fontFamily = font;
  return getComputedStyle(probe).fontFamily;
}

/** Call `then` when the page's theme changes, until what comes back is called. */
export function onTheme(then: () => void): () => void {
  const queries = ["(prefers-color-scheme: dark)", "(prefers-contrast: more)", "(forced-colors: active)"];
  const media = queries.map((query) => matchMedia(query));
  for (const query of media) query.addEventListener("change", then);
  const observer = new MutationObserver(then);
  observer.observe(document.body, { attributeFilter: ["class", "data-jp-theme-name", "data-jp-theme-light"] });
  return () => {
    for (const query of media) query.removeEventListener("change", then);
    observer.disconnect();
  };
}

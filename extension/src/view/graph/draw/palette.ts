/** The colours and fonts of the page's theme, as values for a canvas. */

import { h } from "../../dom/elements";
import { COLOURS } from "../../model/analysis/links";
import { ROLES } from "../scene/labels";

export const HEAT_LEVELS = 6;

export interface Palette {
  bg: string;
  line: string;
  text: string;
  mutedText: string;
  accent: string;
  hover: string;
  pin: string;
  step: string;
  cut: string;
  /** Nodes that are changed in the other graph, and nodes that are missing there. */
  differing: [fill: string, frame: string][];
  /** Fill and frame of a box by role; "" is no role. */
  roles: Map<string, [fill: string, frame: string]>;
  /** The colours of the user's lines. */
  lines: string[];
  /** Boxes in these colours. */
  lineBoxes: [fill: string, frame: string][];
  /** From small to large values. */
  heat: [fill: string, frame: string][];
  mono: string;
  sans: string;
}

/** Reads the colours and fonts from the CSS variables that apply at `host`. */
export function readPalette(host: HTMLElement): Palette {
  // in forced-colors mode, elements otherwise have only the system colours
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
  const palette: Palette = {
    bg: read("var(--bg)"),
    line: read("var(--line)"),
    text: read("var(--text)"),
    mutedText: read("var(--soft)"),
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
    heat: Array.from({ length: HEAT_LEVELS }, (_, i) => {
      const share = 8 + (i * 62) / (HEAT_LEVELS - 1);
      return [
        read(`color-mix(in srgb, var(--heat) ${share}%, var(--bg))`),
        read(`color-mix(in srgb, var(--heat) ${share + 25}%, var(--line))`),
      ];
    }),
    mono: family(probe, "var(--mono)"),
    sans: family(probe, "var(--sans)"),
  };
  probe.remove();
  return palette;
}

function family(probe: HTMLElement, font: string): string {
  probe.style.fontFamily = font;
  return getComputedStyle(probe).fontFamily;
}

/** Calls `then` when the page's theme changes; returns a function that stops this. */
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

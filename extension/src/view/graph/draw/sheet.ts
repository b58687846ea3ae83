/** What is drawn on, at which scale, and from which scale on something is drawn. */

import type { Palette } from "./palette";
import type { Picture } from "./picture";

/** One drawing of a picture at one scale. */
export interface Sheet {
  c: CanvasRenderingContext2D;
  picture: Picture;
  palette: Palette;
  scale: number;
}

export const BOTH_LINES = 0.6;
export const TITLES = 0.26;
export const CURVES = 0.12;
export const HEADS = 0.3;
export const STRIPES = 0.2;
/** Below this, boxes and edges may be smaller than the screen's dots. */
export const CROWDED = 0.03;
/** Below this, boxes are small enough for the names of their groups to be drawn too. */
export const PLACES = 0.5;

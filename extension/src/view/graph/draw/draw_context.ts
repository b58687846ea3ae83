/** The drawing context, and the scales from which details are drawn. */

import type { Palette } from "./palette";
import type { Picture } from "./picture";

/** The canvas on which a picture is drawn, and the scale. */
export interface DrawContext {
  canvas: CanvasRenderingContext2D;
  picture: Picture;
  palette: Palette;
  scale: number;
}

export const SUBTITLES_FROM = 0.6;
export const TITLES_FROM = 0.26;
export const CURVES_FROM = 0.12;
export const ARROWHEADS_FROM = 0.3;
export const STRIPES_FROM = 0.2;
/** Below this scale, boxes and edges may be smaller than a pixel. */
export const CROWDED_BELOW = 0.03;
/** Below this scale, the names of groups are drawn beside their boxes. */
export const GROUP_NAMES_BELOW = 0.5;

/** Draws the edges of a picture, with the detail that is visible at the scale. */

import { ARROWHEADS_FROM, CROWDED_BELOW, CURVES_FROM, type DrawContext, TITLES_FROM } from "./draw_context";
import { HIGHLIGHT } from "./picture";

const STUB_LENGTH = 12;
/** How clear edges are that lead to what a later step of the symbolic interpreter creates. */
const LATER = 0.2;
/** With more boxes highlighted, their edges are not drawn: a group may have hundreds. */
const MAX_MARKED = 300;

export function drawEdges(context: DrawContext, edges: number[]): void {
  const { canvas, picture, palette } = context;
  const { scene } = picture;
  const cuts = picture.cut?.cuts;
  canvas.lineWidth = Math.max(1, 0.6 / context.scale);
  const usual = picture.found || picture.highlighted.size ? 0.45 : 0.75;
  const plain = edges.filter((i) => !cuts?.[i] && !scene.isBridge[i]);
  const isLater = (i: number) => picture.later.has(scene.edges[i][1]);
  canvas.globalAlpha = LATER;
  strokeEdges(context, plain.filter(isLater), palette.mutedText);
  canvas.globalAlpha = usual;
  strokeEdges(
    context,
    plain.filter((i) => !isLater(i)),
    palette.mutedText,
  );
  const bridges = edges.filter((i) => scene.isBridge[i]);
  if (bridges.length) {
    canvas.setLineDash([4, 4]);
    strokeEdges(context, bridges, palette.mutedText);
    canvas.setLineDash([]);
  }
  canvas.globalAlpha = 1;
  const cut = edges.filter((i) => cuts?.[i]);
  if (!cut.length) return;
  canvas.lineWidth = Math.max(2, 1 / context.scale);
  canvas.setLineDash([6, 3]);
  strokeEdges(context, cut, palette.cut);
  canvas.setLineDash([]);
}

function strokeEdges(context: DrawContext, edges: number[], colour: string): void {
  const { canvas } = context;
  const { edges: points } = context.picture.layout;
  canvas.strokeStyle = colour;
  canvas.beginPath();
  // edges shorter than two pixels are hidden by their boxes
  const least = context.scale < CROWDED_BELOW ? 2 / context.scale : 0;
  if (context.scale < CURVES_FROM) for (const i of edges) addLine(canvas, points[i], least);
  else for (const i of edges) addCurve(canvas, points[i]);
  canvas.stroke();
  if (context.scale < ARROWHEADS_FROM) return;
  const dash = canvas.getLineDash();
  canvas.setLineDash([]);
  canvas.beginPath();
  for (const i of edges) addArrowhead(canvas, points[i]);
  canvas.stroke();
  canvas.setLineDash(dash);
}

/** Draws the two ends of long edges. */
export function drawStubs(context: DrawContext, boxes: number[]): void {
  if (context.scale < TITLES_FROM) return;
  const { canvas, picture, palette } = context;
  const { scene, layout } = picture;
  canvas.strokeStyle = palette.mutedText;
  canvas.lineWidth = 1;
  canvas.setLineDash([2, 2]);
  canvas.beginPath();
  for (const i of boxes) {
    const { height } = scene.boxes[i];
    const [x, y] = [layout.x[i], layout.y[i]];
    if (picture.hasLongInput(i)) {
      canvas.moveTo(x - 6, y - height / 2);
      canvas.lineTo(x - 6 - STUB_LENGTH / 2, y - height / 2 - STUB_LENGTH);
    }
    if (picture.hasLongOutput(i)) {
      canvas.moveTo(x + 6, y + height / 2);
      canvas.lineTo(x + 6 + STUB_LENGTH / 2, y + height / 2 + STUB_LENGTH);
    }
  }
  canvas.stroke();
  canvas.setLineDash([]);
}

/** Draws the edges of hovered, pinned and current boxes, including long ones. */
export function drawHighlightedEdges(context: DrawContext): void {
  const { canvas, picture, palette } = context;
  const marked = [...picture.highlighted]
    .filter(([, bits]) => bits & (HIGHLIGHT.pinned | HIGHLIGHT.hovered))
    .map(([box]) => box);
  if (picture.current >= 0) marked.push(picture.current);
  if (!marked.length || marked.length > MAX_MARKED) return;
  const edges = [...new Set(marked.flatMap((box) => picture.edgesOf(box)))];
  canvas.lineWidth = Math.max(1.5, 1 / context.scale);
  strokeEdges(context, edges, palette.accent);
}

function addCurve(canvas: CanvasRenderingContext2D, p: Float32Array): void {
  if (!p.length) return;
  canvas.moveTo(p[0], p[1]);
  for (let i = 2; i + 5 < p.length; i += 6)
    canvas.bezierCurveTo(p[i], p[i + 1], p[i + 2], p[i + 3], p[i + 4], p[i + 5]);
}

function addLine(canvas: CanvasRenderingContext2D, p: Float32Array, least: number): void {
  const n = p.length;
  if (!n || Math.abs(p[n - 1] - p[1]) + Math.abs(p[n - 2] - p[0]) < least) return;
  canvas.moveTo(p[0], p[1]);
  for (let i = 6; i < p.length; i += 6) canvas.lineTo(p[i], p[i + 1]);
}

/** Adds an arrowhead in the direction of the end of an edge. */
function addArrowhead(canvas: CanvasRenderingContext2D, p: Float32Array): void {
  const n = p.length;
  if (n < 4) return;
  const [x, y] = [p[n - 2], p[n - 1]];
  const [dx, dy] = [x - p[n - 4], y - p[n - 3]];
  const length = Math.hypot(dx, dy) || 1;
  const [ux, uy] = [dx / length, dy / length];
  canvas.moveTo(x - 5.5 * ux - 3.2 * uy, y - 5.5 * uy + 3.2 * ux);
  canvas.lineTo(x, y);
  canvas.lineTo(x - 5.5 * ux + 3.2 * uy, y - 5.5 * uy - 3.2 * ux);
}

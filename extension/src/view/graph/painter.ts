/** Draws a picture on a canvas, with as much detail as the scale lets one read. */

import type { Layout } from "./layout";
import type { Palette } from "./palette";
import { LIT, type Picture } from "./picture";
import type { Shown } from "./scene";
import type { Viewport } from "./viewport";

/** From which scale on something is drawn. */
const BOTH_LINES = 0.6;
const TITLES = 0.26;
const CURVES = 0.12;
const HEADS = 0.3;
const STRIPES = 0.2;
/** Below this, boxes and edges may be smaller than the screen's dots. */
const CROWDED = 0.03;
const DOTS = 65_536;
/** Below this, boxes are small enough for the names of their groups to be drawn too. */
const PLACES = 0.5;

const TITLE = 11.5;
const UNDER = 10;
const STUB = 12;
const PLACE_PX = 11;
const LEAST_PLACE = 3;
const CUT_HEIGHT = 18;
const BESIDE = 76;

export class Painter {
  private readonly context: CanvasRenderingContext2D;

  constructor(private readonly canvas: HTMLCanvasElement) {
    // no alpha: what is drawn covers all
    this.context = canvas.getContext("2d", { alpha: false }) as CanvasRenderingContext2D;
  }

  paint(picture: Picture, viewport: Viewport, palette: Palette): void {
    const { context: c } = this;
    const dots = this.fitCanvas(viewport);
    const { x, y, scale } = viewport.view;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.fillStyle = palette.bg;
    c.fillRect(0, 0, this.canvas.width, this.canvas.height);
    const k = scale * dots;
    c.setTransform(k, 0, 0, k, this.canvas.width / 2 - x * k, this.canvas.height / 2 - y * k);
    const { top, bottom, left, right } = viewport.window();
    const near = picture.index.between(top, bottom);
    const { layout, scene } = picture;
    const boxes = near.boxes.filter((i) => {
      const half = scene.shown[i].width / 2;
      return layout.x[i] + half >= left && layout.x[i] - half <= right;
    });
    new Frame(c, picture, palette, scale).draw(boxes, near.edges);
    c.setTransform(dots, 0, 0, dots, 0, 0);
    if (scale < PLACES) drawPlaces(c, picture, viewport, palette);
    if (picture.crossing) drawCut(c, picture, viewport, palette, picture.crossing.text);
  }

  /** The canvas has the screen's own dots. */
  private fitCanvas({ width, height }: Viewport): number {
    const dots = devicePixelRatio || 1;
    const [w, h] = [Math.max(1, Math.round(width * dots)), Math.max(1, Math.round(height * dots))];
    if (this.canvas.width !== w || this.canvas.height !== h) {
      this.canvas.width = w;
      this.canvas.height = h;
    }
    return dots;
  }
}

/** One drawing of a picture at one scale. */
class Frame {
  constructor(
    private readonly c: CanvasRenderingContext2D,
    private readonly picture: Picture,
    private readonly palette: Palette,
    private readonly scale: number,
  ) {}

  draw(boxes: number[], edges: number[]): void {
    this.drawEdges(edges);
    this.drawStubs(boxes);
    this.drawLitEdges();
    this.drawBoxes(boxes);
    if (this.scale >= STRIPES) this.drawStripes(boxes);
    if (this.scale >= BOTH_LINES) this.drawTexts(boxes);
    else if (this.scale >= TITLES) this.drawTitles(boxes);
    if (this.scale >= TITLES) this.drawNotes(boxes);
  }

  /** The bytes of what is saved, on a label at the box's corner. */
  private drawNotes(boxes: number[]): void {
    const { c, picture, palette } = this;
    const { layout, scene, crossing } = picture;
    if (!crossing?.notes.size) return;
    const size = Math.min(16, Math.max(9.5, 9 / this.scale));
    c.font = `600 ${size}px ${palette.sans}`;
    c.textAlign = "center";
    c.textBaseline = "middle";
    for (const i of boxes) {
      const note = crossing.notes.get(i);
      if (note === undefined) continue;
      const [x, y] = [layout.x[i] + scene.shown[i].width / 2, layout.y[i] - scene.shown[i].height / 2 - size / 2];
      const width = c.measureText(note).width + 8;
      c.fillStyle = palette.cut;
      c.beginPath();
      c.roundRect(x - width + 6, y - size / 2 - 2, width, size + 4, 3);
      c.fill();
      c.fillStyle = palette.bg;
      c.fillText(note, x - width / 2 + 6, y + 0.5);
    }
  }

  private drawEdges(edges: number[]): void {
    const { c, picture, palette } = this;
    const { scene } = picture;
    const cuts = picture.crossing?.cuts;
    c.lineWidth = Math.max(1, 0.6 / this.scale);
    c.globalAlpha = picture.found || picture.lit.size ? 0.45 : 0.75;
    this.stroke(
      edges.filter((i) => !cuts?.[i] && !scene.bridge[i]),
      palette.soft,
    );
    const bridges = edges.filter((i) => scene.bridge[i]);
    if (bridges.length) {
      c.setLineDash([4, 4]);
      this.stroke(bridges, palette.soft);
      c.setLineDash([]);
    }
    c.globalAlpha = 1;
    const cut = edges.filter((i) => cuts?.[i]);
    if (!cut.length) return;
    c.lineWidth = Math.max(2, 1 / this.scale);
    c.setLineDash([6, 3]);
    this.stroke(cut, palette.cut);
    c.setLineDash([]);
  }

  private stroke(edges: number[], colour: string): void {
    const { c } = this;
    const { edges: points } = this.picture.layout;
    c.strokeStyle = colour;
    c.beginPath();
    // what is shorter than two dots lies under its boxes
    const least = this.scale < CROWDED ? 2 / this.scale : 0;
    if (this.scale < CURVES) for (const i of edges) line(c, points[i], least);
    else for (const i of edges) curve(c, points[i]);
    c.stroke();
    if (this.scale < HEADS) return;
    const dash = c.getLineDash();
    c.setLineDash([]);
    c.beginPath();
    for (const i of edges) head(c, points[i]);
    c.stroke();
    c.setLineDash(dash);
  }

  /** Of an edge that is too long to follow, its two ends. */
  private drawStubs(boxes: number[]): void {
    if (this.scale < TITLES) return;
    const { c, picture, palette } = this;
    const { scene, layout } = picture;
    c.strokeStyle = palette.soft;
    c.lineWidth = 1;
    c.setLineDash([2, 2]);
    c.beginPath();
    for (const i of boxes) {
      const { height } = scene.shown[i];
      const [x, y] = [layout.x[i], layout.y[i]];
      if (picture.longTo(i)) {
        c.moveTo(x - 6, y - height / 2);
        c.lineTo(x - 6 - STUB / 2, y - height / 2 - STUB);
      }
      if (picture.longFrom(i)) {
        c.moveTo(x + 6, y + height / 2);
        c.lineTo(x + 6 + STUB / 2, y + height / 2 + STUB);
      }
    }
    c.stroke();
    c.setLineDash([]);
  }

  /** The edges of what is pointed at or pinned, long ones too. */
  private drawLitEdges(): void {
    const { c, picture, palette } = this;
    const marked = [...picture.lit].filter(([, bits]) => bits & (LIT.pinned | LIT.hovered)).map(([box]) => box);
    if (picture.current >= 0) marked.push(picture.current);
    if (!marked.length || marked.length > MOST_MARKED) return;
    const edges = [...new Set(marked.flatMap((box) => picture.edgesOf(box)))];
    c.lineWidth = Math.max(1.5, 1 / this.scale);
    this.stroke(edges, palette.accent);
  }

  private drawBoxes(boxes: number[]): void {
    const { picture, palette } = this;
    const { scene, found, lit, tint } = picture;
    const colours = tint?.colours(palette);
    const plain = new Map<string, { look: [string, string]; boxes: number[] }>();
    const special: number[] = [];
    for (const i of boxes) {
      if (lit.has(i) || i === picture.current || found?.has(i)) {
        special.push(i);
        continue;
      }
      const kind = tint ? String(tint.of[i]) : scene.shown[i].role;
      const own = plain.get(kind);
      if (own) own.boxes.push(i);
      else {
        const look = colours?.[tint?.of[i] ?? 0] ?? palette.roles.get(kind) ?? ["", ""];
        plain.set(kind, { look, boxes: [i] });
      }
    }
    this.c.globalAlpha = found ? 0.35 : 1;
    for (const { look, boxes: own } of plain.values()) this.fill(own, look[0], look[1], 1);
    this.c.globalAlpha = 1;
    for (const i of special) {
      const look = colours?.[tint?.of[i] ?? 0] ?? palette.roles.get(scene.shown[i].role) ?? ["", ""];
      const [fill, frame, width] = this.litLook(i, look);
      this.fill([i], fill, frame, width);
    }
  }

  private litLook(i: number, [fill, frame]: [string, string]): [fill: string, frame: string, width: number] {
    const { palette, picture } = this;
    const bits = picture.lit.get(i) ?? 0;
    const inside =
      bits & (LIT.hovered | LIT["hover-linked"])
        ? palette.hover
        : bits & (LIT.pinned | LIT["pin-linked"])
          ? palette.pin
          : bits & LIT.stepped
            ? palette.step
            : fill;
    if (i === picture.current || bits & (LIT.pinned | LIT.hovered)) return [inside, palette.accent, 2];
    if (picture.found?.has(i)) return [inside, palette.accent, 1.5];
    return [inside, frame, 1];
  }

  private fill(boxes: number[], fill: string, frame: string, width: number): void {
    const { c, scale } = this;
    const { layout, scene } = this.picture;
    const round = scale >= TITLES;
    // from afar a box keeps a dot's height, or nothing would be seen
    const least = 1 / scale;
    c.fillStyle = scale < CURVES ? frame : fill;
    c.beginPath();
    for (const i of scale < CROWDED ? oneForEachDot(boxes, layout, scale) : boxes) {
      const w = scene.shown[i].width;
      const h = Math.max(least, scene.shown[i].height);
      if (round) c.roundRect(layout.x[i] - w / 2, layout.y[i] - h / 2, w, h, 4);
      else c.rect(layout.x[i] - w / 2, layout.y[i] - h / 2, w, h);
    }
    c.fill();
    if (scale < CURVES && width === 1) return;
    c.strokeStyle = frame;
    c.lineWidth = Math.max(width, width > 1 ? width / scale / 1.5 : 0);
    c.stroke();
    if (scale >= STRIPES) for (const i of boxes) if (scene.shown[i].group !== null) this.stack(i, frame);
  }

  /** A collapsed group looks like a stack of boxes. */
  private stack(i: number, frame: string): void {
    const { c } = this;
    const { layout, scene } = this.picture;
    const { width, height } = scene.shown[i];
    const [right, bottom] = [layout.x[i] + width / 2, layout.y[i] + height / 2];
    c.strokeStyle = frame;
    c.lineWidth = 1;
    c.beginPath();
    // the knob that expands it
    c.moveTo(right - width + 5, layout.y[i]);
    c.lineTo(right - width + 11, layout.y[i]);
    c.moveTo(right - width + 8, layout.y[i] - 3);
    c.lineTo(right - width + 8, layout.y[i] + 3);
    for (const step of [3, 6]) {
      c.moveTo(right + step, bottom - height + step + 3);
      c.lineTo(right + step, bottom + step);
      c.lineTo(right - width + step + 3, bottom + step);
    }
    c.stroke();
  }

  private drawStripes(boxes: number[]): void {
    const { c, picture, palette } = this;
    const { layout, scene, stripes } = picture;
    palette.lines.forEach((colour, line) => {
      c.fillStyle = colour;
      for (const i of boxes) {
        if (stripes[i] !== line) continue;
        const { width, height } = scene.shown[i];
        c.fillRect(layout.x[i] - width / 2, layout.y[i] - height / 2 + 4, 3, height - 8);
      }
    });
  }

  private drawTexts(boxes: number[]): void {
    const { c, picture, palette } = this;
    const { layout, scene, tint } = picture;
    const dim = (i: number) => (picture.found && !picture.found.has(i) ? 0.5 : 1);
    c.textAlign = "center";
    c.textBaseline = "alphabetic";
    c.font = `600 ${TITLE}px ${palette.mono}`;
    c.fillStyle = palette.text;
    const under = (i: number) => tint?.text[i] ?? scene.shown[i].under;
    for (const i of boxes) {
      c.globalAlpha = dim(i);
      c.fillText(scene.shown[i].title, layout.x[i], layout.y[i] + (under(i) ? -3 : 4));
    }
    c.font = `${UNDER}px ${palette.mono}`;
    c.fillStyle = palette.soft;
    for (const i of boxes) {
      c.globalAlpha = dim(i);
      if (under(i)) c.fillText(under(i), layout.x[i], layout.y[i] + 11, scene.shown[i].width - 8);
    }
    c.globalAlpha = 1;
  }

  /** The titles alone, as large as their boxes let them be. */
  private drawTitles(boxes: number[]): void {
    const { c, picture, palette } = this;
    const { layout, scene } = picture;
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.fillStyle = palette.text;
    for (const i of boxes) {
      c.globalAlpha = picture.found && !picture.found.has(i) ? 0.5 : 1;
      c.font = `600 ${titleSize(scene.shown[i], this.scale)}px ${palette.mono}`;
      c.fillText(scene.shown[i].title, layout.x[i], layout.y[i] + 1);
    }
    c.globalAlpha = 1;
  }
}

/** Pointing at a large group marks it, not its hundreds of edges. */
const MOST_MARKED = 300;

function titleSize({ title, width }: Shown, scale: number): number {
  return Math.round(Math.min(11 / scale, 30, (width - 12) / (0.62 * Math.max(1, title.length))));
}

/** Where many boxes fall on one dot of the screen, the first of them. */
function oneForEachDot(boxes: number[], { x, y }: Layout, scale: number): number[] {
  const seen = new Set<number>();
  return boxes.filter((i) => {
    const dot = Math.round(x[i] * scale) * DOTS + Math.round(y[i] * scale);
    if (seen.has(dot)) return false;
    seen.add(dot);
    return true;
  });
}

function curve(c: CanvasRenderingContext2D, p: Float32Array): void {
  if (!p.length) return;
  c.moveTo(p[0], p[1]);
  for (let i = 2; i + 5 < p.length; i += 6) c.bezierCurveTo(p[i], p[i + 1], p[i + 2], p[i + 3], p[i + 4], p[i + 5]);
}

function line(c: CanvasRenderingContext2D, p: Float32Array, least: number): void {
  const n = p.length;
  if (!n || Math.abs(p[n - 1] - p[1]) + Math.abs(p[n - 2] - p[0]) < least) return;
  c.moveTo(p[0], p[1]);
  for (let i = 6; i < p.length; i += 6) c.lineTo(p[i], p[i + 1]);
}

/** An arrow's head, along the last of the way. */
function head(c: CanvasRenderingContext2D, p: Float32Array): void {
  const n = p.length;
  if (n < 4) return;
  const [x, y] = [p[n - 2], p[n - 1]];
  const [dx, dy] = [x - p[n - 4], y - p[n - 3]];
  const length = Math.hypot(dx, dy) || 1;
  const [ux, uy] = [dx / length, dy / length];
  c.moveTo(x - 5.5 * ux - 3.2 * uy, y - 5.5 * uy + 3.2 * ux);
  c.lineTo(x, y);
  c.lineTo(x - 5.5 * ux + 3.2 * uy, y - 5.5 * uy - 3.2 * ux);
}

/** What the cut amounts to; between facing pages, the line that it crosses. */
function drawCut(
  c: CanvasRenderingContext2D,
  { layout }: Picture,
  viewport: Viewport,
  palette: Palette,
  text: string,
): void {
  c.font = `600 ${PLACE_PX}px ${palette.sans}`;
  c.textBaseline = "middle";
  const x = layout.gutter === undefined ? null : (layout.gutter - viewport.window().left) * viewport.view.scale;
  if (x !== null) {
    c.strokeStyle = palette.cut;
    c.lineWidth = 1;
    c.setLineDash([2, 4]);
    c.beginPath();
    c.moveTo(x, CUT_HEIGHT);
    c.lineTo(x, viewport.height);
    c.stroke();
    c.setLineDash([]);
  }
  const width = c.measureText(text).width + 12;
  const room = width / 2 + BESIDE;
  const middle = x === null ? 6 + width / 2 : Math.min(viewport.width - room, Math.max(room, x));
  c.fillStyle = palette.bg;
  c.globalAlpha = 0.9;
  c.fillRect(middle - width / 2, 2, width, CUT_HEIGHT);
  c.globalAlpha = 1;
  c.fillStyle = palette.cut;
  c.textAlign = "center";
  c.fillText(text, middle, 2 + CUT_HEIGHT / 2);
  if (x === null) return;
  c.fillStyle = palette.soft;
  c.textAlign = "right";
  c.fillText("forward ↓", middle - width / 2 - 8, 2 + CUT_HEIGHT / 2);
  c.textAlign = "left";
  c.fillText("↑ backward", middle + width / 2 + 8, 2 + CUT_HEIGHT / 2);
}

/** The names of groups beside their stretch of the graph, the outermost first, as many as there is room for. */
function drawPlaces(c: CanvasRenderingContext2D, picture: Picture, viewport: Viewport, palette: Palette): void {
  const { scale } = viewport.view;
  const window = viewport.window();
  const taken: [number, number][] = [];
  c.font = `${PLACE_PX}px ${palette.sans}`;
  c.textAlign = "right";
  c.textBaseline = "middle";
  for (const place of picture.places) {
    const top = (Math.max(place.top, window.top) - window.top) * scale;
    const bottom = (Math.min(place.bottom, window.bottom) - window.top) * scale;
    if (bottom - top < LEAST_PLACE) continue;
    const y = (top + bottom) / 2;
    if (taken.some(([a, b]) => y + PLACE_PX > a && y - PLACE_PX < b)) continue;
    taken.push([y - PLACE_PX, y + PLACE_PX]);
    drawPlace(c, place.title, Math.max(0, (place.left - window.left) * scale), y, [top, bottom], palette);
  }
}

function drawPlace(
  c: CanvasRenderingContext2D,
  title: string,
  left: number,
  y: number,
  [top, bottom]: [number, number],
  palette: Palette,
): void {
  const width = c.measureText(title).width;
  const x = Math.max(left - 10, width + 12);
  c.strokeStyle = palette.soft;
  c.lineWidth = 1;
  c.beginPath();
  c.moveTo(x + 6, top + 1);
  c.lineTo(x + 3, top + 1);
  c.lineTo(x + 3, bottom - 1);
  c.lineTo(x + 6, bottom - 1);
  c.stroke();
  c.fillStyle = palette.bg;
  c.globalAlpha = 0.85;
  c.fillRect(x - width - 4, y - PLACE_PX / 2 - 3, width + 6, PLACE_PX + 6);
  c.globalAlpha = 1;
  c.fillStyle = palette.soft;
  c.fillText(title, x, y);
}

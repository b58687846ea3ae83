/** Where the nodes and edges of a graph go: Graphviz's `dot`, in a worker, loaded when first needed. */

import workerSource from "worker:./layout_worker.ts";

export interface Box {
  width: number;
  height: number;
}

export interface Layout extends Box {
  /** Middle of each node. */
  nodes: { x: number; y: number }[];
  /** Control points of each edge: a start, then three for each cubic curve. */
  edges: [number, number][][];
}

/** Longer than this and a person would rather read the text. */
const PATIENCE_MS = 8000;
const INCH = 72;

let worker: Worker | null = null;
let requests = 0;

/** Lay out boxes joined by `edges`, pairs of indices of boxes. */
export async function layOut(boxes: Box[], edges: [number, number][]): Promise<Layout> {
  return readPlain(await runDot(dotText(boxes, edges)), boxes.length);
}

/** Only sizes and indices go to Graphviz, no text of the record's. */
function dotText(boxes: Box[], edges: [number, number][]): string {
  // without the limits, edges as long as the graph (saved values) keep dot busy for minutes
  const knobs = boxes.length > 150 ? "nslimit=2 nslimit1=2 mclimit=0.5" : "";
  const inches = (points: number) => (points / INCH).toFixed(3);
  return [
    `digraph { graph [${knobs} ranksep=0.32 nodesep=0.22] node [shape=box fixedsize=true label=""] edge [arrowhead=none]`,
    ...boxes.map((b, i) => `${i} [width=${inches(b.width)} height=${inches(b.height)}]`),
    ...edges.map(([from, to]) => `${from}->${to}`),
    "}",
  ].join("\n");
}

function runDot(dot: string): Promise<string> {
  const running = worker ?? startWorker();
  worker = running;
  const id = ++requests;
  return new Promise((resolve, reject) => {
    const stop = (error: Error) => {
      running.terminate();
      if (worker === running) worker = null;
      finish(() => reject(error));
    };
    const answered = (event: MessageEvent) => {
      if (event.data.id !== id) return;
      const { plain, error } = event.data;
      finish(() => (error ? reject(new Error(error)) : resolve(plain)));
    };
    const failed = () => stop(new Error("this page does not let Graphviz run"));
    const timer = setTimeout(() => stop(new Error("Graphviz took too long")), PATIENCE_MS);
    const finish = (then: () => void) => {
      clearTimeout(timer);
      running.removeEventListener("message", answered);
      running.removeEventListener("error", failed);
      then();
    };
    running.addEventListener("message", answered);
    running.addEventListener("error", failed);
    running.postMessage({ id, dot });
  });
}

function startWorker(): Worker {
  const url = URL.createObjectURL(new Blob([workerSource], { type: "text/javascript" }));
  return new Worker(url);
}

/** Graphviz's "plain" format: https://graphviz.org/docs/outputs/plain/; y grows upwards there. */
function readPlain(plain: string, count: number): Layout {
  const layout: Layout = { width: 0, height: 0, nodes: new Array(count), edges: [] };
  for (const line of plain.split("\n")) {
    const [kind, ...words] = line.split(" ");
    const numbers = words.map(Number);
    const point = (i: number): [number, number] => [numbers[i] * INCH, layout.height - numbers[i + 1] * INCH];
    if (kind === "graph") {
      layout.width = numbers[1] * INCH;
      layout.height = numbers[2] * INCH;
    } else if (kind === "node") {
      const [x, y] = point(1);
      layout.nodes[numbers[0]] = { x, y };
    } else if (kind === "edge") {
      layout.edges.push(Array.from({ length: numbers[2] }, (_, i) => point(3 + 2 * i)));
    }
  }
  return layout;
}

/** Layout with Graphviz's `dot` in a web worker, which is started on first use. */

import workerSource from "worker:./dot_worker.ts";
import type { Box, Layout, Pair } from "./layout";

const TIMEOUT_MS = 3000;
const INCH = 72;

let worker: Worker | null = null;
let requests = 0;

/** Lays out boxes with edges. Rejects if the worker cannot run or takes too long. */
export async function runDot(boxes: Box[], edges: Pair[]): Promise<Layout> {
  return readPlain(await request(dotText(boxes, edges)), boxes.length, edges);
}

/** Returns the graph in the DOT language: only sizes and indices, no text of the record. */
function dotText(boxes: Box[], edges: Pair[]): string {
  // without these limits, edges that span the whole graph (saved values) take dot minutes
  const limits = boxes.length > 150 ? "nslimit=2 nslimit1=2 mclimit=0.5" : "";
  const inches = (points: number) => (points / INCH).toFixed(3);
  return [
    `digraph { graph [${limits} ranksep=0.32 nodesep=0.22] node [shape=box fixedsize=true label=""] edge [arrowhead=none]`,
    ...boxes.map((b, i) => `${i} [width=${inches(b.width)} height=${inches(b.height)}]`),
    ...clusters(boxes),
    ...edges.map(([from, to]) => `${from}->${to}`),
    "}",
  ].join("\n");
}

/** With more groups, dot takes too long. */
const MAX_CLUSTERS = 40;

interface Cluster {
  boxes: number[];
  inside: Map<string, Cluster>;
}

/** Returns the groups of boxes as clusters of dot, one inside another; their names are numbers. */
function clusters(boxes: Box[]): string[] {
  const root: Cluster = { boxes: [], inside: new Map() };
  let count = 0;
  boxes.forEach(({ within }, i) => {
    let at = root;
    for (const name of within ?? []) {
      let next = at.inside.get(name);
      if (!next) {
        next = { boxes: [], inside: new Map() };
        at.inside.set(name, next);
        count++;
      }
      at = next;
    }
    at.boxes.push(i);
  });
  if (count > MAX_CLUSTERS) return [];
  let number = 0;
  const text = (cluster: Cluster): string =>
    `subgraph cluster_${number++} { margin=12; ${cluster.boxes.join("; ")}; ${[...cluster.inside.values()].map(text).join(" ")} }`;
  return [...root.inside.values()].map(text);
}

function request(dot: string): Promise<string> {
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
    const failed = () => stop(new Error("this page does not allow Graphviz to run"));
    const timer = setTimeout(() => stop(new Error("Graphviz took too long")), TIMEOUT_MS);
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

/** Reads Graphviz's "plain" format, in which y increases upwards: https://graphviz.org/docs/outputs/plain/. */
function readPlain(plain: string, count: number, edges: Pair[]): Layout {
  const found = new Map<string, Float32Array[]>();
  const layout: Layout = {
    width: 0,
    height: 0,
    x: new Float64Array(count),
    y: new Float64Array(count),
    edges: [],
    isLong: new Uint8Array(edges.length),
  };
  for (const line of plain.split("\n")) {
    const [kind, ...words] = line.split(" ");
    const numbers = words.map(Number);
    const down = (y: number) => layout.height - y * INCH;
    if (kind === "graph") {
      layout.width = numbers[1] * INCH;
      layout.height = numbers[2] * INCH;
    } else if (kind === "node") {
      layout.x[numbers[0]] = numbers[1] * INCH;
      layout.y[numbers[0]] = down(numbers[2]);
    } else if (kind === "edge") {
      const points = numbers.slice(3, 3 + 2 * numbers[2]).map((value, i) => (i % 2 ? down(value) : value * INCH));
      const pair = `${numbers[0]},${numbers[1]}`;
      found.set(pair, [...(found.get(pair) ?? []), Float32Array.from(points)]);
    }
  }
  // Graphviz writes edges in another order
  layout.edges = edges.map(([from, to]) => found.get(`${from},${to}`)?.shift() ?? new Float32Array());
  return layout;
}

/** Runs in a worker: Graphviz lays out a graph given as DOT and answers in its "plain" format. */

import { Graphviz } from "@hpcc-js/wasm-graphviz";

const graphviz = Graphviz.load();

self.onmessage = async (event: MessageEvent<{ id: number; dot: string }>) => {
  const { id, dot } = event.data;
  try {
    self.postMessage({ id, plain: (await graphviz).layout(dot, "plain", "dot") });
  } catch (error) {
    self.postMessage({ id, error: String(error) });
  }
};

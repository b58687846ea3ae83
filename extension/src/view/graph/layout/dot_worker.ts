/** The worker: Graphviz lays out a graph in the DOT language and replies in its "plain" format. */

import { instance } from "@viz-js/viz";

const graphviz = instance();

self.onmessage = async (event: MessageEvent<{ id: number; dot: string }>) => {
  const { id, dot } = event.data;
  try {
    self.postMessage({ id, plain: (await graphviz).renderString(dot, { format: "plain", engine: "dot" }) });
  } catch (error) {
    self.postMessage({ id, error: String(error) });
  }
};

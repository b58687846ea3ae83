/** What a drawing is of: one graph of the record, or the forward and backward as facing pages. */

import type { Artifact, Compile, Graph } from "../record";
import type { State } from "../state";
import { Flow, pairsOf } from "./flow";
import { rolesOf } from "./labels";
import { type Layout, layOut } from "./layout";
import type { Scene } from "./scene";

export interface Subject {
  name: string;
  flow: Flow;
  /** Each node's role, "" for none. */
  roles: string[];
  compile: Compile | null;
  layOut(scene: Scene): Promise<Layout>;
}

export function oneGraph(artifact: Artifact, graph: Graph, state: State): Subject {
  const items = graph.nodes.map((n) => `${artifact.id}#${n.key}`);
  return {
    name: artifact.name,
    flow: new Flow(graph.nodes, items, pairsOf(graph)),
    roles: rolesOf(artifact, graph, state),
    compile: state.compile,
    layOut: (scene) => layOut(scene.shown, scene.edges),
  };
}

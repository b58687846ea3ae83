import assert from "node:assert/strict";
import { test } from "node:test";
import type { Layout } from "../layout/layout";
import type { Scene, SceneBox } from "../scene/scene";
import { Picture } from "./picture";

function box(within: string[]): SceneBox {
  return { nodes: [0], group: null, within, title: "", subtitle: "", role: "", width: 20, height: 10 };
}

/** The titles of the frames around boxes at these places. */
function frames(boxes: SceneBox[], places: [x: number, y: number][]): string[] {
  const scene: Scene = { boxes, edges: [], isBridge: new Uint8Array(), boxOf: new Int32Array() };
  const layout: Layout = {
    width: 200,
    height: 200,
    x: Float64Array.from(places, ([x]) => x),
    y: Float64Array.from(places, ([, y]) => y),
    edges: [],
    isLong: new Uint8Array(),
  };
  return new Picture(scene, layout, [], () => null).groupFrames.map(({ title }) => title);
}

test("an expanded group has a frame if no other box is inside it", () => {
  const boxes = [box(["layers", "layers.0"]), box(["layers", "layers.0"]), box(["layers"]), box([])];
  const apart: [number, number][] = [
    [50, 20],
    [50, 60],
    [50, 100],
    [50, 150],
  ];
  assert.deepEqual(frames(boxes, apart), ["layers", "layers.0"]);
  assert.deepEqual(frames(boxes, apart.with(3, [50, 80])), ["layers.0"]);
  assert.deepEqual(frames(boxes, apart.with(2, [50, 40])), ["layers"]);
});

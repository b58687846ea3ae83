import assert from "node:assert/strict";
import { test } from "node:test";
import type { Artifact } from "../record/record";
import { compileOf, recordOf } from "../record/testing";
import { compareCompiles } from "./compare";
import { Links } from "./links";

function captured(id: string, rows: number | string): Artifact {
  const node = { key: "cos", op: "call_function", target: "torch.cos", device: null, bytes: null, module: null };
  const graph = { nodes: [{ ...node, dtype: "float32", shape: [rows, 2], role: null, place: "" }], edges: [] };
  return { id: `${id}:captured`, pane: "captured", name: "captured", language: "python", text: "", spans: [], graph };
}

const guard = {
  key: "g0",
  kind: "",
  source: "x",
  expected: "",
  cost_ns: null,
  dropped: false,
  sizes: null,
  name: "",
  meaning: "",
  caller: null,
};
const first = compileOf("0/0", [["0/0:captured#cos", ["src:0#10"]]]);
const again = compileOf("0/1", [["0/1:captured#cos", ["src:0#10"]]]);
first.artifacts.push(captured("0/0", 3));
again.artifacts.push(captured("0/1", "s0"));
for (const compile of [first, again]) compile.guards.push({ ...guard, code: "type(x) is Tensor", line: "src:0#11" });
again.guards.push({ ...guard, code: "x.size()[0] > 1", line: "src:0#10" });
const links = new Links(recordOf(["10", "11"], [first, again]));

test("differences between two compiles by line", () => {
  const { lines, before, after, totals } = compareCompiles(first, again, links);
  assert.deepEqual([before, after], ["0/0", "0/1"]);
  assert.deepEqual(
    lines.map((each) => [each.aspect, each.line, each.state, each.before, each.after]),
    [
      ["guard", 11, "same", ["type(x) is Tensor"], ["type(x) is Tensor"]],
      ["captured", 10, "changed", ["torch.cos f32[3, 2]"], ["torch.cos f32[s0, 2]"]],
      ["guard", 10, "added", [], ["x.size()[0] > 1"]],
    ],
  );
  assert.deepEqual(
    totals.find(({ name }) => name === "guards"),
    { name: "guards", before: 1, after: 2 },
  );
});

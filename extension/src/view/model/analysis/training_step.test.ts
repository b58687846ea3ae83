import assert from "node:assert/strict";
import { test } from "node:test";
import type { Artifact, Compile, Node } from "../record/record";
import { compileOf, node, recordOf } from "../record/testing";
import { Links } from "./links";
import { trainingStep } from "./training_step";

type Pair = [string, string];

function graph(pane: "captured" | "forward", nodes: Node[], edges: Pair[]): Artifact {
  const spans = nodes.map(({ key }, i) => ({ key, first: i + 1, last: i + 1 }));
  const text = nodes.map(({ key }) => key).join("\n");
  return { id: `0/0:${pane}`, pane, name: pane, language: "python", text, spans, graph: { nodes, edges } };
}

/** `y = x * w; (g,) = grad(y.sum(), w); m.mul_(0.9); w.sub_(g * lr)`, and a number that only the caller uses. */
function wholeStep(): Compile {
  const input = (key: string, role: string | null = null) => node(key, { op: "placeholder", role, place: key });
  const captured = graph(
    "captured",
    [
      ...[
        input("x"),
        input("w", "parameter"),
        input("m"),
        node("mul"),
        node("grad", { target: "torch.autograd.grad" }),
      ],
      node("g", { role: "gradient", place: "w.grad" }),
      ...[node("mul_"), node("scaled"), node("sub_"), node("shown"), node("output", { op: "output" })],
    ],
    [
      ...([
        ["x", "mul"],
        ["w", "mul"],
        ["mul", "grad"],
        ["w", "grad"],
        ["grad", "g"],
        ["m", "mul_"],
      ] as Pair[]),
      ...([
        ["g", "scaled"],
        ["w", "sub_"],
        ["scaled", "sub_"],
        ["mul", "shown"],
        ["shown", "output"],
      ] as Pair[]),
    ],
  );
  const traced = graph(
    "forward",
    [node("mul"), node("mul_b"), node("copied"), node("scaled"), node("sub", { role: "mutation" })],
    [
      ["mul_b", "copied"],
      ["copied", "scaled"],
    ],
  );
  const made = (key: string, rule: string, ...from: string[]) => ({
    made: `0/0:forward#${key}`,
    sources: from.map((each) => `0/0:captured#${each}`),
    rule,
  });
  return {
    ...compileOf("0/0", []),
    artifacts: [captured, traced],
    edges: [
      made("mul", "trace", "mul"),
      made("mul_b", "autograd MulBackward0", "mul", "g"),
      made("copied", "channels_last", "mul"),
      made("scaled", "decompose aten.scaled", "scaled"),
      made("sub", "trace", "sub_"),
    ],
  };
}

test("phases of a whole step, and the gradient and the update of a parameter", () => {
  const compile = wholeStep();
  const step = trainingStep(compile, new Links(recordOf(["10"], [compile])));
  const phases = (pane: string) =>
    Object.fromEntries(
      [...(step?.phases ?? [])]
        .filter(([item]) => item.startsWith(`0/0:${pane}#`))
        .map(([item, p]) => [item.split("#")[1], p]),
    );
  assert.deepEqual(phases("captured"), {
    ...{ mul: "forward", grad: "backward", g: "backward", mul_: "update", scaled: "update", sub_: "update" },
    shown: "forward",
  });
  assert.deepEqual(phases("forward"), {
    ...{ mul: "forward", mul_b: "backward", copied: "backward", scaled: "update", sub: "update" },
  });
  const [{ name, gradients, updates }] = step?.parameters ?? [];
  assert.deepEqual([name, gradients, updates], ["w", ["0/0:forward#mul_b"], ["0/0:forward#sub"]]);
});

test("a compile without a backward is no training step", () => {
  const compile = compileOf("0/0", []);
  assert.equal(trainingStep(compile, new Links(recordOf(["10"], [compile]))), null);
});

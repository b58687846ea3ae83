"""Graph passes of the user: what they change, what is recorded, and what is refused."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F
from torch._inductor.pattern_matcher import Arg, CallFunction, PatternMatcherPass, register_graph_pattern

import compiler_core
from compiler_core import GraphPass
from compiler_core.api.compile import record_of
from compiler_core.errors import StrictError, UsageError
from compiler_core.tools.stock.inductor_passes import stock_passes

aten = torch.ops.aten
BACKENDS = (None, "aot_eager")


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.dropout(torch.relu(x @ w), 0.5).sin().sum()


def without_dropout(gm: fx.GraphModule) -> None:
    for node in gm.graph.find_nodes(op="call_function", target=F.dropout):
        node.replace_all_uses_with(node.args[0])
        gm.graph.erase_node(node)


def relu_to_abs(gm: fx.GraphModule) -> None:
    for node in gm.graph.find_nodes(op="call_function", target=aten.relu.default):
        node.target = aten.abs.default


def sine_to_silu(gm: fx.GraphModule) -> fx.GraphModule:
    def replacement(x: Any) -> Any:
        return aten.mul(aten.sigmoid(x), x)  # the packets: which overload is meant is found from the arguments

    fx.replace_pattern(gm, lambda x: aten.sin.default(x), replacement)
    return gm


def sine_to_two_nodes(gm: fx.GraphModule) -> None:
    fx.replace_pattern(gm, lambda x: torch.sin(x), lambda x: F.silu(x) * 2)


def double_gradients(gm: fx.GraphModule) -> None:
    output = gm.graph.output_node()
    with gm.graph.inserting_before(output):
        doubled = [g and gm.graph.call_function(aten.mul.Tensor, (g, 2.0)) for g in output.args[0]]  # type: ignore
    output.args = (doubled,)


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(4, 4, generator=generator).requires_grad_() for _ in range(2))  # type: ignore


def values(fn: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    x, w = inputs()
    value = fn(x, w)
    value.backward()
    return [value.detach(), *(t.grad for t in (x, w) if t.grad is not None)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("passes", "expected"),
    [
        ([GraphPass(without_dropout)], lambda x, w: torch.relu(x @ w).sin().sum()),
        ([GraphPass(without_dropout), GraphPass(sine_to_silu, "joint")], None),
        ([GraphPass(without_dropout), GraphPass(relu_to_abs, "forward")], None),
        ([GraphPass(without_dropout), GraphPass(double_gradients, "backward")], None),
    ],
    ids=["captured", "joint", "forward", "backward"],
)
def test_results_are_those_of_the_changed_graph(backend: Any, passes: list[GraphPass], expected: Any) -> None:
    compiled = compiler_core.compile(program, backend=backend, passes=passes, strict=True)
    got = values(compiled)
    plain = values(lambda x, w: torch.relu(x @ w).sin().sum())
    at = passes[-1].at
    if at == "captured":
        wanted = values(expected)
    elif at == "joint":  # the forward alone: the derivative of the sine was traced before
        wanted = [F.silu(torch.relu(operator.matmul(*inputs()))).sum().detach(), *plain[1:]]
    elif at == "forward":
        wanted = [operator.matmul(*inputs()).abs().sin().sum().detach(), *got[1:]]
    else:
        wanted = [plain[0], *(2 * gradient for gradient in plain[1:])]
    torch.testing.assert_close(got, wanted)
    names = [a.name for c in record_of(compiled).compiles for a in c.artifacts if a.pane == "passes"]
    assert names == [
        n for p in passes for n in ((f"before.{p.name}",) if p.at == "joint" else ()) + (f"pass.{p.name}",)
    ]


def test_a_graph_without_gradients_has_joint_passes_too() -> None:
    compiled = compiler_core.compile(lambda x: torch.relu(x) + 1, passes=[GraphPass(relu_to_abs, "joint")])
    assert torch.equal(compiled(torch.tensor([-2.0])), torch.tensor([3.0]))


@pytest.mark.parametrize("at", ["joint", "forward"])
def test_results_of_new_nodes_under_autocast(at: Any) -> None:
    """The graph contains the casts of autocast, so its products have the type of their factors."""

    def product(gm: fx.GraphModule) -> None:
        for node in gm.graph.find_nodes(op="call_function", target=aten.mul.Tensor):
            node.target = aten.mm.default

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x * x) + 1

    x = torch.randn(4, 4)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        found = compiler_core.compile(program, passes=[GraphPass(product, at)], strict=True)(x)
    torch.testing.assert_close(found, x @ x + 1)


def test_new_nodes_come_from_those_that_they_replace() -> None:
    compiled = compiler_core.compile(
        lambda x: torch.sin(x) + 1,
        backend="eager",
        passes=[GraphPass(sine_to_two_nodes)],
        strict=True,
    )
    compiled(torch.ones(3))
    (compile_,) = record_of(compiled).compiles
    edges = [edge for edge in compile_.edges if edge.rule == "pass.sine_to_two_nodes"]
    sources = {edge.made.partition("#")[2]: [s.partition("#")[2] for s in edge.sources] for edge in edges}
    assert "def sine_to_two_nodes(" in compile_.find("pass.sine_to_two_nodes").text
    assert sources["silu"] == sources["mul"] == ["sin"]
    assert sources["add"] == ["add"]


@pytest.mark.parametrize("result", [lambda gm: gm, lambda gm: gm.forward, lambda gm: lambda *x: gm(*x)])
def test_the_graph_after_a_backend_of_the_user(result: Any) -> None:
    def dropper(gm: fx.GraphModule, example_inputs: Any) -> Any:
        without_dropout(gm)
        gm.recompile()
        return result(gm)

    compiled = compiler_core.compile(program, backend=dropper)
    x, w = inputs()
    torch.testing.assert_close(compiled(x, w), torch.relu(x @ w).sin().sum())
    (compile_,) = record_of(compiled).compiles
    assert "dropout" in compile_.find("captured").text
    assert "dropout" not in compile_.find("backend.dropper").text
    assert {e.rule for e in compile_.edges if e.made.startswith("0/0:backend.dropper#")} == {"backend.dropper"}


def test_another_constant_is_a_change() -> None:
    """The text does not show constants of many elements."""

    def doubled(gm: fx.GraphModule) -> None:
        for node in gm.graph.find_nodes(op="get_attr"):
            setattr(gm, node.target, getattr(gm, node.target) * 2)

    mask, x = torch.arange(100.0), torch.randn(100)
    compiled = compiler_core.compile(lambda x: x * torch.tensor(mask.tolist()), passes=[GraphPass(doubled, "joint")])
    torch.testing.assert_close(compiled(x), x * mask * 2)


def test_symbolic_sizes() -> None:
    compiled = compiler_core.compile(program, passes=[GraphPass(without_dropout), GraphPass(sine_to_silu, "joint")])
    for rows in (3, 5, 7):
        x, w = torch.randn(rows, 4), torch.randn(4, 4)
        torch.testing.assert_close(compiled(x, w), F.silu(torch.relu(x @ w)).sum())
    assert len(record_of(compiled).compiles) == 2


def returns_nothing(gm: fx.GraphModule) -> None:
    gm.graph.output_node().args = ((),)


def other_shape(gm: fx.GraphModule) -> None:
    fx.replace_pattern(gm, lambda x: x.sum(), lambda x: x.sum(0))


def raises(gm: fx.GraphModule) -> None:
    gm.graph.erase_node(next(iter(gm.graph.nodes)))


def another_input(gm: fx.GraphModule) -> None:
    with gm.graph.inserting_before(next(iter(gm.graph.nodes))):
        gm.graph.placeholder("extra")


def undefined_use(gm: fx.GraphModule) -> None:
    first, output = next(iter(gm.graph.nodes)), gm.graph.output_node()
    with gm.graph.inserting_before(first):
        late = gm.graph.call_function(torch.sin, (next(iter(output.args[0])),))  # type: ignore[arg-type]
    output.args = ((late,),)


def calls_python(gm: fx.GraphModule) -> None:
    fx.replace_pattern(gm, lambda x: aten.sin.default(x), lambda x: torch.tanh(x))


def writes(gm: fx.GraphModule) -> None:
    fx.replace_pattern(gm, lambda x: aten.sin.default(x), lambda x: aten.cos_.default(x))


def cannot_run(gm: fx.GraphModule) -> None:
    fx.replace_pattern(gm, lambda x: torch.relu(x), lambda x: torch.reshape(x, (3, 7)))


@pytest.mark.parametrize(
    ("function", "at", "message"),
    [
        (raises, "captured", "raises: RuntimeError: Tried to erase Node"),
        (returns_nothing, "captured", "the graph must return 1 values; it returns 0 now"),
        (other_shape, "captured", r"output 0 must stay float32\[\] on cpu; it is float32\[4\] on cpu now"),
        (another_input, "captured", "the inputs must stay .*; they are extra, "),
        (undefined_use, "captured", "the graph is not well formed"),
        (cannot_run, "captured", "reshape cannot run: RuntimeError"),
        (lambda gm: gm.graph, "captured", "it returned Graph, not a GraphModule or None"),
        (calls_python, "joint", "tanh calls tanh; in this graph, call operators of torch.ops.aten"),
        (writes, "joint", "cos__default calls aten.cos_.default, which writes to its argument"),
        (raises, "backward", r"Tried to erase Node .*\(line \d+ of the pass: gm\.graph\.erase_node"),
    ],
)
def test_a_pass_that_fails_is_left_out(function: Any, at: Any, message: str) -> None:
    def plain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w).sin().sum()

    compiled = compiler_core.compile(plain, passes=[GraphPass(function, at)])
    with pytest.warns(compiler_core.GraphPassWarning, match=message):
        got = values(compiled)
    torch.testing.assert_close(got, values(plain))
    record = record_of(compiled)
    record.find_problems()
    assert [p.title for p in record.problems] == ["graph pass not applied"]
    assert all(c.outcome == "compiled" for c in record.compiles)
    with pytest.raises(StrictError, match=message), warnings.catch_warnings():
        values(compiler_core.compile(plain, passes=[GraphPass(function, at)], strict=True))


STOCK: list[tuple[Any, Any, Callable[[torch.Tensor], torch.Tensor], float]] = [
    (without_dropout, "captured", torch.sin, 1),
    (sine_to_silu, "joint", F.silu, 1),
    (double_gradients, "backward", torch.sin, 2),
]


@pytest.mark.parametrize(("function", "at", "expected", "factor"), STOCK)
def test_stock(function: Any, at: Any, expected: Any, factor: float) -> None:
    passes = [GraphPass(without_dropout), *([GraphPass(function, at)] if function is not without_dropout else [])]
    torch._dynamo.reset()
    with stock_passes(passes), warnings.catch_warnings():
        warnings.simplefilter("error", compiler_core.GraphPassWarning)
        got = values(torch.compile(program))
    x, w = inputs()
    plain = values(lambda x, w: torch.relu(x @ w).sin().sum())
    torch.testing.assert_close(got, [expected(torch.relu(x @ w)).sum().detach(), *(factor * g for g in plain[1:])])


@pytest.mark.parametrize(("function", "at"), [(raises, "joint"), (returns_nothing, "captured"), (writes, "joint")])
def test_stock_leaves_out_a_pass_that_fails(function: Any, at: Any) -> None:
    def plain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w).sin().sum()

    torch._dynamo.reset()
    idle = GraphPass(lambda gm: None, name="idle")
    failed, changed_nothing = "was not applied", "idle: it changed nothing in any captured graph"
    with (
        pytest.warns(compiler_core.GraphPassWarning, match=failed),
        pytest.warns(compiler_core.GraphPassWarning, match=changed_nothing),
        stock_passes([GraphPass(function, at), idle]),
    ):
        got = values(torch.compile(plain))
    torch.testing.assert_close(got, values(plain))


def test_inductor_s_pattern_matcher_is_a_pass_whose_matches_are_linked() -> None:
    aten = torch.ops.aten
    patterns = PatternMatcherPass(pass_name="of_a_test")

    @register_graph_pattern(
        CallFunction(aten.add.Tensor, CallFunction(aten.mul.Tensor, Arg(), Arg()), Arg()), pass_dict=patterns
    )
    def multiply_add(match: Any, x: Any, y: Any, z: Any) -> None:
        match.replace_by_example(lambda x, y, z: aten.addcmul.default(z, x, y), [x, y, z])

    def plain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * y + x).sin()

    x, y = inputs()[0].detach(), inputs()[0].detach() + 1
    rule = GraphPass(lambda gm: patterns.apply(gm.graph) and None, "joint", "multiply_add")
    compiled = compiler_core.compile(plain, passes=[rule])
    torch.testing.assert_close(compiled(x, y), plain(x, y))
    (compile_,) = record_of(compiled).compiles
    links = {each.made.rpartition("#")[2]: each.sources for each in compile_.edges if "pass.multiply_add#" in each.made}
    (replaced,) = (sources for name, sources in links.items() if name.startswith("addcmul"))
    assert {source.rpartition("#")[2] for source in replaced} == {"mul", "add"}
    torch._dynamo.reset()
    with stock_passes([rule]), compiler_core.record(engine="torch") as record:
        torch.testing.assert_close(torch.compile(plain)(x, y), plain(x, y))
    assert "aten.addcmul.default" in str(record.compiles[0].find("forward.post_grad").graph)


def test_a_pass_that_changes_nothing_is_no_artifact() -> None:
    compiled = compiler_core.compile(program, passes=[GraphPass(lambda gm: None, name="idle")])
    values(compiled)
    (compile_,) = record_of(compiled).compiles
    assert [e.detail for e in compile_.events if e.name == "pass idle"] == ["changed nothing"]
    assert not [a for a in compile_.artifacts if a.pane == "passes"]


def test_wrong_use() -> None:
    with pytest.raises(
        UsageError, match="a graph pass runs at captured, joint, forward, backward, lowering, fusion, not 'loops'"
    ):
        GraphPass(without_dropout, "loops")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a graph pass is a function that takes a GraphModule, not 3"):
        GraphPass(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"letters, digits and _ only: '\.\./name'"):
        GraphPass(without_dropout, name="../name")
    with pytest.raises(UsageError, match="each graph pass needs another name: graph_pass, graph_pass"):
        compiler_core.compile(program, passes=[GraphPass(lambda gm: None), GraphPass(lambda gm: None, "joint")])
    with pytest.raises(UsageError, match="passes must be a sequence of"):
        compiler_core.compile(program, passes=[without_dropout])  # type: ignore[list-item]

"""Where the values of a call first differ: the user's line, the operation and both values, on stock and on ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._functorch.config as functorch_config
import torch.fx as fx

import compiler_core
from compiler_core.errors import UsageError
from compiler_core.tools.reproduce.first_difference import FirstDifference, KeptGraphs, first_difference_of

pytestmark = pytest.mark.usefixtures("fresh_stock")
HERE = Path(__file__)
X = torch.arange(6.0).reshape(2, 3)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.drop = torch.nn.Linear(3, 3), torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.drop(self.linear(x))
        z = torch.tanh(y * 0.5)  # the line
        return (z + 1).relu()


def replacing(target: Any, other: Any) -> Callable[..., Any]:
    """Returns a backend that calls another function in place of one."""

    def backend(gm: fx.GraphModule, examples: Any) -> Any:
        for node in gm.graph.nodes:
            if node.target in (target, getattr(target, "__name__", "")):
                with gm.graph.inserting_after(node):
                    made = gm.graph.call_function(other, node.args)
                node.replace_all_uses_with(made)
                gm.graph.erase_node(node)
        gm.recompile()
        return gm.forward

    return backend


def line(found: FirstDifference | None) -> str:
    assert found is not None
    assert (found.filename, HERE.read_text().splitlines()[found.lineno - 1].strip()) == (str(HERE), found.line)
    return found.line


@pytest.mark.parametrize("engine", ["torch", "core"])
def test_the_operation_that_differs_is_named(engine: Any) -> None:
    found = compiler_core.first_difference(Net(), X, engine=engine, backend=replacing(torch.tanh, torch.sin))
    assert found is not None
    assert line(found) == "z = torch.tanh(y * 0.5)  # the line"
    assert "tanh" in found.operation
    assert float(found.value) == pytest.approx(float(torch.tensor(float(found.expected)).atanh().sin()), rel=1e-3)
    assert f"{found.value} in place of {found.expected} at {found.index}" in str(found)


@pytest.mark.parametrize("engine", ["torch", "core"])
def test_equal_values_have_no_difference(engine: Any) -> None:
    assert compiler_core.first_difference(Net(), X, engine=engine) is None


@pytest.mark.parametrize("engine", ["torch", "core"])
def test_an_operation_with_which_a_backend_raises_is_named(engine: Any) -> None:
    def no_rule(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no rule")

    with pytest.raises(UsageError, match=r"raised ValueError: no rule; the first .*\(.+: z = torch.tanh\(y"):
        compiler_core.first_difference(Net(), X, engine=engine, backend=replacing(torch.tanh, no_rule))


def test_a_wrong_lowering_of_inductor_is_found() -> None:
    from torch._inductor import lowering
    from torch._inductor.lowering import lowerings

    wrong = dict.fromkeys((torch.ops.aten.tanh.default, torch.ops.aten.tanh), lowerings[torch.ops.aten.sin.default])
    before = {target: lowerings[target] for target in wrong if target in lowerings}
    lowering.lowerings.update({target: wrong[target] for target in before})
    try:
        with torch._inductor.config.patch(fx_graph_cache=False), functorch_config.patch(enable_autograd_cache=False):
            found = compiler_core.first_difference(Net(), X)
    finally:
        lowering.lowerings.update(before)
    assert line(found) == "z = torch.tanh(y * 0.5)  # the line"


def test_a_graph_that_reads_a_float_is_looked_at_as_a_whole() -> None:
    """A float that changes from call to call is the item of a tensor in the graph."""
    seen = list[set[str]]()

    def backend(gm: fx.GraphModule, examples: Any) -> Any:
        seen.append({node.name for node in gm.graph.nodes})
        return gm.forward

    def program(x: torch.Tensor, scale: float) -> torch.Tensor:
        return x.sin() * scale

    graphs = KeptGraphs()
    compiled = torch.compile(program, backend=graphs.backend(backend))
    for scale in (2.5, 3.5):
        compiled(X, scale)
    assert first_difference_of(graphs, "torch") is None
    assert [names for names in seen if not {"sin", "mul"} <= names] == []


def test_a_value_that_is_changed_in_place_later_is_not_blamed() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.add_(torch.tanh(x))
        return y

    found = compiler_core.first_difference(program, X, backend=replacing(torch.tanh, torch.sin))
    assert line(found) == "y.add_(torch.tanh(x))"
    assert found is not None
    assert "tanh" in found.operation


def test_a_change_of_an_input_that_a_backend_loses_is_found() -> None:
    def on_copies(gm: fx.GraphModule, _: Any) -> Any:
        return lambda *inputs: gm(*(each.clone() for each in inputs))

    def counted(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        x.add_(1)  # the change
        return y * 2

    found = compiler_core.first_difference(counted, X.clone(), backend=on_copies)
    assert line(found) == "x.add_(1)  # the change"
    assert found is not None
    assert (found.changed_input != "", found.value, found.expected) == (True, "0", "1")


def test_a_fault_that_needs_a_value_that_is_not_returned_is_found() -> None:
    def backend(gm: fx.GraphModule, examples: Any) -> Any:
        (output,) = gm.graph.find_nodes(op="output")
        returned = set(output.all_input_nodes)
        if not any(node.target in (torch.tanh, "tanh") and node not in returned for node in gm.graph.nodes):
            return gm.forward  # all is right
        return replacing(torch.tanh, torch.sin)(gm, examples)

    found = compiler_core.first_difference(Net(), X, backend=backend)
    assert line(found) == "return (z + 1).relu()"
    assert found is not None
    assert "add" in found.operation


def half_gradient(x: torch.Tensor) -> torch.Tensor:
    """A tanh whose gradient is wrong."""
    return torch.tanh(x).detach() + (x - x.detach()) * 0.5


@pytest.mark.parametrize("engine", ["torch", "core"])
def test_the_operation_whose_gradient_differs_is_named(engine: Any) -> None:
    found = compiler_core.first_difference(Net(), X, engine=engine, backend=replacing(torch.tanh, half_gradient))
    assert line(found) == "z = torch.tanh(y * 0.5)  # the line"
    assert found is not None
    assert "tanh" in found.operation
    assert found.gradient_of in found.operation.partition(" = ")[2]
    assert f"the gradient of {found.gradient_of}: {found.value} in place of {found.expected}" in str(found)


def test_the_last_wrong_gradient_is_the_first_of_the_backward() -> None:
    """The gradients before it are wrong, too, since they follow from it."""

    def program(x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x * 2)
        for _ in range(2):
            y = y.sin() * x
        y = torch.tanh(y)  # the last
        return y.exp()

    x = X.clone().requires_grad_()
    found = compiler_core.first_difference(program, x, backend=replacing(torch.tanh, half_gradient))
    assert line(found) == "y = torch.tanh(y)  # the last"


def test_a_wrong_gradient_beside_changes_in_place_is_an_error() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.add_(1)
        return torch.tanh(y)

    x = X.clone().requires_grad_()
    with pytest.raises(UsageError, match="gradients of the graph differ"):
        compiler_core.first_difference(program, x, backend=replacing(torch.tanh, half_gradient))
    assert compiler_core.first_difference(program, x) is None


def spread(x: torch.Tensor) -> torch.Tensor:
    mean = x.mean(0)
    return (x * x).mean(0) - mean * mean  # by which the digits are lost


def noisy(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x, 0.5).tanh()


def test_a_difference_where_the_program_loses_precision_has_the_exact_value() -> None:
    x = torch.linspace(0, 1, 24).reshape(8, 3) + 1000.0
    found = compiler_core.first_difference(spread, x, engine="core")
    assert found is not None
    assert float(found.exact) == pytest.approx(float(x.double().var(0, correction=0)[0]), rel=1e-3)
    assert "so the precision of the program is too low here" in str(found)


@pytest.mark.parametrize("fn", [noisy, torch.tanh])
def test_a_wrong_operation_is_the_compilers(fn: Any) -> None:
    found = compiler_core.first_difference(fn, X, engine="core", backend=replacing(torch.tanh, torch.sin))
    assert found is not None
    assert found.exact == ""

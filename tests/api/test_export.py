"""`export`: one graph with the signature, the parameters and the result of the call."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import compiler_core
from compiler_core.errors import FullGraphError, UsageError
from compiler_core.tools.testing import difference

X = torch.randn(3, 4)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.out = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor, scale: Any = None, *, flag: bool = True) -> dict[str, Any]:
        y = self.out(self.norm(self.up(x)).relu())
        if scale is not None:
            y = y * scale["a"]
        return {"y": y, "flag": flag, "x": x, "bias": self.out.bias}


def test_signature_parameters_and_result() -> None:
    net = Net()
    exported = compiler_core.export(net, X, {"a": torch.tensor(2.0)}, flag=False)
    assert isinstance(exported, torch.fx.GraphModule)
    assert exported.up.weight is net.up.weight  # type: ignore[union-attr]
    assert dict(exported.named_parameters()).keys() == dict(net.named_parameters()).keys()
    x, scale = torch.randn(3, 4), {"a": torch.tensor(3.0)}
    other = copy.deepcopy(net)
    assert difference(other(x, scale, flag=False), exported(x, scale, flag=False), 1e-6) is None
    assert difference(other.norm.state_dict(), net.norm.state_dict(), 1e-6) is None  # training changes the statistics


def test_gradients_reach_the_parameters() -> None:
    net = Net()
    compiler_core.export(net, X)(torch.randn(3, 4))["y"].sum().backward()
    assert net.up.weight.grad is not None


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((torch.randn(5, 4),), {"flag": True}, r"exported for x = float32\[3, 4\] on cpu, not float32\[5, 4\] on cpu"),
        ((X.double(),), {"flag": True}, "not float64"),
        ((X,), {"flag": False}, "exported for flag = True, not False"),
        ((X,), {}, "arguments of the structure"),
    ],
)
def test_other_arguments_are_refused(args: Any, kwargs: Any, message: str) -> None:
    exported = compiler_core.export(Net(), X, flag=True)
    with pytest.raises(ValueError, match=message):
        exported(*args, **kwargs)


def test_functions_and_what_they_read() -> None:
    weight = torch.randn(4)

    def function(*tensors: torch.Tensor, power: int) -> tuple[torch.Tensor, int]:
        return (tensors[0] + tensors[1] * weight) ** power, power

    exported = compiler_core.export(function, X, X + 1, power=2)
    assert difference(function(X * 2, X, power=2), exported(X * 2, X, power=2)) is None
    assert [name for name, _ in exported.named_buffers()] == ["_constant_0"]


class Counts(nn.Module):
    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + self.calls


def test_what_no_graph_does() -> None:
    with pytest.raises(UsageError, match="the call sets calls of the module, which a graph cannot do"):
        compiler_core.export(Counts(), X)
    counts = Counts()
    with pytest.raises(UsageError, match="the call returns a Counts; a graph returns tensors and plain values only"):
        compiler_core.export(lambda x: (x + 1, counts), X)
    with pytest.raises(UsageError, match="no tensor operations"):
        compiler_core.export(lambda x: 3, X)
    with pytest.raises(FullGraphError, match="print"):
        compiler_core.export(lambda x: print(x.sum()), X)


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # PyTorch's own, as it copies a graph's signature
def test_copied_and_loaded() -> None:
    exported = compiler_core.export(Net().eval(), X)
    again = copy.deepcopy(exported)
    again.load_state_dict(exported.state_dict())
    assert difference(exported(X), again(X)) is None

"""Tensors that no kernel of ours is for: without memory, sparse, quantised, nested, of other layouts.

PyTorch's operators run on them, in the graph where fake tensors tell the truth of them, else outside; the rest of the
program still gets kernels.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from compiler_core.tools.testing import check
from tests.cases.torch_version import SINCE_2_13

if torch.get_default_device().type != "cpu":
    pytest.skip("its tensors lie on the CPU and elsewhere, which they say themselves", allow_module_level=True)

X = torch.linspace(-1, 1, 24).reshape(4, 6)
with warnings.catch_warnings():  # these are beta, or deprecated
    warnings.simplefilter("ignore")
    SPARSE, CSR, MKLDNN = X.relu().to_sparse(), X.relu().to_sparse_csr(), X.to_mkldnn()
    QUANTISED = torch.quantize_per_tensor(X, 0.1, 0, torch.quint8)
    NESTED = torch.nested.nested_tensor([X, X[:2]])
INDICES, VALUES = torch.tensor([[0, 1, 1], [2, 0, 2]]), torch.tensor([3.0, 4.0, 5.0])
META = X.to("meta")
LAYER = nn.Linear(6, 3, device="meta")


def quantised(x: torch.Tensor) -> torch.Tensor:
    return torch.quantize_per_tensor(x.sin(), 0.1, 0, torch.quint8)


def coo() -> torch.Tensor:
    return torch.sparse_coo_tensor(INDICES, VALUES, (2, 3))


def copied_to_meta(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    there = torch.empty(4, 6, device="meta")
    there.copy_(x)
    there.add_(1)
    return there[1:].t() * 2, x.cos()


GRAPHS = {
    "meta made": lambda x: torch.empty(3, device="meta") + 1,
    "meta from an input": lambda x: (x.to("meta") * 2, x.sin() * 2),
    "meta's size": lambda x: x.sin() + (x.to("meta").t() @ x.to("meta")).shape[0],
    "meta written": copied_to_meta,
    "meta views": lambda x: (META.t()[1:], META.view(2, 12).sin().sum(0), META.expand(2, 4, 6)),
    "meta module": lambda x: (LAYER(META).relu(), x + 1),
    "meta drawn": lambda x: F.dropout(META, 0.5) + torch.rand(6, device="meta"),
    "sparse made": lambda x: (coo().to_dense() * 2).sin(),
    "sparse result": lambda x: (coo() * 2, x.sin()),
    "sparse product": lambda x: coo() @ x[:3] + 1,
    "csr product": lambda x: (x.relu().to_sparse_csr() @ x.t()).sin(),
    "sparse zeros": lambda x: torch.zeros(4, 6, layout=torch.sparse_coo).to_dense() + x,
    "complex": lambda x: (torch.complex(x.sin(), x.cos()).conj() * 2).abs().sin(),
}
"""What is one graph."""
BREAKS = {
    "sparse given": lambda x: SPARSE.to_dense().sin() + x.sin(),
    "csr given": lambda x: CSR @ x.t() + 1,
    "quantised given": lambda x: QUANTISED.dequantize().sin() + x.sin(),
    "quantised windows": lambda x: QUANTISED[1:].t().dequantize().cos() + x.sin().sum(),
    "quantised made": lambda x: quantised(x).dequantize().cos(),
    "quantised made and taken apart": lambda x: quantised(x)[1:].t().dequantize().cos(),
    "quantised relu": lambda x: F.relu(quantised(x)).int_repr() + 1,
    "quantised empty": lambda x: (torch.empty_like(quantised(x)).shape, x.sin()),
    "nested given": lambda x: (NESTED * 2).to_padded_tensor(0.0).sin() + x.sin(),
    "mkldnn given": lambda x: (MKLDNN * 2).to_dense().cos() + x.sin(),
    "mkldnn made": lambda x: (x.sin().to_mkldnn() * 2).to_dense().cos(),
}
"""What breaks the graph; the record says of which kind the tensor is."""


def mark(name: str) -> Any:
    why = "where PyTorch gives each warning each time, an operation that it runs itself warns twice"
    marks = [pytest.mark.xfail(strict=True, reason=why)] if name == "csr product" else []
    if name in ("sparse made", "sparse zeros"):
        marks.append(pytest.mark.xfail(not SINCE_2_13, strict=True, reason="it runs as plain PyTorch there"))
    return pytest.param(name, marks=marks)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [mark(name) for name in GRAPHS])
def test_in_one_graph(name: str) -> None:
    record = check(GRAPHS[name], backend=None, inputs=lambda: (torch.randn(4, 6),), tolerance=1e-6)
    assert [b for c in record.compiles for b in c.breaks] == []
    assert [f.message for c in record.compiles for f in c.failures] == []
    kernels = [k for c in record.compiles for k in c.kernels]
    assert all(k.device == "cpu" for k in kernels if k.language == "cpp")
    for reason in {k.reason for k in kernels if k.device == "meta"} - {""}:
        assert reason.startswith(("there are no kernels for meta", "its tensors are on several devices"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BREAKS)
def test_outside_of_graphs(name: str) -> None:
    record = check(BREAKS[name], backend=None, inputs=lambda: (torch.randn(4, 6),), tolerance=1e-6)
    assert [f.message for c in record.compiles for f in c.failures] == []
    explanations = [b.explanation for c in record.compiles for b in c.breaks]
    assert any(
        word in text for text in explanations for word in ("tensor of layout", "quantised", "nested", "to_mkldnn")
    )

"""Real architectures, tiny and with random weights: one graph each, outputs and gradients as eager's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.api.compile import record_of
from compiler_core.tools.testing import (
    Comparison,
    Exact,
    Float64Error,
    break_kinds,
    difference,
    graph_count,
    observe_training,
)

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from tests.cases.architectures import FIRST, MODELS  # noqa: E402
from tests.sampling import always, sample  # noqa: E402

NO_RANDOM_BRANCH = tuple(map(int, transformers.__version__.split(".")[:2])) >= (5, 23)
"""Earlier versions branch on a random tensor in the training of Whisper, which is a graph break."""

pytestmark = pytest.mark.filterwarnings("default")  # other people's code


@pytest.fixture(autouse=True)
def _one_thread(settings: None) -> None:
    """Tiny operations are slower on many threads."""
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", sample(FIRST, 6))
def test_inference(name: str) -> None:
    model, arguments = MODELS[name]()
    model.eval()
    compiled = compiler_core.compile(model, backend="eager", strict=True)
    with torch.no_grad():
        want = model(**arguments)
        for _ in range(2):
            check = _value_check(name, lambda: copy.deepcopy(model).double()(**_wide(arguments)))
            assert not Comparison(check).compare("", want, compiled(**arguments))
    _is_one_graph(compiled)


@pytest.mark.parametrize("name", sample(["llama", "bert", "gpt2", "resnet"], 2))
def test_batches_of_any_size(name: str) -> None:
    """The second size is the last one that is compiled."""
    model, arguments = MODELS[name]()
    model.eval()
    compiled = compiler_core.compile(model, backend="eager", strict=True)
    with torch.no_grad():
        for rows in (2, 3, 5, 4):
            batch = {k: v[torch.arange(rows) % len(v)] for k, v in arguments.items()}
            assert not difference(model(**batch), compiled(**batch), 1e-5)
    assert len(record_of(compiled).compiles) == 2


@pytest.mark.parametrize("name", always(FIRST, FIRST[1::4].__contains__))
def test_training(name: str) -> None:
    """Two passes and a step leave what eager's do: gradients, buffers, the optimiser, what dropout draws."""
    model, arguments = MODELS[name]()
    compiled: list[Any] = []

    def wrap(copy: torch.nn.Module) -> Any:
        compiled.append(compiler_core.compile(copy, backend="eager", strict=True))
        return compiled[0]

    want = observe_training(model, arguments, lambda copy: copy)
    got = observe_training(model, arguments, wrap)
    check = _value_check(name, lambda: observe_training(model, arguments, lambda copy: copy, wide=True))
    assert not Comparison(check).compare("", want, got)
    if name != "whisper" or NO_RANDOM_BRANCH:
        _is_one_graph(compiled[0])


def _value_check(name: str, exact: Callable[[], Any]) -> Exact | Float64Error:
    """Returns the check of values: equal bits on the CPU.

    While a model is traced, transformers masks attention in another way, for which PyTorch has other kernels on GPUs,
    and scans Mamba's states in another order.
    """
    return Exact() if torch.get_default_device().type == "cpu" and name != "mamba" else Float64Error(exact)


def _wide(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value.double() if value.is_floating_point() else value for name, value in arguments.items()}


def _is_one_graph(compiled: Any) -> None:
    record = record_of(compiled)
    assert not [f.message for c in record.compiles for f in c.failures]
    assert (break_kinds(record), graph_count(record), len(record.compiles)) == ([], 1, 1)

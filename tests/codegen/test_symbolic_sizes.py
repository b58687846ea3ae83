"""Tests of symbolic sizes: values, gradients, mutations and aliases equal eager mode's at new sizes."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import json
import os
import random
from pathlib import Path

import pytest
import torch

import compiler_core
from compiler_core.records import Record
from tests import warm_python
from tests.cases import captured, symbolic_programs
from tests.cases.symbolic_programs import MODULES, PROGRAMS, SIZES, verdict
from tests.sampling import always, sample

pytestmark = pytest.mark.slow

INTERPRETED = [["column_sums"], ["layer_norm", "broadcast_column"], ["reductions", "attention", "reshape", "constants"]]
"""Programs for Triton's interpreter, which is slow: every run of the suite takes the first ones."""


@pytest.mark.parametrize("name", sample(PROGRAMS, 12))
def test_kernels(name: str) -> None:
    assert verdict(name, "cpp") == "ok"


@pytest.mark.parametrize(
    "name", sample(["split", "scaled", "dropout", "writes_input", "views_of_input", "views_of_output"], 2)
)
def test_joint_graph_and_autograd_function(name: str) -> None:
    assert verdict(name, "aot_eager") == "ok"


@pytest.mark.parametrize(
    "name", sample(["broadcast", "softmax", "column_sums", "reductions", "layer_norm", "flatten"], 2)
)
def test_kernels_compiled_for_small_sizes_at_large_ones(name: str) -> None:
    """Sizes at which kernels use threads, and rows are too long to store expensive values."""
    assert verdict(name, "cpp", (3, 131, 9001)) == "ok"


IN_EVERY_RUN = {("decoder", True), ("convolutions", False)}
"""One network of attention and one of convolutions."""


@pytest.mark.parametrize(
    ("name", "training"), always(itertools.product(MODULES, [False, True]), IN_EVERY_RUN.__contains__)
)
def test_modules(name: str, training: bool) -> None:
    kind, make = MODULES[name]
    torch.manual_seed(3)
    module, draw = kind().train(training), random.Random(name)
    copied = copy.deepcopy(module)
    compiled = compiler_core.compile(module, backend="cpp", dynamic=True, strict=True)
    with compiler_core.record() as record:
        for _ in range(3):
            arguments = [make(draw.choice(SIZES), draw.choice(SIZES))]
            module.zero_grad()
            copied.zero_grad()
            expected = captured.outcome(copied, arguments, True)
            captured.assert_equal(captured.outcome(module, arguments, True, compiled), expected, 2e-5)
    assert len(record.compiles) <= (2 if name == "convolutions" else 1)  # PyTorch 2.11 asks for odd sizes in pooling


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="there is no Triton")
@pytest.mark.parametrize("names", sample(INTERPRETED, 3))
def test_triton_in_its_interpreter(names: list[str]) -> None:
    root = Path(__file__).parents[2]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(root), "PYTHONWARNINGS": "ignore"}
    command = [str(Path(symbolic_programs.__file__)), "triton", *names]
    done = warm_python.run(command, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == dict.fromkeys(names, "ok")


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="there is no Triton")
def test_triton_for_a_gpu_that_is_not_here() -> None:
    record = _recorded("layer_norm", target="sm_90")
    assert ".param .u64 forward_0_param" in record.compiles[-1].find("forward.sm_90.ptx").text


def test_sizes_are_read_from_the_inputs_and_printed_as_expressions() -> None:
    compile_ = _recorded("reshape").compiles[-1]
    assert ".size(0)" in compile_.find("forward.wrapper").text
    assert compile_.partition is not None
    assert "Sym(" in compile_.find("joint").text or "4*s" in compile_.find("joint").text


def test_halves_are_compared_with_sizes_as_eager_rounds_them() -> None:
    """Half tensors have no 2049, and no 9 / 7: eager rounds such a number to their type before it compares."""
    program = lambda x, y: (x.eq(x.shape[0]), y.lt(y.shape[0] / 7), y.ge(y.shape[0] / 7), y % (y.shape[0] / 7))  # noqa: E731
    compiled = compiler_core.compile(program, backend="cpp", dynamic=True, strict=True)
    for n, m in ((2049, 5), (2051, 6), (2053, 9)):
        arguments = torch.arange(n).add(1).half(), torch.full((m,), m / 7).bfloat16()
        for got, expected in zip(compiled(*arguments), program(*arguments), strict=True):
            assert torch.equal(got, expected)


def _recorded(name: str, target: str | None = None) -> Record:
    function, make = PROGRAMS[name]
    with compiler_core.record() as record:
        compiler_core.compile(function, backend="cpp", dynamic=True, strict=True, target=target)(*make(5, 7))
    return record


def test_a_running_sum_of_what_is_one_element_at_one_time() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.unfold(-1, 3, 2).transpose(0, -1).cumsum(-1)

    fast = compiler_core.compile(program, strict=True)
    for n in (24, 3, 17, 5):
        x = torch.randn(n)
        torch.testing.assert_close(fast(x), program(x))

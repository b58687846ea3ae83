"""Compares kernels of the thirty benchmark programs with float64, in C++ and, of a part, in Triton's interpreter."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import warm_python
from tests.benchmarks.cases import CASES, Case
from tests.cases import case_accuracy
from tests.sampling import sample

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("each", sample(CASES, 9), ids=lambda each: each.name)
def test_cpp(each: Case) -> None:
    assert case_accuracy.verdict(each, "cpp") == "ok"


@pytest.mark.parametrize("each", sample([each for each in CASES if not each.random], 9), ids=lambda each: each.name)
def test_errors_over_many_inputs_are_at_most_twice_eagers(each: Case) -> None:
    assert max(case_accuracy.ratios(each, "cpp")) <= 2


@pytest.mark.parametrize("columns", [7, 40, 700])
def test_variances_which_eager_takes_in_double(columns: int) -> None:
    def program(x: torch.Tensor) -> Any:
        return x.var(1), x.var(0), x.var(), x.std(1), torch.var_mean(x, 1)[0], (x + 5).var(1)

    each = Case("variances", program, lambda m: [torch.randn(20, columns)])
    assert max(case_accuracy.ratios(each, "cpp")) <= 2


@pytest.fixture(scope="module")
def triton(request: pytest.FixtureRequest) -> dict[str, str]:
    """The verdicts on the programs that are tested, from one process."""
    tested = [
        item for item in request.session.items if isinstance(item, pytest.Function) and item.path == Path(__file__)
    ]
    names = [str(item.callspec.params["name"]) for item in tested if item.originalname == "test_triton"]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = warm_python.run(["-m", "tests.cases.case_accuracy", "triton", *names], env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", sample([each.name for each in CASES], 9))
def test_triton(name: str, triton: dict[str, str]) -> None:
    assert triton[name] == "ok"


def test_an_error_beyond_eagers_is_found() -> None:
    exact = torch.linspace(1, 2, 9, dtype=torch.float64)
    eager = exact.float()
    assert case_accuracy.compare(eager, eager, exact) == ""
    assert "error over twice" in case_accuracy.compare(eager * (1 + 1e-6), eager, exact)
    assert "nan at 4" in case_accuracy.compare(eager.masked_fill(torch.arange(9) == 4, float("nan")), eager, exact)

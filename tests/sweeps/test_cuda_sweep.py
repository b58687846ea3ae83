"""Part of the sweep that compiles programs for a GPU that need not be present, and tests of its checks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from compiler_core.errors import CompilerBug
from compiler_core.tools import triton_names
from tests.sampling import always
from tests.sweeps.cuda_sweep import overflow
from tests.sweeps.cuda_sweep.ptx import Compiler, form

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
KERNEL = """\
import triton
import triton.language as tl


# k: for i0 < 70000, i1 < 70000:
@triton.jit
def k(
    x_ptr: "*fp32",
    BLOCK_I: tl.constexpr = 1024,
):
    i = {program} * BLOCK_I + tl.arange(0, BLOCK_I)
    i_mask = i < 4900000000
    i0 = i // 70000
    x = tl.load(x_ptr + {address}, mask=i_mask)
    tl.store(x_ptr + i, x, mask=i_mask)


LAUNCHES = {{
    "k": {{"grid": 4785157, "num_warps": 4}},
}}
"""


def swept(*options: str) -> dict[str, Any]:
    """Runs the sweep in a separate process and returns its report."""
    command = [sys.executable, "-m", "tests.sweeps.cuda_sweep", *options]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(
    torch.version.cuda is not None and not torch.cuda.is_available(),
    reason="for gradients, a PyTorch that is built for CUDA asks for the GPU",
)
@pytest.mark.parametrize(("points", "kernels"), always([(10, 2), (80, 12)], (10, 2).__eq__))
def test_programs_of_all_sizes_become_kernels_for_a_gpu(points: int, kernels: int) -> None:
    found = swept("--sample", str(points), "--most-kernels", str(kernels))
    assert found["wrong"] == {}
    assert found["points"] == points
    assert found["compiled"] == kernels
    assert found["symbolic"] >= points // 4


@pytest.mark.parametrize("points", always([4, 36], (4).__eq__))
def test_strategies_for_big_sizes_give_eagers_values_at_small_ones(points: int) -> None:
    found = swept("--forced", "--sample", str(points))
    assert found["wrong"] == {}
    assert found["points"] == points


# ---- the checks themselves -----------------------------------------------------------------


def kernel(program: str = "tl.program_id(0).to(tl.int64)", address: str = "i") -> str:
    return KERNEL.format(program=program, address=address)


def test_a_name_that_is_not_defined_is_found() -> None:
    triton_names.check_names(kernel())
    with pytest.raises(CompilerBug, match=r"k, line 14: i2 is not defined"):
        triton_names.check_names(kernel(address="3*i + i2"))


@pytest.mark.parametrize(
    ("lines", "unknown"),
    [
        ("for start in range(0, 8, 2):\n        y = start\n    z = y", ["y"]),
        ("for start in range(0, 8, 2):\n        y = start\n        z = y", []),
        ("z = start\n    for start in range(0, 8, 2):\n        z = start", ["start"]),
        ("if x_ptr:\n        y = 1\n    z = y", ["y"]),
        ("if x_ptr:\n        y = 1\n    else:\n        y = 2\n    z = y", []),
        ("z += 1", ["z"]),
        ("z = _helper(x_ptr)", ["_helper"]),
        ("z = tl.cdiv(x_ptr, BLOCK_I)", []),
    ],
)
def test_scopes_of_names_are_tritons(lines: str, unknown: list[str]) -> None:
    text = f"import triton.language as tl\n\n\ndef k(x_ptr, BLOCK_I: tl.constexpr = 4):\n    {lines}\n"
    assert [p.split(": ")[1] for p in triton_names.undefined_names(text)] == [
        f"{name} is not defined" for name in unknown
    ]


def test_numbers_that_do_not_fit_are_found() -> None:
    programs = 4_785_157
    assert list(overflow.problems_in(kernel(), "k", programs)) == []
    (problem,) = overflow.problems_in(kernel("tl.program_id(0)"), "k", programs)
    assert "tl.program_id(0) * BLOCK_I goes up to 4,899,999,744 in 32 bits" in problem
    (problem,) = overflow.problems_in(kernel(address="70000*(i0.to(tl.int32))"), "k", programs)
    assert "goes up to 4,899,930,000" in problem


def test_kernels_that_cannot_be_launched_are_found() -> None:
    large = kernel().replace("= 1024", "= 2097152").replace('"num_warps": 4', '"num_warps": 3')
    problems = list(Compiler(most=0).problems(large))
    assert problems == ["k: a block has 2,097,152 elements", "k: 3 warps"]


def test_kernels_that_differ_in_names_and_sizes_are_compiled_once() -> None:
    text = kernel()
    other = text.replace("70000", "83333").replace("x_ptr", "y_ptr")
    assert form(text) != form(other), "16 divides one of the two sizes"
    assert form(text) == form(text.replace("70000", "90000").replace("x_ptr", "y_ptr"))
    assert form(text) != form(text.replace("= 1024", "= 512"))

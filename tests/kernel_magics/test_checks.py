"""What checks a learner's tasks: what is said of a wrong answer, and which accesses of a kernel are faults."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kernel_magics.workshop import Misconception, check, on_its_own
from tests import warm_python

CASES = {"1": (1,), "2": (2,), "-3": (-3,), "10": (10,)}


def message_for(answer: Any, *misconceptions: Misconception) -> str:
    with pytest.raises(AssertionError) as caught:
        check(answer, CASES, lambda number: number * 2, misconceptions)
    return str(caught.value)


def test_a_right_answer_passes() -> None:
    check(lambda number: number + number, CASES, lambda number: number * 2)
    check(lambda number: number + number, CASES, {"1": 2, "2": 4, "-3": -6, "10": 20})


def test_the_message_of_a_wrong_answer_has_what_its_author_thought() -> None:
    power = Misconception("You probably raised to a power.", {"-3": 9, "10": 100})
    size = Misconception("You probably took the absolute value.", {"-3": lambda value: value > 0})
    assert message_for(lambda number: number**2, power, size) == (
        "1 of 4 cases are right.\nYou probably raised to a power.\n-3:\n  yours 9\n  right -6"
    )
    assert "the absolute value.\n-3:\n  yours 6" in message_for(lambda number: abs(number) * 2, power, size)


def test_another_wrong_answer_is_shown_the_smallest_case() -> None:
    never = Misconception("", {"1": 2, "10": 7})  # 2 is right: no sign of a misconception
    shown = "3 of 4 cases are right. The smallest that is not:\n10:\n  yours 7\n  right 20"
    assert message_for(lambda number: 7 if number == 10 else number * 2, never) == shown
    assert "2:\n  yours raised ZeroDivisionError: " in message_for(lambda number: number * 2 // (number != 2))
    assert "1:\n  yours 2.0\n" in message_for(lambda number: number * 2.0)  # of another type


def test_an_answer_is_on_its_own() -> None:
    import compiler_core

    def asks() -> int:
        return len(compiler_core.config.__class__.__name__ + str(compiler_core.compile(abs)))

    assert on_its_own(lambda a, b: max(a, b))(1, 2) == 2
    with pytest.raises(RuntimeError, match="it asks compiler_core"):
        on_its_own(lambda: [asks() for _ in range(2)])()
    assert on_its_own(asks, "triton")()


KERNELS = """
import torch, triton
import triton.language as tl
from kernel_magics.workshop import launch


@triton.jit
def copy(x, out, n, SHIFT: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * STEP + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at + SHIFT, mask=at < n), mask=at < n)


@triton.jit
def rest(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < 3))


@triton.jit
def far(x, out, BLOCK: tl.constexpr):
    tl.store(out + (1 << 40) + tl.arange(0, BLOCK), 0.0)


x = torch.arange(6.0)
for shift, step, n in ((0, 4, 6), (1, 4, 6), (-1, 4, 6), (0, 4, 7), (0, 3, 6)):
    ran = launch(copy, (2,), x, torch.Size([6]), n, SHIFT=shift, STEP=step, BLOCK=4)
    print(ran["out"].tolist() == x.tolist(), ran["faults"])
print(launch(rest, (1,), x, torch.Size([6]), BLOCK=4)["out"].tolist())
try:
    launch(far, (1,), x, torch.Size([6]), BLOCK=4)
except Exception as error:
    print(error)
print(x.tolist())
"""


def test_accesses_outside_of_operands_are_faults(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    root = Path(__file__).parents[2]
    (tmp_path / "kernels.py").write_text(KERNELS, encoding="utf-8")
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(root)}
    ran = warm_python.run([str(tmp_path / "kernels.py")], env=environment)
    assert ran.stdout.splitlines() == [
        "True []",
        "False ['loads x[6], past its end']",
        "False ['loads x[-1], before its start']",
        "True ['loads x[6], past its end', 'stores out[6], past its end']",
        "True ['stores out[3] in two instances']",
        "[0.0, 1.0, 2.0, nan, nan, nan]",
        "IndexError('stores out[1099511627776], past its end')",
        "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]",
    ], ran.stderr

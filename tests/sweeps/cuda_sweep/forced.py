"""Strategies for big sizes at small ones: kernels run by Triton's interpreter on the CPU, beside eager PyTorch.

A point is lowered for a GPU under size rules (`compiler_core.loops.schedule.size_rules`) that make a few elements
many, and run forward and backward.  Floats are judged by float64: the error is at most twice eager's and a few
roundings.  All else is equal, but for strides, which eager chooses by the device.  The interpreter is chosen when
Triton is imported, so this has a process of its own.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from compiler_core.loops.schedule.size_rules import USUAL, ColumnLimits, SizeRules, used
from tests.cases.triton_cases import interpret_libdevice
from tests.sweeps.cuda_sweep.pipeline import runnable
from tests.sweeps.cuda_sweep.programs import ALL, Point

FEW = ColumnLimits(most_parts=8, least_parts=2, least_rows=1, least_elements=0)
_blocks = functools.partial(
    replace, USUAL, block=8, tile=4, picked=4, whole=16, whole_row=8, part_of_row=8, few_programs=2
)
_in_parts: dict[str, Any] = {
    "enough_programs": 1 << 30,
    "wanted_programs": 1 << 20,
    "little": 1,
    "least_part": 2,
    "most_parts": 8,
}
RULES: dict[str, SizeRules] = {
    "usual": USUAL,
    "parts": replace(USUAL, **_in_parts, long=1 << 60),
    "stages": replace(USUAL, enough_programs=1 << 30, long=1, little=1 << 60),
    "stages in parts": replace(USUAL, **_in_parts, long=1),
    "columns": replace(USUAL, columns=FEW),
    "columns, stages, parts": replace(USUAL, **_in_parts, columns=FEW, long=1),
    "small blocks": _blocks(),
    "small blocks, columns": _blocks(columns=FEW),
    "small blocks, stages, parts": _blocks(**_in_parts, long=1),
    "wide rows": _blocks(whole_row=1 << 20, whole=1 << 20, block=64),
    "64 bits, alone": _blocks(far=0, small=0),
}
"""Rules under which a few elements are many; each makes another kind of kernel."""
SIZES = ((1, 1), (1, 7), (7, 1), (3, 5), (8, 8), (9, 8), (8, 9), (16, 17), (31, 4), (4, 33), (36, 12), (2, 70), (70, 2))
LAYOUTS = ("plain", "plain", "plain", "turned", "sliced", "stepped", "expanded", "later")
DTYPES = (torch.float32, torch.float32, torch.float32, torch.float64, torch.float16)
"""The interpreter has no numbers of bfloat16."""
DRAWN = {"dropouts", "dropout_residual"}
"""Random numbers are a GPU's; `philox_cases` runs such kernels in the interpreter."""

OVER_ALL_ROWS = {"norm_of_columns", "standardised_columns", "norms_of_images", "batch_norm_in_training"}
"""Where all rows are one, what these divide by is the rounding of a mean."""


@dataclass(frozen=True)
class Forced:
    """A point under some rules."""

    rules: str
    point: Point

    def text(self) -> str:
        return f"{self.rules}: {self.point.text()}"

    @staticmethod
    def parsed(text: str) -> Forced:
        rules, _, point = text.partition(": ")
        return Forced(rules, Point.parsed(point))


def every(seed: int, only: str = "") -> Iterator[Forced]:
    """Every program under all rules, at a size, of a type and a layout that are drawn; then again at others."""
    draw = random.Random(seed)
    names = [c.name for c in ALL if c.name not in DRAWN and only in c.name]
    while names:
        for name, rules in itertools.product(draw.sample(names, len(names)), RULES):
            size, dtype, layout = draw.choice(SIZES), draw.choice(DTYPES), draw.choice(LAYOUTS)
            layout = "plain" if name in OVER_ALL_ROWS and layout == "expanded" else layout
            yield Forced(rules, Point(name, *size, dtype, layout))


def sample(count: int) -> list[Forced]:
    """What the normal suite runs: random, and always the same."""
    draw = random.Random(3)
    names = [c.name for c in ALL if c.name not in DRAWN]
    rules = itertools.cycle(RULES)
    return [
        Forced(next(rules), Point(name, *draw.choice(SIZES), torch.float32, draw.choice(LAYOUTS)))
        for name in draw.sample(names, min(count, len(names)))
    ]


def differences(forced: Forced) -> list[str]:
    """How what kernels make differs from eager's; nothing where eager raises."""
    point = forced.point
    function = point.case().program
    torch.manual_seed(20261122)
    try:
        inputs = point.inputs("cpu")
        expected = outcome(function, inputs)
    except Exception:
        return []
    with used(RULES[forced.rules]):
        run, made = runnable(function, lambda: point.inputs("cuda"))
    if run is None:
        return [made.failed] if made.failed else []
    try:
        got = outcome(run, inputs)
    except Exception:
        return [traceback.format_exc(limit=-4)]
    exact = outcome(function, [in_double(t) for t in inputs])
    pairs = zip(got, expected, exact, strict=True)
    return [f"result {n}: {problem}" for n, three in enumerate(pairs) if (problem := difference(*three))]


def outcome(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """The results, then the gradients of the inputs that require one."""
    leaves = [t.detach().requires_grad_(t.requires_grad) for t in inputs]
    made = function(*leaves)
    results: list[torch.Tensor] = [made] if isinstance(made, torch.Tensor) else list(made)
    ends = [r for r in results if r.requires_grad]
    wanted = [t for t in leaves if t.requires_grad]
    if not ends or not wanted:
        return [*results]
    steps = [torch.linspace(0.1, 1, r.numel(), dtype=torch.float64, device=r.device) for r in ends]
    tangents = [step.view(r.shape).to(r.dtype) for step, r in zip(steps, ends, strict=True)]
    return [*(r.detach() for r in results), *torch.autograd.grad(ends, wanted, tangents, allow_unused=True)]


def in_double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().double().requires_grad_(tensor.requires_grad) if tensor.is_floating_point() else tensor


def difference(got: torch.Tensor | None, eager: torch.Tensor | None, exact: torch.Tensor | None) -> str:
    """What is wrong with a result; nothing where it is as good as eager's."""
    if got is None or eager is None or exact is None:
        return "" if got is eager else "one of the two has no gradient"
    if (got.shape, got.dtype) != (eager.shape, eager.dtype):
        return f"{got.shape} {got.dtype} for {eager.shape} {eager.dtype}"
    if not got.is_floating_point():
        wrong = int((got != eager).sum())
        return f"{wrong} of {got.numel()} elements differ" if wrong else ""
    special = [(t.isnan(), t == float("inf"), t == float("-inf")) for t in (got, eager)]
    if not all(map(torch.equal, *special)):
        return "NaN or infinities in other places"
    right = torch.nan_to_num(exact, 0, 0, 0)
    error, allowed = (float((torch.nan_to_num(t.double(), 0, 0, 0) - right).norm()) for t in (got, eager))
    roundings = 64 if got.dtype is torch.float64 else 4  # what is taken for exact has some itself
    eps = torch.finfo(got.dtype).eps
    bound = 2 * allowed + eps * (roundings * float(right.norm()) + math.sqrt(got.numel()))  # values are about 1
    return f"error {error:.3g}, eager's {allowed:.3g}, norm {float(right.norm()):.3g}" if not error <= bound else ""


def run(items: Iterable[Forced], seconds: float) -> dict[str, Any]:
    """How many were run, and which differ, and how."""
    interpret_libdevice()
    end, wrong, count = time.monotonic() + seconds, {}, 0
    for item in items:
        count += 1
        if found := differences(item):
            wrong[item.text()] = found
            print(item.text(), *found, sep="\n    ", file=sys.stderr, flush=True)
        if time.monotonic() > end:
            break
    print(f"{count} programs in the interpreter, {len(wrong)} differ from eager", file=sys.stderr)
    return {"points": count, "wrong": wrong}

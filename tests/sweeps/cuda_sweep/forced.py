"""Tests strategies for big sizes at small sizes: runs kernels in Triton's interpreter, compared with eager PyTorch.

A point is lowered for a GPU under size rules (`compiler_core.loops.schedule.block_sizes`) for which a few elements
count as many, and run forward and backward.  The error of floats, compared with float64, may be at most twice eager's
and a few roundings.  Everything else must be equal, except strides, which eager chooses by the device.  The interpreter
is chosen when Triton is imported, so this runs in a separate process.
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

import numpy as np
import torch

import compiler_core
from compiler_core.loops.schedule.block_sizes import DEFAULT_RULES, MixOrderLimits, SizeRules, override_rules
from tests.cases import triton_interpreter
from tests.sweeps.cuda_sweep import drawn
from tests.sweeps.cuda_sweep.drawn import Drawn
from tests.sweeps.cuda_sweep.pipeline import interpreted
from tests.sweeps.cuda_sweep.programs import ALL, SYMBOLIC, Point
from tests.sweeps.fuzz import within_noise

FEW = MixOrderLimits(max_parts=8, min_parts=2, min_rows=1, min_elements=0)
_blocks = functools.partial(
    replace,
    DEFAULT_RULES,
    block=8,
    tile=4,
    gather_block=4,
    max_kept_elements=16,
    max_whole_row=8,
    row_part=8,
    few_programs=2,
    few_elements=0,
)
_in_parts: dict[str, Any] = {
    "enough_programs": 1 << 30,
    "target_programs": 1 << 20,
    "min_split_elements": 1,
    "min_part": 2,
    "min_rows_of_part": 2,
    "max_parts": 8,
}


def _multi_pass(elements: int) -> dict[str, Any]:
    """Rules for which so many elements for each program make a kernel for each pass."""
    return {"min_multi_pass_elements": elements, "min_strided_multi_pass_elements": elements}


RULES: dict[str, SizeRules] = {
    "usual": DEFAULT_RULES,
    "parts": replace(DEFAULT_RULES, **_in_parts, **_multi_pass(1 << 60)),
    "stages": replace(DEFAULT_RULES, enough_programs=1 << 30, **_multi_pass(1), min_split_elements=1 << 60),
    "stages in parts": replace(DEFAULT_RULES, **_in_parts, **_multi_pass(1)),
    "columns": replace(DEFAULT_RULES, mix_order=FEW),
    "columns, stages, parts": replace(DEFAULT_RULES, **_in_parts, mix_order=FEW, **_multi_pass(1)),
    "small blocks": _blocks(),
    "small blocks, columns": _blocks(mix_order=FEW),
    "small blocks, stages, parts": _blocks(**_in_parts, **_multi_pass(1)),
    "wide rows": _blocks(max_whole_row=1 << 20, max_kept_elements=1 << 20, block=64),
    "64 bits, alone": _blocks(max_int32_reach=0, max_horizontal_elements=0),
}
"""Rules for which a few elements count as many; each leads to another kind of kernel."""
SIZES = ((1, 1), (1, 7), (7, 1), (3, 5), (8, 8), (9, 8), (8, 9), (16, 17), (31, 4), (4, 33), (36, 12), (2, 70), (70, 2))
LAYOUTS = ("plain", "plain", "plain", "turned", "sliced", "stepped", "expanded", "later")
DTYPES = (torch.float32, torch.float32, torch.float32, torch.float64, torch.float16)
"""The interpreter does not support bfloat16."""
DRAWN = {"dropouts", "dropout_residual"}
"""Excluded: random numbers are those of a GPU; `philox_cases` runs such kernels in the interpreter."""

OVER_ALL_ROWS = {"norm_of_columns", "standardised_columns", "norms_of_images", "batch_norm_in_training"}
"""Where all rows are one, what these divide by is the rounding of a mean."""


@dataclass(frozen=True)
class Forced:
    """A point, or a random tensor program, and the rules under which it is lowered."""

    rules: str
    point: Point | Drawn

    def text(self) -> str:
        return f"{self.rules}: {self.point.text()}"

    @staticmethod
    def parsed(text: str) -> Forced:
        rules, _, point = text.partition(": ")
        return Forced(rules, Drawn.parsed(point) if point.startswith("drawn_") else Point.parsed(point))


def every(seed: int, only: str = "", symbolic: Sequence[str] = ("",)) -> Iterator[Forced]:
    """Yields all programs under all rules with random size, type, layout and symbolic sizes, again and again."""
    draw = random.Random(seed)
    names = [c.name for c in ALL if c.name not in DRAWN and only in c.name]
    while names:
        for name, rules in itertools.product(draw.sample(names, len(names)), RULES):
            size, dtype, layout = draw.choice(SIZES), draw.choice(DTYPES), draw.choice(LAYOUTS)
            layout = "plain" if name in OVER_ALL_ROWS and layout == "expanded" else layout
            yield Forced(rules, Point(name, *size, dtype, layout, draw.choice(symbolic)))


def every_drawn(seed: int) -> Iterator[Forced]:
    """Yields random tensor programs without end, each under random rules; the interpreter has no GPU's dropout."""
    draw = random.Random(seed)
    for program in drawn.endless(seed):
        if "dropout" not in program.source:
            yield Forced(draw.choice(list(RULES)), program)


def sample(count: int) -> list[Forced]:
    """Returns the points of the normal test suite: random, but the same in each run; a third has symbolic sizes."""
    draw = random.Random(3)
    symbolic = count // 3
    names = [c.name for c in ALL if c.name not in DRAWN]
    rules = itertools.cycle(RULES)
    fixed = [
        Forced(next(rules), Point(name, *draw.choice(SIZES), torch.float32, draw.choice(LAYOUTS)))
        for name in draw.sample(names, min(count - symbolic, len(names)))
    ]
    points = itertools.islice(every(2, symbolic=SYMBOLIC), symbolic // 2)
    return [*fixed, *points, *itertools.islice(every_drawn(2), symbolic - symbolic // 2)]


def differences(forced: Forced) -> list[str]:
    """Returns the difference between kernels and eager."""
    quietly = np.errstate(all="ignore")  # the interpreter computes with NumPy
    with override_rules(RULES[forced.rules]), interpreted() as created, quietly:
        try:
            found = list(_at_points(forced.point) if isinstance(forced.point, Point) else _in_calls(forced.point))
        except Exception:
            found = [traceback.format_exc(limit=-4)]
    return [created.failed] if created.failed else found


def _at_points(point: Point) -> Iterator[str]:
    """Compares one compiled function with eager at a point, and at greater ones if sizes are symbolic."""
    function = point.case().program
    compiled = compiler_core.compile(function, dynamic=point.dynamic, strict=True)
    for each in dict.fromkeys((point, point.grown(), point.grown().grown())):
        torch.manual_seed(20261122)
        try:
            inputs = each.inputs("cpu")
            expected = outcome(function, inputs)
        except Exception:
            return  # eager raises
        got, exact = outcome(compiled, inputs), outcome(function, [in_double(t) for t in inputs])
        for n, three in enumerate(zip(got, expected, exact, strict=True)):
            if problem := difference(*three):
                yield f"{each.rows} x {each.columns}, result {n}: {problem}"


def _in_calls(program: Drawn) -> Iterator[str]:
    """Compares all calls of a random program with eager, within the noise of eager's own results."""
    module = program.module()
    try:
        within_noise.compare(module, compiler_core.compile(module.program, dynamic=program.dynamic, strict=True))
    except AssertionError as error:
        yield f"{error}\n{program.source}"


def outcome(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """Returns the results, and the gradients of inputs that require them."""
    leaves = [t.detach().requires_grad_(t.requires_grad) for t in inputs]
    result = function(*leaves)
    results: list[torch.Tensor] = [result] if isinstance(result, torch.Tensor) else list(result)
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
    """Returns what is wrong with a result; empty if its error is at most eager's."""
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
    roundings = 64 if got.dtype is torch.float64 else 4  # the reference has rounding errors itself
    eps = torch.finfo(got.dtype).eps
    bound = 2 * allowed + eps * (roundings * float(right.norm()) + math.sqrt(got.numel()))  # values are about 1
    return f"error {error:.3g}, eager's {allowed:.3g}, norm {float(right.norm()):.3g}" if not error <= bound else ""


def run(items: Iterable[Forced], seconds: float) -> dict[str, Any]:
    """Returns the number of points, and the differences by point."""
    triton_interpreter.extend()
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

"""The thirty programs of the benchmarks, small, each of its kernels beside a float64 reference.

    python -m tests.cases.case_accuracy cpp [NAME ...]
    TRITON_INTERPRET=1 python -m tests.cases.case_accuracy triton [NAME ...]

prints a JSON object: case -> verdict.  The interpreter wants its variable before Triton is imported, so tests start
that as a process.  One compile holds a case on inputs of all forms: random, with NaN, with infinities, empty, of size
one, transposed, and views whose elements overlap.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch

import compiler_core
from tests.benchmarks.cases import CASES, Case, Make
from tests.cases import triton_interpreter

Tensors = list[torch.Tensor]


class Small(Make):
    """Sizes at which there may be nothing to index."""

    def indices(self, count: int, below: int) -> torch.Tensor:
        return torch.randint(max(below, 1), (count,))


def with_values(tensors: Sequence[torch.Tensor], *values: float) -> Tensors:
    """With these values in the first one.  An infinite weight of a norm would give infinity or NaN, according to how
    eager PyTorch sorts the terms of its formula."""
    first = tensors[0].clone()
    for number, value in enumerate(values):
        first.view(-1)[(7 * number + 3) % first.numel()] = value
    return [first, *tensors[1:]]


def turned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2) if tensor.dim() > 1 else tensor


def overlapping(tensor: torch.Tensor) -> torch.Tensor:
    """The same shape, each row a step further in the same memory."""
    if tensor.dim() != 2 or not tensor.is_floating_point():
        return tensor
    return torch.randn(sum(tensor.shape)).abs().as_strided(tensor.shape, (1, 1))


def forms(each: Case) -> dict[str, Tensors]:
    plain = list(each.inputs(Small(6, 40, torch.float32, "cpu")))
    return {
        "random": plain,
        "nan": with_values(plain, float("nan")),
        "inf": with_values(plain, float("inf"), float("-inf"), -0.0),
        "empty": list(each.inputs(Small(0, 8, torch.float32, "cpu"))),
        "one": list(each.inputs(Small(1, 4, torch.float32, "cpu"))),
        "transposed": [turned(t) for t in plain],
        "overlapping": [overlapping(t) for t in plain],
    }


def verdict(each: Case, backend: str) -> str:
    """``ok``, or which result is worse than eager's, and by how much."""
    torch.manual_seed(20261121)
    created = forms(each)
    counts = [len(inputs) for inputs in created.values()]

    def program(*flat: torch.Tensor) -> list[Any]:
        rest = list(flat)
        return [each.program(*[rest.pop(0) for _ in range(count)]) for count in counts]

    eager = run(program, created, each.trains)
    exact = eager if each.random else run(program, created, each.trains, torch.float64)
    ours = run(compiler_core.compile(program, backend=backend, strict=True, dynamic=False), created, each.trains)
    wrong = [
        f"{form}[{at}]: {problem}"
        for form in created
        for at, results in enumerate(zip(ours[form], eager[form], exact[form], strict=True))
        if (problem := compare(*results))
    ]
    return "; ".join(wrong) or "ok"


def ratios(each: Case, backend: str, seeds: int = 24) -> list[float]:
    """Of each result, the error over eager's, both as the root mean square over many inputs: one number may be exact
    by luck."""
    compiled = compiler_core.compile(each.program, backend=backend, strict=True, dynamic=False)
    squares: list[list[torch.Tensor]] = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        inputs = list(each.inputs(Small(6, 40, torch.float32, "cpu")))
        ours, eager = (_alone(program, inputs, each.trains) for program in (compiled, each.program))
        exact = _alone(each.program, inputs, each.trains, torch.float64)
        floats = [at for at, value in enumerate(exact) if value.is_floating_point()]
        errors = [[(got[at].double() - exact[at]).square().sum() for at in floats] for got in (ours, eager)]
        squares.append([torch.stack(e) for e in errors])
    actual, expected = (sum(side) for side in zip(*squares, strict=True))
    return [0.0 if m == 0 else float((m / t).sqrt()) for m, t in zip(actual, expected, strict=True)]


def _alone(program: Callable[..., Any], inputs: Tensors, trains: bool, dtype: torch.dtype | None = None) -> Tensors:
    return run(lambda *flat: [program(*flat)], {"": inputs}, trains, dtype)[""]


def run(
    program: Callable[..., list[Any]], forms_inputs: dict[str, Tensors], trains: bool, dtype: torch.dtype | None = None
) -> dict[str, Tensors]:
    """The results of each form or, of a case that trains, its gradients."""
    own = {form: [_leaf(t, trains, dtype) for t in inputs] for form, inputs in forms_inputs.items()}
    torch.manual_seed(1)
    values = program(*[t for inputs in own.values() for t in inputs])
    results = {form: [v] if isinstance(v, torch.Tensor) else list(v) for form, v in zip(own, values, strict=True)}
    if not trains:
        return results
    total = sum((weights(v) * v).sum() for vs in results.values() for v in vs)
    assert isinstance(total, torch.Tensor)
    total.backward()
    return {form: [t.grad for t in inputs if t.grad is not None] for form, inputs in own.items()}


def _leaf(tensor: torch.Tensor, trains: bool, dtype: torch.dtype | None) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    return (tensor if dtype is None else tensor.to(dtype)).detach().requires_grad_(trains)


def weights(value: torch.Tensor) -> torch.Tensor:
    """What the gradient of an output begins with: not all ones, and exact in each type."""
    return (torch.arange(value.numel()) % 5 - 1.5).to(value.dtype).view(value.shape)


def compare(ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> str:
    """What is wrong with `ours`, whose error may be twice eager's and a rounding."""
    if (ours.shape, ours.dtype) != (eager.shape, eager.dtype):
        return f"{ours.dtype} {list(ours.shape)} instead of {eager.dtype} {list(eager.shape)}"
    if not eager.is_floating_point():
        return "" if torch.equal(ours, eager) else "other whole numbers"
    reference, expected, actual = exact.double(), eager.double(), ours.double()
    # eager's own vectors and scalars differ in what becomes of infinities: either result is right
    finite = reference.isfinite() & expected.isfinite() & actual.isfinite()
    if not (finite | _same(actual, reference) | _same(actual, expected)).all():
        at = int((~(finite | _same(actual, reference) | _same(actual, expected))).reshape(-1).nonzero()[0])
        values = [t.reshape(-1)[at] for t in (actual, expected, reference)]
        return "{} at {} instead of {}, exactly {}".format(values[0], at, *values[1:])
    if not finite.any():
        return ""
    actual, expected, reference = actual[finite], expected[finite], reference[finite]
    rounding = 2 * torch.finfo(eager.dtype).eps * reference.abs().clamp(min=reference.abs().max() / 8)
    excess = ((actual - reference).abs() - 2 * (expected - reference).abs().max() - rounding).max()
    return "" if bool(excess <= 0) else f"error over twice eager's by {float(excess):.1e}"


def _same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one == other) | (one.isnan() & other.isnan())


def main() -> None:
    if sys.argv[1] == "triton":
        triton_interpreter.extend()
    found = {}
    for each in CASES:
        if sys.argv[2:] and each.name not in sys.argv[2:]:
            continue
        try:
            found[each.name] = verdict(each, sys.argv[1])
        except Exception:
            found[each.name] = traceback.format_exc()
    print(json.dumps(found))


if __name__ == "__main__":
    main()

"""Compares PyTorch's operator database, compiled with core, with eager.

    python -m tests.sweeps.operator_sweep [--backend NAME] [--only TEXT] [--share I/N] [--device NAME] [--dtype NAME]

The cases are all operators that take the dtype (float32) on the device, all samples of their inputs, and both variants
(the function, and the in-place method).  Everything that `compiler_core.tools.testing` compares must equal eager; the
error of values, compared with float64, may be at most twice eager's, which is the greatest of several runs whose inputs
and results are changed in their last bits.  The verdicts are

    equal      compiled, and equal to eager
    known      compiled, and equal to eager except for a difference of `tools/testing/known_differences.py`
    refused    not compiled, for a reason that the record gives; equal to eager
    wrong      a difference from eager
    crashed    an exception that eager does not raise, or a failure inside the compiler
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map

import compiler_core
from compiler_core.records import Record
from compiler_core.tools import testing
from tests.cases.operators import op_db
from tests.sweeps.fuzz.within_noise import Noise

VERDICTS = ("equal", "known", "refused", "wrong", "crashed")
NOISES = 8
"""Eager runs with noise that say what eager's error is: of ill-conditioned cases, one run alone says little."""
UNSTABLE = frozenset({"empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided", "empty_permuted"})
"""Operators with uninitialised results, of which only shapes, strides and types are compared."""
WIDER = {
    **dict.fromkeys((torch.float32, torch.bfloat16, torch.float16), torch.float64),
    torch.complex64: torch.complex128,
}


@dataclass(frozen=True)
class Case:
    """One call of an operator; `make` returns fresh arguments for its function."""

    name: str
    function: Callable[..., Any]
    make: Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]
    gradients: bool
    values: bool = True


@dataclass(frozen=True)
class Result:
    case: str
    verdict: str
    reason: str = ""


def names(device: str = "cpu", dtype: torch.dtype = torch.float32) -> list[str]:
    """Returns the names of the operators that take `dtype`."""
    return [op.formatted_name for op in op_db if op.supports_dtype(dtype, torch.device(device).type)]


def cases(
    only: str = "", share: tuple[int, int] = (0, 1), device: str = "cpu", dtype: torch.dtype = torch.float32
) -> Iterator[Case]:
    """Yields all cases, or every `share[1]`-th from the one at `share[0]` on."""
    number = -1
    for name in names(device, dtype):
        if only not in name:
            continue
        for case in cases_of(name, device, dtype):
            number += 1
            if number % share[1] == share[0]:
                yield case


def sample_of(name: str, device: str = "cpu") -> list[Case]:
    """One case of one operator and one of its in-place method, from the middle of its samples."""
    forms: dict[bool, list[Case]] = {}
    for case in cases_of(name, device):
        forms.setdefault(case.name.startswith(f"{name}_["), []).append(case)
    return [found[len(found) // 2] for found in forms.values()]


def cases_of(name: str, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Iterator[Case]:
    """Yields all cases of one operator."""
    for op in (op for op in op_db if op.formatted_name == name):
        gradients = dtype in op.supported_backward_dtypes(torch.device(device).type)
        torch.manual_seed(0)
        samples = list(op.sample_inputs(device, dtype, requires_grad=gradients))
        values = op.name not in UNSTABLE
        for i, sample in enumerate(samples):
            result = _fresh(sample)
            yield Case(f"{name}[{i}]", _as_user_code(op.op), result, gradients, values)
            inplace = op.inplace_variant
            if inplace is not None and isinstance(sample.input, torch.Tensor) and not sample.broadcasts_input:
                differentiable = gradients and op.supports_inplace_autograd
                yield Case(f"{name}_[{i}]", _in_place(_as_user_code(inplace)), result, differentiable, values)


def _fresh(sample: Any) -> Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    return lambda: tree_map(_leaf, (sample.input, tuple(sample.args), dict(sample.kwargs)))


def _leaf(value: Any) -> Any:
    """Copies a tensor to new memory with the same strides and storage offset."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.layout is not torch.strided:
        return value.detach().clone().requires_grad_(value.requires_grad)
    with torch.no_grad():
        result = torch.empty(0, dtype=value.dtype, device=value.device)
        result.set_(value.untyped_storage().clone(), value.storage_offset(), value.shape, value.stride())
        if value.is_conj() or value.is_neg():
            result = value.detach().clone()
    return result.requires_grad_(value.requires_grad)


def _in_place(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        return method(x.clone(), *args, **kwargs)

    return call


# ---- one case


def run(case: Case, backend: str | None) -> Result:
    """Runs a case eagerly and compiled, and compares."""
    want = _observed(case, case.function)
    with compiler_core.record() as record:
        compiled = compiler_core.compile(_program(case.function), backend=backend)
        got = _observed(case, compiled)
        again = _observed(case, compiled)  # warnings given while compiling are given once
    first = _verdict(case, want, got, record)
    return first if first.verdict in ("wrong", "crashed", "known") else _verdict(case, want, again, record)


def _as_user_code(function: Any) -> Any:
    """Returns the database's Python wrapper of an operator as if it were user code, so that it is captured."""
    code = getattr(function, "__code__", None)
    if code is None or "testing" not in Path(code.co_filename).parts:
        return function
    own = code.replace(co_filename=__file__)
    result = types.FunctionType(
        own, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    result.__kwdefaults__ = function.__kwdefaults__
    return result


def _program(op: Callable[..., Any]) -> Callable[..., Any]:
    def program(x: Any, *args: Any, **kwargs: Any) -> Any:
        return op(x, *args, **kwargs)

    return program


def _observed(case: Case, function: Callable[..., Any], wide: bool = False) -> testing.ObservedRun:
    def call(x: Any, args: Any, kwargs: Any) -> Any:
        return function(x, *args, **kwargs)

    def make() -> Any:
        return tree_map(_widened, case.make()) if wide else case.make()

    return testing.observe(call, make, 1, backward=case.gradients)


def _noisy(case: Case, seed: int) -> testing.ObservedRun:
    """Runs a case eagerly with inputs and results that are changed in their last bits."""
    noise = Noise(seed)

    def make() -> Any:
        return tree_map(noise.moved_leaf, case.make())

    def call(x: Any, args: Any, kwargs: Any) -> Any:
        return case.function(x, *args, **kwargs)

    with noise:
        return testing.observe(call, make, 1, backward=case.gradients)


def _widened(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return WIDER.get(value, value)
    if isinstance(value, torch.Tensor) and value.dtype in WIDER:
        return value.detach().to(WIDER[value.dtype]).requires_grad_(value.requires_grad)
    return value


def _verdict(case: Case, want: testing.ObservedRun, got: testing.ObservedRun, record: Record) -> Result:
    failures = [f for c in record.compiles for f in c.failures]
    crashed = [f for f in failures if not _is_refusal(f)]
    if got.raised is not None and want.raised is None:
        return Result(case.name, "crashed", got.raised)
    known = testing.ignore_known_differences(want, got)
    if found := _difference(case, want, got):
        return Result(case.name, "wrong", found)
    if crashed and want.raised is None:
        return Result(case.name, "crashed", crashed[0].message)
    reasons = [f.message for f in failures]
    reasons += [f"{b.kind}: {b.explanation}" for c in record.compiles for b in c.breaks]
    if reasons:
        return Result(case.name, "refused", reasons[0])
    return Result(case.name, "known", ", ".join(known)) if known else Result(case.name, "equal")


def _is_refusal(failure: Any) -> bool:
    return bool(failure.kind == "refusal")


def _difference(case: Case, want: testing.ObservedRun, got: testing.ObservedRun) -> str | None:
    value_check = testing.Float64Error(
        lambda: _observed(case, case.function, wide=True), lambda: [_noisy(case, seed) for seed in range(NOISES)]
    )
    return testing.Comparison(value_check if case.values else testing.AnyValue()).compare("", want, got)


# ---- the sweep


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--only", default="", help="operators whose names contain this")
    parser.add_argument("--share", default="0/1", help="the I-th of N shares of the cases")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", help="the dtype of the inputs, such as int64")
    options = parser.parse_args(argv)
    first, _, count = options.share.partition("/")
    warnings.simplefilter("ignore")
    results: list[Result] = []
    started, shown = time.monotonic(), 0.0
    share, dtype = (int(first), int(count)), getattr(torch, options.dtype)
    for case in cases(options.only, share, options.device, dtype):
        results.append(run(case, None if options.backend == "default" else options.backend))
        if results[-1].verdict in ("wrong", "crashed"):
            print(f"\r{results[-1].verdict:8} {results[-1].case}: {results[-1].reason[:300]}", flush=True)
        if time.monotonic() - shown > 5:
            shown = time.monotonic()
            print(f"{len(results):,} cases, {shown - started:.0f} s, at {case.name}", file=sys.stderr, flush=True)
        if len(results) % 500 == 0:
            compiler_core.reset()
    print(table(results))
    return int(any(r.verdict in ("wrong", "crashed") for r in results))


def table(results: Sequence[Result]) -> str:
    counts = collections.Counter(r.verdict for r in results)
    operators = {r.case.partition("[")[0].removesuffix("_") for r in results}
    lines = [
        f"{len(operators):,} operators, {len(results):,} cases: " + ", ".join(f"{counts[v]:,} {v}" for v in VERDICTS)
    ]
    reasons = collections.Counter(r.reason.split("\n")[0][:150] for r in results if r.verdict == "refused")
    lines += [f"  {n:6,} refused: {why}" for why, n in reasons.most_common(60)]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

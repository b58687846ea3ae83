"""PyTorch's own operator database through the core engine, compared with eager.

    python -m tests.operator_sweep [--backend NAME] [--only TEXT] [--share I/N]

For every operator that takes float32 on the CPU, every sample of its inputs and both variants (the
function, and the method that works in place), outputs, gradients, mutated inputs and the state of
the random generator must be eager's.  What came of it is one of

    equal      compiled, and equal to eager
    refused    not compiled, for a reason that the record gives; equal to eager all the same
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
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

import compiler_core
from compiler_core.record import Record

VERDICTS = ("equal", "refused", "wrong", "crashed")
TOLERANCE = 2e-4
UNSTABLE = frozenset({"empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided", "empty_permuted"})
"""Their values are whatever lies in memory: only shapes, strides and types are compared."""


@dataclass(frozen=True)
class Case:
    """One call of one operator: `make` gives a function and fresh arguments for it."""

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


def cases(only: str = "", share: tuple[int, int] = (0, 1)) -> Iterator[Case]:
    """Every case, or each `share[1]`-th of them from `share[0]` on."""
    number = -1
    for op in op_db:
        if only not in op.formatted_name or not op.supports_dtype(torch.float32, "cpu"):
            continue
        for case in _cases_of(op):
            number += 1
            if number % share[1] == share[0]:
                yield case


def _cases_of(op: Any) -> Iterator[Case]:
    gradients = op.supports_autograd
    torch.manual_seed(0)
    samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=gradients))
    values = op.name not in UNSTABLE
    for i, sample in enumerate(samples):
        made = _fresh(sample)
        yield Case(f"{op.formatted_name}[{i}]", _as_users(op.op), made, gradients, values)
        inplace = op.inplace_variant
        if inplace is not None and isinstance(sample.input, torch.Tensor) and not sample.broadcasts_input:
            yield Case(
                f"{op.formatted_name}_[{i}]",
                _in_place(inplace),
                made,
                gradients and op.supports_inplace_autograd,
                values,
            )


def _fresh(sample: Any) -> Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    def leaf(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if value.layout is not torch.strided:
            return value.detach().clone().requires_grad_(value.requires_grad)
        # the same strides and offset into memory of its own
        with torch.no_grad():
            storage = value.untyped_storage().clone()
            made = torch.empty(0, dtype=value.dtype).set_(storage, value.storage_offset(), value.shape, value.stride())
            if value.is_conj() or value.is_neg():
                made = value.detach().clone()
        return made.requires_grad_(value.requires_grad)

    return lambda: tree_map(leaf, (sample.input, tuple(sample.args), dict(sample.kwargs)))


def _in_place(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        return method(x.clone(), *args, **kwargs)

    return call


# ---------------------------------------------------------------- one case


def run(case: Case, backend: str) -> Result:
    """Run a case eagerly and compiled, and compare."""
    try:
        want = _outcome(case, case.function)
    except Exception as error:
        want = error
    with compiler_core.record() as record:
        program = _program(case.function)
        compiled = compiler_core.compile(program, backend=backend)
        try:
            got = _outcome(case, compiled)
        except Exception as error:
            got = error
    return _judge(case, want, got, record)


def _as_users(function: Any) -> Any:
    """The database's own wrappers of operators, as if a user had written them."""
    code = getattr(function, "__code__", None)
    if code is None or "testing" not in Path(code.co_filename).parts:
        return function
    own = code.replace(co_filename=__file__)
    made = types.FunctionType(own, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _program(op: Callable[..., Any]) -> Callable[..., Any]:
    def program(x: Any, *args: Any, **kwargs: Any) -> Any:
        return op(x, *args, **kwargs)

    return program


def _outcome(case: Case, function: Callable[..., Any]) -> Any:
    """Outputs, gradients, arguments afterwards, random state."""
    x, args, kwargs = case.make()
    inputs = [t for t in tree_flatten((x, args, kwargs))[0] if isinstance(t, torch.Tensor)]
    torch.manual_seed(1)
    result = function(x, *args, **kwargs)
    outputs = list(tree_flatten(result)[0])
    gradients = _gradients(outputs, inputs) if case.gradients else []
    return outputs, gradients, inputs, torch.get_rng_state()


def _gradients(outputs: Sequence[Any], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    differentiable = [t for t in outputs if isinstance(t, torch.Tensor) and t.requires_grad]
    wanted = [t for t in inputs if t.requires_grad]
    if not differentiable or not wanted:
        return []
    generator = torch.Generator().manual_seed(2)
    # laid out as the outputs are: a backward of ours is compiled for that, and takes others as copies
    tangents = [torch.empty_like(t).copy_(torch.randn(t.shape, generator=generator)) for t in differentiable]
    return list(torch.autograd.grad(differentiable, wanted, tangents, allow_unused=True))


def _judge(case: Case, want: Any, got: Any, record: Record) -> Result:
    failures = [f for c in record.compiles for f in c.failures]
    crashed = [f for f in failures if not _is_refusal(f)]
    if isinstance(got, Exception):
        if isinstance(want, Exception):
            same = type(want) is type(got)
            return Result(
                case.name,
                "refused" if same else "wrong",
                f"eager raises {type(want).__name__}: {want}; got {type(got).__name__}: {got}",
            )
        return Result(case.name, "crashed", f"{type(got).__name__}: {got}")
    if isinstance(want, Exception):
        return Result(case.name, "wrong", f"eager raises {type(want).__name__}: {want}")
    if found := _difference(want, got, case.values):
        return Result(case.name, "wrong", found)
    if crashed:
        return Result(case.name, "crashed", crashed[0].message)
    reasons = [f.message for f in failures]
    reasons += [f"{b.kind}: {b.explanation}" for c in record.compiles for b in c.breaks]
    return Result(case.name, "refused", reasons[0]) if reasons else Result(case.name, "equal")


def _is_refusal(failure: Any) -> bool:
    return "JointRefused" in (failure.detail or "")


def _difference(want: Any, got: Any, values: bool) -> str:
    for name, a, b in zip(("output", "gradient", "input"), want, got, strict=False):
        if len(a) != len(b):
            return f"{len(b)} {name}s, not {len(a)}"
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            # how a gradient lies in memory is left open: functional formulas need not keep it
            if found := _unequal(x, y, values, strides=name != "gradient"):
                return f"{name} {i}: {found}"
    return "" if torch.equal(want[3], got[3]) else "the random generator is in another state"


def _unequal(x: Any, y: Any, values: bool, strides: bool) -> str:
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        same = type(x) is type(y) and (x == y or x != x)
        return "" if same else f"{y!r}, not {x!r}"
    for name, read in (
        ("dtype", lambda t: t.dtype),
        ("shape", lambda t: t.shape),
        ("requires_grad", lambda t: t.requires_grad),
        ("layout", lambda t: t.layout),
    ):
        if read(x) != read(y):
            return f"{name} {read(y)}, not {read(x)}"
    if strides and x.layout is torch.strided and x.numel() > 1 and x.stride() != y.stride():
        return f"stride {y.stride()}, not {x.stride()}"
    if not values:
        return ""
    x, y = x.detach(), y.detach()
    if x.layout is not torch.strided:
        x, y = x.to_dense(), y.to_dense()
    try:
        torch.testing.assert_close(y, x, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())
    return ""


# ---------------------------------------------------------------- the sweep


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--only", default="", help="operators whose names contain this")
    parser.add_argument("--share", default="0/1", help="the I-th of N shares of the cases")
    options = parser.parse_args(argv)
    first, _, count = options.share.partition("/")
    warnings.simplefilter("ignore")
    results: list[Result] = []
    started, shown = time.monotonic(), 0.0
    for case in cases(options.only, (int(first), int(count))):
        results.append(run(case, options.backend))
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

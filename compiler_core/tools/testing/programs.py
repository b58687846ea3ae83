"""Programs as tests: runs them eagerly and compiled, compares the runs, and counts graphs, breaks and compiles."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from compiler_core.api.compile import compile, record_of
from compiler_core.records import Record
from compiler_core.tools.testing.known_differences import ignore_known_differences
from compiler_core.tools.testing.object_trees import Comparison, ValueCheck
from compiler_core.tools.testing.observed_run import Inputs, WatchedTensors, leaked_tensors, observe, watch_tensors
from compiler_core.tools.testing.value_checks import value_check


@dataclass
class Settings:
    """Settings for runs on another device or with other backends; `tests/programs/conftest.py` sets them."""

    backend_overrides: Mapping[Any, Any] = field(default_factory=dict)
    """Backends that replace those of the tests."""
    tolerance: float = 0.0
    """The minimum tolerance of a replaced backend."""
    counts: bool = True
    """Whether graphs, breaks and compiles are compared with the expected counts."""


settings = Settings()


@dataclass(frozen=True)
class Expected:
    """The expected counts; None: not checked.  `breaks`: the kinds of the graph breaks, in order."""

    graphs: int | None = None
    breaks: Sequence[str] | None = None
    compiles: int | None = None
    refusals: bool = False
    """Whether the compiler may refuse a graph, which PyTorch then runs."""


def same_as_eager(
    graphs: int | None = None,
    breaks: Sequence[str] | None = None,
    compiles: int | None = None,
    *,
    inputs: Inputs | None = None,
    grad: bool = False,
    changes: Sequence[str] = (),
    backend: Any = "eager",
    tolerance: float = 0.0,
    **options: Any,
) -> Callable[[Callable[..., Any]], Callable[[], None]]:
    """Decorator that turns a program into a test that compares it with eager PyTorch.

    There are three calls, two of them with equal arguments; the counts are over all three.

    Args:
        graphs: the expected number of captured graphs; None: not checked.
        breaks: the expected kinds of graph breaks, in order.
        compiles: the expected number of compiles.
        inputs: returns fresh arguments; by default a float tensor of shape (4, 4) for each parameter without a default.
        grad: let floating-point arguments require gradients, and compare gradients.
        changes: the names of globals that the program may change.
        backend: as for `compile`.
        tolerance: relative and absolute; 0 compares bits.
        options: further options of `compile`.

    Returns:
        A function without parameters, which raises AssertionError at the first difference.

    Example::

        @same_as_eager(graphs=1, breaks=[], grad=True)
        def test_sin(x):
            return x.sin()
    """

    def decorate(program: Callable[..., Any]) -> Callable[[], None]:
        def test() -> None:
            expected = Expected(graphs, breaks, compiles)
            check(
                program, inputs, expected, grad=grad, changes=changes, backend=backend, tolerance=tolerance, **options
            )

        test.__name__, test.__qualname__ = program.__name__, program.__qualname__
        test.__doc__, test.__module__ = program.__doc__, program.__module__
        return test

    return decorate


def check(
    program: Callable[..., Any],
    inputs: Inputs | Sequence[Inputs] | None = None,
    expected: Expected | None = None,
    *,
    grad: bool = False,
    changes: Sequence[str] = (),
    backend: Any = "eager",
    tolerance: float = 0.0,
    **options: Any,
) -> Record:
    """Runs a program eagerly and compiled, and raises AssertionError at the first difference.

    Args:
        program: the function.
        inputs: returns fresh arguments, for three calls; or a sequence of such functions, one for each call, of which
            the first is called once more at the end.
        expected: the expected counts over all calls.
        grad, changes, backend, tolerance, options: as for `same_as_eager`.

    Returns:
        The record of the compiled function.

    Raises:
        AssertionError: a difference, a failure of the compiler, a leaked tensor, or a wrong count.

    Example::

        record = check(lambda x: x.sin(), lambda: [torch.randn(3)], Expected(graphs=1))
    """
    if backend in settings.backend_overrides:
        backend, tolerance = settings.backend_overrides[backend], max(tolerance, settings.tolerance)
    compiled = compile(program, backend=backend, strict=True, **options)
    seed = random.randrange(1_000_000)
    runs: list[tuple[WatchedTensors, WatchedTensors]] = []
    raised: list[str] = []
    for call, (at, make) in enumerate(calls(inputs or _tensors_for(program), seed)):
        found = _compare_call(
            program, compiled, make, at, value_check(tolerance), backend, runs, raised, grad=grad, changes=changes
        )
        assert found is None, f"call {call}, seed {at}: {found}"
    leaked = leaked_tensors(runs)
    assert not leaked, f"{leaked}: still alive"
    record = record_of(compiled)
    _check_counts(record, expected or Expected(), raised)
    return record


def _compare_call(
    program: Callable[..., Any],
    compiled: Callable[..., Any],
    make: Inputs,
    seed: int,
    value_check: ValueCheck,
    backend: Any,
    runs: list[tuple[WatchedTensors, WatchedTensors]],
    raised: list[str],
    **options: Any,
) -> str | None:
    """Returns the difference between an eager and a compiled call, or None.

    Adds their tensors to `runs`, and an exception of the eager call to `raised`.
    """
    next_hook_id = RemovableHandle.next_id
    want = observe(program, make, seed, program=program, **options)
    raised += [want.raised] if want.raised is not None else []
    RemovableHandle.next_id = next_hook_id  # hook ids are keys in modules, so both runs need the same ones
    got = observe(compiled, make, seed, program=program, **options)
    if backend != "eager":
        ignore_known_differences(want, got)
    runs.append((watch_tensors(want), watch_tensors(got)))
    found = Comparison(value_check).compare("", want, got)
    if found is None or settings.counts:
        return found
    # Some kernels of a GPU add in another order at each run: a difference that eager itself shows does not count.
    again = observe(program, make, seed, program=program, **options)
    own_difference = Comparison(value_check).compare("", want, again)
    if own_difference is not None and _path_of(own_difference) == _path_of(found):
        return None
    return found


def _path_of(difference: str) -> str:
    return difference.partition(":")[0]


def difference(want: Any, got: Any, tolerance: float = 0.0) -> str | None:
    """Compares two objects and everything they hold.

    Args:
        want: the expected object.
        got: the other one.
        tolerance: of floats and tensor elements, relative and absolute; 0 compares bits.

    Returns:
        The first difference in values, types, properties of tensors, identity of objects or shared memory, with its
        path; None if there is none.

    Example::

        assert difference({"a": torch.ones(2)}, compiled()) is None
    """
    return Comparison(value_check(tolerance)).compare("", want, got)


def calls(inputs: Inputs | Sequence[Inputs], seed: int) -> list[tuple[int, Inputs]]:
    """Returns the calls to compare, each as a seed and a function that returns the arguments; see `check`."""
    if callable(inputs):
        return [(seed, inputs), (seed, inputs), (seed + 1, inputs)]
    return [(seed + i, make) for i, make in enumerate(inputs)] + [(seed, inputs[0])]


def graph_count(record: Record) -> int:
    """Returns the number of captured graphs."""
    return sum(a.pane == "captured" for c in record.compiles for a in c.artifacts)


def break_kinds(record: Record) -> list[str]:
    """Returns the kinds of all graph breaks, in order."""
    return [b.kind for c in record.compiles for b in c.breaks]


def _check_counts(record: Record, expected: Expected, raised: Sequence[str]) -> None:
    failures = [f for c in record.compiles for f in c.failures]
    # a replaced backend may refuse what the test's own compiles; PyTorch then runs it
    if expected.refusals or not settings.counts:
        failures = [f for f in failures if f.kind != "refusal"]
    assert not failures, "\n".join(f.detail or f.message for f in failures)
    if not settings.counts:
        return
    got = (graph_count(record), break_kinds(record), len(record.compiles))
    wanted = (expected.graphs, expected.breaks, expected.compiles)
    for name, want, found in zip(("graphs", "breaks", "compiles"), wanted, got, strict=True):
        if want is not None:
            want = list(want) if isinstance(want, Sequence) else want
            assert found == want, f"{name}: {found}, not {want}\n{_summary(record, raised)}"


def _summary(record: Record, raised: Sequence[str]) -> str:
    """Returns a line for each compile and for each exception that both calls raised."""
    lines = [f"raised {error}" for error in raised]
    for c in record.compiles:
        why = "; ".join(b.explanation for b in c.breaks)
        cause = f" because {c.cause.guard}, got {c.cause.got}" if c.cause else ""
        lines.append(f"{c.id} {c.outcome} {c.reason}{cause} {why}")
    return "\n".join(lines)


def _tensors_for(program: Callable[..., Any]) -> Inputs:
    count = sum(p.default is p.empty for p in inspect.signature(program).parameters.values())
    return lambda: [torch.randn(4, 4) for _ in range(count)]

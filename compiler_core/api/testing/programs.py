"""Programs as tests: run eagerly and compiled, compared, and what compiling them took is counted."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from compiler_core.api.compile import compile, record_of
from compiler_core.api.testing.judges import judge
from compiler_core.api.testing.known import forgiven
from compiler_core.api.testing.trees import Comparison, Judge
from compiler_core.api.testing.world import Inputs, Watched, kept_alive, observe, watched
from compiler_core.records import Record


@dataclass
class Settings:
    """How tests run elsewhere than on the CPU: `tests/programs/conftest.py` sets it."""

    instead: Mapping[Any, Any] = field(default_factory=dict)
    """The backends that are taken in the place of others."""
    tolerance: float = 0.0
    """The tolerance at least, of backends that were put in the place of another."""
    counts: bool = True
    """Whether graphs, breaks and compiles are counted."""


settings = Settings()


@dataclass(frozen=True)
class Expected:
    """What compiling must take; None where it does not matter."""

    graphs: int | None = None
    breaks: Sequence[str] | None = None
    compiles: int | None = None


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
) -> Callable[[Callable[..., Any]], Callable[[], None]]:
    """Make a test of a program.

    `inputs` makes fresh arguments (a tensor of shape (4, 4) for each parameter where it is left
    out); with `grad` they require gradients, which are compared too; `changes` names the globals
    that the program may change.  `graphs`, `breaks` (their kinds) and `compiles` are counted over
    three calls, two of which have equal arguments.
    """

    def decorate(program: Callable[..., Any]) -> Callable[[], None]:
        def test() -> None:
            expected = Expected(graphs, breaks, compiles)
            check(program, inputs, expected, grad=grad, changes=changes, backend=backend, tolerance=tolerance)

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
) -> Record:
    """Run `program` eagerly and compiled and raise AssertionError at the first difference.

    Several `inputs` are the arguments of so many calls; the first is called once more at the end.
    """
    if backend in settings.instead:
        backend, tolerance = settings.instead[backend], max(tolerance, settings.tolerance)
    compiled = compile(program, backend=backend, strict=True)
    seed = random.randrange(1_000_000)
    runs: list[tuple[Watched, Watched]] = []
    for call, (at, make) in enumerate(calls(inputs or _tensors_for(program), seed)):
        found = _differs(program, compiled, make, at, judge(tolerance), backend, runs, grad=grad, changes=changes)
        assert found is None, f"call {call}, seed {at}: {found}"
    kept = kept_alive(runs)
    assert not kept, f"{kept}: still alive"
    record = record_of(compiled)
    _count(record, expected or Expected())
    return record


def _differs(
    program: Callable[..., Any],
    compiled: Callable[..., Any],
    make: Inputs,
    seed: int,
    how: Judge,
    backend: Any,
    runs: list[tuple[Watched, Watched]],
    **more: Any,
) -> str | None:
    """What differs between an eager and a compiled call; `runs` gets what is to be gone when both are dropped."""
    hooks = RemovableHandle.next_id
    want = observe(program, make, seed, program=program, **more)
    RemovableHandle.next_id = hooks  # the keys that modules keep their hooks by
    got = observe(compiled, make, seed, program=program, **more)
    if backend != "eager":
        forgiven(want, got)
    runs.append((watched(want), watched(got)))
    found = Comparison(how).compare("", want, got)
    if found is not None and not settings.counts:  # some of a GPU's kernels add in another order each time
        again = observe(program, make, seed, program=program, **more)
        unsteady = Comparison(how).compare("", want, again)
        return None if unsteady is not None and _where(unsteady) == _where(found) else found
    return found


def _where(found: str) -> str:
    return found.partition(":")[0]


def difference(want: Any, got: Any, tolerance: float = 0.0) -> str | None:
    """Where two object trees differ in values, types, tensor facts or in which objects are one."""
    return Comparison(judge(tolerance)).compare("", want, got)


def calls(inputs: Inputs | Sequence[Inputs], seed: int) -> list[tuple[int, Inputs]]:
    """The calls that are compared: a seed and the arguments of each."""
    if callable(inputs):
        return [(seed, inputs), (seed, inputs), (seed + 1, inputs)]
    return [(seed + i, make) for i, make in enumerate(inputs)] + [(seed, inputs[0])]


def graph_count(record: Record) -> int:
    """How many graphs were captured."""
    return sum(a.pane == "captured" for c in record.compiles for a in c.artifacts)


def break_kinds(record: Record) -> list[str]:
    """The kinds of all graph breaks, in the order in which they were met."""
    return [b.kind for c in record.compiles for b in c.breaks]


def _count(record: Record, expected: Expected) -> None:
    failures = [f for c in record.compiles for f in c.failures]
    if not settings.counts:  # another backend may refuse what the test's own takes; PyTorch runs it then
        failures = [f for f in failures if f.kind != "refusal"]
    assert not failures, "\n".join(f.detail or f.message for f in failures)
    if not settings.counts:
        return
    got = (graph_count(record), break_kinds(record), len(record.compiles))
    wanted = (expected.graphs, expected.breaks, expected.compiles)
    for name, want, found in zip(("graphs", "breaks", "compiles"), wanted, got, strict=True):
        if want is not None:
            found = list(found) if isinstance(found, list) else found
            want = list(want) if isinstance(want, Sequence) else want
            assert found == want, f"{name}: {found}, not {want}\n{_story(record)}"


def _story(record: Record) -> str:
    lines = []
    for c in record.compiles:
        why = "; ".join(b.explanation for b in c.breaks)
        cause = f" because {c.cause.guard}, got {c.cause.got}" if c.cause else ""
        lines.append(f"{c.id} {c.outcome} {c.reason}{cause} {why}")
    return "\n".join(lines)


def _tensors_for(program: Callable[..., Any]) -> Inputs:
    count = sum(p.default is p.empty for p in inspect.signature(program).parameters.values())
    return lambda: [torch.randn(4, 4) for _ in range(count)]

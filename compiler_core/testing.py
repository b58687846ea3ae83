"""Compare compiled programs with eager PyTorch, and count what compiling them took.

The body of a test is the program::

    @same_as_eager(graphs=2, breaks=["print"])
    def test_print(x):
        y = x.cos()
        print("here")
        return y.sin()

Arguments, results, globals that were named, gradients, printed text, exceptions and the state of
the random generator must all be what eager leaves, and so must be which of these objects are one
and the same.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import math
import random
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from compiler_core.api import compile, record_of
from compiler_core.record import Record

Inputs = Callable[[], Sequence[Any]]


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
    compiled = compile(program, backend=backend, strict=True)
    seed = random.randrange(1_000_000)
    for call, (at, make) in enumerate(_calls(inputs or _tensors_for(program), seed)):
        hooks = RemovableHandle.next_id
        want = _outcome(program, program, make, at, grad, changes)
        RemovableHandle.next_id = hooks  # the keys that modules keep their hooks by
        got = _outcome(compiled, program, make, at, grad, changes)
        found = difference(want, got, tolerance)
        assert found is None, f"call {call}, seed {at}: {found}"
    record = record_of(compiled)
    _count(record, expected or Expected())
    return record


def _calls(inputs: Inputs | Sequence[Inputs], seed: int) -> list[tuple[int, Inputs]]:
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
    # what a graph raises as it runs may be the program's own, and caught in it
    failures = [f.detail or f.message for c in record.compiles for f in c.failures if f.stage != "run"]
    assert not failures, "\n".join(failures)
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


# ---------------------------------------------------------------- one run


@dataclass
class Outcome:
    """All that a run leaves behind."""

    result: Any = None
    raised: str | None = None
    arguments: Sequence[Any] = ()
    gradients: Sequence[Any] = ()
    raised_backward: str | None = None
    printed: str = ""
    grad_enabled: bool = True
    globals: Mapping[str, Any] = field(default_factory=dict)
    random_state: torch.Tensor | None = None


def _outcome(
    fn: Callable[..., Any], program: Any, make: Inputs, seed: int, grad: bool, changes: Sequence[str]
) -> Outcome:
    torch.manual_seed(seed)
    arguments = tuple(make())
    if grad:
        for tensor in filter(torch.is_tensor, torch.utils._pytree.tree_leaves(arguments)):
            if tensor.is_leaf:
                tensor.requires_grad_(tensor.is_floating_point())
    f_globals = inspect.unwrap(program).__globals__ if changes else {}
    before = {name: copy.deepcopy(f_globals[name]) for name in changes if name in f_globals}
    outcome, grad_enabled = Outcome(arguments=arguments), torch.is_grad_enabled()
    text = io.StringIO()
    try:
        with contextlib.redirect_stdout(text):
            outcome.result = fn(*arguments)
    except Exception as error:
        outcome.raised = f"{type(error).__name__}: {error}"
    finally:
        outcome.globals = {name: f_globals[name] for name in changes if name in f_globals}
        for name in changes:
            f_globals.pop(name, None)
        f_globals.update(before)
    outcome.printed, outcome.random_state = text.getvalue(), torch.get_rng_state()
    outcome.grad_enabled = torch.is_grad_enabled()
    torch._C._set_grad_enabled(grad_enabled)
    if grad and outcome.raised is None:
        try:
            outcome.gradients = _gradients(outcome)
        except RuntimeError as error:
            outcome.raised_backward = type(error).__name__
    return outcome


def _gradients(outcome: Outcome) -> list[torch.Tensor | None]:
    wanted = [t for t in _tensors(outcome.result) if t.requires_grad and t.grad_fn is not None]
    if wanted:
        torch.autograd.backward([t.square().sum() for t in wanted])
    return [t.grad for t in _tensors(outcome.arguments) if t.is_leaf]


def _tensors(obj: Any, seen: set[int] | None = None) -> Iterable[torch.Tensor]:
    """All tensors that `obj` holds, each once."""
    seen = set() if seen is None else seen
    if id(obj) in seen:
        return
    seen.add(id(obj))
    if isinstance(obj, torch.Tensor):
        yield obj
        return
    for _, part in _parts(obj):
        yield from _tensors(part, seen)


# ---------------------------------------------------------------- the comparison

_PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, range, slice)


def _parts(obj: Any) -> list[tuple[str, Any]]:
    """What an object holds, by name."""
    if isinstance(obj, Mapping):
        return [(f"[{k!r}]", v) for k, v in obj.items()]
    if isinstance(obj, (list, tuple)):
        return [(f"[{i}]", v) for i, v in enumerate(obj)]
    if isinstance(obj, types.FunctionType):
        cells = zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=True)
        return [(f".{name}", _contents(c)) for name, c in cells] + [(".__defaults__", obj.__defaults__)]
    if isinstance(obj, types.MethodType):
        return [(".__self__", obj.__self__), (".__func__", obj.__func__)]
    if isinstance(obj, (type, types.ModuleType, *_PLAIN)):
        return []
    return [(f".{k}", v) for k, v in vars(obj).items()] if hasattr(obj, "__dict__") else []


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "nothing"


def _made_twice(one: type, other: type) -> bool:
    """Whether both are the class that a program makes anew in each call."""
    name = one.__qualname__
    return "<locals>" in name and (name, one.__module__) == (other.__qualname__, other.__module__)


def difference(want: Any, got: Any, tolerance: float = 0.0) -> str | None:
    """Where two object trees differ in values, types, tensor facts or in which objects are one."""
    return _Comparison(tolerance).compare("", want, got)


def _fact(tensor: torch.Tensor, name: str) -> Any:
    try:
        return getattr(tensor, name)
    except RuntimeError as error:  # of a view that autograd has lost track of
        return str(error)


class _Comparison:
    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self.pairs: dict[int, int] = {}
        self.back: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.shown: dict[int, int] = {}

    def compare(self, path: str, want: Any, got: Any) -> str | None:
        if isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor):
            return self._tensors(path, want, got)
        if type(want) is not type(got) and not _made_twice(type(want), type(got)):
            return f"{path}: {got!r}, not {want!r}"
        if self.tolerance and type(want) is float and math.isclose(want, got, rel_tol=self.tolerance):
            return None
        if isinstance(want, (*_PLAIN, frozenset, set)):
            same = want == got or (want != want and got != got)
            return None if same and repr(want) == repr(got) else f"{path}: {got!r}, not {want!r}"
        known = self._one_object(path, want, got)
        if known is not None:
            return known or None
        mine, theirs = _parts(want), _parts(got)
        if [n for n, _ in mine] != [n for n, _ in theirs]:
            return f"{path}: holds {[n for n, _ in theirs]}, not {[n for n, _ in mine]}"
        for (name, a), (_, b) in zip(mine, theirs, strict=True):
            found = self.compare(path + name, a, b)
            if found is not None:
                return found
        return None

    def _one_object(self, path: str, want: Any, got: Any) -> str | None:
        """None for a pair that is new, else the difference or an empty text."""
        if isinstance(want, tuple) and not want:
            return ""
        if id(want) in self.pairs or id(got) in self.back:
            same = self.pairs.get(id(want)) == id(got) and self.back.get(id(got)) == id(want)
            return "" if same else f"{path}: is another object than eager's"
        self.pairs[id(want)], self.back[id(got)] = id(got), id(want)
        return None

    def _tensors(self, path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
        known = self._one_object(path, want, got)
        if known:
            return known
        for fact in ("dtype", "device", "shape", "requires_grad", "is_leaf"):
            a, b = _fact(want, fact), _fact(got, fact)
            if a != b:
                return f"{path}.{fact}: {b}, not {a}"
        if type(want) is not type(got) or self._strides(want) != self._strides(got):
            return f"{path}: {type(got).__name__} {got.stride()}, not {type(want).__name__} {want.stride()}"
        if not self.tolerance and want.numel() and not want._is_zerotensor():  # such a gradient has no memory
            ours, theirs = want.untyped_storage().data_ptr(), got.untyped_storage().data_ptr()
            if self.storages.setdefault(ours, theirs) != theirs or self.shown.setdefault(theirs, ours) != ours:
                return f"{path}: does not share memory as eager's does"
        return self._values(path, want.detach(), got.detach())

    def _strides(self, tensor: torch.Tensor) -> tuple[int, ...]:
        return tensor.stride()

    def _values(self, path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
        if torch.equal(want, got) or (self.tolerance == 0 and torch.equal(want.isnan(), got.isnan()) and torch.equal(
            want.nan_to_num(), got.nan_to_num())):  # fmt: skip
            return None
        if self.tolerance and torch.allclose(want, got, self.tolerance, self.tolerance, equal_nan=True):
            return None
        return f"{path}: {got}, not {want}"


__all__ = ["Expected", "break_kinds", "check", "difference", "graph_count", "same_as_eager"]

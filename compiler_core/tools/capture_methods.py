"""Captures a function by each of PyTorch's methods, and checks what each result does.

`torch.jit.trace` and `torch.fx.symbolic_trace` record the operations of one run, so that what depends on the data of
that run is lost.  Such a result is silently wrong for other inputs.  So each result is also called with arguments made
from the given ones (`_variants`): other values, other numbers and other sizes.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch

from compiler_core.api.compile import compile
from compiler_core.errors import UsageError
from compiler_core.hook.failures import first_line
from compiler_core.records.timings import table_lines
from compiler_core.tools.explain import graph_collector
from compiler_core.tools.measure import preserved_state
from compiler_core.tools.stock.uncached import uncached, without_recompile_limit
from compiler_core.tools.testing import Close, Comparison, ObservedRun, observe
from compiler_core.tools.testing.observed_run import external_state, restored_tensors
from compiler_core.tools.timing.saved_state import SavedState
from compiler_core.torch_private import tree_leaves, tree_map, tree_map_only

Verdict = Literal["right", "error", "silently wrong"]
TOLERANCE = 1e-4
"""Values may differ by this, relative and absolute: kernels of a captured graph may sum in another order."""
_ORDINALS = ("first", "second")
_COMPARED = ("raised", "result", "arguments", "printed", "outside")
_MEANING = {"raised": "exception", "arguments": "arguments after the call", "printed": "printed text"}


@dataclass(frozen=True)
class CaptureResult:
    """What one method captured, and what it does when called."""

    method: str
    verdict: Verdict
    message: str
    """The error, or the first difference of each call from plain PyTorch; of a right result, what was checked."""
    graphs: tuple[str, ...]
    """The code of each captured graph."""
    operations: int
    """The number of operations in all graphs."""
    modules: tuple[torch.fx.GraphModule, ...]
    """The graphs as modules, of the methods that make such."""


@dataclass(frozen=True)
class CaptureComparison:
    """The results of all methods; `str` prints them as a table."""

    rows: tuple[CaptureResult, ...]

    def __getitem__(self, method: str) -> CaptureResult:
        return next(row for row in self.rows if row.method == method)

    def __str__(self) -> str:
        head = ("method", "verdict", "graphs", "operations", "")
        return "\n".join(table_lines([head, *map(_cells, self.rows)]))


def _cells(row: CaptureResult) -> tuple[str, ...]:
    counts = (str(len(row.graphs)), str(row.operations)) if row.graphs else ("", "")
    return row.method, row.verdict, *counts, row.message


def capture_methods(
    fn: Callable[..., Any],
    args: Sequence[Any],
    other_args: Sequence[Any] | None = None,
    *,
    concrete_args: Mapping[str, Any] | None = None,
) -> CaptureComparison:
    """Captures `fn` with each of PyTorch's methods and with ours, and compares each result with plain PyTorch.

    A result is called with copies of `args` and of `other_args`, each time on the state that `fn` has now: what a run
    changes (attributes, containers, global names) is restored after it.  It is *right* if all that `observe` sees is as
    in plain PyTorch: values, exceptions, changed arguments, printed text, tensors and modules outside the function.  It
    is an *error* if the method refuses the function, or its result refuses arguments that the function takes, and else
    *silently wrong*.

    Then it is called with arguments made from `args`, of those that plain PyTorch takes: tensors of other values, other
    numbers, and other sizes.  What differs there is silently wrong, too.  Of a result that is right, `message` says
    what was checked; it may refuse other numbers and sizes, as `torch.export` does, which is said as well.

    Args:
        fn: a function or module.  It runs several times.
        args: the arguments to capture with.
        other_args: the arguments of a second call: of other values, which take another branch, or of other sizes.
        concrete_args: for `torch.fx.symbolic_trace`, the values of arguments that are not traced; all, by default, in
            the row "with concrete_args".

    Returns:
        One row for each method.

    Raises:
        UsageError: plain PyTorch raises an exception with `args`.

    Example::

        def f(x):
            return x.relu() if x.sum() > 0 else x.neg()

        print(compiler_core.capture_methods(f, (torch.ones(3),), (-torch.ones(3),)))
    """
    calls = [tuple(args), *([tuple(other_args)] if other_args is not None else [])]
    with _quiet(), preserved_state():
        return _compared(fn, calls, concrete_args)


def _compared(
    fn: Callable[..., Any], calls: Sequence[tuple[Any, ...]], concrete_args: Mapping[str, Any] | None
) -> CaptureComparison:
    state = SavedState([fn, *calls])
    with state.preserved():
        wanted = [_observed(fn, fn, call, seed, state) for seed, call in enumerate(calls)]
        if wanted[0].raised:
            raise UsageError(f"the call itself raises {wanted[0].raised}")
        given = enumerate(zip(calls, wanted, strict=True))
        tries = [_Try(f"the {_ORDINALS[at]} arguments", call, at, want) for at, (call, want) in given]
        for seed, (what, call) in enumerate(_variants(calls[0]), len(calls)):
            want = _observed(fn, fn, call, seed, state)
            if not want.raised:
                tries.append(_Try(what, call, seed, want, is_given=False))
        methods = _methods(fn, lambda: _copied(calls[0]), concrete_args)
        rows = (_result(name, method, fn, tries, state) for name, method in methods.items())
        return CaptureComparison(tuple(rows))


@dataclass(frozen=True)
class _Try:
    """A call with which captured functions are compared, and what plain PyTorch does."""

    what: str
    args: tuple[Any, ...]
    seed: int
    wanted: ObservedRun
    is_given: bool = True


# ---- other arguments ---------------------------------------------------------------------------


def _variants(args: tuple[Any, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yields arguments made from `args`, each with what they are: branches on values and sizes take another way."""
    leaves = tree_leaves(args)
    tensors = [each for each in leaves if _can_vary(each)]
    generator = torch.Generator().manual_seed(0)
    if tensors:
        for what, change in _OTHER_VALUES.items():
            yield what, _with_tensors(args, partial(change, generator=generator))
    if any(type(each) in _OTHER_NUMBERS for each in leaves):
        for what, step in (("greater numbers", 1), ("negative numbers", -1)):
            yield what, tree_map(partial(_other_number, step=step), args)
    sizes = sorted({size for tensor in tensors for size in tensor.shape if size > 1}, reverse=True)
    for size in sizes[:_SIZES]:
        for other in (size + 1, size - 1):
            what = f"size {other} for {size}"
            yield what, _with_tensors(args, partial(_resized, size=size, other=other, generator=generator))


_SIZES = 2
"""The most sizes that are replaced by others."""


def _can_vary(leaf: object) -> bool:
    return type(leaf) in (torch.Tensor, torch.nn.Parameter) and leaf.layout is torch.strided  # type: ignore[attr-defined]


def _with_tensors(args: tuple[Any, ...], change: Callable[[torch.Tensor], torch.Tensor]) -> tuple[Any, ...]:
    def changed(leaf: Any) -> Any:
        return change(leaf.detach()).requires_grad_(leaf.requires_grad) if _can_vary(leaf) else leaf

    result: tuple[Any, ...] = tree_map(changed, args)
    return result


def _negated(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return tensor.logical_not() if tensor.dtype == torch.bool else -tensor


def _drawn(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _random_like(tensor, tensor.shape, generator)


def _large(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return tensor if tensor.dtype == torch.bool else tensor.abs() * 100 + 1


_OTHER_VALUES: dict[str, Callable[..., torch.Tensor]] = {
    "negated values": _negated,
    "zeros": lambda tensor, generator: torch.zeros_like(tensor),
    "random values": _drawn,
    "other random values": _drawn,
    "large values": _large,
}


def _random_like(tensor: torch.Tensor, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Returns random values as those of `tensor`: of whole numbers, within their range."""
    if tensor.is_floating_point() or tensor.is_complex():
        drawn = torch.randn(tuple(shape), generator=generator, dtype=torch.float64)
    else:
        low, high = (int(tensor.min()), int(tensor.max())) if tensor.numel() else (0, 0)
        drawn = torch.randint(low, high + 1, tuple(shape), generator=generator)
    return drawn.to(tensor.device, tensor.dtype)


def _resized(tensor: torch.Tensor, size: int, other: int, generator: torch.Generator) -> torch.Tensor:
    shape = [other if each == size else each for each in tensor.shape]
    return _random_like(tensor, shape, generator)


_OTHER_NUMBERS: dict[type, Callable[[Any, int], Any]] = {
    bool: lambda value, _: not value,
    int: lambda value, step: value + 1 if step > 0 else -value - 1,
    float: lambda value, step: value + 0.5 if step > 0 else -value - 0.5,
}


def _other_number(leaf: Any, step: int) -> Any:
    change = _OTHER_NUMBERS.get(type(leaf))
    return leaf if change is None else change(leaf, step)


def _observed(
    call: Callable[..., Any], fn: Callable[..., Any], args: tuple[Any, ...], seed: int, state: SavedState
) -> ObservedRun:
    """Runs `call`, which is `fn` or was captured from it, on the state that `fn` had at the start."""
    state.restore()
    return observe(call, lambda: _copied(args), seed, program=fn)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Context manager that drops what PyTorch logs of failures, which the rows report, and lifts its recompile limit.

    Stock keeps what it compiled of a module's `forward` for an earlier comparison.
    """
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with without_recompile_limit():
            yield
    finally:
        logging.disable(disabled)


@dataclass
class _Captured:
    """A captured function, and its graphs; those of a compiled function are known after its calls."""

    call: Callable[..., Any]
    modules: Sequence[torch.fx.GraphModule] = ()
    script: Any = None
    """A function or module of TorchScript."""


def _methods(
    fn: Callable[..., Any], make_args: Callable[[], tuple[Any, ...]], concrete_args: Mapping[str, Any] | None
) -> dict[str, Callable[[], _Captured]]:
    """Returns a function for each method, which captures `fn`; `make_args` returns fresh arguments."""
    concrete = dict(concrete_args) if concrete_args is not None else _named(fn, make_args())
    return {
        "torch.jit.trace": lambda: _scripted(
            torch.jit.trace(uncached(fn), make_args(), check_trace=False)  # type: ignore[no-untyped-call]
        ),
        "torch.jit.script": lambda: _scripted(torch.jit.script(fn)),
        "torch.fx.symbolic_trace": lambda: _traced(fn, None),
        "torch.fx.symbolic_trace with concrete_args": lambda: _traced(fn, concrete),
        "torch.export": lambda: _exported(fn, make_args()),
        "torch.compile": lambda: _compiled(lambda backend: torch.compile(uncached(fn), backend=backend)),
        "compiler_core.compile": lambda: _compiled(lambda backend: compile(fn, backend=backend)),
    }


def _scripted(script: Any) -> _Captured:
    return _Captured(script, script=script)


def _traced(fn: Callable[..., Any], concrete_args: dict[str, Any] | None) -> _Captured:
    module = torch.fx.symbolic_trace(fn, concrete_args=concrete_args)
    return _Captured(module, [module])


def _exported(fn: Callable[..., Any], args: tuple[Any, ...]) -> _Captured:
    module = torch.export.export(fn if isinstance(fn, torch.nn.Module) else _Wrapper(fn), args).module()
    assert isinstance(module, torch.fx.GraphModule)
    return _Captured(module, [module])


def _compiled(make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> _Captured:
    modules, backend = graph_collector()
    return _Captured(make(backend), modules)


class _Wrapper(torch.nn.Module):
    """A module that calls a function, since `torch.export` takes modules only."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any) -> Any:
        return self.fn(*args)


def _named(fn: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    """Returns the arguments by the names of their parameters."""
    function = fn.forward if isinstance(fn, torch.nn.Module) else fn
    try:
        return dict(inspect.signature(function).bind(*args).arguments)
    except (TypeError, ValueError):  # a function of C, or wrong arguments, on which the methods report
        return {}


def _copied(args: tuple[Any, ...]) -> tuple[Any, ...]:
    def copied(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)

    result: tuple[Any, ...] = tree_map_only(torch.Tensor, copied, args)
    return result


# ---- one method --------------------------------------------------------------------------------


def _result(
    name: str,
    method: Callable[[], _Captured],
    fn: Callable[..., Any],
    tries: Sequence[_Try],
    state: SavedState,
) -> CaptureResult:
    state.restore()
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            restored_tensors(external_state(fn)),
        ):
            warnings.simplefilter("ignore")
            captured = method()
    except Exception as error:
        message = f"not captured: {type(error).__name__}: {_reason(error)}"
        return CaptureResult(name, "error", message, (), 0, ())
    given = [each for each in tries if each.is_given]
    verdict, message = _checked(captured, fn, given, state)
    (graphs, operations), modules = _contents(captured), tuple(captured.modules)  # other sizes may add some
    if verdict == "right":
        verdict, message = _checked_with_others(captured, fn, tries, state)
    return CaptureResult(name, verdict, message, graphs, operations, modules)


def _reason(error: Exception) -> str:
    """Returns the line of an error's message that names the cause; TorchScript's first lines may be empty."""
    return first_line(str(error).strip()) or "no message"


def _checked(
    captured: _Captured, fn: Callable[..., Any], tries: Sequence[_Try], state: SavedState
) -> tuple[Verdict, str]:
    verdict: Verdict = "right"
    messages = []
    for each in tries:
        got = _observed(captured.call, fn, each.args, each.seed, state)
        difference = _difference(each.wanted, got)
        if difference:
            messages.append(f"with {each.what}: {difference}")
            is_refused = got.raised and not each.wanted.raised and verdict != "silently wrong"
            verdict = "error" if is_refused else "silently wrong"
    return verdict, "; ".join(messages)


def _checked_with_others(
    captured: _Captured, fn: Callable[..., Any], tries: Sequence[_Try], state: SavedState
) -> tuple[Verdict, str]:
    """Checks a result, which is right for the given arguments, with others; the message says what was checked."""
    same, refused = [], []
    for each in tries:
        if each.is_given:
            same.append(each.what)
            continue
        got = _observed(captured.call, fn, each.args, each.seed, state)
        if got.raised and not each.wanted.raised:
            refused.append(each.what)
        elif difference := _difference(each.wanted, got):
            return "silently wrong", f"with {each.what}: {difference}"
        else:
            same.append(each.what)
    checked = f"checked with {', '.join(same)}"
    return "right", f"{checked}; it refuses {', '.join(refused)}" if refused else checked


def _difference(want: ObservedRun, got: ObservedRun) -> str:
    """Returns the exception that only the captured function raises, or the first difference; empty if there is none."""
    if got.raised and not want.raised:
        return first_line(got.raised)
    for part in _COMPARED:
        difference = Comparison(Close(TOLERANCE)).compare("", getattr(want, part), getattr(got, part))
        if difference:
            return f"{_MEANING.get(part, part)} {_one_line(difference)}"
    return ""


def _one_line(difference: str) -> str:
    """Returns a difference without line breaks, and tensors with their first elements only."""
    text = " ".join(difference.removeprefix(": ").split())
    return re.sub(r"tensor\(([^)]{40})[^)]+\)", r"tensor(\1...)", text)


def _contents(captured: _Captured) -> tuple[tuple[str, ...], int]:
    """Returns the code of each graph, and the number of operations."""
    if captured.script is not None:
        return (captured.script.code,), _count_operations(captured.script.inlined_graph)
    graphs = tuple(module.code.strip() for module in captured.modules)
    return graphs, sum(node.op.startswith("call_") for module in captured.modules for node in module.graph.nodes)


def _count_operations(block: Any) -> int:
    """Returns the number of operations in a graph or block of TorchScript, and in the blocks of its loops."""
    nodes = list(block.nodes())
    inner = sum(_count_operations(each) for node in nodes for each in node.blocks())
    return inner + sum(not node.kind().startswith("prim::") for node in nodes)

"""Runs a compile without checking guards: a function that runs one, and a dispatcher to any of them."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from compiler_core.api.compiled import CompiledModule, is_compiled, region_of, with_code
from compiler_core.errors import UsageError
from compiler_core.tools.stock.cached_compiles import function_and_self
from compiler_core.tools.stock.hooks.torch_internals import cache_entries


def pin(compiled: Any, compile_id: str | None = None) -> Any:
    """Returns a function that runs one compile of `compiled` and checks no guards.

    You promise that all later calls are like the ones that the compile was made for: the same types, shapes, attributes
    and globals.  Otherwise the result is wrong or the process crashes.  Code after a graph break still checks its
    guards.  Later compiles and `reset` do not affect the result.

    Args:
        compiled: a function, method, module or partial that `compile` returned, after its first call; or a function or
            module that ``torch.compile`` returned, whose compile has no graph break.
        compile_id: the compile to pin, such as ``0/1``; required if there are several.

    Raises:
        UsageError: there is no such compile, or there are several and `compile_id` is not given, or it is one of stock
            with a graph break.

    Example::

        compiled = compiler_core.compile(f)
        compiled(x)
        fast = compiler_core.pin(compiled)
        fast(x)
    """
    if isinstance(compiled, functools.partial):
        return functools.partial(pin(compiled.func, compile_id), *compiled.args, **compiled.keywords)
    if isinstance(compiled, CompiledModule):
        return types.MethodType(pin(compiled._compiled_forward, compile_id), compiled._orig_mod)
    if isinstance(compiled, types.MethodType):
        return types.MethodType(pin(compiled.__func__, compile_id), compiled.__self__)
    if is_compiled(compiled):
        fn, region = compiled.__wrapped__, region_of(compiled)
        chosen = _chosen(region.installed(), compile_id, getattr(compiled, "__name__", "the function"))
        return _pinned(compiled, fn, chosen, region.wrap_pinned)
    fn, bound = function_and_self(compiled)
    codes = _stock_codes(fn)
    if not codes:
        raise UsageError(f"{fn.__name__} was not made by compiler_core.compile, and torch.compile has no compile of it")
    chosen = _chosen(codes, compile_id, fn.__name__)
    pinned = _pinned(fn, fn, chosen, None)
    return types.MethodType(pinned, *bound) if bound else pinned


class Code(Protocol):
    """One compile of a function: of ours (`InstalledCode`), or of stock."""

    @property
    def id(self) -> str: ...

    @property
    def replacement(self) -> types.CodeType: ...

    @property
    def breaks(self) -> bool: ...

    @property
    def manager(self) -> Any: ...


@dataclass(frozen=True)
class _StockCode:
    """An entry of Dynamo's cache."""

    id: str
    replacement: types.CodeType
    breaks: bool
    manager: Any


def _stock_codes(fn: types.FunctionType) -> list[_StockCode]:
    """Returns the compiles of stock, oldest first."""
    return [
        _StockCode(
            str(entry.compile_id),
            entry.code,
            any(name.startswith("__resume_at") for name in entry.code.co_names),
            entry.guard_manager,
        )
        for entry in reversed(cache_entries(fn.__code__))
    ]


def _pinned(compiled: Any, fn: types.FunctionType, chosen: Code, wrap: Callable[..., Any] | None) -> Any:
    """Returns a function that runs a compile; `wrap` is for one with graph breaks, whose rest checks its guards."""
    if chosen.breaks:
        if wrap is None:
            raise UsageError(f"compile {chosen.id} of {fn.__name__} has a graph break; of stock, only whole graphs")
        return functools.wraps(compiled)(wrap(with_code(fn, chosen.replacement)))
    # The file name tells other compiled functions that call this one not to capture it.
    code = chosen.replacement.replace(co_filename=f"<cutaway {fn.__name__} {chosen.id}>")
    return functools.wraps(compiled)(with_code(fn, code))


class Dispatcher:
    """Calls a compiled function by the compile that you choose, in place of guards.

    Args:
        compiled: what `compiler_core.compile` or ``torch.compile`` returned, after its first call.

    Raises:
        UsageError: `compiled` is something else, or it has no compile yet.

    Example::

        dispatcher = compiler_core.Dispatcher(compiled)
        dispatcher.failing_guard(0, x)             # None: compile 0 is right for x
        with dispatcher.dispatch_to_code(0) as call:
            dispatcher(x)                          # checks no guards
            call(x)                                # the same, without the dispatcher between
        dispatcher(x)                              # checks them
    """

    def __init__(self, compiled: Any) -> None:
        self._target = compiled
        function = getattr(compiled, "_compiled_forward", getattr(compiled, "__func__", compiled))
        self._bound: Any = ()
        """The module or object that a compiled method is bound to, if any."""
        if is_compiled(function):
            self._function = function.__wrapped__
            self._bound = [getattr(compiled, name) for name in ("_orig_mod", "__self__") if hasattr(compiled, name)]
            self._codes: list[Code] = list(region_of(function).installed())
        else:
            self._function, self._bound = function_and_self(compiled)
            self._codes = list(_stock_codes(self._function))
        if not self._codes:
            raise UsageError(f"{self._function.__name__} has no compile yet: call it first")
        self._pinned = [pin(compiled, code.id) for code in self._codes]

    @property
    def compiled_codes(self) -> list[types.CodeType]:
        """The code of each compile, the oldest first."""
        return [code.replacement for code in self._codes]

    @contextmanager
    def dispatch_to_code(self, index: int) -> Iterator[Callable[..., Any]]:
        """Within the block, calls run compile `index` without guards; you promise that it is right for them.

        Yields the function that `pin` returns for this compile.  Raises IndexError if there is no compile `index`.
        """
        if not -len(self._pinned) <= index < len(self._pinned):
            raise IndexError(f"there is no compile {index} of {self._function.__name__}; it has {len(self._pinned)}")
        before, self._target = self._target, self._pinned[index]
        try:
            yield self._target
        finally:
            self._target = before

    def failing_guard(self, index: int, *args: Any, **kwargs: Any) -> str | None:
        """Returns the first guard of compile `index` that does not hold for a call with `args` and `kwargs`.

        None: all hold, and this compile is right for the call.  Raises TypeError if the function does not take these
        arguments, and IndexError if there is no compile `index`.
        """
        bound = inspect.signature(self._function).bind(*self._bound, *args, **kwargs)
        bound.apply_defaults()
        cells = zip(self._function.__code__.co_freevars, self._function.__closure__ or (), strict=True)
        variables = {**bound.arguments, **{name: cell.cell_contents for name, cell in cells}}
        root = self._codes[index].manager.root
        if root.check(variables):
            return None
        parts = root.check_verbose(variables).verbose_code_parts
        return parts[0].partition("  #")[0].strip() if parts else "a guard"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._target(*args, **kwargs)


def _chosen(found: Sequence[Code], compile_id: str | None, name: str) -> Code:
    if not found:
        raise UsageError(f"{name} has no compile to pin: call it first, with arguments like those to come")
    ids = ", ".join(each.id for each in found)
    if compile_id is None and len(found) > 1:
        raise UsageError(f"{name} has the compiles {ids}: say which, as in pin({name}, {found[-1].id!r})")
    chosen = [each for each in found if compile_id in (None, each.id)]
    if not chosen:
        raise UsageError(f"{name} has no compile {compile_id!r}; it has {ids}")
    return chosen[0]

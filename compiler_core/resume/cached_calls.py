"""Calls of functions with a cache with which generated code begins (`capture/values/cached_calls.py`).

If a result is not the one that capture saw, the compile is dropped, and the frame runs again from its start: through
the hook, which finds another compile or makes one, with the outcomes of the calls that were made.  A function that the
cache had no result for may have changed what guards look at, so then the frame also runs again.  Generated code does
this::

    if not calls.repeat((table, (4,), {}), ...):
        return calls.run_again(code, globals, closure, args, kwargs)
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal

from compiler_core.capture.values.cached_calls import CacheChanges, ExpectedOutcome, Outcome, known_outcomes
from compiler_core.hook.frame_hook import FrameHook, never_compile
from compiler_core.records import FailedGuard, MissedEntry, Recompile
from compiler_core.records.recompiles import recompile


class CachedCalls:
    """The calls of functions with a cache that a compile makes.

    Args:
        code: the code of the frame.
        compile_id: the id of the compile.
        expected: the outcomes of the calls at capture, in order.
        changes: which functions have had other results than compiles expected.
        drop: drops the compile.
        hook: the hook of the region.
    """

    def __init__(
        self,
        code: types.CodeType,
        compile_id: str,
        expected: Sequence[ExpectedOutcome],
        changes: CacheChanges,
        drop: Callable[[Any], None],
        hook: FrameHook,
    ) -> None:
        self._code, self._compile_id, self._expected = code, compile_id, expected
        self._changes, self._drop = changes, drop
        self._hook = weakref.ref(hook)  # which holds the code that holds this

    def repeat(self, *loaded: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> bool:
        """Makes the calls, with the function and the arguments of each; returns whether the compile may run."""
        known, _ = known_outcomes.take(self._code)
        ran = False
        made: list[Outcome] = []
        for i, (expected, (fn, args, kwargs)) in enumerate(zip(self._expected, loaded, strict=True)):
            if i < len(known):
                outcome = known[i]
            elif self._changes.are_frequent(fn):
                return self._give_up(made)  # a compile that breaks the graph there makes this call
            else:
                outcome = expected.repeat(fn, args, kwargs)
                ran = ran or outcome.missed
            made.append(outcome)
            if not expected.agrees(outcome):
                self._changes.count(fn)
                return self._give_up([*made, *known[i + 1 :]], self._cause(expected, outcome))
        if ran:
            known_outcomes.put(self._code, made)
        return not ran

    def _give_up(self, made: list[Outcome], cause: Recompile | None = None) -> Literal[False]:
        known_outcomes.put(self._code, made, cause)
        self._drop(None)
        return False

    def run_again(
        self, code: types.CodeType, f_globals: Any, closure: tuple[types.CellType, ...], args: Any, kwargs: Any
    ) -> Any:
        """Runs the frame from its start, with what is known of its calls."""
        function, hook = types.FunctionType(code, f_globals.value, code.co_name, None, closure), self._hook()
        try:
            return (function if hook is None else hook.wrap(function))(*args, **kwargs)
        finally:
            known_outcomes.take(code)

    def _cause(self, expected: ExpectedOutcome, outcome: Outcome) -> Recompile:
        name = expected.name
        guard = f"{name}(...) is {expected}"
        failed = FailedGuard("CACHED_CALL", guard, name, name, "result", str(expected), str(outcome))
        return recompile([MissedEntry(self._compile_id, [failed])], is_confirmed=True)


never_compile(CachedCalls.repeat.__code__)
never_compile(CachedCalls.run_again.__code__)

"""The PEP 523 frame hook: PyTorch calls us before a Python frame runs, and we may give it other code.

PyTorch's own hook is used (`torch._C._dynamo.eval_frame`), the one that stock `torch.compile`
uses, so that both can live in one process: our cache entries are kept apart from stock's by an
isolation id where PyTorch has one (2.13), and by the identity of our callback elsewhere.  That id is
the whole process's, not a thread's, so only calls from the main thread set it: what stock does in
another thread just then may be kept under our id, and be compiled once more later.

Everything that is handed to C is built in this file and in `guards.GuardTree.build`: C++ reads
attributes of it without checking, and a missing one ends the process.
"""

from __future__ import annotations

import inspect
import itertools
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch  # noqa: F401  (loads the C extension)
from torch._C._dynamo import eval_frame
from torch._C._dynamo.eval_frame import _FrameAction as FrameAction
from torch._C._dynamo.eval_frame import _FrameExecStrategy as FrameExecStrategy
from torch._dynamo.types import ConvertFrameReturn, GuardedCode
from torch._guards import CompileId

from compiler_core.support.interrupts import kept, raise_kept

HAS_ISOLATION = hasattr(eval_frame, "set_eval_frame_isolate_recompiles_id")
_set_isolation: Any = getattr(eval_frame, "set_eval_frame_isolate_recompiles_id", None)
_isolation: Any = getattr(eval_frame, "get_eval_frame_isolate_recompiles_id", None)
_MAIN_THREAD = threading.main_thread().ident
_ids = itertools.count(7_000_000)


@dataclass(frozen=True)
class FrameView:
    """What the hook tells of a frame that is about to run."""

    code: types.CodeType
    f_locals: dict[str, Any]
    f_globals: dict[str, Any]
    f_builtins: dict[str, Any]
    closure: dict[str, types.CellType]

    @classmethod
    def of(cls, frame: Any) -> FrameView:
        code = frame.f_code
        cells = dict(zip(code.co_freevars, frame.closure or (), strict=True))
        return cls(code, dict(frame.f_locals), frame.f_globals, frame.f_builtins, cells)


_Latest = tuple[Callable[[dict[str, Any]], bool], Callable[..., Any] | None]
"""Compiled code as a function, and whether its guards hold for the variables of a frame."""

_NONE_YET: _Latest = lambda scope: False, None

_STRAIGHT = """
def compiled(*args, **kwargs):
    if len(args) == {count} and not kwargs:
        {parameters} = args
        holds, fn = latest[0]
        if holds({{{scope}}}):
            hook = set_hook(None)
            if hook is None:
                return fn({names})
            try:
                return fn({names})
            finally:
                set_hook(hook)
        latest[0] = none_yet
    return hooked(*args, **kwargs)
"""


def _straight(code: types.CodeType, latest: list[_Latest], hooked: Callable[..., Any]) -> Callable[..., Any]:
    """Calls the latest compiled form of `code` where its guards hold, and no Python's hook; else `hooked`."""
    names = [f"a{i}" for i in range(code.co_argcount)]
    scope = ", ".join(f"{local!r}: {name}" for local, name in zip(code.co_varnames, names, strict=False))
    joined = ", ".join(names)
    text = _STRAIGHT.format(count=len(names), parameters=f"[{joined}]", scope=scope, names=joined)
    space: dict[str, Any] = {"latest": latest, "none_yet": _NONE_YET, "hooked": hooked}
    space["set_hook"] = eval_frame.set_eval_frame
    exec(compile(text, "<cutaway straight>", "exec"), space)
    made: Callable[..., Any] = space.pop("compiled")
    _leave_alone(made.__code__)
    return made


class Hook:
    """One callback of ours with its own cache entries."""

    def __init__(self, compile_frame: Callable[[FrameView], ConvertFrameReturn]) -> None:
        self._compile_frame = compile_frame
        self.number = next(_ids)
        self._latest = [_NONE_YET]

    def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> ConvertFrameReturn:
        raise_kept()
        alone = self._is_alone()
        try:
            answer = self._compile_frame(FrameView.of(frame))
        except RecursionError:  # ours, so deep in the program's calls that few more are left
            return skip_once()
        if answer.guarded_code is None and not (alone and self._is_alone()):
            # lasting, the decision would bind stock torch.compile too
            return ConvertFrameReturn(answer.frame_exec_strategy, False)
        return answer

    def _is_alone(self) -> bool:
        """Whether decisions on code objects are ours only."""
        return HAS_ISOLATION and _isolation() == self.number

    def start_anew(self) -> None:
        """Know nothing any more of code that was skipped or compiled."""
        self.number = next(_ids)
        self._latest[0] = _NONE_YET

    def forget(self, code: types.CodeType) -> None:
        """Go no longer straight to this code of the root."""
        fn = self._latest[0][1]
        if fn is not None and fn.__code__ is code:
            self._latest[0] = _NONE_YET

    def close(self) -> None:
        """Compile no more."""
        self._compile_frame = lambda view: skip_once()

    def around(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """`fn` with the hook on for it and what it calls, in the thread that calls it."""
        get_hook, set_hook = eval_frame.get_eval_frame_callback, eval_frame.set_eval_frame

        # an interrupt may come after any call, also the first: so that is made within the try
        def isolated(*args: Any, **kwargs: Any) -> Any:
            if get_ident() != _MAIN_THREAD:
                return shared(*args, **kwargs)
            before, hook = _isolation(), get_hook()
            try:
                try:
                    _set_isolation(self.number)
                    set_hook(self)
                    result = fn(*args, **kwargs)
                finally:
                    set_hook(hook)
            finally:
                _set_isolation(before)
            if kept:
                raise_kept()
            return result

        def shared(*args: Any, **kwargs: Any) -> Any:
            hook = get_hook()
            try:
                set_hook(self)
                result = fn(*args, **kwargs)
            finally:
                set_hook(hook)
            if kept:
                raise_kept()
            return result

        return isolated if HAS_ISOLATION else shared

    def around_root(self, fn: types.FunctionType) -> Callable[..., Any]:
        """As `around`, for the function itself: this is the hot path.  It goes straight to the latest
        compiled code, until that does not cover a call."""
        code, hooked = fn.__code__, self.around(fn)
        more = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) or code.co_kwonlyargcount
        return hooked if more or code.co_freevars else _straight(code, self._latest, hooked)

    def go_straight_to(self, code: types.CodeType, f_globals: dict[str, Any], guard_manager: Any) -> None:
        """Call this code of the root, which breaks no graph, without asking Python's hook, while its guards hold."""
        if not code.co_freevars:
            self._latest[0] = guard_manager.root.check, types.FunctionType(code, f_globals)


def _leave_alone(code: types.CodeType) -> None:
    """Stock torch.compile, where it runs code that calls ours, is not to compile this wrapper."""
    eval_frame.set_code_exec_strategy(code, FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP))


for _code in Hook.around.__code__.co_consts:
    if isinstance(_code, types.CodeType):
        _leave_alone(_code)


@contextmanager
def hook_off() -> Iterator[None]:
    """Run with no hook in this thread."""
    before = eval_frame.get_eval_frame_callback()
    try:
        eval_frame.set_eval_frame(None)
        yield
    finally:
        eval_frame.set_eval_frame(before)


_DEFAULT = FrameExecStrategy(FrameAction.DEFAULT, FrameAction.DEFAULT)
_RUN_ONLY = FrameExecStrategy(FrameAction.RUN_ONLY, FrameAction.DEFAULT)


def use(code: types.CodeType, guard_manager: Any, compile_id: str) -> ConvertFrameReturn:
    """Run `code` in place of the frame's whenever the guards hold."""
    frame, number = map(int, compile_id.split("/"))
    entry = GuardedCode(code, guard_manager, CompileId(frame_id=frame, frame_compile_id=number), compile_id)
    return ConvertFrameReturn(_DEFAULT, True, entry)


def skip() -> ConvertFrameReturn:
    """Leave this code object alone for good."""
    return ConvertFrameReturn()


def skip_all() -> ConvertFrameReturn:
    """Leave this code object of ours alone for good, and every frame below it."""
    return ConvertFrameReturn(FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP), True)


def skip_once() -> ConvertFrameReturn:
    """Run this call as plain Python."""
    return ConvertFrameReturn(_DEFAULT, False)


def no_more_compiles() -> ConvertFrameReturn:
    """From now on, only what is already compiled."""
    return ConvertFrameReturn(_RUN_ONLY, True)

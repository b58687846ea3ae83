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


_MISSED = object()
_STRAIGHT = """
def straight({args}):
    if not holds({{{scope}}}):
        return missed
    hook = set_hook(None)
    if hook is None:
        return fn({args})
    try:
        return fn({args})
    finally:
        set_hook(hook)
"""


def _straight(code: types.CodeType, f_globals: dict[str, Any], holds: Any) -> Callable[..., Any]:
    """Calls `code` where its guards hold: a function of as many positional arguments, and no Python's hook."""
    names = [f"a{i}" for i in range(code.co_argcount)]
    scope = ", ".join(f"{local!r}: {name}" for local, name in zip(code.co_varnames, names, strict=False))
    space = {"holds": holds, "missed": _MISSED, "set_hook": eval_frame.set_eval_frame}
    space["fn"] = types.FunctionType(code, f_globals)
    exec(compile(_STRAIGHT.format(args=", ".join(names), scope=scope), "<cutaway straight>", "exec"), space)
    made: Callable[..., Any] = space["straight"]
    return made


class Hook:
    """One callback of ours with its own cache entries."""

    def __init__(self, compile_frame: Callable[[FrameView], ConvertFrameReturn]) -> None:
        self._compile_frame = compile_frame
        self.number = next(_ids)
        self._straight: Callable[..., Any] | None = None
        self._arguments = 0

    def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> ConvertFrameReturn:
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
        self._straight = None

    def close(self) -> None:
        """Compile no more."""
        self._compile_frame = lambda view: skip_once()

    def around(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """`fn` with the hook on for it and what it calls, in the thread that calls it."""
        set_hook = eval_frame.set_eval_frame

        def isolated(*args: Any, **kwargs: Any) -> Any:
            if get_ident() != _MAIN_THREAD:
                return shared(*args, **kwargs)
            before = _set_isolation(self.number)
            hook = set_hook(self)
            try:
                return fn(*args, **kwargs)
            finally:
                set_hook(hook)
                _set_isolation(before)

        def shared(*args: Any, **kwargs: Any) -> Any:
            hook = set_hook(self)
            try:
                return fn(*args, **kwargs)
            finally:
                set_hook(hook)

        return isolated if HAS_ISOLATION else shared

    def around_root(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """As `around`, for the function itself: this is the hot path.  It goes straight to the latest
        compiled code, until that does not cover a call; the hook finds its code for any."""
        hooked = self.around(fn)

        def compiled(*args: Any, **kwargs: Any) -> Any:
            straight = self._straight
            if straight is not None and not kwargs and len(args) == self._arguments:
                result = straight(*args)
                if result is not _MISSED:
                    return result
                self._straight = None
            return hooked(*args, **kwargs)

        return compiled

    def go_straight_to(self, code: types.CodeType, f_globals: dict[str, Any], guard_manager: Any) -> None:
        """Call this code, which breaks no graph, without asking Python's hook, while its guards hold."""
        takes_more = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
        if not (takes_more or code.co_kwonlyargcount or code.co_freevars):
            self._arguments = code.co_argcount
            self._straight = _straight(code, f_globals, guard_manager.root.check)


# stock torch.compile, where it runs code that calls ours, is not to compile our wrappers
for _code in Hook.around.__code__.co_consts + Hook.around_root.__code__.co_consts:
    if isinstance(_code, types.CodeType):
        eval_frame.set_code_exec_strategy(_code, FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP))


@contextmanager
def hook_off() -> Iterator[None]:
    """Run with no hook in this thread."""
    before = eval_frame.set_eval_frame(None)
    try:
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

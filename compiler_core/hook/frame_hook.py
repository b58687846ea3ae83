"""The PEP 523 frame hook: PyTorch calls it before a Python frame runs, and it may replace the frame's code.

It uses PyTorch's hook (`torch._C._dynamo.eval_frame`), which stock `torch.compile` uses, too, so that both work in one
process.  Our cache entries are separate from stock's by an isolation id where PyTorch has one (from 2.13 on), otherwise
by the identity of our callback.  The isolation id is global to the process, not to a thread, so only calls from the
main thread set it.  What stock compiles in another thread meanwhile may be stored under our id, and is compiled once
more later.

Everything that is passed to C++ is built in this file and in `guards/tree.py`: C++ reads its attributes without
checks, and a missing one ends the process."""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any

from compiler_core.errors import FullGraphError
from compiler_core.guards.tree import EntryGuards
from compiler_core.support.interrupts import guard_errors, keep_handlers, raise_guard_error, restore_handlers
from compiler_core.torch_private import (
    C_eval_frame,
    CompileId,
    ConvertFrameReturn,
    FrameAction,
    FrameExecStrategy,
    GuardedCode,
    convert_frame,
    dynamo_eval_frame,
)

HAS_ISOLATION = hasattr(C_eval_frame, "set_eval_frame_isolate_recompiles_id")
_set_isolation: Any = getattr(C_eval_frame, "set_eval_frame_isolate_recompiles_id", None)
_isolation: Any = getattr(C_eval_frame, "get_eval_frame_isolate_recompiles_id", None)
_MAIN_THREAD = threading.main_thread().ident
_ids = itertools.count(7_000_000)


def stance() -> str:
    """Returns what ``torch.compiler.set_stance`` set.  With "force_eager" calls run without the hook."""
    current: str = dynamo_eval_frame._stance.stance
    return current


def forces_backend() -> bool:
    """Returns whether ``torch.compiler.set_stance`` names the backend of what is compiled."""
    return dynamo_eval_frame._stance.backend is not None


@dataclass(frozen=True)
class FrameInfo:
    """A frame that is about to run, as the hook describes it."""

    code: types.CodeType
    f_locals: dict[str, Any]
    f_globals: dict[str, Any]
    f_builtins: dict[str, Any]
    closure: dict[str, types.CellType]

    @classmethod
    def of(cls, frame: Any) -> FrameInfo:
        code = frame.f_code
        cells = dict(zip(code.co_freevars, frame.closure or (), strict=True))
        return cls(code, dict(frame.f_locals), frame.f_globals, frame.f_builtins, cells)


_DirectCode = tuple[Callable[[dict[str, Any]], bool], Callable[..., Any] | None]
"""A check whether the guards hold for the variables of a frame, and the compiled code as a function."""

_NO_CODE: _DirectCode = lambda scope: False, None

_DIRECT_CALL_FILE = "<cutaway direct call>"
_NOT_GIVEN = object()
_DIRECT_CALL_SOURCE = """
def compiled({parameters}*args, **kwargs):
    if {incomplete}args or kwargs:
        args = without_missing([{names}], args)
        values = with_defaults(original, code, args, kwargs)
        if values is None:
            return hooked(*args, **kwargs)
        [{names}] = values
    if original.__code__ is code and eval_frame._stance.stance != "force_eager":
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
    return hooked({names})
"""


def _direct_caller(
    original: types.FunctionType, latest: list[_DirectCode], hooked: Callable[..., Any]
) -> Callable[..., Any]:
    """Returns a function that calls the latest compiled form of `original`, without the hook, if its guards hold.

    Otherwise it calls `hooked`, also once `original` has another code, whose parameters may be others.
    """
    code = original.__code__
    names = [f"a{i}" for i in range(code.co_argcount)]
    scope = ", ".join(f"{local!r}: {name}" for local, name in zip(code.co_varnames, names, strict=False))
    text = _DIRECT_CALL_SOURCE.format(
        parameters="".join(f"{name}=not_given, " for name in names) + ("/, " if names else ""),
        incomplete=f"{names[-1]} is not_given or " if names else "",
        names=", ".join(names),
        scope=scope,
    )
    namespace: dict[str, Any] = {"latest": latest, "none_yet": _NO_CODE, "hooked": hooked, "original": original}
    namespace |= {"code": code, "not_given": _NOT_GIVEN, "set_hook": C_eval_frame.set_eval_frame}
    namespace |= {"without_missing": _without_missing, "with_defaults": _with_defaults}
    namespace["eval_frame"] = dynamo_eval_frame
    exec(compile(text, _DIRECT_CALL_FILE, "exec"), namespace)
    compiled: Callable[..., Any] = namespace.pop("compiled")
    never_compile(compiled.__code__)
    return compiled


def _without_missing(values: list[Any], more: tuple[Any, ...]) -> list[Any]:
    """Returns the positional arguments of a call: the values that were given for parameters, and `more`."""
    return [*(value for value in values if value is not _NOT_GIVEN), *more]


def _with_defaults(
    fn: types.FunctionType, code: types.CodeType, args: Sequence[Any], kwargs: dict[str, Any]
) -> list[Any] | None:
    """Returns the values of all parameters of `fn` in order.

    Returns None if the call does not fit them, or if `fn` no longer has this code, whose parameters may all be given by
    position.
    """
    if fn.__code__ is not code:
        return None
    defaults = fn.__defaults__ or ()
    values, left = list(args), len(kwargs)
    for number in range(len(args), code.co_argcount):
        name, default = code.co_varnames[number], number - code.co_argcount + len(defaults)
        if number >= code.co_posonlyargcount and name in kwargs:
            values.append(kwargs[name])
            left -= 1
        elif default >= 0:
            values.append(defaults[default])
        else:
            return None
    return values if not left and len(values) == code.co_argcount else None


def _follower(
    copy: types.FunctionType, original: types.FunctionType, replaced: Callable[[types.CodeType], None]
) -> Callable[[], None]:
    """Returns a function that gives `copy` the code and the defaults that `original` has now.

    Programs set them, and tools that reload a module set them in its functions.
    """
    code = original.__code__

    def follow() -> None:
        nonlocal code
        if original.__code__ is not code:
            code = original.__code__
            copy.__code__ = code.replace()
            replaced(copy.__code__)
        if copy.__defaults__ is not original.__defaults__ or copy.__kwdefaults__ is not original.__kwdefaults__:
            copy.__defaults__, copy.__kwdefaults__ = original.__defaults__, original.__kwdefaults__

    return follow


class FrameHook:
    """One callback for PyTorch's hook, with its own cache entries.

    `compile_frame` decides what runs in place of a frame.
    """

    def __init__(self, compile_frame: Callable[[FrameInfo], ConvertFrameReturn]) -> None:
        self._compile_frame = compile_frame
        self.isolation_id = next(_ids)
        self._latest = [_NO_CODE]
        self._decisions: dict[int, tuple[weakref.ref[types.CodeType], ConvertFrameReturn]] = {}
        """Decisions about code objects, by their ids, that must not be stored in the code objects."""

    def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> ConvertFrameReturn:
        raise_guard_error()
        known = self._decisions.get(id(frame.f_code))
        if known is not None:
            return known[1]
        was_isolated = self._is_isolated()
        try:
            decision = self._compile_frame(FrameInfo.of(frame))
        except FullGraphError as error:
            raise error.with_traceback(None)  # noqa: B904  the compiler's frames mean nothing to the user
        except RecursionError:  # in the compiler: the program's calls leave too little of the stack
            return skip_call()
        finally:
            keep_handlers()
        if decision.guarded_code is None and not (was_isolated and self._is_isolated()):
            # a decision stored in the code object would apply to stock torch.compile, too
            for_call = ConvertFrameReturn(decision.frame_exec_strategy, False)
            if decision.apply_to_code:
                self._remember(frame.f_code, for_call)
            return for_call
        return decision

    def _remember(self, code: types.CodeType, decision: ConvertFrameReturn) -> None:
        """Makes `decision` hold for further calls of this code object, as long as it exists."""
        key, decisions = id(code), self._decisions
        # a method of C, in which no signal's handler can run: what it raised would be dropped
        decisions[key] = weakref.ref(code, functools.partial(decisions.pop, key)), decision

    def _is_isolated(self) -> bool:
        """Whether decisions about code objects do not apply to stock torch.compile."""
        return HAS_ISOLATION and _isolation() == self.isolation_id

    def reset(self) -> None:
        """Discards which code was skipped or compiled, by a new isolation id."""
        self.isolation_id = next(_ids)
        self._latest[0] = _NO_CODE
        self._decisions.clear()

    def forget(self, guard_manager: Any) -> None:
        """Ends direct calls of the code of the root function that has these guards."""
        if self._latest[0][0] == guard_manager.root.check:
            self._latest[0] = _NO_CODE

    def close(self) -> None:
        """Compiles no frames from now on."""
        self._compile_frame = lambda view: skip_call()

    def wrap(self, fn: Callable[..., Any], before: Callable[[], None] | None = None) -> Callable[..., Any]:
        """Returns `fn` with the hook active for it and the functions that it calls, in the calling thread.

        `before` is called before each call, without the hook.
        """
        get_hook, set_hook = C_eval_frame.get_eval_frame_callback, C_eval_frame.set_eval_frame

        # an interrupt may arrive after any call, so the first one is already inside the try
        def isolated(*args: Any, **kwargs: Any) -> Any:
            if get_ident() != _MAIN_THREAD:
                return shared(*args, **kwargs)
            if before is not None:
                before()
            isolation, hook = _isolation(), get_hook()
            try:
                try:
                    _set_isolation(self.isolation_id)
                    set_hook(None if stance() == "force_eager" else self)
                    result = fn(*args, **kwargs)
                finally:
                    set_hook(hook)
            finally:
                _set_isolation(isolation)
                restore_handlers()
                if guard_errors:  # even if the program raises something else
                    raise_guard_error()
            return result

        def shared(*args: Any, **kwargs: Any) -> Any:
            if before is not None:
                before()
            hook = get_hook()
            try:
                set_hook(None if stance() == "force_eager" else self)
                result = fn(*args, **kwargs)
            finally:
                set_hook(hook)
                restore_handlers()
                if guard_errors:  # even if the program raises something else
                    raise_guard_error()
            return result

        return isolated if HAS_ISOLATION else shared

    def wrap_root(
        self, fn: types.FunctionType, original: types.FunctionType, replaced: Callable[[types.CodeType], None]
    ) -> Callable[..., Any]:
        """Like `wrap`, for the root function, whose calls must be fast.

        Calls the latest compiled code directly, until its guards do not hold.

        Args:
            fn: a copy of the function that the user gave, with another code object.
            original: the function that the user gave.  If it gets another code or other defaults, `fn` gets them, too.
            replaced: called with the new code of `fn`.
        """
        code, hooked = fn.__code__, self.wrap(fn, _follower(fn, original, replaced))
        has_variable_arguments = bool(code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS))
        if has_variable_arguments or code.co_kwonlyargcount or code.co_freevars:
            return hooked
        return _direct_caller(original, self._latest, hooked)

    def set_direct_call(self, code: types.CodeType, f_globals: dict[str, Any], guard_manager: Any) -> None:
        """Sets code of the root function, without graph breaks, to call without the hook while its guards hold."""
        if not code.co_freevars:
            self._latest[0] = guard_manager.root.check, types.FunctionType(code, f_globals)


def never_compile(code: types.CodeType) -> None:
    """Keeps us and stock torch.compile from compiling this code of ours and what it calls."""
    C_eval_frame.set_code_exec_strategy(code, FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP))


_WRAPPERS = frozenset(code for code in FrameHook.wrap.__code__.co_consts if isinstance(code, types.CodeType))
for _code in _WRAPPERS:
    never_compile(_code)


def starts_hook(code: types.CodeType) -> bool:
    """Whether this is the code of a wrapper, inside which the hook is active or compiled code runs."""
    return code in _WRAPPERS or code.co_filename == _DIRECT_CALL_FILE


@contextmanager
def hook_off() -> Iterator[None]:
    """Runs a block without a hook in this thread."""
    before = C_eval_frame.get_eval_frame_callback()
    try:
        C_eval_frame.set_eval_frame(None)
        yield
    finally:
        C_eval_frame.set_eval_frame(before)


_DEFAULT = FrameExecStrategy(FrameAction.DEFAULT, FrameAction.DEFAULT)
_RUN_ONLY = FrameExecStrategy(FrameAction.RUN_ONLY, FrameAction.DEFAULT)


def run_code(code: types.CodeType, guard_manager: Any, compile_id: str) -> ConvertFrameReturn:
    """The decision to run `code` in place of the frame's code whenever the guards hold."""
    frame, number = map(int, compile_id.split("/"))
    entry = GuardedCode(code, guard_manager, CompileId(frame_id=frame, frame_compile_id=number), compile_id)
    return ConvertFrameReturn(_DEFAULT, True, entry)


def skip_code() -> ConvertFrameReturn:
    """The decision never to compile this code object."""
    return ConvertFrameReturn()


def skip_code_and_callees() -> ConvertFrameReturn:
    """The decision never to compile this code object, nor any frame that it calls."""
    return ConvertFrameReturn(FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP), True)


def skip_call() -> ConvertFrameReturn:
    """The decision to run only this call as plain Python."""
    return ConvertFrameReturn(_DEFAULT, False)


def run_only_compiled() -> ConvertFrameReturn:
    """The decision to run code that is compiled already, and compile no more for this code object."""
    return ConvertFrameReturn(_RUN_ONLY, True)


# ---------------------------------------------------------------- entries of PyTorch's cache
#
# PyTorch stores entries in the code object of the frame.  A single entry cannot be removed: it can be invalidated, and
# all entries of one code object can be removed together.  Invalidating is safe at any time.  Removing is unsafe while
# another thread may be searching the entries, and must not remove entries of stock torch.compile, so it is left to
# `remove_invalid_entries`.

_DELETED = EntryGuards()
_invalidated: dict[int, weakref.ref[types.CodeType]] = {}
_HOOKED_FILES = frozenset({__file__, dynamo_eval_frame.__file__, _DIRECT_CALL_FILE})


def has_entry(guard_manager: Any) -> bool:
    """Whether the entry with these guards still exists (torch._dynamo.reset() removes all entries)."""
    return guard_manager.cache_entry is not None


def invalidate(code: types.CodeType, guard_manager: Any) -> None:
    """Frees what the entry of `code` with these guards holds."""
    if has_entry(guard_manager):
        guard_manager.extra_state.invalidate(guard_manager.cache_entry, _DELETED)
        _invalidated[id(code)] = weakref.ref(code)


def remove_invalid_entries() -> None:
    """Removes the entries of code objects that only have invalidated ones."""
    if not _invalidated or is_hooked_code_running():
        return
    for key, found in list(_invalidated.items()):
        code = found()
        if code is not None and not _may_remove(code):
            continue
        del _invalidated[key]
        if code is not None:
            C_eval_frame.reset_code(code)


def _may_remove(code: types.CodeType) -> bool:
    """Whether all entries are invalidated, and stock torch.compile has not compiled this code."""
    entries: list[Any] = C_eval_frame._debug_get_cache_entry_list(code)
    return all(e.code is None for e in entries) and code not in convert_frame.input_codes


def is_hooked_code_running(but: int | None = None) -> bool:
    """Whether any thread, except the one with the id `but`, runs code under our hook or stock's."""
    for thread, innermost in sys._current_frames().items():
        frame: types.FrameType | None = innermost if thread != but else None
        while frame is not None:
            if frame.f_code.co_filename in _HOOKED_FILES:
                return True
            frame = frame.f_back
    return False

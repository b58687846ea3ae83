"""All that one `compiler_core.compile` compiles: its code objects, and what runs in place of each of their frames."""

from __future__ import annotations

import os
import threading
import types
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch._dynamo import convert_frame

from compiler_core.backends import registry as backends
from compiler_core.bytecode import verify
from compiler_core.capture.dynamic_policy import Policy
from compiler_core.capture.step_recorder import link_guards
from compiler_core.config import Options
from compiler_core.errors import CompileWarning, StrictError, Unsupported, UsageError
from compiler_core.guards import GuardTree, first_failure
from compiler_core.guards.sources import Scope
from compiler_core.hook import cache_entries, frame_hook
from compiler_core.hook.failures import heard
from compiler_core.hook.frame_hook import FrameView
from compiler_core.hook.skip_rules import (
    has_two_cells_of_one_name,
    is_generator,
    is_runtime,
    reads_its_frame,
    skip_reason,
)
from compiler_core.pipeline.code_state import CodeState, Installed, Same
from compiler_core.pipeline.frame import FrameCompile
from compiler_core.records import Compile, Recompile, Record, Stage
from compiler_core.support import interrupts, torch_state
from compiler_core.support.fork_locks import free_after_fork
from compiler_core.support.silenced_warnings import unheard

# one thread compiles at a time, ours or stock's: PyTorch's tracing has global state
free_after_fork(convert_frame, "compile_lock")

_regions: weakref.WeakSet[Region] = weakref.WeakSet()
_others_at_work = False

MAX_RESUMES = 64
MAX_TIMES = 3
"""How often the code of one compile is installed."""


class Region:
    """All that one `compiler_core.compile` compiles: its options, its hook and its code objects."""

    def __init__(self, root: types.CodeType, options: Options, record: Callable[[], Record]) -> None:
        self.root = root
        self.options = options
        self.record = record
        self.hook = frame_hook.Hook(self.compile_frame)
        self.states: dict[Same, CodeState] = {}
        _regions.add(self)
        self.codes: dict[Any, types.CodeType] = {}
        """Generated code that stands for a part of a function, by that function's code and which part."""
        self._resumes: dict[Same, str] = {}
        self._depths: dict[Same, int] = {}
        """How many breaks in a row led to a resume function."""
        self._alone: set[Same] = set()
        self._policies: dict[Same, Policy] = {}

    def installed(self) -> list[Installed]:
        """The compiles of the function itself that are in use."""
        state = self.states.get(Same(self.root))
        found = [e for e in state.entries if cache_entries.is_there(e.manager)] if state else []
        return list({e.id: e for e in found}.values())

    def around_pinned(self, fn: types.FunctionType) -> Callable[..., Any]:
        """`fn`, which is compiled code, with the hook on for what it calls."""
        self._alone.add(Same(fn.__code__))
        return self.hook.around(fn)

    def forget(self) -> None:
        """Free all that was compiled."""
        with convert_frame.compile_lock:
            self.hook.start_anew()
            for state in self.states.values():
                for entry in state.entries:
                    cache_entries.empty(entry.code, entry.manager)
            self.states.clear()
            self._policies.clear()

    def dropper(self, state: CodeState, compile_id: str) -> Callable[[Any], None]:
        """What drops a compile of this code, whenever it is called: when something dies that the compile refers to."""
        at, hook = weakref.ref(state), weakref.ref(self.hook)

        def drop(_: Any) -> None:
            if (state := at()) is not None:
                _drop(state, compile_id, hook())

        return drop

    def policy(self, code: types.CodeType) -> Policy:
        """What is symbolic in the frames of this code."""
        dynamic = self.options.dynamic if backends.takes_symbols(self.options.backend) else False
        return self._policies.setdefault(Same(code), Policy(dynamic))

    def close(self) -> None:
        """The compiled function is gone."""
        self.hook.close()
        self.forget()

    # ------------------------------------------------------------ one frame

    def compile_frame(self, view: FrameView) -> Any:
        """The hook's question: what is to run in place of this frame?"""
        if is_runtime(view.code):
            return frame_hook.skip_all()
        if torch_state.is_watched():
            return frame_hook.skip_once()
        with convert_frame.compile_lock, interrupts.held(), unheard():
            return self._compile_frame(view)

    def _compile_frame(self, view: FrameView) -> Any:
        state = self._state(view.code)
        if state is None:
            return frame_hook.skip()
        state.frame.calls += 1
        if state.left_alone:
            return frame_hook.skip()
        before = len(state.frame.compiles)
        try:
            return self._decided(state, view)
        except BaseException as error:
            made = state.frame.compiles[before:]
            answer = self._ended(state, made[-1] if made else state.record.compile(state.frame), error)
            if answer is None:
                raise
            return answer

    def _decided(self, state: CodeState, view: FrameView) -> Any:
        """What runs in place of the frame: what is compiled already, or is now."""
        state.entries = [e for e in state.entries if cache_entries.is_there(e.manager)]
        scope = Scope(view.f_locals, view.f_globals, view.closure)
        if (known := self._known(state, scope)) is not None:
            return known
        if state.times_compiled >= self.options.recompile_limit:
            return self._limit_reached(state)
        if self._depths.get(Same(view.code), 0) > MAX_RESUMES:
            state.frame.skipped = f"more than {MAX_RESUMES} graph breaks in a row: the rest runs as plain Python"
            return self.leave_alone(state)
        compile_ = state.record.compile(state.frame)
        compile_.cause = _cause(state.entries, scope)
        try:
            return FrameCompile(self, state, view, scope, compile_).run()
        finally:
            link_guards(compile_)

    def _ended(self, state: CodeState, compile_: Compile, error: BaseException) -> Any:
        """A compile ended with `error`: the frame runs as it is.  None where the error is the user's own, or asked for;
        it is not raised here, or this frame and the error would keep each other, and the user's objects, alive."""
        if isinstance(error, RecursionError):
            compile_.outcome = "skipped"
            compile_.reason = "so deep in calls there is no room for the compiler's: this one runs as plain Python"
            return None
        if isinstance(error, Unsupported):  # generating code found a value that cannot be rebuilt
            compile_.outcome, compile_.reason = "skipped", f"{error}: the frame runs as plain Python"
            state.frame.skipped = compile_.reason
            return self.leave_alone(state)
        compile_.outcome, compile_.reason = "failed", str(error) or type(error).__name__
        if isinstance(error, (UsageError, StrictError, CompileWarning)) or not isinstance(error, Exception):
            return None
        compile_.reason = f"{type(error).__name__}: {error}"
        heard(compile_, _stage(compile_), error, strict=self.options.strict)
        return self.leave_alone(state)

    def _known(self, state: CodeState, scope: Scope) -> Any:
        """Install code again whose guards hold: it was installed for other objects only, or is kept where
        this thread does not find it."""
        for entry in {e.id: e for e in state.entries}.values():
            times = sum(e.id == entry.id for e in state.entries)
            if times < MAX_TIMES and first_failure(entry.guards, scope) is None:
                manager = GuardTree(scope, entry.code).build(entry.guards, sealing=False)
                state.entries.append(replace(entry, manager=manager))
                return frame_hook.use(entry.made, manager, entry.id)
        return None

    def _state(self, code: types.CodeType) -> CodeState | None:
        """What is known of a code object; None for code that is left alone.  A new record starts anew."""
        record = self.record()
        state = self.states.get(Same(code))
        if state is not None and state.record is record:
            return state
        resumes = self._resumes.get(Same(code))
        if Same(code) in self._alone:
            return None
        if reads_its_frame(code) or has_two_cells_of_one_name(code):
            return None
        if code is not self.root and resumes is None and skip_reason(code):
            return None
        kind = "resume" if resumes is not None else ("root" if code is self.root else "called")
        frame = record.frame(code.co_name, code.co_filename, _first_line(code), kind)  # type: ignore[arg-type]
        if code is self.root and is_generator(code):
            frame.skipped = "a generator or coroutine: it runs as plain Python"
            return None
        frame.resumes = resumes
        made = CodeState(frame, record, resumes)
        if state is not None:
            made.entries = state.entries
        self.states[Same(code)] = made
        return made

    def code(self, key: Any, make: Callable[[], types.CodeType]) -> types.CodeType:
        """Generated code, made and checked once, so that what is compiled for it is found again."""
        if key not in self.codes:
            self.codes[key] = make()
            verify(self.codes[key])
        return self.codes[key]

    def add_alone(self, code: types.CodeType) -> None:
        """Note a function that runs one instruction: it is not captured, though what it calls may be."""
        self._alone.add(Same(code))

    def add_resume(self, code: types.CodeType, of: types.CodeType, line: int, compile_: Compile, record: Record) -> int:
        """Note a resume function, called by the frame `of`, before that calls it: one never reached is shown too."""
        self._resumes[Same(code)] = compile_.id
        self._depths[Same(code)] = self._depths.get(Same(of), 0) + 1
        frame = record.frame(code.co_name, code.co_filename, line, "resume")
        frame.resumes = compile_.id
        self.states[Same(code)] = CodeState(frame, record, compile_.id)
        return frame.id

    def _limit_reached(self, state: CodeState) -> Any:
        note = (
            f"{state.frame.name} was compiled {state.times_compiled} times, which is the limit; further calls that no "
            "compile covers run as plain Python.  See the causes of its recompiles."
        )
        if note not in state.record.notes:
            state.record.notes.append(note)
        return frame_hook.no_more_compiles()

    def leave_alone(self, state: CodeState) -> Any:
        state.left_alone = True
        return frame_hook.skip()


def _drop(state: CodeState, compile_id: str, hook: frame_hook.Hook | None) -> None:
    """Free what a compile holds.  It takes no lock, for it may be called wherever Python frees objects."""
    dropped = [entry for entry in state.entries if entry.id == compile_id]
    state.entries = [entry for entry in state.entries if entry.id != compile_id]
    state.outlived.add(compile_id)
    for entry in dropped:
        cache_entries.empty(entry.code, entry.manager)
        if hook is not None:
            hook.forget(entry.made)


def _before_fork() -> None:
    global _others_at_work
    _others_at_work = cache_entries.is_at_work(but=threading.get_ident())


def _after_fork() -> None:
    """Compile anew in a child where a thread that it does not have may have been checking guards: the C++ lock of
    their tree would be waited for without end."""
    for region in list(_regions) if _others_at_work else ():
        region.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


def _stage(compile_: Compile) -> Stage:
    """The stage that failed; what fails in none of them fails before the first, or when the code is installed."""
    failed = [event.stage for event in compile_.events if event.outcome == "failed"]
    return failed[-1] if failed else "bytecode" if compile_.events else "guards"


def _first_line(code: types.CodeType) -> int:
    """Where a reader finds it; module code, and what runs in its place, says that it begins at line 1."""
    if code.co_name != "<module>":
        return code.co_firstlineno
    return min((line for *_, line in code.co_lines() if line), default=code.co_firstlineno)


def _cause(installed: list[Installed], scope: Scope) -> Recompile | None:
    """Why the latest compile does not cover this call."""
    for entry in reversed(installed):
        failure = first_failure(entry.guards, scope)
        if failure is not None:
            guard, (expected, got) = failure
            return Recompile(entry.id, guard.text, guard.source.text, expected, got, guard.line)
    return None

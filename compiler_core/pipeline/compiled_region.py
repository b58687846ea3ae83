"""A region: the code objects that one `compiler_core.compile` compiles, and the code that replaces each."""

from __future__ import annotations

import linecache
import os
import random
import sys
import threading
import types
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from compiler_core import instruments
from compiler_core.backends import registry as backends
from compiler_core.backends.replay_pool import Pools
from compiler_core.bytecode import outermost_loops, verify
from compiler_core.capture.guard_collector import add_source
from compiler_core.capture.made_state import MadeState
from compiler_core.capture.tensors.symbolic_shapes import DynamicPolicy
from compiler_core.capture.values.cached_calls import known_outcomes
from compiler_core.codegen.build.background import is_build_thread
from compiler_core.config import Options
from compiler_core.errors import CompileWarning, RecompileError, StrictError, Unsupported, UsageError
from compiler_core.guards import GuardTree, all_hold, failures
from compiler_core.guards.sources import Scope
from compiler_core.hook import frame_hook
from compiler_core.hook.failures import only_recorded, report_failure
from compiler_core.hook.frame_hook import FrameInfo
from compiler_core.hook.skip_rules import (
    frame_reason,
    imports_modules,
    innermost_frame,
    is_generator,
    is_override,
    is_runtime,
    reader_of_own_frame,
    runs_once,
    skip_reason,
)
from compiler_core.pipeline.code_state import CodeKey, CodeState, InstalledCode, may_have_tensors, plain_entry
from compiler_core.pipeline.frame import FrameCompile
from compiler_core.records import Compile, MissedEntry, Recompile, Record, StackLine, Stage
from compiler_core.records.capture import library_of
from compiler_core.records.recompiles import NOTHING_YET, recompile
from compiler_core.resume.loop_functions import LoopCode, loop_code
from compiler_core.resume.resume_functions import ResumeLayout
from compiler_core.support import fork_locks, interrupts, torch_state
from compiler_core.support.eager_warnings import silence_warnings
from compiler_core.support.fork_locks import replace_after_fork
from compiler_core.support.garbage import deferred_collections
from compiler_core.support.transform_levels import in_dual_level
from compiler_core.torch_private import (
    DisableTorchFunctionSubclass,
    EnableTorchFunction,
    are_functorch_transforms_active,
    convert_frame,
)

# only one thread compiles at a time, with this compiler or with stock: PyTorch's tracing has global state
replace_after_fork(convert_frame, "compile_lock")

_regions: weakref.WeakSet[Region] = weakref.WeakSet()
_closed: list[Region] = []
"""Those that were closed while another thread compiled, and are still to be freed."""
_forked_while_running = False

MAX_RESUMES = 64
"""Graph breaks in a row, after which the rest of a function runs as plain Python."""
_IN_TRANSFORM = "inside a transform of torch.func (vmap, grad ...)"
_TRANSFORM_HINT = "Tensors inside it cannot be captured: compile the functions around the transform."
_IN_BUILD = "in a thread that builds kernels, where Python deleted an object"
_BUILD_HINT = "Another compile waits for that thread, so nothing can be compiled there."
FORCED_BACKEND = "set_stance(force_backend=...) holds for torch.compile only: here, set the backend where you compile."
NOT_CAPTURED = "a mode, transform or tracer of PyTorch observes the call"
_EAGER_FIRST = ("eager_then_compile", "aot_eager_then_compile")
"""Stances in which the first call of a function shows which sizes change, and is not compiled."""
MAX_INSTALLS = 3
"""How often the code of one compile is installed at most."""


class Region:
    """Everything that one `compiler_core.compile` compiles: its options, its hook and its code objects.

    Args:
        root: the code of the function that the user gave.
        options: the options of all its compiles.
        record: returns the record to write to.
    """

    def __init__(self, root: types.CodeType, options: Options, record: Callable[[], Record]) -> None:
        self.root = root
        self.options = options
        self.record = record
        self.hook = frame_hook.FrameHook(self.compile_frame)
        self.states: dict[CodeKey, CodeState] = {}
        _regions.add(self)
        self.codes: dict[Any, types.CodeType] = {}
        """Generated code for a part of a function, such as a resume function, by the function's code and the part."""
        self._loops: dict[Any, LoopCode | None] = {}
        """The functions for loops with a graph break, by the function's code, their parameters and the loop."""
        self._resume_compiles: dict[CodeKey, str] = {}
        self._resume_depths: dict[CodeKey, int] = {}
        """The number of graph breaks in a row that led to each resume function."""
        self._excluded: dict[CodeKey, str] = {}
        """Generated code that is never compiled, with the reason."""
        self._policies: dict[CodeKey, DynamicPolicy] = {}
        self.replay_pools = Pools()

    def installed(self) -> list[InstalledCode]:
        """Returns the compiles of the root function that are in use."""
        state = self.states.get(CodeKey(self.root))
        found = [e for e in state.entries if not e.is_plain and frame_hook.has_entry(e.manager)] if state else []
        return list({e.id: e for e in found}.values())

    def replace_root(self, code: types.CodeType) -> None:
        """Compiles this code from now on, which was set as the code of the root function."""
        self.forget()
        self.root = code

    def wrap_pinned(self, fn: types.FunctionType) -> Callable[..., Any]:
        """Returns `fn`, whose code is compiled already, with the hook active for the functions that it calls."""
        self.exclude(fn.__code__, "pinned: it is compiled already")
        return self.hook.wrap(fn)

    def forget(self) -> None:
        """Frees everything that was compiled."""
        with convert_frame.compile_lock:
            self.hook.reset()
            for state in self.states.values():
                for entry in state.entries:
                    frame_hook.invalidate(entry.code, entry.manager)
            self.states.clear()
            self._policies.clear()

    def make_dropper(self, state: CodeState, compile_id: str) -> Callable[[Any], None]:
        """Returns a function that drops a compile; it is called when an object that the compile refers to dies."""
        state_ref, hook_ref, is_finalizing = weakref.ref(state), weakref.ref(self.hook), sys.is_finalizing

        def drop(_: Any) -> None:
            state = state_ref()
            if state is not None and not is_finalizing():  # when Python ends, globals are gone
                _drop_compile(state, compile_id, hook_ref())

        return drop

    def policy(self, code: types.CodeType) -> DynamicPolicy:
        """Returns the policy of which sizes and numbers are symbolic in the frames of this code."""
        dynamic = False if self._no_symbols() else self.options.dynamic
        return self._policies.setdefault(CodeKey(code), DynamicPolicy(dynamic))

    def _no_symbols(self) -> Literal["", "dynamic=False", "backend"]:
        if self.options.dynamic is False:
            return "dynamic=False"
        return "" if backends.supports_symbolic_sizes(self.options.backend) else "backend"

    def close(self) -> None:
        """Stops compiling and frees everything; called when the compiled function is deleted.

        A garbage collection in any thread may do so, even in one that the compiling thread waits for: what cannot be
        freed at once is freed at the next compile.
        """
        self.hook.close()
        lock = convert_frame.compile_lock
        if not lock.acquire(blocking=False):
            _closed.append(self)
            return
        try:
            self.forget()
        finally:
            lock.release()

    # ------------------------------------------------------------ one frame

    def compile_frame(self, info: FrameInfo) -> Any:
        """The callback of the frame hook: returns what runs in place of the frame."""
        watch = instruments.frame_watch
        return self.decide(info) if watch is None else watch.decide(self, info)

    def decide(self, info: FrameInfo) -> Any:
        """Returns what runs in place of the frame."""
        code = info.code
        if is_runtime(code) or runs_once(code) or is_override(code) or imports_modules(code):
            return frame_hook.skip_code_and_callees()
        if torch_state.is_observed_or_traced():
            return frame_hook.skip_call()
        if are_functorch_transforms_active() or in_dual_level():
            self._note_plain_call(info.code, _IN_TRANSFORM, _TRANSFORM_HINT)
            return frame_hook.skip_call()
        if is_build_thread():  # its compile holds the lock
            self._note_plain_call(info.code, _IN_BUILD, _BUILD_HINT)
            return frame_hook.skip_call()
        with (
            convert_frame.compile_lock,
            interrupts.deferred_signals(),
            deferred_collections(),
            silence_warnings(),
            DisableTorchFunctionSubclass(),  # capture looks at tensors of the user's classes
        ):
            while _closed:
                _closed.pop().forget()
            state = self._find_state(code)
            if state is None:
                return frame_hook.skip_code()
            state.frame.calls += 1
            if state.runs_eagerly:
                return frame_hook.skip_code()
            before = len(state.frame.compiles)
            try:
                return self._find_or_compile(state, info)
            except BaseException as error:
                begun = state.frame.compiles[before:]
                compile_ = begun[-1] if begun else state.record.compile(state.frame)
                decision = self._outcome_of_error(state, info, compile_, error)
                if decision is None:
                    raise
                error.__traceback__ = None  # its frames, which refer to the error, would keep the user's objects alive
                return decision

    def _note_plain_call(self, code: types.CodeType, where: str, hint: str) -> None:
        """Adds a note on a function that runs as plain Python because of where it is called."""
        notes = self.record().notes
        if not self.refusal(code) and not any(hint in known for known in notes):
            notes.append(f"{code.co_name} ran as plain Python {where}. {hint}")

    def _find_or_compile(self, state: CodeState, info: FrameInfo) -> Any:
        """Returns installed code whose guards hold, or compiles the frame."""
        state.entries = [e for e in state.entries if frame_hook.has_entry(e.manager)]
        scope = Scope(info.f_locals, info.f_globals, info.closure)
        found = self._reinstall(state, scope) or self._begin_training(state, scope)
        if found is not None:
            return found
        # a plain run would make calls of cached functions again; `CacheChanges` bounds these compiles
        if state.compile_count >= self.options.recompile_limit and not known_outcomes.are_for(info.code):
            return self._limit_reached(state)
        if state.entries and self._computes_nothing(state, info):
            return self._run_code_plain(state)  # there is nothing to explain, either
        if self._resume_depths.get(CodeKey(info.code), 0) > MAX_RESUMES:
            state.frame.skipped = f"more than {MAX_RESUMES} graph breaks in a row: the rest runs as plain Python"
            return self._run_code_plain(state)
        stance = frame_hook.stance()
        if stance == "eager_on_recompile" or (stance == "fail_on_recompile" and not may_have_tensors(info)):
            return frame_hook.skip_call()
        if stance in _EAGER_FIRST and state.frame.calls == 1:
            self.policy(info.code).observe(info.f_locals)
            return frame_hook.skip_call()
        if frame_hook.forces_backend() and FORCED_BACKEND not in state.record.notes:
            state.record.notes.append(FORCED_BACKEND)
        compile_ = state.record.compile(state.frame)
        compile_.no_symbols = self._no_symbols()
        with only_recorded(compile_, "guards", "why the frame is compiled again", self.options.strict):
            compile_.cause = _recompile_cause(state.entries, scope)
        if stance == "fail_on_recompile":
            raise _recompile_error(info.code, compile_.cause)
        is_library = library_of(info.code.co_filename) != ""
        frame = innermost_frame(lambda code: library_of(code.co_filename) != "") if is_library else None
        code = frame.f_code if frame is not None else None
        compile_.caller = _line_of(frame) if frame is not None else None
        del frame  # an exception's traceback would keep it, and the user's objects, alive
        drawn = random.getstate()
        try:
            return FrameCompile(self, state, info, scope, compile_).run()
        finally:
            random.setstate(drawn)  # PyTorch draws some for fake collectives
            with only_recorded(compile_, "guards", "some links to lines", self.options.strict):
                if compile_.steps and (link_guards := instruments.tool("link_guards")):
                    link_guards(compile_)
                caller = compile_.caller
                if code and caller and (compile_.cause or compile_.breaks or compile_.failures):
                    add_source(state.record, code)  # problems are shown there
                    caller.line = state.record.line(caller.filename, caller.lineno)

    def _computes_nothing(self, state: CodeState, info: FrameInfo) -> bool:
        """Whether compiles of a frame that Python calls had no operations, and this call has no tensors."""
        is_called = state.frame.kind != "root" and not known_outcomes.are_for(info.code)
        return is_called and not state.has_operations and not may_have_tensors(info)

    def _outcome_of_error(self, state: CodeState, info: FrameInfo, compile_: Compile, error: BaseException) -> Any:
        """Records that a compile ended with `error`, and returns the decision that the frame runs as plain Python.

        Returns None if the error is to be raised: it is the user's own, or the options ask for it.  It is not raised
        here, because this frame and the error would then keep each other, and the user's objects, alive.
        """
        if isinstance(error, RecursionError):
            compile_.outcome = "skipped"
            compile_.reason = "the call stack is too deep for the compiler's calls: this call runs as plain Python"
            return None
        if isinstance(error, Unsupported):  # generating code found a value that cannot be rebuilt
            reason = f"{error}: the frame runs as plain Python"
            skipped = sum(each.outcome == "skipped" for each in state.frame.compiles)
            if error.kind == "exception" and skipped < self.options.recompile_limit:  # another call need not raise it
                compile_.outcome, compile_.reason = "skipped", reason
                return frame_hook.skip_call()
            return self.skip_frame(state, info, compile_, reason)
        compile_.outcome, compile_.raised = "failed", type(error).__name__
        compile_.reason = str(error) or compile_.raised
        if isinstance(error, (UsageError, StrictError, CompileWarning)) or not isinstance(error, Exception):
            return None
        compile_.reason = f"{type(error).__name__}: {error}"
        report_failure(compile_, _failed_stage(compile_), error, strict=self.options.strict)
        return self._run_plain(state, info, compile_)

    def _reinstall(self, state: CodeState, scope: Scope) -> Any:
        """Installs compiled code again if its guards hold for this frame.

        The hook did not find the code because it was installed for other objects, or in another thread.
        """
        for entry in {e.id: e for e in state.entries}.values():
            times = sum(e.id == entry.id for e in state.entries)
            if times < MAX_INSTALLS and all_hold(entry.guards, scope):
                return self._install_again(state, entry, scope)
        return None

    def _install_again(self, state: CodeState, entry: InstalledCode, scope: Scope) -> Any:
        """Installs compiled code with guards for the objects of this frame."""
        manager = GuardTree(scope, entry.code).build(entry.guards, version_checks=False)
        state.entries.append(replace(entry, manager=manager))
        return frame_hook.run_code(entry.replacement, manager, entry.id)

    def _begin_training(self, state: CodeState, scope: Scope) -> Any:
        """Makes what the first step of a training makes, such as an optimizer's state, if a compile fits then."""
        for entry in {e.id: e for e in state.entries if e.makers}.values():
            made = MadeState()
            for maker in entry.makers:
                maker.make_in(scope, made)
            if made and all_hold(entry.guards, scope):
                with EnableTorchFunction():
                    holds_now = [e for e in state.entries if e.id == entry.id and e.manager.root.check(scope.f_locals)]
                decision = self._install_again(state, entry, scope)
                for each in holds_now:  # the new one takes its place
                    frame_hook.invalidate(each.code, each.manager)
                    state.entries.remove(each)
                return decision
            made.drop()
        return None

    def _find_state(self, code: types.CodeType) -> CodeState | None:
        """Returns the state of a code object, or None if it is not compiled.  A new record starts with new states."""
        record = self.record()
        state = self.states.get(CodeKey(code))
        if state is not None and state.record is record:
            return state
        resumes = self._resume_compiles.get(CodeKey(code))
        refusal = self.refusal(code)
        if refusal and code is not self.root:
            return None
        kind: Literal["root", "resume", "called"] = "root" if code is self.root else "called"
        if resumes is not None:
            kind = "resume"
        frame = record.frame(code.co_name, code.co_filename, _first_line(code), kind)
        if code is self.root and (refusal or is_generator(code)):
            frame.skipped = f"{refusal or 'a generator or coroutine'}: it runs as plain Python"
            _, frame.skipped_line = reader_of_own_frame(code)
            frame.calls += 1
            return None
        frame.resumes = resumes
        new_state = CodeState(frame, record)
        if state is not None:
            new_state.entries = state.entries
        self.states[CodeKey(code)] = new_state
        return new_state

    def refusal(self, code: types.CodeType) -> str:
        """Returns why this code object is never compiled; an empty string if it may be."""
        if CodeKey(code) in self._excluded:
            return self._excluded[CodeKey(code)]
        if is_runtime(code):
            return "part of Cutaway"
        if code is self.root or CodeKey(code) in self._resume_compiles:
            return frame_reason(code)
        return skip_reason(code)

    def why_plain(self, code: types.CodeType) -> str:
        """Returns why code that may be compiled ran as plain Python."""
        state = self.states.get(CodeKey(code))
        if state is None:
            return NOT_CAPTURED
        if state.frame.skipped:
            return state.frame.skipped
        if state.frame.limit_reached:
            return f"it was compiled {state.compile_count} times, which is the limit"
        reasons = [c.reason for c in state.frame.compiles if c.reason]
        return reasons[-1] if reasons else NOT_CAPTURED

    def code(self, key: Any, make: Callable[[], types.CodeType]) -> types.CodeType:
        """Returns generated code.  It is made and verified once: the compiles of another code object would be lost."""
        if key not in self.codes:
            self.codes[key] = make()
            verify(self.codes[key])
        return self.codes[key]

    def loop(self, code: types.CodeType, layout: ResumeLayout, at: int) -> LoopCode | None:
        """Returns the functions for the loop around an instruction, made and verified once; None if the loop runs as
        plain Python."""
        key = (CodeKey(code), layout, outermost_loops(code)[at])
        if key not in self._loops:
            try:
                found = self._loops[key] = loop_code(code, layout, at)
            except Unsupported:
                return self._loops.setdefault(key, None)
            for each in (found.code, *(part.code for part in found.parts)):
                verify(each)
        return self._loops[key]

    def exclude(self, code: types.CodeType, reason: str) -> None:
        """Excludes a generated function from capture; functions that it calls may still be captured."""
        self._excluded[CodeKey(code)] = reason

    def add_resume(self, code: types.CodeType, of: types.CodeType, line: int, compile_: Compile, record: Record) -> int:
        """Adds a resume function that the frame of code `of` calls, and returns the number of its frame in the record.

        It is added before its first call, so that the record also shows resume functions that are never reached.
        """
        self._resume_compiles[CodeKey(code)] = compile_.id
        self._resume_depths[CodeKey(code)] = self._resume_depths.get(CodeKey(of), 0) + 1
        frame = record.frame(code.co_name, code.co_filename, line, "resume")
        frame.resumes = compile_.id
        self.states[CodeKey(code)] = CodeState(frame, record)
        return frame.id

    def _limit_reached(self, state: CodeState) -> Any:
        note = (
            f"{state.frame.title} was compiled {state.compile_count} times, which is the limit; further calls that no "
            "compile covers run as plain Python.  See the causes of its recompiles."
        )
        state.frame.limit_reached = True
        if note not in state.record.notes:
            state.record.notes.append(note)
        # outcomes of cached functions may come later, with which a frame is compiled beyond the limit
        return frame_hook.skip_call() if state.makes_cached_calls else frame_hook.run_only_compiled()

    def skip_frame(self, state: CodeState, info: FrameInfo, compile_: Compile, reason: str) -> Any:
        """Decides that a frame that cannot be captured runs as plain Python from now on."""
        compile_.outcome, compile_.reason = "skipped", reason
        if all(each.outcome != "compiled" for each in state.frame.compiles):
            state.frame.skipped = reason
        return self._run_plain(state, info, compile_)

    def _run_plain(self, state: CodeState, info: FrameInfo, compile_: Compile) -> Any:
        """Decides that calls like that of this frame run as plain Python, as `plain_frames` says."""
        entry = plain_entry(info, compile_.id, self.make_dropper(state, compile_.id))
        if entry is None:
            return self._run_code_plain(state)
        if state.plain_count >= self.options.recompile_limit:
            return frame_hook.run_only_compiled()
        state.entries.append(entry)
        return frame_hook.run_code(entry.replacement, entry.manager, entry.id)

    def _run_code_plain(self, state: CodeState) -> Any:
        """Decides that a code object runs as plain Python from now on."""
        state.runs_eagerly = True
        return frame_hook.skip_code()


def regions() -> list[Region]:
    """Returns all regions."""
    return list(_regions)


def _drop_compile(state: CodeState, compile_id: str, hook: frame_hook.FrameHook | None) -> None:
    """Frees what a compile holds.  Takes no lock, because it may be called wherever Python frees objects."""
    dropped = [entry for entry in state.entries if entry.id == compile_id]
    state.entries = [entry for entry in state.entries if entry.id != compile_id]
    if not all(entry.is_plain for entry in dropped):
        state.expired.add(compile_id)
    for entry in dropped:
        frame_hook.invalidate(entry.code, entry.manager)
        if hook is not None:
            hook.forget(entry.manager)


def _note_running() -> None:
    global _forked_while_running
    _forked_while_running = frame_hook.is_hooked_code_running(but=threading.get_ident())


def _after_fork() -> None:
    """Drops everything compiled in a forked child if another thread may have been checking guards during the fork.

    That thread does not exist in the child, so the C++ lock of its guard tree would never be released.
    """
    if _forked_while_running:
        for region in list(_regions):
            _abandoned.extend(entry for state in region.states.values() for entry in state.entries)
            region.forget()


_abandoned: list[InstalledCode] = []
"""What a thread that is not in this forked child was perhaps checking: a check that runs cannot be freed."""

if hasattr(os, "register_at_fork"):
    fork_locks.note_before_fork(_note_running)
    os.register_at_fork(after_in_child=_after_fork)


def _failed_stage(compile_: Compile) -> Stage:
    """Returns the stage that failed.

    A failure outside all stages is before the first one ("guards") or at the installation of the code ("bytecode").
    """
    failed = [event.stage for event in compile_.events if event.outcome == "failed"]
    if failed:
        return failed[-1]
    return "bytecode" if compile_.events else "guards"


def _first_line(code: types.CodeType) -> int:
    """Returns the first line of a code object that has code; ``co_firstlineno`` of module code is always 1."""
    if code.co_name != "<module>":
        return code.co_firstlineno
    return min((line for *_, line in code.co_lines() if line), default=code.co_firstlineno)


def _line_of(frame: types.FrameType) -> StackLine:
    filename, lineno = frame.f_code.co_filename, frame.f_lineno
    return StackLine(filename, lineno, frame.f_code.co_name, linecache.getline(filename, lineno).strip())


def _recompile_error(code: types.CodeType, cause: Recompile | None) -> RecompileError:
    why = f": {cause.text}" if cause else ", which was not compiled before"
    where = f"{code.co_name} ({code.co_filename}:{code.co_firstlineno})"
    return RecompileError(f"a call of {where} has to be compiled while the stance is 'fail_on_recompile'{why}")


def _recompile_cause(installed: list[InstalledCode], scope: Scope) -> Recompile | None:
    """Returns why none of these compiles serves a call: every guard of each that does not hold.

    Of those that are equally near, the latest counts.  All guards of it were checked here, so if a single one fails,
    the call would have used the compile otherwise.
    """
    entries = {entry.id: entry for entry in installed if not entry.is_plain}
    missed = [MissedEntry(id_, failures(entry.guards, scope)) for id_, entry in reversed(entries.items())]
    for each in missed:
        for failed in each.failed:
            failed.is_of_first_step = failed.source in entries[each.compile].makes and failed.expected in NOTHING_YET
    missed = [each for each in missed if each.failed]
    return recompile(missed, checked=entries) if missed else None

"""Runs a frame again when its graph fails at run time: an index out of range, sizes that fake tensors did not check.

Python would have reached the failing operation step by step, after the side effects before it and inside the ``try`` or
``with`` blocks around it.  So the frame runs again from its start, as plain Python, with unchanged inputs: what the
graph wrote to is restored from copies that were made before, and custom operators that ran do not run again
(`support/recorded_calls.py`).  A frame whose graph has run a collective does not run again, since the other
ranks would not repeat it: the error propagates.  So does what the result of a backend of the user raises, unless that
is the graph itself.  Generated code does this::

    out = graph(x, y)
    if out is None:
        return run_frame_eagerly(code, globals, closure, args, kwargs)

If the program then raises no exception of that kind, the failure was the compiler's; see `hook/failures.py`.  If a
function of the program raised it, such as a signal handler that has left no trace of what it was called for
(`support/interrupts.py`), it is raised once more, as if it had come at the end of the frame."""

from __future__ import annotations

import sys
import threading
import traceback
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import distributed

from compiler_core.autograd.eager_runs import SavedInput, is_unrepeatable, restore_inputs, versions_of, written_inputs
from compiler_core.capture.values.cached_calls import CacheChanges, ExpectedOutcome, Outcome, known_outcomes
from compiler_core.config import Options
from compiler_core.errors import BackendError, CompileWarning, CutawayError
from compiler_core.guards.lifetimes import is_library
from compiler_core.hook.failures import RAISED, report_failure
from compiler_core.hook.frame_hook import FrameHook, hook_off, never_compile
from compiler_core.records import Compile, FailedGuard, MissedEntry, Recompile
from compiler_core.records.recompiles import recompile
from compiler_core.resume.resume_functions import raising_function
from compiler_core.support import torch_state
from compiler_core.support.eager_warnings import warning_as_program
from compiler_core.support.fx_graphs import draws_random_numbers
from compiler_core.support.fx_symbols import ASSUMPTION_FAILED
from compiler_core.support.interrupts import raised_by_handler
from compiler_core.support.node_facts import group_names, waits_for_data
from compiler_core.support.recorded_calls import (
    CallRecord,
    begin_record,
    end_record,
    has_recorded_calls,
    open_record,
    with_recorded_calls,
)
from compiler_core.support.tensors import tensors_in
from compiler_core.torch_private import top_saved_tensors_default_hooks

_failed = threading.local()
"""``last``: the `_FailedRun` of the graph that just failed in this thread.  `run_frame_eagerly`, which is called next,
reads it."""

RAN_TWICE_MEANING = (
    "The call ran again as plain PyTorch: the results are right, but such calls are slower than uncompiled."
)


_RUN_SOURCE = """
def {name}({inputs}):
    {check_anomaly}
    {save}
    {begin_record}
    try:
        return compiled({inputs})
    except BaseException as error:
        if not can_run_again(error, undo):
            raise
    {end_record}
"""


@dataclass(frozen=True)
class _FailedRun:
    compile: Compile
    error: Exception
    strict: bool
    """Raise an error if the failure is the compiler's."""
    is_from_program: bool
    """Whether a function of the program raised the error, or passed it on."""
    calls: CallRecord | None
    is_of_assumption: bool
    """Whether a condition that the graph takes for granted did not hold (`GraphBuilder.assume`)."""


def none_on_failure(
    graph: torch.fx.GraphModule,
    compiled: Callable[..., Any],
    name: str,
    compile_: Compile,
    options: Options,
) -> Callable[..., Any]:
    """Wraps `compiled` so that it returns None if it failed and the frame may run again; otherwise the error
    propagates.

    Under ``torch.autograd.detect_anomaly`` it returns None at once, since the anomaly report has to show the user's
    lines.

    Args:
        graph: the captured graph.
        compiled: the compiled graph.
        name: the name of the wrapper, shown in tracebacks.
        compile_: the record of the compile.
        options: the options of the compile.
    """
    # as it was captured: a stage has failed, or the backend returned it
    runs_graph = compiled == graph.forward
    is_of_user = callable(options.backend) and not runs_graph
    if runs_graph:
        compiled = warning_as_program(graph, with_recorded_calls(graph).forward)
    # the graph itself writes to inputs while it runs; what we compile at its end, when nothing can fail any more
    in_parts = any(map(waits_for_data, graph.graph.nodes))
    save_inputs, records_calls = _input_saver(graph, runs_graph or in_parts), has_recorded_calls(graph)

    def can_run_again(error: BaseException, undo: Undo | None) -> bool:
        calls = open_record() if records_calls else None
        is_of_assumption = isinstance(error, RuntimeError) and str(error) == ASSUMPTION_FAILED
        again = is_of_assumption or (_may_come_from_operation(error) and not is_unrepeatable(error))
        if again and is_of_user and not is_of_assumption and not _is_already_reported(compile_):
            report_failure(compile_, "run", BackendError.of(compile_.backend, cast(Exception, error)), meaning=RAISED)
        again = again and (is_of_assumption or not is_of_user)
        if undo:
            again = undo(again)
        if again:
            is_from_program = not is_of_assumption and _passed_code_of_program(error)
            failed = cast(Exception, error)
            _failed.last = _FailedRun(compile_, failed, options.strict, is_from_program, calls, is_of_assumption)
        return again

    check_anomaly = "if is_anomaly_enabled(): return None" if _records_autograd(graph.graph) else ""
    inputs = "".join(f"a{i}, " for i, _ in enumerate(graph.graph.find_nodes(op="placeholder")))
    save = f"undo = save_inputs(({inputs}))" if save_inputs else "undo = None"
    scope: dict[str, Any] = {"compiled": compiled, "save_inputs": save_inputs, "can_run_again": can_run_again}
    scope |= {"is_anomaly_enabled": torch.is_anomaly_enabled, "begin_record": begin_record, "end_record": end_record}
    begin, end = ("begin_record()", "finally: end_record()") if records_calls else ("", "")
    text = _RUN_SOURCE.format(
        name=name, inputs=inputs, check_anomaly=check_anomaly, save=save, begin_record=begin, end_record=end
    )
    exec(compile(text, "<cutaway graph>", "exec"), scope)
    run: Callable[..., Any] = scope.pop(name)
    never_compile(run.__code__)
    return run


def _records_autograd(graph: torch.fx.Graph) -> bool:
    """Returns whether autograd records an operation of the graph."""
    return any(t.requires_grad for n in graph.nodes if n.op.startswith("call") for t in tensors_in(n.meta.get("val")))


Undo = Callable[[bool], bool]
"""Undoes what a failed run did; the argument says whether the frame may run again.  Returns whether it can."""


def _input_saver(graph: torch.fx.GraphModule, writes_at_once: bool) -> Callable[[Sequence[Any]], Undo] | None:
    """Returns a function to call with the inputs before each run of `graph`, or None if the graph changes nothing.

    That function returns an `Undo`, which reverts what the run did before it failed.  Most graphs change nothing, and
    saving inputs costs time at every call.
    """
    written, random_numbers = written_inputs(graph), draws_random_numbers(graph.graph)
    groups = group_names(graph.graph.nodes)
    save_written = _restorer if writes_at_once else _unchanged_check
    save_state = torch_state.state_restorer(graph.graph)
    if not (written or random_numbers or save_state or groups):
        return None

    def save(inputs: Sequence[Any]) -> Undo:
        collectives = count_collectives(groups)
        restore_written = save_written([inputs[i] for i in written])
        generators = _generator_states() if random_numbers else []
        restore = save_state() if save_state else None

        def undo(again: bool) -> bool:
            if restore:
                restore()
            if not again or count_collectives(groups) != collectives or not restore_written():
                return False
            for set_state, state in generators:
                set_state(state)
            return True

        return undo

    return save


def count_collectives(names: Sequence[str]) -> Any:
    """Returns how many collectives each group has run.  The result equals an earlier one if none ran since."""
    c10d: Any = distributed.distributed_c10d
    try:
        groups = [c10d._resolve_process_group(name) for name in names]
        return [group._get_sequence_number_for_group() for group in groups]
    except Exception:  # such a group does not exist, or its backend does not count
        return object()


def _restorer(tensors: Sequence[torch.Tensor]) -> Callable[[], bool]:
    """Returns a function that restores the tensors, and returns whether it could."""
    saved = [SavedInput.save(tensor) for tensor in tensors]
    return lambda: restore_inputs(saved)


def _unchanged_check(tensors: Sequence[torch.Tensor]) -> Callable[[], bool]:
    """Returns a function that tells whether the tensors are unchanged.

    A run that writes to its inputs at its end only leaves them unchanged if it fails.
    """
    versions = versions_of(tensors)
    return lambda: versions is not None and versions == versions_of(tensors)


def _generator_states() -> list[tuple[Callable[[Any], Any], Any]]:
    """Returns the states of the random number generators that a graph may use, each with the function that restores it.

    For a GPU's generator that is its offset, which is unavailable while a CUDA graph is recorded.
    """
    of_cpu: Any = torch.default_generator
    on_gpus: Any = torch.cuda
    of_gpus = on_gpus.default_generators if on_gpus.is_initialized() else ()
    if of_gpus and on_gpus.is_current_stream_capturing():
        of_gpus = ()  # their offsets are unavailable then
    return [(of_cpu.set_state, of_cpu.get_state()), *((g.set_offset, g.get_offset()) for g in of_gpus)]


def _may_come_from_operation(error: BaseException) -> bool:
    """Returns whether an operation may have raised `error`.

    False for Ctrl-C and what other signal handlers raise, for errors under the user's saved-tensor hooks (a checkpoint
    ends its second run with one), for warnings of the compiler that the user's filters turn into errors, and for what
    another thread raises in this one (`_is_from_another_thread`).
    """
    if isinstance(error, CompileWarning) or raised_by_handler(error) or _is_from_another_thread(error):
        return False
    return isinstance(error, Exception) and top_saved_tensors_default_hooks(True) is None


def _is_from_another_thread(error: BaseException) -> bool:
    """Returns whether another thread raised `error` here, by ``PyThreadState_SetAsyncExc``, as programs do to limit the
    time of a call.

    It may be raised anywhere, and is recognised where the code does not know its class.
    """
    entry = error.__traceback__
    while entry is not None and entry.tb_next is not None:
        entry = entry.tb_next
    package = (type(error).__module__ or "").partition(".")[0]
    if entry is None or package in ("builtins", *_OWN_PACKAGES):
        return False
    f_globals = entry.tb_frame.f_globals
    is_generated = "__name__" not in f_globals or entry.tb_frame.f_code.co_filename.startswith("<")
    return is_generated or str(f_globals["__name__"]).partition(".")[0] in _OWN_PACKAGES


_OWN_PACKAGES = ("torch", "compiler_core", "kernel_magics")
"""The packages with the code that runs between the user's calls and the kernels of PyTorch and ours."""


def _passed_code_of_program(error: BaseException) -> bool:
    """Whether a function raised `error`, or passed it on, that is neither ours nor of PyTorch or Python's library.

    False for errors of our classes, which no program raises.
    """
    if isinstance(error, CutawayError):
        return False
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(not _is_own_code(frame) and not is_library(str(frame.f_globals["__name__"])) for frame in frames)


def _is_own_code(frame: types.FrameType) -> bool:
    """Whether the code of a frame is ours, or was generated by us or PyTorch."""
    name = frame.f_globals.get("__name__")
    return name is None or str(name).partition(".")[0] in _OWN_PACKAGES


def run_frame_eagerly(
    code: types.CodeType, f_globals: Any, closure: tuple[types.CellType, ...], args: tuple[Any, ...], kwargs: Any
) -> Any:
    """Runs the frame from its start as plain Python, with capture disabled for everything that it calls.

    If a graph failed and the program raises no such error, the compiler was wrong, and a failure is reported.
    """
    failed: _FailedRun | None = _failed.__dict__.pop("last", None)
    function = types.FunctionType(code, f_globals.value, code.co_name, None, closure)
    with ExitStack() as stack:
        stack.enter_context(hook_off())
        if failed is None:
            return function(*args, **kwargs)
        if failed.calls:
            stack.enter_context(failed.calls.replayed())
        if failed.is_of_assumption or (_is_already_reported(failed.compile) and not failed.is_from_program):
            return function(*args, **kwargs)
        found = stack.enter_context(_exceptions_like(failed.error))
        result = function(*args, **kwargs)
    if not found and failed.is_from_program:
        try:
            raise failed.error
        finally:
            del failed  # otherwise this frame and the error keep each other alive
    if not found:
        report_failure(failed.compile, "run", failed.error, meaning=RAN_TWICE_MEANING, strict=failed.strict)
    return result


def _is_already_reported(compile_: Compile) -> bool:
    """Returns whether this compile has reported such a failure: the graph is likely to fail in the same way at every
    call."""
    return any(f.stage == "run" for f in compile_.failures)


_OPERATION_ERRORS = (RuntimeError, IndexError, ValueError, TypeError)
"""What PyTorch's operators raise.  A kernel and eager's may raise another one of these for the same cause."""


@contextmanager
def _exceptions_like(error: Exception) -> Iterator[list[type]]:
    """Collects the types of the exceptions like `error` that Python code raises or passes on in the block, caught or
    not."""
    found: list[type] = []
    user_trace = sys.gettrace()

    def like(kind: type[BaseException]) -> Any:
        return _OPERATION_ERRORS if issubclass(kind, _OPERATION_ERRORS) else kind

    def trace_frame(user_trace: Any) -> Callable[..., Any]:
        def trace(frame: types.FrameType, event: str, arg: Any) -> Any:
            nonlocal user_trace
            if event == "exception" and (issubclass(arg[0], type(error)) or isinstance(error, like(arg[0]))):
                found.append(arg[0])
            if user_trace:
                user_trace = user_trace(frame, event, arg)
            return trace

        return trace

    def trace_all(frame: types.FrameType, event: Any, arg: Any) -> Any:
        frame.f_trace_lines = user_trace is not None
        return trace_frame(user_trace(frame, event, arg) if user_trace else None)

    sys.settrace(trace_all)
    try:
        yield found
    finally:
        sys.settrace(user_trace)


# ---------------------------------------------------------------- calls of functions with a cache
#
# Generated code begins with a look for their results, and makes them when the graph has run
# (`capture/values/cached_calls.py`).  If a result is not the one that capture saw, the compile is dropped, and the
# frame runs again from its start: through the hook, which finds another compile or makes one, with the outcomes of the
# calls that were made.  A function that the cache had no result for may have changed what guards look at, so then the
# frame also runs again.  Generated code does this:
#
#     waiting = calls.look((table, (4,), {}), ...)
#     if waiting is None:
#         return calls.run_again(code, globals, closure, args, kwargs)
#     out = graph(x, y)
#     ...
#     calls.make(waiting)
#
# Where capture had made calls after the graph break, before it found the break, it goes on like this:
#
#     calls.reach_break()
#     result = calls.function_at_break(f)(4)


Call = Callable[[], Outcome]
"""Makes a call, of which the result was found in the cache."""


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

    def look(self, *loaded: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> list[Call] | None:
        """Looks for the results, with the function and the arguments of each call.

        Returns the calls that are still to be made, or None if the compile may not run.
        """
        known, _ = known_outcomes.take(self._code)
        ran = False
        made: list[Outcome] = []
        waiting: list[Call] = []
        for i, (expected, (fn, args, kwargs)) in enumerate(zip(self._expected, loaded, strict=True)):
            if i < len(known):
                made.append(outcome := known[i])
            elif self._changes.are_frequent(fn):
                self._give_up(made)  # a compile that breaks the graph there makes this call
                return None
            else:
                waiting.append(partial(expected.repeat, fn, args, kwargs))
                outcome = Outcome.found(fn, args, kwargs) or self._make_now(made, waiting)
                ran = ran or outcome.missed
            if not expected.agrees(outcome):
                self._changes.count(fn)
                self._give_up([*made, *known[i + 1 :]], self._cause(expected, outcome))
                return None
        if ran:
            known_outcomes.put(self._code, made)
        return None if ran else waiting

    def _make_now(self, made: list[Outcome], waiting: list[Call]) -> Outcome:
        """Makes calls of which the last one can be known only so; returns its outcome."""
        made += [call() for call in waiting]
        waiting.clear()
        return made[-1]

    def make(self, waiting: list[Call]) -> None:
        """Makes the calls, of which the results are known."""
        for call in waiting:
            call()

    def reach_break(self) -> None:
        """Notes that the frame has come to its graph break, after which it comes to calls that were made already."""
        known_outcomes.reach_break(self._code, sys._getframe(1))

    def function_at_break(self, fn: Any) -> Any:
        """Returns what the instruction at the break calls: `fn`, or what stands for it if its call was made already."""
        outcome = known_outcomes.at_break(fn, sys._getframe(1))
        if outcome is None or (outcome.error is not None and not outcome.raised_in):  # it did not take its arguments
            return fn
        outcome.draw()
        if outcome.error is None:
            return lambda *_, **__: outcome.result
        return raising_function(outcome.error, outcome.raised_in)

    def _give_up(self, made: list[Outcome], cause: Recompile | None = None) -> None:
        known_outcomes.put(self._code, made, cause)
        self._drop(None)

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
        return recompile([MissedEntry(self._compile_id, [failed])], checked=[self._compile_id])


never_compile(CachedCalls.look.__code__)
never_compile(CachedCalls.make.__code__)
never_compile(CachedCalls.run_again.__code__)
never_compile(CachedCalls.reach_break.__code__)
never_compile(CachedCalls.function_at_break.__code__)

"""The code object that replaces a captured frame, and where the capture of it stops at a graph break.

It calls the compiled graph, replays the side effects of the capture, and then returns the frame's result, or continues
after the graph break (`break_codegen.py`).
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch.fx as fx

from compiler_core.bytecode import assemble, make
from compiler_core.capture.attempt import Capture, cell_identities
from compiler_core.capture.bytecode_emitter import GRAPH_RESULT, Emitter, frame_values, pushed_values, rebuilt_from
from compiler_core.capture.interpreter import Interpreter, StopPoint
from compiler_core.capture.rules.torch.overrides import enter_mode
from compiler_core.capture.values.base import ObservedException, Value
from compiler_core.capture.values.builtin.constant import ConstantValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import AttrSource, Box, path
from compiler_core.resume import resume_functions
from compiler_core.resume.break_codegen import (
    BreakCode,
    FrameState,
    MakeInstructionCode,
    MakeResumeCode,
    ResumeCalls,
    breaking_targets,
)
from compiler_core.resume.eager_fallback import CachedCalls, run_frame_eagerly


class FrameCode:
    """Generates the replacement of one frame from the state in which its capture ended.

    Args:
        capture: the graph, the side effects and the changes of global state.
        active: the active frames, outermost first: the frame itself, and the inlined calls in which capture stopped.
        stop: where capture stopped for a graph break; None if it reached the end of the frame.
        resume_code: makes the code of a resume function.
        instruction_code: makes the code of a function that runs only the instruction that broke the graph.
        cached_calls: the calls of functions with a cache that the frame makes.
        runs_loop: whether `resume_code` makes the code of a loop function.
    """

    def __init__(
        self,
        capture: Capture,
        active: list[Interpreter],
        stop: StopPoint | None,
        resume_code: MakeResumeCode,
        instruction_code: MakeInstructionCode,
        cached_calls: CachedCalls,
        runs_loop: bool = False,
    ) -> None:
        self.capture, self.tx, self.stop = capture, active[0], stop
        self.code: types.CodeType = self.tx.code
        self.emit = Emitter(capture, self.code)
        self.level = 0
        """The active frame whose values are being rebuilt: the one that is responsible if that fails."""
        self.frames: list[FrameState] = []
        if stop is not None:
            innermost, runs = active[-1], stop.runs_instruction
            self.frames = [FrameState(tx, breaking_targets(tx, tx is innermost, runs)) for tx in active]
        self._resume_code, self._instruction_code = resume_code, instruction_code
        self._cached_calls, self._runs_loop = cached_calls, runs_loop

    def live(self) -> list[Value]:
        """Returns the values that are needed after the graph has run."""
        found = [self.tx.returned] if self.tx.returned is not None else []
        found += [value for frame in self.frames for value in frame.values(frame.stack)]
        return found + pushed_values(self.capture, self.capture.effects.replay) + self.capture.overrides.modes

    def generate(
        self, compiled: Callable[..., Any] | None, outputs: dict[fx.Node, int], is_replayed: bool = False
    ) -> types.CodeType:
        """Returns the code object.

        Args:
            compiled: the compiled graph, or None if nothing was captured.
            outputs: the index of each output of the graph among its results.
            is_replayed: whether the graph's launches are replayed.
        """
        self.emit.outputs = outputs
        self._rerun_if_cells_differ()
        waiting = self._look_for_cached_results()
        if compiled is not None:
            self._drop_gradients(is_replayed)
            self.emit.call_graph(compiled)
            self._rerun_if_graph_failed()
        if waiting is not None:
            self.emit.call_loaded(self._cached_calls.make, [partial(self.emit.load_temp, waiting)])
            self.emit.pop()
        for change in self.capture.graph.state_changes:
            self.emit.call_object(change.do, [ConstantValue(a) for a in change.args])
            self.emit.pop()
        for mode in self.capture.overrides.modes:
            self.emit.call_object(enter_mode, [mode])
            self.emit.pop()
        if self.stop is None:
            self._return()
        else:
            self._break(self.stop)
        return self._assemble()

    def _drop_gradients(self, is_replayed: bool) -> None:
        """``parameter.grad = None`` of gradients that nothing needs and that the program drops, as by ``zero_grad()``:
        their memory is free while the graph computes the next ones.

        Where the program drops them after an operation, an error of that operation would leave them.  Operations whose
        launches are replayed raise none.
        """
        capture = self.capture
        used = [*rebuilt_from(capture, self.live()), *capture.graph.inputs]
        kept = {source for value in used for source in path(value.source)}
        values = set(map(id, used))
        for tensor, is_first in capture.effects.dropped_gradients:
            if not is_first and not is_replayed:
                continue
            assert tensor.real is not None and tensor.source is not None
            place, grad = AttrSource(tensor.source, "grad"), tensor.real.grad
            _, old = (None, None) if grad is None else capture.outside.values_by_id.get(id(grad), (None, None))
            if place not in kept and (old is None or (id(old) not in values and old.source not in kept)):
                self.emit.constant(None)
                self.emit.source(tensor.source)
                self.emit.store_attr("grad")

    def _rerun_if_graph_failed(self) -> None:
        """``if out is None: return run_frame_eagerly(...)``, see `eager_fallback.py`."""
        succeeded = make.nop()
        self.emit.load_temp(GRAPH_RESULT)
        self.emit.add(*make.pop_jump_if_none(False, succeeded))
        self._run_frame(run_frame_eagerly)
        self.emit.add(succeeded)

    def _rerun_if_cells_differ(self) -> None:
        """Runs the frame eagerly if a cell of it is shared with other functions and was not at capture, or vice
        versa."""
        pairs, same_cells, differ = list(cell_identities(self.capture.outside)), make.nop(), make.nop()
        for own, other, same in pairs:
            self.emit.load_cell(own.name)
            other.load(self.emit)
            self.emit.add(make.is_op(), *make.pop_jump_if(not same, differ))
        if pairs:
            self.emit.add(make.jump(same_cells), differ)
            self._run_frame(run_frame_eagerly)
            self.emit.add(same_cells)

    def _look_for_cached_results(self) -> str | None:
        """``waiting = calls.look(...)``, ``if waiting is None: return calls.run_again(...)``, see `CachedCalls`.

        Returns the name of ``waiting``, or None if there are no such calls.
        """
        calls, same = self.capture.cached_calls.calls, make.nop()
        if not calls:
            return None
        self.emit.call_loaded(self._cached_calls.look, [partial(call.load, self.emit) for call in calls])
        waiting = self.emit.store_temp()
        self.emit.load_temp(waiting)
        self.emit.add(*make.pop_jump_if_none(False, same))
        self._run_frame(self._cached_calls.run_again)
        self.emit.add(same)
        return waiting

    def _run_frame(self, run: Callable[..., Any]) -> None:
        """``return run(...)`` with the frame's code, globals, closure and arguments."""
        emit, code = self.emit, self.code
        names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        starred = list(code.co_varnames[len(names) :])
        emit.add(*make.load_callable([make.load_const(run)]))
        emit.constant(code)
        emit.constant(Box(self.capture.guards.scope.f_globals))
        for name in code.co_freevars:
            emit.load_cell(name)
        emit.add(make.build_tuple(len(code.co_freevars)))
        for name in names[: code.co_argcount]:
            emit.load_local(name)
        emit.add(make.build_tuple(code.co_argcount))
        if code.co_flags & inspect.CO_VARARGS:
            emit.load_local(starred.pop(0))
            emit.add(make.binary_op("+"))
        for name in names[code.co_argcount :]:
            emit.constant(name)
            emit.load_local(name)
        emit.add(make.build_map(code.co_kwonlyargcount))
        if code.co_flags & inspect.CO_VARKEYWORDS:
            emit.load_local(starred.pop(0))
            emit.add(make.binary_op("|"))
        emit.add(*make.call(5), make.return_value())

    def _return(self) -> None:
        value = self.tx.returned
        assert value is not None
        if self.capture.effects:
            self.emit.keep_unless_fixed(value)
            self.capture.effects.replay(self.emit)
            self.emit.load_kept(value)
        else:
            self.emit.value(value)
        self.emit.add(make.return_value())

    def _break(self, stop: StopPoint) -> None:
        """Rebuilds the values that the active frames need, replays side effects, and continues after the break."""
        for level, frame in enumerate(self.frames):
            self.level = level
            for value in frame.values(frame.stack):
                self.emit.keep_unless_fixed(value)
        self.capture.effects.replay(self.emit)
        if made := self.capture.cached_calls.made_after_break():
            self.emit.call_loaded(self._cached_calls.reach_break, [])
            self.emit.pop()
        calls = ResumeCalls(self.emit, self.frames, self._resume_code, self._runs_loop)
        if stop.runs_instruction:
            replaced = (made[0].function, self._cached_calls.function_at_break) if made else None
            BreakCode(self.emit, calls, self._instruction_code, replaced).run_and_resume()
        else:
            innermost = self.frames[-1]
            calls.resume(innermost.tx.pc, innermost.stack)

    def _assemble(self) -> types.CodeType:
        free = self.code.co_freevars
        instructions = [*make.prologue((), len(free)), *self.emit.instructions]
        line = resume_functions.line_positions(self._line())
        for instruction in instructions:
            instruction.positions = instruction.positions or line
        # the variable of an inlined comprehension may have the name of a free variable (3.12)
        local_names = tuple(n for n in self.code.co_varnames if n not in free)
        # PyTorch's hook copies the slots of the frame's cells, from the last one down, into the last slots of this
        # code.  With fewer slots than the frame has, they would overwrite its arguments.
        cells = tuple(n for n in self.code.co_cellvars if n not in local_names)
        return assemble(instructions, self.code, co_varnames=local_names + cells, co_cellvars=())

    def _line(self) -> int:
        """Returns the line of the generated code: the line of the break, or the first line of the function."""
        if self.stop is None:
            return self.code.co_firstlineno
        at = self.tx.pc if len(self.frames) == 1 else self.tx.pc - 1
        return self.tx.instructions[at].lineno or self.code.co_firstlineno


# ---------------------------------------------------------------- where capture stops
#
# The active frames are the one that is compiled and those of the calls that were inlined into it.  The best place to
# stop is the very instruction that broke the graph, in the innermost frame: Python runs that instruction, and each
# frame continues in a resume function.  If that is impossible, the call that led to the instruction is run as a whole,
# one frame further out.  Of a break in a loop, capture stops before the loop: Python runs the loop, and its body is a
# function (`loop_functions.py`).


MAX_LEVEL = 8
"""Of an active frame that continues in a resume function."""


def active_frames(innermost: Interpreter) -> list[Interpreter]:
    """Returns the active frames, outermost first."""
    found = [innermost]
    while (parent := found[-1].parent) is not None:
        found.append(parent)
    return found[::-1]


def break_points_for(innermost: Interpreter, why: Unsupported) -> list[StopPoint]:
    """Returns where capture may stop after `why` was raised, the best place first."""
    frames, found = active_frames(innermost), list[StopPoint]()
    before_loop = [frames[0].stop_point] if frames[0].stop_point.in_loop else []
    if innermost.capture.open_generators and _drops_suspended_generator(innermost):
        return before_loop
    if unfinished := innermost.capture.unfinished:
        # a real generator or collective continues after the break, so Python must start it
        first = min(unfinished, key=lambda stop: stop.step)
        return list(dict.fromkeys([*before_loop, *_with_earlier(frames[0], first)]))
    for level, tx in enumerate(frames):
        stop = tx.stop_point
        if tx is innermost and isinstance(why, ObservedException) and why.exception in tx.raised_at:
            stop = tx.raised_at[why.exception]
        found = [*_with_earlier(tx, stop), *found]
        if stop.at != tx.pc - 1 or stop.in_loop or not _can_have_resume_function(frames, level + 1):
            break
    return found


def _drops_suspended_generator(innermost: Interpreter) -> bool:
    """Returns whether the program has dropped a generator that is suspended inside a try or with block.

    Python leaves that block at once.  A resume function would leave it later, because its caller holds the arguments
    until it returns.
    """
    frames, capture = active_frames(innermost), innermost.capture
    live = [v for tx in frames for v in frame_values(tx)] + pushed_values(capture, capture.effects.replay)
    found = set(map(id, [*rebuilt_from(capture, live)]))
    return any(id(generator) not in found for generator in capture.open_generators)


def _with_earlier(tx: Interpreter, stop: StopPoint) -> Iterator[StopPoint]:
    """Yields `stop` and, if the state there has a value that cannot be reconstructed, the stop point before the first
    such value was made; of both, only where the frame can continue."""
    stops = [stop, *tx.raised_at.values(), *([tx.generator_made_at] if tx.generator_made_at else [])]
    for each in dict.fromkeys([stop, min(stops, key=lambda s: s.step)]):
        if each.runs_instruction or each.level == 0:
            yield each


def _can_have_resume_function(frames: list[Interpreter], level: int) -> bool:
    """Returns whether the frame at this level can continue in a resume function.

    In a recursion it cannot, since there would be one resume function for each round.  What the top level of a script
    calls is compiled as a separate frame, because users look for it there.
    """
    if frames[0].code.co_name == "<module>" or level >= len(frames) or level > MAX_LEVEL:
        return False
    if not frames[level].is_resumable or frames[level].returned is not None:
        return False
    functions = {(f.code.co_filename, f.code.co_firstlineno, f.code.co_name) for f in frames[: level + 1]}
    return len(functions) == level + 1

"""Code that calls the resume functions of the active frames after a graph break."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from torch import distributed

from compiler_core.bytecode import Instruction, make
from compiler_core.capture.bytecode_emitter import EmitFunction, Emitter
from compiler_core.capture.interpreter import Interpreter
from compiler_core.guards.sources import Box
from compiler_core.resume.frame_state import FrameState, StackSlot
from compiler_core.resume.resume_functions import NULL, ResumeLayout

MakeResumeCode = Callable[[Interpreter, ResumeLayout], types.CodeType]


class ResumePoint(NamedTuple):
    """How an active frame continues: at the instruction `target`, with this stack and these locals."""

    target: int
    stack: Sequence[StackSlot]
    names: Sequence[str]
    results: Sequence[str] = ()
    """Temporaries with the values to put on top of the stack."""
    kinds: Sequence[str] = ()
    """The kinds of the stack slots that `results` fill, see `resume_functions`."""
    error: str | None = None
    """The temporary with an exception to raise at `target`."""
    callee: Sequence[EmitFunction] = ()
    """What pushes the resume function of the frame that this one called, and its arguments."""


class ResumeCalls:
    """Emits calls of resume functions.

    Args:
        emit: the emitter of the generated code.
        frames: the active frames, outermost first.
        resume_code: makes the code of a resume function.
    """

    def __init__(self, emit: Emitter, frames: Sequence[FrameState], resume_code: MakeResumeCode) -> None:
        self.emit, self.frames, self._resume_code = emit, frames, resume_code

    def resume(
        self, target: int, stack: Sequence[StackSlot], results: Sequence[str] = (), kinds: Sequence[str] = ()
    ) -> None:
        """Continues in the innermost frame at `target`, with `results` on top of `stack`."""
        level = len(self.frames) - 1
        self._return_resumed(level, ResumePoint(target, stack, self.frames[level].names(target), results, kinds))

    def raise_again(self, level: int, error: str) -> None:
        """Continues in the exception handler of the frame at `level`; the frames that it called have ended.

        `error` is the temporary with the exception.
        """
        frame = self.frames[level]
        at = frame.tx.pc if level == len(self.frames) - 1 else frame.tx.pc - 1
        handler = frame.tx.instructions[at].handler
        assert handler is not None
        names = frame.names(frame.tx.index[handler.target])
        self._return_resumed(level, ResumePoint(at, frame.stack[: handler.depth], names, error=error))

    def _return_resumed(self, level: int, point: ResumePoint) -> None:
        """Returns the result of the outermost frame's resume function, which first calls the one of the next frame,
        and so on down to `level`."""
        function, loads = self._resume_frame(self.frames[level], point)
        for frame in reversed(self.frames[:level]):
            callee: list[EmitFunction] = [partial(self.emit.add, function), *loads]
            point = ResumePoint(frame.tx.pc, frame.stack, frame.all_names, callee=callee)
            function, loads = self._resume_frame(frame, point)
        self.emit.add(*make.load_callable([function]))
        for load in loads:
            load()
        self.emit.drop_all()
        self.emit.add(*make.call(len(loads)), make.return_value())

    def _resume_frame(self, frame: FrameState, point: ResumePoint) -> tuple[Instruction, list[EmitFunction]]:
        """Returns an instruction that pushes the resume function of one frame, and what pushes its arguments."""
        tx, load, load_temp = frame.tx, self.emit.load_kept, self.emit.load_temp
        cells = tuple(n for n in frame.code.co_cellvars if n in tx.cells)
        kinds = (*(slot.kind for slot in point.stack), *point.kinds)
        callee_args = len(point.callee) - 1 if point.callee else None
        first, owner = frame.first or (None, None)
        reraises = point.error is not None
        layout = ResumeLayout(point.target, kinds, tuple(point.names), cells, first, callee_args, reraises)
        loads: list[EmitFunction] = [partial(load, owner)] if owner is not None else []
        loads += [partial(load, tx.cells[n]) for n in cells]
        loads += point.callee
        loads += [partial(load, slot.value) for slot in point.stack if slot.kind != NULL]
        loads += [partial(load_temp, name) for name in point.results]
        loads += [partial(load, tx.locals[n]) for n in point.names]
        loads += [partial(load_temp, point.error)] if point.error is not None else []
        return self._resume_function(frame, layout), loads

    def _resume_function(self, frame: FrameState, layout: ResumeLayout) -> Instruction:
        """Returns an instruction that pushes the resume function.  One with free variables is made by generated code,
        from the frame's cells."""
        code = self._resume_code(frame.tx, layout)
        f_globals, name = frame.tx.f_globals, _resume_name(frame.tx, layout.target)
        free = frame.code.co_freevars
        if not free:
            return make.load_const(types.FunctionType(code, f_globals, name))
        emit = self.emit
        emit.add(*make.load_callable([make.load_const(make_resume_function)]))
        emit.constant(code)
        emit.constant(name)
        emit.constant(Box(f_globals))
        for each in free:
            emit.load_kept(frame.tx.cells[each])
        emit.add(*make.call(3 + len(free)))
        return make.load_fast(emit.store_temp())


def _resume_name(tx: Interpreter, target: int) -> str:
    """Returns ``resume_18_of_function``.  The code object keeps the name that tracebacks show."""
    line = tx.instructions[target].lineno or tx.code.co_firstlineno
    return f"resume_{line}_of_{tx.code.co_name.strip('<>')}"


def make_resume_function(code: types.CodeType, name: str, f_globals: Box, *cells: types.CellType) -> types.FunctionType:
    """Makes a resume function that shares cells with its frame.  Called by generated code."""
    return types.FunctionType(code, f_globals.value, name, None, cells)


def count_collectives(names: Sequence[str]) -> Any:
    """Returns how many collectives each group has run.  The result equals an earlier one if none ran since."""
    c10d: Any = distributed.distributed_c10d
    try:
        groups = [c10d._resolve_process_group(name) for name in names]
        return [group._get_sequence_number_for_group() for group in groups]
    except Exception:  # such a group does not exist, or its backend does not count
        return object()

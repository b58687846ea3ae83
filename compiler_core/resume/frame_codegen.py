"""The code object that replaces a captured frame."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch.fx as fx

from compiler_core.bytecode import Instruction, assemble, make
from compiler_core.capture.alias_guards import own_cells
from compiler_core.capture.bytecode_emitter import OUT, Emitter, Step
from compiler_core.capture.graph_builder import Capture
from compiler_core.capture.interpreter import Interpreter
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.constant import ConstantValue
from compiler_core.capture.values.static import StaticValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import Constant
from compiler_core.resume import resume_functions
from compiler_core.resume.break_points import Stopped
from compiler_core.resume.eager_fallback import run_plainly
from compiler_core.resume.frame_state import FrameState, Place
from compiler_core.resume.resume_functions import NULL, VALUE, Broken, Layout

# what a handler does that Python itself puts at the end of an except block, around the name that it binds
_TIDIES = frozenset({"LOAD_CONST", "STORE_FAST", "DELETE_FAST", "COPY", "SWAP", "POP_TOP", "POP_EXCEPT"})
RAISES = frozenset({"RAISE_VARARGS", "RERAISE"})
ResumeCode = Callable[[Interpreter, Layout], types.CodeType]
AloneCode = Callable[[Interpreter, Broken, Sequence[str]], types.CodeType]


class Onward(NamedTuple):
    """How a frame at work goes on: at the instruction `target`, with its stack and these of its locals."""

    target: int
    stack: Sequence[Place]
    names: Sequence[str]
    results: Sequence[str] = ()
    """Temporaries that hold what comes on top of the stack, and below of which kind each is."""
    kinds: Sequence[str] = ()
    error: str | None = None
    """The temporary that holds an exception to raise there."""
    callee: Sequence[Step] = ()
    """What pushes the resume function of the frame that it called, and its arguments."""


@dataclass
class FrameCode:
    """Generates the replacement of one frame from the state in which its capture ended."""

    capture: Capture
    tx: Interpreter
    stopped: Stopped | None
    resume_code: ResumeCode
    alone_code: AloneCode
    level: int = 0
    """The frame at work whose values are being rebuilt: if that fails, this is where it failed."""
    frames: list[FrameState] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.code: types.CodeType = self.tx.code
        self.emit = Emitter(self.capture, self.code)
        for tx in self.stopped.frames if self.stopped else []:
            self.frames.append(FrameState(tx, self._targets(tx)))

    def live(self) -> list[Value]:
        """The values that must exist once the graph has run."""
        found = [self.tx.returned] if self.tx.returned is not None else []
        found += [value for frame in self.frames for value in frame.values(frame.stack)]
        return found + self.capture.effects.values()

    def generate(self, compiled: Callable[..., Any] | None, outputs: dict[fx.Node, int]) -> types.CodeType:
        """`compiled` is the compiled graph, None where nothing was captured."""
        self.emit.outputs = outputs
        self._run_plainly_if_cells_differ()
        if compiled is not None:
            self.emit.call_graph(compiled)
            self._run_plainly_if_it_failed()
        for change in self.capture.changes:
            self.emit.call_object(change.do, [ConstantValue(a) for a in change.args])
            self.emit.pop()
        if self.stopped is None:
            self._return()
        else:
            self._break(self.stopped)
        return self._assemble()

    def _run_plainly_if_it_failed(self) -> None:
        """``if out is None: return run_plainly(...)``, see `eager_fallback.py`."""
        went_well = make.nop()
        self.emit.load_temp(OUT)
        self.emit.add(*make.pop_jump_if_none(False, went_well))
        self._run_plainly()
        self.emit.add(went_well)

    def _run_plainly_if_cells_differ(self) -> None:
        """Where the frame's own cells are others' too, and were not at capture, or the other way round."""
        pairs, go_on, differ = list(own_cells(self.capture)), make.nop(), make.nop()
        for own, other, same in pairs:
            self.emit.load_cell(own.name)
            other.load(self.emit)
            self.emit.add(make.is_same(), *make.pop_jump_if(not same, differ))
        if pairs:
            self.emit.add(make.jump(go_on), differ)
            self._run_plainly()
            self.emit.add(go_on)

    def _run_plainly(self) -> None:
        """``return run_plainly(...)`` with the frame's own arguments."""
        emit, code = self.emit, self.code
        names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        starred = list(code.co_varnames[len(names) :])
        emit.add(*make.callable_first([make.load_const(run_plainly)]))
        emit.constant(code)
        emit.constant(Constant(self.capture.scope.f_globals))
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

    # ------------------------------------------------------------ a break

    @property
    def _innermost(self) -> FrameState:
        return self.frames[-1]

    @property
    def _instruction(self) -> Instruction:
        """The instruction that broke."""
        tx = self._innermost.tx
        return tx.instructions[tx.pc]

    def _targets(self, tx: Interpreter) -> list[int]:
        """Where a frame at work may go on."""
        assert self.stopped is not None
        innermost, run = tx is self.stopped.frames[-1], self.stopped.run
        if innermost and not run:
            return [tx.pc]
        instruction = tx.instructions[tx.pc if innermost else tx.pc - 1]
        found = [tx.index[instruction.handler.target]] if instruction.handler is not None else []
        if not innermost:
            return [*found, tx.pc]
        if instruction.opname in resume_functions.BRANCHES or instruction.opname in resume_functions.OR_POP:
            assert instruction.target is not None
            found.append(tx.index[instruction.target])
        if instruction.opname not in RAISES:
            found.append(tx.pc + 1)
        return found

    def _break(self, stopped: Stopped) -> None:
        for self.level, frame in enumerate(self.frames):  # noqa: B020
            for value in frame.values(frame.stack):
                self.emit.keep_unless_fixed(value)
        self.capture.effects.replay(self.emit)
        if stopped.run:
            self._run_and_resume()
        else:
            self._resume(self._innermost.tx.pc, self._innermost.stack)

    def _run_and_resume(self) -> None:
        instruction, tx = self._instruction, self._innermost.tx
        what = resume_functions.broken(instruction, tx.kw_names)
        stack = self._innermost.stack
        taken, below = stack[len(stack) - what.takes :], stack[: len(stack) - what.consumes]
        handled = tx.handled()
        catcher = max((i for i, f in enumerate(self.frames) if _catches(f.tx, f is self._innermost)), default=None)
        protects = catcher is not None or handled is not None
        caught = make.nop()
        end = [Instruction("POP_EXCEPT")] if handled is not None else []
        if handled is not None:
            self.emit.load_kept(handled)
            self.emit.add(*make.handle_exception())
        body = self._load_taken(what, taken) if len(self.frames) == 1 else self._load_alone(what, taken)
        self.emit.drop_except(self._needed(instruction, below))
        with self.emit.one_way():
            with self.emit.protected(caught if protects else None, depth=len(end)):
                self.emit.add(*body)
            results = [self.emit.store_temp() for _ in range(what.gives)]
            if len(self.frames) == 1 or what.gives == 1:  # else UNPACK_SEQUENCE has left the first on top
                results.reverse()
            self.emit.add(*(make.pop_top() for _ in range(what.rest) if len(self.frames) == 1), *end)
            self._after(instruction, below, results)
        if protects:
            self.emit.add(caught, *([make.swap(2), *map(dataclasses.replace, end)] if end else []))
            if catcher is None:
                self.emit.add(Instruction("RERAISE", 0, 0))
            else:
                self._raise_again(catcher, self.emit.store_temp())

    def _needed(self, instruction: Instruction, below: Sequence[Place]) -> list[Value]:
        """What is needed after the instruction that broke."""
        if instruction.opname in resume_functions.OR_POP:
            below = self._innermost.stack
        outer = [v for frame in self.frames[:-1] for v in frame.values(frame.stack)]
        return outer + self._innermost.values(below)

    def _load_taken(self, what: Broken, taken: Sequence[Place]) -> list[Instruction]:
        """Push what the instruction that broke finds on the stack; it is left to add the instruction."""
        for place in taken:
            if place.kind == VALUE:
                self.emit.load_kept(place.value)
            else:
                self.emit.add(resume_functions.load_place("", place.kind))
        return what.body

    def _load_alone(self, what: Broken, taken: Sequence[Place]) -> list[Instruction]:
        """The same in a function that stands for the innermost frame, whose name, lines and globals it has."""
        if any(isinstance(p.value, StaticValue) and p.value.obj is super for p in taken):
            raise Unsupported("unsupported call", "super() looks at the frame that calls it")
        tx = self._innermost.tx
        code = self.alone_code(tx, what, [p.kind for p in taken])
        self.emit.add(*make.callable_first([make.load_const(types.FunctionType(code, tx.f_globals))]))
        values = [p.value for p in taken if p.kind == VALUE]
        for value in values:
            self.emit.load_kept(value)
        unpack = [make.unpack_sequence(what.gives)] if what.gives != 1 else []
        return [*make.call(len(values)), *unpack]

    def _after(self, instruction: Instruction, below: list[Place], results: list[str]) -> None:
        pc = self._innermost.tx.pc
        name = instruction.opname
        if name in resume_functions.BRANCHES or name in resume_functions.OR_POP:
            self._branch(instruction, below, results[0])
        elif name in RAISES:
            if len(self.frames) > 1:  # the function that runs it alone does not return, which the call of it cannot say
                self.emit.add(make.load_const(None), make.return_value())
        else:
            kinds = [VALUE] * len(results)
            if resume_functions.pushes_null(instruction):
                kinds = [NULL, VALUE] if resume_functions.BEFORE_3_13 else [VALUE, NULL]
            self._resume(pc + 1, below, results, kinds)

    def _branch(self, instruction: Instruction, below: list[Place], truth: str) -> None:
        keeps = instruction.opname in resume_functions.OR_POP
        wanted = resume_functions.OR_POP[instruction.opname] if keeps else resume_functions.BRANCHES[instruction.opname]
        assert instruction.target is not None
        tx, taken = self._innermost.tx, make.nop()
        self.emit.load_temp(truth)
        self.emit.add(*make.pop_jump_if(wanted, taken))
        with self.emit.one_way():
            self._resume(tx.pc + 1, below)
        self.emit.add(taken)
        self._resume(tx.index[instruction.target], [*below, self._innermost.stack[-1]] if keeps else below)

    def _raise_again(self, level: int, error: str) -> None:
        """Go on in the handler of the frame at `level`; those that it called are over."""
        tx = self.frames[level].tx
        at = tx.pc if level == len(self.frames) - 1 else tx.pc - 1
        handler = tx.instructions[at].handler
        assert handler is not None
        stack = self.frames[level].stack[: handler.depth]
        names = self.frames[level].names(tx.index[handler.target])
        self._resume_frames(level, Onward(at, stack, names, error=error))

    # ------------------------------------------------------------ resume functions

    def _resume(
        self, target: int, stack: Sequence[Place], results: Sequence[str] = (), kinds: Sequence[str] = ()
    ) -> None:
        """Go on in the innermost frame at `target`, with `results` on top of `stack`."""
        level = len(self.frames) - 1
        self._resume_frames(level, Onward(target, stack, self.frames[level].names(target), results, kinds))

    def _resume_frames(self, level: int, onward: Onward) -> None:
        """Return what the frame's resume function returns; it first calls that of the next frame, down to `level`."""
        function, loads = self._resume_one(self.frames[level], onward)
        for frame in reversed(self.frames[:level]):
            callee: list[Step] = [partial(self.emit.add, function), *loads]
            onward = Onward(frame.tx.pc, frame.stack, frame.all_names, callee=callee)
            function, loads = self._resume_one(frame, onward)
        self.emit.add(*make.callable_first([function]))
        for load in loads:
            load()
        self.emit.drop_all()
        self.emit.add(*make.call(len(loads)), make.return_value())

    def _resume_one(self, frame: FrameState, onward: Onward) -> tuple[Instruction, list[Step]]:
        """The resume function of one frame (an instruction that pushes it), and what pushes its arguments."""
        tx, load, load_temp = frame.tx, self.emit.load_kept, self.emit.load_temp
        cells = tuple(n for n in frame.code.co_cellvars if n in tx.cells)
        kinds = (*(p.kind for p in onward.stack), *onward.kinds)
        args = len(onward.callee) - 1 if onward.callee else None
        first, owner = frame.first or (None, None)
        layout = Layout(onward.target, kinds, tuple(onward.names), cells, first, args, onward.error is not None)
        loads: list[Step] = [partial(load, owner)] if owner is not None else []
        loads += [partial(load, tx.cells[n]) for n in cells]
        loads += onward.callee
        loads += [partial(load, p.value) for p in onward.stack if p.kind != NULL]
        loads += [partial(load_temp, name) for name in onward.results]
        loads += [partial(load, tx.locals[n]) for n in onward.names]
        loads += [partial(load_temp, onward.error)] if onward.error is not None else []
        return self._resume_function(frame, layout), loads

    def _resume_function(self, frame: FrameState, layout: Layout) -> Instruction:
        """An instruction that pushes the resume function, made here if it has free variables."""
        code = self.resume_code(frame.tx, layout)
        f_globals, name = frame.tx.f_globals, _resume_name(frame.tx, layout.target)
        free = frame.code.co_freevars
        if not free:
            return make.load_const(types.FunctionType(code, f_globals, name))
        emit = self.emit
        emit.add(*make.callable_first([make.load_const(make_resume_function)]))
        emit.constant(code)
        emit.constant(name)
        emit.constant(Constant(f_globals))
        for each in free:
            emit.load_kept(frame.tx.cells[each])
        emit.add(*make.call(3 + len(free)))
        return make.load_fast(emit.store_temp())

    # ------------------------------------------------------------ the code object

    def _assemble(self) -> types.CodeType:
        free = self.code.co_freevars
        instructions = [*make.prologue((), len(free)), *self.emit.instructions]
        line = resume_functions.on_line(self._line())
        for instruction in instructions:
            instruction.positions = instruction.positions or line
        # a comprehension's variable may have the name of a free one (3.12)
        own = tuple(n for n in self.code.co_varnames if n not in free)
        # PyTorch's hook copies the places of the frame's cells, from the last one down, into the last places of this
        # code: with fewer places than the frame has, they would fall on its arguments
        cells = tuple(n for n in self.code.co_cellvars if n not in own)
        return assemble(instructions, self.code, co_varnames=own + cells, co_cellvars=())

    def _line(self) -> int:
        """The line that the generated code is on: that of the break, or the first."""
        if self.stopped is None:
            return self.code.co_firstlineno
        at = self.tx.pc if len(self.frames) == 1 else self.tx.pc - 1
        return self.tx.instructions[at].lineno or self.code.co_firstlineno


def _catches(tx: Interpreter, innermost: bool) -> bool:
    """Whether the instruction at work in a frame has a handler that does more than tidy up the frame."""
    instruction = tx.instructions[tx.pc if innermost else tx.pc - 1]
    while instruction.handler is not None:
        at = tx.index[instruction.handler.target]
        while tx.instructions[at].opname in _TIDIES:
            at += 1
        instruction = tx.instructions[at]
        if instruction.opname != "RERAISE":
            return True
    return False


def _resume_name(tx: Interpreter, target: int) -> str:
    """``resume_18_of_function``; the code keeps the name that tracebacks show."""
    line = tx.instructions[target].lineno or tx.code.co_firstlineno
    return f"resume_{line}_of_{tx.code.co_name.strip('<>')}"


def make_resume_function(
    code: types.CodeType, name: str, f_globals: Constant, *cells: types.CellType
) -> types.FunctionType:
    """Called by generated code, where a resume function shares cells with its frame."""
    return types.FunctionType(code, f_globals.value, name, None, cells)

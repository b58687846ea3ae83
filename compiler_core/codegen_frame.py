"""The code object that replaces a captured frame."""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch.fx as fx

from compiler_core import resume
from compiler_core.bytecode import Instruction, assemble, live_locals, make
from compiler_core.capture import Capture
from compiler_core.errors import Unsupported
from compiler_core.reconstruct import OUT, Emitter, is_fixed
from compiler_core.rerun import run_plainly
from compiler_core.resume import Layout, Split
from compiler_core.sources import Constant
from compiler_core.symbolic import Interpreter
from compiler_core.values.base import NULL, UNBOUND, Value

ResumeFunction = Callable[[Layout], types.CodeType]


@dataclass
class FrameCode:
    """Generates the replacement of one frame from the state in which its capture ended."""

    capture: Capture
    tx: Interpreter
    split: Split | None
    resume_code: ResumeFunction

    def __post_init__(self) -> None:
        self.code: types.CodeType = self.tx.code
        self.emit = Emitter(self.capture, self.code)

    def live(self) -> list[Value]:
        """The values that must exist once the graph has run."""
        found = [self.tx.returned] if self.tx.returned is not None else []
        if self.split is not None:
            found = [v for v in self.tx.stack if v is not NULL]
            for target in self._targets(self.split):
                found += [self.tx.locals[n] for n in self._names(target)]
            found += list(self.tx.cells.values())
        return found + self.capture.effects.values()

    def generate(self, compiled: Callable[..., Any] | None, outputs: dict[fx.Node, int]) -> types.CodeType:
        """`compiled` is the compiled graph, None where nothing was captured."""
        self.emit.outputs = outputs
        if compiled is not None:
            self.emit.call_graph(compiled)
            self._run_plainly_if_it_failed()
        if self.split is None:
            self._return()
        else:
            self._break(self.split)
        return self._assemble()

    def _run_plainly_if_it_failed(self) -> None:
        """``if out is None: return run_plainly(...)``, see `rerun.py`."""
        emit, code, went_well = self.emit, self.code, make.nop()
        emit.load_temp(OUT)
        emit.add(*make.pop_jump_if_none(False, went_well))
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
        emit.add(*make.call(5), make.return_value(), went_well)

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

    def _targets(self, split: Split) -> list[int]:
        """Where the frame may go on."""
        instruction = self.tx.instructions[split.at]
        if not split.run:
            return [split.at]
        if instruction.opname in ("RAISE_VARARGS", "RERAISE", "RETURN_VALUE"):
            return []
        if instruction.opname in resume.JUMPS_ON_TENSOR or instruction.opname in resume.OR_POP:
            assert instruction.target is not None
            return [split.at + 1, self.tx.index[instruction.target]]
        return [split.at + 1]

    def _names(self, target: int) -> list[str]:
        live = live_locals(self.tx.instructions, self.tx.instructions[target])
        if (first := self._first_argument()) is not None:
            live.add(first)
        return [n for n in sorted(live) if self.tx.locals.get(n, UNBOUND) is not UNBOUND]

    def _break(self, split: Split) -> None:
        instruction = self.tx.instructions[split.at]
        stack = self.tx.stack
        taken = resume.stack_inputs(instruction) if split.run else 0
        deep, top = stack[: len(stack) - taken], stack[len(stack) - taken :]
        for value in self._all_kept(split, deep, top):
            self.emit.keep(value)
        self.capture.effects.replay(self.emit)
        if not split.run:
            self._resume(split.at, deep)
        elif instruction.opname in resume.JUMPS_ON_TENSOR or instruction.opname in resume.OR_POP:
            self._branch(instruction, split.at, deep, top[0] if top else stack[-1])
        else:
            self._run_and_resume(instruction, split.at, deep, top)

    def _all_kept(self, split: Split, deep: list[Value], top: list[Value]) -> list[Value]:
        names = {n for target in self._targets(split) for n in self._names(target)}
        cells: list[Value] = [c for n, c in self.tx.cells.items() if n in self.code.co_cellvars]
        kept = [*deep, *top, *(self.tx.locals[n] for n in sorted(names)), *cells]
        return [v for v in kept if not is_fixed(v)]

    def _branch(self, instruction: Instruction, at: int, deep: list[Value], condition: Value) -> None:
        keeps = instruction.opname in resume.OR_POP
        truth = resume.OR_POP[instruction.opname] if keeps else resume.JUMPS_ON_TENSOR[instruction.opname]
        assert instruction.target is not None
        deep = deep[:-1] if keeps else deep
        taken = make.nop()
        self.emit.load_kept(condition)
        jump = make.pop_jump_if(truth, taken)
        for each in jump:
            each.positions = instruction.positions
        self.emit.add(*jump)
        self._resume(at + 1, deep)
        self.emit.add(taken)
        self._resume(self.tx.index[instruction.target], [*deep, condition] if keeps else deep)

    def _run_and_resume(self, instruction: Instruction, at: int, deep: list[Value], top: list[Value]) -> None:
        for value in top:
            self.emit.load_kept(value)
        self.emit.add(*resume.broken_instruction(instruction, self.tx.kw_names))
        if not self._targets(Split(at, True)):
            return
        results = [self.emit.store_temp() for _ in range(_results(instruction))][::-1]
        kinds = [True] * len(results)
        if resume.pushes_null(instruction):
            kinds = [False, True] if resume.BEFORE_3_13 else [True, False]
        self._resume(at + 1, deep, results, kinds)

    def _resume(self, target: int, deep: list[Value], results: Sequence[str] = (), kinds: Sequence[bool] = ()) -> None:
        """Call the resume function that goes on at `target`, and return what it returns."""
        names = self._names(target)
        cells = tuple(n for n in self.code.co_cellvars if n in self.tx.cells)
        first = self._first_argument()
        names = [n for n in names if n != first]
        layout = Layout(target, tuple(v is not NULL for v in deep) + tuple(kinds), tuple(names), cells, first)
        function = self._resume_function(layout)
        self.emit.add(*make.callable_first([function]))
        if first is not None:
            self.emit.load_kept(self.tx.locals[first])
        for value in deep:
            if value is not NULL:
                self.emit.load_kept(value)
        for temp in results:
            self.emit.load_temp(temp)
        for name in names:
            self.emit.load_kept(self.tx.locals[name])
        count = sum(layout.stack) + len(names) + (first is not None)
        self.emit.add(*make.call(count), make.return_value())

    def _first_argument(self) -> str | None:
        if "__class__" not in self.code.co_freevars:
            return None
        first = self.code.co_varnames[0]
        if self.tx.locals.get(first, UNBOUND) is UNBOUND:
            raise Unsupported("unsupported operation", "a break in a method whose self is no plain local")
        return first

    def _resume_function(self, layout: Layout) -> Instruction:
        """An instruction that pushes the resume function, made here if it has free variables."""
        code = self.resume_code(layout)
        f_globals = self.capture.scope.f_globals
        if not layout.cells and not self.code.co_freevars:
            return make.load_const(types.FunctionType(code, f_globals, self._resume_name(layout.target)))
        emit = self.emit
        emit.add(*make.callable_first([make.load_const(make_resume_function)]))
        emit.constant(code)
        emit.constant(self._resume_name(layout.target))
        emit.constant(Constant(f_globals))
        for name in layout.cells:
            self.emit.load_kept(self.tx.cells[name])
        for name in self.code.co_freevars:
            emit.load_cell(name)
        emit.add(*make.call(3 + len(layout.cells) + len(self.code.co_freevars)))
        return make.load_fast(emit.store_temp())

    def _resume_name(self, target: int) -> str:
        """``resume_18_of_function``; the code keeps the name that tracebacks show."""
        line = self.tx.instructions[target].lineno or self.code.co_firstlineno
        return f"resume_{line}_of_{self.code.co_name.strip('<>')}"

    # ------------------------------------------------------------ the code object

    def _assemble(self) -> types.CodeType:
        free = self.code.co_freevars
        instructions = [*make.prologue((), len(free)), *self.emit.instructions]
        line = resume.on_line(self._line())
        for instruction in instructions:
            instruction.positions = instruction.positions or line
        return assemble(instructions, self.code, co_cellvars=())

    def _line(self) -> int:
        """The line that the generated code is on: that of the break, or the first."""
        broke = None if self.split is None else self.tx.instructions[self.split.at].lineno
        return broke or self.code.co_firstlineno


def _results(instruction: Instruction) -> int:
    """How many values `resume.broken_instruction` leaves."""
    if instruction.opname in ("CALL", "LOAD_METHOD", "LOAD_ATTR", "LOAD_GLOBAL", "LOAD_SUPER_ATTR"):
        return 1
    number = dis.opmap[instruction.opname]
    operand = instruction.arg if number >= dis.HAVE_ARGUMENT else None
    return dis.stack_effect(number, operand, jump=False) + resume.stack_inputs(instruction)


def make_resume_function(
    code: types.CodeType, name: str, f_globals: Constant, *cells: types.CellType
) -> types.FunctionType:
    """Called by generated code, where a resume function shares cells with its frame."""
    return types.FunctionType(code, f_globals.value, name, None, cells)

"""The symbolic interpreter: CPython's bytecode over symbolic values.

An `Interpreter` runs one code object, the frame's own or that of a call it inlines, one
instruction at a time.  The opcodes lie in `opcodes/`, a method each, named as the opcode is.
"""

from __future__ import annotations

import linecache
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from compiler_core.bytecode import Instruction, disassembled, loops
from compiler_core.capture import opcodes
from compiler_core.capture.function_markers import marked_call
from compiler_core.capture.graph_builder import Capture
from compiler_core.capture.rules.python.operators import equal
from compiler_core.capture.rules.table import HANDLERS
from compiler_core.capture.rules.torch import autograd_functions, queries, scan  # noqa: F401  (they register their rules)
from compiler_core.capture.rules.torch.functions import is_leaf_function
from compiler_core.capture.values import contexts  # noqa: F401  (they register their rules)
from compiler_core.capture.values.base import Raised, Value
from compiler_core.capture.values.builtin.iterators import over
from compiler_core.capture.values.constant import NONE, ConstantValue
from compiler_core.capture.values.exceptions import ExceptionValue
from compiler_core.capture.values.symbols import is_symbolic
from compiler_core.capture.values.user.cells import CellValue
from compiler_core.capture.values.user.functions import FunctionValue, bind
from compiler_core.capture.values.user.generators import GeneratorValue
from compiler_core.capture.values.user.modules import ModuleValue
from compiler_core.errors import Unsupported
from compiler_core.guards.constants import may_be_two
from compiler_core.hook.skip_rules import is_library_file, skip_reason
from compiler_core.records import Compile, ItemId, Record, StackLine
from compiler_core.support.interrupts import safe_point

MAX_DEPTH = 60
GENERATOR = 0x20
COROUTINES = 0x80 | 0x100 | 0x200


class Stop(BaseException):
    """Capture has come to the step before which it was to stop."""


@dataclass(frozen=True)
class Mark:
    """A step at which a capture could stop.  One in a loop stands for the step that entered the loop, since a loop
    cannot be split."""

    step: int
    at: int
    in_loop: bool


class Lines:
    """The user's lines of the frames at work, and their place in the record."""

    def __init__(self, record: Record, compile_: Compile) -> None:
        self.record = record
        self.compile = compile_
        self._known: dict[tuple[str, int], ItemId | None] = {}
        self._added: set[types.CodeType] = set()

    def add(self, code: types.CodeType) -> None:
        """Put the source of a function of the user's into the record."""
        if code in self._added:
            return
        self._added.add(code)
        if not is_library_file(code.co_filename):
            add_source(self.record, code)
            self._known.clear()

    def item(self, filename: str, lineno: int) -> ItemId | None:
        key = (filename, lineno)
        if key not in self._known:
            self._known[key] = self.record.line(filename, lineno)
        return self._known[key]


def add_source(record: Record, code: types.CodeType) -> None:
    """A short file or a cell is kept whole; of a longer one, the lines of the function."""
    lines = linecache.getlines(code.co_filename)
    if len(lines) <= 400:
        record.source(code.co_filename, 1, lines)
        return
    numbers = [n for _, _, n in code.co_lines() if n]
    first, last = min(numbers, default=1), max(numbers, default=1)
    record.source(code.co_filename, first, lines[first - 1 : last])


class Interpreter(opcodes.Opcodes):
    """One code object at work.  `parent` is the interpreter whose call is inlined here, or None."""

    def __init__(
        self,
        capture: Capture,
        lines: Lines,
        code: types.CodeType,
        f_globals: dict[str, Any],
        f_builtins: dict[str, Any],
        local: dict[str, Value],
        closure: Sequence[CellValue],
        parent: Interpreter | None = None,
        answers: bool = False,
    ) -> None:
        self.capture = capture
        self.lines = lines
        self.code = code
        self.instructions, self.index = disassembled(code)
        self.loops = loops(code)
        self.f_globals = f_globals
        self.f_builtins = f_builtins
        self.locals = local
        self.cells: dict[str, CellValue] = dict(zip(code.co_freevars, closure, strict=True))
        self.stack: list[Value] = []
        self.pc = 0
        self.kw_names: tuple[str, ...] = ()
        self.parent = parent
        self.answers = answers
        """Whether the instruction of `parent` at work pushes what this returns, and does nothing else after it."""
        self.started = 0
        self.loop: int | None = None
        self._loop_entered = self._iterating = 0
        self.within: str | None = None if parent is None else self._module_path()
        """The module whose method this is or was called by."""
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.returned: Value | None = None
        self.yielded: Value | None = None
        self.handling: list[ExceptionValue] = []
        self.raised_at: dict[ExceptionValue, Mark] = {}
        """For each exception that Python would have raised here, the step that raised it."""
        self.made_at: Mark | None = None
        """The first step that made a generator, which cannot be carried across a break once it has begun."""
        self.module = capture.namespace(f_globals)
        lines.add(code)

    def _module_path(self) -> str | None:
        owner = next(iter(self.locals.values()), None)
        if isinstance(owner, ModuleValue):
            return owner.path
        return self.parent.within if self.parent is not None else None

    # ------------------------------------------------------------ running

    def step(self) -> None:
        """Execute exactly one instruction."""
        safe_point()
        instruction = self.instructions[self.pc]
        self.capture.working = self
        self._count(instruction)
        self.capture.at = self._origin(instruction)
        self.pc += 1
        opcode = getattr(self, instruction.opname, None)
        if opcode is None:
            raise Unsupported("unsupported instruction", f"{instruction.opname}: {opcodes.BREAKS[instruction.opname]}")
        try:
            opcode(instruction)
        except Raised as error:
            self._catch(error, instruction)

    def _count(self, instruction: Instruction) -> None:
        """Number the steps of a capture: it can be done again up to the same one, or to where a loop was entered."""
        self.started = self.capture.count_step()
        if self.started == self.capture.stop_at:
            raise Stop
        loop = self.loops[self.pc]
        if loop is not self.loop:
            # before the iterator was made, whose place in what it iterates over is hard to carry
            begun = self._iterating if instruction.opname == "FOR_ITER" else 0
            self._loop_entered = begun or self.started
            self.loop = loop
        if instruction.opname == "GET_ITER":
            self._iterating = self.started

    def run(self) -> Value:
        """To the end of an inlined call."""
        while self.returned is None:
            self.step()
        return self.returned

    # ------------------------------------------------------------ exceptions

    def _catch(self, error: Raised, instruction: Instruction) -> None:
        """Go on at the instruction's handler; without one the exception leaves this code object."""
        exception = error.exception
        assert isinstance(exception, ExceptionValue)
        if not error.has_context:
            exception.set_context(self.handled())
            error.has_context = True
        self.raised_at[exception] = self.raised_at.get(exception) or self.mark
        handler = instruction.handler
        if handler is None:
            raise error
        del self.stack[handler.depth :]
        if handler.lasti:
            self.push(ConstantValue(instruction.offset))
        self.push(exception)
        self.jump(handler.target)

    def handled(self) -> ExceptionValue | None:
        """The exception being handled, in this code object or one that called it; None where none is, or only the
        caller of the frame knows."""
        at: Interpreter | None = self
        while at is not None:
            if at.handling:
                return at.handling[-1]
            at = at.parent
        return None

    @property
    def mark(self) -> Mark:
        """The instruction at work or, where it handles an exception that only Python can raise rightly, the one that
        raised it."""
        caught = next((e for e in self.handling if e.was_raised and e in self.raised_at), None)
        if caught is not None:
            return self.raised_at[caught]
        in_loop = self.loop is not None
        return Mark(self._loop_entered if in_loop else self.started, self.pc - 1, in_loop)

    def note_generator(self) -> None:
        """The instruction at work, and those that led to it, made a value that cannot be carried across a break."""
        at: Interpreter | None = self
        while at is not None:
            at.made_at = at.made_at or at.mark
            at = at.parent

    def jump(self, target: Instruction | None) -> None:
        assert target is not None
        self.pc = self.index[target]

    def _origin(self, instruction: Instruction) -> tuple[tuple[ItemId, ...], ItemId | None, str]:
        """The user's line (the innermost that is not PyTorch's), and the root's instruction."""
        if self.parent is not None and is_library_file(self.code.co_filename):
            return self.parent.capture.at
        lineno = instruction.lineno
        line = self.lines.item(self.code.co_filename, lineno) if lineno else None
        # the root has already moved on to the next instruction when a call of its own is inlined
        at = self.pc if self.parent is None else self.root.pc - 1
        items = [f"{self.lines.compile.id}:bytecode#{at}", *([line] if line else [])]
        return tuple(items), line, f"{self.code.co_filename}:{lineno} in {self.code.co_name}"

    @property
    def root(self) -> Interpreter:
        at = self
        while at.parent is not None:
            at = at.parent
        return at

    @property
    def lineno(self) -> int:
        """The line of the instruction at work."""
        return self.instructions[max(self.pc - 1, 0)].lineno or self.code.co_firstlineno

    def user_stack(self) -> list[StackLine]:
        """The user's stack, outermost first, at the instruction at work."""
        found = [] if self.parent is None else self.parent.user_stack()
        if is_library_file(self.code.co_filename) and found:
            return found
        filename, lineno = self.code.co_filename, self.lineno
        text = linecache.getline(filename, lineno).strip()
        line = self.lines.item(filename, lineno)
        return [*found, StackLine(filename, lineno, self.code.co_name, text, line)]

    # ------------------------------------------------------------ calls

    def answer(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """A call whose result the instruction at work pushes as it is: a break in there may resume in there."""
        while (inner := function.comes_to(self, args, kwargs)) is not None:
            function, args, kwargs = inner
        if isinstance(function, FunctionValue):
            function.look(self)
            return self.call_function_value(function, args, kwargs, answers=True)
        return function.call(self, args, kwargs)

    def call_function_value(
        self, function: FunctionValue, args: list[Value], kwargs: dict[str, Value], answers: bool = False
    ) -> Value:
        """Call a Python function: by a rule, as one node of the graph, or by inlining it (see `answers` above)."""
        fn = function.fn
        if fn is not None:
            marked = marked_call(self, fn, args, kwargs)
            if marked is not None:
                return marked
            handler = HANDLERS.get(fn)
            if handler is not None:
                return handler(self, *args, **kwargs)
            if is_leaf_function(fn):
                return self.capture.call_function(self, fn, args, kwargs)
        if reason := skip_reason(function.code, inlining=True):
            raise Unsupported("skipped function", f"{function.name} ({reason})")
        return self._inline(function, args, kwargs, answers)

    def called_by(self, caller: Interpreter) -> None:
        """Who resumes a generator is what its frame returns to, whoever made it."""
        self.parent, self.depth = caller, caller.depth + 1
        if self.depth >= MAX_DEPTH:
            raise Unsupported("unroll limit", f"calls {MAX_DEPTH} deep")

    def run_to_yield(self, thrown: Raised | None) -> Value | None:
        """Run a generator's body on, or from what is raised in it, to what it yields; None when it returns."""
        if thrown is not None:
            self._catch(thrown, self.instructions[self.pc - 1])
        while self.returned is None and self.yielded is None:
            self.step()
        value, self.yielded = self.yielded, None
        return value

    def delegates(self) -> bool:
        """Whether a generator's body stands in ``yield from``."""
        follows = [x.opname for x in self.instructions[self.pc : self.pc + 2]]
        return follows == ["RESUME", "JUMP_BACKWARD_NO_INTERRUPT"]

    def delegate_ended(self, result: Value) -> None:
        """The iterator of ``yield from``, to which something was thrown, has returned: go on after it."""
        send = self.instructions[self.pc + 1].target
        assert send is not None
        if sys.version_info < (3, 12):
            self.pop()
        self.push(result)
        self.jump(send.target)

    def in_block(self) -> bool:
        """Whether a generator's body stands in a try or with block, which Python leaves when it drops the generator."""
        handler = self.instructions[self.pc - 1].handler
        while handler is not None and handler.target.opname != "PUSH_EXC_INFO":
            handler = handler.target.handler
        return handler is not None

    def _inline(
        self, function: FunctionValue, args: list[Value], kwargs: dict[str, Value], answers: bool = False
    ) -> Value:
        if self.depth >= MAX_DEPTH:
            raise Unsupported("unroll limit", f"calls {MAX_DEPTH} deep")
        if function.code.co_flags & COROUTINES:
            raise Unsupported("generator", function.name)
        callee = type(self)(
            self.capture,
            self.lines,
            function.code,
            function.f_globals,
            self.f_builtins,
            bind(function, args, kwargs),
            function.closure,
            parent=self,
            answers=answers and not function.code.co_flags & GENERATOR,
        )
        if function.code.co_flags & GENERATOR:
            self.note_generator()
            return GeneratorValue(callee, function, args, kwargs)
        at = self.capture.at
        try:
            result = callee.run()
        except Raised:
            self.capture.working, self.capture.at = self, at
            raise
        self.capture.working, self.capture.at = self, at
        return result

    # ------------------------------------------------------------ comparisons and sequences

    def is_same(self, a: Value, b: Value) -> bool:
        """``a is b``"""
        a.look(self)
        b.look(self)
        same = a.same_object(b)
        both_outside = a.source is not None and b.source is not None
        if both_outside and not same and not a.is_constant() and not b.is_constant():
            assert a.source is not None
            self.capture.guard("NOT_SAME_OBJECT", a.source, b.source)
        if same and isinstance(a, FunctionValue) and a.source is not None and b.source not in (None, a.source):
            self.capture.guard("SAME_OBJECT", a.source, b.source)
        if isinstance(a, ConstantValue) and isinstance(b, ConstantValue) and not is_symbolic([a, b]):
            if may_be_two(a.value, b.value):
                self._guard_identity(a, b, same)
        return same

    def is_none(self, value: Value) -> bool:
        """``value is None``"""
        return self.is_same(value, NONE)

    def _guard_identity(self, a: ConstantValue, b: ConstantValue, same: bool) -> None:
        """Of equal constants, guard whether they are one object."""
        if a.source is not None and b.source is not None:
            if a.source != b.source:
                self.capture.guard("SAME_OBJECT" if same else "NOT_SAME_OBJECT", a.source, b.source)
        elif (outside := a.source or b.source) is not None:
            if not same:  # a literal may be, in another call
                raise Unsupported("unsupported operation", f"{a} is {b}, which are equal")
            self.capture.guard("ID_MATCH", outside, a.value)

    def is_item(self, a: Value, b: Value) -> bool:
        """``a is b or a == b``, as containers look for an item."""
        if is_symbolic([a, b]):
            return equal(self, a, b)
        if isinstance(a, ConstantValue) and isinstance(b, ConstantValue) and a.constant(self) == b.constant(self):
            return True
        return self.is_same(a, b) or equal(self, a, b)

    def list_of(self, value: Value) -> list[Value]:
        """``list(value)``"""
        return list(over(self, value))


def user_lines(stack: Sequence[StackLine]) -> Iterator[str]:
    """The stack as Python prints it."""
    for line in stack:
        yield f'  File "{line.filename}", line {line.lineno}, in {line.function}'
        if line.text:
            yield f"    {line.text}"


__all__ = ["Interpreter", "Lines", "user_lines"]

"""The position of the interpreter: instruction, line of the user's, inlined calls, and where capture can stop."""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING, cast

from compiler_core.bytecode import Instruction
from compiler_core.capture.builder.guard_collector import Location
from compiler_core.capture.opcodes.stack import InterpreterState
from compiler_core.capture.stop_points import StopPoint
from compiler_core.hook.skip_rules import is_library_file
from compiler_core.records import StackLine
from compiler_core.records.capture import library_of

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.capture.source_lines import SourceLines
    from compiler_core.capture.values.user.exceptions import ExceptionValue


class Positions(InterpreterState):
    """The positions of an interpreter; `capture/interpreter.py` describes its state."""

    lines: SourceLines
    parent: Interpreter | None
    loop: int | None
    step_number: int
    raised_at: dict[ExceptionValue, StopPoint]
    generator_made_at: StopPoint | None
    _loop_entry_step: int
    _locations: dict[tuple[int, int | None], Location]

    @property
    def _interpreter(self) -> Interpreter:
        return cast("Interpreter", self)

    @property
    def stop_point(self) -> StopPoint:
        """The stop point of the current instruction.

        While an exception is handled that only Python can raise correctly, it is that of the raising instruction.
        """
        caught = next((e for e in self.handled_exceptions if e.was_raised and e in self.raised_at), None)
        if caught is not None:
            return self.raised_at[caught]
        in_loop = self.loop is not None
        return StopPoint(self._loop_entry_step if in_loop else self.step_number, self.pc - 1, in_loop)

    def mark_generator_made(self) -> None:
        """Notes, here and in the inlining callers, that the current instruction made a generator."""
        tx: Interpreter | None = self._interpreter
        while tx is not None:
            tx.generator_made_at = tx.generator_made_at or tx.stop_point
            tx = tx.parent

    def _location(self, instruction: Instruction) -> Location:
        """Returns the location of an instruction: in library code, that of the user's code that called it."""
        if self.parent is not None and is_library_file(self.code.co_filename):
            return self.parent.capture.location
        # when a call is inlined, the root has already moved on to its next instruction
        index = self.pc if self.parent is None else self.root.pc - 1
        key = index, instruction.lineno
        found = self._locations.get(key)
        if found is None:
            found = self._locations[key] = self._make_location(index, instruction.lineno)
        return found

    def _make_location(self, index: int, lineno: int | None) -> Location:
        filename = self.code.co_filename
        line = self.lines.item(filename, lineno) if lineno else None
        items = [f"{self.lines.compile.id}:bytecode#{index}", *([line] if line else [])]
        caller = None
        if self.parent is not None and library_of(filename):
            above = self.parent.capture.location  # of the call
            caller = above.caller or above.line
        return Location(tuple(items), line, f"{filename}:{lineno} in {self.code.co_name}", caller)

    @property
    def root(self) -> Interpreter:
        """The interpreter of the frame itself."""
        tx = self._interpreter
        while tx.parent is not None:
            tx = tx.parent
        return tx

    @property
    def lineno(self) -> int:
        """The line of the current instruction."""
        return self.instructions[max(self.pc - 1, 0)].lineno or self.code.co_firstlineno

    def user_stack(self) -> list[StackLine]:
        """Returns the stack of the user's code at the current instruction, outermost call first."""
        first, *others = self.full_stack()
        return [first, *(line for line in others if not is_library_file(line.filename))]

    def full_stack(self) -> list[StackLine]:
        """Returns the stack with the lines of libraries."""
        found = [] if self.parent is None else self.parent.full_stack()
        filename, lineno = self.code.co_filename, self.lineno
        text = linecache.getline(filename, lineno).strip()
        line = self.lines.item(filename, lineno)
        return [*found, StackLine(filename, lineno, self.code.co_name, text, line)]

"""Running the body of a generator from one ``yield`` to the next."""

from __future__ import annotations

import sys

from compiler_core.capture.opcodes.stack import InterpreterState
from compiler_core.capture.values.base import ObservedException, Value


class GeneratorFrames(InterpreterState):
    """What the interpreter of a generator's body does besides executing instructions."""

    def run_to_yield(self, thrown: ObservedException | None) -> Value | None:
        """Runs the body to the next ``yield``, after raising `thrown` in it if that is given.

        Returns the yielded value, or None if the body returned.
        """
        tx = self._tx
        if thrown is not None:
            tx.handle_exception(thrown, self.instructions[self.pc - 1])
        while self.returned is None and self.yielded is None:
            tx.step()
        value, self.yielded = self.yielded, None
        return value

    def is_delegating(self) -> bool:
        """Whether the body is suspended in ``yield from``."""
        following = [x.opname for x in self.instructions[self.pc : self.pc + 2]]
        return following == ["RESUME", "JUMP_BACKWARD_NO_INTERRUPT"]

    def finish_delegation(self, result: Value) -> None:
        """Continues after ``yield from`` whose iterator returned `result` when an exception was thrown into it."""
        send = self.instructions[self.pc + 1].target
        assert send is not None
        if sys.version_info < (3, 12):
            self.pop()
        self.push(result)
        self._tx.jump(send.target)

    def is_in_try_block(self) -> bool:
        """Whether the body is suspended in a try or with block, which Python leaves when the generator is dropped."""
        handler = self.instructions[self.pc - 1].handler
        while handler is not None and handler.target.opname != "PUSH_EXC_INFO":
            handler = handler.target.handler
        return handler is not None

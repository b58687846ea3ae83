"""What makes bytecode unfit to run."""

from __future__ import annotations

from compiler_core.errors import CompilerBug


class Fault(CompilerBug):
    """Bytecode that must not run; `offset` is where in the code."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset

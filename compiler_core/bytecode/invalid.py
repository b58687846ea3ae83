"""The error for bytecode that must not run."""

from __future__ import annotations

from compiler_core.errors import CompilerBug


class InvalidBytecode(CompilerBug):
    """Bytecode that must not run; `offset` is the place in ``co_code``."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset

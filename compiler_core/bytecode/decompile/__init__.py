"""Decompiles bytecode that the compiler generated into Python statements.

It is meant for what `compiler_core` generates: loads, the call of the graph, unpacking, stores, a branch to two resume
functions, returns.  Any other instruction becomes a comment with its operands, so that the text is always correct,
though not always a complete program.
"""

from types import CodeType

from compiler_core.bytecode.decompile.decompiler import Decompiler
from compiler_core.records import Span

__all__ = ["decompile", "statements"]


def statements(code: CodeType) -> str:
    """Returns the text of `decompile` alone."""
    return decompile(code)[0]


def decompile(code: CodeType) -> tuple[str, list[Span]]:
    """Returns the text, and for each reachable instruction a span of the line that it is part of.

    A span's key is the instruction's index in ``disassemble(code)``.
    """
    decompiler = Decompiler(code)
    decompiler.run()
    spans = [Span(str(i), line, line) for i, line in sorted(decompiler.line_of.items())]
    return "\n".join(decompiler.lines), spans

"""Bytecode that the compiler made, as Python statements.

It is meant for what `compiler_core` generates: loads, the call of the graph, unpacking, stores, a branch to two resume
functions, returns.  Whatever else it meets is printed as a comment with its operands, so that every text tells the
truth, if not always as a program.
"""

from types import CodeType

from compiler_core.bytecode.decompile.writer import Writer
from compiler_core.records import Span

__all__ = ["decompile", "statements"]


def statements(code: CodeType) -> str:
    return decompile(code)[0]


def decompile(code: CodeType) -> tuple[str, list[Span]]:
    """The text, and for each instruction that can be reached the line that it went into.

    A span's key is the instruction's index in ``disassemble(code)``.
    """
    writer = Writer(code)
    writer.write()
    spans = [Span(str(i), line, line) for i, line in sorted(writer.line_of.items())]
    return "\n".join(writer.lines), spans

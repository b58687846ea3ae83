"""Decompiles bytecode to Python statements.

`decompiler` executes instructions on texts instead of values (`stack_instructions`, and `forms` for the text of each),
and `statement_writer` holds its stack and statements.  That is meant for what compilers generate: loads, the call of
the graph, unpacking, stores, a branch to two resume functions, returns.  Any other instruction becomes a comment with
its operands, so that the text is always correct, though not always a complete program.

`structured` writes functions that run.  `flow_of_statements`, `handlers` and `structure` find branches, exception
handlers and loops; `branches`, `loops`, `ways_out` and `protected` (``try`` and ``with``) print them, with `contexts`
for what is around a statement.  `imports` and `comprehensions` are for those two.
"""

from __future__ import annotations

from types import CodeType
from typing import Any

from compiler_core.records import Span
from compiler_core.tools.decompile.comprehensions import all_names
from compiler_core.tools.decompile.decompiler import Decompiler
from compiler_core.tools.decompile.structured import StructuredDecompiler, called_builtins

__all__ = ["all_names", "called_builtins", "decompile", "runnable_text", "statements"]


def statements(code: CodeType) -> str:
    """Returns the text of `decompile` alone."""
    return decompile(code)[0]


def runnable_text(code: CodeType) -> tuple[str, dict[str, Any]]:
    """Returns the text of a function that does what `code` does, and the constants that it names.

    It is that of a nested function: the globals are those of `code`; the constants, and the cells that `code` closes
    over, are variables of the function around it.

    Raises:
        ValueError: an instruction, or the way that the paths run, has no Python text.
    """
    names: dict[str, Any] = {}
    decompiler = StructuredDecompiler(code, names)
    try:
        decompiler.run()
    except ValueError as error:
        raise ValueError(f"{code.co_name} cannot be decompiled: {error}") from None
    return "\n".join(decompiler.lines) + "\n", names


def decompile(code: CodeType) -> tuple[str, list[Span]]:
    """Returns the text, and for each reachable instruction a span of the line that it is part of.

    A span's key is the instruction's index in ``disassemble(code)``.
    """
    decompiler = Decompiler(code)
    decompiler.run()
    spans = [Span(str(i), line, line) for i, line in sorted(decompiler.line_of.items())]
    return "\n".join(decompiler.lines), spans

"""Records the bytecode of a frame before and after Dynamo."""

from __future__ import annotations

import types
from typing import Literal

from compiler_core.bytecode.verify import bytecode_text
from compiler_core.records import Compile
from compiler_core.tools.decompile import decompile
from compiler_core.tools.stock.read.bytecode_listing import listed_lines
from compiler_core.tools.stock.source_files import SourceFiles


def record_bytecode(compile_: Compile, lines: SourceFiles, before: types.CodeType, after: types.CodeType) -> None:
    """Adds listings of both codes, each instruction linked to its source line, and `after` as Python statements."""
    old = _record_listing(compile_, lines, "bytecode", before)
    new = _record_listing(compile_, lines, "generated", after)
    if old is None or new is None:
        return
    try:
        text, spans = decompile(after)
    except Exception as error:
        compile_.fail("bytecode", f"cannot decompile stock's bytecode: {type(error).__name__}: {error}")
        return
    artifact = compile_.artifact("decompiled", "decompiled", "python", text, spans)
    for span in spans:
        compile_.link(artifact.item(span.key), [f"{new}#{span.key}"], "decompile")


def _record_listing(
    compile_: Compile, lines: SourceFiles, name: Literal["bytecode", "generated"], code: types.CodeType
) -> str | None:
    """Adds the listing of `code` as artifact `name` and returns the artifact's id; None if it failed."""
    try:
        text, spans = bytecode_text(code)
    except Exception as error:
        compile_.fail("bytecode", f"cannot list the {name} bytecode: {type(error).__name__}: {error}")
        return None
    artifact = compile_.artifact(name, name, "bytecode", text, spans)
    for span, line in zip(spans, listed_lines(text.split("\n")), strict=True):
        item = lines.item(code.co_filename, line) if line else None
        compile_.link(artifact.item(span.key), [item] if item else [], name)
    return artifact.id

"""The bytecode of a frame before and after Dynamo."""

from __future__ import annotations

import types

from compiler_core.bytecode.decompile import decompile
from compiler_core.bytecode.listing import bytecode_text
from compiler_core.records import Compile
from compiler_core.stock.read.lines import Lines


def record_bytecode(compile_: Compile, lines: Lines, before: types.CodeType, after: types.CodeType) -> None:
    """Both as listings, each instruction linked to its line; what Dynamo made also as Python statements."""
    old = _listing(compile_, lines, "bytecode", before)
    new = _listing(compile_, lines, "generated", after)
    if old is None or new is None:
        return
    try:
        text, spans = decompile(after)
    except Exception as error:
        compile_.fail("bytecode", f"stock's bytecode cannot be said as Python: {type(error).__name__}: {error}")
        return
    artifact = compile_.artifact("decompiled", "decompiled", "python", text, spans)
    for span in spans:
        compile_.link(artifact.item(span.key), [f"{new}#{span.key}"], "decompile")


def _listing(compile_: Compile, lines: Lines, name: str, code: types.CodeType) -> str | None:
    try:
        text, spans = bytecode_text(code)
    except Exception as error:
        compile_.fail("bytecode", f"the {name} cannot be listed: {type(error).__name__}: {error}")
        return None
    pane = "bytecode" if name == "bytecode" else "generated"
    artifact = compile_.artifact("bytecode" if pane == "bytecode" else "generated", name, "bytecode", text, spans)
    for span, line in zip(spans, _lines(text), strict=True):
        item = lines.item(code.co_filename, line) if line else None
        compile_.link(artifact.item(span.key), [item] if item else [], name)
    return artifact.id


def _lines(text: str) -> list[int]:
    """The source line of each instruction, which the listing says where it changes."""
    found, last = [], 0
    for row in text.split("\n"):
        shown = row[:5].strip()
        last = int(shown) if shown.isdigit() else last
        found.append(last)
    return found

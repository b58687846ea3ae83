"""Kernels that the user wrote by hand, in the place of those that were generated.

An edit names a kernel by its whole text, so it is applied wherever that text is generated, and nowhere else.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import replace

from compiler_core.codegen.source import KernelSource, LineOrigin
from compiler_core.config import KernelEdit

_LAUNCH_LINE = re.compile(r"^LAUNCHES\[.*$\n?", re.MULTILINE)
"""Sets the grid and the number of warps of a Triton kernel."""


def function_text(text: str, name: str) -> str | None:
    """Returns the lines of the function `name` in C++ or Triton source, or None."""
    lines = text.splitlines(keepends=True)
    head = re.compile(rf'(extern "C" \w+ |def ){name}\(')
    start = next((at for at, line in enumerate(lines) if head.match(line)), None)
    if start is None:
        return None
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][0] in " )}"):
        end += 1
    while not lines[end - 1].strip():
        end -= 1
    return "".join(lines[start - lines[start].startswith("def ") : end])  # with its decorator


def apply_edits(code: KernelSource, edits: Sequence[KernelEdit]) -> KernelSource:
    """Returns `code` with the text of each edit in the place of the kernel that it is for."""
    text = code.text
    for edit in edits:
        if edit.original in text:
            text = text.replace(edit.original, _definition(edit), 1) + _launches(edit)
    return code if text == code.text else replace(code, text=text, lines=_moved(code, text))


def without_edits(text: str, edits: Sequence[KernelEdit]) -> str:
    """Returns the text of kernels as it was generated."""
    for edit in reversed(edits):
        if _definition(edit) in text:
            text = text.replace(_definition(edit), edit.original, 1)
            if _launches(edit):
                text = text.replace(_launches(edit), "")
    return text


def _definition(edit: KernelEdit) -> str:
    return _LAUNCH_LINE.sub("", edit.text).strip("\n") + "\n"


def _launches(edit: KernelEdit) -> str:
    return "".join(line.rstrip("\n") + "\n" for line in _LAUNCH_LINE.findall(edit.text))


def _moved(code: KernelSource, text: str) -> tuple[LineOrigin, ...]:
    """Returns the origins of the lines of `text`: equal lines have those they had, new ones belong to the kernel of the
    line before."""
    old = {line.number: line for line in code.lines}
    matcher = difflib.SequenceMatcher(None, code.text.splitlines(), text.splitlines(), autojunk=False)
    found: list[LineOrigin] = []
    for tag, first, last, new_first, new_last in matcher.get_opcodes():
        for number in range(new_first, new_last):
            before = old.get(first + 1 + number - new_first) if tag == "equal" else None
            if before is not None:
                found.append(replace(before, number=number + 1))
            elif tag != "equal" and any(at in old for at in range(first, last + 2)):
                nearest = next(old[at] for at in range(first, last + 2) if at in old)
                found.append(LineOrigin(number + 1, nearest.kernel))
    return tuple(found)

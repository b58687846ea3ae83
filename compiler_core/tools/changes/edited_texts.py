"""Edited texts of kernels, loops, schedules and wrappers.

An edit contains the whole text that it replaces, so it applies only where exactly that text is generated.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from compiler_core.codegen.source import KernelSource, LineOrigin
from compiler_core.codegen.wrapper.executable import NAMES
from compiler_core.codegen.wrapper.writer import Wrapper
from compiler_core.config import CodeEdit
from compiler_core.errors import CompilerBug, UsageError
from compiler_core.loops import ir
from compiler_core.loops.schedule.block_sizes import shape_for_triton
from compiler_core.loops.schedule.gpu import blocks_of
from compiler_core.loops.schedule.script import Schedule
from compiler_core.tools.changes.loops_from_text import ParseContext, parse, symbols_of, with_origins
from compiler_core.tools.changes.schedule_from_text import read_schedule

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


def apply_edits(code: KernelSource, edits: Sequence[CodeEdit]) -> KernelSource:
    """Returns `code` in which each kernel that has an edit is replaced by the edited text."""
    text = code.text
    for edit in _of_kind(edits, "kernel"):
        if edit.original in text:
            text = text.replace(edit.original, _definition(edit), 1) + _launches(edit)
    return code if text == code.text else replace(code, text=text, lines=tuple(_moved(code, text)))


def with_edited_loops(program: ir.Program, edits: Sequence[CodeEdit]) -> ir.Program:
    """Returns `program` in which each loop nest that has an edit is replaced by the edited one.

    Raises:
        UsageError: an edited text is not a loop nest that can replace the original (`edited_loops`).
    """
    texts = {edit.original: edit.text for edit in _of_kind(edits, "loops")}
    dtypes = {name: buffer.dtype for name, buffer in program.buffers.items()}
    steps = (
        edited_loops(step, texts[step.text()], dtypes) if isinstance(step, ir.Loops) and step.text() in texts else step
        for step in program.steps
    )
    return program.with_steps(list(steps)) if texts else program


def edited_loops(before: ir.Loops, text: str, dtypes: Mapping[str, torch.dtype]) -> ir.Loops:
    """Returns the loop nest that `text` defines, an edited text of `before`; `dtypes` has the types of the buffers.

    Raises:
        UsageError: the text breaks a rule of the loop IR, or has another name or other arguments than `before`.
    """
    edited = parse(text, ParseContext(dtypes, symbols_of(before), before.scalars))
    try:
        ir.check(edited)
    except CompilerBug as error:
        raise UsageError(str(error).removeprefix("loop IR: ")) from None
    for what in ("name", "reads", "writes", "symbols", "scalars"):
        is_now, was = getattr(edited, what), getattr(before, what)
        if is_now != was:
            raise UsageError(f"the {what} of the loops must stay {_listed(was)}, in this order, not {_listed(is_now)}")
    return with_origins(edited, before)


def edited_schedules(program: ir.Program, edits: Sequence[CodeEdit]) -> dict[str, Schedule]:
    """Returns the schedules of those loop nests of `program` for which the user wrote one, by name.

    Raises:
        UsageError: a line is no rewrite, or it is not legal there.
    """
    texts = {edit.original: edit.text for edit in _of_kind(edits, "schedule")}
    loops = [step for step in program.steps if isinstance(step, ir.Loops)] if texts else []
    return {
        each.name: written_schedule(each, texts[each.text()], program.language(each))
        for each in loops
        if each.text() in texts
    }


def written_schedule(loops: ir.Loops, text: str, language: ir.Language) -> Schedule:
    """Returns the schedule that the user wrote for a kernel.

    Raises:
        UsageError: a line is no rewrite, or it is not legal there; or no Triton kernel can have the nest.
    """
    if language == "cpp":
        return read_schedule(loops, text)
    made = read_schedule(shape_for_triton(loops), text, "triton")
    blocks_of(made.nest)
    return made


def _listed(names: str | Sequence[str]) -> str:
    return names if isinstance(names, str) else ", ".join(names) or "none"


def with_edited_wrapper(wrapper: Wrapper, edits: Sequence[CodeEdit]) -> Wrapper:
    """Returns `wrapper`, or its edited text if there is an edit for it.

    An edited wrapper is called unchanged, never inlined, and may use all names of wrappers.
    """
    texts = {edit.original: edit.text for edit in _of_kind(edits, "wrapper")}
    if wrapper.text not in texts:
        return wrapper
    text = texts[wrapper.text]
    names = {name: name for name in NAMES} | wrapper.executable.names
    executable = replace(wrapper.executable, text=text, names=names, inline_body=None, only_kernels=False)
    lines = {
        after: wrapper.lines[before] for before, after in _same_lines(wrapper.text, text) if before in wrapper.lines
    }
    return replace(wrapper, text=text, lines=lines, executable=executable)


def _of_kind(edits: Sequence[CodeEdit], kind: str) -> list[CodeEdit]:
    return [edit for edit in edits if edit.kind == kind]


def without_edits(text: str, edits: Sequence[CodeEdit]) -> str:
    """Returns the text of kernels as it was generated."""
    for edit in reversed(_of_kind(edits, "kernel")):
        if _definition(edit) in text:
            text = text.replace(_definition(edit), edit.original, 1)
            if _launches(edit):
                text = text.replace(_launches(edit), "")
    return text


def _definition(edit: CodeEdit) -> str:
    return _LAUNCH_LINE.sub("", edit.text).strip("\n") + "\n"


def _launches(edit: CodeEdit) -> str:
    return "".join(line.rstrip("\n") + "\n" for line in _LAUNCH_LINE.findall(edit.text))


def _same_lines(before: str, after: str) -> Iterator[tuple[int, int]]:
    """Yields the numbers of the lines that are in both texts, in each of them."""
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    for first, new_first, length in matcher.get_matching_blocks():
        yield from zip(range(first + 1, first + length + 1), range(new_first + 1, new_first + length + 1), strict=True)


def _moved(code: KernelSource, text: str) -> Iterator[LineOrigin]:
    """Yields the origins of the lines of `text`: equal lines have those they had, new ones belong to the kernel of a
    line beside them."""
    old = {line.number: line for line in code.lines}
    matcher = difflib.SequenceMatcher(None, code.text.splitlines(), text.splitlines(), autojunk=False)
    for tag, first, last, new_first, new_last in matcher.get_opcodes():
        for number in range(new_first, new_last):
            before = old.get(first + 1 + number - new_first) if tag == "equal" else None
            if before is not None:
                yield replace(before, number=number + 1)
            elif tag != "equal" and any(at in old for at in range(first, last + 2)):
                nearest = next(old[at] for at in range(first, last + 2) if at in old)
                yield LineOrigin(number + 1, nearest.kernel)

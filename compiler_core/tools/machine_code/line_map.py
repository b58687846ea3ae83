"""Maps lines of machine code, and of intermediate forms, to the kernel's lines.

Each reader takes a tool's output with debug locations and returns the same text
without them, line by line, each line with the lines of the kernel's file that it was compiled from:

    [(text, (12,)), (text, ()), ...]

A location inside an inlined function (a helper in the kernel's file, Triton's
library) is mapped to the kernel's line that calls it.  `file` is the base name of the
kernel's file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePath

Lines = tuple[int, ...]
MappedLines = list[tuple[str, Lines]]

_MLIR_LOC_ATTRIBUTE = re.compile(r"\s*\bloc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
_MLIR_LOCATION = re.compile(r'"([^"]*)":(\d+):\d+|(#loc\d*)')


def mlir(text: str, file: str) -> MappedLines:
    """Reads Triton's TTIR and TTGIR: ``loc(...)`` on each operation, aliases ``#loc7 = loc(...)``."""
    aliases = dict(re.findall(r"^(#loc\d*) = (loc\(.*\))$", text, re.MULTILINE))

    def outermost(location: str) -> Lines:
        found: Lines = ()
        for path, line, alias in _MLIR_LOCATION.findall(location):
            found = (outermost(aliases.get(alias, "")) if alias else _line_in_file(path, line, file)) or found
        return found

    mapped: MappedLines = []
    opened: list[int] = []
    for line in text.splitlines():
        if line.startswith("#loc"):
            continue
        locations = _MLIR_LOC_ATTRIBUTE.findall(line)
        clean, lines = _MLIR_LOC_ATTRIBUTE.sub("", line), outermost(locations[-1]) if locations else ()
        if clean.lstrip().startswith("}") and opened:
            # the location of an operation with a body follows the body
            start = opened.pop()
            mapped[start] = (mapped[start][0], mapped[start][1] or lines)
        if clean.endswith("{"):
            opened.append(len(mapped))
        mapped.append((clean, lines))
    return mapped


def llvm(text: str, file: str) -> MappedLines:
    """Reads LLVM IR: ``!dbg !7`` on each instruction, the metadata at the end of the module."""
    metadata = dict(re.findall(r"^(!\d+) = (.*)$", text, re.MULTILINE))

    def field(entry: str, name: str) -> str:
        found = re.search(rf'\b{name}: ("[^"]*"|[^,)]+)', metadata.get(entry, ""))
        return found[1].strip('"') if found else ""

    def outermost(location: str) -> Lines:
        caller = field(location, "inlinedAt")
        path = field(field(field(location, "scope"), "file"), "filename")
        return (outermost(caller) if caller else ()) or _line_in_file(path, field(location, "line"), file)

    mapped: MappedLines = []
    for line in text.splitlines():
        if not line.startswith("!"):
            found = re.search(r",? !dbg (!\d+)", line)
            mapped.append((re.sub(r",? !dbg !\d+", "", line), outermost(found[1]) if found else ()))
    return _without_trailing_blanks(mapped)


def ptx(text: str, file: str) -> MappedLines:
    """PTX: ``.loc`` lines; the debug sections come last."""
    mapped: MappedLines = []
    now: Lines = ()
    for line, places in _ptx_lines(text):
        if re.match(r"\s*\.(file|section)\b", line):
            break
        if places:
            now = _outermost(places, file)
        elif not re.match(r"\$L__(tmp|func_)|\s*// (begin|end) inline asm|\s*// -- End", line):
            mapped.append((line, now if re.match(r"\s+[^.\s]", line) else ()))
    return _without_trailing_blanks(mapped)


def amdgcn(text: str, file: str) -> MappedLines:
    """AMD assembly as LLVM prints it."""
    return _assembly(text, lambda location, _: _outermost(_LOCATION.findall(location), file), ";")


def gnu_assembly(text: str, file: str) -> MappedLines:
    """Reads the assembly of a C++ compiler.

    Code inlined from a header is mapped to the kernel's line before it, up to the next label.
    """
    numbered = re.findall(r'^\s*\.file\s+(\d+)\s.*?"([^"]*)"[^"\n]*$', text, re.MULTILINE)
    files = {number for number, path in numbered if PurePath(path).name == file}

    def locate(location: str, before: Lines) -> Lines:
        found = re.match(r"\s*\.loc\s+(\d+)\s+(\d+)", location)
        return _line_number(found[2]) if found and found[1] in files else before

    return _assembly(text, locate, "#")


def sass(text: str, file: str, inlined: dict[tuple[str, int], Lines]) -> MappedLines:
    """Reads the output of ``nvdisasm --print-line-info``.

    It contains the line of an inlined function but not its caller; `inlined` has the callers' lines.
    """
    mapped: MappedLines = []
    now: Lines = ()
    for line in text.splitlines():
        location = re.match(r'\s*//## File "([^"]*)", line (\d+)', line)
        if location:
            key = (PurePath(location[1]).name, int(location[2]))
            now = inlined.get(key) or _line_in_file(location[1], location[2], file)
        elif re.match(r"\.L_|\s+/\*[0-9a-f]{4,}\*/", line):
            instruction = re.sub(r"^\s+(/\*[0-9a-f]+\*/)\s{0,14}", r"    \1 ", line)
            mapped.append((instruction, now if instruction.startswith(" ") else ()))
    while mapped and re.search(r"\bNOP;|^\.L_", mapped[-1][0]):
        mapped.pop()
    return mapped


def inlined_callers(ptx_text: str, file: str) -> dict[tuple[str, int], Lines]:
    """Returns, for each ``(file, line)`` of an inlined function in the PTX, the kernel's lines that call it."""
    calls: dict[tuple[str, int], Lines] = {}
    for _, places in _ptx_lines(ptx_text):
        if len(places) > 1:
            outer_path, outer_line = places[-1]
            caller = _line_in_file(outer_path, outer_line, file)
            for path, line in places[:-1]:
                key = (path, int(line))
                calls[key] = tuple(dict.fromkeys(calls.get(key, ()) + caller))
    return calls


Places = list[tuple[str, str]]
"""The files and lines of a location: of an inlined function first, then of its callers."""

_LOCATION = re.compile(r"([\w.<>-]+):(\d+):\d+")


def _ptx_lines(text: str) -> Iterator[tuple[str, Places]]:
    """Yields the lines of PTX, a ``.loc`` with its places.

    LLVM explains it in a comment, ``// standard.py:263:15 @[ kernel.py:18:18 ]``; from Triton 3.8 on, the comment has
    the first of the places, and ``inlined_at 1 18 18`` the location of a ``.loc`` before it, whose places follow.
    """
    of_location: dict[str, Places] = {}
    for line in text.splitlines():
        places: Places = []
        if own := re.match(r"\s*\.loc\s+(\d+ \d+ \d+)", line):
            caller = re.search(r"\binlined_at (\d+ \d+ \d+)", line)
            places = _LOCATION.findall(line) + (of_location.get(caller[1], []) if caller else [])
            of_location[own[1]] = places
        yield line, places


def _outermost(places: Places, file: str) -> Lines:
    """Returns the line of the outermost place that is in `file`."""
    own = [found for path, line in places if (found := _line_in_file(path, line, file))]
    return own[-1] if own else ()


def _assembly(text: str, locate: Callable[[str, Lines], Lines], comment: str) -> MappedLines:
    """Keeps instructions, the labels that they use, and the constants at those labels."""
    lines = [line.split(comment)[0].rstrip() if ".loc" not in line else line for line in text.splitlines()]
    used = set(re.findall(r"[.\w$]+", "\n".join(line for line in lines if _is_instruction(line))))
    mapped: MappedLines = []
    now: Lines = ()
    in_block: Lines = ()
    keep_data = False
    for line in lines:
        label = re.match(r"([.\w$]+):", line)
        if re.match(r"\s*\.loc\b", line):
            now = in_block = locate(line, in_block)
        elif label:
            keep_data = label[1] in used
            if keep_data or not label[1].startswith("."):
                in_block = ()
                mapped.append((line, ()))
        elif _is_instruction(line):
            keep_data = False
            mapped.append((line, now))
        elif keep_data and re.match(r"\s+\.(long|quad|byte|value|short|zero|float|double|string|ascii|asciz)\b", line):
            mapped.append((line, ()))
    return mapped


def _is_instruction(line: str) -> bool:
    return re.match(r"\s+[a-zA-Z{]", line) is not None


def _line_in_file(path: str, line: str, file: str) -> Lines:
    return _line_number(line) if PurePath(path).name == file else ()


def _line_number(line: str) -> Lines:
    """Returns the line number; compilers use line 0 for code without a line."""
    return (int(line),) if line.isdigit() and int(line) else ()


def _without_trailing_blanks(mapped: MappedLines) -> MappedLines:
    while mapped and not mapped[-1][0].strip():
        mapped.pop()
    return mapped

"""Checks that a shared library is complete, because loading a truncated one kills the process.

For the constants see the ELF format: https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

MAGIC = b"\x7fELF"
_BITS_64, _LITTLE, _SHARED = 2, 1, 3
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_NO_BYTES, _SYMBOLS = 8, 11
NOT_A_LIBRARY = "it is not a shared library"
TRUNCATED = "it is truncated"


def damage_in(content: bytes) -> str:
    """Returns what is wrong with a shared library for a 64-bit machine, as text; empty if it is complete.

    Libraries of other formats (Mach-O of macOS) are not checked.
    """
    if content[:4] != MAGIC:
        return "" if content[:4] in _OTHER_FORMATS else NOT_A_LIBRARY
    if len(content) < _HEADER.size or content[4] != _BITS_64 or content[5] != _LITTLE:
        return "" if len(content) >= _HEADER.size else TRUNCATED
    kind, segments, sections, counts = _tables(content)
    if kind != _SHARED:
        return NOT_A_LIBRARY
    (segment_size, segment_count), (section_size, section_count) = counts
    if segment_size != _SEGMENT.size or section_size not in (0, _SECTION.size) or not segment_count:
        return "its header is damaged"
    ends = [segments + segment_size * segment_count, sections + section_size * section_count]
    if max(ends) > len(content):
        return TRUNCATED
    ends = [at + size for _, _, at, _, _, size, _, _ in _SEGMENT.iter_unpack(content[segments : ends[0]])]
    ends += [at + size for kind, at, size, _ in _sections(content) if kind != _NO_BYTES]
    return TRUNCATED if max(ends) > len(content) else ""


def missing_symbols(content: bytes, names: Iterable[str]) -> list[str]:
    """Returns those of `names` that a complete library does not define."""
    if content[:4] != MAGIC or content[4:6] != bytes((_BITS_64, _LITTLE)):
        return []
    there: set[bytes] = set()
    sections = _sections(content)
    for kind, at, size, linked in sections:
        if kind == _SYMBOLS and linked < len(sections):
            _, start, length, _ = sections[linked]
            texts = content[start : start + length]
            for name, *_ in _SYMBOL.iter_unpack(content[at : at + size - size % _SYMBOL.size]):
                there.add(texts[name : texts.find(b"\0", name)])
    return [name for name in names if name.encode() not in there]


_OTHER_FORMATS = frozenset({b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"})
"""The magic numbers of Mach-O."""


def _tables(content: bytes) -> tuple[int, int, int, tuple[tuple[int, int], tuple[int, int]]]:
    """Returns the file type, the offsets of the program header and section header tables, and the size and number of
    entries of each table."""
    _, kind, _, _, _, segments, sections, _, _, *counts, _ = _HEADER.unpack_from(content)
    return kind, segments, sections, ((counts[0], counts[1]), (counts[2], counts[3]))


def _sections(content: bytes) -> list[tuple[int, int, int, int]]:
    """Returns the type, offset, size and linked section of each section."""
    _, _, start, (_, (size, count)) = _tables(content)
    table = content[start : start + size * count]
    return [(kind, at, size, linked) for _, kind, _, _, at, size, linked, _, _, _ in _SECTION.iter_unpack(table)]

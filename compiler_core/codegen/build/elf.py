"""Whether a shared library is whole: one that is cut short kills the process that loads it.

The numbers are those of the ELF format: https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html
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


def fault(content: bytes) -> str:
    """What keeps this from being a whole shared library of a 64-bit machine, in words; empty where nothing does.

    A library of another format (macOS has one) is not looked into.
    """
    if content[:4] != MAGIC:
        return "" if content[:4] in _OTHER_FORMATS else "it is no shared library"
    if len(content) < _HEADER.size or content[4] != _BITS_64 or content[5] != _LITTLE:
        return "" if len(content) >= _HEADER.size else "it is cut short"
    kind, segments, sections, counts = _tables(content)
    if kind != _SHARED:
        return "it is no shared library"
    (segment_size, segment_count), (section_size, section_count) = counts
    if segment_size != _SEGMENT.size or section_size not in (0, _SECTION.size) or not segment_count:
        return "it is damaged"
    ends = [segments + segment_size * segment_count, sections + section_size * section_count]
    if max(ends) > len(content):
        return "it is cut short"
    ends = [at + size for _, _, at, _, _, size, _, _ in _SEGMENT.iter_unpack(content[segments : ends[0]])]
    ends += [at + size for kind, at, size, _ in _sections(content) if kind != _NO_BYTES]
    return "it is cut short" if max(ends) > len(content) else ""


def missing(content: bytes, names: Iterable[str]) -> list[str]:
    """Those of `names` that the symbols of a whole library lack."""
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
"""Mach-O's."""


def _tables(content: bytes) -> tuple[int, int, int, tuple[tuple[int, int], tuple[int, int]]]:
    """What kind of file it is, where the tables of segments and of sections begin, and the size and number of entries
    of each."""
    _, kind, _, _, _, segments, sections, _, _, *counts, _ = _HEADER.unpack_from(content)
    return kind, segments, sections, ((counts[0], counts[1]), (counts[2], counts[3]))


def _sections(content: bytes) -> list[tuple[int, int, int, int]]:
    """Of each section: its kind, where it begins, its size, the section that belongs to it."""
    _, _, start, (_, (size, count)) = _tables(content)
    table = content[start : start + size * count]
    return [(kind, at, size, linked) for _, kind, _, _, at, size, linked, _, _, _ in _SECTION.iter_unpack(table)]

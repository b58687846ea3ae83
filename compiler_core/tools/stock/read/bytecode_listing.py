"""Reads the source lines from a bytecode listing."""

from __future__ import annotations


def listed_lines(rows: list[str]) -> list[int]:
    """Returns the source line of each row of a listing; 0 before the first.  A row states its line if it changes."""
    lines, current = [], 0
    for row in rows:
        number = row[:5].strip()
        if number.isdigit():
            current = int(number)
        lines.append(current)
    return lines

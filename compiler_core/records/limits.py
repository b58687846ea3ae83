"""How much a record holds, and how much of it is shown: every limit of logs, records, summaries and the explorer.

What goes beyond a limit is left out and counted, and a note of the record (or a line of the summary) says how much.
The memory of a log is an estimate: each thing that is kept counts with about the bytes that it takes as a record.
"""

from __future__ import annotations

MIB = 2**20

MEMORY = 768 * MIB
"""Bytes that all records of one `read_logs`, or one stock `torch.compile` that is observed, may take.  A log takes four
to five times its size, so one of 100 MB is kept whole."""
TEXT = 16 * MIB
"""Characters of one text of a log; the rest is cut off."""
NAME = 4096
"""Characters of a name, a path, a source line or a sentence in a log."""
ENTRY = 64 * MIB
"""Bytes of one entry of a log; a longer one is no log of PyTorch's, and an error."""

FRAMES = 20_000
"""Frames of a record, and compiles in a record of a log."""
NODES = 200_000
"""Nodes of one graph of a log."""
EDGES = 5 * NODES
LINKS = 200
"""Graph nodes that one line of a kernel, or one kernel, is linked to where only their operation is known."""
NOTES = 100
"""Notes of a record that say the same kind of thing; failures of one compile in a log."""

JSON = 512 * MIB
"""Characters of a record that is read."""

LINES = 5_000
"""Lines of a summary."""
FAILURES = 100
"""Failures at the head of a summary."""


CUT = 50
"""Characters of the words that say how much was cut off."""


def cut(text: str, most: int = NAME) -> str:
    """`text`, or as much of it as fits into `most` characters with how much was left out."""
    if len(text) <= most:
        return text
    kept = most - CUT
    return f"{text[:kept]}… ({len(text) - kept:,} characters left out)"

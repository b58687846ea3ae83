"""Limits of logs, records, summaries and the explorer.

What exceeds a limit is left out and counted; a note of the record, or a line of the summary, states how much.  The
memory of a log is an estimate: each event that is kept counts with about the bytes that it takes in the record.
"""

from __future__ import annotations

MIB = 2**20

MEMORY = 768 * MIB
"""Bytes that all records of one `read_logs`, or the record of one observed `torch.compile`, may take.  A log takes four
to five times its size, so one of 100 MB is kept whole."""
TEXT = 16 * MIB
"""Characters of one text of a log; longer texts are truncated."""
NAME = 4096
"""Characters of a name, a path, a source line or a sentence in a log."""
ENTRY = 64 * MIB
"""Bytes of one entry of a log.  PyTorch writes no longer ones, so a longer entry is an error."""

FRAMES = 20_000
"""Frames of a record, and compiles of a record made from a log."""
NODES = 200_000
"""Nodes of one graph of a log."""
EDGES = 5 * NODES
LINKS = 200
"""Graph nodes that a kernel or a line of it is linked to if it is matched by operation only."""
COLLECTIVES = 5_000
"""Collectives of a record."""
NOTES = 100
"""Notes of one kind in a record, and failures of one compile of a log."""

JSON = 512 * MIB
"""Characters of a record's JSON text that is read."""

LINES = 5_000
"""Lines of a summary."""
FAILURES = 100
"""Failures at the head of a summary."""

TRUNCATION_NOTE = 50
"""Characters reserved for the note on how much was left out of a text."""


def truncate(text: str, max_chars: int = NAME) -> str:
    """Returns `text`, or its beginning and a note on how much was left out, in at most `max_chars` characters."""
    if len(text) <= max_chars:
        return text
    kept = max_chars - TRUNCATION_NOTE
    return f"{text[:kept]}… ({len(text) - kept:,} characters left out)"

"""Reads a folder with the files of any number of ranks, and compares the ranks.

One rank is in memory at a time: of each only its facts are kept (`facts`).
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from compiler_core.records import Record, RecordError, limits
from compiler_core.tools.ranks.comparison import RankComparison, compare_rank_facts
from compiler_core.tools.ranks.facts import RankFacts, rank_facts
from compiler_core.tools.ranks.journal import is_journal, read_journal
from compiler_core.tools.stock.trace_logs import read_log

ENDINGS = (".log", ".log.gz", ".jsonl", ".json")
OnRecord = Callable[[str, Record, bool], Any]
"""Called with the name of a file, without its ending, its record, and whether none before had the same facts."""

_RANK = re.compile(r"rank_?(\d+)")
_LOGGED_RANK = re.compile(rb'[{,] ?"rank": (\d+)[,}]')
_PEEKED = 2**20


def compare_ranks(
    folder: str | Path, *, on_record: OnRecord | None = None, progress: Callable[[int, int], Any] | None = None
) -> RankComparison:
    """Reads the files of all ranks in a folder and compares the ranks.

    Damaged entries, files that cannot be read and missing ranks are left out, with a note for each.

    Args:
        folder: has the files of `record_ranks`, logs of ``TORCH_TRACE`` (``*.log``, ``*.log.gz``), or records
            (``*.json``).  Of a rank that was started again the last files count.
        on_record: called with each file's name and record while it is in memory, and whether the record is the first
            with its facts.
        progress: called with the number of files read so far and of all.

    Returns:
        Groups of ranks that did the same, and the first difference of the others; `str` prints them.

    Raises:
        RecordError: the folder has no file that can be read.

    Example::

        print(compiler_core.compare_ranks("ranks/"))
    """
    root = Path(folder)
    files = sorted(file for file in root.iterdir() if file.name.endswith(ENDINGS)) if root.is_dir() else []
    if not files:
        raise RecordError(f"{folder}: there is no file of a rank ({', '.join(f'*{ending}' for ending in ENDINGS)})")
    notes: list[str] = []
    ranks: dict[Any, RankFacts] = {}
    seen: set[int] = set()
    for number, file in enumerate(_latest(files, notes), 1):
        try:
            record = read_rank(file)
        except (RecordError, OSError) as error:
            why = str(error).removeprefix(f"{file}: ").removeprefix(f"{file}:")
            notes.append(f"{file.name} is left out: {why}")
        else:
            rank = _rank_of(file, record)
            facts = rank_facts(record, stem(file), rank)
            digest = hash(tuple(facts.facts))
            if on_record is not None:
                on_record(stem(file), record, digest not in seen)
            seen.add(digest)
            notes += [f"{file.name}: {note}" for note in record.notes]
            key = file.name if rank is None else rank
            ranks[key] = _joined(ranks[key], facts) if key in ranks else facts
        if progress is not None:
            progress(number, len(files))
    if not ranks:
        raise RecordError(f"{folder}: no file can be read. {notes[0] if notes else ''}")
    ordered = sorted(ranks.values(), key=lambda each: (each.rank is None, each.rank or 0, each.name))
    return compare_rank_facts(ordered, notes)


def read_rank(file: Path, budget: int = limits.MEMORY // 4) -> Record:
    """Reads one file of a rank: a journal, a record, or a log, of which damaged entries are left out with a note."""
    if file.name.endswith((".log", ".log.gz")):
        return read_log(file, budget, strict=False)
    with file.open("rb") as stream:
        first = stream.read(64)
    return read_journal(file) if is_journal(first) else Record.load(file)


def stem(file: Path) -> str:
    """Returns a file's name without its ending, unless two files of a rank differ in it only."""
    ending = next(each for each in ENDINGS if file.name.endswith(each))
    return file.name.removesuffix(ending) + (".core" if ending == ".jsonl" else "")


def _latest(files: list[Path], notes: list[str]) -> Iterator[Path]:
    """Yields the files, of several of one rank and kind only the last written; a note names the others."""
    kinds: dict[tuple[str, str], list[Path]] = {}
    for file in files:
        found = _RANK.search(file.name)
        kinds.setdefault((found[1] if found else file.name, "core" if file.name.endswith(".jsonl") else ""), []).append(
            file
        )
    for group in kinds.values():
        *earlier, last = sorted(group, key=lambda each: each.stat().st_mtime)
        notes += [f"{each.name} is left out: {last.name} is of the same rank and newer." for each in earlier]
        yield last


def _rank_of(file: Path, record: Record) -> int | None:
    """Returns the rank of a file, by its name, its record's title, or what PyTorch logged."""
    found = _RANK.search(file.name) or re.fullmatch(r"rank (\d+)", record.title)
    if found is None and file.name.endswith((".log", ".log.gz")):
        open_file: Callable[..., Any] = gzip.open if file.suffix == ".gz" else open
        try:
            with open_file(file, "rb") as opened:
                logged = _LOGGED_RANK.search(opened.read(_PEEKED))
        except (OSError, EOFError, zlib.error):
            logged = None
        return int(logged[1]) if logged and len(logged[1]) < 7 else None
    return int(found[1]) if found and len(found[1]) < 7 else None


def _joined(one: RankFacts, other: RankFacts) -> RankFacts:
    """Returns the facts of one rank from both of its files."""
    facts = sorted(one.facts + other.facts, key=lambda each: each.kind == "collective call")
    return RankFacts(
        one.name, one.rank, facts, one.compile_seconds + other.compile_seconds,
        one.cache_hits + other.cache_hits, one.cache_misses + other.cache_misses, one.files + other.files,
    )  # fmt: skip

"""The page of a job's ranks: which did the same, where the others first differ, and the numbers of each rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from compiler_core.records import Record
from compiler_core.records.timings import time_text
from compiler_core.tools.ranks.comparison import RankComparison, RankGroup
from compiler_core.tools.ranks.facts import KINDS, RankFacts
from compiler_core.tools.ranks.reading import compare_ranks
from kernel_magics.display.offline.record_pages import BESIDE, RecordPages
from kernel_magics.display.offline.tables import Cell, Table, number, page

ALL_PAGES = 16
"""With so many files or fewer each rank gets a page with its explorer; with more, the first rank of each group."""


def write_ranks_page(
    source: str | Path, folder: str | Path, progress: Callable[[int, int], Any] | None = None
) -> tuple[Path, RankComparison]:
    """Compares the ranks in a folder and writes their page.

    Args:
        source: the folder with the ranks' files, as for `compiler_core.compare_ranks`.
        folder: gets ``index.html`` and, in ``records``, pages with the explorers of ranks.
        progress: called with the number of files read so far and of all.

    Returns:
        The path of the page, and the comparison.

    Raises:
        RecordError: `source` has no file that can be read.
        OSError: `folder` cannot be written.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    pages, links = RecordPages(target / "records"), dict[str, str]()
    few = sum(1 for _ in Path(source).iterdir()) <= ALL_PAGES

    def on_record(name: str, record: Record, is_new: bool) -> None:
        if is_new or few:
            links[name] = pages.write(name, record.title or name, record.to_json())

    comparison = compare_ranks(source, on_record=on_record, progress=progress)
    lines = [line for line in str(comparison).splitlines() if not line.startswith(" ")]  # those are in a table
    tables = [_groups(comparison, links), _differences(comparison, links), _ranks(comparison, links)]
    path = target / "index.html"
    text = page(f"{len(comparison.ranks):,} ranks", lines, tables)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path, comparison


def _link(group: RankGroup, rank: RankFacts, links: dict[str, str]) -> str:
    """Returns the page of a rank, or of the first rank of its group that has one."""
    names = [name for each in (rank, *group.ranks) for name in each.files]
    return next((links[name] for name in names if name in links), "")


def _groups(comparison: RankComparison, links: dict[str, str]) -> Table:
    reference = comparison.groups[0]
    rows = []
    for group in comparison.groups:
        here, others = (_link(each, each.ranks[0], links) for each in (group, reference))
        beside = ""
        if here and others and here != others:
            names = (link.rpartition("/")[2].removesuffix(".html") for link in (others, here))
            beside = f"records/{BESIDE}#{','.join(names)}"
        first = str(group.first) if group.first else "the reference"
        rows.append([number(len(group.ranks)), Cell(group.name, link=here), Cell(first),
                     Cell(group.first.source if group.first else ""),
                     Cell("beside the reference" if beside else "", link=beside)])  # fmt: skip
    bad = frozenset(range(1, len(rows)))
    return Table("Groups of equal ranks", ("count", "ranks", "first difference", "line", ""), rows, bad=bad)


def _differences(comparison: RankComparison, links: dict[str, str]) -> Table:
    rows = []
    for group in comparison.groups[1:]:
        for each in group.divergences:
            place = Cell(f"{each.place}\n{each.source}")
            name = Cell(group.name, link=_link(group, group.ranks[0], links))
            rows.append([name, Cell(each.kind), Cell(each.compile), place, Cell(each.here), Cell(each.others)])
    return Table("The first difference of each kind", ("ranks", "kind", "compile", "line", "here", "the others"), rows)


def _ranks(comparison: RankComparison, links: dict[str, str]) -> Table:
    group_of = {id(rank): (i, group) for i, group in enumerate(comparison.groups) for rank in group.ranks}
    ranks = comparison.ranks
    most = {kind: max((rank.count(kind) for rank in ranks), default=0) or 1 for kind in KINDS}
    slowest = max((rank.compile_seconds for rank in ranks), default=0.0) or 1.0
    rows, bad = [], set()
    for position, rank in enumerate(ranks):
        index, group = group_of[id(rank)]
        if index or rank in comparison.slow:
            bad.add(position)
        name = str(rank.rank) if rank.rank is not None else rank.name
        counts = [Cell(str(rank.count(k)), float(rank.count(k)), share=rank.count(k) / most[k]) for k in KINDS]
        seconds = Cell(time_text(rank.compile_seconds), rank.compile_seconds, share=rank.compile_seconds / slowest)
        cache = [number(rank.cache_hits), number(rank.cache_misses)]
        first = Cell(name, None if rank.rank is None else float(rank.rank), link=_link(group, rank, links))
        rows.append([first, number(index + 1), *counts, seconds, *cache])
    head = ("rank", "group", *(f"{kind}s" for kind in KINDS), "compile time", "from a cache", "built")
    return Table("All ranks", head, rows, bad=frozenset(bad))

"""The page of a sweep: red flags, graph breaks across models, what changed since another sweep, and all rows."""

from __future__ import annotations

from pathlib import Path

from compiler_core.records.timings import bytes_text, time_text
from compiler_core.tools.sweep.results import Change, SharedBreak, Sweep, Thresholds, compare_sweeps
from kernel_magics.display.offline.record_pages import RecordPages
from kernel_magics.display.offline.tables import Cell, Table, number, page

_HEAD = (
    "model", "state", "graphs", "graph breaks", "recompiles", "failures", "compile", "eager", "compiled", "speed",
    "error", "eager's error", "peak memory", "took", "attempts", "reason",
)  # fmt: skip
_CASES_LISTED = 8


def write_sweep_page(
    sweep: Sweep, folder: str | Path, before: Sweep | None = None, thresholds: Thresholds | None = None
) -> Path:
    """Writes the page of a sweep and returns its path.

    Args:
        sweep: the sweep.
        folder: gets ``index.html`` and, in ``records``, a page with the explorer for each saved record.
        before: another sweep, whose differences are listed first.
        thresholds: from where on a value is a red flag.

    Raises:
        OSError: `folder` cannot be written.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    links = _write_records(sweep, target / "records")
    limits = thresholds or Thresholds()
    flags = sweep.flags(limits)
    states = ", ".join(f"{count:,} {state}" for state, count in sweep.states().most_common())
    options = sweep.settings.get("options") or {}
    lines = [f"{len(sweep.rows):,} models: {states}. Engine {sweep.settings.get('engine')}, options {options}."]
    tables = [_flags(flags, links, limits), _breaks(sweep.breaks(), links), _rows(sweep, links, flags)]
    if before is not None:
        tables.insert(0, _changes(compare_sweeps(before, sweep), before, links))
    path = target / "index.html"
    path.write_text(page(sweep.path.stem, lines, tables), encoding="utf-8", errors="backslashreplace")
    return path


def _write_records(sweep: Sweep, folder: Path) -> dict[str, str]:
    """Writes a page for each saved record; returns its address by the name of the case."""
    pages, links = RecordPages(folder), {}
    for row in sweep.rows:
        file = sweep.path.parent / row["record"] if row["record"] else None
        if file is not None and file.is_file():
            links[row["name"]] = pages.write(file.stem, row["name"], file.read_text(encoding="utf-8"))
    return links


def _case(name: str, links: dict[str, str]) -> Cell:
    return Cell(name, link=links.get(name, ""))


def _flags(flags: dict[str, list[str]], links: dict[str, str], limits: Thresholds) -> Table:
    rows = [[_case(name, links), Cell("\n".join(each))] for name, each in flags.items()]
    note = (
        f"Slower than {limits.speed:g} of plain PyTorch, more than {limits.graph_breaks} graph breaks or "
        f"{limits.recompiles} recompiles, compiled in more than {limits.compile_seconds:g} s, an error of more than "
        f"{limits.error_ratio:g} times eager's, or not ok."
    )
    return Table(f"{len(flags):,} with red flags", ("model", "flags"), rows, note)


def _breaks(breaks: list[SharedBreak], links: dict[str, str]) -> Table:
    rows = []
    for each in breaks:
        listed = ", ".join(each.cases[:_CASES_LISTED])
        more = len(each.cases) - _CASES_LISTED
        first = Cell(f"{listed}, and {more:,} more" if more > 0 else listed, link=links.get(each.cases[0], ""))
        why = f"{each.reason}\nHint: {each.hint}" if each.hint else each.reason
        place = f"{each.file}:{each.line}\n{each.text}"
        rows.append([number(len(each.cases)), Cell(each.kind), Cell(place), Cell(why), first])
    return Table("Graph breaks", ("models", "kind", "line", "reason", "which"), rows)


def _rows(sweep: Sweep, links: dict[str, str], flags: dict[str, list[str]]) -> Table:
    rows = []
    for row in sweep.rows:
        times = [_time(row[name]) for name in ("compile_seconds", "eager_seconds", "compiled_seconds")]
        counts = [number(row[name]) for name in ("graphs", "graph_breaks", "recompiles", "failures")]
        peak = Cell(bytes_text(row["peak_bytes"]), float(row["peak_bytes"])) if row["peak_bytes"] else number(None)
        errors = [number(row["error"], 2), number(row["eager_error"], 2)]
        rest = [number(row["speed"], 3, "x"), *errors, peak, _time(row["seconds"]), number(row["attempts"])]
        rows.append([_case(row["name"], links), Cell(row["state"]), *counts, *times, *rest, Cell(row["reason"] or "")])
    bad = frozenset(position for position, row in enumerate(sweep.rows) if row["name"] in flags)
    return Table("All models", _HEAD, rows, bad=bad)


def _time(seconds: float | None) -> Cell:
    return number(None) if seconds is None else Cell(time_text(seconds), seconds)


def _changes(changes: list[Change], before: Sweep, links: dict[str, str]) -> Table:
    rows = [[_case(each.name, links), Cell(str(each).removeprefix(f"{each.name}: "))] for each in changes]
    bad = frozenset(position for position, each in enumerate(changes) if each.worse)
    return Table(f"{len(changes):,} differences from {before.path.stem}", ("model", "what"), rows, bad=bad)

"""The results of a sweep: rows, a table, red flags, graph breaks across models, and two sweeps compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler_core.errors import UsageError
from compiler_core.records.timings import plural, table_lines
from compiler_core.tools.sweep.store import Store

Row = dict[str, Any]
_SHOWN = ("name", "state", "graphs", "graph_breaks", "recompiles", "compile_seconds", "speed", "error", "peak_bytes")


@dataclass(frozen=True)
class Thresholds:
    """From where on a value is a red flag."""

    speed: float = 0.95
    """Less than this many times as fast as plain PyTorch."""
    compile_seconds: float = 120.0
    graph_breaks: int = 0
    """More graph breaks than this."""
    recompiles: int = 0
    error_ratio: float = 10.0
    """The error beside float64 is this many times eager's."""
    error: float = 1e-4
    """Errors below this do not count."""
    peak_bytes: float = float("inf")


@dataclass(frozen=True)
class SharedBreak:
    """A graph break at one line, and the cases that have it."""

    kind: str
    file: str
    line: int
    text: str
    reason: str
    hint: str
    cases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change:
    """What differs between two sweeps in one case."""

    name: str
    what: str
    before: Any
    after: Any
    worse: bool

    def __str__(self) -> str:
        before, after = (f"{v:.3g}" if isinstance(v, float) else str(v) for v in (self.before, self.after))
        return f"{self.name}: {self.what} {before} → {after}" + (" (worse)" if self.worse else "")


class Sweep:
    """The rows of a file of results, as `compiler_core.sweep` returns it.

    Args:
        path: the file.

    Raises:
        UsageError: there is no such file, or it is not a file of a sweep.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        store = Store(self.path)
        self.settings: dict[str, Any] = store.settings()
        self.rows: list[Row] = store.rows()

    def __getitem__(self, name: str) -> Row:
        found = next((row for row in self.rows if row["name"] == name), None)
        if found is None:
            raise KeyError(f"no case {name!r} in {self.path}")
        return found

    def table(self) -> Any:
        """Returns the rows as a pandas DataFrame; UsageError if pandas is not installed."""
        try:
            import pandas
        except ImportError:
            raise UsageError("a table needs pandas, which is not installed: pip install pandas") from None
        return pandas.DataFrame(self.rows).set_index("name")

    def flags(self, thresholds: Thresholds | None = None) -> dict[str, list[str]]:
        """Returns, for each case with red flags, what they are."""
        limits = thresholds or Thresholds()
        found = {row["name"]: list(_flags(row, limits)) for row in self.rows}
        return {name: flags for name, flags in found.items() if flags}

    def breaks(self) -> list[SharedBreak]:
        """Returns each graph break with the cases that have it, those of most cases first."""
        cases: dict[tuple[str, str, int], list[str]] = {}
        first: dict[tuple[str, str, int], dict[str, Any]] = {}
        for row in self.rows:
            for each in row["breaks"]:
                key = (each["kind"], each["file"], each["line"])
                first.setdefault(key, each)
                cases.setdefault(key, []).append(row["name"])
        shared = [
            SharedBreak(*key, each["text"], each["reason"], each["hint"], tuple(dict.fromkeys(cases[key])))
            for key, each in first.items()
        ]
        return sorted(shared, key=lambda each: -len(each.cases))

    def states(self) -> Counter[str]:
        """Returns how many cases ended in each state."""
        return Counter(row["state"] for row in self.rows)

    def __str__(self) -> str:
        cells = [_SHOWN, *([_cell(row[name]) for name in _SHOWN] for row in self.rows)]
        flags = [f"{name}: {'; '.join(each)}" for name, each in self.flags().items()]
        return "\n".join([*table_lines(cells), *flags])


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def _flags(row: Row, limits: Thresholds) -> Iterator[str]:
    if row["state"] != "ok":
        yield f"{row['state']}: {(row['reason'] or '').partition(chr(10))[0]}"
        return
    if row["failures"]:
        yield f"{row['failures']} {plural('failure', row['failures'])} of the compiler"
    for name, text in (("graph_breaks", "graph break"), ("recompiles", "recompile")):
        if (row[name] or 0) > getattr(limits, name):
            yield f"{row[name]} {plural(text, row[name])}"
    if (row["compile_seconds"] or 0) > limits.compile_seconds:
        yield f"compiled in {row['compile_seconds']:.0f} s"
    if row["speed"] is not None and row["speed"] < limits.speed:
        yield f"{row['speed']:.2f} times as fast as plain PyTorch"
    eager = max(row["eager_error"] or 0.0, limits.error / limits.error_ratio)
    if row["error"] is not None and row["error"] > limits.error_ratio * eager:
        yield f"error {row['error']:.1e} (eager {row['eager_error']:.1e})"
    if (row["peak_bytes"] or 0) > limits.peak_bytes:
        yield f"{row['peak_bytes'] / 2**20:,.0f} MiB"


_MORE_IS_WORSE = ("graphs", "graph_breaks", "recompiles", "failures")
_RATIOS = {"compile_seconds": True, "speed": False, "peak_bytes": True}
"""Whether more is worse, of values that vary from run to run.  The time of a call is not among them: two sweeps have
it from different moments, and `speed` is from one."""
_ONCE = 2.0
"""Times of compiling, which are measured once and at different moments, are the same within this factor at least."""


def compare_sweeps(before: Sweep, after: Sweep, tolerance: float = 1.25) -> list[Change]:
    """Returns what differs between two sweeps, case by case.

    Args:
        before, after: the sweeps.
        tolerance: speed and memory that differ by no more than this factor are the same; times of compiling also if
            they differ by no more than a factor of two.
    """
    old, new = ({row["name"]: row for row in each.rows} for each in (before, after))
    changes = [Change(name, "case", "there", "missing", True) for name in old if name not in new]
    changes += [Change(name, "case", "missing", "there", False) for name in new if name not in old]
    for name in (name for name in old if name in new):
        changes += _row_changes(name, old[name], new[name], tolerance)
    return changes


def _row_changes(name: str, old: Row, new: Row, tolerance: float) -> Iterator[Change]:
    if old["state"] != new["state"]:
        yield Change(name, "state", old["state"], new["state"], new["state"] != "ok")
    for what in _MORE_IS_WORSE:
        if old[what] is not None and new[what] is not None and old[what] != new[what]:
            yield Change(name, what, old[what], new[what], new[what] > old[what])
    for what, more_is_worse in _RATIOS.items():
        factor = max(tolerance, _ONCE) if what == "compile_seconds" else tolerance
        if old[what] and new[what] and max(old[what], new[what]) > factor * min(old[what], new[what]):
            yield Change(name, what, old[what], new[what], (new[what] > old[what]) == more_is_worse)
    places = [{(each["kind"], each["file"], each["line"]) for each in row["breaks"]} for row in (old, new)]
    for kind, file, line in sorted(places[1] - places[0]):
        yield Change(name, f"graph break at {file}:{line}", "none", kind, True)

"""Sweeps: each case has its row, whatever becomes of its process, and nothing is lost or run twice."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from compiler_core import sweep
from compiler_core.errors import UsageError
from compiler_core.records import Record
from compiler_core.tools.sweep import measure as measuring
from compiler_core.tools.sweep import ready, sweeping
from compiler_core.tools.sweep.cases import Case, make_case
from compiler_core.tools.sweep.results import Sweep, Thresholds, compare_sweeps
from compiler_core.tools.sweep.store import Store
from tests.api.light_cases import MEASURE, case
from tests.api.light_cases import measure as light_measure
from tests.limits import HANG_S

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _light(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "MEASURE", MEASURE)


def test_each_case_has_a_row_that_says_how_it_ended(tmp_path: Path) -> None:
    cases = [
        case("a"),
        case("b", value=1),
        case("r", "raise", 7),
        case("c", "crash"),
        case("e", "eat"),
    ]
    result = sweep(cases, tmp_path / "s.sqlite", workers=2, memory=200 * 2**20, progress=False)
    states = {row["name"]: row["state"] for row in result.rows}
    assert states == {"a": "ok", "b": "ok", "r": "failed", "c": "crashed", "e": "out of memory"}
    assert result["r"]["reason"] == "ValueError: no model of 7"
    assert result["c"]["reason"] == "killed by SIGSEGV\nthe last words"
    assert result["e"]["reason"] == "its process had more than 200 MiB"
    assert [result[name]["attempts"] for name in "arce"] == [1, 2, 2, 1]  # raised or crashed: once more
    assert (result["b"]["graphs"], result["b"]["breaks"][0]["line"]) == (2, 24)


def test_a_case_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    result = sweep([case("h", "hang")], tmp_path / "s.sqlite", timeout=3, progress=False)
    row = result["h"]
    assert (row["state"], row["reason"], row["attempts"]) == ("timed out", "it took more than 3 s", 1)


def test_cases_that_run_at_the_same_time_share_the_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    counted = sweep([case("a", "count threads")], tmp_path / "s.sqlite", workers=3, progress=False)
    assert counted["a"]["graphs"] == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    counted = sweep([case("a", "count threads")], tmp_path / "t.sqlite", workers=3, progress=False)
    assert counted["a"]["graphs"] == 5


def test_a_finished_case_is_not_run_again(tmp_path: Path) -> None:
    cases = [case(str(n)) for n in range(3)]
    sweep(cases[:2], tmp_path / "s.sqlite", progress=False)
    calls: list[tuple[int, int]] = []
    result = sweep(cases, tmp_path / "s.sqlite", progress=lambda done, of, left: calls.append((done, of)))
    assert [row["name"] for row in result.rows] == ["0", "1", "2"]
    assert len(Store(tmp_path / "s.sqlite").runs()) == 3
    assert calls == [(0, 1), (1, 1)]


def test_a_killed_sweep_resumes(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from compiler_core.tools.sweep import sweeping\n"
        "from tests.api.light_cases import MEASURE, case\n"
        "sweeping.MEASURE = MEASURE\n"
        "sweeping.sweep([case(str(n), 'sleep', n) for n in range(12)], sys.argv[1], workers=2, progress=False)\n"
    )
    file, env = tmp_path / "s.sqlite", os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    for killed in (True, True, False):
        process = subprocess.Popen([sys.executable, "-c", program, str(file)], env=env)
        done = len(Store(file).finished()) if file.exists() else 0
        deadline = time.monotonic() + HANG_S
        while killed and time.monotonic() < deadline and not (file.exists() and _finished(file) >= done + 2):
            time.sleep(0.02)
        if killed:
            process.send_signal(signal.SIGKILL)
        assert process.wait(HANG_S) == (-signal.SIGKILL if killed else 0)
    rows, runs = Sweep(file).rows, Store(file).runs()
    assert [row["name"] for row in rows] == [str(n) for n in range(12)]
    assert [row["state"] for row in rows] == ["ok"] * 12
    ended = [name for name, state in runs if state == "ok"]
    assert sorted(ended) == sorted({row["name"] for row in rows})  # each once
    assert 12 < len(runs) <= 16  # those that ran when the sweep was killed began again


def _finished(file: Path) -> int:
    try:
        return len(Store(file).finished())
    except UsageError:  # its tables are being made
        return 0


def test_an_interrupt_keeps_what_is_done(tmp_path: Path) -> None:
    def interrupt(done: int, of: int, left: float) -> None:
        if done == 2:
            raise KeyboardInterrupt

    cases = [case(str(n), "sleep") for n in range(4)] + [case("h", "hang")]
    with pytest.raises(KeyboardInterrupt):
        sweep(cases, tmp_path / "s.sqlite", workers=1, progress=interrupt)
    assert len(Store(tmp_path / "s.sqlite").finished()) in (2, 3)  # the third may have ended in that moment
    assert len(sweep(cases[:4], tmp_path / "s.sqlite", progress=False).rows) == 4


def test_many_processes_write_to_one_file(tmp_path: Path) -> None:
    cases = [case(str(n), value=n) for n in range(12)]
    with ProcessPoolExecutor(4) as executor:
        result = sweep(cases, tmp_path / "s.sqlite", executor=executor, progress=False)
    local = sweep(cases, tmp_path / "l.sqlite", workers=4, progress=False)
    assert [_stable(row) for row in result.rows] == [_stable(row) for row in local.rows]


def _stable(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("seconds", "attempts")}


def test_a_case_whose_worker_is_lost_is_run_again_or_says_so(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1) as executor:
        cases = [case("k", "kill the worker once", folder=tmp_path), case("after")]
        result = sweep(cases, tmp_path / "s.sqlite", executor=executor, progress=False)  # this pool does not recover
    assert {row["state"] for row in result.rows} == {"lost"}
    assert "BrokenProcessPool" in result["k"]["reason"]


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        ([case("a"), case("a")], "another name: 'a'"),
        ([Case("a", lambda: None)], "at the top level of a module"),
        ([Case("a", "no_colon")], "'module:function'"),
        ([Case("a", "m:f", (object(),))], "plain values only"),
    ],
)
def test_wrong_cases_are_refused(cases: list[Case], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        sweep(cases, tmp_path / "s.sqlite", progress=False)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite"
    sweep([case("a")], file, progress=False)
    with pytest.raises(UsageError, match="other settings"):
        sweep([case("a")], file, engine="core", progress=False)
    (tmp_path / "text").write_text("a text that is long enough to be read as a file of a database " * 20)
    with pytest.raises(UsageError, match="is not a file of a sweep"):
        sweep([case("a")], tmp_path / "text", progress=False)
    with pytest.raises(UsageError, match="no such file"):
        Sweep(tmp_path / "none")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sweep, Sweep]:
    """Two sweeps; in the second model 2 is gone, 0 breaks, and 1 compiles three times as long."""
    folder = tmp_path_factory.mktemp("two")
    found = []
    for name, values in (("before", {"0": 0, "1": 1, "2": 2}), ("after", {"0": 1, "1": 5, "3": 3})):
        store = Store(folder / f"{name}.sqlite")
        store.create({}, list(values))
        for case_name, value in values.items():
            row = light_measure({"name": case_name, "module": "tests.api.light_cases", "function": "make",
                           "args": ["ok", value], "kwargs": {}}, {})  # fmt: skip
            store.finish(case_name, {"state": "ok", "reason": "", **row})
        found.append(Sweep(store.path))
    return found[0], found[1]


def test_flags_breaks_and_changes(two: tuple[Sweep, Sweep]) -> None:
    before, after = two
    assert before.flags(Thresholds(compile_seconds=2.5)) == {"1": ["1 graph break"], "2": ["compiled in 3 s"]}
    (shared,) = after.breaks()
    assert (shared.file, shared.line, shared.cases) == ("model.py", 24, ("0", "1", "3"))
    changes = {(each.name, each.what): (each.before, each.after, each.worse) for each in compare_sweeps(before, after)}
    assert changes["2", "case"] == ("there", "missing", True)
    assert changes["0", "graph_breaks"] == (0, 1, True)
    assert changes["0", "graph break at model.py:24"] == ("none", "print", True)
    assert changes["1", "compile_seconds"] == (2.0, 6.0, True)


def test_other_tools_read_the_file(two: tuple[Sweep, Sweep]) -> None:
    rows = sqlite3.connect(two[0].path).execute("SELECT name, graphs, breaks FROM rows ORDER BY name").fetchall()
    assert [(name, graphs, len(json.loads(breaks))) for name, graphs, breaks in rows] == [
        ("0", 1, 0),
        ("1", 2, 1),
        ("2", 1, 0),
    ]


def test_a_table(two: tuple[Sweep, Sweep]) -> None:
    pytest.importorskip("pandas")
    table = two[1].table()
    assert list(table.index) == ["0", "1", "3"]
    assert table.loc["1", "graph_breaks"] == 1


def make_model(width: int) -> tuple[Any, tuple[Any, ...]]:
    return torch.nn.Linear(width, 4).eval(), (torch.randn(3, width),)


@pytest.mark.parametrize("engine", ["torch", "core"])
@pytest.mark.usefixtures("fresh_stock")
def test_what_is_measured(engine: str, tmp_path: Path) -> None:
    settings = {"engine": engine, "options": {"backend": "eager"}, "calls": 2, "seconds": 0.05,
                "record": str(tmp_path / "r.json")}  # fmt: skip
    row = measuring.measure_case(Case("m", make_model, (8,)).spec(), settings)
    assert (row["graphs"], row["graph_breaks"], row["recompiles"], row["failures"]) == (1, 0, 0, 0)
    assert 0 < row["error"] == row["eager_error"] < 1e-5
    assert row["compile_seconds"] > 0
    assert row["peak_bytes"] > 2**20
    assert row["speed"] > 0
    assert Record.load(tmp_path / "r.json").title == "m"


def test_ready_lists(tmp_path: Path) -> None:
    exported = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    torch.export.save(exported, tmp_path / "linear.pt2")
    folder = tmp_path / "graph"
    folder.mkdir()
    (folder / "model.py").write_text(
        "import torch\nclass GraphModule(torch.nn.Module):\n    def forward(self, x, w):\n        return x @ w\n"
    )
    meta = 'class {0}_meta:\n    name, shape, dtype, mean, std = "{0}", [2, 2], "torch.float32", 1.0, 0.1\n'
    (folder / "input_meta.py").write_text(meta.format("x"))
    (folder / "weight_meta.py").write_text(meta.format("w"))
    cases = [*ready.graphs(tmp_path), *ready.operators(["add", "sin"])]
    assert [each.name for each in cases] == ["graph graph", "graph linear.pt2", "operators add", "operators sin"]
    for each in cases:
        fn, args, kwargs = make_case(each.spec())
        fn(*args, **kwargs)
    with pytest.raises(UsageError, match="no captured graphs"):
        ready.graphs(tmp_path / "none")


@pytest.mark.sweep
def test_text_models_run() -> None:
    pytest.importorskip("transformers")
    for each in ready.transformers():
        fn, args, kwargs = make_case(each.spec())
        fn(*args, **kwargs)


@pytest.mark.sweep
def test_real_models_in_their_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    cases = [Case(f"linear {width}", make_model, (width,)) for width in (4, 8)]
    result = sweep(cases, tmp_path / "s.sqlite", options={"backend": "eager"}, seconds=0.1, progress=False)
    assert [row["graphs"] for row in result.rows] == [1, 1]
    assert Record.load(tmp_path / result["linear 8"]["record"]).title == "linear 8"

"""``%%compile --ranks``: a cell runs on the engines of a cluster, and the ranks are compared."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import kernel_magics
from compiler_core.records import Record
from kernel_magics.display.explorer import MIME
from kernel_magics.display.packing import unpack
from kernel_magics.display.record_view import RecordView
from kernel_magics.run.ranks import run_on_ranks
from tests.limits import HANG_S

CELL = "x = torch.ones(8 + rank)\nprint('on', rank)\ny = x * 2\n"


def answers(*records: Record, raised: str = "") -> Any:
    """A view of engines that answer with these records."""
    found = [{"record": each.to_json(), "output": "hello\n", "raised": raised} for each in records]
    return SimpleNamespace(apply_async=lambda *_: SimpleNamespace(get=lambda return_exceptions: found))


def test_ranks_are_compared_and_their_output_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    records = [Record(), Record(), Record()]
    frame = records[2].frame("f", "cell.py", 3, "root")
    records[2].compile(frame).outcome = "compiled"
    records[2].labels["cell.py"] = "In[0]"
    ran = run_on_ranks({"view": answers(*records)}, "view", "", CELL, "In[3]")
    assert str(ran.comparison).splitlines()[:2] == [
        "2 alike",
        "rank 2 differs at In[3]:3: frame f compiled, the others nothing",
    ]
    assert [each.title for each in ran.firsts] == ["rank 0", "rank 2"]
    assert ran.firsts[1].comparison is not None
    assert capsys.readouterr().out == "[0] hello\n[1] hello\n[2] hello\n"
    ran = run_on_ranks({"view": answers(Record(), Record(), raised="E: no")}, "view", "", CELL, "In[3]")
    assert ran.error == "the cell raised on ranks 0, 1: E: no"


def test_a_rank_that_died_is_missing_and_the_others_are_shown() -> None:
    died = [{"record": Record().to_json(), "output": "", "raised": ""}, OSError("Engine 1 died")]
    view = SimpleNamespace(apply_async=lambda *_: SimpleNamespace(get=lambda return_exceptions: died))
    ran = run_on_ranks({"view": view}, "view", "", CELL, "In[3]")
    assert ran.comparison.missing == [1]
    assert [each.title for each in ran.firsts] == ["rank 0"]
    assert ran.error == "the cell raised on rank 1: OSError: Engine 1 died"


def test_a_notebook_shows_the_explorer_of_each_group(magics: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(magics, "kernel", object(), raising=False)
    monkeypatch.setattr(RecordView, "latest", None)
    other = Record()
    other.compile(other.frame("f", "cell.py", 3, "root")).outcome = "compiled"
    magics.user_ns["view"] = answers(Record(), other)
    with capture_output() as shown:
        magics.run_cell("%%compile --ranks view\n1").raise_error()
    assert [unpack(each.data[MIME]).title for each in shown.outputs if MIME in each.data] == ["rank 0", "rank 1"]
    assert kernel_magics.last_record().title == "rank 1"


def test_a_wrong_name_is_refused(magics: InteractiveShell) -> None:
    with pytest.raises(UsageError, match="the name of an ipyparallel client"):
        run_on_ranks({}, "client", "", CELL, "In[3]")
    result = magics.run_cell("%explain --ranks client torch.ones(3)")
    assert "--ranks runs a cell" in str(result.error_in_exec)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
def test_a_cell_on_two_engines(
    magics: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ipyparallel = pytest.importorskip("ipyparallel")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    with ipyparallel.Cluster(n=2, ipython_dir=str(tmp_path), log_level=40) as client:
        client.wait_for_engines(2, timeout=HANG_S)
        client[:].execute("import torch", block=True)
        client[:].scatter("rank", [0, 1], flatten=True, block=True)
        magics.user_ns["client"] = client
        result = magics.run_cell(f"%%compile --ranks client --backend eager\n{CELL}")
        assert result.error_in_exec is None
        shown = capsys.readouterr().out
        assert "[0] on 0\n" in shown
        assert "[1] on 1\n" in shown
        assert "rank 1 differs at In[1]:2: size 9, the others 8" in shown
        result = magics.run_cell("%%compile --ranks client\nassert rank == 0")
        assert "the cell raised on rank 1: AssertionError" in str(result.error_in_exec)

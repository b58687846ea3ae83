"""A job of three processes that train together: what TORCH_TRACE wrote of each is a record, and they are compared."""

from __future__ import annotations

import pytest
import torch

from compiler_core import read_logs
from compiler_core.compare import compare
from compiler_core.differences import Comparison
from compiler_core.record import Record
from tests.stock_ranks import run_job

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch is built without torch.distributed"),
]
Differences = dict[tuple[str, str], tuple[list[str], list[str]]]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    return read_logs(run_job(tmp_path_factory.mktemp("job"), "inductor"))


def test_a_record_for_each_rank(ranks: list[Record]) -> None:
    assert [record.title for record in ranks] == ["rank 0", "rank 1", "rank 2"]
    for record in ranks:
        assert record.notes == []
        assert [f.message for c in record.compiles for f in c.failures] == []
        assert [c.id for c in record.compiles] == [c.id for c in ranks[0].compiles]
        assert any(c.partition and c.kernels for c in record.compiles)


def differing(found: Comparison) -> Differences:
    """What differs but for times: by aspect and the text of the line."""
    return {
        (d.aspect, d.text.strip()): (d.before, d.after)
        for d in found.lines
        if d.state != "same" and "time" not in d.aspect
    }


def test_two_ranks_that_do_the_same_differ_by_the_guard_on_their_number(ranks: list[Record]) -> None:
    found = compare(ranks[0], ranks[1])
    assert differing(found) == {
        ("guard", "if self.rank == 2:"): (["L['self'].rank == 0"], ["L['self'].rank == 1"]),
    }
    assert {d.aspect for d in found.of("same")} >= {"guard", "captured", "forward", "backward", "saved", "kernel"}
    totals = {t.name: (t.before, t.after) for t in found.totals if "seconds" not in t.name and " in " not in t.name}
    assert all(before == after for before, after in totals.values()), totals


def test_the_rank_that_does_something_else(ranks: list[Record]) -> None:
    found = compare(ranks[0], ranks[2])
    differs = differing(found)
    line = "x = x.sin()"
    assert differs["captured", line] == ([], ["sin float32[6, 16]"])
    assert differs["forward", line] == ([], ["sin float32[6, 16]"])
    assert [text.split()[0] for text in differs["backward", line][1]] == ["cos", "mul"]
    assert differs["saved", line] == ([], ["384 bytes"])
    (fused,) = (d for d in found.of("changed", "kernel") if "relu" in d.text)
    assert fused.before[0].startswith("forward cpp cpp_fused_relu_0")
    head, *lines = fused.after[0].split("\n")
    assert "cpp_fused_relu_sin_0 over lines" in head
    assert any(".sin()" in each for each in lines)
    assert [d.text.strip() for d in found.of("same", "captured")] == [
        "x = self.first(x).relu()", "x = self.second(x)", "return x.square()",
    ]  # fmt: skip


def test_times_are_compared_by_the_line_that_was_compiled(ranks: list[Record]) -> None:
    found = compare(ranks[0], ranks[1])
    times = [d for d in found.lines if d.aspect == "compile time"]
    assert any("capture" in text for d in times for text in d.before)
    seconds = {t.name: t.before or 0 for t in found.totals}
    parts = sum(t.before or 0 for t in found.totals if t.name.startswith("of these in "))
    assert parts == pytest.approx(seconds["compile seconds"])
    assert seconds["of these in capture"] > 0

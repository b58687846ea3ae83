"""A job of three processes: the TORCH_TRACE log of each becomes a record, and the records are compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch._inductor.utils import fresh_cache

import compiler_core
from compiler_core import read_logs
from compiler_core.records import Record
from compiler_core.records.differences import Comparison
from compiler_core.tools.questions.compare import compare
from tests.sampling import sample
from tests.tools.stock.stock_ranks import run_job

pytestmark = [
    pytest.mark.own_process,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch is built without torch.distributed"),
]
Differences = dict[tuple[str, str], tuple[list[str], list[str]]]


@pytest.fixture(scope="module", params=sample(["aot_eager", "inductor"], 2))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def ranks(backend: str, tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    return read_logs(run_job(tmp_path_factory.mktemp("job"), backend))


def test_a_record_for_each_rank(ranks: list[Record], backend: str) -> None:
    assert [record.title for record in ranks] == ["rank 0", "rank 1", "rank 2"]
    for record in ranks:
        assert record.notes == []
        assert [f.message for c in record.compiles for f in c.failures] == []
        assert [c.id for c in record.compiles] == [c.id for c in ranks[0].compiles]
        assert any(c.partition and (c.kernels or backend == "aot_eager") for c in record.compiles)


def differing(found: Comparison) -> Differences:
    """Returns the differences other than times, by aspect and text of the line."""
    return {
        (d.aspect, d.text.strip()): (d.before, d.after)
        for d in found.lines
        if d.state != "same" and "time" not in d.aspect
    }


def test_two_ranks_that_do_the_same_differ_by_the_guard_on_their_number(ranks: list[Record], backend: str) -> None:
    found = compare(ranks[0], ranks[1])
    assert differing(found) == {
        ("guard", "if self.rank == 2:"): (["L['self'].rank == 0"], ["L['self'].rank == 1"]),
    }
    assert {d.aspect for d in found.of("same")} >= {"guard", "captured", "forward", "backward", "saved"}
    assert any(d.aspect == "kernel" for d in found.of("same")) == (backend == "inductor")
    totals = {t.name: (t.before, t.after) for t in found.totals if "seconds" not in t.name and " in " not in t.name}
    assert all(before == after for before, after in totals.values()), totals


def test_the_rank_that_does_something_else(ranks: list[Record], backend: str) -> None:
    found = compare(ranks[0], ranks[2])
    differs = differing(found)
    line = "x = x.sin()"
    assert differs["captured", line] == ([], ["sin float32[6, 16]"])
    assert differs["forward", line] == ([], ["sin float32[6, 16]"])
    assert [text.split()[0] for text in differs["backward", line][1]] == ["cos", "mul"]
    assert differs["saved", line] == ([], ["384 bytes"])
    if backend == "inductor":
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


class Wide(torch.nn.Module):
    """The parameters of each layer fill a gradient bucket, so that the graph is split between layers."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.back = torch.nn.Linear(4, 90_000), torch.nn.Linear(90_000, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.out(x).relu()
        return torch.as_tensor(self.back(y)).square()


@pytest.fixture
def _one_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    torch._dynamo.reset()
    torch.distributed.init_process_group("gloo", f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()
    torch._dynamo.reset()


@pytest.mark.usefixtures("_one_rank")
@pytest.mark.filterwarnings("ignore")  # DistributedDataParallel's own
def test_subgraphs_of_a_split_graph_link_to_their_lines() -> None:
    model = torch.nn.parallel.DistributedDataParallel(Wide(), bucket_cap_mb=1)
    with fresh_cache(), compiler_core.record(engine="torch") as record:
        torch.compile(model)(torch.randn(3, 4)).mean().backward()
    compile_ = next(c for c in record.compiles if c.partition)
    assert [f.message for c in record.compiles for f in c.failures] == []
    parts = [a.name for a in compile_.artifacts if a.pane == "joint"]
    assert len(parts) > 1
    lines = [lines_above(record, kernel.item) for kernel in compile_.kernels if kernel.graph == "forward"]
    assert lines == sorted(lines, key="return torch.as_tensor(self.back(y)).square()".__eq__)
    assert set(lines) == {"y = self.out(x).relu()", "return torch.as_tensor(self.back(y)).square()"}
    assert lines_above(record, compile_.find("backward.wrapper").item("1")) == ""
    first, *_, last = [k for k in compile_.kernels if k.graph == "backward"]
    assert lines_above(record, first.item) == "return torch.as_tensor(self.back(y)).square()"
    assert lines_above(record, last.item) == "y = self.out(x).relu()"
    assert compile_.partition
    saved = {value.node.partition("#")[0] for value in compile_.partition.values if value.decision == "saved"}
    assert len(saved) > 1  # of more than one subgraph


def lines_above(record: Record, item: str | None) -> str:
    """Returns the single line of the model that an item is linked to."""
    found = {record.text(each).strip() for each in record.linked(item or "") if each.startswith("src:")}
    (line,) = found or {""}
    return line

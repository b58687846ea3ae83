"""The tour, run from top to bottom in a new kernel: its statements hold."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from compiler_core.records import Frame, Record
from kernel_magics import demo
from kernel_magics.display.explorer import MIME
from kernel_magics.display.packing import unpack

pytestmark = pytest.mark.slow

TOUR = Path(__file__).parents[2] / "notebooks" / "00_tour.ipynb"
REPORTED = ("walk_difference", "train_difference", "accuracies", "accuracies_eager", "losses", "speed_up_chain")

TIMED = "backward=True)"
# The last cell of the copy that is run: the numbers that the tour computed.
REPORT = f"""
import json
print(json.dumps({{name: globals()[name] for name in {REPORTED!r}}}))
"""


@pytest.fixture(scope="module")
def cells(warm_kernels: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The cells by their ids, with outputs.  Calls are timed for a shorter time than in the notebook."""
    text = TOUR.read_text()
    assert text.count(TIMED) == 2
    notebook = nbformat.reads(text.replace(TIMED, "backward=True, seconds=0.2)"), as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(REPORT, id="report"))
    copy = tmp_path_factory.mktemp("tour") / "00_tour.ipynb"
    nbformat.write(notebook, copy)
    return {cell["id"]: cell for cell in demo.execute(copy)}


@pytest.fixture(scope="module")
def numbers(cells: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed(cells["report"]))
    return found


def record_of(cell: Any) -> Record:
    (found,) = (output["data"][MIME] for output in cell["outputs"] if MIME in output.get("data", {}))
    return unpack(found)


def printed(cell: Any) -> str:
    return "".join(output.get("text", "") for output in cell["outputs"])


def frames(record: Record, name: str) -> list[Frame]:
    return [frame for frame in record.frames if frame.name == name]


def graphs(frame: Frame) -> int:
    return sum(a.pane == "captured" for c in frame.compiles for a in c.artifacts)


def test_the_committed_notebook_has_no_outputs() -> None:
    cells = [c for c in nbformat.read(TOUR, as_version=4).cells if c.cell_type == "code"]
    assert not any(c.outputs or c.execution_count for c in cells)


def test_walk_through_breaks_once_at_the_branch(cells: dict[str, Any]) -> None:
    root, *_ = frames(record_of(cells["walk-compile"]), "function")
    for compile_ in root.compiles:
        (graph_break,) = compile_.breaks
        assert graph_break.kind == "data-dependent branch"
        assert graph_break.stack[-1].text.strip() == "if x.mean() > 0.5:"
        assert graph_break.explanation
        assert graph_break.hint


def test_walk_through_has_two_resume_functions_and_reaches_one(cells: dict[str, Any]) -> None:
    record = record_of(cells["walk-compile"])
    root, *resumes = frames(record, "function")
    assert [frame.kind for frame in resumes] == ["resume", "resume"]
    assert root.compiles[0].breaks[0].resumes == [frame.id for frame in resumes]
    assert [len(frame.compiles) for frame in resumes] == [2, 0]
    assert resumes[1].calls == 0


def test_walk_through_has_a_graph_before_the_break_and_one_after_it_for_each_size(cells: dict[str, Any]) -> None:
    root, taken, _ = frames(record_of(cells["walk-compile"]), "function")
    assert [graphs(root), graphs(taken)] == [2, 2]
    for compile_ in root.compiles + taken.compiles:
        results = [kernel for kernel in compile_.kernels if kernel.language == "cpp"]
        assert {kernel.graph for kernel in results} == {"forward", "backward"}
        assert len(results) == len(compile_.kernels) == 2, "forward and backward are one fused kernel each"
        assert not compile_.failures


def test_walk_through_recompiles_for_the_second_size(cells: dict[str, Any]) -> None:
    root, *_ = frames(record_of(cells["walk-compile"]), "function")
    cause = root.compiles[1].cause
    assert cause is not None
    assert cause.of == root.compiles[0].id
    assert cause.source == "L['inputs']['x']"
    assert "10" in cause.expected
    assert "8" in cause.got
    assert cause.guard in [guard.code for guard in root.compiles[0].guards]


def test_walk_through_equals_eager(numbers: dict[str, Any]) -> None:
    assert numbers["walk_difference"] < 1e-6


def test_cos_cos_saves_one_tensor_and_the_default_way_two(cells: dict[str, Any]) -> None:
    root, *_ = frames(record_of(cells["walk-compile"]), "function")
    partition = root.compiles[0].partition
    assert partition is not None
    assert (partition.saved_count, partition.default_saved_count) == (1, 2)
    (recomputed,) = (value for value in partition.values if value.decision == "recomputed")
    assert recomputed.node.endswith("#cos")
    assert recomputed.reason


def test_links_lead_from_the_line_to_both_kernels_and_back(cells: dict[str, Any]) -> None:
    down, up = printed(cells["links-down"]), printed(cells["links-up"])
    assert "cosf(" in down
    assert "sinf(" in down
    assert "aten.sin.default" in up
    assert "x = x.cos().cos()" in up


def test_bar_takes_both_branches_in_three_graphs(cells: dict[str, Any]) -> None:
    record = record_of(cells["bar-compile"])
    assert [graphs(frame) for frame in frames(record, "bar")] == [1, 1, 1]
    assert sum(map(graphs, record.frames)) == 3


def test_explain_says_where_and_why(cells: dict[str, Any]) -> None:
    text = printed(cells["explain"])
    assert re.search(r"costly: graph break: data-dependent branch, In\[\d+\] line 3 `if ", text)
    assert "What to do: Compute both sides" in text


def test_training_equals_eager(numbers: dict[str, Any]) -> None:
    # the same dropout; what differs is the order in which float32 sums are added
    assert numbers["train_difference"] < 1e-4
    assert numbers["accuracies"] == pytest.approx(numbers["accuracies_eager"], abs=0.01)


def test_training_learns(numbers: dict[str, Any]) -> None:
    assert numbers["accuracies"][-1] > 0.9
    assert numbers["losses"][-1] < numbers["losses"][0] / 4


def test_training_step_is_one_graph(cells: dict[str, Any]) -> None:
    record = record_of(cells["digits-compile"])
    kernels = [kernel for compile_ in record.compiles for kernel in compile_.kernels if kernel.language == "cpp"]
    assert {kernel.graph for kernel in kernels} == {"forward"}  # one graph
    assert not [failure for compile_ in record.compiles for failure in compile_.failures]


def test_pointwise_chain_is_faster_than_eager(numbers: dict[str, Any]) -> None:
    assert numbers["speed_up_chain"] > 1

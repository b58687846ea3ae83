"""The lessons of the workshop, run one after another in one kernel: each runs without an error, as do the magics that
its tasks name, and its questions have the answers that the text expects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from tests.limits import HANG_S
from tests.notebooks import minutes
from tests.notebooks.minutes import LESSONS
from tests.sampling import sample

pytestmark = pytest.mark.slow

ANY = ["depends on the machine"]

# What each question of a lesson has as its right answers, in order.
ANSWERS: dict[str, list[list[Any]]] = {
    "01_frames": [[2], [2], ["inlined into the graph of step"], [3]],
    "02_bytecode": [[3], ["add", "mul"], [5], ["torch.jit.trace", "torch.fx.symbolic_trace with concrete_args"]],
    "03_guards": [["x", "options['shift']", "SCALE"], [3], ["more than 100"], [2.0]],
    "04_graph_breaks": [[1], [2], [2], [1], [3]],
    "05_graphs_and_passes": [["call_function", "call_method", "output", "placeholder"], [3], [3]],
    "06_joint_graph": [[2], [16384]],
    "07_loops_and_fusion": [[400_000], ["softmax", "two_sums"], [1]],
    "08_kernels": [[524288], [2048], ["adds"], ["sum"]],
    "09_dynamic_shapes": [[2], [48], [3], ["6.0"], [4], [2]],
    "10_whole_step": [[6], ANY, ANY],
    "11_stock": [[2], [3], [1]],
}

QUESTIONS = ("workshop.number(", "workshop.choice(", "workshop.choices(")
"""How cells begin that only ask: their code, which has the answer, is folded away."""

SMALLER = {
    "big, bounds = torch.randn(1000, 1000), {}": "big, bounds = torch.randn(100, 1000), {}",
    "seconds=0.5": "seconds=0.1",
}
"""What is measured here is smaller, and for a shorter time, than in the lessons."""

ASKED = """
import json
from kernel_magics import workshop
print(json.dumps([question.right for question in workshop.asked]))
workshop.asked.clear()
%reset -f
"""


@pytest.fixture(scope="module")
def kernel(warm_kernels: None) -> Iterator[BlockingKernelClient]:
    manager, client = start_new_kernel(
        kernel_name="python3", startup_timeout=HANG_S, extra_arguments=["--log-level=ERROR"]
    )
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run(kernel: BlockingKernelClient, code: str) -> str:
    """Runs a cell and returns what it printed; an exception of the cell is an error of the test."""
    printed: list[str] = []

    def note(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    reply = kernel.execute_interactive(code, timeout=HANG_S, output_hook=note)["content"]
    assert reply["status"] == "ok", code + "\n" + "\n".join(reply["traceback"])
    return "".join(printed)


def smaller(source: str) -> str:
    for text, instead in SMALLER.items():
        source = source.replace(text, instead)
    return source


@pytest.mark.parametrize("lesson", sample(LESSONS, 3), ids=lambda path: path.stem)
def test_a_lesson_runs_and_its_questions_have_these_answers(kernel: BlockingKernelClient, lesson: Path) -> None:
    cells = nbformat.read(lesson, as_version=4).cells
    code = [smaller(cell.source) for cell in cells if cell.cell_type == "code"]
    for source in code:
        run(kernel, source)
    for magic in re.findall(r"`(%[a-z]\w* [^`]+)`", cells[-1].source):  # of the tasks at the end
        run(kernel, next(source for source in code if source.startswith("%%compile")))
        run(kernel, magic)
    asked, expected = json.loads(run(kernel, ASKED)), ANSWERS[lesson.stem]
    assert [known if known is ANY else each for each, known in zip(asked, expected, strict=True)] == expected


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_the_committed_lessons_have_no_outputs(lesson: Path) -> None:
    cells = [c for c in nbformat.read(lesson, as_version=4).cells if c.cell_type == "code"]
    assert not any(c.outputs or c.execution_count for c in cells)


def test_a_lesson_takes_a_person_20_to_40_minutes_by_the_estimate() -> None:
    estimates = {lesson.stem: minutes.read(lesson).minutes for lesson in LESSONS}
    assert {name: estimate for name, estimate in estimates.items() if not 20 <= estimate <= 40} == {}
    page = Path(__file__).parents[2] / "docs" / "classroom.md"
    assert minutes.table() in page.read_text(encoding="utf-8"), "copy what `python -m tests.notebooks.minutes` prints"


def test_the_code_of_questions_is_folded_away() -> None:
    cells = [cell for lesson in LESSONS for cell in nbformat.read(lesson, as_version=4).cells]
    questions = [cell for cell in cells if cell.source.startswith(QUESTIONS)]
    assert len(questions) > 10
    shown = [cell.source for cell in questions if not cell.metadata.get("jupyter", {}).get("source_hidden")]
    assert shown == []

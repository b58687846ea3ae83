"""What is advised for a cell is tried on its own calls, on both engines, and what does not help disappears."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from compiler_core.records import Problem, Record
from compiler_core.tools.questions.advice import NOTHING_HELPS
from compiler_core.tools.questions.counts import count
from kernel_magics.display import summary
from kernel_magics.display.explanation import explanation
from kernel_magics.display.interrupt import Interrupt
from kernel_magics.display.record_view import RecordView
from kernel_magics.display.static_html import html
from kernel_magics.run.experiments import CellExperiments
from kernel_magics.run.fixes import trial
from kernel_magics.run.fixes.finding import repeated_class
from kernel_magics.run.fixes.trial import Fixes
from tests.cases.branches import BRANCHES
from tests.limits import HANG_S

pytestmark = pytest.mark.usefixtures("fresh_stock", "_interruptible")

ENGINES = ("core", "torch")
HELPED = "Tried `t = t.contiguous()` before each call: 2 compiles became 1, same values."
SETUP = (
    """
import time
x = torch.linspace(-1, 1, 9).view(3, 3)
"""
    + BRANCHES
    + """def rows(x):
    return torch.stack([x[0] * i for i in range(x.shape[0])])
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(3), torch.nn.Linear(3, 6), torch.nn.Linear(6, 3)
    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(24))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
"""
)


def experiments(shell: InteractiveShell, engine: str, cell: str, options: str = "") -> tuple[Any, Record]:
    """Runs a cell; returns the experiments with it, and its record."""
    with capture_output():
        if "branch" not in shell.user_ns:
            shell.run_cell(SETUP, store_history=True).raise_error()
        options = f"--engine {engine} --backend eager {options}"
        shell.run_cell(f"%%compile {options}\n{cell}", store_history=True).raise_error()
    assert RecordView.latest is not None
    assert RecordView.latest.record is not None
    return RecordView.latest.experiments, RecordView.latest.record


def no_progress(text: str, share: float) -> None:
    """Shows nothing."""


def tried(shell: InteractiveShell, engine: str, cell: str) -> list[Problem]:
    """Tries the advice for a cell; returns its problems."""
    found, record = experiments(shell, engine, cell)
    found.try_advice(no_progress)
    return record.problems


@pytest.mark.parametrize("engine", ENGINES)
def test_a_change_that_helps(magics: InteractiveShell, engine: str) -> None:
    (layout,) = tried(magics, engine, "for t in (x, x.t()):\n    z = t.sin()")
    assert layout.advice == "Each memory layout of `t` is compiled once.  Pass `t.contiguous()`."
    assert layout.checked == HELPED
    (branch,) = tried(magics, engine, "z = branch(x)")
    assert branch.checked.startswith("Tried torch.where in place of the branch: ")
    assert branch.checked.endswith("became 1, 1 graph break became 0, same values.")


@pytest.mark.parametrize("engine", ENGINES)
def test_sizes_are_tried_as_an_option_and_as_marks(magics: InteractiveShell, engine: str) -> None:
    names = dict(magics.user_ns)
    found, record = experiments(magics, engine, "for t in (torch.ones(5, 2), torch.ones(4, 2)):\n    z = t.sin()")
    found.try_advice(no_progress)
    (size,) = record.problems
    changes = {trial.change: trial.outcome for trial in size.tried}
    assert changes == {"`dynamic=True`": "helps", "`torch._dynamo.mark_dynamic(t, 0)` before each call": "helps"}
    assert size.grade == "expected"
    assert not [name for name in vars(magics.user_ns["x"]) if name.startswith("_dynamo")]
    assert {name for name in magics.user_ns if name not in names} >= {"t", "z"}


@pytest.mark.parametrize("engine", ENGINES)
def test_what_does_not_help_disappears(magics: InteractiveShell, engine: str) -> None:
    """The sizes are needed as numbers, though the first two say nothing of it."""
    cell = "for t in (x.t(), x.double()):\n    z = t.sin()"
    found, record = experiments(magics, engine, cell)
    (problem,) = record.problems
    assert "Convert it to one dtype" in problem.advice
    assert "contiguous" in problem.advice
    offered = found.changes()
    found.try_advice(no_progress)
    assert problem.advice == NOTHING_HELPS
    assert problem.checked.startswith("Tried ")
    assert "z differs" in problem.checked
    assert len(offered) == 1
    assert found.changes() == []
    assert {each["name"]: each["why"] for each in found.choices()}["advice"] == "no advice can be tried on this cell"
    record.find_problems()  # as after the cell is timed
    assert record.problems == [problem]
    assert Record.from_json(record.to_json()).problems == [problem]
    for text in (summary.text(record), explanation(record), str(count(record).recompiled[0]), html(record)):
        assert "Tried `t = t.to(torch.float32)" in text
        assert "Convert it to one dtype" not in text


@pytest.mark.parametrize("engine", ENGINES)
def test_a_change_with_other_values_is_not_offered(magics: InteractiveShell, engine: str) -> None:
    (problem,) = [each for each in tried(magics, engine, "z = lopsided(x)") if each.kind == "graph break"]
    assert [each.outcome for each in problem.tried] == ["wrong"]
    assert problem.advice == NOTHING_HELPS
    assert "with the condition negated, it raises RuntimeError" in problem.checked


NET = """import torch
net = torch.nn.Linear(3, 2)
optimizer = torch.optim.AdamW(net.parameters(), 0.1)
earlier = net(torch.ones(2, 3)).square().sum()"""
STEP = """for row in x:
    optimizer.zero_grad()
    loss = net(row).square().sum()
    loss.backward()
    optimizer.step()
    print(loss.item())"""


def test_the_whole_step_in_one_graph_is_tried(magics: InteractiveShell) -> None:
    magics.run_cell(NET).raise_error()
    problems = [each for each in tried(magics, "core", STEP) if each.is_training]
    assert [each.title for each in problems] == [
        f"graph break: {each}" for each in ("optimizer", "backward", "optimizer")
    ]
    for problem in problems:
        assert problem.grade == "expected"
        assert "capture_backward=True" in problem.advice
        assert problem.checked.startswith("Tried `capture_backward=True`: ")
        assert problem.checked.endswith("4 graph breaks became 1, same values.")


def test_a_backward_that_cannot_be_captured_is_not_offered(magics: InteractiveShell) -> None:
    magics.run_cell(NET).raise_error()
    (problem,) = tried(magics, "core", "y = x * 2\nearlier.backward(retain_graph=True)")
    assert problem.tried
    assert "capture_backward" not in problem.advice


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # Dynamo reads it
@pytest.mark.parametrize("engine", ENGINES)
def test_compiling_each_block_is_tried(magics: InteractiveShell, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    magics.run_cell(f"{SETUP}\nnet = Net()").raise_error()
    found, record = experiments(magics, engine, "out = net(x).sum()")
    step = next(e for c in record.compiles for e in c.events if e.end is not None and e.stage != "run")
    assert step.end is not None
    step.end += HANG_S * 10**9  # a trial takes less, however busy the machine is meanwhile
    record.find_problems(slow_compile_s=0.001)
    found = CellExperiments(found._timer, record)
    forward = magics.user_ns["Block"].forward
    found.try_advice(no_progress)
    (slow,) = [each for each in record.problems if each.kind == "slow compile"]
    assert [(each.change, each.outcome, each.why) for each in slow.tried] == [("compile each Block", "helps", "")]
    assert slow.checked.startswith("Tried compile each Block: compiling took ")
    assert slow.checked.endswith("same values.")
    assert magics.user_ns["Block"].forward is forward
    run = found.run_changed_code(0, no_progress)  # again: nothing is left of the first time
    assert run.record.compile_ns > 0
    monkeypatch.setattr(trial, "from_cache", lambda compile_: True)
    found.try_advice(no_progress)
    (slow,) = [each for each in record.problems if each.kind == "slow compile"]
    assert slow.tried[-1].outcome == "not tried"  # such a time refutes nothing
    assert "Compile the repeated block" in slow.advice


class Outer(torch.nn.Module):
    """A module around another one."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x)


def test_the_class_that_is_repeated_is_the_largest() -> None:
    layers = [torch.nn.TransformerEncoderLayer(4, 1, 4) for _ in range(8)]
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), *layers)
    assert repeated_class(model.modules()) is torch.nn.TransformerEncoderLayer
    assert repeated_class(layers[0].modules()) is None
    containers = torch.nn.Sequential(*(Outer(torch.nn.Sequential(torch.nn.ReLU())) for _ in range(8)))
    assert repeated_class(containers.modules()) is Outer


DOUBLED = """\
def doubled(x):
    y = torch.cat([x, x])
    print(end="")
    return y.relu()
"""


def test_what_is_made_inside_the_program_has_no_line_before_the_call(magics: InteractiveShell) -> None:
    _, record = experiments(
        magics, "core", f"{DOUBLED}for t in (torch.ones(5, 2), torch.ones(4, 2)):\n    z = doubled(t)"
    )
    inside = [each for each in record.problems if each.title == "recompiled: the size of y changed"]
    assert inside != []
    for problem in inside:
        assert problem.lines == []
        assert "dynamic=True (%%compile --dynamic) before the first call" in problem.advice
        assert "mark_dynamic" not in problem.advice + problem.checked


def test_a_cell_that_cannot_run_again_says_why(magics: InteractiveShell, tmp_path: Any) -> None:
    cell = f"for t in (x, x.t()):\n    z = t.sin()\nopen({str(tmp_path / 'out')!r}, 'w').close()"
    (problem,) = [each for each in tried(magics, "core", cell) if each.kind == "recompile"]
    assert problem.checked.startswith("Not tried here: the cell changes the file ")
    assert problem.checked.endswith(
        "; proven for such programs by Cutaway's tests. To try it: before each call `t = t.contiguous()`."
    )
    assert "contiguous" in problem.advice


def test_what_is_over_the_budget_is_not_tried(magics: InteractiveShell) -> None:
    cell = "for t in (x, x.t()):\n    z = t.sin()\ntime.sleep(pause)"
    magics.user_ns["pause"] = 0
    found, record = experiments(magics, "core", cell)
    magics.user_ns["pause"] = 10_000  # pytest's limit would end the test
    Fixes(found._timer, record).run_all(no_progress, seconds=0.2)
    assert record.problems[0].checked.startswith("Not tried here: the 0.2 s for trials were used up; ")
    assert "contiguous" in record.problems[0].advice


def test_what_is_stopped_leaves_everything_as_it_was(magics: InteractiveShell) -> None:
    cell = "seen.append(1)\nfor t in (x, x.t()):\n    z = t.sin()\ntime.sleep(pause)"
    magics.user_ns |= {"pause": 0, "seen": []}
    found, record = experiments(magics, "core", cell)
    magics.user_ns["pause"] = 60

    def stop(text: str, share: float) -> None:
        if text == "running it once":
            threading.Timer(0.2, Interrupt()).start()

    with pytest.raises(KeyboardInterrupt):
        found.try_advice(stop)
    assert magics.user_ns["seen"] == [1]
    assert (record.problems[0].tried, record.problems[0].checked[:15]) == ([], "Not tried here;")


def test_a_setting_tries_it_after_each_cell(magics: InteractiveShell) -> None:
    with capture_output():
        magics.run_cell("%config CutawayMagics.try_advice = True")
    try:
        _, record = experiments(magics, "core", "for t in (x, x.t()):\n    z = t.sin()")
        assert record.problems[0].checked == HELPED
        magics.user_ns["runs"] = 0
        _, record = experiments(magics, "core", "runs = runs + 1\nz = x.sin()")
        assert not record.problems  # so it did not run again
    finally:
        with capture_output():
            magics.run_cell("%config CutawayMagics.try_advice = False")


def test_the_option_tries_it_right_after_the_cell(magics: InteractiveShell) -> None:
    _, record = experiments(magics, "core", "for t in (x, x.t()):\n    z = t.sin()", "--try-advice")
    assert record.problems[0].checked == HELPED


def test_what_differs_in_runs_of_plain_pytorch_refutes_nothing(magics: InteractiveShell) -> None:
    cell = "start = time.time()\nfor t in (x, x.t()):\n    z = t.sin()\nprint(took := time.time() - start)"
    layout = next(each for each in tried(magics, "core", cell) if "the stride of t" in each.title)
    assert layout.checked.startswith("Tried `t = t.contiguous()` before each call: ")
    assert layout.checked.endswith(", same values.")

"""`cutaway run --try-advice`: a script that has ended runs again with what is advised, and nothing of that is left."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from compiler_core.records import Record
from compiler_core.records.differences import SECONDS
from compiler_core.tools.questions.advice import NOTHING_HELPS
from compiler_core.tools.questions.memory import TRIED_MEMORY
from tests import warm_python
from tests.limits import HANG_S

ROOT = Path(__file__).parents[2]
CUTAWAY = ["-m", "kernel_magics.command", "run", "--try-advice"]
ENGINES = ("core", "torch")
OURS = ("core", pytest.param("torch", marks=pytest.mark.sweep))
"""The way to the trials is the same: stock is tried in each test by `make sweeps`."""
HELPED = "Tried `t = t.contiguous()` before each call: 2 compiles became 1, same values."
LAYOUTS = """
import atexit, os, sys, time, torch, helper
{at_start}
@torch.compile(backend="eager")
def program(t):
    return t.sin()
def main():
    start = time.time()
    x = torch.rand(9).view(3, 3)
    helper.RUNS.append(os.getpid())
    for t in (x, x.t()):
        print("sum", program(t).sum().item(), helper.RUNS)
    {at_end}
    print("took", time.time() - start)
atexit.register(lambda: print("bye", sys.modules["__main__"].__dict__ is globals(), len(helper.RUNS)))
if __name__ == "__main__":
    sys.exit(main())
"""
SLEEPS = "sys.runs = getattr(sys, 'runs', 0) + 1"
SLEEPS_END = "time.sleep(60 * (sys.runs > 1))"


def written(tmp_path: Path, at_start: str = "", at_end: str = "pass", script: str = LAYOUTS) -> Path:
    """Writes a script and a module beside it; returns the path of the script."""
    (tmp_path / "helper.py").write_text("RUNS = []\n")
    path = tmp_path / "script.py"
    path.write_text(script.replace("{at_start}", at_start).replace("{at_end}", at_end))
    return path


def started(tmp_path: Path, *options: str) -> warm_python.Process:
    command = [*CUTAWAY, *options, "--save", "record.json", "script.py"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return warm_python.start(command, cwd=tmp_path, env=env, outputs=[tmp_path / "stdout", tmp_path / "stderr"])


def ended(process: warm_python.Process, tmp_path: Path) -> tuple[int, str, str, Record]:
    """Returns the exit code of the script, what it printed, and its record."""
    code = process.wait(HANG_S)
    out, errors = ((tmp_path / name).read_text() for name in ("stdout", "stderr"))
    return code, out, errors, Record.load(tmp_path / "record.json")


def ran(tmp_path: Path, *options: str) -> tuple[int, str, str, Record]:
    """Runs the script."""
    return ended(started(tmp_path, *options), tmp_path)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_helps_is_in_the_text_and_in_the_record(engine: str, tmp_path: Path) -> None:
    written(tmp_path)
    code, out, errors, record = ran(tmp_path, "--engine", engine, "--fail-on", "recompiles")
    assert code == 3
    assert [line.split()[0] for line in out.splitlines()] == ["sum", "sum", "took", "bye"]
    assert out.splitlines()[-1] == "bye True 1"  # and the modules are those of the script
    assert HELPED in errors
    assert [problem.checked for problem in record.problems] == [HELPED]


@pytest.mark.parametrize("engine", OURS)
def test_what_a_call_returns_is_compared(engine: str, tmp_path: Path) -> None:
    script = LAYOUTS.replace("(x, x.t())", "(x, x.double())").replace(".sum().item()", ".shape")
    written(tmp_path, script=script)
    *_, record = ran(tmp_path, "--engine", engine)
    (problem,) = record.problems
    assert problem.advice == NOTHING_HELPS
    assert "before each call: the result of call 2 differs" in problem.checked


@pytest.mark.parametrize("engine", OURS)
def test_a_model_trains_again_with_each_change(engine: str, tmp_path: Path) -> None:
    """Random numbers are those of the run, so that the same is compiled."""
    script = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.drop = torch.nn.Linear(3, 3), torch.nn.Dropout(0.5)
    def forward(self, x):
        y = self.drop(self.linear(x))
        if y.sum() > 0:
            z = y * 2
        else:
            z = y - 1
        return z.sin()
def main():
    net = Net()
    model = torch.compile(net, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(12):
        loss = model(torch.randn(4, 3)).square().mean()
        loss.backward()
        optimizer.step()
main()
"""
    written(tmp_path, script=script)
    _, _, errors, record = ran(tmp_path, "--engine", engine)
    (branch,) = [each for each in record.problems if each.kind == "graph break"]
    assert branch.checked.endswith("compiles became 1, 1 graph break became 0, same values.")
    assert branch.checked in errors


def test_a_script_that_cannot_run_again_says_why(tmp_path: Path) -> None:
    written(tmp_path, at_end="open('out', 'a').write('.')")
    code, _, errors, record = ran(tmp_path)
    assert (code, (tmp_path / "out").read_text()) == (0, ".")
    assert "Not tried here: the cell changes the file out, which cannot be undone; " in errors
    assert "contiguous" in record.problems[0].advice


def test_an_exception_ends_it_as_ever(tmp_path: Path) -> None:
    written(tmp_path, at_end="1 / 0")
    code, _, errors, record = ran(tmp_path)
    assert code == 1
    assert "ZeroDivisionError" in errors
    assert record.problems[0].tried == []


def test_what_is_over_the_budget_is_not_tried(tmp_path: Path) -> None:
    written(tmp_path, SLEEPS, SLEEPS_END)
    code, out, errors, _ = ran(tmp_path, "--trial-seconds", "0.5")
    assert (code, out.splitlines()[-1]) == (0, "bye True 1")
    assert "Not tried here: the 0.5 s for trials were used up; " in errors


@pytest.mark.parametrize("own", ["", "import signal; signal.signal(signal.SIGINT, lambda *_: os._exit(9))"])
def test_ctrl_c_ends_only_the_trials(own: str, tmp_path: Path) -> None:
    written(tmp_path, f"{SLEEPS}; {own}", SLEEPS_END)
    process = started(tmp_path)
    while "trying the advice" not in (tmp_path / "stderr").read_text():
        assert not process.has_ended()
        time.sleep(0.1)
    time.sleep(1)  # it sleeps in its second run
    assert not process.has_ended()
    os.kill(process.pid, signal.SIGINT)
    code, out, errors, _ = ended(process, tmp_path)
    assert (code, out.splitlines()[-1]) == (0, "bye True 1")
    assert "note: --try-advice: stopped; no advice was tried." in errors


BLOCKS = """
import torch
from compiler_core.records import Record
Record.find_problems.__defaults__ = (0.0,)  # the test has no time for a slow compile

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return x + torch.relu(self.inner(x))

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(12))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

compiled = torch.compile(Model(), backend="aot_eager")
compiled(torch.randn(2, 4)).sum().backward()
"""


@pytest.mark.parametrize("engine", OURS)
def test_compiling_each_layer_of_a_compiled_model_has_the_same_values(engine: str, tmp_path: Path) -> None:
    """The name of the script's model is a compiled module in the trial, too, and its parameters are found in it."""
    written(tmp_path, script=BLOCKS)
    _, _, _, record = ran(tmp_path, "--engine", engine)
    (slow,) = [problem for problem in record.problems if problem.kind == "slow compile"]
    (tried,) = slow.tried
    assert (tried.change, tried.outcome, tried.why) == ("compile each Layer", "helps", "")
    (seconds,) = (total for total in tried.totals if total.name == SECONDS)
    is_of_first_run = seconds.before == pytest.approx(record.compile_ns / 1e9)
    assert is_of_first_run == (engine == "core")  # what stock loads in its first compile does not count


SAVES = """
import torch
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.full((64, 64), 0.1))
    def forward(self, x):
        return (x @ self.w).sin().cos()
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block(), Block()])
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        self.last = x
        return x.sum()
model = Model()
torch.compile(model, backend="aot_eager")(torch.ones(4096, 64)).backward()
print(model.blocks[0].w.grad.sum())
"""
REDUCED = re.compile(
    r"([\d.]+) MiB (?:at the peak|at the end of the forward) became ([\d.]+) MiB, with the same values"
)


@pytest.mark.parametrize("engine", OURS)
def test_memory_that_is_saved_for_the_backward_is_reduced(engine: str, tmp_path: Path) -> None:
    written(tmp_path, script=SAVES)
    code, _, error, record = ended(started(tmp_path, "--engine", engine), tmp_path)
    assert code == 0
    budget, no_grad, checkpoint, *kept = (note for note in record.notes if note.startswith(TRIED_MEMORY))
    assert "budget" in budget
    assert "checkpoint` around the forward of each Block" in checkpoint
    for note in (budget, checkpoint) if engine == "core" else (checkpoint,):  # stock's partition is the smallest
        found = REDUCED.search(note)
        assert found is not None
        assert float(found[1]) > float(found[2])
    assert "it cannot be used here: it raises RuntimeError" in no_grad
    if engine == "core":  # stock does not say where it puts results
        assert "leaving out line 16, `self.last = x`" in kept[0]
        assert kept[0].endswith("MiB of results, which stay after the call, became 4 B")
    assert budget in error
    assert "--try-advice tries" not in error

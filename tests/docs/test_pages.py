"""The code and the commands on the pages of docs run: Python in IPython, one page after the other, and each command."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

import compiler_core
import kernel_magics
from compiler_core.tools.stock.hooks.trace_file import write_trace
from kernel_magics.command.main import parser
from tests.limits import HANG_S

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SLOW = {"max-autotune": "torch", "ready.": "torchvision", "ipyparallel": "ipyparallel"}
"""In blocks that `make sweeps` runs, and what they need."""
ELSEWHERE = {"architecture.md", "graph_breaks.md", "recompiles.md", "planted_faults.md", "kernels.md", "command.md"}
ELSEWHERE |= {"toy_compiler.md"}
"""Pages whose code other tests make or run."""
NO_CODE = {"classroom.md"}
"""Pages with Python code for another program."""
ERRORS = {"compiler_core.reproducer(": "none of the 1 graphs of this call shows a fault"}
"""What code says of a model without a fault."""
MODEL = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x)
        return y.tanh()


def function(x):
    return (x.sin() * 2).sum()
"""
TRAIN = """\
import torch
from model import Model

model = torch.compile(Model(), backend="eager")
for _ in range(2):
    model(torch.randn(2, 4)).sum().backward()
"""


def blocks(page: str) -> list[str]:
    """Returns the Python code of a page, also that without a language."""
    found: list[str] = re.findall(r"^```(?:python)?\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
    return [text for text in found if is_python(text)]


def is_python(text: str) -> bool:
    plain = re.sub(r"^%.*\n", "", text, flags=re.MULTILINE)
    try:
        compile(plain, "<block>", "exec")
    except SyntaxError:
        return False
    return "(" in plain or "import" in plain


PAGES = sorted(page.name for page in DOCS.glob("*.md") if page.name not in ELSEWHERE | NO_CODE and blocks(page.name))


@pytest.fixture
def reader(magics: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """The IPython of a reader who has a model, its input and a record, and files of a job."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "my_models.py").write_text(next(text for text in blocks("sweeps.md") if "def cases" in text))
    made = importlib.import_module("model")
    model, x = made.Model(), torch.randn(3, 4, requires_grad=True)
    compiled = compiler_core.compile(model)
    with compiler_core.record() as record:
        compiled(x).sum().backward()
        compiled(torch.ones(5, 4))  # compiles again
    for rank in range(2):
        stop = write_trace(tmp_path / "logs" / f"rank_{rank}.log")
        torch.compile(model, backend="eager", dynamic=False)(torch.ones(2 + rank, 4))
        stop()
        torch._dynamo.reset()
    torch.compile(model, backend="eager")(x)
    shutil.copytree(tmp_path / "logs", tmp_path / "ranks")
    names = {"model": model, "x": x, "data": [x], "function": made.function, "fast": compiled, "compiled": compiled,
             "record": record, "before": record, "after": record, "Path": Path, "json": json,
             "compiler_core": compiler_core, "kernel_magics": kernel_magics,
             "Explorer": kernel_magics.Explorer}  # fmt: skip
    magics.user_ns |= names | {"_names": names}
    yield magics
    for name in ("model", "my_models"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("fresh_stock")
@pytest.mark.parametrize("is_slow", [False, pytest.param(True, marks=pytest.mark.sweep)], ids=["", "slow"])
@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page: str, is_slow: bool, reader: InteractiveShell) -> None:
    for text in blocks(page):
        needed = [package for word, package in SLOW.items() if word in text]
        if not needed or (is_slow and all(map(importlib.util.find_spec, needed))):
            reader.user_ns.update(reader.user_ns["_names"])
            for cell in re.split(r"\n(?=%%)", text):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    result = reader.run_cell(cell)
                error = result.error_in_exec or result.error_before_exec
                expected = [message for word, message in ERRORS.items() if word in cell]
                assert [str(error)] == (expected or ["None"]), f"{page}:\n{cell}"


def commands() -> list[tuple[str, str]]:
    """Returns all commands on the pages and in the README, each with its page."""
    found: list[tuple[str, str]] = []
    for page in [*sorted(DOCS.glob("*.md")), ROOT / "README.md"]:
        text = page.read_text()
        for block in re.findall(r"^```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            found += [(page.name, line.removeprefix("$ ")) for line in block.splitlines() if "cutaway " in line]
        found += [(page.name, line) for line in re.findall(r"`([^`\n]*\bcutaway \w[^`\n]*)`", text)]
    return [(page, line) for page, line in found if re.search(r"\bcutaway [a-z]+ \S|cutaway doctor", line)]


def arguments(line: str) -> list[list[str]]:
    """Returns the arguments of each call of `cutaway` in a shell command."""
    calls = re.findall(r"\bcutaway ([a-z]+\b[^|;&#>]*)", line)
    return [shlex.split(call) for call in calls]


def test_each_command_has_the_options_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [(page, call) for page, line in commands() if "[" not in line for call in arguments(line)]
    assert len(lines) > 25
    wrong = []
    for page, call in lines:
        if "..." in call or "COMMAND" in call:
            continue
        try:
            parser().parse_args(call)
        except SystemExit:
            wrong.append(f"{page}: cutaway {' '.join(call)}: {capsys.readouterr().err.splitlines()[-1:]}")
    assert wrong == []


@pytest.mark.sweep
def test_the_commands_of_the_manual_run(reader: InteractiveShell, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    record = reader.user_ns["record"]
    for name in ("record", "before", "after"):
        record.save(tmp_path / f"{name}.json")
    shutil.copytree(tmp_path / "logs", tmp_path / "traces")
    section = (DOCS / "manual.md").read_text().partition("### In a shell")[2]
    (block,) = re.findall(r"^```\n(.*?)^```$", section.partition("###")[0], re.DOTALL | re.MULTILINE)
    environment: dict[str, Any] = os.environ | {"PYTHONPATH": f"{ROOT}:{tmp_path}", "BROWSER": "true"}
    for line in block.splitlines():
        ((name, *rest),) = arguments(line)
        if name == "sweep":  # not of hundreds of models
            rest = ["--cases", "my_models.py:cases", "--page", "out/"]
        command = [sys.executable, "-m", "kernel_magics.command", name, *rest]
        with subprocess.Popen(command, env=environment, text=True, stdout=-1, stderr=-1) as process:
            if name == "open":
                assert process.stdout is not None
                while "Ctrl-C" not in process.stdout.readline():
                    assert process.poll() is None
                process.send_signal(signal.SIGINT)
            printed = process.communicate(timeout=HANG_S)
        assert process.returncode == 0 or name in ("diff", "doctor"), (line, printed)
    assert all((tmp_path / made).exists() for made in ("report.html", "out/index.html", "cutaway-lessons/workshop"))

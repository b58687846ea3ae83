"""The record of a run has everything that TORCH_TRACE, TORCH_LOGS and depyf write of it.

These run in ``make sweeps``; `test_stock` compares the record of one run with the events of TORCH_TRACE.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from torch._logging._internal import log_registry

from compiler_core.records import Record
from compiler_core.tools.stock.hooks.torch_logs import SKIPPED_ARTIFACTS
from tests.cases.architectures import HAS_TORCHVISION
from tests.tools.stock.stock_programs import PROGRAMS

pytestmark = pytest.mark.sweep

LOGS = ["all", *sorted(set(log_registry.artifact_names) - {*SKIPPED_ARTIFACTS, "custom_format_test_artifact"})]
MESSAGE = re.compile(r"[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ (\S+):\d+\] ?(?P<id>\[[-!\d/_]+\] )?(?:\[__\w+\])?(.*)")
TRACED = re.compile(r"[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+:\d+\] (\{.*)")
OUTSIDE = re.compile(
    r"_native/|_inductor/(config|template_heuristics|remote_cache)|_subclasses/fake_tensor|_dynamo/(utils|eval_frame)"
    r"|torch/_logging/"
)
"""Files that log at import or at exit, before the record is opened or after it is closed."""


@dataclass(frozen=True)
class Run:
    """A run: its record, and the folder with the files of PyTorch and depyf."""

    record: Record
    folder: Path

    def lines(self) -> set[str]:
        return {line.strip() for artifact in self.record.artifacts for line in artifact.text.split("\n")}

    def logged(self) -> Iterator[tuple[str, str]]:
        """Returns each line of TORCH_LOGS as the file that logged it and the message."""
        for line in (self.folder / "logs.txt").read_text().splitlines():
            found = MESSAGE.match(line)
            assert found, line
            if found[3].strip():
                yield found[1], found[3].strip()

    def traced(self) -> list[str]:
        """Returns the texts of TORCH_TRACE."""
        (log,) = (self.folder / "trace").glob("*.log")
        texts: list[list[str]] = []
        for line in log.read_text().split("\n"):
            if line.startswith("\t"):
                texts[-1].append(line[1:])
            elif found := TRACED.match(line):
                # times are events of the record, the version is one of its versions
                texts.append([""] if re.search(r'"(chromium_event|torch_version)"', found[1]) else [])
        return ["\n".join(text) for text in texts if text and text[0]]


def run(name: str, folder: Path, depyf: bool = False) -> Run:
    """Runs a program in a separate process.  Its kernels are cached between runs of the tests."""
    (folder / "trace").mkdir()
    env = os.environ | {
        "TORCH_LOGS": ",".join(LOGS),
        "TORCH_LOGS_OUT": str(folder / "logs.txt"),
        "TORCH_TRACE": str(folder / "trace"),
        "TORCHINDUCTOR_CACHE_DIR": str(Path(os.environ["CUTAWAY_CACHE_DIR"]) / "inductor"),
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    }
    command = [sys.executable, "-m", "tests.tools.stock.stock_programs", name, str(folder / "record.json")]
    done = subprocess.run(
        [*command, *([str(folder / "depyf")] if depyf else [])], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return Run(Record.load(folder / "record.json"), folder)


@pytest.fixture(scope="module", params=sorted(PROGRAMS))
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    if request.param == "resnet18" and not HAS_TORCHVISION:
        pytest.skip("torchvision is not here")
    return run(request.param, tmp_path_factory.mktemp(request.param))


def test_every_text_of_the_trace_is_in_the_record(ran: Run) -> None:
    assert ran.record.notes == []
    assert [f.message for c in ran.record.compiles for f in c.failures] == []
    have = {artifact.text for artifact in ran.record.artifacts}
    wanted = ran.traced()
    assert len(wanted) > 10
    assert [text[:200] for text in wanted if text not in have] == []


def test_every_line_of_the_logs_is_in_the_record(ran: Run) -> None:
    have = ran.lines()
    logged_lines = list(ran.logged())
    assert len(logged_lines) > 3000
    assert {(file, line) for file, line in logged_lines if line not in have and not OUTSIDE.search(file)} == set()


def test_nodes_guards_and_kernels_are_those_of_the_logs(ran: Run) -> None:
    """Compares the texts of panes, not the copies of the logs."""
    record = ran.record
    panes = [a for a in record.artifacts if not a.name.startswith("log.")]
    logged = [line for _, line in ran.logged()]
    shown = {line for a in panes if a.graph for line in statements(a.text.split("\n"))}
    assert {line for line in statements(logged) if '"' in line and "]cpu" in line} <= shown
    known_lines = {*logged, *(line.strip() for text in ran.traced() for line in text.split("\n"))}
    assert {
        line for a in panes if a.graph and a.pane != "passes" for line in statements(a.text.split("\n"))
    } <= known_lines
    guards = {line for line in logged if re.match(r"(\| )*\+- [A-Z_]+: ", line)}
    assert guards == {
        a.lines(span).strip() for a in panes if a.pane == "guards" for span in a.spans if ": " in a.lines(span)
    }
    codes = "\n".join(a.text for a in panes if a.pane == "wrapper")
    assert all(a.text.strip() in codes for a in panes if a.pane == "kernel")
    assert sum(len(c.kernels) for c in record.compiles) > 2


def statements(lines: list[str]) -> set[str]:
    """Returns the lines that assign a value with a shape."""
    return {line.strip() for line in lines if re.match(r'\s*\w+: "[^"]*" = ', line)}


@pytest.mark.skipif(importlib.util.find_spec("depyf") is None, reason="depyf is not here")
def test_what_depyf_dumps_is_in_the_record(tmp_path: Path) -> None:
    """depyf's graphs have no strides and devices; its Python text is from another decompiler."""
    found = run("walk", tmp_path, depyf=True)
    have = {bare(line) for line in found.lines()}
    names = {file.name: file.read_text() for file in (tmp_path / "depyf").rglob("*.py")}
    graphs = {name: text for name, text in names.items() if name.startswith("__compiled_fn")}
    assert len(graphs) > 30
    for name, text in graphs.items():
        statements = [line.strip() for line in text.split("\n") if " = " in line or "return" in line]
        assert [line for line in statements if bare(line) not in have] == [], name
    transformed = {result for text in names.values() for result in re.findall(r"def (__transformed_code_\w+)", text)}
    panes = [a.pane for a in found.record.artifacts]
    assert len(transformed) == 2  # depyf shows the code of a function that keeps its name in the file of the guards
    assert panes.count("decompiled") == panes.count("bytecode") == len(found.record.compiles) == 4


def bare(line: str) -> str:
    return re.sub(r': "[^"]*"', "", line)

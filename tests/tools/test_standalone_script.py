"""Standalone scripts, run in a process that cannot import Cutaway."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import compiler_core
from compiler_core.errors import UsageError
from compiler_core.records import Compile, Record
from compiler_core.tools.standalone_script import standalone_script
from tests import warm_python


def recorded(program: Any, *inputs: torch.Tensor, backend: str = "cpp", **options: Any) -> Compile:
    """Returns the compile after a JSON round trip."""
    with compiler_core.record() as result:
        compiler_core.compile(program, backend=backend, strict=True, **options)(*inputs)
    (compile_,) = Record.from_json(result.to_json()).compiles
    return compile_


def run(text: str, folder: Path) -> str:
    """Runs a script in a process that does not have Cutaway."""
    file = folder / "program.py"
    file.write_text(text)
    isolated = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run([sys.executable, "-I", str(file)], env=isolated, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def program(x: torch.Tensor, w: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(F.gelu(x.t() @ w), (8,))[at].sum(0)


INPUTS = torch.randn(16, 6), torch.randn(16, 8, requires_grad=True), torch.tensor([0, 5, 5])


COMPARE = """
    x, w, at = inputs
    torch.testing.assert_close(results[0], torch.layer_norm(torch.nn.functional.gelu(x.t() @ w), [8])[at].sum(0))
"""


def test_both_graphs_run_on_their_own_and_the_values_are_the_same(tmp_path: Path) -> None:
    record = recorded(program, *INPUTS)
    call = "    results = run_forward([*inputs])\n"
    forward = standalone_script(record, "forward").replace(call, call + COMPARE)
    assert COMPARE in forward
    for text, result in (
        (forward, "[8] torch.float32"),
        (standalone_script(record, "backward"), "[16, 8] torch.float32"),
    ):
        output = run(text, tmp_path).splitlines()
        assert output[-1].endswith("us a call")
        assert any(line.startswith(result) for line in output)


def test_triton_kernels(tmp_path: Path) -> None:
    x = torch.randn(5, 7)
    record = recorded(lambda x: x.softmax(-1).exp(), x, backend="cpp", target="sm_90")
    # without a GPU, this checks only that the file is complete
    for kernel in record.kernels:
        kernel.language = "triton"
    text = standalone_script(record, "forward")
    compile(text, "program.py", "exec")
    assert 'forward_0 = triton_launcher(forward_0, **LAUNCHES["forward_0"])' in text


def test_graphs_without_kernels_are_refused() -> None:
    with pytest.raises(UsageError, match="has no kernels of ours for its backward graph"):
        standalone_script(recorded(lambda x: x.sin(), torch.randn(3)), "backward")


def test_a_compiler_that_hangs_is_ended(tmp_path: Path) -> None:
    made = recorded(lambda x: x.softmax(-1).exp(), torch.randn(5, 7))
    hangs = f'COMMAND = ["sh", "-c", "sleep 600 & echo $! > {tmp_path}/child; wait"]\n'
    text = re.sub("COMMAND = .*\n", hangs, standalone_script(made, "forward"))
    (tmp_path / "program.py").write_text(text)
    environment = os.environ | {"CUTAWAY_COMPILE_TIMEOUT": "1"}
    done = warm_python.run([str(tmp_path / "program.py")], env=environment)
    assert "TimeoutExpired" in done.stderr
    child = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")
    assert not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z"

"""A graph's program as a file that runs on its own, in a process that cannot import Cutaway."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import compiler_core
from compiler_core.api.standalone_script import script
from compiler_core.errors import UsageError
from compiler_core.records import Compile, Record


def recorded(program: Any, *inputs: torch.Tensor, backend: str = "cpp", **options: Any) -> Compile:
    """The compile, as it is read from JSON."""
    with compiler_core.record() as made:
        compiler_core.compile(program, backend=backend, strict=True, **options)(*inputs)
    (compile_,) = Record.from_json(made.to_json()).compiles
    return compile_


def run(text: str, folder: Path, **environment: str) -> str:
    file = folder / "program.py"
    file.write_text(text)
    isolated = {**os.environ, "PYTHONPATH": "", **environment}
    done = subprocess.run([sys.executable, "-I", str(file)] if not environment else [sys.executable, str(file)],
                          env=isolated, cwd=folder, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def program(x: torch.Tensor, w: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(F.gelu(x.t() @ w), (8,))[at].sum(0)


INPUTS = torch.randn(16, 6), torch.randn(16, 8, requires_grad=True), torch.tensor([0, 5, 5])


def test_both_graphs_run_on_their_own(tmp_path: Path) -> None:
    made = recorded(program, *INPUTS)
    for which, result in (("forward", "[8] torch.float32"), ("backward", "[16, 8] torch.float32")):
        said = run(script(made, which), tmp_path).splitlines()
        assert said[-1].endswith("us a call")
        assert any(line.startswith(result) for line in said)


def test_it_computes_what_the_graph_does(tmp_path: Path) -> None:
    made = recorded(lambda x: x.softmax(-1).exp() @ x.t(), torch.randn(5, 7))
    text = script(made, "forward")
    compare = """
    x, = inputs
    torch.testing.assert_close(results[0], x.softmax(-1).exp() @ x.t())
"""
    call = "    results = run_forward([*inputs])\n"
    run(text.replace(call, call + compare), tmp_path)


def test_triton_kernels_too(tmp_path: Path) -> None:
    x = torch.randn(5, 7)
    made = recorded(lambda x: x.softmax(-1).exp(), x, backend="cpp", target="sm_90")
    # on a GPU it launches them; here it is enough that the file is whole
    for kernel in made.kernels:
        kernel.language = "triton"
    text = script(made, "forward")
    compile(text, "program.py", "exec")
    assert 'forward_0 = triton_launcher(forward_0, **LAUNCHES["forward_0"])' in text


def test_what_cannot_stand_alone_says_why() -> None:
    with pytest.raises(UsageError, match="has no kernels of ours for its backward graph"):
        script(recorded(lambda x: x.sin(), torch.randn(3)), "backward")

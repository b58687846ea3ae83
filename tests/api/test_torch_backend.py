"""The backend ``cutaway`` of stock torch.compile."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch.testing._internal.two_tensor import TwoTensor

import compiler_core
from compiler_core.api.torch_backend import cutaway
from compiler_core.records import Record

pytestmark = pytest.mark.usefixtures("fresh_stock")
ROOT = Path(__file__).parents[2]
STRICT: Any = {"strict": True}


def outcome(fn: Callable[..., Any], *args: torch.Tensor) -> list[torch.Tensor | None]:
    """Returns the result, the arguments after the call, and gradients; with the same random numbers each time."""
    torch.manual_seed(0)
    own = [a.detach().clone().requires_grad_(a.requires_grad) for a in args]
    value = fn(*own)
    values = list(value) if isinstance(value, tuple) else [value]
    if any(v.requires_grad for v in values):
        sum(v.sum() for v in values if v.requires_grad).backward()
    return [*values, *own, *(t.grad for t in own)]


def test_pytorch_finds_it_by_its_name(tmp_path: Path) -> None:
    """Uses the entry point of pyproject.toml in a process that did not import Cutaway."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    installed = tmp_path / "cutaway-0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: cutaway\nVersion: 0\n")
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for group, names in declared.items()]
    (installed / "entry_points.txt").write_text("".join(lines))
    program = "import torch\nx = torch.randn(5)\nfast = torch.compile(lambda x: x.cos().cos(), backend='cutaway')\n"
    program += "torch.testing.assert_close(fast(x), x.cos().cos())\nassert 'cutaway' in torch._dynamo.list_backends()"
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_training_with_sizes_that_change() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8))

    def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = model(x) * x.shape[0] + y
        return result

    with compiler_core.record() as record:
        fast = torch.compile(scaled, backend=cutaway, options=STRICT)
        for rows in (3, 5, 7, 2):
            args = torch.randn(rows, 4, requires_grad=True), torch.randn(8)
            torch.testing.assert_close(outcome(fast, *args), outcome(scaled, *args))
    assert len(record.compiles) == 2, "one static, one for all other sizes"
    assert [c.failures for c in record.compiles] == [[], []]
    assert {k.language for c in record.compiles for k in c.kernels} == {"cpp", "extern"}


def test_writes_views_and_random_numbers() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.mul_(2)
        turned = x.t()
        turned.add_(w)
        return turned, torch.dropout(x, 0.5, True), w[1:] * 2

    args = torch.randn(3, 4), torch.randn(3, requires_grad=True)
    fast = torch.compile(program, backend=cutaway, options=STRICT)
    with torch.no_grad():
        torch.testing.assert_close(outcome(fast, *args), outcome(program, *args))


def test_inputs_of_a_class_with_its_own_kernels_run_by_pytorch() -> None:
    """Also after the same graph was compiled, and cached, for plain tensors: they have memory, and these have none."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).sin()

    a, b = torch.randn(3), torch.randn(3)
    with compiler_core.record() as record:
        torch.compile(program, backend=cutaway)(a)
        torch._dynamo.reset()
        with pytest.warns(compiler_core.CompileWarning, match="an input is a TwoTensor"):
            result = torch.compile(program, backend=cutaway)(TwoTensor(a, b))
    assert isinstance(result, TwoTensor)
    assert torch.equal(result.a, program(a))
    assert torch.equal(result.b, program(b))
    assert [f.kind for c in record.compiles for f in c.failures] == ["refusal"]


def test_kernels_link_to_the_users_lines() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        return y.exp()

    with compiler_core.record() as record:
        torch.compile(program, backend=cutaway)(torch.randn(4))
    (frame,) = record.frames
    assert (frame.name, frame.filename) == ("program", __file__)
    line = record.line(__file__, program.__code__.co_firstlineno + 1)
    assert line is not None
    reached = {item.partition("#")[0] for item in record.linked(line)}
    assert {"0/0:captured", "0/0:forward.loops", "0/0:forward.cpp"} <= reached
    Record.from_json(record.to_json())


def test_an_unknown_option_is_named() -> None:
    wrong: list[tuple[Any, str]] = [
        ({"keep_appart": ()}, "UsageError: unknown option 'keep_appart'; known are .*keep_apart"),
        ({"target": "sm_9"}, "UsageError: unknown target 'sm_9'; the targets are cpu"),
    ]
    for options, message in wrong:
        with pytest.raises(BackendCompilerFailed, match=message):
            torch.compile(lambda x: x + 1, backend=cutaway, options=options)(torch.ones(2))
    with pytest.raises(BackendCompilerFailed, match="UsageError: memory_budget must be a number from 0 to 1"):
        torch.compile(torch.cos, backend=cutaway, options={"memory_budget": 2})(torch.randn(2))

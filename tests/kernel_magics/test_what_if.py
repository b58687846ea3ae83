"""Tests of ``%what_if``: the last cell runs again with something changed, and what that changes is printed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

import compiler_core
from compiler_core.errors import UsageError
from tests.kernel_magics.cell_runs import printed_by, run

CELL = "%%compile\ny = (x.sin() * w).tanh().exp()\ny.sum().backward()"


@pytest.fixture
def shell(magics: InteractiveShell) -> InteractiveShell:
    run(magics, "x, w = torch.randn(6, 4, requires_grad=True), torch.randn(6, 4)")
    run(magics, CELL)
    return magics


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ("--memory-budget 0", "memory-budget 0.0"),
        ("--dynamic", "captured changed, line 2"),
        ("--mark-dynamic w:0 --mark-dynamic x:0", "w.shape[0] dynamic"),
        ("--keep-apart mul,tanh", "kernel changed, line 2"),
        ("--backend aot_eager", "kernel removed"),
        ("--drop-guard G['w']", "without the guards of G"),
        ("--split forward_0", "kernel time"),
        ("--join forward_0,forward_0", "note: join_forward_0_forward_0 changed nothing: a kernel of both"),
    ],
)
def test_what_changes_is_printed(shell: InteractiveShell, options: str, changed: str) -> None:
    gradient = shell.user_ns["x"].grad
    printed = printed_by(shell, f"%what_if {options}")
    assert changed in printed
    assert "values: the same" in printed
    assert "compile time " not in printed
    assert shell.user_ns["x"].grad is gradient
    assert not vars(shell.user_ns["w"]), "the marks are gone"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%what_if", "takes what is changed"),
        ("%what_if x", "unexpected argument 'x'"),
        ("%what_if --drop-guard nothing", "there is no guard of nothing; there are those of"),
        ("%what_if --mark-dynamic y:7", "y is not a tensor with a dimension 7"),
        ("%what_if --mark-dynamic y", "such as x:0"),
        ("%what_if --split nothing", "there is no kernel nothing; there are forward_0, backward_0"),
        ("%what_if --block-sizes nothing:i=8", "there is no kernel nothing; there are forward_0, backward_0"),
        ("%what_if --block-sizes forward_0:8", "--block-sizes forward_0:8: write forward_0:i=256,num_warps=8"),
        ("%what_if --join forward_0", "--join takes two kernels, as in forward_0,forward_1, not forward_0"),
        ("%what_if --join forward_0,backward_0", "forward_0 and backward_0 are in different graphs"),
    ],
)
def test_a_wrong_request_says_what_is_right(shell: InteractiveShell, line: str, message: str) -> None:
    assert message in printed_by(shell, line)


def test_what_if_of_a_function() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin().tanh()

    x = torch.ones(4)
    apart = compiler_core.what_if(f, x, keep_apart=[("sin", "tanh")])
    assert [(t.before, t.after) for t in apart.totals if t.name == "kernels"] == [(1, 2)]
    assert apart.values == {}
    dynamic = compiler_core.what_if(f, x, before={"backend": "eager"}, mark_dynamic=[(x, 0)], drop_guard="L['x']")
    assert "float32[s" in dynamic.changes()
    assert not vars(x)
    same = compiler_core.what_if(f, x, before={"backend": "eager"}, backend="eager")
    assert "nothing else changed" in same.changes()
    with pytest.raises(UsageError, match="no guard of y; there are those of"):
        compiler_core.what_if(f, x, drop_guard="y")


def test_block_sizes_of_a_kernel_for_a_gpu_that_is_not_here() -> None:
    before: dict[str, Any] = {"target": "sm_90"}
    sizes = {"forward_0": {"i": 4, "num_warps": 8}}
    x = torch.ones(64, 512)
    found = compiler_core.what_if(lambda x: x.softmax(-1), x, before=before, block_sizes=sizes)
    changed = {total.name for total in found.totals if total.before != total.after}
    assert "bytes of shared memory" in changed
    assert not found.values
    with compiler_core.record() as record:
        compiler_core.compile(lambda x: x.softmax(-1), **before, block_sizes={"forward_0": {"j": 1 << 20}})(x)
    (trial,) = record.compiles[0].tunings[0].tried
    assert (trial.chosen, trial.why_not) == (False, "a block has at most 32,768 elements")
    with pytest.raises(UsageError, match="powers of 2, not i=3 of forward_0"):
        compiler_core.compile(torch.nn.ReLU(), block_sizes={"forward_0": {"i": 3}})


def test_kernels_split_and_joined_by_name() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin().tanh().exp()

    x = torch.ones(40)
    split = compiler_core.what_if(f, x, split=["forward_0"])
    assert [(t.before, t.after) for t in split.totals if t.name == "kernels"] == [(1, 3)]
    assert "kernel time" in split.changes()
    joined = compiler_core.what_if(
        lambda x, y: x.exp().sin().tanh()[:, None] * y, x, torch.ones(40, 500), join=[("forward_0", "forward_1")]
    )
    assert [(t.before, t.after) for t in joined.totals if t.name == "kernels"] == [(2, 1)]
    assert joined.values == {}
    with pytest.raises(UsageError, match="there is no kernel forward_3; there are forward_0"):
        compiler_core.what_if(f, x, split=["forward_3"])

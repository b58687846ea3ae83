"""The stages after capture do work that grows with the program and no faster: counted, not timed."""

from __future__ import annotations

import cProfile
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.fx as fx

import compiler_core
from compiler_core.autograd.joint import JointGraph, trace_joint
from compiler_core.autograd.partition import partition
from compiler_core.autograd.passes import slice_writes
from compiler_core.codegen.wrapper import memory_plan
from compiler_core.loops.fuse.rules import fuse
from compiler_core.loops.lower import lower
from compiler_core.records import Compile
from tests.cases.growing_programs import KINDS, example
from tests.sampling import always

pytestmark = pytest.mark.slow

SUITE = {"overlapping_writes", "pointwise", "normalised", "products", "joined", "scans"}
"""What every run of the suite takes of the kinds of programs."""

CASES = always(
    itertools.product(KINDS, (True, False)), lambda case: case[0] in SUITE and (case[1] or "writes" in case[0])
)
"""The joint graph has the operations of the program without gradients, too, except where writes make no graph."""
FASTER = 2.75
"""Twice the program may take so many times the work."""


def joint_of(kind: str, n: int, grad: bool) -> tuple[JointGraph, Compile]:
    taken: list[Any] = []

    def take(gm: fx.GraphModule, examples: Sequence[Any]) -> Any:
        taken.extend((gm, examples))
        return gm.forward

    compiler_core.compile(KINDS[kind](n), backend=take, fullgraph=True)(example().requires_grad_(grad))
    gm, examples = taken
    compile_ = Compile("0/0", 0)
    return trace_joint(gm, examples, compile_), compile_


def compiled(kind: str, n: int, grad: bool) -> list[int]:
    """How many steps each half has."""
    joint, compile_ = joint_of(kind, n, grad)
    parts = partition(joint, compile_)
    halves = [("forward", parts.forward), *([("backward", parts.backward)] if parts.backward else [])]
    programs = [memory_plan.with_result_layouts(fuse(lower(gm, name)).program) for name, gm in halves]
    for program in programs:
        memory_plan.plan(program)
    return [len(program.steps) for program in programs]


def calls(kind: str, n: int, grad: bool) -> int:
    """The calls of Python functions that compiling takes."""
    profile = cProfile.Profile(subcalls=False, builtins=False)
    profile.enable()
    try:
        compiled(kind, n, grad)
    finally:
        profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("n", always([8, 10], (8).__eq__))
@pytest.mark.parametrize(("kind", "grad"), CASES)
def test_work_grows_with_the_program(kind: str, grad: bool, n: int) -> None:
    compiled(kind, 3, grad)  # what is imported and cached the first time
    once, twice = calls(kind, n, grad), calls(kind, 2 * n, grad)
    assert twice < FASTER * once, f"{once:,} calls for {n}, {twice:,} for {2 * n}"


@pytest.mark.parametrize("kind", ["writes", "writes_of_slices"])
def test_writes_make_one_pass(kind: str) -> None:
    """Not one for each write."""
    joint, _ = joint_of(kind, 100, False)
    targets = [n.target for n in joint.gm.graph.nodes]
    assert targets.count(torch.ops.aten.cat.default) == 1
    assert not set(slice_writes._SCATTERS) & set(targets)


def test_covered() -> None:
    covered = slice_writes._IntervalSet()
    assert covered.add(4, 6) == [(4, 6)]
    assert covered.add(8, 9) == [(8, 9)]
    assert covered.add(5, 8) == [(6, 8)]
    assert covered.add(4, 9) == []
    assert covered.add(0, 12) == [(0, 4), (9, 12)]


PROGRAMS = always(enumerate((3, 9, 12, 20, 30, 40)), lambda case: case[1] <= 20)


def mixed(seed: int, n: int) -> Any:
    """Writes to rows, columns, slices and elements, by turns."""
    import random

    draw = random.Random(seed)
    ops = [(draw.choice("rrcse"), [draw.randrange(5) for _ in range(4)], draw.randrange(1, 3)) for _ in range(n)]

    def program(x: torch.Tensor) -> Any:
        x = x.clone()
        for kind, (a, b, c, d), width in ops:
            if kind == "r":
                x[a - 6] = x[b] + 1
            elif kind == "c":
                x[:, a] = x[:, b - 5] * 2
            elif kind == "s":
                x[a : a + width] = x[b : b + width] * 0.5
            else:
                x[a, b] = x[c, d] + 3
        return x, x[2] * 1, x.t()[1:3]

    return program


@pytest.mark.parametrize(("seed", "n"), PROGRAMS)
def test_equal_to_eager(seed: int, n: int) -> None:
    def world(run: Any) -> list[Any]:
        x = (torch.arange(49.0).view(7, 7) / 7).requires_grad_()
        result = run(x)
        torch.autograd.backward(result, [torch.linspace(-1, 1, t.numel()).view(t.shape) for t in result])
        return [*result, x.grad]

    program = mixed(seed, n)
    with compiler_core.record() as record:
        got = world(compiler_core.compile(program, backend="aot_eager"))
    assert [f.message for c in record.compiles for f in c.failures] == []
    want = world(program)
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)
    assert [t.stride() for t in got] == [t.stride() for t in want]

"""Horizontal fusion: which small loops are joined, and that their results do not change."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from compiler_core.loops import ir
from compiler_core.loops.fuse.program_passes import fuse_horizontally
from compiler_core.loops.fuse.rewriter import FusionRequests, FusionResult
from compiler_core.loops.fuse.rules import fuse
from compiler_core.loops.ir import Address, Compute, Literal, Load, Loops, Store
from compiler_core.loops.schedule.block_sizes import DEFAULT_RULES
from tests.cases.philox_cases import on_gpu

f32 = torch.float32


def plus_one(name: str, source: str, size: int = 8) -> Loops:
    one = Literal(1.0, f32)
    body = Load("x", f32, source, Address((1,))), Compute("y", f32, "add", ("x", one)), Store(name, Address((1,)), "y")
    return Loops(name, (size,), (), body)


def program(*steps: ir.Step, device: str = "cuda:0") -> ir.Program:
    names = dict.fromkeys(n for s in steps for n in (*s.reads, *s.writes))
    results = {n for s in steps for n in s.writes}
    kinds = {n: "loops" if n in results else "input" for n in names}
    buffers = {n: ir.Buffer(n, f32, (8,), (1,), torch.device(device), kinds[n], ()) for n in names}  # type: ignore[arg-type]
    inputs = tuple(n for n in names if n not in results)
    return ir.Program("forward", buffers, inputs, steps, tuple(ir.TensorView(n, (8,), (1,)) for n in results))


def joined(*steps: ir.Step, requests: FusionRequests = FusionRequests()) -> FusionResult:  # noqa: B008
    return fuse_horizontally(FusionResult(program(*steps), (), {}, ()), requests)


def names(done: FusionResult) -> list[str]:
    return [s.name for s in done.program.steps]


def call(name: str, barrier: bool = False) -> ir.Call:
    return ir.Call(name, torch.ops.aten.sin.default, (ir.TensorView("c", (8,), (1,)),), {}, ("c",), barrier=barrier)


def test_loops_of_one_shape_are_joined_at_the_position_of_the_first() -> None:
    done = joined(plus_one("a1", "a"), call("s"), plus_one("b1", "b"), plus_one("c1", "c", 4), plus_one("d1", "d"))
    assert names(done) == ["a1", "s", "c1"]
    first = done.program.steps[0]
    assert isinstance(first, Loops)
    ir.check(first)
    assert (first.reads, first.writes) == (("a", "b", "d"), ("a1", "b1", "d1"))
    assert [r.before for r in done.rewrites] == [("a1", "b1"), ("a1", "d1")]
    assert [r.rule for r in done.rewrites_by_loops["a1"]] == ["companion", "companion"]


def test_loops_are_not_moved_before_their_dependencies() -> None:
    assert names(joined(plus_one("a1", "a"), call("s"), plus_one("b1", "s"), plus_one("c1", "s"))) == ["a1", "s", "b1"]
    assert names(joined(plus_one("a1", "a"), plus_one("b1", "a1"))) == ["a1", "b1"]
    assert names(joined(plus_one("a1", "a"), call("s", True), plus_one("b1", "b"))) == ["a1", "s", "b1"]


def test_large_loops_are_not_joined() -> None:
    assert names(
        joined(
            plus_one("a1", "a", 2 * DEFAULT_RULES.max_horizontal_elements),
            plus_one("b1", "b", 2 * DEFAULT_RULES.max_horizontal_elements),
        )
    ) == ["a1", "b1"]


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_loops_of_one_element_are_joined_in_large_kernels(device: str) -> None:
    """Each parameter of an optimizer has such loops, some of which read what others make."""
    chains = [loops for n in range(200) for loops in (plus_one(f"a{n}", f"x{n}", 1), plus_one(f"b{n}", f"a{n}", 1))]
    steps = program(*chains, device=device)
    done = fuse_horizontally(FusionResult(steps, (), {}, ()), FusionRequests())
    assert names(done) == ["a0", "b0", "a128", "b128"]
    assert [len(s.writes) for s in done.program.steps] == [128, 128, 72, 72]
    written = set(done.program.inputs)
    for step in done.program.steps:
        assert written.issuperset(step.needs)
        written.update(step.writes)


def test_on_the_cpu_only_loops_of_one_element_are_joined() -> None:
    apart = program(plus_one("a1", "a"), plus_one("b1", "b"), device="cpu")
    assert names(fuse_horizontally(FusionResult(apart, (), {}, ()), FusionRequests())) == ["a1", "b1"]


def test_keep_apart_is_respected() -> None:
    requests = FusionRequests(keep_apart=(("a1", "b1"),))
    assert names(joined(plus_one("a1", "a"), plus_one("b1", "b"), requests=requests)) == ["a1", "b1"]


def test_refusals_refer_to_the_joined_loops() -> None:
    done = fuse_horizontally(fuse(program(plus_one("a1", "a"), plus_one("b1", "b"))), FusionRequests())
    there = set(names(done))
    assert all({first, second} <= there for first, second, _ in done.refusals)


def test_random_draws_stay_before_their_kernels() -> None:
    x, y = torch.randn(8), torch.randn(8)
    drawing = on_gpu(lambda x, y: [F.dropout(x, 0.3), F.dropout(y, 0.3) * y], x, y)
    done = fuse_horizontally(FusionResult(drawing, (), {}, ()), FusionRequests()).program
    result = set(done.inputs)
    for step in done.steps:
        assert result.issuperset(step.needs), step.name
        result.update(step.writes)
    assert sum(isinstance(s, Loops) for s in done.steps) == 2

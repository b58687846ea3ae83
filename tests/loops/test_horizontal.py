"""Small loops that share a launch: which do, and that they compute what they did apart."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from compiler_core.loops import ir
from compiler_core.loops.fuse.horizontal import join_companions
from compiler_core.loops.fuse.rewriter import Rewritten, Wishes
from compiler_core.loops.fuse.rules import fuse
from compiler_core.loops.ir import Address, Compute, Literal, Load, Loops, Store
from compiler_core.loops.schedule.size_rules import USUAL
from tests.cases.philox_cases import on_gpu

f32 = torch.float32


def plus_one(name: str, source: str, size: int = 8) -> Loops:
    one = Literal(1.0, f32)
    body = Load("x", f32, source, Address((1,))), Compute("y", f32, "add", ("x", one)), Store(name, Address((1,)), "y")
    return Loops(name, (size,), (), body)


def program(*steps: ir.Step) -> ir.Program:
    names = dict.fromkeys(n for s in steps for n in (*s.reads, *s.writes))
    made = {n for s in steps for n in s.writes}
    kinds = {n: "loops" if n in made else "input" for n in names}
    buffers = {n: ir.Buffer(n, f32, (8,), (1,), torch.device("cuda", 0), kinds[n], ()) for n in names}  # type: ignore[arg-type]
    inputs = tuple(n for n in names if n not in made)
    return ir.Program("forward", buffers, inputs, steps, tuple(ir.View(n, (8,), (1,)) for n in made))


def joined(*steps: ir.Step, wishes: Wishes = Wishes()) -> Rewritten:  # noqa: B008
    return join_companions(Rewritten(program(*steps), (), {}, ()), wishes)


def names(done: Rewritten) -> list[str]:
    return [s.name for s in done.program.steps]


def call(name: str, barrier: bool = False) -> ir.Call:
    return ir.Call(name, torch.ops.aten.sin.default, (ir.View("c", (8,), (1,)),), {}, ("c",), barrier=barrier)


def test_loops_of_one_shape_become_one_where_the_first_stands() -> None:
    done = joined(plus_one("a1", "a"), call("s"), plus_one("b1", "b"), plus_one("c1", "c", 4), plus_one("d1", "d"))
    assert names(done) == ["a1", "s", "c1"]
    first = done.program.steps[0]
    assert isinstance(first, Loops)
    ir.check(first)
    assert (first.reads, first.writes) == (("a", "b", "d"), ("a1", "b1", "d1"))
    assert [r.before for r in done.rewrites] == [("a1", "b1"), ("a1", "d1")]
    assert [r.rule for r in done.by_loops["a1"]] == ["companion", "companion"]


def test_what_needs_a_step_between_stays_behind_it() -> None:
    assert names(joined(plus_one("a1", "a"), call("s"), plus_one("b1", "s"), plus_one("c1", "s"))) == ["a1", "s", "b1"]
    assert names(joined(plus_one("a1", "a"), plus_one("b1", "a1"))) == ["a1", "b1"]
    assert names(joined(plus_one("a1", "a"), call("s", True), plus_one("b1", "b"))) == ["a1", "s", "b1"]


def test_large_loops_stay_apart() -> None:
    assert names(joined(plus_one("a1", "a", 2 * USUAL.small), plus_one("b1", "b", 2 * USUAL.small))) == ["a1", "b1"]


def test_what_is_to_stay_apart_does() -> None:
    wishes = Wishes(apart=(("a1", "b1"),))
    assert names(joined(plus_one("a1", "a"), plus_one("b1", "b"), wishes=wishes)) == ["a1", "b1"]


def test_after_fusion_refusals_speak_of_what_there_is() -> None:
    done = join_companions(fuse(program(plus_one("a1", "a"), plus_one("b1", "b"))), Wishes())
    there = set(names(done))
    assert all({first, second} <= there for first, second, _ in done.refusals)


def test_what_a_kernel_draws_is_drawn_before_it() -> None:
    x, y = torch.randn(8), torch.randn(8)
    drawing = on_gpu(lambda x, y: [F.dropout(x, 0.3), F.dropout(y, 0.3) * y], x, y)
    done = join_companions(Rewritten(drawing, (), {}, ()), Wishes()).program
    made = set(done.inputs)
    for step in done.steps:
        assert made.issuperset(step.needs), step.name
        made.update(step.writes)
    assert sum(isinstance(s, Loops) for s in done.steps) == 2

"""Schedules written by hand: the legal ones compute what the compiler's do, the others are refused with a reason."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from compiler_core.codegen.build import compilers
from compiler_core.codegen.cpp import launch, printer
from compiler_core.errors import UsageError
from compiler_core.loops import ir
from compiler_core.loops.fuse import rules
from compiler_core.loops.ir.nest import For, walk
from compiler_core.loops.lower import lower
from compiler_core.loops.schedule.cpu import schedule
from compiler_core.loops.schedule.script import Schedule
from compiler_core.support.size_expr import hint, symbol
from compiler_core.tools.changes.schedule_from_text import read_schedule
from tests.loops.docstring_examples import graph, named

SHIFTED = "aten.exp(aten.sub(x, aten.amax(x, [-1], True)))"
PROGRAMS: dict[str, tuple[str, dict[str, str]]] = {
    "elements": ("aten.add(aten.mul(x, y), 1)", {"x": "f32[37, 130]", "y": "f32[37, 1]"}),
    "transposed": ("aten.add(aten.t(x), y)", {"x": "f32[130, 37]", "y": "f32[37, 130]"}),
    "rows": ("aten.sub(x, aten.sum(x, [-1], True))", {"x": "f32[37, 130]"}),
    "softmax": (f"aten.div(e := {SHIFTED}, aten.sum(e, [-1], True))", {"x": "f32[37, 130]"}),
    "columns": ("aten.sum(x, [0])", {"x": "f32[37, 130]"}),
    "two inner": ("aten.amax(x, [0, 2])", {"x": "f32[5, 37, 13]"}),
    "updates": ("aten.index_add(y, 0, i, aten.exp(x))", {"x": "f32[130]", "y": "f32[7]", "i": "i64[130]"}),
    "mean": ("aten.mean(x, [-1])", {"x": "f32[37, 130]"}),
    "scan": ("aten.mul(aten.cumsum(x, -1), 2)", {"x": "f32[37, 130]"}),
    "half": ("aten.mul(aten.add(x, 1), 2)", {"x": "f16[37, 130]"}),
    "half rows": (f"aten.div(e := {SHIFTED}, aten.sum(e, [-1], True))", {"x": "f16[37, 130]"}),
    "mask": ("aten.any(aten.gt(x, 2), 1)", {"x": "f32[37, 130]"}),
    "padded": ("aten.constant_pad_nd(x, [3, 4], 0.0)", {"x": "f32[37, 130]"}),
}

LEGAL = [
    ("elements", "split(i1, 32)"),
    ("elements", "split(i1, 32)\nvectorize(i1)\nparallelize(i0)"),
    ("elements", "hoist(i1)\nvectorize(i1, 8)"),
    ("elements", "split(i0, 8)\nsplit(i1, 32)\nreorder(i0_tile, i1_tile, i0, i1)\nparallelize(i0_tile, i1_tile)"),
    ("transposed", "reorder(i1, i0)\nvectorize(i0)"),
    ("elements", "cut(i1, 64)\nvectorize(i1)"),
    ("rows", "vectorize(j0)"),
    ("rows", "split(j0, 64)\nvectorize(j0, 8)"),
    ("rows", "parallelize(j0)"),
    ("softmax", "keep(exp)\nsplit(i0, 8)\ndistribute(i0)\nvectorize(j0)\nparallelize(i0_tile)"),
    ("softmax", "split(i0, 16)\nreorder(j0, i0)\nvectorize(i0)"),
    ("columns", "reorder(j0, i0)"),
    ("two inner", "split(i0, 8)\nreorder(j0, j1, i0)\nvectorize(i0)"),
    ("two inner", "vectorize(j1)\nhoist(j1)  # the lanes of all rows are combined once"),
    ("two inner", "split(j0, 2)\nvectorize(j1, 4)\nparallelize(j0_tile)"),
    ("updates", "split(i0, 32)\ndistribute(i0)\nvectorize(i0)"),
    ("scan", "split(j0, 32)\ndistribute(j0)\nvectorize(j0)"),
    ("scan", "distribute(j0)\nvectorize(j0)\nparallelize(i0)"),
    ("scan", "split(j0, 50)\ndistribute(j0)"),
    ("scan", "distribute(j0)\nsplit(j0, 8)\nvectorize(j0)"),
    ("half rows", "vectorize(j0)\nparallelize(i0)  # both"),
    ("padded", "vectorize(i1)\nparallelize(i0)"),
    ("elements", "# the naive nest"),
    ("elements", "split(i1, 7)\nvectorize(i1)  # no divisor of 130"),
    ("elements", "split('i1', 1000)\nvectorize(i1)  # more than there are"),
    ("elements", "split(i1, 32)\nsplit(i1_tile, 64)\nvectorize(i1)"),
    ("elements", "split(i0, 8)\nreorder(i0_tile, i1, i0)\nvectorize(i0)\nparallelize(i0_tile)"),
    ("elements", "cut(i0, 20)\nreorder(i1, i0)"),
    ("elements", "vectorize(i1)\nparallelize(i1)"),
    ("transposed", "split(i0, 16)\nsplit(i1, 16)\nreorder(i0_tile, i1_tile, i0, i1)\nvectorize(i1)"),
    ("rows", "split(j0, 7)\nparallelize(j0_tile)\nvectorize(j0)"),
    ("rows", "split(i0, 8)\ndistribute(i0)\nvectorize(j0, 2)"),
    ("rows", "keep(v0)\nvectorize(j0, 64)"),
    ("softmax", "cut(i0, 10)\nsplit(i0, 8)\ndistribute(i0)\nvectorize(j0)"),
    ("scan", "reorder(j0, i0)\nvectorize(i0)  # a running sum for each row"),
    ("two inner", "reorder(j1, j0)\nparallelize(i0)"),
    ("half rows", "split(i0, 8)\nreorder(j0, i0)\nvectorize(i0)"),
]  # fmt: skip
ILLEGAL = [
    ("elements", "split(i9, 4)", "line 1, split(i9, 4): there is no loop over i9; there are loops over i0, i1"),
    ("elements", "split(i0, 0)", "split needs a positive number of elements, not 0"),
    ("elements", "split(i0, 4)\nsplit(i0, 2)", "line 2, split(i0, 2): i0 is split already, into i0_tile and i0"),
    ("elements", "split(i0)", "split takes index, size"),
    ("elements", "split(i0, i1)", "a block has a known number of elements, not i1"),
    ("elements", "cut(i0, i1)", "cut takes numbers, not i1"),
    ("elements", "vectorize(i1, x)", "the number of lanes is a number, not x"),
    ("elements", "split([i0], 4)", "arguments are names of loops or values, and numbers, not [i0]"),
    ("elements", "tile(i0, 4)", "the rewrites of a C++ kernel are split, cut, reorder"),
    ("elements", "i0 = 4", "a line is one rewrite, such as split(i0, 128)"),
    ("elements", "vectorize(i1, 3)", "the number of lanes is a power of two, not 3"),
    ("elements", "vectorize(i0)", "there are loops inside those over i0"),
    ("elements", "split(i0, 8)\nreorder(i0, i0_tile)", "i0 runs through a block of i0_tile"),
    ("elements", "parallelize(i1, i0)", "the loops i1, i0 are not directly inside each other"),
    ("elements", "parallelize(i0)\nparallelize(i1)", "a loop is distributed over threads already"),
    ("elements", "keep(mul)", "no later sweep computes mul again"),
    ("elements", "cut(i1, 500)", "cut needs increasing numbers between 0 and 130"),
    ("elements", "vectorize(i1)\nreorder(i1, i0)", "order loops before they get a kind"),
    ("rows", "reorder(j0, i0, j0)", "reorder needs at least two different loops"),
    ("softmax", "reorder(i0, j0)", "the loops i0, j0 are not directly inside each other"),
    ("scan", "vectorize(j0)", "a scan needs the elements of a row in order: distribute j0 first"),
    ("scan", "split(j0, 32)\ndistribute(j0)\nreorder(j0, i0)", "order loops before j0 is distributed"),
    ("scan", "split(j0, 32)\ndistribute(j0)\ndistribute(j0)", "j0 is distributed already"),
    ("rows", "distribute(j0)", "j0 is not an outer index"),
    ("scan", "parallelize(j0)", "a scan needs the elements of a row in order"),
    ("two inner", "vectorize(j0)", "j0 is not the last index of a row"),
    ("two inner", "vectorize(j1)\nparallelize(j0)", "threads would share the accumulators of a row"),
    ("updates", "vectorize(i0)", "the kernel updates elements whose positions are read from a tensor"),
    ("rows", "partial(i0)", "no value is accumulated over the rows"),
    ("elements", "split(i0, True)", "arguments are names of loops or values, and numbers, not True"),
    ("elements", "split(i0, 99999999999999999999)", "a block has at most 2,147,483,648 elements"),
    ("elements", "split(i0, 128//4)", "arguments are names of loops or values, and numbers, not 128 // 4"),
    ("elements", "split(i1, 32)\nsplit(i1_tile, 2)", "a block of i1_tile has a multiple of 32 elements"),
    ("elements", "vectorize(i1); parallelize(i0)", "a line is one rewrite, such as split(i0, 128)"),
    ("elements", "vectorize(i1, 2048)", "a vector has at most 1,024 lanes, not 2,048"),
    ("elements", "cut(i0)", "cut needs numbers between 0 and 37, where the parts end"),
    ("elements", "keep()", "name values to keep: no later sweep computes one again"),
    ("elements", "parallelize(i0, i0)", "i0 is named twice"),
    ("elements", "parallelize(i0, i2)", "there is no loop over i2; there are loops over i0, i1"),
    ("elements", "parallelize(i0, condition='n0 > 3')", "all sizes of this kernel are known"),
    ("rows", "vectorize(j0)\nreorder(j0, i0)", "line 2, reorder(j0, i0): j0: order loops before they get a kind"),
    ("softmax", "keep()", "name values to keep: exp"),
    ("softmax", "keep(exp, exp)", "line 1, keep(exp, exp): exp is named twice\nChange this one, or remove it."),
    ("scan", "split(j0, 32)\nparallelize(j0_tile)", "a scan needs the elements of a row in order"),
    ("symbolic", "parallelize(j0, condition='n1 > 3')", "sizes that are known at the call (n0) and numbers"),
    ("symbolic", "parallelize(j0, condition='n0 +')", "sizes that are known at the call (n0) and numbers"),
    ("symbolic", "parallelize(j0, condition='1 < n0 < 4')", "sizes that are known at the call (n0) and numbers"),
    ("symbolic", "parallelize(j0, condition=n0)", "sizes that are known at the call (n0) and numbers"),
]


NAMES = ("split", "split", "cut", "reorder", "reorder", "distribute", "hoist", "keep", "vectorize", "parallelize")
"""The rewrites of random schedules; those that are named twice are chosen twice as often."""


@functools.cache
def loops_of(name: str) -> tuple[ir.Loops, dict[str, ir.Buffer]]:
    """Returns the last kernel of a program, and its buffers."""
    expression, inputs = PROGRAMS[name]
    program = rules.fuse(named(lower(graph(expression, "cpu", **inputs), "forward"), list(inputs))).program.numbered()
    *_, loops = (step for step in program.steps if isinstance(step, ir.Loops))
    return loops, program.buffers


def results(name: str, schedules: Sequence[Schedule]) -> list[list[torch.Tensor]]:
    """Returns what the kernels of some schedules of one program write, for the same inputs."""
    loops, buffers = loops_of(name)
    kernels = [replace(loops, name=f"kernel_{n}") for n in range(len(schedules))]
    for kernel, made in zip(kernels, schedules, strict=True):
        made.loops = kernel
        made.rewrites = [replace(r, nest=replace(r.nest, loops=kernel)) for r in made.rewrites]
        made.start = replace(made.start, loops=kernel)
    program = ir.Program("forward", buffers, (), tuple(kernels), ())
    by_name = {kernel.name: made for kernel, made in zip(kernels, schedules, strict=True)}
    source = printer.generate(program, compilers.simd_math(), by_name).text
    launchers = launch.launchers(source)
    torch.manual_seed(0)
    given = {b: _random(buffers[b]) for b in loops.reads}
    found = []
    for kernel in kernels:
        out = {b: torch.full_like(_random(buffers[b]), 7) for b in loops.writes}
        launchers[kernel.name](*(given[b] if b in given else out[b] for b in loops.arguments))
        found.append([*out.values()])
    return found


def _random(buffer: ir.Buffer) -> torch.Tensor:
    return torch.randn([hint(size) for size in buffer.size]).to(buffer.dtype)


def _with_schedule(made: Schedule, text: str) -> str:
    return f"{text}\n{made.text()}"


def check(name: str, schedules: Sequence[Schedule]) -> None:
    want, *others = results(name, [schedule(loops_of(name)[0]), *schedules])
    for made, got in zip(schedules, others, strict=True):
        for expected, value in zip(want, got, strict=True):
            torch.testing.assert_close(value, expected, msg=functools.partial(_with_schedule, made))


def test_legal_schedules_compute_the_same() -> None:
    for name in dict.fromkeys(name for name, _ in LEGAL):
        loops, _ = loops_of(name)
        check(name, [read_schedule(loops, text) for other, text in LEGAL if other == name])


def of_symbolic_rows() -> ir.Loops:
    """Returns a sum of few rows whose length is known at the call, and a difference of each element."""
    length = symbol("n0", 2, 1 << 20)
    row = ir.Address((length, 1))
    body = (
        ir.Load("v0", torch.float32, "x", row),
        ir.Compute("v1", torch.float32, "exp", ("v0",)),
        ir.Reduce("v2", torch.float32, "sum", "v1"),
        ir.Compute("v3", torch.float32, "sub", ("v1", "v2")),
        ir.Store("y", row, "v3"),
    )
    return ir.Loops("kernel", (3,), (length,), body)


@pytest.mark.parametrize("name", [*PROGRAMS, "symbolic"])
def test_the_text_of_a_schedule_is_the_schedule(name: str) -> None:
    loops = of_symbolic_rows() if name == "symbolic" else loops_of(name)[0]
    made = schedule(loops)
    again = read_schedule(loops, "\n".join(f"{each.text}  # {each.reason}" for each in made.rewrites))
    assert again.nest == made.nest
    assert (name == "symbolic") == ("if 42*n0 >= 524288:" in made.nest.text())


def test_each_cost_of_a_kernel_may_be_in_a_condition() -> None:
    """A cost is a polynomial over sizes, whose first factor may be negative."""
    loops, source = of_symbolic_rows(), random.Random(0)
    length = loops.inner[0]
    for _ in range(50):
        square, linear, constant = (source.randint(-99, 99) for _ in range(3))
        cost = square * length * length + linear * length + constant
        read_schedule(loops, f"split(j0, 64)\nparallelize(j0_tile, condition='{cost} >= 524288')")


@pytest.mark.parametrize(("name", "text", "why"), ILLEGAL)
def test_a_schedule_that_is_not_legal_is_refused_with_the_reason(name: str, text: str, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_schedule(of_symbolic_rows() if name == "symbolic" else loops_of(name)[0], text)
    assert why in str(refused.value)


def random_schedule(loops: ir.Loops, source: random.Random) -> Schedule:
    """Returns a schedule of legal rewrites, chosen at random, with vectors where it may have them.

    g++ 12 makes code that crashes of some nests without vectors (two loops through blocks of a local array).
    """
    made, lines = Schedule(loops), list[str]()
    values = [s.name for s in loops.body if not isinstance(s, ir.Store)]
    for _ in range(source.randint(1, 9)):
        found = list(dict.fromkeys(n.index for n in walk(made.nest.body) if isinstance(n, For)))
        some = source.sample(found, source.randint(1, len(found)))
        rewrite = source.choice(NAMES)
        arguments: dict[str, list[Any]] = {
            "split": [some[0], source.choice((1, 4, 8, 16, 100, 512))],
            "cut": [some[0], source.randint(1, 40)],
            "reorder": some,
            "distribute": [some[0]],
            "hoist": [some[0]],
            "keep": source.sample(values, 1),
            "vectorize": [some[0], source.choice((0, 1, 4, 16))],
            "parallelize": some,
        }
        line = f"{rewrite}({', '.join(map(str, arguments[rewrite]))})"
        try:
            made = read_schedule(loops, "\n".join([*lines, line]))
        except UsageError:
            continue
        lines = [r.text for r in made.rewrites]
    with contextlib.suppress(UsageError):
        made = read_schedule(loops, "\n".join([*lines, f"vectorize({loops.index_names[-1]})"]))
    return made


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.sweep) for seed in range(1, 20))])
def test_random_schedules_compute_the_same(seed: int) -> None:
    for name in PROGRAMS:
        source = random.Random(f"{seed} {name}")
        loops, _ = loops_of(name)
        check(name, [random_schedule(loops, source) for _ in range(12)])

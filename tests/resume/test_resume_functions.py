# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""Tests of resume functions: all that is live across a break is unchanged after it."""

from __future__ import annotations

import itertools
import types

import pytest
import torch

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.bytecode import disassemble, verify
from compiler_core.resume.resume_functions import VALUE, ResumeLayout, resume_code
from compiler_core.tools.testing import break_kinds, check, same_as_eager


def test_one_branch_is_noted_and_never_reached():
    def program(x):
        if x.sum() > 0:
            x = x * 2
        else:
            x = x - 1
        return x.cos()

    record = check(program, lambda: (torch.ones(3),))
    frames = [f for f in record.frames if f.kind == "resume"]
    assert len(frames) == 2
    assert sorted(f.calls > 0 for f in frames) == [False, True]
    assert sorted(f.line for f in frames) == [f.line for f in sorted(frames, key=lambda f: f.line)]
    assert break_kinds(record) == ["data-dependent branch"]


def test_names_that_tracebacks_and_profilers_show():
    def program(x):
        y = x + 1
        print("", end="")
        return y * 2

    compiled = cc.compile(program, backend="eager", strict=True)
    compiled(torch.ones(1))
    root, resumed = record_of(compiled).frames
    assert (root.name, resumed.name) == ("program", "program")
    assert resumed.resumes == "0/0"


def test_a_resume_function_goes_on_in_the_middle():
    def program(x, items, *args, k=1, **kw):
        total = 0
        for i in items:
            total += i * k
        cell = lambda: total  # noqa: E731
        with torch.no_grad():
            y = x + cell()
        return y, args, kw

    body = disassemble(program.__code__)
    loop = next(i for i, x in enumerate(body) if x.opname == "FOR_ITER")
    code = resume_code(program.__code__, ResumeLayout(loop, (VALUE,), ("args", "k", "kw", "x"), ("total",)))
    verify(code)
    assert code.co_varnames[:6] == ("__cell_total", "__stack0", "args", "k", "kw", "x")
    resumed = types.FunctionType(code, {"torch": torch})
    assert resumed(types.CellType(5), iter([1, 2]), (), 2, {}, 1) == (12, (), {})
    with pytest.raises(UnboundLocalError, match="local variable 'total'"):
        resumed(types.CellType(), iter([1, 2]), (), 2, {}, 1)


def test_a_resume_function_calls_the_callees_first_or_raises():
    def program(x, y):
        try:
            z = max(x, y)
        except ValueError as error:
            return "caught", str(error), y
        return z, x

    body = disassemble(program.__code__)
    call = next(i for i, x in enumerate(body) if x.opname == "CALL")
    calls = resume_code(program.__code__, ResumeLayout(call + 1, (), ("x", "y"), (), callee_args=2))
    again = resume_code(program.__code__, ResumeLayout(call, (), ("y",), (), reraises=True))
    for code in (calls, again):
        verify(code)
    assert calls.co_varnames[:5] == ("__callee", "__callee0", "__callee1", "x", "y")
    assert types.FunctionType(calls, {})(pow, 3, 2, "x", "y") == (9, "x")
    assert types.FunctionType(calls, globals())(int, "z", 10, 1, 2)[0] == "caught"
    assert types.FunctionType(again, globals())("y", ValueError("why")) == ("caught", "why", "y")


@same_as_eager()
def test_recursive_function_that_breaks(x):
    def down(n):
        if n == 0:
            return x
        print(n)
        return down(n - 1) + n

    return down(4)


def deep(x, n):
    return x + 1 if n == 0 else deep(x, n - 1)


@same_as_eager(inputs=lambda: (torch.ones(2), 300))
def test_recursion_deeper_than_is_inlined(x, n):
    return deep(x, n)


def test_branches_that_meet_continue_in_one_function():
    """Each ``if`` adds a function for either branch: what follows is not compiled once for each path."""

    def program(x, *flags):
        a, b, c = flags
        x = x + 1
        if a:
            x = x * 2
        x = x + 3
        if b:
            x = x * 4
        x = x + 5
        if c:
            x = x * 6
        return x + 7

    compiled = cc.compile(program, backend="eager", strict=True)
    for flags in itertools.product((0, 1), repeat=3):
        given = [torch.ones(2), *map(torch.tensor, flags)]
        assert torch.equal(compiled(*given), program(*given))
    assert len(record_of(compiled).frames) == 1 + 3 * 2

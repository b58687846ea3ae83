# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""Tests of resume functions: all that is live across a break is unchanged after it."""

from __future__ import annotations

import types

import pytest
import torch

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.bytecode import disassemble, verify
from compiler_core.resume.resume_functions import VALUE, ResumeLayout, resume_code
from compiler_core.tools.testing import break_kinds, check, same_as_eager


def say(text):
    print(text)


@same_as_eager(breaks=["print"], graphs=1)
def test_locals_and_their_identity(x):
    a = [x + 1]
    b = {"a": a, "t": (a, 1)}
    c = a
    print("now")
    a.append(2)
    return b, c is a, b["t"][0] is a


@same_as_eager(breaks=["print"])
def test_a_value_under_the_call(x):
    return (x + 1) * (print("now") or 2) + [x.sum(), print][0]


@same_as_eager()
def test_many_breaks_in_a_row(x):
    for_later = []
    say(1)
    for_later.append(x + 1)
    say(2)
    for_later.append(x.sum().item())
    if x.sum() > 0:
        say(3)
        for_later.append("positive")
    elif x.max() > 0.5:
        for_later.append("high")
    say(4)
    return for_later, x * 2


@same_as_eager()
def test_cells(x):
    n = 1

    def bump(by=1):
        nonlocal n
        n += by
        return n

    a = bump()
    print(n)
    b = bump(2)
    y = x * n
    print(n, a, b)
    n = 10
    return y, bump(), [f() for f in (bump, lambda: n)]


@same_as_eager()
def test_argument_that_is_a_cell(x, y):
    def f():
        return x + y

    print("now")
    x = x * 2
    return f()


@same_as_eager()
def test_nested_functions_with_breaks(x):
    def outer(v):
        def inner(w):
            print("inner", v.shape)
            return w + v

        print("outer")
        return inner(v * 2)

    return outer(x) + 1, outer(x[0])


class Thing:
    def __init__(self, x):
        self.x = x

    def go(self, k):
        print("go", k)
        self.x = self.x + k
        return self

    @property
    def loud(self):
        print("loud")
        return self.x * 2


class Child(Thing):
    def __init__(self, x):
        print("making")
        super().__init__(x)
        print("made")

    def go(self, k):
        print("child")
        return super().go(k + 1)


@same_as_eager()
def test_methods_and_super(x):
    t = Child(x)
    u = t.go(1).go(2)
    return u.loud, t is u


@same_as_eager()
def test_star_arguments(x):
    def f(*args, k=2, **kw):
        print(len(args), sorted(kw))
        return args[0] * k + kw["z"], args, kw

    return f(x, 1, z=x), f(*[x, 2], **{"z": 1, "k": 4})


@same_as_eager()
def test_loops_after_a_break(x):
    print("first")
    out = []
    for i, row in enumerate(x):
        if i == 2:
            continue
        out.append(row * i)
    while len(out) < 6:
        out.append(x.sum())
    return out


@same_as_eager()
def test_break_then_exception_caught_in_the_frame(x):
    print("first")
    try:
        raise ValueError("here")
    except ValueError as error:
        y = x + len(str(error))
    return y


@same_as_eager()
def test_exception_after_a_break_leaves_the_changes(x):
    log = [1]
    try:
        log.append(2)
        print("in")
        log.append(3)
        x @ torch.ones(3, 7)
    except RuntimeError:
        return x + 1, log
    return None


@same_as_eager()
def test_return_in_finally_and_with(x):
    def inner():
        with torch.no_grad():
            try:
                print("body")
                return x + 1
            finally:
                print("cleanup")

    return inner(), inner()


@same_as_eager()
def test_keyword_call_that_breaks(x):
    print(x.shape, "b", sep="-", end="!\n")
    return x + 1


@same_as_eager()
def test_broken_subscript_attribute_and_operator(x):
    y = x + 1
    a = y.data[0]
    b = {3}.__len__()
    c = y.grad_fn
    d = [1, 2][int(x[0, 0] * 0)]
    e = "%s" % y.sum().item()
    return a, b, c, d, e


@same_as_eager()
def test_chained_comparison_and_boolean_operators(x):
    a = 0 < x.sum() < 100
    b = x.sum() > 0 and x.max() > 0 and "both"
    c = (x.sum() > 0) or "not"
    return a, b, c, x + 1


@same_as_eager()
def test_ternary_and_walrus_on_tensors(x):
    y = x * 2 if x.sum() > 0 else x - 1
    if (s := y.sum()) > 1:
        y = y + s
    return y, s


@same_as_eager()
def test_match_after_a_break(x):
    print("first")
    match {"kind": "a", "n": 2}:
        case {"kind": "b"}:
            return x
        case {"kind": "a", "n": n}:
            return x + n


@same_as_eager()
def test_delete_and_unbound_names(x):
    y = x + 1
    print("a")
    z = y * 2
    del y
    print("b")
    try:
        y
    except NameError as error:
        return z, str(error)


@same_as_eager()
def test_unbound_in_one_branch(x):
    if x.shape[0] > 100:
        later = 1
    print("now")
    if x.shape[0] > 50:
        return later
    return x + 1


@same_as_eager()
def test_generator_that_spans_a_break(x):
    rows = (x * i for i in range(3))
    first = next(rows)
    print("now")
    return first, list(rows)


@same_as_eager()
def test_iterator_that_spans_a_break(x):
    rows = iter([x, x + 1, x + 2])
    first = next(rows)
    print("now")
    return first, list(rows), next(rows, None)


@same_as_eager()
def test_imports_and_classes_after_a_break(x):
    print("now")
    import math

    class Local:
        k = math.floor(2.5)

        def go(self):
            return x + self.k

    return Local().go()


@same_as_eager(grad=True)
def test_gradients_through_breaks(x):
    y = x.sin()
    print("a")
    z = y * x
    if z.sum() > 0:
        z = z.cos()
    return z


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

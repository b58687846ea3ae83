# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""`pin`, which checks no guards, and `guard_filter`, which drops some."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn as nn

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.errors import UsageError

SCALE = 2


def scaled(x, k=3, *, bias=1):
    """Doc."""
    return x * k * SCALE + bias


def test_a_pinned_call_checks_no_guards(monkeypatch):
    compiled = cc.compile(scaled, backend="eager")
    x = torch.ones(2)
    want = compiled(x)
    pinned = cc.pin(compiled)
    assert torch.equal(pinned(x), want)
    assert torch.equal(pinned(torch.ones(5)), torch.full((5,), 7.0))
    monkeypatch.setitem(globals(), "SCALE", 50)
    assert torch.equal(pinned(x), want)
    assert torch.equal(compiled(x), scaled(x))
    assert torch.equal(pinned(x), want)
    assert len(record_of(compiled).compiles) == 2
    assert (pinned.__name__, pinned.__doc__, pinned.__wrapped__) == ("scaled", "Doc.", compiled)


def test_keyword_arguments_and_closures():
    n = 4

    def program(x, k=3, *more, bias=1, **rest):
        return x * k + bias + n

    compiled = cc.compile(program, backend="eager")
    x = torch.zeros(1)
    compiled(x)
    assert cc.pin(compiled)(x, 3, bias=1).item() == 5


def test_later_compiles_and_reset_do_not_change_a_pinned_function():
    compiled = cc.compile(lambda x: x + x.shape[0], backend="eager")
    compiled(torch.zeros(2))
    pinned = cc.pin(compiled)
    compiled(torch.zeros(3))
    cc.reset()
    assert pinned(torch.zeros(2)).tolist() == [2, 2]
    assert pinned(torch.zeros(3)).tolist() == [2, 2, 2]


def test_one_of_several_compiles():
    compiled = cc.compile(scaled, backend="eager")
    compiled(torch.ones(2), 1)
    compiled(torch.ones(2), 2)
    with pytest.raises(UsageError, match=r"compiles 0/0, 0/1.*pin\(scaled, '0/1'\)"):
        cc.pin(compiled)
    with pytest.raises(UsageError, match="no compile '0/7'; it has 0/0, 0/1"):
        cc.pin(compiled, "0/7")
    x = torch.ones(2)
    assert cc.pin(compiled, "0/0")(x).tolist() == [3, 3]
    assert cc.pin(compiled, "0/1")(x, 2).tolist() == [5, 5]


def test_nothing_to_pin():
    compiled = cc.compile(scaled, backend="eager")
    with pytest.raises(UsageError, match="scaled has no compile to pin: call it first"):
        cc.pin(compiled)
    with pytest.raises(UsageError, match="was not made by"):
        cc.pin(scaled)
    compiled(torch.ones(1))
    cc.reset()
    with pytest.raises(UsageError, match="call it first"):
        cc.pin(compiled)


def test_modules_methods_and_partials():
    x = torch.ones(2)
    linear = nn.Linear(2, 2)
    module = cc.compile(linear, backend="eager")
    want = module(x)
    assert torch.equal(cc.pin(module)(x), want)

    class Thing:
        k = 3

        @cc.compile(backend="eager")
        def go(self, x):
            return x * self.k

    thing = Thing()
    thing.go(x)
    assert cc.pin(thing.go)(x).tolist() == [3, 3]
    partial = cc.compile(functools.partial(scaled, k=1), backend="eager")
    partial(x)
    assert cc.pin(partial)(x).tolist() == [3, 3]


def test_code_after_a_break_checks_guards():
    printed = []

    def program(x, n):
        y = x + 1
        printed.append(torch.is_tensor(y))
        if y.sum() > 0:
            return y * n
        return y - n

    compiled = cc.compile(program, backend="eager")
    one, minus = torch.ones(1), torch.full((1,), -9.0)
    for x in (one, minus):
        compiled(x, 2)
    pinned = cc.pin(compiled)
    for _ in range(2):
        assert pinned(one, 2).item() == 4
        assert pinned(minus, 2).item() == -10
        assert pinned(one, 3).item() == 6


def test_gradients():
    compiled = cc.compile(lambda x, y: (x * y).sum(), backend="aot_eager")
    x, y = torch.ones(3, requires_grad=True), torch.full((3,), 2.0)
    compiled(x, y)
    cc.pin(compiled)(x, y).backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_called_by_another_compiled_function():
    inner = cc.compile(lambda x: x + 1, backend="eager")
    inner(torch.ones(1))
    pinned = cc.pin(inner)
    outer = cc.compile(lambda x: pinned(x) * 2, backend="eager", strict=True)
    for _ in range(2):
        assert outer(torch.ones(1)).item() == 4


def test_a_filter_drops_guards():
    log = []

    def keep(guards):
        log.append([(g.kind, g.source) for g in guards])
        return [g.source != "L['k']" for g in guards]

    compiled = cc.compile(scaled, backend="eager", guard_filter=keep)
    x = torch.ones(2)
    assert compiled(x, 3).tolist() == [7, 7]
    assert compiled(x, 4).tolist() == [7, 7]  # wrong, since the dropped guard does not hold
    (compile_,) = record_of(compiled).compiles
    assert ("EQUALS_MATCH", "L['k']") in log[0]
    (dropped,) = [g for g in compile_.guards if g.dropped]
    assert dropped.source == "L['k']"
    text = next(a.text for a in compile_.artifacts if a.pane == "guards")
    assert "# dropped: L['k'] == 3" in text
    compile(text, "guards.py", "exec")
    compiled(torch.ones(3), 4)
    assert len(record_of(compiled).compiles) == 2
    assert "L['x']" in record_of(compiled).compiles[-1].cause.guard


def test_a_filter_may_drop_all():
    compiled = cc.compile(scaled, backend="eager", guard_filter=lambda guards: [False] * len(guards))
    for n in (1, 2, 3):
        assert compiled(torch.ones(n)).tolist() == [7] * n
    (compile_,) = record_of(compiled).compiles
    assert all(g.dropped for g in compile_.guards)


@pytest.mark.parametrize("answer", [[], [1, 2, 3], [None] * 3])
def test_a_filter_with_a_wrong_result(answer):
    compiled = cc.compile(scaled, backend="eager", guard_filter=lambda guards: answer)
    with pytest.raises(UsageError, match="guard_filter"):
        compiled(torch.ones(1))


def test_a_filter_that_is_not_callable():
    with pytest.raises(UsageError, match="guard_filter"):
        cc.compile(scaled, guard_filter=[True])


# ---------------------------------------------------------------- a dispatcher


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = 2

    def forward(self, x, *, shift=1.0):
        return x * self.factor + shift


def stock(fn):
    torch._dynamo.reset()
    return torch.compile(fn, backend="eager", dynamic=False)


@pytest.mark.parametrize("compile_", [functools.partial(cc.compile, backend="eager", dynamic=False), stock])
@pytest.mark.parametrize("make", [Scaled, lambda: scaled], ids=["module", "function"])
def test_a_dispatcher_runs_the_code_that_was_chosen(compile_, make):
    plain = make()
    compiled = compile_(plain)
    short, long = torch.ones(2), torch.ones(3)
    compiled(short), compiled(long)
    dispatcher = cc.Dispatcher(compiled)
    assert len(dispatcher.compiled_codes) == 2
    assert [dispatcher.failing_guard(i, x) is None for i in (0, 1) for x in (short, long)] == [True, False, False, True]
    assert "size mismatch" in dispatcher.failing_guard(0, long)
    with dispatcher.dispatch_to_code(0):
        assert torch.equal(dispatcher(short), plain(short))
        with dispatcher.dispatch_to_code(1):
            assert torch.equal(dispatcher(long), plain(long))
        assert torch.equal(dispatcher(short), plain(short))
    assert torch.equal(dispatcher(long), plain(long))
    with pytest.raises(IndexError, match=r"there is no compile 2 of .*; it has 2"), dispatcher.dispatch_to_code(2):
        pass


@pytest.mark.parametrize("compile_", [cc.compile, stock])
def test_a_pinned_call_that_would_be_wrong_is_noticed(compile_):
    module = Scaled()
    compiled = compile_(module)
    x = torch.ones(2)
    compiled(x)
    dispatcher = cc.Dispatcher(compiled)
    module.factor = 5
    with dispatcher.dispatch_to_code(0):
        assert torch.equal(dispatcher(x), x * 2 + 1)  # wrong, as promised
    assert "factor" in dispatcher.failing_guard(0, x)
    assert torch.equal(dispatcher(x), x * 5 + 1)


def test_stock_compiles_can_be_pinned():
    compiled = stock(scaled)
    x = torch.ones(2)
    want = compiled(x)
    pinned = cc.pin(compiled)
    assert torch.equal(pinned(x), want)
    assert torch.equal(pinned(torch.ones(5)), torch.full((5,), 7.0))


@pytest.mark.parametrize("compile_", [cc.compile, stock])
def test_bound_methods_and_modules_are_pinned_with_what_they_are_bound_to(compile_):
    x = torch.ones(2)
    for plain in (Scaled(), Scaled().forward):
        compiled = compile_(plain)
        compiled(x)
        assert torch.equal(cc.pin(compiled)(x), x * 2 + 1)
        dispatcher = cc.Dispatcher(compiled)
        assert dispatcher.failing_guard(0, x) is None
        with dispatcher.dispatch_to_code(0) as call:
            assert torch.equal(call(x), dispatcher(x))


def test_a_stock_compile_with_a_break_cannot_be_pinned():
    def program(x):
        y = x + 1
        print(end="")
        return y * 2

    compiled = stock(program)
    compiled(torch.ones(2))
    with pytest.raises(UsageError, match="has a graph break; of stock, only whole graphs"):
        cc.pin(compiled)


def test_a_dispatcher_needs_a_compile():
    with pytest.raises(UsageError, match="scaled has no compile yet: call it first"):
        cc.Dispatcher(cc.compile(scaled))

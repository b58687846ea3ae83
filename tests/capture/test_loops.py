# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""Loops with a graph break inside: Python runs the loop, and its body is compiled as a function."""

from __future__ import annotations

import contextlib
import sys
import threading
import traceback
import types
from pathlib import Path

import pytest
import torch

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.bytecode import disassemble, verify
from compiler_core.resume.loop_functions import loop_code
from compiler_core.resume.resume_functions import VALUE, ResumeLayout
from compiler_core.tools.testing import check, same_as_eager
from tests.capture.loop_programs import made, noted, program_of, program_text
from tests.sampling import sample


def compiled(program):
    return cc.compile(program, backend="eager", strict=True)


def bodies(fn):
    """Returns the frames that were compiled, by their lines after the function's first one; all must be compiled."""
    root, *others = record_of(fn).frames
    assert all(c.outcome == "compiled" for f in (root, *others) for c in f.compiles)
    return {f.line - root.line: len(f.compiles) for f in others if f.calls}


# ---------------------------------------------------------------- counts of compiles


def printing(x, n):
    total = 0.0
    for i in range(n):
        x = (x * 1.5).sin() + i
        total += x.sum().item()
        print(end="")
    return x.cos(), total


def test_the_body_is_compiled_once_for_1000_rounds():
    fn = compiled(printing)
    for n in (1000, 10, 0):
        result, total = fn(torch.ones(3), n)
        expected, expected_total = printing(torch.ones(3), n)
        assert torch.equal(result, expected)
        assert total == expected_total
    # the second compile of the body is that with a symbolic `i`
    assert bodies(fn) == {3: 2, 5: 1, 6: 1}
    assert len(record_of(fn).frames[0].compiles) == 1  # for each number of rounds


def logging_layers(layers, x):
    log = []
    for layer in layers:
        x = torch.relu(layer(x))
        log.append(x.sum().item())
        print(end="")
    return x.sum(), log


def test_equal_layers_share_the_body():
    layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(12))
    fn = compiled(logging_layers)
    x = torch.ones(2, 4, requires_grad=True)
    torch.testing.assert_close(fn(layers, x), logging_layers(layers, x))
    assert bodies(fn)[3] == 1


def many_breaks(x, n):
    for i in range(n):
        print(end="")
        x = x.sin()
        print(end="")
        x = x.cos()
        print(end="")
        x = x + i
    return x


def test_many_breaks_stay_linear_and_do_not_nest():
    fn, depth = compiled(many_breaks), len(traceback.extract_stack())
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 160)
    try:
        result = fn(torch.ones(3), 300)
    finally:
        sys.setrecursionlimit(limit)
    assert torch.equal(result, many_breaks(torch.ones(3), 300))
    assert sum(bodies(fn).values()) <= 8


def sampling(x, n):
    tokens = []
    while len(tokens) < n:
        token = int((x * 3).sum()) % 7
        tokens.append(token)
        if token == 5:
            break
        x = (x + token).cos()
    else:
        tokens.append("end")
    return tokens, x


def test_a_loop_that_samples():
    fn = compiled(sampling)
    for start in range(5):
        x = torch.arange(4.0) + start
        result, expected = fn(x, 20), sampling(x, 20)
        assert result[0] == expected[0]
        assert torch.equal(result[1], expected[1])
    assert max(bodies(fn).values()) <= 4


@same_as_eager()
def test_lengths_in_conditions(x):
    kept, waiting = [], [3, 1, 2]
    while len(waiting) > 0:
        each = waiting.pop()
        if each == 1:
            continue
        print(each)
        x = x + each
        kept.append(x)
    while len(kept) < 5 and x.sum() < 900:
        x = x * 2
        print(len(kept))
        kept.append(x)
    else:
        kept.append("end")
    while len(kept) % 4:
        try:
            print("odd")
            kept.append(0)
            continue
        finally:
            kept.append(1)
    return x, kept, waiting


def nested(x, n):
    count = 0
    for i in range(n):
        x = x + i
        for j in range(n):
            x = x.sin() + j
            count += 1
            print(end="")
            if j == 2:
                break
        x = x.cos()
    return x, count


def test_the_body_of_a_nested_loop_is_a_function_in_one():
    fn = compiled(nested)
    for n in (4, 6):
        result, count = fn(torch.ones(3), n)
        assert torch.equal(result, nested(torch.ones(3), n)[0])
        assert count == nested(torch.ones(3), n)[1]
    assert max(bodies(fn).values()) <= 3


def changing(x, items):
    last = None
    for item in items:
        x = x + item
        print(end="")
        last = item
    return x, last


def test_a_local_that_changes_its_type_has_a_compile_of_each_type():
    fn = compiled(changing)
    for items in ([1, 2.0, torch.ones(3), 3, 4.0, torch.zeros(3), 5], [torch.ones(3, dtype=torch.int64)] * 4):
        result, last = fn(torch.ones(3), items)
        assert torch.equal(result, changing(torch.ones(3), items)[0])
        assert last is items[-1]
    assert bodies(fn)[3] <= 6


def test_what_follows_the_loop_is_one_graph():
    def program(x):
        for _ in range(2):
            x = x + 1
            print(end="")
        return x.sin().cos()

    fn = compiled(program)
    fn(torch.ones(3))
    last = record_of(fn).frames[2]
    assert [each.captured_graphs for each in last.compiles] != [[]]


# ---------------------------------------------------------------- all that Python promises


@same_as_eager()
def test_return_inside_with_and_try_blocks(x):
    log = []
    for i in made(6, log):
        with noted("a", log), torch.no_grad():
            try:
                print(i)
                if i == 2:
                    return x.sin(), log
            finally:
                log.append(i)
    return x


@same_as_eager()
def test_return_while_an_exception_is_handled(x):
    for i in range(3):
        try:
            print(i)
            if i:
                raise ValueError(i)
        except ValueError as error:
            y = x + i
            return y, str(error)
    return x


@same_as_eager()
def test_an_iterator_is_dropped_before_the_handler_around_the_loop(x):
    log, n = [], 0
    try:
        for i in made(6, log):
            n += i
            x = x + i
            print(i)
            if i == 3:
                raise ValueError
    except ValueError:
        log.append((n, i))
    return x, log


@same_as_eager()
def test_an_exception_leaves_the_locals_as_they_were(x):
    a = b = 0
    try:
        while True:
            a += 1
            y = x + a
            print(a)
            b = a
            if a == 3:
                del b
                raise KeyError(a)
    except KeyError:
        with contextlib.suppress(UnboundLocalError):
            return b
    return a, y


@same_as_eager()
def test_a_loop_in_a_handler(x):
    try:
        raise ValueError("first")
    except ValueError:
        for i in range(3):
            x = x + i
            print(i, repr(sys.exc_info()[1]))
            if i == 1:
                break
    print(sys.exc_info()[1])
    return x


@same_as_eager()
def test_a_raise_in_a_loop_in_a_handler(x):
    try:
        raise ValueError("first")
    except ValueError:
        for i in range(3):
            x = x + i
            print(i)
            if i == 1:
                raise


@same_as_eager()
def test_finally_around_and_inside(x):
    log = []
    try:
        for i in range(3):
            try:
                print(i)
                if i == 1:
                    continue
                x = x + i
            finally:
                log.append(i)
    finally:
        log.append("left")
    return x, log


@same_as_eager()
def test_locals_that_may_be_unbound(x):
    for i in range(3):
        if i == 1:
            late = x + i
        print(i)
        try:
            early  # noqa: F821
        except UnboundLocalError as error:
            print(error)
        if i == 2:
            early = late * 2
    return early, late


@same_as_eager()
def test_deleted_locals(x):
    a, b = x + 1, x + 2
    for i in range(3):
        print(i)
        if i == 1:
            del a
            continue
        b = b.sin()
    print(b)
    return a


@same_as_eager()
def test_targets_of_all_kinds(x):
    box, items, seen = types.SimpleNamespace(), [0, 0], []
    for box.x, items[1], (a, *b) in [(1, 2, (3, 4, 5)), (6, 7, (8,))]:
        x = x + box.x + items[1] + a
        seen.append(b)
        print(a)
    return x, box.x, items, seen


@same_as_eager()
def test_objects_stay_the_same(x):
    seen, same = [x], []
    y = x
    for i in range(3):
        same.append(y is x)
        print(i)
        seen.append(y)
        y = y if i else y + 1
    return seen, same, y is seen[-1]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts, self.log = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3)), []

    def forward(self, x):
        for i, part in enumerate(self.parts):
            x = super().__call__.__self__.parts[i](x) if i == 1 else part(x)
            self.log.append(x.detach().mean().item())
            print(i)
        return x


def test_super_and_attributes_of_a_module():
    torch.manual_seed(0)
    net = Net()
    fn = compiled(net)
    x = torch.ones(2, 4)
    assert torch.equal(fn(x), net(x))
    assert net.log[:3] == net.log[3:]


class Base:
    def scaled(self, x):
        return x * 2


class Derived(Base):
    def scaled(self, x):
        for i in range(3):
            x = super().scaled(x) + i
            print(i)
        return x


@same_as_eager()
def test_super_without_arguments(x):
    return Derived().scaled(x)


# ---------------------------------------------------------------- random programs


@pytest.mark.parametrize("seed", sample(range(30), 2))
def test_random_programs(seed):
    program = program_of(program_text(seed), f"<loops {seed}>")
    check(program, lambda: (torch.linspace(-1, 2, 4), 1))


# ---------------------------------------------------------------- what is seen from outside


def failing(x, n):
    for i in range(n):
        x = x + i
        print(end="")
        if i == 2:
            raise ValueError(
                f"round {i}",
            )
    return x


def test_tracebacks_name_the_lines_of_the_user():
    fn = compiled(failing)
    first = failing.__code__.co_firstlineno
    for _ in range(2):
        with pytest.raises(ValueError, match="round 2") as error:
            fn(torch.ones(3), 5)
        entries = [e for e in traceback.extract_tb(error.value.__traceback__) if e.filename == __file__]
        assert {e.name for e in entries} == {"test_tracebacks_name_the_lines_of_the_user", "failing"}
        assert entries[-1].lineno == first + 5


def test_threads_run_the_same_body():
    fn, found = compiled(printing), []
    threads = [threading.Thread(target=lambda n=n: found.append((n, fn(torch.ones(3), n)))) for n in (3, 30, 60)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 3
    for n, (result, total) in found:
        assert torch.equal(result, printing(torch.ones(3), n)[0])
        assert total == printing(torch.ones(3), n)[1]


def test_loops_of_libraries_run_as_plain_python():
    def program(net, x):
        return net(x + 1)

    conv = torch.nn.Conv1d(2, 2, 1)
    net = torch.nn.Sequential(conv, torch.nn.ReLU(), torch.nn.Linear(4, 4), torch.nn.Dropout(), torch.nn.BatchNorm1d(4))
    net[1].register_forward_pre_hook(torch._dynamo.disable(lambda module, args: None))
    fn = compiled(program)
    x = torch.ones(2, 4)
    assert torch.equal(fn(net.eval(), x), program(net, x))
    called = [f for f in record_of(fn).frames if f.kind == "called"]
    assert any("inside a loop" in c.reason for f in called for c in f.compiles)
    # the others do one operation each
    assert [Path(f.filename).name for f in called] == ["container.py", "batchnorm.py"]


# ---------------------------------------------------------------- the code objects


def left_in_two_ways(x, items, key):
    best = None
    for name, value in items:
        best = value if best is None else best
        if name == key:
            break
        if value < 0:
            return name
        seen = value
    return best, seen


def test_a_loop_function_calls_the_body_and_what_follows():
    code = left_in_two_ways.__code__
    body = disassemble(code)
    at = next(i for i, each in enumerate(body) if each.opname == "FOR_ITER")
    layout = ResumeLayout(at, (VALUE,), ("best", "key"), ())
    found = loop_code(code, layout, at + 1)
    for each in (found.code, *(part.code for part in found.parts)):
        verify(each)
    assert found.code.co_varnames[0] == "__arguments"
    assert found.parts[0].layout.names == ("best", "key", "name", "value")
    assert {part.layout.cells for part in found.parts[1:]} == {("seen",)}
    run = types.FunctionType(found.code, {})
    assert run([iter([("a", 1), ("b", 2), ("c", 3)]), None, "c"]) == (1, 2)
    assert run([iter([("a", 1), ("b", -2), ("c", 3)]), None, "c"]) == "b"
    with pytest.raises(UnboundLocalError, match="local variable 'seen'"):
        run([iter([]), None, "c"])

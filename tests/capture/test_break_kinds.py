# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""Where the graph breaks, and the kind of break; the program behaves as in Python before and after it.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

from __future__ import annotations

import contextlib
import math
import random
import threading
import time

import numpy as np
import pytest
import torch

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.capture import break_kinds as breaks
from compiler_core.tools.testing import Expected, break_kinds, check, same_as_eager

MADE: set[str] = set()
linear = torch.nn.Linear(3, 3)
lock = threading.Lock()


def breaking(*kinds, graphs=None, compiles=None, **more):
    """Tests a program that breaks with these kinds, among others; `test_every_kind_is_made` collects the kinds."""

    MADE.update(kinds)

    def decorate(program):
        def test():
            record = check(program, more.get("inputs"), Expected(graphs, compiles=compiles))
            assert set(kinds) <= set(break_kinds(record)), break_kinds(record)

        test.__name__ = program.__name__
        return test

    return decorate


@breaking("NumPy", inputs=lambda: (torch.ones(3),))
def test_numpy(x):
    return torch.from_numpy(np.sinc(x.numpy())) * 2 + np.histogram(x.numpy())[0].sum()


@breaking("inference mode", inputs=lambda: (torch.ones(3),))
def test_inference_mode(x):
    with torch.inference_mode():
        y = x * 2
    return y + 1


@breaking("assertion", graphs=2, compiles=2, inputs=lambda: (torch.ones(3),))
def test_assertion_on_a_tensor(x):
    y = x.sin()
    try:
        assert (y < 2).all(), "too large"
    except AssertionError:
        return y
    return y.cos()


@breaking("clock", inputs=lambda: (torch.ones(3),))
def test_clock(x):
    y = x.sin()
    return y * (time.time() > 0)


@breaking("lock", inputs=lambda: (torch.ones(3),))
def test_lock(x):
    y = x.sin()
    lock.acquire()
    try:
        return y * 2
    finally:
        lock.release()


@breaking("new parameter", inputs=lambda: (torch.ones(3),))
def test_a_module_that_is_made(x):
    layer = torch.nn.Linear(3, 2)
    torch.nn.init.ones_(layer.weight)
    torch.nn.init.ones_(layer.bias)
    return layer(x.sin())


@breaking("new optimizer", inputs=lambda: (torch.ones(3),))
def test_an_optimizer_that_is_made(x):
    y = x.sin()
    optimizer = torch.optim.SGD(linear.parameters(), 0.1)
    return y * optimizer.defaults["lr"]


@breaking("class statement", inputs=lambda: (torch.ones(3),))
def test_class_statement(x):
    y = x.sin()

    class Scale:
        by = 2

    return y * Scale.by


@breaking("requires_grad", inputs=lambda: (torch.ones(3),))
def test_requires_grad_of_a_local(x):
    y = (x * 2).detach()
    y.requires_grad_()
    return (y * y).sum()


class AddOne(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@breaking("in-place autograd.Function", inputs=lambda: (torch.ones(3),))
def test_in_place_autograd_function(x):
    return AddOne.apply(x.sin()[1:]).cos()


@breaking("data-dependent branch", graphs=2, compiles=2, inputs=lambda: (torch.ones(3),))
def test_branch_on_a_tensor(x):
    y = x.sin()
    if y.sum() > 0:
        y = y * 2
    else:
        y = y - 1
    return y.cos()


@breaking("distribution check", inputs=lambda: (torch.ones(3),))
def test_checked_distribution(x):
    try:
        return torch.distributions.Normal(x, x.exp(), validate_args=True).log_prob(x)
    except ValueError:
        return x


def registered(name, backward):
    """Returns an operator of a library that doubles a tensor, with this backward."""
    operator = torch.library.custom_op(
        f"breaks::{name}", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    operator.register_fake(torch.empty_like)
    if backward is not None:
        operator.register_autograd(backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
    return operator


def raise_error(ctx, gradient):
    raise ValueError("of the backward")


UNTRACEABLE = {
    "branch": lambda ctx, gradient: gradient * 2 if gradient.sum() > 0 else gradient * 3,
    "item": lambda ctx, gradient: gradient * ctx.saved_tensors[0].sum().item(),
    "tolist": lambda ctx, gradient: torch.stack([g * k for g, k in zip(gradient, [2, 3, 4])]) * len(gradient.tolist()),
    "indices": lambda ctx, gradient: torch.zeros(3).index_put(ctx.saved_tensors[0].nonzero().unbind(1), gradient[0]),
    "numpy": lambda ctx, gradient: torch.from_numpy(gradient.numpy() * 2),
    "error": raise_error,
    "none": None,
}


MADE.add("custom operator")


@pytest.mark.parametrize("name", UNTRACEABLE)
def test_backward_of_a_custom_operator(name):
    operator = registered(name, UNTRACEABLE[name])

    def program(x):
        return operator(x.sin()).cos() * 2

    compiled = cc.compile(program)
    results = []
    for run in (program, compiled):
        x = torch.linspace(0.5, 1, 3).requires_grad_()
        y = run(x)
        try:
            y.sum().backward()
        except (RuntimeError, ValueError) as error:
            results.append((y, type(error), str(error)[:40]))
        else:
            results.append((y, x.grad))
    torch.testing.assert_close(results[1][:1], results[0][:1])
    if name in ("error", "none"):
        assert results[1][1:] == results[0][1:]
    else:
        torch.testing.assert_close(results[1][1], results[0][1])
    found = [b.kind for c in record_of(compiled).compiles for b in c.breaks]
    assert found == ["custom operator"]
    assert not [f for c in record_of(compiled).compiles for f in c.failures]


DEFINED = torch.library.Library("breaks", "FRAGMENT")
DEFINED.define("defined(Tensor x) -> Tensor")
DEFINED.impl("defined", lambda x: x * 2, "CPU")
DECORATED = torch.library.custom_op(
    "breaks::decorated", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor"
)


@pytest.mark.parametrize("operator", [torch.ops.breaks.defined, DECORATED], ids=["defined", "decorated"])
def test_custom_operator_without_a_fake_implementation(operator):
    def program(x):
        return operator(x.sin()).cos()

    x = torch.ones(3)
    with cc.record() as record:
        torch.testing.assert_close(cc.compile(program)(x), program(x))
    (problem,) = (each for each in record.problems if each.kind == "graph break")
    assert (problem.title, problem.grade) == ("graph break: custom operator", "costly")
    assert "has no fake implementation" in problem.cause
    assert "Register a fake implementation" in problem.advice


@breaking("sparse tensor", graphs=1, compiles=2, inputs=lambda: (torch.eye(3).to_sparse(),))
def test_method_of_a_sparse_tensor(x):
    return x.to_dense() * 2


@breaking("checkpoint", graphs=2, compiles=2, inputs=lambda: (torch.randn(3, requires_grad=True),))
def test_checkpoint(x):
    return torch.utils.checkpoint.checkpoint(torch.relu_, x * 2, use_reentrant=False) + 1


@breaking("control flow", graphs=2, compiles=2, inputs=lambda: (torch.ones(3),))
def test_control_flow(x):
    return torch.cond(x.sum() > 0, lambda x: x[1:].sin(), lambda x: x.cos(), (x,)) + 1


@breaking("gradient hook", inputs=lambda: (torch.randn(3, requires_grad=True),))
def test_gradient_of_a_result(x):
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward()
    return y.grad * 3


@breaking("tensor value read", graphs=2, inputs=lambda: (torch.ones(2),))
def test_function_of_a_number(x):
    y = x * 2
    return y * math.sqrt(y.sum().item())


@breaking("tensor value read", graphs=2, compiles=2)
def test_item(x):
    n = int(x.sum())
    return x * 2, n


@same_as_eager()
def test_reads(x):
    y = x + 1
    a = float(y[0, 0])
    b = int(y[0, 1])
    c = y.tolist()
    d = bool(y[0, 0] > 0)
    e = y.numpy() * 2
    return a, b, c, d, torch.from_numpy(e), f"{y[0, 0]:.2f}", str(y.shape), len(str(y)), y.sum().item() + a


@breaking("print", graphs=2)
def test_print(x):
    y = x + 1
    print("shape", y.shape, y.sum() * 0)
    return y * 2


@breaking("print", "print")
def test_print_twice_with_pending_stack(x):
    return [x + 1, print("a"), {"k": x * 2, "p": print("b")}, x.shape]


@breaking("backward", inputs=lambda: (torch.randn(3, requires_grad=True),))
def test_backward(x):
    loss = (x.sin() ** 2).sum()
    loss.backward()
    return x.grad * 2


@breaking("gradient hook", inputs=lambda: (torch.randn(3, requires_grad=True),))
def test_gradient_kept(x):
    y = x * 2
    y.retain_grad()
    return y.sin()


@breaking("transform", inputs=lambda: (torch.ones(3),))
def test_transform_of_torch_func(x):
    torch.func.vmap(lambda row: row.mul_(2))(x)
    return x.cos()


@breaking("collective", "distributed tensor", inputs=lambda: (torch.ones(3),))
def test_other_ranks(x):
    with contextlib.suppress(Exception):  # there are none
        torch.distributed.barrier()
    with contextlib.suppress(Exception):
        x = torch.distributed.tensor.distribute_tensor(x).to_local()
    return x * 2


def _tagger():
    torch.manual_seed(0)
    return torch.nn.GRU(2, 3), torch.ones(4, 2, 2, requires_grad=True), torch.tensor([4, 2])


@breaking("packed sequence", inputs=_tagger)
def test_a_packed_sequence(rnn, x, lengths):
    packed = torch.nn.utils.rnn.pack_padded_sequence(x.cos(), lengths)
    padded, sizes = torch.nn.utils.rnn.pad_packed_sequence(rnn(packed)[0])
    return padded.sin() * sizes[None, :, None]


class Unnamed(torch.Tensor):
    """A class with its own kernels that does not name its inner tensor."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        result = func(*(each.inner if isinstance(each, cls) else each for each in args))
        return cls(result) if isinstance(result, torch.Tensor) else result


@breaking("tensor subclass", graphs=2, compiles=2, inputs=lambda: (Unnamed(torch.ones(3)), torch.ones(3)))
def test_a_tensor_with_its_own_kernels(unnamed, x):
    y = x.cos()
    both = unnamed * y
    return both.inner, y.sin()


@breaking("optimizer")
def test_a_gradient_scaler():
    scaler, x = torch.amp.GradScaler("cpu"), torch.ones(3, requires_grad=True)
    scaler.scale((x.sin() ** 2).sum()).backward()
    return x.grad / 2


@breaking("skipped function")
def test_standard_library(x):
    y = x + 1
    n = random.Random(3).random()
    return y * n


def with_messages(x):
    y = x + 1
    cc.graph_break(f"size {1 + 2}")
    torch._dynamo.graph_break("positional")
    torch._dynamo.graph_break(msg="by name")
    return y * 2


@pytest.mark.usefixtures("fresh_stock")
@pytest.mark.parametrize("engine", ["core", "torch"])
def test_the_message_of_a_graph_break(engine):
    compile_ = cc.compile if engine == "core" else torch.compile
    with cc.record(engine=engine) as record:
        compile_(with_messages, backend="eager")(torch.ones(3))
    explanations = [b.explanation for c in record.compiles for b in c.breaks]
    assert len(explanations) == 3
    for explanation, message in zip(explanations, ("size 3", "positional", "by name"), strict=True):
        assert message in explanation


@cc.disable
def plain(x, k=1):
    return x * k if x.sum() > 0 else x - k


@breaking("asked for", graphs=2)
def test_disabled_function(x):
    return plain(x + 1, k=3) + 2


@breaking("exception", graphs=1, compiles=1)
def test_raise(x):
    y = x + 1
    raise ValueError(f"bad {y.shape[0]}")


@same_as_eager()
def test_break_in_nested_loops(x):
    out = []
    for i in range(2):
        for j in (1, 2):
            if i == j:
                continue
            out.append(x * i + j)
            print(i, j)
        else:
            out.append(i)
    return out


@same_as_eager()
def test_break_in_comprehension(x):
    k = 3
    out = [print(i) or x * i + k for i in range(3)]
    return out, k


@breaking("unsupported call")
def test_unknown_method(x):
    y = x + 1
    return y, memoryview(b"ab").tolist()


@breaking("unsupported attribute")
def test_unknown_attribute(x):
    y = x + 1
    return y.data, y._version


@breaking("unsupported operation")
def test_unknown_operation(x):
    y = x + 1
    return y, b"ab"[y.device.index or 0 :] < memoryview(b"b")


@breaking("overlapping write")
def test_overlapping_write(x):
    y = x + 1
    return y.expand(2, *y.shape).masked_fill_(y > 0, 1.0)


@breaking("unsupported iteration")
def test_unknown_iteration(x):
    y = x + 1
    (a,) = memoryview(b"a")
    return y + a


@breaking("unsupported mutation", inputs=lambda: (torch.randn(3),))
def test_unknown_mutation(x):
    y = x + 1
    x.data = y
    return x + 1


several = ExceptionGroup("several", [ValueError(1)])


@breaking("unsupported instruction")
def test_unknown_instruction(x):
    y = x + 1
    try:
        raise several
    except* ValueError:
        y = y * 2
    return y


async def coroutine(x):
    return x


@breaking("generator")
def test_coroutine(x):
    y = x + 1
    c = coroutine(y)
    c.close()
    return y


@breaking("unroll limit")
def test_long_loop(x):
    y = x + 1
    n = sum(i for i in range(20_000))
    return y + n


def test_loop_says_so():
    def program(x):
        for i in range(2):
            x = x + i
            print(i, end="")
        return x

    record = check(program)
    assert all(c.outcome == "compiled" for c in record.compiles)
    assert breaks.in_a_loop(None, is_split=True) in record.compiles[0].breaks[0].explanation


WEIGHT = torch.nn.Parameter(torch.ones(3))
OPTIMIZER = torch.optim.SGD([WEIGHT], 0.1)


@breaking("optimizer", inputs=lambda: (torch.ones(3),))
def test_step_of_an_optimizer(x):
    y = x * 2
    OPTIMIZER.step()
    return y + WEIGHT


def test_every_kind_is_made():
    assert set(breaks.KINDS) - MADE == set()
    for kind in breaks.KINDS.values():
        assert kind.explanation.endswith(".")
        assert not kind.hint or kind.hint.endswith(".")


def test_full_graph_error():
    @cc.compile(backend="eager", fullgraph=True)
    def program(x):
        y = x + 1
        print(y)
        return y

    with pytest.raises(cc.errors.FullGraphError) as error:
        program(torch.ones(2))
    text = str(error.value)
    assert "print" in text
    assert "print(y)" in text
    assert f'File "{__file__}"' in text
    assert breaks.KINDS["print"].hint in text


def test_traceback_shows_the_users_lines():
    def callee(y):
        return y @ torch.ones(3, 7)  # the line that fails

    def program(x):
        y = x + 1
        print("", end="")
        z = y * 2
        return callee(z)  # the line that calls

    import traceback

    with pytest.raises(RuntimeError) as error:
        cc.compile(program, backend="eager", strict=True)(torch.ones(4, 4))
    frames = traceback.extract_tb(error.value.__traceback__)
    lines = [frame.line for frame in frames if frame.filename == __file__]
    assert [line.partition("#")[2] for line in lines[-2:]] == [" the line that calls", " the line that fails"]


@same_as_eager()
def test_dict_changed_while_iterating(x):
    d = {"a": 1}
    for k in d:
        d[k + "b"] = x
    return d


@same_as_eager(graphs=1, breaks=[], backend="cpp", tolerance=1e-5)
def test_functions_that_look_at_their_result(x):
    a = x @ x.T + 4 * torch.eye(4)
    return torch.linalg.solve(a, x).cos()


def test_an_error_of_fake_tensors_alone_is_not_the_programs():
    v, g = torch.rand(4, 3), torch.rand(4)
    with cc.record() as record:
        cc.compile(lambda: torch._weight_norm(v, g, 0), backend="eager")()
    (found,) = record.frames[0].compiles[0].breaks
    assert found.kind == "unsupported call"
    assert "PyTorch cannot run _weight_norm on fake tensors" in found.explanation


def test_errors_of_the_program_are_not_those_of_fake_tensors():
    """Also where only its history, which the trial on other tensors lacks, makes eager raise."""
    x, w = torch.ones(3), torch.ones(3, requires_grad=True)
    programs = (lambda: x.reshape(7), lambda: x @ torch.ones(4, 4), lambda: w.add_(1), lambda: w[:2].add_(1))
    for program in programs:
        with cc.record() as record, pytest.raises(RuntimeError):
            cc.compile(program, backend="eager")()
        assert break_kinds(record)[-1] == "exception"

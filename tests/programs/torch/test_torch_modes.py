# mypy: ignore-errors
# ruff: noqa
"""Programs under modes: grad, inference, autocast, defaults and flags; early return and exceptions through them.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import contextlib
import functools
import warnings

import pytest
import torch
import torch.nn as nn

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.tools.testing import break_kinds, graph_count, same_as_eager

one_graph = functools.partial(same_as_eager, graphs=1, breaks=[])


@torch.no_grad()
def without_gradients(x):
    return x * 2


@torch.enable_grad()
def with_gradients(x):
    return x * 3


@torch.set_grad_enabled(False)
def also_without(x):
    return x * 4


@one_graph(grad=True)
def test_grad_modes_as_decorators(x):
    return without_gradients(x), with_gradients(x), also_without(x), x * 5


@one_graph(grad=True)
def test_grad_mode_called_with_a_function(x):
    return torch.no_grad()(torch.sin)(x), torch.no_grad()(lambda t: t.cos())(x)


@torch.inference_mode()
def infer(x):
    return x * 2


@same_as_eager(
    graphs=2,
    breaks=["inference mode"] * 2 + ["unsupported call"],
)
def test_inference_mode_as_a_decorator(x):
    y = infer(x)
    return y.is_inference(), x + 1


@one_graph(grad=True)
def test_inference_mode_off(x):
    """It is off in the frame already, and gradients are on in it."""
    with torch.no_grad():
        with torch.inference_mode(False):
            y = x * 2
        z = x * 3
    return y, z, y.requires_grad, z.requires_grad


@same_as_eager(graphs=2, breaks=["print"], grad=True)
def test_a_break_with_inference_mode_off(x):
    with torch.no_grad():
        with torch.inference_mode(False):
            y = x * 2
            print(y.requires_grad)
            w = x * 4
        z = x * 3
    return y, w, z, y.requires_grad, w.requires_grad, z.requires_grad


@same_as_eager(graphs=3, breaks=["inference mode"] * 4)
def test_inference_mode_made_before(x):
    mode = torch.inference_mode()
    with mode:
        y = x * 2
    with mode:
        z = y.clone() + 1
    return y + 0, z.clone(), mode.mode


@same_as_eager(graphs=2, breaks=["inference mode"] * 3)
def test_an_exception_in_inference_mode(x):
    try:
        with torch.inference_mode():
            y = x * 2
            raise ValueError("in it")
    except ValueError as error:
        return y.clone(), torch.is_inference_mode_enabled(), str(error)


@same_as_eager(graphs=1, breaks=["inference mode"] * 2)
def test_inference_mode_decorates_in_the_frame(x):
    return torch.inference_mode(lambda t: t * 2)(x)


@one_graph(grad=True)
def test_generators_are_decorated_in_the_frame(x):
    @torch.no_grad()
    def parts(y):
        yield y * 2
        yield y * 3

    later = torch.set_grad_enabled(False)(torch.sin)
    return [part.requires_grad for part in parts(x)], (x * 4).requires_grad, later(x), later.__name__


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.GELU()).eval()


def test_called_in_inference_mode():
    net, x = network(), torch.randn(3, 4)
    compiled = cc.compile(net, backend="eager", strict=True)
    with torch.inference_mode():
        tensor = torch.randn(3, 4)
        assert torch.equal(compiled(tensor), net(tensor)) and compiled(tensor).is_inference()
        assert torch.equal(compiled(x), net(x)) and compiled(x).is_inference()
    assert not compiled(x).is_inference() and compiled(x).requires_grad
    with torch.no_grad():
        assert not compiled(x).is_inference() and torch.equal(compiled(tensor), net(tensor))
    record = record_of(compiled)
    assert break_kinds(record) == [] and graph_count(record) == len(record.compiles)


@pytest.mark.cpu
def test_grad_mode_is_restored_when_a_graph_fails():
    def pick(x, i):
        with torch.no_grad():
            return x[i]

    for backend in ("eager", "aot_eager"):
        compiled = cc.compile(pick, backend=backend, strict=True)
        assert torch.equal(compiled(torch.arange(3.0), torch.tensor([1])), torch.tensor([1.0]))
        with pytest.raises(IndexError):
            compiled(torch.arange(3.0), torch.tensor([7]))
        assert torch.is_grad_enabled()


# ---------------------------------------------------------------- autocast


@one_graph(inputs=lambda: (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Softmax(-1)), torch.randn(2, 4)))
def test_autocast_around_a_module(net, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return net(x)


# ---------------------------------------------------------------- defaults and flags


@one_graph()
def test_flags_are_read(x):
    facts = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(), torch.is_grad_enabled()
    more = torch.backends.mkldnn.enabled, torch.backends.cuda.matmul.allow_tf32, torch.is_inference_mode_enabled()
    return x + 1, facts, more, torch.cuda.is_available(), torch.get_float32_matmul_precision()


@one_graph()
def test_default_device(x):
    with torch.device("meta"):
        y = torch.ones(2)
    return y.device, x + 1


@same_as_eager(graphs=1, breaks=[], grad=True)
def test_exit_stack(x):
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        y = x * 2
    return y, x * 3


def doubled_and_one(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    scripted = torch.jit.script(doubled_and_one)


@torch.library.custom_op("cutaway_corpus::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


@same_as_eager(graphs=1, breaks=[])
def test_custom_operator(x):
    return twice(x + 1) + torch.ops.cutaway_corpus.twice(x)


@same_as_eager()
def test_gradients_turned_on_in_inference_mode(x):
    with torch.inference_mode():
        torch.set_grad_enabled(True)
        print("a break")
        on, y = torch.is_grad_enabled(), x * 2
        with torch.no_grad():
            print("another")
            off = torch.is_grad_enabled()
        return on, off, torch.is_grad_enabled(), y.requires_grad, y.is_inference()

# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""What ``torch.compiler.set_stance`` sets holds for our compiler as for stock's: which calls are compiled, and fail."""

from __future__ import annotations

import pytest
import torch

import compiler_core
from compiler_core.api.compiled import record_of
from compiler_core.errors import RecompileError


class Counter:
    """A backend that counts its graphs."""

    graphs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1
        return graph


class BreaksOnce(torch.nn.Module):
    def forward(self, x):
        y = x * 2
        torch._dynamo.graph_break()
        return called(y)


def called(x):
    return x.sin() + torch.compiler.is_dynamo_compiling()


def times(x, n):
    return x.cos() * n + torch.compiler.is_dynamo_compiling()


def outcomes(compile_, stance, first_calls):
    """The result of each call with a stance, or the kind of error, and how many graphs were compiled until then."""
    # stock counts first calls by the line of the function, and resets no count
    torch._dynamo.eval_frame._EXAMPLE_INPUTS = None
    torch.compiler.reset()
    backend, found = Counter(), []
    module, function = compile_(BreaksOnce(), backend=backend), compile_(times, backend=backend)

    def call(fn, *args):
        try:
            found.append((fn(*args).tolist(), backend.graphs))
        except RuntimeError as error:
            found.append(("fail_on_recompile" in str(error), backend.graphs))

    if first_calls:
        call(module, torch.ones(3))
        call(function, torch.ones(3), 2)
    with torch.compiler.set_stance(stance):
        for size in (3, 4, 5):
            call(module, torch.ones(size))
            call(function, torch.ones(size), 2)
            call(function, torch.ones(size), 3)
    call(module, torch.ones(7))
    call(function, torch.ones(7), 5)
    return found


STANCES = [("eager_then_compile", False)]  # stock does not count calls before this stance
STANCES += [(each, called) for each in ("force_eager", "eager_on_recompile", "fail_on_recompile") for called in (0, 1)]


@pytest.mark.parametrize(("stance", "first_calls"), STANCES)
def test_like_stock(stance, first_calls):
    assert outcomes(compiler_core.compile, stance, first_calls) == outcomes(torch.compile, stance, first_calls)


def test_the_error_says_what_differs():
    compiled = compiler_core.compile(times, backend="eager")
    compiled(torch.ones(3), 2)
    with torch.compiler.set_stance("fail_on_recompile"):
        compiled(torch.ones(3), 2)
        with pytest.raises(RecompileError, match=r"times .*The size of x in dimension 0 is 4; compile 0/0 .* for 3"):
            compiled(torch.ones(4), 2)


def test_another_backend_is_not_forced():
    compiled = compiler_core.compile(times, backend="eager")
    with torch.compiler.set_stance(force_backend="aot_eager"):
        compiled(torch.ones(3), 2)
    assert any("force_backend" in note for note in record_of(compiled).notes)

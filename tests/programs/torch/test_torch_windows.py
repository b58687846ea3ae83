# mypy: ignore-errors
# ruff: noqa
"""Views by ``as_strided``: their place counts from the start of the memory, of which a tensor may show only a part."""

import random

import pytest
import torch

import compiler_core
from tests.sampling import pairs

pytestmark = pytest.mark.cpu

MEMORY = torch.randn(40)

SOURCES = {
    "all of an input": lambda x: x,
    "a part of an input": lambda x: x[2:],
    "what the graph makes": lambda x: x * 2,
    "a part of what the graph makes": lambda x: (x * 2)[3:],
    "columns": lambda x: (x * 2).view(5, 4).t(),
    "a result of a call": lambda x: x.sort().values,
}
INPUTS = {"at the start": MEMORY[:20], "in the middle": MEMORY[15:35], "alone": torch.randn(20)}


def outcome(fn, *args):
    try:
        result = fn(*args)
        result.sum().backward()
        grad = args[0].grad.clone()
    except RuntimeError as error:
        return str(error)
    finally:
        args[0].grad = None
    return [result.detach().tolist(), grad.tolist()]


@pytest.mark.filterwarnings("ignore::compiler_core.RefusalWarning")
@pytest.mark.parametrize(("source", "backend"), pairs(SOURCES, ["aot_eager", None], 3))
def test_windows(source, backend):
    make, rng = SOURCES[source], random.Random(source)
    for _ in range(4):
        size, stride = [rng.randrange(1, 4) for _ in range(2)], [rng.randrange(5) for _ in range(2)]
        start = rng.choice([None, 0, rng.randrange(12), rng.randrange(30)])

        def window(x):
            return torch.as_strided(make(x), size, stride, start) * 2

        compiled = compiler_core.compile(window, backend=backend)
        for name in [*INPUTS, "at the start"]:
            x = INPUTS[name].detach().requires_grad_()
            want = outcome(window, x)
            assert outcome(compiled, x) == want, (name, size, stride, start)


@pytest.mark.filterwarnings("ignore::compiler_core.RefusalWarning")
@pytest.mark.parametrize("source", SOURCES)
def test_an_unused_window_outside_of_the_memory(source):
    def program(x):
        try:
            torch.as_strided(SOURCES[source](x), (2, 2), (1, 2), 40)
        except RuntimeError:
            return x + 100
        return x + 1

    x = torch.ones(20)
    assert torch.equal(compiler_core.compile(program)(x), x + 100)

"""Random programs with sizes that data decide: values, gradients, arguments and random numbers are eager PyTorch's."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.api.compile import record_of
from tests.sampling import sample

STEPS = [
    "{o} = {a}[torch.arange({a}.shape[0]) % 3 != 1]",
    "{o} = {a}[{a}[:, 0] > 0]",
    "{o} = {a}[:n]",
    "{o} = {a}[({a}.sum(1) > -1).nonzero().flatten()]",
    "{o} = {a}[{a}.argsort(0)[:, 0]]",
    "{o} = {a}.repeat_interleave(2, 0)",
    "{o} = {a}.index_select(0, torch.arange({a}.shape[0]) // 2)",
    "with torch.no_grad():\n        k = ({a} > 0).any(1)\n    {o} = {a}[k] * 3",
    "{a}[{a} > 1] = 0.5; {o} = {a} * 1",
    "{a}.mul_(1.5); {o} = {a} + 1",
    "{o} = {a}.clone(); {o}.add_({o}.sum())",
    "{o} = torch.cat([{a}, {b}])",
    "{o} = {a} - {a}.mean(0)",
    "{o} = {a}.relu() + {a}.sum()",
    "{o} = {a}.softmax(-1)",
    "{o} = {a}.sort(0)[0]",
    "{o} = {a}.cumsum(0)",
    "{o} = {a} @ w",
    "{o} = {a}.flip(0)",
    "{o} = {a}[1:]",
    "{o} = {a}.t().contiguous().t()",
    "{o} = {a}[None].expand(2, -1, 3).reshape(-1, 3)",
    "{o} = torch.nn.functional.dropout({a}, 0.4)",
    "{o} = {a} / ({a}.shape[0] + 1)",
    "{o} = torch.where({a} > 0, {a}, {a}.sum())",
]
"""Statements that make a tensor of rows of three, ``{o}``, of others."""


def random_program(seed: int) -> str:
    rng, known, lines = random.Random(seed), ["x", "y"], ["n = int(m.sum())"]
    for i in range(rng.randint(3, 7)):
        lines.append(rng.choice(STEPS).format(a=rng.choice(known), b=rng.choice(known), o=f"t{i}"))
        known.append(f"t{i}")
    results = rng.sample(known, 3)
    lines.append(f"return {', '.join(results)}, {results[-1]}.shape[0], f'{{{results[0]}.shape}}'")
    return "def program(x, y, m, w):\n    " + "\n    ".join(lines)


def outcome(program: Callable[..., Any], tensors: dict[str, torch.Tensor], grad: bool) -> list[Any]:
    """Returns what the program returns or raises, its arguments after it, their gradients and the random state."""
    leaves = {name: tensors[name].clone().requires_grad_(grad) for name in "xy"}
    arguments = {name: leaf * 1 if grad else leaf for name, leaf in leaves.items()}
    torch.manual_seed(5)
    try:
        results = list(program(*arguments.values(), tensors["m"], tensors["w"]))
    except (IndexError, RuntimeError) as error:
        return [type(error)]
    wanted = [each.sum() for each in results if isinstance(each, torch.Tensor) and each.requires_grad]
    if wanted:
        torch.stack(wanted).sum().backward()
    after = [each.detach() for each in arguments.values()]
    return [*results, *after, *(leaf.grad for leaf in leaves.values()), torch.get_rng_state()]


@pytest.mark.parametrize("seed", sample(range(240), 48))
def test_random_programs(seed: int) -> None:
    text, scope = random_program(seed), dict[str, Any]({"torch": torch})
    exec(text, scope)
    backend, grad = ("cpp", "aot_eager", "eager")[seed % 3], bool(seed % 2)
    compiled = compiler_core.compile(scope["program"], backend=backend)
    for i in range(4):
        draw = torch.Generator().manual_seed(seed * 10 + i)
        tensors = {name: torch.randn(rows, 3, generator=draw) for name, rows in (("x", 8), ("y", 5), ("w", 3))}
        tensors["m"] = torch.arange(8) % (i + 2) != 1 if i < 3 else torch.zeros(8, dtype=torch.bool)
        want, got = outcome(scope["program"], tensors, grad), outcome(compiled, tensors, grad)
        others = [[each for each in found if not isinstance(each, torch.Tensor)] for found in (got, want)]
        assert others[0] == others[1], text
        values = [[each for each in found if isinstance(each, torch.Tensor)] for found in (got, want)]
        torch.testing.assert_close(*values, rtol=1e-4, atol=1e-5, equal_nan=True, msg=text)
    failures = [each.message for compile_ in record_of(compiled).compiles for each in compile_.failures]
    assert all("shares memory with another input" in each for each in failures), (failures, text)

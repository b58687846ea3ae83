"""What a captured graph says of each value, its fake one, beside the value that the graph computes when it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.fx as fx

import compiler_core
from compiler_core.tools.testing import observe
from tests.sampling import sample
from tests.sweeps.snippets.corpus import all_programs

PROGRAMS = all_programs()


def run_checked(module: fx.GraphModule, wrong: list[str], *inputs: Any) -> Any:
    """Runs a graph, and notes values whose sizes, strides or dtype are others than those of their fake values.

    They are compared at the end, since an operation in place such as ``t_`` changes fake values, too.
    """
    run = fx.Interpreter(module, garbage_collect_values=False)
    result = run.run(*inputs)
    for node, real in run.env.items():
        if node.op.startswith("call"):
            wrong += [f"{node.format_node()}: {text}" for text in differences(node.meta.get("val"), real)]
    return result


def differences(fake: Any, real: Any) -> list[str]:
    """Returns in what a value differs from its fake one; symbols may be any number."""
    if isinstance(fake, (list, tuple)) and isinstance(real, (list, tuple)):
        if len(fake) != len(real):
            return [f"{len(real)} results, not {len(fake)}"]
        return [text for pair in zip(fake, real, strict=True) for text in differences(*pair)]
    if not isinstance(fake, torch.Tensor) or not isinstance(real, torch.Tensor) or fake.layout is not torch.strided:
        return []
    facts = {
        "dimensions": ([fake.dim()], [real.dim()]),
        "size": (fake.shape, real.shape),
        "stride": (fake.stride() if all(n != 1 for n in real.shape) and real.numel() else (), real.stride()),
        "dtype": ([fake.dtype], [real.dtype]),
    }
    return [
        f"{name} {list(found)}, not {list(expected)}"
        for name, (expected, found) in facts.items()
        if any(isinstance(a, (int, torch.dtype)) and a != b for a, b in zip(expected, found, strict=False))
    ]


@pytest.mark.parametrize("name", sample(PROGRAMS, 12))
@pytest.mark.filterwarnings("ignore")
def test_fake_results_are_like_real_ones(name: str) -> None:
    wrong: list[str] = []

    def backend(module: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        return functools.partial(run_checked, module, wrong)

    program = PROGRAMS[name]
    observe(compiler_core.compile(program.function, backend=backend), program.inputs, 0, program=program.function)
    assert not wrong

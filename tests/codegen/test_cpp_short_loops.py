"""C++ kernels whose loops of a few iterations are unrolled (`loops/schedule/unrolling.py`), beside eager."""

from __future__ import annotations

import pytest
import torch

import compiler_core

NAN, INF = float("nan"), float("inf")


def results(x: torch.Tensor, w: torch.Tensor, index: torch.Tensor) -> list[torch.Tensor]:
    """Reductions of x [n, 3, 5] over each of its sizes, what follows them, and loops over a last index of 3."""
    half = x.to(torch.bfloat16)
    return [
        x.sum(1), x.mean(-1), x.prod(1), x.amax(1), x.amin(-1), x.argmax(1), x.var(1), (x > 0).any(1), (x < 9).all(-1),
        torch.softmax(x, 1), torch.logsumexp(x[:, :, 0], -1), (x[:, :, 0] * w + w).relu(), half.sum(1), half.amax(-1),
        x.to(torch.int32).sum(1), torch.maximum(x[:, 0], x[:, 1]), torch.minimum(x[:, 1], x[:, 0]),
        torch.nn.functional.embedding(index, x[:, 0]).sum(1),
        torch.stack([x[:, 0], x[:, 1]], -1), x.double().sum(-1) / x.double().amax(-1),
    ]  # fmt: skip


def test_unrolled_loops_have_eagers_values() -> None:
    torch.manual_seed(0)
    x = torch.randn(40, 3, 5)
    x[3, 1, 2], x[4, 0, 1], x[5, 2, 4], x[6] = NAN, INF, -INF, -0.0
    w, index = torch.randn(3), torch.randint(40, (40, 4))
    with compiler_core.record() as record:
        found = compiler_core.compile(results)(x, w, index)
    for number, (actual, expected) in enumerate(zip(found, results(x, w, index), strict=True)):
        torch.testing.assert_close(actual, expected, equal_nan=True, msg=lambda text, n=number: f"result {n}: {text}")
    kernels = "".join(a.text for f in record.frames for c in f.compiles for a in c.artifacts if a.language == "cpp")
    assert "sum_1_1" in kernels, "no loop was unrolled"


@pytest.mark.parametrize("stored", ["x > 0", "(x * 9).to(torch.int8)"])
def test_a_kernel_that_stores_bytes_keeps_its_pointers_in_registers(stored: str) -> None:
    """If they are captured by reference, each such store may change them, and g++ does not vectorise the loop."""
    program = eval(f"lambda x: ({stored}, torch.exp(x).sum(-1))", {"torch": torch})
    with compiler_core.record() as record:
        compiler_core.compile(program)(torch.randn(64, 100))
    (text,) = (a.text for f in record.frames for c in f.compiles for a in c.artifacts if a.language == "cpp")
    assert "[&, in_" in text

"""Bytes and operations of kernels, resources of their machine code, and lower bounds of their times."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import compiler_core
from compiler_core.codegen.source import targets
from compiler_core.errors import UsageError
from compiler_core.records import Compile, Device, Kernel
from compiler_core.tools.roofline import PEAKS, roofline, table

X = torch.randn(64, 128)


def compiled(program: object, target: str | None = None) -> Compile:
    with compiler_core.record() as record:
        compiler_core.compile(program, strict=True, target=target)(X)
    (result,) = record.compiles
    return result


def test_bytes_and_operations() -> None:
    (kernel,) = compiled(lambda x: (x + 1) * 2).kernels
    assert (kernel.bytes_read, kernel.bytes_written) == (X.nbytes, X.nbytes)
    assert kernel.operations == 2 * X.numel()
    (kernel,) = compiled(lambda x: (x * x).sum(1).neg()).kernels
    assert (kernel.bytes_read, kernel.bytes_written) == (X.nbytes, 64 * 4)
    assert kernel.operations == 2 * X.numel() + 64, "squares and sums for each element, a sign for each row"


ROWS = torch.tensor([3, 1])


def test_bytes_are_those_of_the_elements_that_are_accessed() -> None:
    row = X.shape[1] * X.itemsize
    programs: list[tuple[Callable[[torch.Tensor], torch.Tensor], int, int]] = [
        (lambda x: x[:8].cos(), 8 * row, 8 * row),
        (lambda x: x[:8, 0] > 0, 8 * 4, 8),
        (lambda x: x[:4] + x[:1], 5 * row, 4 * row),  # at most: the first row is read twice
        (lambda x: torch.nn.functional.embedding(ROWS, x).cos(), 2 * row + ROWS.nbytes, 2 * row),
        (lambda x: x[:2] @ x[:4].T, 6 * row, 2 * 4 * 4),
        (lambda x: x.cos() + x.sin(), X.nbytes, X.nbytes),
    ]
    for program, read, written in programs:
        (kernel,) = compiled(program).kernels
        assert (kernel.bytes_read, kernel.bytes_written) == (read, written)


def test_bounds() -> None:
    assert set(PEAKS) == set(targets())
    kernel = Kernel("forward.0", "forward_0", "triton", "forward", None, 4_800_000, 4_800_000, operations=33_500_000)
    found = roofline(kernel, "sm_90")
    assert (found.memory_ns, found.arithmetic_ns, found.bound, found.ns, found.share) == (
        2000,
        1000,
        "memory",
        2000,
        None,
    )
    kernel.operations, kernel.time_ns = 134_000_000, 5000.0
    found = roofline(kernel, "sm_90")
    assert (found.bound, found.ns, found.share) == ("arithmetic", 4000, 0.8)
    with pytest.raises(UsageError, match=r"unknown target 'sm_1'; known are cpu, .*sm_75"):
        roofline(kernel, "sm_1")
    kernel.bytes_read = None
    with pytest.raises(UsageError, match="does not have the bytes that forward_0 reads"):
        roofline(kernel, "sm_90")


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_resources(target: str) -> None:
    result = compiled(lambda x: (x.softmax(1), x.sum(0)), target)
    assert {r.kernel for r in result.resources} >= {"forward_0"}
    assert all(r.target == target and 0 < r.registers < 256 and r.spilled_bytes == 0 for r in result.resources)


def test_a_device_that_was_measured_and_the_table() -> None:
    here = Device("cpu", "this machine", 10.0, 100.0)
    kernel = Kernel("forward.0", "forward_0", "cpp", "forward", None, 5_000, 5_000, 4000.0, 1_000, "cpu")
    assert (roofline(kernel, here).ns, roofline(kernel, here).share) == (1000, 0.25)
    assert roofline(kernel, "sm_90").share is None, "it was timed elsewhere"
    result = compiled(lambda x: x.sin() @ x.t())
    result.kernels += [kernel]
    head, titles, *rows = table(result, here).splitlines()
    assert head.endswith("on this machine: 10 GB/s, 100 billion additions a second")
    assert titles.split()[0] == "kernel"
    assert len(rows) == 3
    assert any(row.startswith("forward forward_0") and row.endswith(" 4.00      25%") for row in rows)
    product = next(k for k in result.kernels if k.language == "extern")
    assert product.operations == 2 * 64 * 64 * 128

"""Inputs like those that a program was captured with: random, and where a tensor holds positions, in range."""

from __future__ import annotations

import torch

from compiler_core.loops import ir
from compiler_core.support.size_expr import hint

WHOLE = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})


def random_tensor(
    size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, device: str, below: int = 1
) -> torch.Tensor:
    """Random numbers; whole ones from 0 on, less than `below`."""
    extent = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if all(size) else 0
    below = 2 if dtype is torch.bool else below
    made = torch.randn(extent) if dtype.is_floating_point or dtype.is_complex else torch.randint(below, (extent,))
    return made.to(dtype).to(device).as_strided(size, stride)


def below_of(program: ir.Program, name: str) -> int:
    """What the numbers in a buffer must be less than where loops take them as positions; else 1, so that they are 0,
    which is in range of whatever PyTorch's own kernels may look up."""
    sizes = [hint(p.size) for s in program.steps if isinstance(s, ir.Loops) for p in _positions(s, name)]
    return max(1, min(sizes, default=1))


def _positions(loops: ir.Loops, buffer: str) -> list[ir.Position]:
    """The positions that depend on what is loaded from `buffer`."""
    from_it: set[ir.Argument] = set()
    found = []
    for s in loops.body:
        if (isinstance(s, ir.Load) and s.buffer == buffer) or from_it.intersection(s.arguments):
            from_it.update(() if isinstance(s, ir.Store) else (s.name,))
            found += [s] if isinstance(s, ir.Position) else []
    return found

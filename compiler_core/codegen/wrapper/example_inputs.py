"""Random inputs like those that a program was captured with; tensors that contain positions are in range."""

from __future__ import annotations

import torch

from compiler_core.loops import ir
from compiler_core.support.size_expr import hint

INTEGER_DTYPES = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})


def random_tensor(
    size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, device: str, below: int = 1
) -> torch.Tensor:
    """Returns a tensor of random numbers; integers are from 0 to `below` - 1."""
    extent = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if all(size) else 0
    below = 2 if dtype is torch.bool else below
    memory = torch.randn(extent) if dtype.is_floating_point or dtype.is_complex else torch.randint(below, (extent,))
    return memory.to(dtype).to(device).as_strided(size, stride)


def index_bound(program: ir.Program, name: str) -> int:
    """Returns the exclusive upper bound of a buffer's integers, if loops use them as positions.

    Otherwise returns 1, so that they are 0, which is in range for PyTorch's kernels too.
    """
    sizes = [hint(p.size) for s in program.steps if isinstance(s, ir.Loops) for p in _positions(s, name)]
    return max(1, min(sizes, default=1))


def _positions(loops: ir.Loops, buffer: str) -> list[ir.Position]:
    """Returns the positions that depend on values loaded from `buffer`."""
    from_it: set[ir.Argument] = set()
    found = []
    for s in loops.body:
        if (isinstance(s, ir.Load) and s.buffer == buffer) or from_it.intersection(s.arguments):
            from_it.update(() if isinstance(s, ir.Store) else (s.name,))
            found += [s] if isinstance(s, ir.Position) else []
    return found

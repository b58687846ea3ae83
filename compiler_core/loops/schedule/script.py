"""A schedule: the rewrites that make a kernel's nest, applied one by one, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from compiler_core.loops import ir
from compiler_core.loops.ir.nest import Nest, naive
from compiler_core.loops.schedule import gpu_rewrites, rewrites

_CPU = (
    *(rewrites.split, rewrites.cut, rewrites.reorder, rewrites.distribute, rewrites.hoist, rewrites.keep),
    *(rewrites.partial, rewrites.vectorize, rewrites.jam, rewrites.parallelize),
)
_GPU = (
    *(gpu_rewrites.fuse, rewrites.split, gpu_rewrites.programs, gpu_rewrites.block, gpu_rewrites.stages),
    gpu_rewrites.warps,
)
REWRITES: dict[str, Callable[..., Nest]] = {f.__name__: f for f in (*_CPU, *_GPU)}
"""All rewrites, by name."""
WRITABLE = {"cpp": [f.__name__ for f in _CPU], "triton": [f.__name__ for f in _GPU]}
"""The names of the rewrites that kernels may have, by their language."""


@dataclass(frozen=True)
class Rewrite:
    """One rewrite: its text, such as ``split(i0, 256)``, why it was chosen, and the nest after it."""

    text: str
    reason: str
    nest: Nest


class Schedule:
    """The rewrites of one kernel, in order."""

    def __init__(self, loops: ir.Loops) -> None:
        self.loops = loops
        self.start = naive(loops)
        self.rewrites: list[Rewrite] = []

    @property
    def nest(self) -> Nest:
        """The nest after all rewrites."""
        return self.rewrites[-1].nest if self.rewrites else self.start

    def apply(self, name: str, *args: Any, reason: str = "", **options: Any) -> None:
        """Applies a rewrite; raises UsageError, with the reason, if it is not legal."""
        nest = REWRITES[name](self.nest, *args, **options)
        given = [*map(str, args), *(f'{key}="{value}"' for key, value in options.items())]
        self.rewrites.append(Rewrite(f"{name}({', '.join(given)})", reason, nest))

    def apply_if_changed(self, name: str, *args: Any, reason: str) -> None:
        """Applies a rewrite, which is not recorded if the nest stays the same."""
        before = self.nest
        self.apply(name, *args, reason=reason)
        if self.nest == before:
            self.rewrites.pop()

    def text(self) -> str:
        """Returns the naive nest, then each rewrite with its reason and the nest after it."""
        parts = [f"{f'{r.text}   # {r.reason}' if r.reason else r.text}\n{r.nest.text()}" for r in self.rewrites]
        return "\n".join([self.start.text(), *parts])

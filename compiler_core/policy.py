"""Which sizes and numbers are symbolic: those that were seen to differ from one compile to the next."""

from __future__ import annotations

from typing import Any

import torch

from compiler_core.sources import Attribute, Source


class Policy:
    """What the compiles of one code object were given, by source.

    `dynamic` True: every size is symbolic at once; False: none ever is; None: a size or number is from its
    second value on.
    """

    def __init__(self, dynamic: bool | None) -> None:
        self.dynamic = dynamic
        self._sizes: dict[str, list[int | None]] = {}
        self._numbers: dict[str, Any] = {}

    def sizes(self, real: torch.Tensor, source: Source) -> list[bool]:
        """Of each dimension of the tensor at `source`, whether it is symbolic."""
        if self.dynamic is False or _belongs_to_module(real, source):
            return [False] * real.dim()
        if self.dynamic:
            return [True] * real.dim()
        known = self._sizes.get(source.text)
        if known is None or len(known) != real.dim():
            known = list(real.shape)
        merged = [old if old == new else None for old, new in zip(known, real.shape, strict=True)]
        self._sizes[source.text] = merged
        return [size is None for size in merged]

    def number(self, value: int, source: Source) -> bool:
        """Whether the number at `source` is symbolic."""
        if self.dynamic is False:
            return False
        known = self._numbers.setdefault(source.text, value)
        if known is not None and known != value:
            self._numbers[source.text] = None
        return self._numbers[source.text] is None and value not in (0, 1)


def _belongs_to_module(real: torch.Tensor, source: Source) -> bool:
    """Whether it is a parameter or buffer, whose sizes do not change."""
    table = source.table if isinstance(source, Attribute) else None
    return isinstance(real, torch.nn.Parameter) or table in ("_parameters", "_buffers")

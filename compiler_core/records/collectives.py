"""Collectives of `torch.distributed` that ran, in compiled code or not, in their order."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Collective:
    """One call of a collective."""

    name: str
    """PyTorch's name of the operator, without a final underscore: ``allreduce``."""
    tensors: list[str] = field(default_factory=list)
    """Type and shape of each tensor that this rank passed: ``float32[8, 512]``."""
    ranks: int = 0
    """How many ranks take part; 0 if that is not known."""
    filename: str = ""
    """The innermost line of Python that is not PyTorch's; empty if there was none."""
    line: int = 0
    text: str = ""
    """The text of the line."""

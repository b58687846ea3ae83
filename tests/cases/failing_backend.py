"""A backend that counts as ours, whose graphs fail after they have run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx

__name__ = "compiler_core.failing_backend"  # what a function of the program raises is not our failure


def fails(gm: fx.GraphModule, *_: Any) -> Callable[..., Any]:
    def run(*inputs: torch.Tensor) -> Any:
        gm(*inputs)
        raise ArithmeticError("made wrong")

    return run

"""Random tensor programs, called with differing sizes: the second compile has symbolic sizes."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tests.sweeps.fuzz import tensor_programs
from tests.sweeps.fuzz.run import load
from tests.sweeps.fuzz.tensor_grammar import WEIGHTS

GROUPS = ("", "", "sizes", "sizes", *WEIGHTS)
"""The group of forms that most lines of a program are from; most often none, or arguments that are sizes."""


@dataclass(frozen=True)
class Drawn:
    """A random tensor program."""

    seed: int

    def text(self) -> str:
        return f"drawn_{self.seed}"

    @staticmethod
    def parsed(text: str) -> Drawn:
        return Drawn(int(text.removeprefix("drawn_")))

    @functools.cached_property
    def source(self) -> str:
        draw = random.Random(self.seed)
        text = tensor_programs.written(draw, draw.choice(GROUPS))
        return text.replace("device=DEVICE", "device=a0.device")

    def module(self) -> Any:
        return load(self.source)

    @property
    def dynamic(self) -> bool | None:
        """The option ``dynamic`` of a compile."""
        return True if self.seed % 2 or self.source.count("def call_") == 1 else None

    def calls(self) -> list[Callable[[], list[torch.Tensor]]]:
        """Returns what makes the arguments of each call."""
        module = self.module()
        return [functools.partial(_arguments, make, module.GRAD) for make in module.CALLS]


def _arguments(make: Callable[[], tuple[torch.Tensor, ...]], grad: bool) -> list[torch.Tensor]:
    return [t.requires_grad_(grad and t.is_floating_point()) for t in make()]


def endless(seed: int) -> Iterator[Drawn]:
    """Yields random programs without end."""
    draw = random.Random(seed)
    while True:
        yield Drawn(draw.randrange(10**6))

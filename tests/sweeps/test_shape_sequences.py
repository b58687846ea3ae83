"""Some random sequences of shapes take no more compiles than stock torch.compile; ``make shapes`` runs many."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch

from tests.sampling import sample
from tests.sweeps.shape_sequences import PROGRAMS, compare, sequence


@pytest.fixture(autouse=True)
def _stock_forgets() -> Iterator[None]:
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("at", sample(range(len(PROGRAMS)), 3), ids=[p.__name__ for p in PROGRAMS])
def test_a_sequence_of_shapes(at: int) -> None:
    ours, stock = compare(PROGRAMS[at], sequence(random.Random(at)))
    assert 0 < ours <= stock

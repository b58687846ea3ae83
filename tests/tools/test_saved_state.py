"""Tests of saved state: everything that functions can reach is restored in place."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from compiler_core.tools.timing.saved_state import SavedState

COUNT = 0
NAMES: dict[str, Any] = {"a": [1]}


class Holder:
    """An object with attributes, slots in a base class, and a class attribute."""

    made = 0

    def __init__(self) -> None:
        self.values = [1, 2]
        self.tensor = torch.zeros(3)


class Slotted:
    __slots__ = ("tensor", "value")

    def __init__(self) -> None:
        self.value, self.tensor = 1, torch.zeros(2)


def change_globals() -> None:
    global COUNT
    COUNT += 1
    NAMES["a"].append(2)
    NAMES["b"] = 1


def after_restore(change: Callable[[], object], *roots: Any) -> SavedState:
    state = SavedState([change, *roots])
    with state.preserved():
        change()
    return state


def test_globals_and_what_they_hold() -> None:
    after_restore(change_globals)
    assert (COUNT, NAMES) == (0, {"a": [1]})


def test_objects_keep_their_identity() -> None:
    holder, slotted = Holder(), Slotted()
    values, tensor = holder.values, holder.tensor

    def change() -> None:
        holder.values.append(3)
        holder.values = []
        holder.tensor.add_(1)
        holder.new = 1  # type: ignore[attr-defined]
        Holder.made += 1
        slotted.value = 2
        slotted.tensor = torch.ones(2)

    after_restore(change)
    assert (values, holder.values is values, hasattr(holder, "new"), Holder.made) == ([1, 2], True, False, 0)
    assert holder.tensor is tensor
    assert (tensor.sum().item(), slotted.value, slotted.tensor.sum().item()) == (0, 1, 0)


def test_containers_and_closures() -> None:
    number, queue, seen, text = 0, collections.deque([1]), {1}, bytearray(b"a")

    def change() -> None:
        nonlocal number
        number += 1
        queue.appendleft(0)
        seen.add(2)
        text.append(0)

    after_restore(change)
    assert (number, list(queue), seen, bytes(text)) == (0, [1], {1}, b"a")


def test_tensors_that_share_memory_or_change_it() -> None:
    base = torch.arange(6.0)
    view, replaced, resized = base[::2], torch.zeros(2), torch.zeros(2)
    expanded = torch.zeros(1).expand(3)

    def change() -> None:
        view.mul_(2)
        replaced.data = torch.ones(3)
        resized.resize_(4)
        expanded[:1].add_(1)

    after_restore(change)
    assert base.tolist() == [0, 1, 2, 3, 4, 5]
    assert (replaced.tolist(), resized.tolist(), expanded.tolist()) == ([0, 0], [0, 0], [0, 0, 0])
    base[0] = 9
    assert view[0] == 9


def test_gradients_flags_and_versions() -> None:
    layer, other = nn.Linear(2, 2), torch.ones(2, requires_grad=True)
    kept = layer.weight.grad = torch.ones(2, 2)
    version = layer.weight._version

    def change() -> None:
        layer(other).sum().backward()
        layer.bias.requires_grad_(False)
        with torch.no_grad():
            layer.weight.add_(1)

    before = layer.weight.detach().clone()
    after_restore(change)
    assert layer.weight.grad is kept
    assert torch.equal(kept, torch.ones(2, 2))
    assert (layer.bias.grad, other.grad, layer.bias.requires_grad) == (None, None, True)
    assert torch.equal(layer.weight, before)
    assert layer.weight._version == version


def test_random_generators_and_arrays() -> None:
    own, generator, array = random.Random(1), torch.Generator().manual_seed(1), numpy.zeros(3)
    of_numpy = numpy.random.default_rng(1)

    def change() -> list[Any]:
        array[0] = 1
        drawn = (torch.rand(1, generator=generator), torch.rand(1))
        return [own.random(), of_numpy.random(), *map(float, drawn), random.random(), numpy.random.rand()]

    want = [change()]
    state = SavedState([change])
    for _ in range(2):
        with state.preserved():
            want.append(change())
    assert want[1] == want[2] != want[0]
    assert array.tolist() == [1, 0, 0]


def test_an_exception_restores_as_well() -> None:
    values: list[int] = []

    def change() -> None:
        values.append(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        after_restore(change)
    assert values == []


def test_what_cannot_be_restored_is_listed(tmp_path: Any) -> None:
    numbers = iter([1, 2])
    made = (n for n in (1, 2))
    assert SavedState([lambda: next(numbers)]).obstacles == ["an iterator (list_iterator)"]
    assert SavedState([lambda: next(made)]).obstacles == ["an iterator (generator)"]
    with open(tmp_path / "log", "w") as file:
        assert SavedState([lambda: file.write("a")]).obstacles == [f"an open file ({tmp_path / 'log'})"]


def test_only_what_changed_before_is_restored_quickly() -> None:
    values, other = [1], [1]
    state = SavedState([lambda: (values, other)])
    values.append(2)
    state.restore()
    values.append(2)
    other.append(2)
    state.restore_quickly()
    assert (values, other) == ([1], [1, 2])

"""Counts references to tensors, to find out whether a program still uses results that a replay would overwrite."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from compiler_core.support.tensors import storage_id
from compiler_core.torch_private import TensorBase, storage_Use_Count

_use_count: Callable[[torch.Tensor], int] = vars(TensorBase)["_use_count"]
"""Returns how many references C++ has to a tensor."""
_Counts = tuple[list[int], list[int]]
"""References that C++ has to storages and tensors, those that Python has to storages, and those to tensors."""


class UseCounts:
    """Counts the uses of tensors that one list keeps, to find out whether something else uses them or their memory.

    `are_given_out`: the tensors themselves are given to others, and not other tensors with the same memory.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], are_given_out: bool = False) -> None:
        storages = {storage_id(t): t.untyped_storage() for t in tensors}
        self._ids, self.storages = [*storages], [*storages.values()]
        self._objects = tensors if are_given_out else ()
        self._unused: _Counts | None = None
        self._places: _Places | None = None

    def set_unused(self) -> None:
        """Notes that nothing else uses the tensors now.  Only the first call counts."""
        self._unused = self._unused or self._count()

    def are_unused(self) -> bool:
        """Returns whether nothing else uses the tensors."""
        return self._unused is None or self._count() == self._unused

    def used(self, tensors: Mapping[int, torch.Tensor]) -> list[int]:
        """Returns the keys of those of the list's `tensors`, which are not given out, that something else uses."""
        now = self._count()[0]
        before = now if self._unused is None else self._unused[0]
        changed = {storage for at, storage in enumerate(self._ids * 2) if now[at] != before[at]}
        return [key for key, tensor in tensors.items() if storage_id(tensor) in changed]

    def are_used_only_in(self, values: Sequence[Any]) -> bool:
        """Returns whether only the list `values` uses the tensors, apart from the list that keeps them."""
        if self._unused is None:
            return False
        if self._places is None or not self._places.are_in(self._objects, values):
            self._places = _Places(self._objects, values)
        elsewhere, objects = self._unused
        return self._count() == (elsewhere, [*map(operator.add, objects, self._places.entries)])

    def _count(self) -> _Counts:
        in_cpp = *map(storage_Use_Count, self._ids), *map(_use_count, self._objects)
        return [*in_cpp, *map(sys.getrefcount, self.storages)], [*map(sys.getrefcount, self._objects)]


def items_at(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Returns a fast function that returns the items of a sequence at `places`."""
    if not places:
        return lambda items: ()
    if len(places) == 1:  # `itemgetter` would return the item itself
        (place,) = places
        return lambda items: (items[place],)
    return operator.itemgetter(*places)


class _Places:
    """Where objects are in a list.  It is the same at each call of a graph, and comparing is faster than searching.

    It keeps no object, since references are counted.
    """

    def __init__(self, objects: Sequence[Any], values: Sequence[Any]) -> None:
        numbers = {id(o): number for number, o in enumerate(objects)}
        found = [(at, numbers[id(value)]) for at, value in enumerate(values) if id(value) in numbers]
        self._in_values = items_at([at for at, _ in found])
        self._in_objects = items_at([number for _, number in found])
        self.entries = [sum(number == n for _, n in found) for number in range(len(objects))]
        """How often each object is in the list."""

    def are_in(self, objects: Sequence[Any], values: Sequence[Any]) -> bool:
        """Returns whether all objects are in `values` where they were before."""
        return all(map(operator.is_, self._in_objects(objects), self._in_values(values)))

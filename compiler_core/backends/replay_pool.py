"""The memory that the CUDA graphs of one compiled function share.

A function with graph breaks, or with equal blocks, has many graphs.  With a pool of memory for each, PyTorch would
reserve what each of them needs while it runs; with one pool it reserves that once.  A recording takes what is free in
the pool at that time, so its replay overwrites what others leave there, unless it was in use while this one was
recorded.  With recordings numbered in their order:

    results of recording m                    were in use while n > m was recorded
    saved tensors of m, which the recording   were in use while n was recorded, m < n <= k
    of its backward, k, frees

`Reserved` has such a range of numbers.  A replay of n needs that all else is unused that replays have written to the
pool.  Otherwise its kernels are launched one by one; and if that happens often, it is recorded again, last in the pool
at first, and into a pool for itself if this does not help (`ReplayMemory`).
"""

from __future__ import annotations

import math
import operator
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from compiler_core.support.tensors import storage_id
from compiler_core.torch_private import TensorBase, cuda_getCurrentRawStream, storage_Use_Count

# ---------------------------------------------------------------- whether a program still uses tensors

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


# ---------------------------------------------------------------- the pool


class Reserved:
    """Tensors that the replays of one recording write; the recordings `first` to `last` do not touch their memory.

    It keeps neither the tensors nor the recording.  When the recording is gone, the program may still use some.
    """

    def __init__(self, owner: object, first: int, uses: Sequence[UseCounts]) -> None:
        self.owner = owner
        self.first: int = first
        self.last: float = math.inf
        self._uses = [weakref.ref(each) for each in uses]
        storages = {id(s): s for each in uses for s in each.storages}
        self._storages = [StorageWeakRef(s) for s in storages.values()]  # type: ignore[no-untyped-call]

    def are_unused(self) -> bool:
        """Whether only the recording uses them."""
        counts = [each() for each in self._uses]
        if None in counts:
            return all(map(StorageWeakRef.expired, self._storages))
        return all(each.are_unused() for each in counts if each is not None)


class Pool:
    """A pool of memory, with what is known of its recordings.

    `lock` is held by who records or replays one, so that two threads do not overwrite each other's memory.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self._index = torch.device(device).index or 0
        self.lock = threading.Lock()
        self.handle: Any = None
        self.stream: Any = None
        """Recordings use memory again only on the stream that it was used on."""
        self._graphs: weakref.WeakSet[Any] = weakref.WeakSet()
        self._written: set[Reserved] = set()
        """What replays have written and the program may use."""
        self._number = 0
        self._replayed_on: Any = None
        self._raw_stream: int | None = None

    def begin(self, graph: Any) -> int:
        """Returns the number of the recording that is about to be made of `graph`."""
        self._written = {each for each in self._written if not each.are_unused()}
        if not self._graphs:  # PyTorch gives up a pool of which no graph is left
            self.handle = torch.cuda.graph_pool_handle()
            self.stream = self.stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]
            self._written.clear()
        self._graphs.add(graph)
        self._number += 1
        return self._number

    def overwritten_by(self, number: int) -> list[Reserved]:
        """Returns what is in use of that which a replay of this recording would overwrite."""
        found = [each for each in self._written if not each.first <= number <= each.last]
        in_use = [each for each in found if not each.are_unused()]
        self._written.difference_update(each for each in found if each not in in_use)
        return in_use

    def note_replay(self, written: Sequence[Reserved]) -> None:
        self._written.update(written)

    def wait_for_last_replay(self) -> None:
        """Makes this stream wait for the last replay, if that was on another one."""
        raw_stream = cuda_getCurrentRawStream(self._index)
        if raw_stream != self._raw_stream:
            stream = torch.cuda.current_stream(self._index)
            if self._replayed_on is not None:
                stream.wait_stream(self._replayed_on)
            self._replayed_on, self._raw_stream = stream, raw_stream


class Pools(dict[str, Pool]):
    """The pools of one compiled function, by device."""

    def __missing__(self, device: str) -> Pool:
        return self.setdefault(device, Pool(device))

    @contextmanager
    def used(self) -> Iterator[None]:
        """Context manager in which graphs are compiled that use these pools."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


def current_pools() -> Pools:
    """Returns the pools for a graph that is compiled now: those of its function, or new ones."""
    found = _current.get()
    return Pools() if found is None else found


_current: ContextVar[Pools | None] = ContextVar("replay_pools", default=None)

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
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from compiler_core.backends.use_counts import UseCounts
from compiler_core.torch_private import cuda_getCurrentRawStream


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

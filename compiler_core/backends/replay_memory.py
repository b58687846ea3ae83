"""The memory that the CUDA graphs of a forward and of its backward share.

Both are recorded into one pool of memory.  The backward's launches reuse what the forward needs only while it runs, and
what the forward saved, each tensor after its last use.  So a replay overwrites memory of the other graph:

    a replay of the forward   may overwrite the gradients        so they have to be unused
    a replay of the backward  may overwrite the saved tensors    so this backward has to be the only one that uses them

If a condition does not hold, kernels are launched one by one.  A program that keeps its gradients until the next
forward gets two pools.
"""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from compiler_core.support.tensors import storage_id
from compiler_core.torch_private import TensorBase, construct_storage_from_data_pointer, storage_Use_Count

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
        self._storages, self._storage_objects = [*storages], [*storages.values()]
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
        changed = {storage for at, storage in enumerate(self._storages * 2) if now[at] != before[at]}
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
        in_cpp = *map(storage_Use_Count, self._storages), *map(_use_count, self._objects)
        return [*in_cpp, *map(sys.getrefcount, self._storage_objects)], [*map(sys.getrefcount, self._objects)]


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


class Results(Protocol):
    """The results of a recorded graph."""

    def are_unused(self) -> bool:
        """Whether no result of the last replay is in use any more."""
        ...


class _Owners:
    """Keeps the memory of saved tensors: their graph, whose pool it is from, and until a backward is recorded the
    tensors that own it."""

    def __init__(self, graph: Any, tensors: Sequence[torch.Tensor]) -> None:
        self.graph, self.tensors = graph, list(tensors)


class SavedTensors:
    """What the recording of a forward saves for the backward.

    `tensors` do not own their memory, so that the recording of the backward can free it step by step.
    """

    def __init__(self, graph: Any, stream: Any, owned: Sequence[torch.Tensor]) -> None:
        self._owners = _Owners(graph, owned)
        self.pool, self.stream = graph.pool(), stream
        storages: dict[int, Any] = {}
        self.tensors = [without_ownership(tensor, storages) for tensor in owned]
        for tensor in self.tensors:
            tensor._cutaway_owners = self._owners  # type: ignore[attr-defined]
        self._numbers = {id(tensor): number for number, tensor in enumerate(self.tensors)}
        self.uses = UseCounts(self.tensors, are_given_out=True)
        self.gradients: Results | None = None
        """The results of the backward that was recorded into the same pool."""

    def positions(self, values: Sequence[Any]) -> dict[int, int]:
        """Returns which of `values` are saved tensors, with their numbers."""
        return {at: self._numbers[id(v)] for at, v in enumerate(values) if id(v) in self._numbers}

    def can_be_freed_by(self, inputs: Sequence[Any]) -> bool:
        """Returns whether the recording of a backward with these inputs may free the saved tensors."""
        return bool(self._owners.tensors) and self.uses.are_used_only_in(inputs)

    def take_owned(self) -> list[torch.Tensor]:
        """Returns the tensors that own the memory; only the caller has them then."""
        owned, self._owners.tensors = self._owners.tensors, []
        return owned


class Lending:
    """Which results are returned without a copy, in the memory that the next replay writes to.

    These are the results that the program has freed between the warm-up call and the next one, less those that it keeps
    later.  A second time that it keeps one ends the lending.
    """

    def __init__(self) -> None:
        self._watched: dict[int, StorageWeakRef] = {}
        self._is_restricted = False
        self.results: frozenset[int] = frozenset()
        """The numbers of the results."""

    def begin_call(self) -> None:
        """Finds out which results of the call before the program has freed."""
        if self._watched:
            expired: Callable[[StorageWeakRef], bool] = StorageWeakRef.expired
            self.results = frozenset(at for at, storage in self._watched.items() if expired(storage))
            self._watched = {}

    def watch(self, results: Mapping[int, torch.Tensor]) -> None:
        """Notes the results of the warm-up call that may be lent, by their numbers."""
        self._watched = {
            at: StorageWeakRef(t.untyped_storage())  # type: ignore[no-untyped-call]
            for at, t in results.items()
        }

    def take_back(self, kept: Collection[int]) -> None:
        """Lends no more the results that the program has kept."""
        self.results = frozenset() if self._is_restricted else self.results.difference(kept)
        self._is_restricted = True


class ReplayMemory:
    """What the replays of a forward and of its backward know of each other."""

    def __init__(self, parameters: Sequence[torch.Tensor] = ()) -> None:
        self.replays: dict[str, Any] = {}
        """The replays of the "forward" and the "backward"."""
        storages = (t.untyped_storage() for t in parameters)
        self._parameters = [StorageWeakRef(s) for s in storages]  # type: ignore[no-untyped-call]
        self.is_shared = True
        """Whether both use one pool of memory."""
        self.saved: SavedTensors | None = None
        """What the forward's recording saves; None if it owns what it saves."""
        self.forwards = 0
        """How often the forward has been recorded."""
        self.copies: dict[int, torch.Tensor] = {}
        """The results of the forward's last replay that were copied for the caller, by the addresses of the copies."""
        self.lent: frozenset[int] = frozenset()
        """The addresses of those that the caller got without a copy, which are the same at each replay."""
        self.lending = Lending()

    def is_outlived(self) -> bool:
        """Whether the memory of a parameter that it is for is freed."""
        return any(map(StorageWeakRef.expired, self._parameters))


class GraphMemory:
    """A `ReplayMemory` for each set of parameters that a graph is called with."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._by_parameters: dict[tuple[int, ...], ReplayMemory] = {}
        """By the addresses of the parameters."""
        self._by_saved: dict[int, ReplayMemory] = {}
        """By the address of a saved tensor, the latest last."""
        self._parameters: Callable[[Sequence[Any]], tuple[Any, ...]] | None = None
        self._latest = ReplayMemory()

    def of_forward(self, inputs: Sequence[torch.Tensor], addresses: Sequence[int]) -> ReplayMemory:
        """Returns the memory for the parameters among these inputs."""
        if self._parameters is None:
            self._parameters = items_at([i for i, t in enumerate(inputs) if isinstance(t, torch.nn.Parameter)])
        key = self._parameters(addresses)
        found = self._by_parameters.get(key)
        if found is None:
            self._discard_outlived()
            found = self._by_parameters[key] = ReplayMemory(self._parameters(inputs))
        self._latest = found
        return found

    def note_saved(self, memory: ReplayMemory, saved: torch.Tensor) -> None:
        """Notes which memory is that of the forward that has saved this tensor, among others."""
        address = saved.data_ptr()
        self._by_saved.pop(address, None)
        self._by_saved[address] = memory
        if len(self._by_saved) > MAX_SAVED:
            del self._by_saved[next(iter(self._by_saved))]

    def of_backward(self, addresses: Sequence[int]) -> ReplayMemory:
        """Returns the memory of the forward that saved what is among these inputs; the latest if none is known."""
        if len(self._by_parameters) < 2:
            return self._latest
        return next((self._by_saved[a] for a in addresses if a in self._by_saved), self._latest)

    def _discard_outlived(self) -> None:
        self._by_parameters = {k: m for k, m in self._by_parameters.items() if not m.is_outlived()}
        self._by_saved = {a: m for a, m in self._by_saved.items() if not m.is_outlived()}


MAX_SAVED = 1024
"""How many calls of a forward whose backward is still to come can be distinguished."""


def without_ownership(tensor: torch.Tensor, storages: dict[int, Any]) -> torch.Tensor:
    """Returns a tensor with the same memory, which does not keep it; `storages` has those that were made before."""
    owned = tensor.untyped_storage()
    if storage_id(tensor) not in storages:
        made: Any = construct_storage_from_data_pointer(owned.data_ptr(), tensor.device, owned.nbytes())
        storages[storage_id(tensor)] = made
    place = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return place.set_(storages[storage_id(tensor)], tensor.storage_offset(), tensor.shape, tensor.stride())

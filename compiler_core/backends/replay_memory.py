"""The memory that the CUDA graphs of a forward and of its backward share.

Both are recorded into one pool of memory (`replay_pool`).  The backward's launches reuse what the forward needs only
while it runs, and what the forward saved, each tensor after its last use.  So a replay of the forward overwrites the
gradients, which have to be unused, and one of the backward the saved tensors, which only this backward may use.

If a condition does not hold, kernels are launched one by one.  A program that keeps its gradients until the next
forward gets two pools.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from compiler_core.backends.replay_pool import Pool, Pools, Reserved, UseCounts, current_pools, items_at
from compiler_core.support.tensors import storage_id
from compiler_core.torch_private import construct_storage_from_data_pointer


class _Owners:
    """Keeps the memory of saved tensors: their graph, whose pool it is from, and until a backward is recorded the
    tensors that own it."""

    def __init__(self, graph: Any, tensors: Sequence[torch.Tensor]) -> None:
        self.graph, self.tensors = graph, list(tensors)


class SavedTensors:
    """What recording `number` in `pool`, of a forward, saves for the backward.

    `tensors` do not own their memory, so that the recording of the backward can free it step by step.
    """

    def __init__(self, graph: Any, pool: Pool, number: int, owner: object, owned: Sequence[torch.Tensor]) -> None:
        self._owners = _Owners(graph, owned)
        self.pool = pool
        storages: dict[int, Any] = {}
        self.tensors = [without_ownership(tensor, storages) for tensor in owned]
        for tensor in self.tensors:
            tensor._cutaway_owners = self._owners  # type: ignore[attr-defined]
        self._numbers = {id(tensor): number for number, tensor in enumerate(self.tensors)}
        self.uses = UseCounts(self.tensors, are_given_out=True)
        self.reserved = Reserved(owner, number, [self.uses])

    def positions(self, values: Sequence[Any]) -> dict[int, int]:
        """Returns which of `values` are saved tensors, with their numbers."""
        return {at: self._numbers[id(v)] for at, v in enumerate(values) if id(v) in self._numbers}

    @property
    def are_owned(self) -> bool:
        """Whether no backward has freed them."""
        return bool(self._owners.tensors)

    def can_be_freed_by(self, inputs: Sequence[Any]) -> bool:
        """Returns whether the recording of a backward with these inputs may free the saved tensors."""
        return self.are_owned and self.uses.are_used_only_in(inputs)

    def take_owned(self, number: int) -> list[torch.Tensor]:
        """Returns the tensors that own the memory, for recording `number`, which frees them."""
        owned, self._owners.tensors = self._owners.tensors, []
        self.reserved.last = number
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
    """What the replays of a forward and of its backward know of each other.

    Both are recorded into `pool`.  If its replays are refused too often, they are recorded again: first as the last of
    that pool, then into a pool for themselves; and into one for each if gradients are in use at the forward.
    """

    def __init__(self, pool: Pool, parameters: Sequence[torch.Tensor] = ()) -> None:
        self.pool = pool
        self.owner = object()
        """Stands for both in what the pool knows."""
        self.replays: dict[str, Any] = {}
        """The replays of the "forward" and the "backward"."""
        storages = (t.untyped_storage() for t in parameters)
        self._parameters = [StorageWeakRef(s) for s in storages]  # type: ignore[no-untyped-call]
        self.is_shared = True
        """Whether both use one pool of memory."""
        self.is_crowded = False
        """Whether the forward has to be recorded again, since its replays or the backward's are refused."""
        self._refusals = {"gradients": 0, "others": 0}
        self._is_last = False
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

    def own_pool(self) -> Pool:
        """Returns the pool for the next recording of the forward, or of a backward that shares nothing with it."""
        return self.pool if self.is_shared else Pool(self.pool.device)

    def note_refusal(self, in_use: Sequence[Reserved]) -> None:
        """Notes that a replay was refused, since it would overwrite these."""
        why = "gradients" if any(each.owner is self.owner for each in in_use) else "others"
        self._refusals[why] += 1
        if self._refusals[why] < MAX_REFUSALS:
            return
        self._refusals[why] = 0
        self.is_crowded = True
        if why == "gradients":
            self.is_shared = False
        elif self._is_last:
            self.pool = Pool(self.pool.device)
        self._is_last = True


class GraphMemory:
    """A `ReplayMemory` for each set of parameters that a graph is called with."""

    def __init__(self, pools: Pools | None = None) -> None:
        self.pools = current_pools() if pools is None else pools
        self._by_parameters: dict[tuple[int, ...], ReplayMemory] = {}
        """By the addresses of the parameters."""
        self._by_saved: dict[int, ReplayMemory] = {}
        """By the address of a saved tensor, the latest last."""
        self._parameters: Callable[[Sequence[Any]], tuple[Any, ...]] | None = None
        self._latest: ReplayMemory | None = None

    def of_forward(self, pool: Pool, inputs: Sequence[torch.Tensor], addresses: Sequence[int]) -> ReplayMemory:
        """Returns the memory for the parameters among these inputs; if it is new, `pool` is its pool."""
        if self._parameters is None:
            self._parameters = items_at([i for i, t in enumerate(inputs) if isinstance(t, torch.nn.Parameter)])
        key = self._parameters(addresses)
        found = self._by_parameters.get(key)
        if found is None:
            self._discard_outlived()
            found = self._by_parameters[key] = ReplayMemory(pool, self._parameters(inputs))
        self._latest = found
        return found

    def note_saved(self, memory: ReplayMemory, saved: torch.Tensor) -> None:
        """Notes which memory is that of the forward that has saved this tensor, among others."""
        address = saved.data_ptr()
        self._by_saved.pop(address, None)
        self._by_saved[address] = memory
        if len(self._by_saved) > MAX_SAVED:
            del self._by_saved[next(iter(self._by_saved))]

    def of_backward(self, pool: Pool, addresses: Sequence[int]) -> ReplayMemory:
        """Returns the memory of the forward that saved what is among these inputs; the latest if none is known."""
        if self._latest is None:
            self._latest = ReplayMemory(pool)
        if len(self._by_parameters) < 2:
            return self._latest
        return next((self._by_saved[a] for a in addresses if a in self._by_saved), self._latest)

    def _discard_outlived(self) -> None:
        self._by_parameters = {k: m for k, m in self._by_parameters.items() if not m.is_outlived()}
        self._by_saved = {a: m for a, m in self._by_saved.items() if not m.is_outlived()}


MAX_REFUSALS = 4
"""After so many refused replays, graphs are recorded again with other memory."""
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

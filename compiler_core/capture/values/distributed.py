"""Objects of ``torch.distributed``: process groups, and the handles of asynchronous collectives.

Compiled code names a group; PyTorch finds the group of that name when the code runs.  So guards are on the group's name
and size, and on a rank only where the program asks for one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.values.base import Args, Kwargs, NamedMethodValue, Value
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import ComputedSource, Source

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter

c10d: Any = None
if torch.distributed.is_available():
    from torch.distributed import distributed_c10d as c10d
ProcessGroup: Any = c10d.ProcessGroup if c10d else ()
"""The class of groups; no class if this PyTorch is built without ``torch.distributed``."""


# ---- what guards ask of a group ------------------------------------------------------------


def group_name(group: Any) -> str | None:
    """Returns the name by which operators find a group; None if it is destroyed, or inside a coalescing manager."""
    world: Any = c10d._world
    is_usable = group in world.pg_map and group not in world.pg_coalesce_state
    return str(group.group_name) if is_usable else None


def group_size(group: Any) -> int:
    """Returns how many processes are in a group."""
    return int(group.size())


def rank_in_group(group: Any) -> int:
    """Returns the rank of this process in a group, -1 if it is not a member."""
    return int(group.rank())


def is_member(group: Any) -> bool:
    """Whether this process is a member of the group."""
    return rank_in_group(group) >= 0


def rank_of(group: Any, global_rank: int) -> int:
    """Returns the rank in the group of a process with this rank in the default group, -1 if it is not a member."""
    ranks: dict[int, int] = c10d._world.pg_group_ranks.get(group, {})
    return ranks.get(global_rank, -1)


def default_group(namespace: Any = None) -> Any:
    """Returns the default group, or None; `namespace` is ``torch.distributed.group``, which guards start from."""
    return (namespace or torch.distributed.group).WORLD


def mesh_group(mesh: Any, dim: int) -> Any:
    """Returns the group of a dimension of a mesh; None if it has no such dimension."""
    return mesh.get_group(dim) if 0 <= dim < mesh.ndim else None


class GroupValue(Value):
    """A process group: an object from outside, the default group, or that of a mesh.

    `place` is where guards find it; `source` is None unless it is an object from outside.
    """

    always_true = True

    def __init__(self, real: Any, place: Source, source: Source | None = None) -> None:
        self.real = real
        self.place = place
        self.source = source

    @classmethod
    def default(cls, tx: Interpreter) -> Value:
        """Returns the default group, or None if there is none."""
        namespace = tx.guards.held(torch.distributed.group, "torch.distributed.group")
        place = ComputedSource("default_group", default_group, (namespace,))
        found = default_group()
        tx.guards.add("TYPE_MATCH", place, found)
        return NONE if found is None else cls(found, place)

    @classmethod
    def of_mesh(cls, tx: Interpreter, mesh: Value, dim: int) -> GroupValue:
        real, source = getattr(mesh, "real", None), mesh.source
        if source is None or real is None or mesh_group(real, dim) is None:
            raise Unsupported("collective", f"the group of {mesh}")
        place = ComputedSource("mesh_group", mesh_group, (source, dim))
        tx.guards.add("TYPE_MATCH", source, real)
        tx.guards.add("TYPE_MATCH", place, mesh_group(real, dim))
        return cls(mesh_group(real, dim), place)

    def __repr__(self) -> str:
        return self.place.text

    def python_type(self) -> type:
        found: type = type(self.real)
        return found

    def install_guards(self, tx: Interpreter) -> None:
        tx.guards.add("TYPE_MATCH", self.place, self.real)

    def ask(self, tx: Interpreter, query: Callable[..., Any], *args: Any) -> Any:
        """Returns what a query says of the group, with a guard."""
        self.install_guards(tx)
        result = query(self.real, *args)
        place = ComputedSource(query.__name__, query, (self.place, *args))
        tx.guards.add("EQUALS_MATCH", place, result)
        return result

    def name(self, tx: Interpreter) -> str:
        """Returns the name for the operators; raises Unsupported if the group cannot be used now."""
        found = self.ask(tx, group_name)
        if found is None:
            raise Unsupported("collective", f"{self} is destroyed, or used inside a coalescing manager")
        return str(found)

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name == "group_name":
            return ConstantValue(self.name(tx))
        if name in ("size", "rank"):
            return NamedMethodValue(self, name)
        raise Unsupported("unsupported attribute", f"ProcessGroup.{name}")

    def call_method(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if args or kwargs:
            raise Unsupported("unsupported call", f"ProcessGroup.{name}() with arguments")
        return ConstantValue(self.ask(tx, group_size if name == "size" else rank_in_group))

    def same_object(self, other: Value) -> bool:
        return isinstance(other, GroupValue) and self.real is other.real

    def reconstruct(self, emit: Emitter) -> None:
        if self.place.text != "default_group(torch.distributed.group)":
            raise Unsupported("collective", f"{self} is needed after a graph break")
        emit.call_object(default_group, [])


class WorkValue(Value):
    """The handle of an asynchronous collective: `finish` waits and writes the result.

    While it has not been waited for, the graph cannot end: the result would be written too late.
    """

    always_true = True

    def __init__(self, finish: Callable[[Interpreter], None]) -> None:
        self.finish = finish

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name == "wait":
            return NamedMethodValue(self, name)
        raise Unsupported("collective", f"Work.{name}")

    def call_method(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if args or kwargs:
            raise Unsupported("collective", "Work.wait() with a time limit")
        if tx.capture.pending_works.pop(self, None) is not None:
            self.finish(tx)
        return ConstantValue(True)

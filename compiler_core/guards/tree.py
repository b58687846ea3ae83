"""Builds PyTorch's C++ guard tree, which runs before every call, from a list of guards."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any

import torch

from compiler_core.guards.kinds import GuardSpec
from compiler_core.guards.lifetimes import WeakBox
from compiler_core.guards.module_trees import GROUP_SIZE, install_version_checks
from compiler_core.guards.relation_guards import install_conditions
from compiler_core.guards.sources import (
    AttrSource,
    ConstantSource,
    GetItemSource,
    GlobalSource,
    InstanceDictSource,
    LocalSource,
    Scope,
    Source,
)
from compiler_core.records.recompiles import ENTRY_OF_OURS
from compiler_core.torch_private import (
    C_eval_frame,
    DeletedGuardManagerWrapper,
    GuardManagerType,
    RootGuardManager,
    dynamo_config,
)
from compiler_core.torch_private import C_guards as cpp

HeldTensors = dict[Source, tuple[list[torch.Tensor | None], int]]
"""Tensors that are in lists while all guards hold, each with its list and the index (`module_trees.py`)."""

_NOT_A_CONSTANT = object()
_UNGROUPED_ITEMS = 512
"""The most guarded items of a container that are attached to its manager directly; more are put into `ItemGroup`s."""
# By default C++ skips a parameter's check while its module's dict is unchanged, which misses requires_grad_().  One
# object serves all builds, since each patch makes a context variable, which is never freed.
_CHECK_EVERY_TENSOR = dynamo_config.patch(skip_tensor_guards_with_matching_dict_tags=False)


class GuardTree:
    """Builds PyTorch's guard tree for one frame from a list of guards."""

    manager_type = GuardManagerType.GUARD_MANAGER

    def __init__(self, scope: Scope, code: types.CodeType) -> None:
        self.scope = scope
        self.root = cpp.RootGuardManager()
        self._names = C_eval_frame.code_framelocals_names(code)
        self.managers: dict[Source, Any] = {}
        self._values: dict[Source, Any] = {}
        self._held: dict[str, Any] = {}
        self._held_manager: Any = None
        self.item_groups: dict[Source, ItemGroup] = {}
        self.held_tensors: HeldTensors = {}
        self.covered: dict[str, list[str]] = {}
        """The texts of the guards that a check stands for, by the check's text, where it is not the guard's own."""
        self._globals: Any = None

    def value(self, source: Source) -> Any:
        """Returns the value at `source` at capture."""
        if source not in self._values:
            self._values[source] = source.fetch(self.scope)
        return self._values[source]

    def manager(self, source: Source) -> Any:
        """Returns the guard manager of `source`, which is made the first time."""
        if source not in self.managers:
            self.managers[source] = source.manager(self)
        return self.managers[source]

    def local_manager(self, source: LocalSource) -> Any:
        key = (source.name, self._names.index(source.name))
        return self.root.framelocals_manager(key, source.text, self.value(source), self.manager_type)

    def globals_manager(self) -> Any:
        if self._globals is None:
            f_globals = self.scope.f_globals
            self._globals = self.root.globals_dict_manager(f_globals, "G", f_globals, self.manager_type)
        return self._globals

    def table_manager(self, module: Source, table: str) -> Any:
        """Returns the manager of a dict in a module's ``__dict__``, such as ``_parameters``."""
        found, name = self.manager(InstanceDictSource(module)), f"{module.text}.{table}"
        return found.dict_getitem_manager(table, name, self.value(module).__dict__[table], self.manager_type)

    def constant_manager(self, source: ConstantSource) -> Any:
        """Returns the manager of an object that generated code holds."""
        value = self.value(source)
        if not isinstance(source.box, WeakBox):
            return self.held_manager(value, source.text)
        held = self.held_manager(source.box.ref, source.text)
        return held.weakref_call_manager(source.text, value, self.manager_type)

    def library_dict_manager(self, names: dict[str, Any], home: str) -> Any:
        """Returns the manager of a dict of a library.

        The dict is passed as globals, which the tree keeps itself and reaches without a path.
        """
        return self.root.globals_dict_manager(names, home, names, self.manager_type)

    def held_manager(self, obj: Any, name: str) -> Any:
        """Returns a manager of `obj`, as an item of a private dict that the tree takes for globals.

        The dicts are small for the reason that `ItemGroup` gives.
        """
        if len(self._held) % GROUP_SIZE == 0:
            self._held = {}
            self._held_manager = self.root.globals_dict_manager(self._held, "held", self._held, self.manager_type)
        key = f"held {len(self._held)}: {name}"
        self._held[key] = obj
        # the tree takes a C function for a constant, and would call it only once
        example = _NOT_A_CONSTANT if isinstance(obj, types.BuiltinFunctionType) else obj
        return self._held_manager.dict_getitem_manager(key, name, example, self.manager_type)

    def scope_of(self, f_locals: dict[str, Any]) -> Scope:
        """Returns the scope of a call with these locals."""
        return Scope(f_locals, self.scope.f_globals, {})

    def build(self, guards: Sequence[GuardSpec], version_checks: bool = True) -> EntryGuards:
        """Installs the guards; returns the object that the frame hook takes.

        With `version_checks`, trees of modules are checked by the versions of their dicts (`module_trees.py`); the
        result then holds only for the same module objects.
        """
        with _CHECK_EVERY_TENSOR:
            self.item_groups = {item: group for group in _item_groups(guards) for item in group.positions}
            remaining = install_version_checks(self, guards) if version_checks else guards
            for guard in remaining:
                if guard.kind != "CONDITION":
                    guard.install(self)
            conditions = [guard for guard in remaining if guard.kind == "CONDITION"]
            if conditions:
                install_conditions(self, conditions)
        self.scope = Scope({}, self.scope.f_globals, {})
        self._values.clear()
        self.managers.clear()
        self.item_groups.clear()
        return EntryGuards(self.root)


class ItemGroup:
    """Some items of a container, or attributes of an object, which the guard tree fetches together.

    PyTorch's manager compares a new item with all that it has, so adding the guarded items of a large container to one
    manager would take time quadratic in their number.
    """

    def __init__(self, container: Container, items: Sequence[Source], keys: Sequence[Any]) -> None:
        self.positions = {item: i for i, item in enumerate(items)}
        self._container, self._keys = container, keys
        self._manager: Any = None

    def manager(self, item: Source, tree: GuardTree) -> Any:
        if self._manager is None:
            getter = attrgetter if self._container.has_attributes else itemgetter
            take = getter(*self._keys, self._keys[0])  # with a single key it would return no tuple
            name = f"{len(self._keys)} items of {self._container.text}"
            self._manager = self._container.manager(tree).lambda_manager(take, name, (), tree.manager_type)
        return self._manager.tuple_getitem_manager(self.positions[item], item.text, tree.value(item), tree.manager_type)


@dataclass(frozen=True)
class Container:
    """What holds guarded items: the value of a source, or the frame's globals if that is None."""

    source: Source | None
    has_attributes: bool = False
    table: str = ""
    """If not empty, the items are in this dict of an nn.Module's ``__dict__``."""

    @property
    def text(self) -> str:
        return "G" if self.source is None else self.source.text

    def manager(self, tree: GuardTree) -> Any:
        if self.source is None:
            return tree.globals_manager()
        return tree.table_manager(self.source, self.table) if self.table else tree.manager(self.source)


def _item_groups(guards: Sequence[GuardSpec]) -> Iterator[ItemGroup]:
    """Groups the guarded items of each container that has more than `_UNGROUPED_ITEMS` of them."""
    found: dict[Container, dict[Source, Any]] = {}
    seen: set[Source] = set()
    for guard in guards:
        source: Source | None = guard.source
        while source is not None and source not in seen:
            seen.add(source)
            container, key = _container(source)
            if container is not None:
                found.setdefault(container, {})[source] = key
            source = getattr(source, "base", None)
    for container, keys in found.items():
        if len(keys) > _UNGROUPED_ITEMS:
            items = list(keys)
            for i in range(0, len(items), GROUP_SIZE):
                part = items[i : i + GROUP_SIZE]
                yield ItemGroup(container, part, [keys[item] for item in part])


def _container(source: Source) -> tuple[Container | None, Any]:
    """Returns what holds the value of `source`, and its key there; None for other sources."""
    if isinstance(source, GetItemSource):
        return Container(source.base), source.key
    if isinstance(source, GlobalSource) and source.module is None:
        return Container(None), source.name
    if isinstance(source, AttrSource) and source.is_read_by_getattr and "." not in source.name:
        return Container(source.base, has_attributes=True), source.name
    if isinstance(source, AttrSource) and source.table == "__dict__":
        return Container(InstanceDictSource(source.base)), source.name
    if isinstance(source, AttrSource):
        return Container(source.base, table=source.table or ""), source.name
    return None, None


# ---------------------------------------------------------------- what PyTorch's cache holds
#
# PyTorch stores entries in the code object of the frame, where stock torch.compile may find ours: all of them before
# PyTorch 2.13, and since then those that are made outside the main thread (see `hook/frame_hook.py`).  It never runs
# them, since their backend is another, but it counts entries towards its limit of recompiles, and asks each why it did
# not fit.  To stock, ours are invalid entries, made for other objects: it does not count them, and does not read their
# guards.


def _is_alive() -> bool:
    return True


class EntryGuards(DeletedGuardManagerWrapper):
    """The guards of a cache entry, with all attributes that C++, which reads them without checks, and Dynamo read."""

    def __init__(self, root: RootGuardManager | None = None) -> None:
        super().__init__(ENTRY_OF_OURS)
        if root is not None:
            self.root = root
        self.diff_guard_root = self.root
        self.closure_vars, self.args, self.verbose_code_parts = {}, [], []
        # Stands for a weak reference to an object that no frame has: no local variable has an empty name.
        self.id_matched_objs: dict[str, Any] = {"": _is_alive}

    def collect_diff_guard_sources(self) -> Any:
        """Adds nothing to what stock checks first in its entries."""
        return ()

    def populate_diff_guard_manager(self) -> None:
        """Keeps all guards: stock's stance `skip_guard_eval_unsafe` would check some of them only."""

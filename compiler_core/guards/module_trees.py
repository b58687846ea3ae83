"""Guards on trees of modules, checked by the versions of the modules' dicts.

A model has thousands of guards, nearly all on the dicts of its modules: a number, a name that is absent, an empty dict
of hooks.  CPython gives a dict a new version whenever it changes, and the C++ tree skips an item that is marked as
immutable while the version of its dict is the one at which it last passed.  So each module of a tree gets one such
item, its version check: the guards on the module's dict are checked again, in Python, only when the dict has changed.

The types of the modules, and that the dicts of hooks are empty, are checked at each call, since no version shows a
change. That the modules are the same is checked by the versions of the tables of submodules.  Such a tree holds for one
root object. For other objects the guards are installed one by one (`GuardTree.build`).

Parameters and buffers are kept in a list, so that guards and compiled code need no path to them.  When the table of a
module has changed, its tensors are checked again: one that passes its guard replaces the earlier one in the list;
otherwise the entry is cleared, so that a tensor which the module no longer has is not kept alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.guards.kinds import IMMUTABLE_EXAMPLE, KINDS, GuardSpec
from compiler_core.guards.sources import VERSIONS_ARE_STALE, AttrSource, GetItemSource, InstanceDictSource, Source
from compiler_core.support.interrupts import guard_function, weak_callback

if TYPE_CHECKING:
    from compiler_core.guards.tree import GuardTree

MIN_SUBMODULES = 4
"""The fewest modules below a root for which version checks are faster."""
GROUP_SIZE = 128
"""The most items of one manager of the C++ tree that the compiler makes up."""
_TABLE = "_modules"
_TENSOR_TABLES = ("_parameters", "_buffers")
_MISSING = object()
_NO_HOOKS = "no hooks"

DictCheck = Callable[[dict[str, Any]], bool]


@dataclass
class ModuleChecks:
    """The checks on one module: those on its ``__dict__``, and those on its table of submodules."""

    module: weakref.ref[torch.nn.Module]
    source: Source
    dict_checks: list[DictCheck] = field(default_factory=list)
    table_checks: list[DictCheck] = field(default_factory=list)
    first_child: str | None = None
    tensor_checks: dict[str, list[DictCheck]] = field(default_factory=dict)
    """The checks on the tables of parameters and buffers, by the name of the table."""
    places: list[tuple[list[Any], int]] = field(default_factory=list)
    """Where its tensors are: lists and indices.  The places are emptied when the module dies."""

    def dict_holds(self, _: Any) -> bool:
        module = self.module()
        return module is not None and all(check(module.__dict__) for check in self.dict_checks)

    def table_holds(self, _: Any) -> bool:
        module = self.module()
        return module is not None and all(check(module.__dict__[_TABLE]) for check in self.table_checks)

    def tensors_hold(self, name: str, _: Any) -> bool:
        module = self.module()
        return module is not None and all(check(module.__dict__[name]) for check in self.tensor_checks[name])


class ModuleTree:
    """One root module and the modules below it that have guards."""

    def __init__(self, tree: GuardTree, root: Source) -> None:
        self.tree = tree
        self.root = root
        self.modules: dict[Source, ModuleChecks] = {}
        self.empty_dicts: list[Any] = []
        """Dicts that must stay empty."""
        self.tensors: list[list[torch.Tensor | None]] = []
        """The parameters and buffers, in lists of a few."""
        self.tensor_guards: list[GuardSpec] = []
        self._covered: dict[str, list[str]] = {}

    def add_module(self, source: Source) -> None:
        module = self.tree.value(source)
        if source is self.root:
            empty_dicts, tensors = self.empty_dicts, self.tensors
            # the references are dropped when the root dies
            on_death = weakref.ref(module, weak_callback(lambda _: _clear(empty_dicts, *tensors)))
            self.modules[source] = ModuleChecks(on_death, source)
            return
        places: list[tuple[list[Any], int]] = []
        reference = weakref.ref(module, weak_callback(lambda _: _empty(places)))
        checks = self.modules[source] = ModuleChecks(reference, source, places=places)
        owner, name = _place_in_table(source)
        assert owner is not None
        parent = self.modules[owner]
        parent.first_child = parent.first_child or name
        parent.table_checks.append(lambda table: table.get(name) is checks.module())

    def add_guard(self, guard: GuardSpec, owner: Source, name: str | None) -> bool:
        """Adds a guard on ``owner.__dict__[name]``, or on the dict itself if `name` is None.

        Returns False if the version of the dict does not show a change of what the guard checks.
        """
        checks, text = self.modules[owner], _attributes_text(owner)
        if name is None:
            if guard.kind not in ("DICT_CONTAINS", "DICT_HAS"):
                return False
            checks.dict_checks.append(_python_check(guard))
        elif name == _TABLE and guard.kind == "DICT_KEYS" and checks.first_child is not None:
            checks.table_checks.append(_python_check(guard))
            text = _submodules_text(owner)
        elif guard.kind in ("EQUALS_MATCH", "ID_MATCH"):
            check = _python_check(guard)
            checks.dict_checks.append(lambda attributes: name in attributes and check(attributes[name]))
        elif guard.kind == "DICT_LENGTH" and guard.value == 0:
            self._add_empty_dict(checks, name)
            text = _NO_HOOKS
        else:
            return False
        self._covered.setdefault(text, []).append(guard.text)
        return True

    def add_tensor(self, guard: GuardSpec, owner: Source, name: str, table: str) -> None:
        """Adds the guard on the tensor ``owner.<table>[name]``."""
        if len(self.tensor_guards) % GROUP_SIZE == 0:
            self.tensors.append([])
        self.tensor_guards.append(guard)
        tensors, tensor = self.tensors[-1], self.tree.value(guard.source)
        tensors.append(tensor)
        index, kind, difference = len(tensors) - 1, type(tensor), KINDS[guard.kind].difference

        def holds(entries: dict[str, Any]) -> bool:
            found = entries.get(name)
            if index < len(tensors) and found is not tensors[index]:
                fits = type(found) is kind and difference(found, guard.value) is None
                tensors[index] = found if fits else None
            return index < len(tensors) and tensors[index] is not None

        self.modules[owner].places.append((tensors, index))
        self.modules[owner].tensor_checks.setdefault(table, []).append(holds)

    def _add_empty_dict(self, checks: ModuleChecks, name: str) -> None:
        """Checks by version that the attribute is the same dict; `install` adds that it is empty."""
        index, empty_dicts = len(self.empty_dicts), self.empty_dicts
        empty_dicts.append(vars(self.tree.value(checks.source))[name])
        checks.dict_checks.append(
            lambda attributes: index < len(empty_dicts) and attributes.get(name, _MISSING) is empty_dicts[index]
        )

    def install(self) -> None:
        """Installs the checks of all modules in the C++ tree."""
        tree, empty_dicts = self.tree, self.empty_dicts
        tree.covered |= self._covered
        root = tree.manager(self.root)
        root.add_id_match_guard(id(tree.value(self.root)), [f"{self.root.text} is the same object"], None)
        for checks in self.modules.values():
            self._install_version_checks(checks)
        self._install_tensor_guards()
        if empty_dicts:
            root.add_lambda_guard(guard_function(lambda _: not any(empty_dicts)), [_NO_HOOKS], None)

    def _install_version_checks(self, checks: ModuleChecks) -> None:
        module, manager_type = self.tree.value(checks.source), self.tree.manager_type
        attributes = self.tree.manager(InstanceDictSource(checks.source))
        text = checks.source.text
        item = attributes.dict_getitem_manager("training", f"version check of {text}", IMMUTABLE_EXAMPLE, manager_type)
        item.add_lambda_guard(guard_function(checks.dict_holds), [_attributes_text(checks.source)], None)
        if checks.first_child is not None:
            children = vars(module)[_TABLE]
            table = attributes.dict_getitem_manager(_TABLE, f"submodules of {text}", children, manager_type)
            item = table.dict_getitem_manager(checks.first_child, "version check", IMMUTABLE_EXAMPLE, manager_type)
            item.add_lambda_guard(guard_function(checks.table_holds), [_submodules_text(checks.source)], None)
        for name in checks.tensor_checks:
            entries = vars(module)[name]
            table = attributes.dict_getitem_manager(name, f"{name} of {text}", entries, manager_type)
            first = next(iter(entries))
            item = table.dict_getitem_manager(first, "version check", IMMUTABLE_EXAMPLE, manager_type)
            holds = guard_function(partial(checks.tensors_hold, name))
            item.add_lambda_guard(holds, [f"{name} of {text}"], None)

    def _install_tensor_guards(self) -> None:
        """Installs the guards on tensors as items of lists, and tells the tree where its code finds them."""
        tree = self.tree
        for number, tensors in enumerate(self.tensors):
            items = tree.held_manager(tensors, f"tensors of {self.root.text}")
            for index, guard in enumerate(self.tensor_guards[number * GROUP_SIZE :][: len(tensors)]):
                item = items.list_getitem_manager(index, guard.source.text, tensors[index], tree.manager_type)
                tree.managers[guard.source] = item
                guard.install(tree)
                tree.held_tensors[guard.source] = tensors, index

    @property
    def holds(self) -> bool:
        return all(
            checks.dict_holds(None)
            and checks.table_holds(None)
            and all(checks.tensors_hold(name, None) for name in checks.tensor_checks)
            for checks in self.modules.values()
        )


def _attributes_text(module: Source) -> str:
    return f"the attributes of {module.text}"


def _submodules_text(module: Source) -> str:
    return f"the submodules of {module.text}"


def _python_check(guard: GuardSpec) -> Callable[[Any], bool]:
    difference, value = KINDS[guard.kind].difference, guard.value
    return lambda obj: difference(obj, value) is None


def _empty(places: list[tuple[list[Any], int]]) -> None:
    for items, index in places:
        if index < len(items):
            items[index] = None


def _clear(*lists: list[Any]) -> None:
    for each in lists:
        each.clear()


def _instance_dict_entry(source: Source) -> tuple[str | None, Source | None]:
    """Returns the name and the owner if `source` is an entry of an instance's ``__dict__``.

    The name is None for the dict itself, the owner is None for other sources.
    """
    if isinstance(source, InstanceDictSource):
        return None, source.base
    if isinstance(source, AttrSource) and source.table == "__dict__":
        return source.name, source.base
    if isinstance(source, GetItemSource) and isinstance(source.base, InstanceDictSource):
        return source.key, source.base.base
    return None, None


def _place_in_table(source: Source) -> tuple[Source | None, str]:
    """Returns the owner and the name if `source` is an entry of a module's table of submodules."""
    if isinstance(source, AttrSource) and source.table == _TABLE:
        return source.base, source.name
    if isinstance(source, GetItemSource) and isinstance(source.key, str):  # by iteration over the table
        name, owner = _instance_dict_entry(source.base)
        if name == _TABLE:
            return owner, source.key
    return None, ""


def install_version_checks(tree: GuardTree, guards: Sequence[GuardSpec]) -> list[GuardSpec]:
    """Installs the guards that can be checked by the versions of modules' dicts; returns the other guards."""
    trees = {} if VERSIONS_ARE_STALE else _module_trees(tree, guards)
    unshared = _tensors_without_other_guards(guards) if trees else set()
    remaining = [guard for guard in guards if not _add_guard(trees, guard, unshared)]
    distinct = list({id(module_tree): module_tree for module_tree in trees.values()}.values())
    if not all(module_tree.holds for module_tree in distinct):
        return list(guards)  # the modules changed since capture
    for module_tree in distinct:
        module_tree.install()
    return remaining


def _tensors_without_other_guards(guards: Sequence[GuardSpec]) -> set[Source]:
    """Returns the sources of the tensors that only one guard refers to."""
    matched: set[Source] = set()
    others: set[Source] = set()
    for guard in guards:
        values = guard.value if isinstance(guard.value, tuple) else (guard.value,)
        work: list[Source | None] = [value for value in values if isinstance(value, Source)]
        is_match = guard.kind == "TENSOR_MATCH" and guard.source not in matched
        work.append(getattr(guard.source, "base", None) if is_match else guard.source)
        if is_match:
            matched.add(guard.source)
        while work:
            source = work.pop()
            if source is not None and source not in others:
                others.add(source)
                work.append(getattr(source, "base", None))
    return matched - others


def _add_guard(trees: dict[Source, ModuleTree], guard: GuardSpec, unshared: set[Source]) -> bool:
    source = guard.source
    if source in unshared and isinstance(source, AttrSource) and source.table in _TENSOR_TABLES:
        found = trees.get(source.base)
        if found is not None:
            found.add_tensor(guard, source.base, source.name, source.table)
        return found is not None
    name, owner = _instance_dict_entry(source)
    return owner in trees and trees[owner].add_guard(guard, owner, name)


def _module_trees(tree: GuardTree, guards: Sequence[GuardSpec]) -> dict[Source, ModuleTree]:
    """Returns the tree of each module whose type is guarded.

    A module that was reached through a table of submodules belongs to the tree of its parent; others are roots.
    """
    found: dict[Source, ModuleTree] = {}
    for guard in guards:
        source = guard.source
        if guard.kind != "TYPE_MATCH" or not issubclass(guard.value.value, torch.nn.Module):
            continue
        if "training" not in vars(tree.value(source)):
            continue  # the version check is attached to this item
        parent = _place_in_table(source)[0]
        found[source] = found.get(parent) or ModuleTree(tree, source)  # type: ignore[arg-type]
        found[source].add_module(source)
    return {source: module_tree for source, module_tree in found.items() if len(module_tree.modules) > MIN_SUBMODULES}

"""Trees of modules, checked by the versions of their dicts.

A model has thousands of facts to guard, nearly all in the dicts of its modules: a number, a name that is
not there, hooks that are none.  Python gives a dict a new version whenever it changes, and the C++ tree
skips an item of a dict whose version is the one at which it last passed, where the item is marked as
immutable.  So each module below a root gets one such item, its seal: all facts about its own dict, looked
at again in Python only when that dict has changed.

What no version tells is checked at each call: the types of the modules, and that the dicts of hooks are
empty.  The modules are held, so that nothing is looked up on the way to them; that they still are where
they were is a fact about the tables of submodules, sealed too.  A sealed tree is therefore good for one
root object; for others the guards are installed one by one (`GuardTree.build`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.guards.kinds import KINDS, GuardSpec
from compiler_core.guards.sources import VERSIONS_ARE_STALE, Attribute, InstanceDict, Item, Source
from compiler_core.support.interrupts import guard_function

if TYPE_CHECKING:
    from compiler_core.guards.tree import GuardTree

FEWEST = 4
"""Modules below a root for which sealing pays."""
_TABLE = "_modules"
_IMMUTABLE = 0  # as an example value, it marks an item as one to skip while the dict has its version
_MISSING = object()

Fact = Callable[[dict[str, Any]], bool]


@dataclass
class Member:
    """A module of a tree: what is sealed about its own dict, and about its table of submodules."""

    module: weakref.ref[torch.nn.Module]
    source: Source
    facts: list[Fact] = field(default_factory=list)
    table_facts: list[Fact] = field(default_factory=list)
    first_child: str | None = None

    def own_dict_holds(self, _: Any) -> bool:
        module = self.module()
        return module is not None and all(fact(module.__dict__) for fact in self.facts)

    def table_holds(self, _: Any) -> bool:
        module = self.module()
        return module is not None and all(fact(module.__dict__[_TABLE]) for fact in self.table_facts)


class SealedTree:
    """One root module and the modules below it that guards look at."""

    def __init__(self, tree: GuardTree, root: Source) -> None:
        self.tree = tree
        self.root = root
        self.members: dict[Source, Member] = {}
        self.held: list[torch.nn.Module] = []
        self.empty: list[Any] = []
        """Dicts that are to stay empty."""

    def add(self, source: Source) -> None:
        module, held, empty = self.tree.value(source), self.held, self.empty
        if source is self.root:
            # what is held dies with the root
            self.members[source] = Member(weakref.ref(module, lambda _: _forget(held, empty)), source)
            return
        assert isinstance(source, Attribute)
        held.append(module)
        member = self.members[source] = Member(weakref.ref(module), source)
        parent, name = self.members[source.base], source.name
        parent.first_child = parent.first_child or name
        parent.table_facts.append(lambda table: table.get(name) is member.module())

    def takes(self, guard: GuardSpec, owner: Source, name: str | None) -> bool:
        """Seal a guard on `name` in the owner's dict (or on that dict), if it is on what versions tell."""
        member = self.members[owner]
        if name is None:
            return self._takes_name(member, guard)
        if name == _TABLE and guard.kind == "DICT_KEYS" and member.first_child is not None:
            member.table_facts.append(_check(guard))
        elif guard.kind in ("EQUALS_MATCH", "ID_MATCH"):
            check = _check(guard)
            member.facts.append(lambda own: name in own and check(own[name]))
        elif guard.kind == "DICT_LENGTH" and guard.value == 0:
            self._takes_empty(member, name)
        else:
            return False
        return True

    def _takes_name(self, member: Member, guard: GuardSpec) -> bool:
        if guard.kind in ("DICT_CONTAINS", "DICT_HAS"):
            member.facts.append(_check(guard))
            return True
        return False

    def _takes_empty(self, member: Member, name: str) -> None:
        found = vars(self.tree.value(member.source))[name]
        at, empty = len(self.empty), self.empty
        empty.append(found)
        member.facts.append(lambda own: at < len(empty) and own.get(name, _MISSING) is empty[at])

    def install(self) -> None:
        tree, empty = self.tree, self.empty
        root = tree.manager(self.root)
        root.add_id_match_guard(id(tree.value(self.root)), [f"{self.root.text} is the same object"], None)
        held = tree.held_list(self.held, f"modules of {self.root.text}")
        below = [member for source, member in self.members.items() if source is not self.root]
        for i, member in enumerate(below):
            text = member.source.text
            tree.reach(member.source, held.list_getitem_manager(i, text, self.held[i], tree.kind))
        for member in self.members.values():
            self._install_seals(member)
        if empty:
            root.add_lambda_guard(guard_function(lambda _: not any(empty)), ["no hooks"], None)

    def _install_seals(self, member: Member) -> None:
        module = self.tree.value(member.source)
        own = self.tree.manager(InstanceDict(member.source))
        text = member.source.text
        seal = own.dict_getitem_manager("training", f"seal of {text}", _IMMUTABLE, self.tree.kind)
        seal.add_lambda_guard(guard_function(member.own_dict_holds), [f"the attributes of {text}"], None)
        if member.first_child is not None:
            children = vars(module)[_TABLE]
            table = own.dict_getitem_manager(_TABLE, f"submodules of {text}", children, self.tree.kind)
            seal = table.dict_getitem_manager(member.first_child, "seal", _IMMUTABLE, self.tree.kind)
            seal.add_lambda_guard(guard_function(member.table_holds), [f"the submodules of {text}"], None)

    @property
    def holds(self) -> bool:
        return all(m.own_dict_holds(None) and m.table_holds(None) for m in self.members.values())


def _check(guard: GuardSpec) -> Callable[[Any], bool]:
    check, value = KINDS[guard.kind].check, guard.value
    return lambda obj: check(obj, value) is None


def _forget(*lists: list[Any]) -> None:
    for each in lists:
        each.clear()


def _place_of(source: Source) -> tuple[str | None, Source | None]:
    """The name in, and the owner of, an instance dict (no name: the dict itself); no owner for other places."""
    if isinstance(source, InstanceDict):
        return None, source.base
    if isinstance(source, Attribute) and source.table == "__dict__":
        return source.name, source.base
    if isinstance(source, Item) and isinstance(source.base, InstanceDict):
        return source.key, source.base.base
    return None, None


def seal(tree: GuardTree, guards: Sequence[GuardSpec]) -> list[GuardSpec]:
    """Install the guards that can be sealed, and return the others."""
    owners = {} if VERSIONS_ARE_STALE else _trees(tree, guards)
    left = [g for g in guards if not _taken(owners, g)]
    sealed = list({id(each): each for each in owners.values()}.values())
    if not all(each.holds for each in sealed):
        return list(guards)  # they changed while the code was made
    for each in sealed:
        each.install()
    return left


def _taken(owners: dict[Source, SealedTree], guard: GuardSpec) -> bool:
    name, owner = _place_of(guard.source)
    return owner in owners and owners[owner].takes(guard, owner, name)


def _trees(tree: GuardTree, guards: Sequence[GuardSpec]) -> dict[Source, SealedTree]:
    """The tree of each module whose type is guarded: what is reached through tables of submodules is in its
    parent's, others are roots."""
    found: dict[Source, SealedTree] = {}
    for guard in guards:
        source = guard.source
        if guard.kind != "TYPE_MATCH" or not issubclass(guard.value.value, torch.nn.Module):
            continue
        if "training" not in vars(tree.value(source)):
            continue  # there is nothing that a seal could be put on
        base = source.base if isinstance(source, Attribute) and source.table == _TABLE else None
        found[source] = found.get(base) or SealedTree(tree, source)  # type: ignore[arg-type]
        found[source].add(source)
    return {source: sealed for source, sealed in found.items() if len(sealed.held) >= FEWEST}

"""PyTorch's C++ guard tree, built from a list of guards: what runs before every call."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import torch
from torch._C._dynamo import eval_frame
from torch._C._dynamo import guards as cpp
from torch._dynamo.guards import GuardManagerType, GuardManagerWrapper

from compiler_core.guards.kinds import KINDS, GuardSpec, install_conditions
from compiler_core.guards.lifetimes import Mortal
from compiler_core.guards.sealed import seal
from compiler_core.guards.sources import Held, Item, Local, Scope, Source

_ASKED_EACH_TIME = object()
_PART = 128
"""Items of a container that hang on one manager of their own, where there are more than `_MANY`."""
_MANY = 512
# else C++ skips a parameter's check while its module's dict is unchanged, and misses requires_grad_(); one for all
# builds, for each patch makes a context variable, which is never freed
_EVERY_TENSOR = torch._dynamo.config.patch(skip_tensor_guards_with_matching_dict_tags=False)


class GuardTree:
    """Builds PyTorch's guard tree for one frame from a list of guards."""

    kind = GuardManagerType.GUARD_MANAGER

    def __init__(self, scope: Scope, code: types.CodeType) -> None:
        self.scope = scope
        self.root = cpp.RootGuardManager()
        self._names = eval_frame.code_framelocals_names(code)
        self._managers: dict[Source, Any] = {}
        self._values: dict[Source, Any] = {}
        self._held: dict[str, Any] = {}
        self.parts: dict[Item, Part] = {}
        self._globals: Any = None
        self._held_manager: Any = None

    def value(self, source: Source) -> Any:
        if source not in self._values:
            self._values[source] = source.fetch(self.scope)
        return self._values[source]

    def manager(self, source: Source) -> Any:
        if source not in self._managers:
            self._managers[source] = source.manager(self)
        return self._managers[source]

    def local(self, source: Local) -> Any:
        key = (source.name, self._names.index(source.name))
        return self.root.framelocals_manager(key, source.text, self.value(source), self.kind)

    def frame_globals(self) -> Any:
        if self._globals is None:
            f_globals = self.scope.f_globals
            self._globals = self.root.globals_dict_manager(f_globals, "G", f_globals, self.kind)
        return self._globals

    def globals_of(self, source: Held) -> Any:
        """The manager of an object that we hold: an item of a private dict, used as if it were globals."""
        value = self.value(source)
        if not isinstance(source.held, Mortal):
            return self._hold(value, source.text)
        return self._hold(source.held.ref, source.text).weakref_call_manager(source.text, value, self.kind)

    def held_list(self, items: list[Any], name: str) -> Any:
        """The manager of a list of ours."""
        return self._hold(items, name)

    def library(self, names: dict[str, Any], home: str) -> Any:
        """The manager of a dict of a library: taken for globals, which the tree holds itself and needs no way to."""
        return self.root.globals_dict_manager(names, home, names, self.kind)

    def _hold(self, obj: Any, name: str) -> Any:
        key = f"held {len(self._held)}: {name}"
        self._held[key] = obj
        if self._held_manager is None:
            self._held_manager = self.root.globals_dict_manager(self._held, "held", self._held, self.kind)
        # the tree takes a C function for a constant, and would ask what one returns only once
        example = _ASKED_EACH_TIME if isinstance(obj, types.BuiltinFunctionType) else obj
        return self._held_manager.dict_getitem_manager(key, name, example, self.kind)

    def reach(self, source: Source, manager: Any) -> None:
        """Take this way to `source`."""
        self._managers[source] = manager

    def scope_of(self, f_locals: dict[str, Any]) -> Scope:
        return Scope(f_locals, self.scope.f_globals, {})

    def build(self, guards: Sequence[GuardSpec], sealing: bool = True) -> GuardManagerWrapper:
        """The object that the frame hook takes.  Whatever C++ and Dynamo read of it is set here.

        With `sealing`, trees of modules are checked by the versions of their dicts; then it holds for
        these very objects only."""
        with _EVERY_TENSOR:
            left = seal(self, guards) if sealing else guards
            self.parts = {item: part for part in _parts(left) for item in part.places}
            for guard in left:
                if guard.kind != "CONDITION":
                    KINDS[guard.kind].install(self, guard, [guard.text])
            if conditions := [guard for guard in left if guard.kind == "CONDITION"]:
                install_conditions(self, conditions)
        made = GuardManagerWrapper(self.root)
        made.diff_guard_root = self.root
        made.closure_vars, made.args, made.verbose_code_parts = {}, [], []
        made.global_scope = {"G": self.scope.f_globals}
        self.scope = Scope({}, self.scope.f_globals, {})
        self._values.clear()
        self._managers.clear()
        self.parts.clear()
        return made


class Part:
    """Some items of a container, taken at once.

    PyTorch's manager looks for a new item among all those that it has, so a container with many items that are guarded
    takes a time that grows with the square of their number.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self.places = {item: i for i, item in enumerate(items)}
        self._base = items[0].base
        self._manager: Any = None

    def manager(self, item: Item, tree: GuardTree) -> Any:
        if self._manager is None:
            keys = [each.key for each in self.places]
            take = itemgetter(*keys, keys[0])  # of one key it would give no tuple
            name = f"{len(keys)} items of {self._base.text}"
            self._manager = tree.manager(self._base).lambda_manager(take, name, (), tree.kind)
        return self._manager.tuple_getitem_manager(self.places[item], item.text, tree.value(item), tree.kind)


def _parts(guards: Sequence[GuardSpec]) -> Iterator[Part]:
    """Those of the containers of which many items are guarded."""
    found: dict[Source, dict[Item, None]] = {}
    for guard in guards:
        source: Source | None = guard.source
        while source is not None:
            if isinstance(source, Item):
                found.setdefault(source.base, {})[source] = None
            source = getattr(source, "base", None)
    for items in map(list, found.values()):
        if len(items) > _MANY:
            yield from (Part(items[i : i + _PART]) for i in range(0, len(items), _PART))

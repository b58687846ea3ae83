"""Modules: instances of nn.Module from outside."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from compiler_core.errors import Unsupported
from compiler_core.sources import Attribute, InstanceDict, Item
from compiler_core.values.base import Value, raised
from compiler_core.values.mappings import DictValue
from compiler_core.values.objects import ABSENT, ObjectValue, is_data_descriptor, type_of

if TYPE_CHECKING:
    from compiler_core.symbolic import Interpreter

MODULE_TABLES = ("_parameters", "_buffers", "_modules")
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class ModuleValue(ObjectValue):
    """An nn.Module from outside."""

    real: torch.nn.Module
    stores_directly = False

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        self.look(tx)
        if type(self.real).__call__ is not torch.nn.Module.__call__:
            return super().call(tx, args, kwargs)
        self._check_no_hooks(tx)
        tx.capture.modules.append(self.path)
        try:
            return self.get_attr(tx, "forward").call(tx, args, kwargs)
        finally:
            tx.capture.modules.pop()

    @property
    def path(self) -> str:
        """Where it lies, as its user writes it (``model.layers[0]``)."""
        assert self.source is not None
        return self.source.text

    def _check_no_hooks(self, tx: Interpreter) -> None:
        module = torch.nn.modules.module
        own = self.real.__dict__
        if any(own.get(h) for h in HOOKS) or any(getattr(module, f"_global{h}", None) for h in HOOKS):
            raise Unsupported("unsupported call", f"{type(self.real).__name__} has hooks")
        if own.get("_compiled_call_impl") is not None:
            raise Unsupported("unsupported call", f"{type(self.real).__name__} was compiled with torch.compile")
        assert self.source is not None
        everywhere = tx.capture.held(module.__dict__, "torch.nn.modules.module")
        for hook in HOOKS:
            if f"_global{hook}" in module.__dict__:
                tx.capture.guard("DICT_LENGTH", Item(everywhere, f"_global{hook}"), 0)
            if hook in own:
                tx.capture.guard("DICT_LENGTH", Item(InstanceDict(self.source), hook), 0)

    def _fallback(self, tx: Interpreter, name: str) -> Value | None:
        if not _uses_module_getattr(self.cls):
            return super()._fallback(tx, name)
        assert self.source is not None
        for table in MODULE_TABLES:
            if name in self.real.__dict__.get(table, {}):
                return tx.capture.wrap(self.real.__dict__[table][name], Attribute(self.source, name, table))
        return None

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        """A plain attribute may be set; parameters, buffers and submodules are left to Python."""
        self.look(tx)
        if vars(torch.nn.Module)["__setattr__"] is not inspect.getattr_static(self.cls, "__setattr__"):
            raise Unsupported("unsupported mutation", f"{self.cls.__name__} has its own __setattr__")
        registered = any(name in self.real.__dict__.get(t, {}) for t in MODULE_TABLES)
        special = isinstance(value, ModuleValue) or issubclass(type_of(value), (torch.nn.Parameter, torch.nn.Module))
        on_class = inspect.getattr_static(self.cls, name, ABSENT)
        if registered or special or (on_class is not ABSENT and is_data_descriptor(on_class)):
            raise Unsupported("unsupported mutation", f"{self.path}.{name}, a registered parameter, buffer or module")
        self.store(tx, name, value)

    def _table(self, tx: Interpreter, name: str) -> DictValue:
        found = self._own_attr(tx, name)
        assert isinstance(found, DictValue)
        return found

    def items(self, tx: Interpreter) -> list[Value]:
        """ModuleList and Sequential; ModuleDict iterates over its keys."""
        self.look(tx)
        if isinstance(self.real, (torch.nn.ModuleList, torch.nn.Sequential)) and _plain(self.cls, "__iter__"):
            return self._children_in_order(tx)
        if isinstance(self.real, torch.nn.ModuleDict) and _plain(self.cls, "__iter__"):
            return self._table(tx, "_modules").items(tx)
        return super().items(tx)

    def iterate(self, tx: Interpreter) -> Value:
        from compiler_core.values.iterators import IteratorValue

        return IteratorValue(self.items(tx))

    def _children_in_order(self, tx: Interpreter) -> list[Value]:
        assert self.source is not None
        modules = self.real._modules
        tx.capture.guard("DICT_KEYS", Item(InstanceDict(self.source), "_modules"), list(modules))
        return [tx.capture.wrap(m, Attribute(self.source, k, "_modules")) for k, m in modules.items()]

    def length(self, tx: Interpreter) -> int:
        if isinstance(self.real, (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)):
            return self._table(tx, "_modules").length(tx)
        return super().length(tx)

    def truth(self, tx: Interpreter) -> bool:
        if isinstance(self.real, (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)):
            return self.length(tx) > 0
        return super().truth(tx)

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        if isinstance(self.real, (torch.nn.ModuleList, torch.nn.Sequential)) and key.is_constant():
            index = key.constant(tx)
            if isinstance(index, int):
                children = self._children_in_order(tx)
                if not -len(children) <= index < len(children):
                    raise raised(IndexError, f"index {index} is out of range")
                return children[index]
        if isinstance(self.real, torch.nn.ModuleDict) and _plain(self.cls, "__getitem__"):
            return self.get_attr(tx, key.constant(tx))
        return super().get_item(tx, key)


def _plain(cls: type, name: str) -> bool:
    """Whether `cls` has `name` as PyTorch's containers define it."""
    return getattr(getattr(cls, name, None), "__module__", "").startswith("torch.nn.modules.container")


def _uses_module_getattr(cls: type) -> bool:
    return getattr(cls, "__getattr__", None) is torch.nn.Module.__getattr__

"""nn.ModuleList, nn.Sequential and nn.ModuleDict: iteration, length, indexing and slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.values.base import Value, observed_exception
from compiler_core.capture.values.builtin.iterators import IteratorValue
from compiler_core.capture.values.builtin.sequences import SliceValue
from compiler_core.capture.values.user.modules import ModuleValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.guards.sources import Source


def module_value(cls: type, real: torch.nn.Module | None = None, source: Source | None = None) -> ModuleValue:
    """Makes the value of an nn.Module of class `cls`."""
    if issubclass(cls, (torch.nn.ModuleList, torch.nn.Sequential)):
        return ModuleListValue(cls, real, source)
    if issubclass(cls, torch.nn.ModuleDict):
        return ModuleDictValue(cls, real, source)
    return ModuleValue(cls, real, source)


def _is_defined_by_torch(cls: type, name: str) -> bool:
    """Whether `name` is the method that a container of PyTorch defines, rather than one of the user's."""
    return getattr(getattr(cls, name, None), "__module__", "").startswith("torch.nn.modules.container")


class _ContainerValue(ModuleValue):
    """A module that contains others."""

    def length(self, tx: Interpreter) -> int:
        if _is_defined_by_torch(self.cls, "__len__"):
            return self.table(tx, "_modules").length(tx)
        return super().length(tx)


class ModuleDictValue(_ContainerValue):
    """An nn.ModuleDict."""

    def iterate(self, tx: Interpreter) -> Value:
        self.install_guards(tx)
        if _is_defined_by_torch(self.cls, "__iter__"):
            return self.table(tx, "_modules").iterate(tx)
        return super().iterate(tx)

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        if _is_defined_by_torch(self.cls, "__getitem__"):
            return self.table(tx, "_modules").get_item(tx, key)
        return super().get_item(tx, key)


class ModuleListValue(_ContainerValue):
    """An nn.ModuleList or nn.Sequential."""

    def iterate(self, tx: Interpreter) -> Value:
        self.install_guards(tx)
        if _is_defined_by_torch(self.cls, "__iter__"):
            return IteratorValue(self.submodules(tx))
        return super().iterate(tx)

    def contains(self, tx: Interpreter, item: Value) -> bool:
        if not hasattr(self.cls, "__contains__"):
            return any(tx.is_same_or_equal(module, item) for module in tx.list_of(self))
        return super().contains(tx, item)

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        if not _is_defined_by_torch(self.cls, "__getitem__"):
            return super().get_item(tx, key)
        modules = self.submodules(tx)
        if isinstance(key, SliceValue):
            return ModuleSliceValue(self, key, modules[key.as_slice(tx)])
        return _item_at(modules, key.constant(tx))


class ModuleSliceValue(Value):
    """``layers[1:3]`` of a ModuleList or Sequential: a new container with some of its modules."""

    def __init__(self, container: ModuleListValue, key: SliceValue, modules: list[Value]) -> None:
        self.container = container
        self.key = key
        self.modules = modules

    def python_type(self) -> type:
        return self.container.cls

    def unpack(self, tx: Interpreter) -> list[Value]:
        return self.modules

    def length(self, tx: Interpreter) -> int:
        return len(self.modules)

    def truth(self, tx: Interpreter) -> bool:
        return bool(self.modules)

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        if isinstance(key, SliceValue):
            raise Unsupported("unsupported operation", "a slice of a slice of modules")
        return _item_at(self.modules, key.constant(tx))

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if self.container.cls is not torch.nn.Sequential or kwargs or len(args) != 1:
            raise Unsupported("unsupported call", str(self))
        result = args[0]
        for module in self.modules:
            result = module.call(tx, [result], {})
        return result

    def children(self) -> Sequence[Value]:
        return [self.container, self.key]

    def reconstruct(self, emit: Emitter) -> None:
        emit.value(self.container)
        emit.value(self.key)
        emit.subscript()


def _item_at(modules: list[Value], index: Any) -> Value:
    """Returns ``modules[index]``; raises the IndexError of PyTorch's containers."""
    if not -len(modules) <= index < len(modules):
        raise observed_exception(IndexError, f"index {index} is out of range")
    module: Value = modules[index]
    return module

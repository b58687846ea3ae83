"""nn.Modules: their tables of parameters, buffers and submodules, and their attributes."""

from __future__ import annotations

import inspect
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as nn_module

from compiler_core.capture.values.base import UNBOUND, Value, observed_exception
from compiler_core.capture.values.builtin.constant import ConstantValue
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.classes import ABSENT, is_data_descriptor, lookup_in_mro
from compiler_core.capture.values.user.module_calls import call_with_hooks, has_hooks, takes_packed_sequence
from compiler_core.capture.values.user.objects import ObjectValue, type_or_object
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import AttrSource, GetItemSource, InstanceDictSource

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

MODULE_TABLES = ("_parameters", "_buffers", "_modules")
# the methods that a call of a module runs, as they were when this file was imported
CALL_METHODS = {name: vars(torch.nn.Module)[name] for name in ("__call__", "_wrapped_call_impl", "_call_impl")}


class ModuleValue(ObjectValue):
    """An nn.Module.

    The tables of an outside module (parameters, buffers, submodules, hooks) are read entry by entry.  Once the frame
    has changed a table, its contents are those of a `DictValue`.
    """

    real: torch.nn.Module | None

    @property
    def path(self) -> str:
        """The path of the module as a Python expression, such as ``model.layers[0]``."""
        return self.source.text if self.source is not None else self.cls.__name__

    @property
    def _entry_dict(self) -> dict[str, Any]:
        """The ``__dict__`` at the frame's entry; empty for a module that the frame made."""
        return {} if self.real is None else self.real.__dict__

    @property
    def is_compiled(self) -> bool:
        """Whether ``module.compile()`` was called."""
        return self._entry_dict.get("_compiled_call_impl") is not None

    # --- attributes

    def table(self, tx: Interpreter, name: str) -> DictValue:
        """Returns a table of the module: ``_parameters``, ``_modules``, ``_forward_hooks`` and so on."""
        found = self.stored.get(name) or self._instance_attr(tx, name)
        if not isinstance(found, DictValue):
            raise Unsupported("unsupported attribute", f"{self.path}.{name}, which is not a dict")
        return found

    def _entry(self, tx: Interpreter, table: str, name: str) -> Value | None:
        """Returns the entry `name` of a table, or None.  That there is none is not guarded."""
        table_value = self.table(tx, table)
        if table_value.is_loaded:
            return table_value.mapping(tx).get(name)
        found = self._entry_dict[table]
        return (
            tx.capture.outside.wrap(found[name], AttrSource(self._outside_source(), name, table))
            if name in found
            else None
        )

    def _outside_source(self) -> Any:
        assert self.source is not None
        return self.source

    def _getattr_fallback(self, tx: Interpreter, name: str) -> Value | None:
        tx.capture.guards.add_class_names(self.cls, "__getattr__")
        if not _uses_module_getattr(self.cls):
            return super()._getattr_fallback(tx, name)
        return self.find_registered(tx, name)

    def find_registered(self, tx: Interpreter, name: str) -> Value | None:
        """Returns a parameter, buffer or submodule, as ``nn.Module.__getattr__`` does, or None."""
        for table in MODULE_TABLES:
            found = self._entry(tx, table, name)
            if found is not None:
                return found
        return None

    def guard_unregistered(self, tx: Interpreter, name: str) -> None:
        """Guards that no table has the entry `name`."""
        for table in MODULE_TABLES:
            if not self.table(tx, table).is_loaded:
                tx.capture.guards.add(
                    "DICT_CONTAINS", GetItemSource(InstanceDictSource(self._outside_source()), table), name
                )

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        self.install_guards(tx)
        setter = inspect.getattr_static(self.cls, "__setattr__")
        if setter is torch.nn.Module.__setattr__:
            self.module_setattr(tx, name, value)
        elif isinstance(setter, types.FunctionType):
            self._special_call(tx, "__setattr__", [ConstantValue(name), value])
        else:
            raise Unsupported("unsupported mutation", f"{self.cls.__name__} overrides __setattr__")

    def module_setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        """``nn.Module.__setattr__``."""
        table = self._table_for(tx, name, value)
        if table is None:
            self._assign_attribute(tx, name, value)
            return
        if any(vars(nn_module)[f"_global_{kind}_registration_hooks"] for kind in ("parameter", "buffer", "module")):
            raise Unsupported("unsupported mutation", f"{self.path}.{name} with registration hooks")
        if not tx.is_none(value):
            self._check_not_set_elsewhere(tx, name, table)
        self.table(tx, table).set_item(tx, ConstantValue(name), value)

    def _table_for(self, tx: Interpreter, name: str, value: Value) -> str | None:
        """Returns the table in which `value` is registered; None if it becomes an ordinary attribute."""
        cls = type_or_object(value)
        if issubclass(cls, torch.nn.Parameter):
            return "_parameters"
        if isinstance(value, ModuleValue):
            return "_modules"
        for table, fits in zip(MODULE_TABLES, (torch.nn.Parameter, torch.Tensor, torch.nn.Module), strict=True):
            if self._entry(tx, table, name) is not None:
                if not issubclass(cls, (fits, types.NoneType)):
                    raise Unsupported("exception", f"{self.path}.{name} cannot be a {cls.__name__}")
                return table
        if issubclass(cls, torch.nn.Module) or isinstance(getattr(value, "real", None), torch.nn.Buffer):
            raise Unsupported("unsupported mutation", f"{self.path}.{name}: registration of a {cls.__name__}")
        return None

    def _check_not_set_elsewhere(self, tx: Interpreter, name: str, table: str) -> None:
        """Checks that no ordinary attribute and no other table has the name: it would have to be deleted there."""
        others = [t for t in MODULE_TABLES if t != table and self._entry(tx, t, name) is not None]
        is_attribute = name in self.stored or name in self._entry_dict
        if others or is_attribute:
            raise Unsupported("unsupported mutation", f"{self.path}.{name} is registered or set elsewhere")
        if self.source is not None:
            tx.capture.guards.add("DICT_CONTAINS", InstanceDictSource(self._outside_source()), name)

    def _assign_attribute(self, tx: Interpreter, name: str, value: Value) -> None:
        on_class = inspect.getattr_static(self.cls, name, ABSENT)
        if isinstance(on_class, property) and isinstance(on_class.fset, types.FunctionType):
            self._guard_class(tx, name, on_class)
            tx.capture.outside.wrap_static(on_class.fset).call(tx, [self, value], {})
        elif on_class is not ABSENT and is_data_descriptor(on_class):
            raise Unsupported("unsupported mutation", f"{self.path}.{name}, a {type(on_class).__name__}")
        else:
            self.store(tx, name, value)

    def del_attr(self, tx: Interpreter, name: str) -> None:
        if inspect.getattr_static(self.cls, "__delattr__") is not torch.nn.Module.__delattr__:
            raise Unsupported("unsupported mutation", f"{self.cls.__name__} overrides __delattr__")
        for table in MODULE_TABLES:
            if self._entry(tx, table, name) is not None:
                self.table(tx, table).del_item(tx, ConstantValue(name))
                return
        if self.find_attr(tx, name) is None:
            raise observed_exception(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        self._assign_attribute(tx, name, UNBOUND)

    # --- calls

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        self.install_guards(tx)
        if not self._has_torch_call(tx):
            return super().call(tx, args, kwargs)
        return call_with_hooks(tx, self, args, kwargs)

    def _has_torch_call(self, tx: Interpreter) -> bool:
        """Whether a call of the module runs PyTorch's ``nn.Module.__call__``."""
        tx.capture.guards.add_class_names(self.cls, *CALL_METHODS)
        is_own = issubclass(self.cls, torch.fx.GraphModule) and is_graph_call(lookup_in_mro(self.cls, "__call__"))
        known = {name: function for name, function in CALL_METHODS.items() if name != "__call__" or not is_own}
        return all(lookup_in_mro(self.cls, name) is function for name, function in known.items())

    def forwarded_call(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, list[Value], dict[str, Value]] | None:
        self.install_guards(tx)
        if not self._has_torch_call(tx):
            return super().forwarded_call(tx, args, kwargs)
        if has_hooks(tx, self) or self.is_compiled or takes_packed_sequence(self, args):
            return None
        return self.get_attr(tx, "forward"), list(args), kwargs

    def iterate(self, tx: Interpreter) -> Value:
        self.install_guards(tx)
        return super().iterate(tx)

    def submodules(self, tx: Interpreter) -> list[Value]:
        """Returns the submodules in their order."""
        table = self.table(tx, "_modules")
        if table.is_loaded:
            return list(table.mapping(tx).values())
        modules, source = self._entry_dict["_modules"], self._outside_source()
        tx.capture.guards.add("DICT_KEYS", GetItemSource(InstanceDictSource(source), "_modules"), list(modules))
        return [tx.capture.outside.wrap(m, AttrSource(source, k, "_modules")) for k, m in modules.items()]

    def truth(self, tx: Interpreter) -> bool:
        if not hasattr(self.cls, "__bool__") and hasattr(self.cls, "__len__"):
            return self.length(tx) > 0
        return super().truth(tx)


def is_graph_call(function: Any) -> bool:
    """Whether it is the ``__call__`` of a graph module, which runs that of nn.Module and explains its errors."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_qualname == "GraphModule.recompile.<locals>.call_wrapped"


def _uses_module_getattr(cls: type) -> bool:
    return getattr(cls, "__getattr__", None) is torch.nn.Module.__getattr__

"""nn.Modules: their tables of parameters, buffers and submodules, their attributes, calls and containers.

A call runs forward hooks and ``forward``, as in ``nn.Module._call_impl``.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as nn_module
from torch.nn.modules.rnn import RNNBase
from torch.nn.utils.rnn import PackedSequence

from compiler_core.capture.values.base import (
    Args,
    Call,
    Kwargs,
    ObservedException,
    Value,
    lookup_in_mro,
    observed_exception,
)
from compiler_core.capture.values.builtin.constant import ConstantValue
from compiler_core.capture.values.builtin.containers import IteratorValue
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import SliceValue, TupleValue
from compiler_core.capture.values.user.objects import ObjectValue, type_or_object
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import MODULE_TABLES, AttrSource, GetItemSource, InstanceDictSource
from compiler_core.torch_private import OptimizedModule

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.guards.sources import Source


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
        return tx.outside.wrap(found[name], AttrSource(self._outside_source(), name, table)) if name in found else None

    def _outside_source(self) -> Any:
        assert self.source is not None
        return self.source

    def _getattr_fallback(self, tx: Interpreter, name: str) -> Value | None:
        tx.guards.add_class_names(self.cls, "__getattr__")
        if _is_of_compiled_module(self.cls):
            original = self.find_registered(tx, "_orig_mod")
            if isinstance(original, ModuleValue):
                return original if name == "_orig_mod" else original.find_attr(tx, name)
        if getattr(self.cls, "__getattr__", None) is not torch.nn.Module.__getattr__:
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
                tx.guards.add("DICT_CONTAINS", GetItemSource(InstanceDictSource(self._outside_source()), table), name)

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
            self.generic_set_attr(tx, name, value)
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
            tx.guards.add("DICT_CONTAINS", InstanceDictSource(self._outside_source()), name)

    def del_attr(self, tx: Interpreter, name: str) -> None:
        if inspect.getattr_static(self.cls, "__delattr__") is not torch.nn.Module.__delattr__:
            raise Unsupported("unsupported mutation", f"{self.cls.__name__} overrides __delattr__")
        for table in MODULE_TABLES:
            if self._entry(tx, table, name) is not None:
                self.table(tx, table).del_item(tx, ConstantValue(name))
                return
        self.generic_del_attr(tx, name)

    # --- calls

    def call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        self.install_guards(tx)
        if not self._has_torch_call(tx):
            return super().call(tx, args, kwargs)
        return call_with_hooks(tx, self, args, kwargs)

    def _has_torch_call(self, tx: Interpreter) -> bool:
        """Whether a call of the module runs PyTorch's ``nn.Module.__call__``."""
        tx.guards.add_class_names(self.cls, *CALL_METHODS)
        is_own = issubclass(self.cls, torch.fx.GraphModule) and is_graph_call(lookup_in_mro(self.cls, "__call__"))
        known = {name: function for name, function in CALL_METHODS.items() if name != "__call__" or not is_own}
        return all(lookup_in_mro(self.cls, name) is function for name, function in known.items())

    def forwarded_call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Call | None:
        self.install_guards(tx)
        if _is_of_compiled_module(self.cls) and not has_hooks(tx, self):
            return self.get_attr(tx, "_orig_mod"), list(args), kwargs
        if not self._has_torch_call(tx):
            return super().forwarded_call(tx, args, kwargs)
        if has_hooks(tx, self) or takes_packed_sequence(self, args):
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
        tx.guards.add("DICT_KEYS", GetItemSource(InstanceDictSource(source), "_modules"), list(modules))
        return [tx.outside.wrap(m, AttrSource(source, k, "_modules")) for k, m in modules.items()]

    def truth(self, tx: Interpreter) -> bool:
        if not hasattr(self.cls, "__bool__") and hasattr(self.cls, "__len__"):
            return self.length(tx) > 0
        return super().truth(tx)


def _is_of_compiled_module(cls: type) -> bool:
    """Whether a class is that of the modules that ``compile`` returns, ours or stock's: they call the original."""
    return issubclass(cls, OptimizedModule) or getattr(cls, "_cutaway_compiled", False)


def is_graph_call(function: Any) -> bool:
    """Whether it is the ``__call__`` of a graph module, which runs that of nn.Module and explains its errors."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_qualname == "GraphModule.recompile.<locals>.call_wrapped"


FORWARD_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
Hook = tuple[Any, Value]
"""The key under which a hook is registered, and the hook."""


def has_hooks(tx: Interpreter, module: ModuleValue) -> bool:
    """Whether a call of the module runs any hook."""
    return any(_hooks(tx, module, kind) for kind in (*FORWARD_HOOKS, *BACKWARD_HOOKS))


def takes_packed_sequence(module: ModuleValue, args: Args) -> bool:
    """Whether an RNN is called with a packed sequence, whose sizes its ``forward`` reads."""
    return issubclass(module.cls, RNNBase) and any(arg.python_type() is PackedSequence for arg in args)


def call_with_hooks(tx: Interpreter, module: ModuleValue, args: Args, kwargs: Kwargs) -> Value:
    """``nn.Module.__call__``."""
    if any(_hooks(tx, module, kind) for kind in BACKWARD_HOOKS):
        raise Unsupported("unsupported call", f"{module.cls.__name__} has backward hooks")
    pre_hooks, hooks = (_hooks(tx, module, kind) for kind in FORWARD_HOOKS)
    for key, hook in pre_hooks:
        args, kwargs = _call_pre_hook(tx, module, key, hook, args, kwargs)
    result = _call_forward(tx, module, args, kwargs, hooks)
    for key, hook in hooks:
        result = _call_forward_hook(tx, module, key, hook, args, kwargs, result)
    return result


def _call_forward(tx: Interpreter, module: ModuleValue, args: Args, kwargs: Kwargs, hooks: list[Hook]) -> Value:
    if takes_packed_sequence(module, args):
        raise Unsupported("packed sequence", f"{module.cls.__name__} of a packed sequence")
    try:
        return module.get_attr(tx, "forward").call(tx, args, kwargs)
    except ObservedException as error:
        if hooks:  # hooks registered with always_call run after an exception, too
            raise Unsupported("exception", str(error.exception)) from None
        raise


def _hooks(tx: Interpreter, module: ModuleValue, kind: str) -> list[Hook]:
    """Returns the hooks of all modules, then those of this one, in the order in which they are called."""
    namespace = tx.guards.held(nn_module.__dict__, "torch.nn.modules.module")
    name = f"_global{kind}"
    global_hooks = tx.outside.wrap(vars(nn_module)[name], GetItemSource(namespace, name))
    return [*_entries(tx, global_hooks), *_entries(tx, module.table(tx, kind))]


def _entries(tx: Interpreter, table: Value) -> list[Hook]:
    """Returns the hooks in a table; an empty one gets a single guard on its length."""
    assert isinstance(table, DictValue)
    if not table.is_loaded and not table.real:
        tx.guards.add("DICT_LENGTH", table.source, 0)
        return []
    return list(table.mapping(tx).items())


def _is_marked(tx: Interpreter, module: ModuleValue, key: Any, table: str) -> bool:
    """Whether a hook was registered with the option for which `table` has the keys of hooks."""
    marked_hooks = module.table(tx, table)
    marked = marked_hooks.mapping(tx) if marked_hooks.is_loaded else marked_hooks.real
    return key in marked or key in vars(nn_module).get(f"_global{table}", {})


def _call_pre_hook(
    tx: Interpreter, module: ModuleValue, key: Any, hook: Value, args: Args, kwargs: Kwargs
) -> tuple[Sequence[Value], dict[str, Value]]:
    """Calls a forward pre-hook; returns the arguments, which it may replace."""
    if _is_marked(tx, module, key, "_forward_pre_hooks_with_kwargs"):
        result = hook.call(tx, [module, TupleValue(list(args)), DictValue(dict(kwargs))], {})
        if tx.is_none(result):
            return args, kwargs
        if not isinstance(result, TupleValue) or result.length(tx) != 2:
            raise Unsupported("exception", "a forward pre-hook returned neither None nor two values")
        new_args, new_kwargs = result.unpack(tx)
        if not isinstance(new_kwargs, DictValue):
            raise Unsupported("exception", "a forward pre-hook returned keyword arguments that are not a dict")
        return list(tx.list_of(new_args)), dict(new_kwargs.mapping(tx))
    result = hook.call(tx, [module, TupleValue(list(args))], {})
    if tx.is_none(result):
        return args, kwargs
    return (result.unpack(tx) if isinstance(result, TupleValue) else [result]), kwargs


def _call_forward_hook(
    tx: Interpreter,
    module: ModuleValue,
    key: Any,
    hook: Value,
    args: Args,
    kwargs: Kwargs,
    result: Value,
) -> Value:
    """Calls a forward hook; returns the result of the module, which it may replace."""
    hook_args: list[Value] = [module, TupleValue(list(args))]
    if _is_marked(tx, module, key, "_forward_hooks_with_kwargs"):
        hook_args.append(DictValue(dict(kwargs)))
    new_result = hook.call(tx, [*hook_args, result], {})
    return result if tx.is_none(new_result) else new_result


def module_value(cls: type, real: torch.nn.Module | None = None, source: Source | None = None) -> ModuleValue:
    """Makes the value of an nn.Module of class `cls`."""
    if issubclass(cls, (torch.nn.ModuleList, torch.nn.Sequential)):
        return ModuleListValue(cls, real, source)
    return ModuleValue(cls, real, source)


def _is_defined_by_torch(cls: type, name: str) -> bool:
    """Whether `name` is the method that a container of PyTorch defines, rather than one of the user's."""
    return getattr(getattr(cls, name, None), "__module__", "").startswith("torch.nn.modules.container")


class ModuleListValue(ModuleValue):
    """An nn.ModuleList or nn.Sequential."""

    def iterate(self, tx: Interpreter) -> Value:
        self.install_guards(tx)
        if _is_defined_by_torch(self.cls, "__iter__"):
            return IteratorValue(self.submodules(tx))
        return super().iterate(tx)

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
        self.cls = container.cls

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

    def call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        if self.container.cls is not torch.nn.Sequential or kwargs or len(args) != 1:
            raise Unsupported("unsupported call", str(self))
        result = args[0]
        for module in self.modules:
            result = module.call(tx, [result], {})
        return result

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

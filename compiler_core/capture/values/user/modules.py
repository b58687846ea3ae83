"""Modules: instances of nn.Module, from outside or made in the frame."""

from __future__ import annotations

import inspect
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as nn_module

from compiler_core.capture.rules.table import handles
from compiler_core.capture.values.base import UNBOUND, Raised, Value, raised
from compiler_core.capture.values.builtin.iterators import IteratorValue
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import SliceValue, TupleValue
from compiler_core.capture.values.constant import NONE, ConstantValue
from compiler_core.capture.values.user.descriptors import ABSENT, is_data_descriptor, lookup
from compiler_core.capture.values.user.objects import ObjectValue, type_of
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import Attribute, InstanceDict, Item

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter

MODULE_TABLES = ("_parameters", "_buffers", "_modules")
FORWARD_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")


# what a call of a module runs, as it was when this was imported
_CALL = {name: vars(torch.nn.Module)[name] for name in ("__call__", "_wrapped_call_impl", "_call_impl")}


class ModuleValue(ObjectValue):
    """An nn.Module.

    Its tables (parameters, buffers, submodules, hooks) are read entry by entry while nothing changes
    them; once the frame has changed one, the dict that mirrors it is the truth.
    """

    real: torch.nn.Module | None

    @property
    def path(self) -> str:
        """Where it lies, as its user writes it (``model.layers[0]``)."""
        return self.source.text if self.source is not None else self.cls.__name__

    @property
    def _own(self) -> dict[str, Any]:
        """What it held at the frame's entry."""
        return {} if self.real is None else self.real.__dict__

    # --- attributes

    def _table(self, tx: Interpreter, name: str) -> DictValue:
        found = self.stored.get(name) or self._own_attr(tx, name)
        if not isinstance(found, DictValue):
            raise Unsupported("unsupported attribute", f"{self.path}.{name}, which is no dict")
        return found

    def _entry(self, tx: Interpreter, table: str, name: str) -> Value | None:
        """What is registered as `name`; what is not there is not guarded."""
        mirror = self._table(tx, table)
        if mirror.is_loaded:
            return mirror.mapping(tx).get(name)
        found = self._own[table]
        return tx.capture.wrap(found[name], Attribute(self._place(), name, table)) if name in found else None

    def _place(self) -> Any:
        assert self.source is not None
        return self.source

    def _fallback(self, tx: Interpreter, name: str) -> Value | None:
        tx.capture.looked_up_in_class(self.cls, "__getattr__")
        if not _uses_module_getattr(self.cls):
            return super()._fallback(tx, name)
        return self.registered(tx, name)

    def registered(self, tx: Interpreter, name: str) -> Value | None:
        """A parameter, buffer or submodule, as ``nn.Module.__getattr__`` finds it; None for none."""
        for table in MODULE_TABLES:
            found = self._entry(tx, table, name)
            if found is not None:
                return found
        return None

    def guard_unregistered(self, tx: Interpreter, name: str) -> None:
        for table in MODULE_TABLES:
            if not self._table(tx, table).is_loaded:
                tx.capture.guard("DICT_CONTAINS", Item(InstanceDict(self._place()), table), name)

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        self.look(tx)
        setter = inspect.getattr_static(self.cls, "__setattr__")
        if setter is torch.nn.Module.__setattr__:
            self.assign(tx, name, value)
        elif isinstance(setter, types.FunctionType):
            self._special_call(tx, "__setattr__", [ConstantValue(name), value])
        else:
            raise Unsupported("unsupported mutation", f"{self.cls.__name__} has its own __setattr__")

    def assign(self, tx: Interpreter, name: str, value: Value) -> None:
        """``nn.Module.__setattr__``"""
        table = self._table_for(tx, name, value)
        if table is None:
            self._assign_plainly(tx, name, value)
            return
        if any(vars(nn_module)[f"_global_{kind}_registration_hooks"] for kind in ("parameter", "buffer", "module")):
            raise Unsupported("unsupported mutation", f"{self.path}.{name} with registration hooks")
        if not tx.is_none(value):
            self._forget_elsewhere(tx, name, table)
        self._table(tx, table).set_item(tx, ConstantValue(name), value)

    def _table_for(self, tx: Interpreter, name: str, value: Value) -> str | None:
        """The table that takes `name`; None where it becomes a plain attribute."""
        cls = type_of(value)
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
            raise Unsupported("unsupported mutation", f"{self.path}.{name}, to be registered")
        return None

    def _forget_elsewhere(self, tx: Interpreter, name: str, table: str) -> None:
        """Registered now, the name is no longer what it was."""
        others = [t for t in MODULE_TABLES if t != table and self._entry(tx, t, name) is not None]
        plain = self.stored.get(name, ABSENT) is not ABSENT or name in self._own
        if others or plain:
            raise Unsupported("unsupported mutation", f"{self.path}.{name}, which was something else before")
        if self.source is not None:
            tx.capture.guard("DICT_CONTAINS", InstanceDict(self._place()), name)

    def _assign_plainly(self, tx: Interpreter, name: str, value: Value) -> None:
        on_class = inspect.getattr_static(self.cls, name, ABSENT)
        if isinstance(on_class, property) and isinstance(on_class.fset, types.FunctionType):
            self._guard_class(tx, name, on_class)
            tx.capture.wrap_static(on_class.fset).call(tx, [self, value], {})
        elif on_class is not ABSENT and is_data_descriptor(on_class):
            raise Unsupported("unsupported mutation", f"{self.path}.{name}, a {type(on_class).__name__}")
        else:
            self.store(tx, name, value)

    def del_attr(self, tx: Interpreter, name: str) -> None:
        if inspect.getattr_static(self.cls, "__delattr__") is not torch.nn.Module.__delattr__:
            raise Unsupported("unsupported mutation", f"{self.cls.__name__} has its own __delattr__")
        for table in MODULE_TABLES:
            if self._entry(tx, table, name) is not None:
                self._table(tx, table).del_item(tx, ConstantValue(name))
                return
        if self.find_attr(tx, name) is None:
            raise raised(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        self._assign_plainly(tx, name, UNBOUND)

    # --- calls

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        self.look(tx)
        if not self._is_called_plainly(tx):
            return super().call(tx, args, kwargs)
        return self.call_with_hooks(tx, args, kwargs)

    def _is_called_plainly(self, tx: Interpreter) -> bool:
        """Whether a call is ``nn.Module.__call__``, as PyTorch made it."""
        tx.capture.looked_up_in_class(self.cls, *_CALL)
        return all(lookup(self.cls, name) is function for name, function in _CALL.items())

    def comes_to(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, list[Value], dict[str, Value]] | None:
        self.look(tx)
        if not self._is_called_plainly(tx):
            return super().comes_to(tx, args, kwargs)
        hooks = any(self._hooks(tx, kind) for kind in (*FORWARD_HOOKS, *BACKWARD_HOOKS))
        if hooks or self._own.get("_compiled_call_impl") is not None:
            return None
        return self.get_attr(tx, "forward"), list(args), kwargs

    def call_with_hooks(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """``nn.Module.__call__``"""
        if self._own.get("_compiled_call_impl") is not None:
            raise Unsupported("unsupported call", f"{self.cls.__name__} was compiled with torch.compile")
        if any(self._hooks(tx, kind) for kind in BACKWARD_HOOKS):
            raise Unsupported("unsupported call", f"{self.cls.__name__} has backward hooks")
        pre_hooks, hooks = (self._hooks(tx, kind) for kind in FORWARD_HOOKS)
        for key, hook in pre_hooks:
            args, kwargs = self._pre_hook(tx, key, hook, args, kwargs)
        result = self._forward(tx, args, kwargs, hooks)
        for key, hook in hooks:
            result = self._forward_hook(tx, key, hook, args, kwargs, result)
        return result

    def _forward(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value], hooks: list[tuple[Any, Value]]
    ) -> Value:
        try:
            return self.get_attr(tx, "forward").call(tx, args, kwargs)
        except Raised as error:
            if hooks:  # some may be called all the same
                raise Unsupported("exception", str(error.exception)) from None
            raise

    def _hooks(self, tx: Interpreter, kind: str) -> list[tuple[Any, Value]]:
        """Hooks of all modules, then of this one, in the order of their calls."""
        everywhere = tx.capture.held(nn_module.__dict__, "torch.nn.modules.module")
        name = f"_global{kind}"
        found = tx.capture.wrap(vars(nn_module)[name], Item(everywhere, name))
        return [*_entries(tx, found), *_entries(tx, self._table(tx, kind))]

    def _is_marked(self, tx: Interpreter, key: Any, table: str) -> bool:
        """Whether a hook was registered with an option, which `table` notes by the hook's key."""
        mirror = self._table(tx, table)
        marked = mirror.mapping(tx) if mirror.is_loaded else mirror.real
        return key in marked or key in vars(nn_module).get(f"_global{table}", {})

    def _pre_hook(
        self, tx: Interpreter, key: Any, hook: Value, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Sequence[Value], dict[str, Value]]:
        if self._is_marked(tx, key, "_forward_pre_hooks_with_kwargs"):
            made = hook.call(tx, [self, TupleValue(list(args)), DictValue(dict(kwargs))], {})
            if tx.is_none(made):
                return args, kwargs
            if not isinstance(made, TupleValue) or made.length(tx) != 2:
                raise Unsupported("exception", "a forward pre-hook returned neither None nor two values")
            new_args, new_kwargs = made.items(tx)
            if not isinstance(new_kwargs, DictValue):
                raise Unsupported("exception", "a forward pre-hook returned keyword arguments that are no dict")
            return list(tx.list_of(new_args)), dict(new_kwargs.mapping(tx))
        made = hook.call(tx, [self, TupleValue(list(args))], {})
        if tx.is_none(made):
            return args, kwargs
        return (made.items(tx) if isinstance(made, TupleValue) else [made]), kwargs

    def _forward_hook(
        self, tx: Interpreter, key: Any, hook: Value, args: Sequence[Value], kwargs: dict[str, Value], result: Value
    ) -> Value:
        given: list[Value] = [self, TupleValue(list(args))]
        if self._is_marked(tx, key, "_forward_hooks_with_kwargs"):
            given.append(DictValue(dict(kwargs)))
        made = hook.call(tx, [*given, result], {})
        return result if tx.is_none(made) else made

    # --- containers

    def _is_list(self) -> bool:
        return issubclass(self.cls, (torch.nn.ModuleList, torch.nn.Sequential))

    def children_in_order(self, tx: Interpreter) -> list[Value]:
        mirror = self._table(tx, "_modules")
        if mirror.is_loaded:
            return list(mirror.mapping(tx).values())
        modules, place = self._own["_modules"], self._place()
        tx.capture.guard("DICT_KEYS", Item(InstanceDict(place), "_modules"), list(modules))
        return [tx.capture.wrap(m, Attribute(place, k, "_modules")) for k, m in modules.items()]

    def iterate(self, tx: Interpreter) -> Value:
        self.look(tx)
        if self._is_list() and _plain(self.cls, "__iter__"):
            return IteratorValue(self.children_in_order(tx))
        if issubclass(self.cls, torch.nn.ModuleDict) and _plain(self.cls, "__iter__"):
            return self._table(tx, "_modules").iterate(tx)
        return super().iterate(tx)

    def contains(self, tx: Interpreter, item: Value) -> bool:
        if self._is_list() and not hasattr(self.cls, "__contains__"):
            return any(tx.is_item(child, item) for child in tx.list_of(self))
        return super().contains(tx, item)

    def length(self, tx: Interpreter) -> int:
        if (self._is_list() or issubclass(self.cls, torch.nn.ModuleDict)) and _plain(self.cls, "__len__"):
            return self._table(tx, "_modules").length(tx)
        return super().length(tx)

    def truth(self, tx: Interpreter) -> bool:
        if not hasattr(self.cls, "__bool__") and hasattr(self.cls, "__len__"):
            return self.length(tx) > 0
        return super().truth(tx)

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        if self._is_list() and _plain(self.cls, "__getitem__"):
            return self._list_item(tx, key)
        if issubclass(self.cls, torch.nn.ModuleDict) and _plain(self.cls, "__getitem__"):
            return self._table(tx, "_modules").get_item(tx, key)
        return super().get_item(tx, key)

    def _list_item(self, tx: Interpreter, key: Value) -> Value:
        children = self.children_in_order(tx)
        if isinstance(key, SliceValue):
            return ModuleSliceValue(self, key, children[key.as_slice(tx)])
        index = key.constant(tx)
        if not -len(children) <= index < len(children):
            raise raised(IndexError, f"index {index} is out of range")
        child: Value = children[index]
        return child


class ModuleSliceValue(Value):
    """``layers[1:3]`` of a ModuleList or Sequential: a new container of some of its modules."""

    def __init__(self, whole: ModuleValue, key: SliceValue, parts: list[Value]) -> None:
        self.whole = whole
        self.key = key
        self.parts = parts

    def python_type(self) -> type:
        return self.whole.cls

    def items(self, tx: Interpreter) -> list[Value]:
        return self.parts

    def length(self, tx: Interpreter) -> int:
        return len(self.parts)

    def truth(self, tx: Interpreter) -> bool:
        return bool(self.parts)

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        if isinstance(key, SliceValue):
            raise Unsupported("unsupported operation", "a slice of a slice of modules")
        index = key.constant(tx)
        if not -len(self.parts) <= index < len(self.parts):
            raise raised(IndexError, f"index {index} is out of range")
        part: Value = self.parts[index]
        return part

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if self.whole.cls is not torch.nn.Sequential or kwargs or len(args) != 1:
            raise Unsupported("unsupported call", str(self))
        result = args[0]
        for part in self.parts:
            result = part.call(tx, [result], {})
        return result

    def children(self) -> Sequence[Value]:
        return [self.whole, self.key]

    def rebuild(self, emit: Emitter) -> None:
        emit.value(self.whole)
        emit.value(self.key)
        emit.subscript()


@handles(torch.nn.Module.__setattr__)
def _module_setattr(tx: Interpreter, owner: Value, name: Value, value: Value) -> Value:
    assert isinstance(owner, ModuleValue)
    owner.assign(tx, name.constant(tx), value)
    return NONE


@handles(torch.nn.Module.__getattr__)
def _module_getattr(tx: Interpreter, owner: Value, name: Value) -> Value:
    assert isinstance(owner, ModuleValue)
    wanted = name.constant(tx)
    found = owner.registered(tx, wanted)
    if found is None:
        owner.guard_unregistered(tx, wanted)
        raise raised(AttributeError, f"{owner.cls.__name__!r} object has no attribute {wanted!r}")
    return found


@handles(torch.nn.Module.__call__)
def _module_call(tx: Interpreter, owner: Value, /, *args: Value, **kwargs: Value) -> Value:
    assert isinstance(owner, ModuleValue)
    if lookup(owner.cls, "_call_impl") is not _CALL["_call_impl"]:
        return owner.get_attr(tx, "_call_impl").call(tx, args, kwargs)
    return owner.call_with_hooks(tx, args, kwargs)


@handles(torch.nn.Module._call_impl)
def _module_call_impl(tx: Interpreter, owner: Value, /, *args: Value, **kwargs: Value) -> Value:
    assert isinstance(owner, ModuleValue)
    return owner.call_with_hooks(tx, args, kwargs)


def _entries(tx: Interpreter, table: Value) -> list[tuple[Any, Value]]:
    """What a table of hooks holds; one guard where it is empty."""
    assert isinstance(table, DictValue)
    if not table.is_loaded and not table.real:
        tx.capture.guard("DICT_LENGTH", table.source, 0)  # type: ignore[arg-type]
        return []
    return list(table.mapping(tx).items())


def _plain(cls: type, name: str) -> bool:
    """Whether `cls` has `name` as PyTorch's containers define it."""
    return getattr(getattr(cls, name, None), "__module__", "").startswith("torch.nn.modules.container")


def _uses_module_getattr(cls: type) -> bool:
    return getattr(cls, "__getattr__", None) is torch.nn.Module.__getattr__

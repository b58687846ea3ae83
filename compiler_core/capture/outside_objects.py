"""The objects from outside the frame that one capture attempt has met, and the values that stand for them."""

from __future__ import annotations

import contextvars
import functools
import gc
import inspect
import io
import itertools
import operator
import sys
import threading
import types
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.nn.attention import SDPBackend

from compiler_core.capture.guard_collector import GuardCollector
from compiler_core.capture.rules.python.library import GetterValue, ParameterValue, SignatureValue
from compiler_core.capture.rules.torch import numpy as arrays
from compiler_core.capture.side_effects import SideEffects
from compiler_core.capture.values.arrays import ARRAY, ArrayValue
from compiler_core.capture.values.base import (
    Args,
    Kwargs,
    NamedMethodValue,
    OutsideValue,
    Value,
    is_lock,
    is_plain_class,
    lookup_in_mro,
)
from compiler_core.capture.values.builtin.constant import ConstantValue, is_atom, is_instance
from compiler_core.capture.values.builtin.containers import (
    ObjectKey,
    OutsideIteratorValue,
    is_compared_as_tuple,
    is_plain_key,
)
from compiler_core.capture.values.builtin.mappings import CONTAINERS, DictValue
from compiler_core.capture.values.builtin.sequences import RangeValue, SliceValue, TupleValue, is_structure
from compiler_core.capture.values.builtin.sets import SetValue
from compiler_core.capture.values.builtin.static import StaticValue, from_python, is_typing_form
from compiler_core.capture.values.builtin.symbols import SymbolicNumber
from compiler_core.capture.values.contexts import CONTEXTS, ContextVarValue, ExitValue, WeakRefValue
from compiler_core.capture.values.distributed import (
    GroupValue,
    ProcessGroup,
)
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.tensor_subclasses import (
    SPARSE_LAYOUTS,
    DistributedTensorValue,
    SparseTensorValue,
    SubclassTensorValue,
    TraceableWrapperValue,
    WrapperTensorValue,
    is_distributed_tensor,
    is_subclass_of_program,
)
from compiler_core.capture.values.user.exceptions import ExceptionValue
from compiler_core.capture.values.user.functions import CellValue, FunctionValue, MethodValue, PartialValue
from compiler_core.capture.values.user.modules import module_value
from compiler_core.capture.values.user.objects import (
    SETS,
    AutogradContextValue,
    NamespaceValue,
    ObjectValue,
    SubclassValue,
    container_base,
)
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import is_python_class
from compiler_core.guards.sources import AttrSource, ConstantSource, FreeCellSource, GetItemSource, Source, root_source
from compiler_core.support.tensors import has_own_kernels, is_wrapper
from compiler_core.torch_private import (
    OpOverload,
    OpOverloadPacket,
    disabled_torch_function_impl,
    is_functorch_wrapped_tensor,
)

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


class OutsideObjects:
    """Maps objects from outside the frame to values: one value for each object, however it is reached."""

    def __init__(self, guards: GuardCollector, effects: SideEffects) -> None:
        self.guards = guards
        self.effects = effects
        self.values_by_id: dict[int, tuple[Any, Value]] = {}
        """Outside objects by their id, each with the value that stands for it."""
        self.identity_keys: dict[int, tuple[Any, Source]] = {}
        """Outside objects that were used as dict keys or set elements, and compare by identity."""
        self._function_attributes: dict[int, ObjectValue] = {}
        self.tuple_keys: dict[int, tuple[tuple[Any, ...], Value]] = {}
        """Tuples used as dict keys, each with the value it was made from, which reading the key returns."""
        self.namespaces: dict[int, ConstantSource] = {}
        """The globals of the frame and of the functions that it calls, by their id."""
        self.same_cells: dict[Source, FreeCellSource] = {}
        """Cells of the frame's own function that were reached through another function's closure."""

    def wrap(self, obj: Any, source: Source | None = None) -> Value:
        """Returns the value of an outside object; the same object always gives the same value.

        Without `source`, the object is assumed not to change, or was reached through something guarded of which this is
        assumed, such as a function of a class.
        """
        if type(obj) in (int, float) and source is not None:
            reason = self.guards.symbols.policy.symbol_reason(obj, source)
            if reason is not None:
                return SymbolicNumber(self.guards.symbols.symbol_for_number(obj, source, reason), source)
        if is_atom(obj):
            return ConstantValue(obj, source)
        if is_static(obj):
            return self._static(obj, source)
        path = source or self.guards.held(obj, getattr(obj, "__name__", type(obj).__name__))
        if id(obj) in self.values_by_id:
            value = self.values_by_id[id(obj)][1]
            if value.source is not None and value.source != path:
                self.guards.add("SAME_OBJECT", path, value.source)
                if ".param_groups[" in value.source.text and ".param_groups[" not in path.text:
                    self.guards.parameters.setdefault(value.source.text, path)
            return value
        value = build_value(self, obj, path)
        self.values_by_id[id(obj)] = (obj, value)
        return value

    def wrap_attribute(self, obj: Any, source: Source) -> Value:
        """Returns the value of a class attribute or default; functions and classes are assumed not to change there."""
        return self._static(obj, None) if is_static(obj) else self.wrap(obj, source)

    def _static(self, obj: Any, source: Source | None) -> Value:
        if is_instance(obj, types.FunctionType):
            return FunctionValue.from_outside(self, obj, source)
        return StaticValue(obj, source)

    def attributes_of(self, fn: types.FunctionType, source: Source) -> ObjectValue:
        """Returns the object that has the attributes of an outside function, of which there may be several values."""
        if id(fn) not in self._function_attributes:
            self._function_attributes[id(fn)] = ObjectValue(types.FunctionType, fn, source)
        return self._function_attributes[id(fn)]

    def cell(self, cell: types.CellType, source: Source) -> CellValue:
        """Returns the value of a cell; a cell that is reached by two paths is guarded to be the same on both."""
        if id(cell) not in self.values_by_id:
            self.values_by_id[id(cell)] = (cell, CellValue(source=source, real=cell))
        found = self.values_by_id[id(cell)][1]
        assert isinstance(found, CellValue)
        assert found.source is not None
        if found.source != source:
            self._guard_same_cell(found.source, source)
        return found

    def _guard_same_cell(self, known: Source, source: Source) -> None:
        if isinstance(known, FreeCellSource):
            self.same_cells[source] = known
        elif isinstance(source, FreeCellSource):
            self.same_cells[known] = source
        elif not all(isinstance(root_source(s), ConstantSource) for s in (known, source)):
            self.guards.add("SAME_OBJECT", source, known)

    def namespace(self, f_globals: dict[str, Any]) -> ConstantSource | None:
        """Returns a source for the globals of an inlined function or of a module; None for the frame's own globals."""
        held = self.namespaces[id(f_globals)] = self.guards.held(f_globals, str(f_globals.get("__name__", "globals")))
        return None if f_globals is self.guards.scope.f_globals else held

    def check_globals_unchanged(self, namespace: Any) -> None:
        """Raises Unsupported if `namespace` is the globals of code that has stored a global."""
        held = self.namespaces.get(id(namespace))
        if held is not None and self.effects.writes_globals(None if namespace is self.guards.scope.f_globals else held):
            raise Unsupported("unsupported call", "a read of globals through their dict, after some were stored")

    def key_value(self, key: Any) -> Value:
        """Returns a dict key as a value."""
        if isinstance(key, ObjectKey):
            return key.value
        if isinstance(key, tuple) and (known := self.tuple_keys.get(id(key))):
            return known[1]
        if type(key) is tuple:
            return TupleValue([self.key_value(k) for k in key])
        if isinstance(key, Value):
            return key
        if id(key) in self.identity_keys and id(key) in self.values_by_id:
            return self.values_by_id[id(key)][1]  # guards say where it is: it need not be held
        return from_python(key) if is_atom(key) or type(key) in (torch.Size, frozenset) else self.wrap(key)


class OpaqueValue(OutsideValue):
    """An outside object of a type that capture does not support: it can only be passed on."""

    def __repr__(self) -> str:
        name = self.source.text if self.source else ""
        return name if name and type(self.real) is types.BuiltinFunctionType else f"{name} ({_kind_name(self.real)})"

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if isinstance(self.real, io.IOBase) and name in ("write", "writelines", "flush"):
            return NamedMethodValue(self, name)
        if is_lock(self) and name in ("acquire", "release"):
            raise Unsupported("lock", f"{self}.{name}")
        if type(self.real) in (property, classmethod, staticmethod) and name in ("fget", "fset", "fdel", "__func__"):
            self.install_guards(tx)
            assert self.source is not None
            return tx.outside.wrap(getattr(self.real, name), AttrSource(self.source, name))
        return super().get_attr(tx, name)

    def call_method(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        raise Unsupported("print", f"{self}.{name}()")


class ArrayMethodValue(OpaqueValue):
    """A bound method of an array of NumPy, which is called after a graph break."""

    def call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        raise Unsupported("NumPy", f"ndarray.{self.real.__name__}()")


def _kind_name(real: Any) -> str:
    """Returns the type of an object in words; for a tensor, the property that is not supported."""
    if type(real) not in (torch.Tensor, torch.nn.Parameter):
        return type(real).__name__
    if real.is_quantized or real.is_nested:
        return f"a {'quantised' if real.is_quantized else 'nested'} tensor"
    if real.layout is not torch.strided:
        return f"a tensor of layout {str(real.layout).removeprefix('torch.').lstrip('_')}"
    named = any(getattr(real, "names", ()))  # tensors within a transform of functorch have no names at all
    return "a tensor with named dimensions" if named else type(real).__name__


def build_value(outside: OutsideObjects, obj: Any, source: Source) -> Value:
    """Returns the value for an outside object that is neither an atom nor static."""
    if _is_tensor_class(type(obj)) and _is_plain_tensor(obj):
        return TensorValue(source=source, real=obj)
    if is_distributed_tensor(obj):
        return DistributedTensorValue(obj, source)
    if is_wrapper(obj):
        return TraceableWrapperValue(source=source, real=obj)
    if is_instance(obj, torch.Tensor) and has_own_kernels(obj):
        return WrapperTensorValue(type(obj), source=source, real=obj)
    if is_subclass_of_program(type(obj)) and _is_plain_tensor(obj):
        return SubclassTensorValue(type(obj), source=source, real=obj)
    if type(obj) in (torch.Tensor, torch.nn.Parameter) and obj.layout in SPARSE_LAYOUTS:
        return SparseTensorValue(obj, source)
    if type(obj) is inspect.Signature:
        return SignatureValue(obj, source)
    if type(obj) is inspect.Parameter:
        return ParameterValue(obj, source)
    if type(obj) is types.MappingProxyType and _is_private(obj) and all(map(is_plain_key, obj)):
        outside.guards.add("TYPE_MATCH", source, obj)
        outside.guards.add("DICT_KEYS", source, list(obj))
        items: dict[Any, Value] = {k: outside.wrap(v, GetItemSource(source, k)) for k, v in obj.items()}
        return DictValue(items, types.MappingProxyType, source, obj)
    container = CONTAINERS.get(type(obj))
    if container is not None:
        return container(None, type(obj), source, obj)
    if is_structure(type(obj)):
        return TupleValue(None, type(obj), source, obj)
    if type(obj) in SETS and _has_known_members(obj):
        return SetValue(obj, type(obj), source, obj)
    cls: Any = type(obj)
    base = container_base(cls)
    if base in CONTAINERS or (base in SETS and _is_read_as_set(cls, base) and _has_known_members(obj)):
        return SubclassValue.from_outside(obj, source)
    if is_instance(obj, types.MethodType):
        return _method(outside, obj, source)
    if is_instance(obj, types.BuiltinMethodType) and type(obj.__self__) in CONTAINERS:
        outside.guards.add("TYPE_MATCH", source, obj)
        outside.guards.add("EQUALS_MATCH", AttrSource(source, "__name__"), obj.__name__)
        return NamedMethodValue(outside.wrap(obj.__self__, AttrSource(source, "__self__")), obj.__name__)
    if is_instance(obj, types.CellType):
        cell: Value = outside.cell(obj, source)
        return cell
    if type(obj) is range:
        outside.guards.add("EQUALS_MATCH", source, obj)
        return RangeValue(obj)
    if OutsideIteratorValue.takes(obj):
        return OutsideIteratorValue(obj, source)
    if type(obj) is slice:
        return SliceValue.from_outside(outside, obj, source)
    if type(obj) is functools.partial:
        return _partial(outside, obj, source)
    if type(obj) in (operator.itemgetter, operator.attrgetter, operator.methodcaller):
        return GetterValue.from_outside(obj, source)
    if cls in CONTEXTS:
        return CONTEXTS[cls].from_outside(outside, obj, source)
    if type(obj) is ARRAY:
        return ArrayValue(obj, source)
    if type(obj) is types.BuiltinMethodType and type(obj.__self__) is ARRAY:
        return ArrayMethodValue(obj, source)
    if type(obj) is contextvars.ContextVar:
        return ContextVarValue(obj, source)
    if issubclass(type(obj), ProcessGroup):
        return GroupValue(obj, source, source)
    if type(obj) is weakref.ref:
        return WeakRefValue(obj, source)
    if is_instance(obj, BaseException):
        return ExceptionValue(type(obj), real=obj, source=source)
    if is_instance(obj, torch.nn.Module):
        return module_value(type(obj), obj, source)
    if type(obj) is types.SimpleNamespace:
        return NamespaceValue(obj, source)
    if is_instance(obj, BackwardCFunction):
        return AutogradContextValue(type(obj), obj, source)
    return ObjectValue(type(obj), obj, source) if _is_plain_object(obj) else OpaqueValue(obj, source)


def _method(outside: OutsideObjects, obj: types.MethodType, source: Source) -> Value:
    if type(obj.__self__) in CONTEXTS and obj.__name__ == "__exit__":
        return ExitValue.from_outside(outside, obj, source)
    outside.guards.add("TYPE_MATCH", source, obj)
    function, owner = AttrSource(source, "__func__"), AttrSource(source, "__self__")
    method = MethodValue(outside.wrap(obj.__func__, function), outside.wrap(obj.__self__, owner))
    method.source = source
    return method


def _partial(outside: OutsideObjects, obj: Any, source: Source) -> Value:
    outside.guards.add("TYPE_MATCH", source, obj)
    args, keywords = AttrSource(source, "args"), AttrSource(source, "keywords")
    outside.guards.add("LENGTH", args, len(obj.args))
    outside.guards.add("DICT_KEYS", keywords, list(obj.keywords))
    return PartialValue(
        outside.wrap(obj.func, AttrSource(source, "func")),
        [outside.wrap(a, GetItemSource(args, i)) for i, a in enumerate(obj.args)],
        {k: outside.wrap(v, GetItemSource(keywords, k)) for k, v in obj.keywords.items()},
    )


_STATIC_TYPES = (
    types.FunctionType,
    types.ModuleType,
    type,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    OpOverload,
    OpOverloadPacket,
    types.CodeType,
    functools._lru_cache_wrapper,
    torch.jit.ScriptFunction,
    SDPBackend,  # an enum of C++
    *arrays.FUNCTION_TYPES,
)

_PYBIND_SELF_TYPES = ("PyCapsule", "pybind11_detail_function_record")
"""The beginnings of the names of the types that pybind11 uses as the ``__self__`` of a function, by its version."""


def is_static(obj: Any) -> bool:
    """Whether `obj` is a function, class or module, or the like: identified by its identity, without relevant state."""
    if is_instance(obj, types.BuiltinFunctionType):
        owner = obj.__self__
        return (
            owner is None
            or is_instance(owner, (types.ModuleType, type))
            or type(owner).__name__.startswith(_PYBIND_SELF_TYPES)
        )
    return is_instance(obj, _STATIC_TYPES) or is_typing_form(obj)


_NOT_OPERATIONS = frozenset(
    "__module__ __doc__ __new__ __init__ __dict__ __weakref__ __qualname__ __annotations__ __repr__ __reduce_ex__ "
    "__deepcopy__ __torch_function__ __static_attributes__ __firstlineno__".split()
)
"""What a subclass of Tensor may define without changing what its operations do."""


def _is_tensor_class(cls: Any) -> bool:
    """Whether operations on tensors of this class are those of plain tensors, and give plain tensors.

    They are for subclasses of Parameter, and for others without ``__torch_function__`` and ``__torch_dispatch__``,
    unless they override a method or attribute of tensors.
    """
    if cls in (torch.Tensor, torch.nn.Parameter):
        return True
    if not issubclass(cls, torch.Tensor) or not is_python_class(cls):
        return False
    plain_functions = cls.__torch_function__ is disabled_torch_function_impl
    if not plain_functions or cls.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return False
    of_pytorch = torch.nn.Parameter if issubclass(cls, torch.nn.Parameter) else torch.Tensor
    names = {name for base in cls.__mro__[: cls.__mro__.index(of_pytorch)] for name in vars(base)}
    return not any(hasattr(torch.Tensor, name) for name in names - _NOT_OPERATIONS)


def _is_plain_tensor(tensor: torch.Tensor) -> bool:
    plain = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_nested
    other = any(getattr(tensor, "names", ()))
    return plain and not (other or is_functorch_wrapped_tensor(tensor))


def _is_plain_object(obj: Any) -> bool:
    """Whether all attributes and methods of `obj` are plain Python."""
    builtin_bases = (list, dict, tuple, set, frozenset, str, int, float, bytes, torch.Tensor, BaseException)
    cls: Any = type(obj)  # mypy doubts that classes can be hashed
    if cls is threading.local:  # its attributes are those of this thread
        return True
    return is_plain_class(cls) and not is_instance(obj, builtin_bases)


def _is_read_as_set(cls: type, base: type) -> bool:
    """Whether iterating over instances of a subclass of a set, and comparing them, runs no code of the program's."""
    return all(lookup_in_mro(cls, name) is vars(base)[name] for name in ("__iter__", "__eq__"))


_MAX_MEMBERS = 999
"""Of a set from outside, which is guarded on all of them."""


def _has_known_members(obj: Any) -> bool:
    members = list(itertools.islice(obj, _MAX_MEMBERS + 1))
    return len(members) <= _MAX_MEMBERS and all(map(_is_set_member, members))


def _is_set_member(obj: Any) -> bool:
    return is_atom(obj) or is_static(obj) or _is_tuple_of_atoms(obj)


def _is_tuple_of_atoms(obj: Any) -> bool:
    is_tuple = isinstance(obj, tuple) and is_compared_as_tuple(type(obj))
    return is_tuple and all(is_atom(each) or _is_tuple_of_atoms(each) for each in obj)


def _is_private(proxy: types.MappingProxyType[Any, Any]) -> bool:
    """Whether nothing else refers to the dict of a proxy, as for a signature's parameters, so that it cannot change."""
    (contents,) = gc.get_referents(proxy)
    return type(contents) in (dict, OrderedDict) and sys.getrefcount(contents) == _REFERENCES


_REFERENCES = 3
"""The references to a dict that are counted where only a proxy refers to it: those of the call are two."""

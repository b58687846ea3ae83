"""Which value stands for an object from outside the frame."""

from __future__ import annotations

import contextvars
import functools
import operator
import types
import weakref
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.rules.python.getters import GetterValue
from compiler_core.capture.rules.torch import numpy as arrays
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.context_vars import ContextVarValue
from compiler_core.capture.values.builtin.mappings import CONTAINERS
from compiler_core.capture.values.builtin.sequences import RangeValue
from compiler_core.capture.values.builtin.sets import SetValue
from compiler_core.capture.values.builtin.weakrefs import WeakRefValue
from compiler_core.capture.values.constant import is_a, is_atom
from compiler_core.capture.values.contexts import CONTEXTS, ExitValue
from compiler_core.capture.values.exceptions import ExceptionValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.classes import is_plain_class
from compiler_core.capture.values.user.functions import MethodOfValue, MethodValue, PartialValue
from compiler_core.capture.values.user.modules import ModuleValue
from compiler_core.capture.values.user.namespaces import NamespaceValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.capture.values.user.subclasses import SubclassValue, container_base
from compiler_core.guards.sources import Attribute, Item, Source

if TYPE_CHECKING:
    from compiler_core.capture.graph_builder import Capture
    from compiler_core.capture.interpreter import Interpreter


class OpaqueValue(Value):
    """An outside object of a kind that capture knows nothing about: it can only be passed on."""

    def __init__(self, real: Any, source: Source) -> None:
        self.real = real
        self.source = source

    def __repr__(self) -> str:
        return f"{self.source.text if self.source else ''} ({_kind_of(self.real)})"

    def python_type(self) -> type:
        return type(self.real)

    def look(self, tx: Interpreter) -> None:
        assert self.source is not None
        tx.capture.guard("TYPE_MATCH", self.source, self.real)


def _kind_of(real: Any) -> str:
    """The kind of an object in words; of a tensor, what is uncommon about it, for which there is no rule."""
    if type(real) not in (torch.Tensor, torch.nn.Parameter):
        return type(real).__name__
    if real.is_quantized or real.is_nested:
        return f"a {'quantised' if real.is_quantized else 'nested'} tensor"
    if real.layout is not torch.strided:
        return f"a tensor of layout {str(real.layout).removeprefix('torch.').lstrip('_')}"
    named = any(getattr(real, "names", ()))  # tensors within a transform of functorch have no names at all
    return "a tensor with named dimensions" if named else type(real).__name__


def value_of(capture: Capture, obj: Any, source: Source) -> Value:
    """What stands for an outside object that is no atom and not static."""
    if type(obj) in (torch.Tensor, torch.nn.Parameter) and _is_ordinary(obj):
        return TensorValue(source=source, real=obj)
    container = CONTAINERS.get(type(obj))
    if container is not None:
        return container(None, type(obj), source, obj)
    if type(obj) in (set, frozenset) and len(obj) < 1000 and all(is_atom(v) or is_static(v) for v in obj):
        return SetValue(obj, type(obj), source, obj)
    cls: Any = type(obj)
    if container_base(cls) is not None:
        return SubclassValue.outside(obj, source)
    if is_a(obj, types.MethodType):
        return _method(capture, obj, source)
    if is_a(obj, types.BuiltinMethodType) and type(obj.__self__) in CONTAINERS:
        capture.guard("TYPE_MATCH", source, obj)
        capture.guard("EQUALS_MATCH", Attribute(source, "__name__"), obj.__name__)
        return MethodOfValue(capture.wrap(obj.__self__, Attribute(source, "__self__")), obj.__name__)
    if is_a(obj, types.CellType):
        return capture.cell(obj, source)
    if type(obj) is range:
        capture.guard("EQUALS_MATCH", source, obj)
        return RangeValue(obj)
    if type(obj) is functools.partial:
        return _partial(capture, obj, source)
    if type(obj) in (operator.itemgetter, operator.attrgetter, operator.methodcaller):
        return GetterValue.outside(obj, source)
    if cls in CONTEXTS:
        return CONTEXTS[cls].outside(capture, obj, source)
    if type(obj) is arrays.ARRAY:
        return arrays.ArrayValue(obj, source)
    if type(obj) is contextvars.ContextVar:
        return ContextVarValue(obj, source)
    if type(obj) is weakref.ref:
        return WeakRefValue(obj, source)
    if is_a(obj, BaseException):
        return ExceptionValue(type(obj), real=obj, source=source)
    if is_a(obj, torch.nn.Module):
        return ModuleValue(type(obj), obj, source)
    if type(obj) is types.SimpleNamespace:
        return NamespaceValue(obj, source)
    return ObjectValue(type(obj), obj, source) if _is_plain_object(obj) else OpaqueValue(obj, source)


def _method(capture: Capture, obj: types.MethodType, source: Source) -> Value:
    if type(obj.__self__) in CONTEXTS and obj.__name__ == "__exit__":
        return ExitValue.outside(capture, obj, source)
    capture.guard("TYPE_MATCH", source, obj)
    function, owner = Attribute(source, "__func__"), Attribute(source, "__self__")
    method = MethodValue(capture.wrap(obj.__func__, function), capture.wrap(obj.__self__, owner))
    method.source = source
    return method


def _partial(capture: Capture, obj: Any, source: Source) -> Value:
    capture.guard("TYPE_MATCH", source, obj)
    args, keywords = Attribute(source, "args"), Attribute(source, "keywords")
    capture.guard("LENGTH", args, len(obj.args))
    capture.guard("DICT_KEYS", keywords, list(obj.keywords))
    return PartialValue(
        capture.wrap(obj.func, Attribute(source, "func")),
        [capture.wrap(a, Item(args, i)) for i, a in enumerate(obj.args)],
        {k: capture.wrap(v, Item(keywords, k)) for k, v in obj.keywords.items()},
    )


_STATIC_TYPES = (
    types.FunctionType,
    types.ModuleType,
    type,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
    types.CodeType,
    functools._lru_cache_wrapper,
    *arrays.FUNCTION_TYPES,
)

_OF_PYBIND = ("PyCapsule", "pybind11_detail_function_record")
"""How the types of what pybind11 keeps as the ``__self__`` of a function begin, by its version."""


def is_static(obj: Any) -> bool:
    """Whether `obj` is known by its identity and has no state that matters."""
    if is_a(obj, types.BuiltinFunctionType):
        owner = obj.__self__
        return owner is None or is_a(owner, (types.ModuleType, type)) or type(owner).__name__.startswith(_OF_PYBIND)
    return is_a(obj, _STATIC_TYPES)


def _is_ordinary(tensor: torch.Tensor) -> bool:
    plain = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_nested
    other = any(getattr(tensor, "names", ()))
    return plain and not (other or torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def _is_plain_object(obj: Any) -> bool:
    """Whether attributes and methods of `obj` are plain Python all through."""
    builtin_bases = (list, dict, tuple, set, frozenset, str, int, float, bytes, torch.Tensor, BaseException)
    cls: Any = type(obj)  # mypy doubts that classes can be hashed
    return is_plain_class(cls) and not is_a(obj, builtin_bases)

"""Tensors of other kinds: of programs' subclasses of ``torch.Tensor``, of wrapper subclasses, sparse and distributed.

In the graph a tensor of a program's subclass is a plain one: the subclass lives in Python only.  Its
``__torch_function__`` is captured where PyTorch calls it (`rules/torch/overrides.py`).

A wrapper subclass computes with inner tensors, by ``__torch_dispatch__``.  Where ``__tensor_flatten__`` names them and
``__tensor_unflatten__`` makes a tensor of others, capture has one of fake tensors, and operations on it are nodes of
the graph.  They run as they are, between the parts that are compiled (`pipeline/parts.py`): autograd records them on
the wrapper, not on what is in it.  A graph cannot hold the others.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import torch.fx as fx

from compiler_core.capture.values.base import (
    ABSENT,
    Args,
    Kwargs,
    NamedMethodValue,
    OutsideValue,
    Value,
    constants,
    is_data_descriptor,
    lookup_in_mro,
)
from compiler_core.capture.values.builtin.constant import ConstantValue, is_atom
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.builtin.static import StaticValue, from_python
from compiler_core.capture.values.tensor import (
    GRADIENT_HOOKS,
    INPLACE_RESHAPES,
    METADATA_METHODS,
    UNSUPPORTED_METHODS,
    VALUE_READS,
    TensorValue,
)
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import is_python_class, module_of
from compiler_core.guards.sources import AttrSource
from compiler_core.support.tensors import (
    context_text,
    fake_wrapper,
    is_ragged_size,
    storage_id,
    without_class,
)
from compiler_core.torch_private import DisableTorchFunctionSubclass, disabled_torch_function_impl

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.guards.sources import Source
    from compiler_core.records.capture import BreakReason


_PLAIN = disabled_torch_function_impl


@dataclass
class Overrides:
    """What overrides functions of PyTorch at this point of the frame."""

    enabled: bool = True
    """Whether ``__torch_function__`` of arguments is called: not within ``DisableTorchFunctionSubclass()``."""
    modes: list[Value] = field(default_factory=list)
    """The torch function modes that the frame has entered, innermost last."""


class SubclassTensorValue(TensorValue):
    """A tensor of a class of the program's, from outside, or made in the frame of the tensor `origin`."""

    def __init__(
        self,
        cls: type,
        origin: TensorValue | None = None,
        fake: torch.Tensor | None = None,
        source: Source | None = None,
        real: torch.Tensor | None = None,
    ) -> None:
        super().__init__(fake=fake, source=source, real=real)
        self.cls = cls
        self.origin = origin

    def __repr__(self) -> str:
        return self.source.text if self.source else f"{self.origin}.as_subclass({self.cls.__name__})"

    def python_type(self) -> type:
        return self.cls  # type: ignore[no-any-return]

    def node(self, tx: Interpreter) -> fx.Node:
        if self.origin is not None:
            self._node = self.origin.node(tx)
        return super().node(tx)

    @property
    def output_node(self) -> fx.Node | None:
        return None

    # --- attributes

    def _autograd_attribute(self, tx: Interpreter, name: str) -> Value:
        if self.source is not None:  # a guard on it would call __torch_function__
            raise Unsupported("unsupported attribute", f"{self.cls.__name__}.{name}")
        return super()._autograd_attribute(tx, name)

    def find_attr(self, tx: Interpreter, name: str) -> Value | None:
        if name in ("__dict__", "__getattribute__") or lookup_in_mro(self.cls, "__getattr__") is not ABSENT:
            raise Unsupported("unsupported attribute", f"{self.cls.__name__}.{name}")
        if name == "__class__":
            return tx.outside.wrap(self.cls)
        found = self._of_program(name)
        if found is not ABSENT and is_data_descriptor(found):
            return self._read_class_attribute(tx, name, found)
        if name in self.stored:
            return self.stored[name]
        if name in getattr(self.real, "__dict__", {}) or (found is ABSENT and not hasattr(torch.Tensor, name)):
            return self._instance_attribute(tx, name)
        if found is not ABSENT:
            return self._read_class_attribute(tx, name, found)
        return self.attribute_of_tensor(tx, name)

    def attribute_of_tensor(self, tx: Interpreter, name: str) -> Value | None:
        """Returns the attribute that ``torch.Tensor`` has, whatever the class defines."""
        tx.guards.add_class_names(self.cls, name)
        result = tx.overridden_attribute(self, name)
        return super().find_attr(tx, name) if result is None else result

    def _of_program(self, name: str) -> Any:
        """Returns what a class before ``torch.Tensor`` defines as `name`, or ABSENT."""
        own = self.cls.__mro__[: self.cls.__mro__.index(torch.Tensor)]
        return next((vars(c)[name] for c in own if name in vars(c)), ABSENT)

    def _read_class_attribute(self, tx: Interpreter, name: str, found: Any) -> Value:
        if not is_data_descriptor(found):
            self._guard_absent(tx, name)
        return self._read_from_class(tx, name, found)

    def special_method(self, tx: Interpreter, name: str) -> Value | None:
        found = self._of_program(name)
        return self._read_class_attribute(tx, name, found) if isinstance(found, types.FunctionType) else None

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        is_own_setter = lookup_in_mro(self.cls, "__setattr__") is not object.__setattr__
        if is_own_setter or hasattr(torch.Tensor, name) or hasattr(type(self._of_program(name)), "__set__"):
            raise Unsupported("unsupported mutation", f"{self.cls.__name__}.{name} = ...")
        if self.source is not None:
            super().set_attr(tx, name, value)
        else:
            self.stored[name] = value

    # --- operations

    def defines(self, *names: str) -> bool:
        """Whether the class, or a base before ``torch.Tensor``, defines one of the methods."""
        return any(self._of_program(name) is not ABSENT for name in names)

    def check_methods(self, tx: Interpreter, *names: str) -> None:
        if self.defines(*names):
            raise Unsupported("unsupported operation", f"{' or '.join(names)} of a {self.cls.__name__}")
        super().check_methods(tx, *names)

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        method = self.special_method(tx, "__getitem__")
        return super().get_item(tx, key) if method is None else method.call(tx, [key], {})

    def truth(self, tx: Interpreter) -> bool:
        self.check_methods(tx, "__bool__")
        return super().truth(tx)

    def unpack(self, tx: Interpreter) -> list[Value]:
        """``list(self)``, as ``Tensor.__iter__`` makes it."""
        self.check_methods(tx, "__iter__")
        if self.get_attr(tx, "dim").call(tx, [], {}).constant(tx) == 0:
            raise Unsupported("exception", "iteration over a 0-d tensor")
        return self.get_attr(tx, "unbind").call(tx, [ConstantValue(0)], {}).unpack(tx)

    # --- generated code

    def load_input(self, emit: Emitter) -> None:
        """Pushes the tensor as a plain one, an input of the graph."""
        emit.call_object(without_class, [self])

    def reconstruct(self, emit: Emitter) -> None:
        assert self.origin is not None
        emit.call_object(make_tensor, [self.origin, StaticValue(self.cls), DictValue(dict(self.stored))])


class WrapperTensorValue(SubclassTensorValue):
    """A tensor from outside of a class with ``__torch_dispatch__``: a graph cannot hold it.

    Python may read its attributes and, unless the class is PyTorch's, call its methods and its ``__torch_function__``.
    """

    @property
    def is_of_program(self) -> bool:
        return is_subclass_of_program(self.cls)

    @property
    def is_opaque(self) -> bool:
        """Whether PyTorch's functions always run the kernels of the class."""
        return not self.is_of_program or lookup_in_mro(self.cls, "__torch_function__") is _DEFAULT

    def refusal(self) -> Unsupported:
        return Unsupported("tensor subclass", f"{self} is a {self.cls.__name__}")

    def install_guards(self, tx: Interpreter) -> None:
        tx.guards.add("TYPE_MATCH", self.source, self.real)

    def layout(self, tx: Interpreter) -> torch.Tensor:
        assert self.source is not None and self.real is not None
        if not self.is_of_program or not all(type(size) is int for size in self.real.shape):
            raise self.refusal()
        tx.guards.add("TENSOR_MATCH", self.source, (self.real, self.real))
        return self.real

    def fake(self, tx: Interpreter) -> torch.Tensor:
        raise self.refusal()

    def node(self, tx: Interpreter) -> fx.Node:
        raise self.refusal()

    def find_attr(self, tx: Interpreter, name: str) -> Value | None:
        if self.is_of_program or name == "__class__":
            return super().find_attr(tx, name)
        if callable(getattr(self.cls, name, None)):
            return NamedMethodValue(self, name)
        raise self.refusal()

    def call_method(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if not self.is_of_program:
            raise self.refusal()
        return super().call_method(tx, name, args, kwargs)

    def truth(self, tx: Interpreter) -> bool:
        raise self.refusal()


_UNSUPPORTED = VALUE_READS | INPLACE_RESHAPES | UNSUPPORTED_METHODS | {"as_subclass", "requires_grad_"}
_AUTOGRAD_METHODS: dict[str, BreakReason] = {"backward": "backward", **dict.fromkeys(GRADIENT_HOOKS, "gradient hook")}
_AUTOGRAD = frozenset("is_leaf grad grad_fn retains_grad name data real imag".split())


class TraceableWrapperValue(TensorValue):
    """A tensor of a wrapper subclass, from outside or made in the frame."""

    _inner: Mapping[str, TensorValue] = types.MappingProxyType({})
    """Of one from outside, its inner tensors, after `install_guards`."""

    def python_type(self) -> type:
        return type(self.real if self._fake is None else self._fake)

    @property
    def overrides(self) -> bool:
        """Whether PyTorch's functions ask the class, by ``__torch_function__``, what to do."""
        return overrides_functions(self.python_type())

    def refusal(self, use: str = "") -> Unsupported:
        return Unsupported("tensor subclass", f"{self} is a {self.python_type().__name__}{use}")

    def install_guards(self, tx: Interpreter) -> None:
        if self._fake is not None:
            return
        real, source = self.real, self.source
        assert source is not None and real is not None
        tx.guards.add("TYPE_MATCH", source, real)
        with DisableTorchFunctionSubclass():
            if context_text(real) is None:
                raise self.refusal()

            inner: dict[str, TensorValue] = {}

            def inner_fake(name: str) -> torch.Tensor:
                value = tx.outside.wrap(getattr(real, name), AttrSource(source, name))
                if not isinstance(value, TensorValue):
                    raise self.refusal(f", whose {name} is {value}")
                inner[name] = value
                return value.fake(tx)

            self._fake, self._inner = fake_wrapper(real, inner_fake, tx.graph.mode), inner
            tx.graph.symbols.note_symbols(self._fake, source)
            tx.guards.add("WRAPPER_MATCH", source, (real, self._fake))

    def note_writes(self, tx: Interpreter) -> None:
        """Makes its inner tensors inputs of the graph if operations have written to their memory: a failure undoes it.

        Raises Unsupported if autograd has recorded such a write: for an inner tensor that could not be undone.
        """
        for name, inner in self._inner.items():
            if isinstance(inner, TraceableWrapperValue):
                inner.note_writes(tx)
            elif storage_id(inner.fake(tx)) in tx.graph.mode.written:
                if self.fake(tx).requires_grad:
                    raise self.refusal(f" that requires gradients, to whose {name} this writes")
                inner.node(tx)

    def truth(self, tx: Interpreter) -> bool:
        raise self.refusal(", whose truth is read")

    def find_attr(self, tx: Interpreter, name: str) -> Value | None:
        cls = self.python_type()
        self.install_guards(tx)
        found = next((vars(c)[name] for c in cls.__mro__[: cls.__mro__.index(torch.Tensor)] if name in vars(c)), ABSENT)
        if name == "__class__" or (found is ABSENT and name not in vars(self.fake(tx)) and hasattr(torch.Tensor, name)):
            if name in _AUTOGRAD:
                return self._autograd_attribute(tx, name)
            if name == "shape":
                return self._sizes(tx)
            return super().find_attr(tx, name)
        if found is not ABSENT and is_subclass_of_program(cls):
            return self._read_from_class(tx, name, found)
        if isinstance(found, types.FunctionType):
            return NamedMethodValue(self, name)
        if found is not ABSENT and not isinstance(found, property):
            raise self.refusal(f": .{name}")
        value = getattr(self.fake(tx), name, ABSENT)
        if isinstance(value, torch.Tensor):
            if self.source is not None and found is ABSENT:
                return tx.outside.wrap(getattr(self.real, name), AttrSource(self.source, name))
            return tx.graph.call_function(tx, getattr, [self, ConstantValue(name)])
        if self.source is not None and hasattr(self.real, name):
            return tx.outside.wrap(getattr(self.real, name), AttrSource(self.source, name))
        if not is_atom(value):
            raise self.refusal(f": .{name}")
        return from_python(value)

    def _sizes(self, tx: Interpreter) -> TupleValue:
        sizes: Any = self.fake(tx).shape
        values = [RaggedSizeValue(self, i, n) if is_ragged_size(n) else from_python(n) for i, n in enumerate(sizes)]
        return TupleValue(values, torch.Size)

    def _autograd_attribute(self, tx: Interpreter, name: str) -> Value:
        if name not in ("is_leaf", "grad") or self.source is None or self.real is None:
            raise self.refusal(f": .{name}")
        tx.guards.add("EQUALS_MATCH", AttrSource(self.source, "is_leaf"), self.real.is_leaf)
        if name == "is_leaf":
            return ConstantValue(self.real.is_leaf)
        if not self.real.is_leaf:  # reading it warns
            raise self.refusal(f": .{name}")
        return tx.outside.wrap(self.real.grad, AttrSource(self.source, "grad"))

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        raise self.refusal(f": .{name} = ...")

    def call_method(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in _AUTOGRAD_METHODS:
            raise Unsupported(_AUTOGRAD_METHODS[name], f"Tensor.{name}()")
        if name in _UNSUPPORTED:
            raise self.refusal(f": .{name}()")
        if name == "size" and not kwargs:
            sizes = self._sizes(tx)
            return sizes.get_item(tx, *args) if args else sizes
        if name in METADATA_METHODS:
            raw, raw_kwargs = constants(tx, args, kwargs)
            found = getattr(self.fake(tx), name)(*raw, **raw_kwargs)
            if any(map(is_ragged_size, found if isinstance(found, tuple) else [found])):
                raise self.refusal(f": .{name}(), which is or has a ragged size")
            return self._query(tx, name, args, kwargs)
        return tx.graph.call_method(tx, name, [self, *args], kwargs)


class RaggedSizeValue(Value):
    """The size of the ragged dimension of a jagged tensor, which is no number: it can be passed on."""

    def __init__(self, tensor: TraceableWrapperValue, dim: int, size: torch.SymInt) -> None:
        self.tensor, self.dim, self.size = tensor, dim, size

    def __repr__(self) -> str:
        return f"{self.tensor}.size({self.dim})"

    def python_type(self) -> type:
        return torch.SymInt

    def children(self) -> Sequence[Value]:
        return [self.tensor]

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(torch.Tensor.size, [self.tensor, ConstantValue(self.dim)])


_DEFAULT = vars(torch.Tensor)["__torch_function__"]


def make_tensor(plain: torch.Tensor, cls: Any, attributes: dict[str, Any]) -> torch.Tensor:
    """Called by generated code: makes a tensor of a class, with attributes that the frame has set."""
    with DisableTorchFunctionSubclass():
        made: torch.Tensor = plain.as_subclass(cls)
    for name, value in attributes.items():
        object.__setattr__(made, name, value)
    return made


def is_subclass_of_program(cls: Any) -> bool:
    """Whether a class of tensors and its bases up to ``torch.Tensor`` are written in Python, outside of PyTorch."""
    if not issubclass(cls, torch.Tensor) or issubclass(cls, torch.nn.Parameter):
        return False
    own = cls.__mro__[: cls.__mro__.index(torch.Tensor)]
    return bool(own) and all(is_python_class(c) and not module_of(c).startswith("torch.") for c in own)


def is_wrapper_class(cls: Any) -> bool:
    """Whether a class of tensors computes with its own kernels, by ``__torch_dispatch__``."""
    return bool(cls.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__)


def overrides_functions(cls: Any) -> bool:
    """Whether PyTorch calls the ``__torch_function__`` of an argument of this class."""
    return getattr(cls, "__torch_function__", _PLAIN) is not _PLAIN and cls is not torch.Tensor


SPARSE_LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


class SparseTensorValue(OutsideValue):
    """A sparse tensor, whose methods are called by Python after a graph break."""

    def __repr__(self) -> str:
        return f"{self.source.text if self.source else ''} (a tensor of layout {str(self.real.layout)[6:]})"

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if callable(getattr(type(self.real), name, None)):
            return NamedMethodValue(self, name)
        raise self._refusal(f".{name}")

    def call_method(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> NoReturn:
        raise self._refusal(f".{name}()")

    def get_item(self, tx: Interpreter, key: Value) -> NoReturn:
        raise self._refusal("[...]")

    def _refusal(self, use: Any) -> Unsupported:
        return Unsupported("sparse tensor", f"{self}{use}")


class DistributedTensorValue(OutsideValue):
    """A `DTensor`, or the pending result of a collective, from outside.  Operations on it break the graph."""

    def __repr__(self) -> str:
        return f"{self.source.text if self.source else ''} ({type(self.real).__name__})"

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        raise Unsupported("distributed tensor", f"{self}.{name}")


def is_distributed_tensor(obj: Any) -> bool:
    """Whether an object is an instance of one of the tensor classes of ``torch.distributed``."""
    return isinstance(obj, torch.Tensor) and type(obj).__module__.startswith("torch.distributed.")

"""Tensors: a node of the captured graph and a fake tensor that knows its shape and dtype."""

from __future__ import annotations

import operator
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx as fx

from compiler_core.capture.values.base import Value, raised
from compiler_core.capture.values.constant import NONE, ConstantValue, from_python
from compiler_core.capture.values.user.classes import is_of_pytorch
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import Attribute

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.guards.sources import Source

# attributes that a fake tensor answers as the real one would, with constants
METADATA = frozenset(
    "shape dtype device ndim layout requires_grad is_cuda is_cpu is_sparse is_sparse_csr is_quantized is_meta is_mps "
    "is_xpu is_mtia is_vulkan is_ipu is_maia itemsize nbytes is_nested is_mkldnn".split()
)
# methods that answer with constants and change nothing
QUERIES = frozenset(
    "size dim ndimension numel nelement stride storage_offset element_size is_contiguous is_floating_point "
    "is_complex is_signed type get_device __len__".split()
)
VIEWS = frozenset("T mT H mH real imag data".split())
READS = frozenset("item tolist numpy __bool__ __float__ __int__ __index__ __array__ data_ptr __str__ __repr__".split())
# methods that touch autograd, storage or hooks, or ask about them: never in a graph
REFUSED = frozenset(
    "register_hook register_post_accumulate_grad_hook retain_grad set_ resize_ resize_as_ share_memory_ "
    "as_strided_ detach_ pin_memory to_sparse as_subclass inverse is_inference is_shared is_pinned is_set_to _is_view "
    "untyped_storage storage __setstate__ __deepcopy__ rename_ refine_names".split()
)
# methods that give a tensor another shape in place: of one from outside, its owner would have to be told
RESHAPES = frozenset("unsqueeze_ squeeze_ t_ transpose_ swapaxes_ swapdims_".split())


class TensorValue(Value):
    """A tensor.  One from outside becomes a graph input only when the graph needs it."""

    def __init__(
        self,
        fake: torch.Tensor | None = None,
        node: fx.Node | None = None,
        source: Source | None = None,
        real: torch.Tensor | None = None,
    ) -> None:
        self._fake = fake
        self._node = node
        self.source = source
        self.real = real
        self.stored: dict[str, Value] = {}
        """Attributes that the program set, to be set on the real tensor once the graph has run."""

    def __repr__(self) -> str:
        return self.source.text if self.source else str(self._node)

    def python_type(self) -> type:
        return type(self.real) if self.real is not None else torch.Tensor

    def look(self, tx: Interpreter) -> None:
        if self._fake is None:
            assert self.source is not None and self.real is not None
            self._fake = tx.capture.fake(self.real, self.source)
            tx.capture.guard("TENSOR_MATCH", self.source, (self.real, self._fake))

    def fake(self, tx: Interpreter) -> torch.Tensor:
        self.look(tx)
        assert self._fake is not None
        return self._fake

    def node(self, tx: Interpreter) -> fx.Node:
        """Its node in the graph; a tensor from outside becomes a placeholder here."""
        if self._node is None:
            self._node = tx.capture.placeholder(self, self.fake(tx))
        return self._node

    @property
    def made_by(self) -> fx.Node | None:
        """The graph node that the generated code must return to have this tensor, if any."""
        return None if self.source is not None else self._node

    def truth(self, tx: Interpreter) -> bool:
        raise Unsupported("data-dependent branch", "bool(tensor)")

    # --- attributes

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        found = self.find_attr(tx, name)
        if found is None:
            raise raised(AttributeError, f"{self.python_type().__name__!r} object has no attribute {name!r}")
        return found

    def find_attr(self, tx: Interpreter, name: str) -> Value | None:
        """None where Python would raise AttributeError."""
        from compiler_core.capture.values.user.functions import MethodOfValue

        if name in self.stored:
            return self.stored[name]
        tx.capture.looked_up_in_class(self.python_type(), name)
        if (replaced := replaced_method(self.python_type(), name)) is not None:
            return self._replaced(tx, name, replaced)
        if name == "nbytes":
            return from_python(self.fake(tx).numel() * self.fake(tx).element_size())
        if name in METADATA:
            return from_python(getattr(self.fake(tx), name))
        if name in VIEWS:
            return tx.capture.call_function(tx, getattr, [self, ConstantValue(name)], {})
        if name in ("is_leaf", "grad", "grad_fn"):
            return self._about_autograd(tx, name)
        if name == "__class__":
            return tx.capture.wrap_static(self.python_type())
        if not hasattr(torch.Tensor, name):
            return self._set_by_program(tx, name)
        if callable(getattr(torch.Tensor, name)) and name not in getattr(self.real, "__dict__", {}):
            return MethodOfValue(self, name)
        raise Unsupported("unsupported attribute", f"Tensor.{name}")

    def _replaced(self, tx: Interpreter, name: str, found: Any) -> Value:
        """What the program put into ``torch.Tensor`` as `name`, read from this tensor."""
        from compiler_core.capture.values.user.descriptors import is_descriptor, read

        if not is_descriptor(found):
            raise Unsupported("unsupported attribute", f"Tensor.{name}, which the program put there")
        return read(tx, found, name, self, self.python_type())

    def check_methods(self, tx: Interpreter, *names: str) -> None:
        """An operator is about to call one of these methods, which are to be PyTorch's, now and later."""
        cls = self.python_type()
        tx.capture.looked_up_in_class(cls, *names)
        if any(replaced_method(cls, name) is not None for name in names):
            raise Unsupported("unsupported operation", f"Tensor.{' or '.join(names)}, which the program replaced")

    def _about_autograd(self, tx: Interpreter, name: str) -> Value:
        is_leaf = self.fake(tx).is_leaf
        if self.source is not None and self.real is not None:
            tx.capture.guard("EQUALS_MATCH", Attribute(self.source, "is_leaf"), self.real.is_leaf)
        if name == "is_leaf":
            return ConstantValue(is_leaf)
        if not is_leaf:  # a warning, or an object of autograd's
            raise Unsupported("unsupported attribute", f"Tensor.{name} of a tensor that is no leaf")
        if name == "grad_fn" or self.source is None or self.real is None:
            return NONE
        return tx.capture.wrap(self.real.grad, Attribute(self.source, "grad"))

    def _set_by_program(self, tx: Interpreter, name: str) -> Value | None:
        """An attribute that the program set on the tensor."""
        if self.source is None or self.real is None:
            return None
        own = getattr(self.real, "__dict__", {})
        self.look(tx)
        if name in own:
            return tx.capture.wrap(own[name], Attribute(self.source, name))
        tx.capture.guard("NO_ATTRIBUTE", self.source, name)
        return None

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        if name == "requires_grad":
            self._require_grad(tx, value)
            return
        if name == "grad":
            self._check_grad(tx, value)
        elif hasattr(torch.Tensor, name):
            raise Unsupported("unsupported mutation", f"Tensor.{name} = ...")
        self.look(tx)
        tx.capture.effects.attribute(self, name)
        self.stored[name] = value

    def _check_grad(self, tx: Interpreter, value: Value) -> None:
        """PyTorch takes None and a tensor like this one."""
        if self.source is None or not self.fake(tx).is_leaf:
            raise Unsupported("unsupported mutation", "Tensor.grad = ... of a tensor made in the frame")
        if tx.is_none(value):
            return
        if not isinstance(value, TensorValue) or _kind(value.fake(tx)) != _kind(self.fake(tx)):
            raise Unsupported("unsupported mutation", "Tensor.grad = ... of another shape, dtype or device")

    def _require_grad(self, tx: Interpreter, value: Value) -> Value:
        """Only what changes nothing: a leaf made in the frame is Python's business."""
        if bool(value.constant(tx)) != self.fake(tx).requires_grad:
            raise Unsupported("unsupported mutation", "Tensor.requires_grad = ...")
        return self

    # --- calls

    def call_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if name in READS:
            raise Unsupported("tensor value read", f"Tensor.{name}()")
        if name == "backward":
            raise Unsupported("backward", "Tensor.backward()")
        if name == "requires_grad_":
            return self._require_grad(tx, *(args or kwargs.values() or [ConstantValue(True)]))
        if name == "is_inference" and not tx.capture.inference and (self.real is None or not self.real.is_inference()):
            self.look(tx)
            query = tx.capture.held(torch.is_inference_mode_enabled, "torch.is_inference_mode_enabled")
            tx.capture.guard("RETURNS", query, False)
            return ConstantValue(False)
        if name in REFUSED or (name in RESHAPES and self.source is not None):
            raise Unsupported("unsupported call", f"Tensor.{name}()")
        if name in QUERIES and not (name == "type" and (args or kwargs)):
            return self._query(tx, name, args, kwargs)
        if name == "new" and len(args) == 1 and not kwargs and getattr(args[0], "cls", None) is torch.Size:
            name = "new_empty"  # to `new`, a Size is a size, while a tuple is data
        if name == "type" and args and (of_type := tensor_type_name(getattr(args[0], "obj", None))) is not None:
            args = [ConstantValue(of_type), *args[1:]]
        return tx.capture.call_method(tx, name, [self, *args], kwargs)

    def _query(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        raw = [a.constant(tx) for a in args]
        raw_kwargs = {k: v.constant(tx) for k, v in kwargs.items()}
        if name == "storage_offset":
            self._guard_offset(tx)
        return from_python(getattr(self.fake(tx), name)(*raw, **raw_kwargs))

    def _guard_offset(self, tx: Interpreter) -> None:
        """No other guard sees where in its memory a tensor from outside begins, this one or what it is a view of."""
        memory = self.fake(tx).untyped_storage()._cdata
        outside = [self] if self.source is not None else tx.capture.tensors_of(memory)
        for tensor in outside:
            assert tensor.source is not None
            offset = tensor.fake(tx).storage_offset()
            tx.capture.guard("RETURNS", Attribute(tensor.source, "storage_offset"), offset)

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        self.check_methods(tx, "__getitem__")
        from compiler_core.capture.values.symbols import SymbolicNumber

        if isinstance(key, SymbolicNumber):  # which indexing takes for the number that it is now
            return tx.capture.call_function(tx, torch.select, [self, ConstantValue(0), key], {})
        return tx.capture.call_function(tx, operator.getitem, [self, key], {})

    def set_item(self, tx: Interpreter, key: Value, value: Value) -> None:
        self.check_methods(tx, "__setitem__")
        tx.capture.call_function(tx, operator.setitem, [self, key, value], {})

    def contains(self, tx: Interpreter, item: Value) -> bool:
        raise Unsupported("tensor value read", "... in tensor")

    def length(self, tx: Interpreter) -> int:
        shape = self.fake(tx).shape
        if not shape:
            raise Unsupported("exception", "len() of a 0-d tensor")
        return int(shape[0])

    def items(self, tx: Interpreter) -> list[Value]:
        # eager iterates with unbind, so gradients and views are the same as Python's
        return tx.capture.call_method(tx, "unbind", [self], {}).items(tx) if self.length(tx) else []

    def rebuild(self, emit: Emitter) -> None:
        emit.graph_output(self)


def replaced_method(cls: type, name: str) -> Any:
    """What the program has put in the place of a method of ``torch.Tensor``, or added; None where it is PyTorch's."""
    found = next((c.__dict__[name] for c in cls.__mro__ if name in c.__dict__), None)
    if found is _AT_IMPORT.get(name) or name not in vars(torch.Tensor):
        return None
    function = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
    is_own = isinstance(function, types.FunctionType) and is_of_pytorch(function)
    return None if is_own or isinstance(function, _OF_C) else found


_AT_IMPORT = dict(vars(torch.Tensor))
_OF_C = (types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, types.BuiltinFunctionType)


def tensor_type_name(cls: Any) -> str | None:
    """``torch.FloatTensor`` and the like, which stand for a device, a layout and a dtype, by name; None for others."""
    return f"{cls.__module__}.{cls.__name__}" if type(cls) is _TENSOR_TYPE else None


_TENSOR_TYPE = type(torch.FloatTensor)


def _kind(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.device

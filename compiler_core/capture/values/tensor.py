"""Tensors: each is a node of the captured graph, with a fake tensor that has its shape, dtype and device."""

from __future__ import annotations

import operator
import types
from typing import TYPE_CHECKING, Any

import torch
import torch.fx as fx

from compiler_core.capture.values.base import (
    ABSENT,
    Args,
    Kwargs,
    NamedMethodValue,
    Value,
    constants,
    guard_class_attribute,
    is_data_descriptor,
    is_descriptor,
    is_of_pytorch,
    lookup_in_mro,
    observed_exception,
)
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.containers import object_key
from compiler_core.capture.values.builtin.static import from_python
from compiler_core.capture.values.builtin.symbols import SymbolicNumber
from compiler_core.capture.values.user.object_attributes import descriptor_get
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import AttrSource, InstanceDictSource
from compiler_core.guards.value_guards import NUMPY_NUMBERS
from compiler_core.support import transform_levels as levels
from compiler_core.support.tensors import storage_id, tensors_in
from compiler_core.support.transform_levels import is_wrapped

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.guards.sources import Source
    from compiler_core.records.capture import BreakReason

# attributes that are constants, equal for the fake and the real tensor
METADATA_ATTRIBUTES = frozenset(
    "shape dtype device ndim layout requires_grad is_cuda is_cpu is_sparse is_sparse_csr is_quantized is_meta is_mps "
    "is_xpu is_mtia is_vulkan is_ipu is_maia itemsize nbytes is_nested is_mkldnn".split()
)
# methods that return constants and change nothing
METADATA_METHODS = frozenset(
    "size dim ndimension numel nelement stride storage_offset element_size is_contiguous is_floating_point "
    "is_complex is_signed type get_device __len__".split()
)
VIEW_ATTRIBUTES = frozenset("T mT H mH real imag data".split())
VALUE_READS = frozenset(
    "item tolist numpy __bool__ __float__ __int__ __index__ __array__ data_ptr __str__ __repr__".split()
)
# methods that need the gradient at one tensor, where the graph has to end for autograd to see it
HOOKS = frozenset("register_hook register_post_accumulate_grad_hook".split())
GRADIENT_HOOKS = HOOKS | {"retain_grad"}
# methods that use autograd or storage, which a graph does not contain
UNSUPPORTED_METHODS = frozenset(
    "set_ resize_ resize_as_ share_memory_ detach_ pin_memory to_sparse is_inference is_shared "
    "is_pinned is_set_to _is_view "
    "untyped_storage storage __setstate__ __deepcopy__ rename_ refine_names".split()
)
# methods that change a tensor's shape in place; for a tensor from outside the change would have to be replayed
INPLACE_RESHAPES = frozenset("unsqueeze_ squeeze_ t_ transpose_ swapaxes_ swapdims_ as_strided_".split())


def is_in_distribution(tx: Interpreter) -> bool:
    """Whether the code is that of PyTorch's distributions, which checks the values of arguments."""
    return bool(tx.code.co_filename == torch.distributions.distribution.__file__)


class TensorValue(Value):
    """A tensor.  A tensor from outside becomes a graph input once the graph uses it."""

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
        """Attributes that the program set, which are set on the real tensor after the graph has run."""
        self._memory: TensorValue | None = None
        """What the graph uses in its place (`_new_memory`)."""

    def __repr__(self) -> str:
        return self.source.text if self.source else "a tensor"

    def python_type(self) -> type:
        return type(self.real) if self.real is not None else torch.Tensor

    def as_key(self, tx: Interpreter) -> Any:
        return object_key(tx, self)

    def install_guards(self, tx: Interpreter) -> None:
        if self._fake is None:
            assert self.source is not None and self.real is not None
            self._fake = tx.graph.fake(self.real, self.source)
            tx.guards.add("TENSOR_MATCH", self.source, (self.real, self._fake))

    def fake(self, tx: Interpreter) -> torch.Tensor:
        memory = self._new_memory(tx)
        return self._fake_at_start(tx) if memory is None else memory.fake(tx)

    def _fake_at_start(self, tx: Interpreter) -> torch.Tensor:
        self.install_guards(tx)
        assert self._fake is not None
        return self._fake

    def layout(self, tx: Interpreter) -> torch.Tensor:
        """Returns a tensor with the same shape, dtype and device, for queries of these."""
        return self.fake(tx)

    def node(self, tx: Interpreter) -> fx.Node:
        """Returns its node in the graph; a tensor from outside gets a placeholder."""
        if (memory := self._new_memory(tx)) is not None:
            return memory.node(tx)
        if self._node is None:
            self._node = tx.graph.placeholder(self, self.fake(tx))
        return self._node

    def _new_memory(self, tx: Interpreter) -> TensorValue | None:
        """Returns the tensor that the graph uses in place of this one if ``.data`` was set.

        This tensor itself gets its new memory when the graph has run, so that no gradient for it can be computed.
        """
        if "data" not in self.stored:
            return None
        if tx.graph.grad_enabled and self._fake_at_start(tx).requires_grad:
            raise Unsupported("unsupported mutation", "a tensor that requires gradients is used whose .data was set")
        if self._memory is None:
            memory = self.stored["data"].get_attr(tx, "data")
            assert isinstance(memory, TensorValue)
            self._memory = memory
            tx.graph.replaced.append(memory.fake(tx))
        return self._memory

    @property
    def output_node(self) -> fx.Node | None:
        """The node that the graph must return for generated code to have this tensor; None if it is from outside."""
        if is_wrapped(self._fake):
            raise Unsupported("transform", "a tensor within a transform is used after it")
        return None if self.source is not None else self._node

    def constant(self, tx: Interpreter) -> Any:
        raise Unsupported("tensor value read", "a number is needed, and this is a tensor")

    def truth(self, tx: Interpreter) -> bool:
        if (found := tx.truth_of_flag(self)) is not None:
            return found
        raise Unsupported("distribution check" if is_in_distribution(tx) else "data-dependent branch")

    # --- attributes

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        found = self.find_attr(tx, name)
        if found is None:
            raise observed_exception(
                AttributeError, f"{self.python_type().__name__!r} object has no attribute {name!r}"
            )
        return found

    def find_attr(self, tx: Interpreter, name: str) -> Value | None:
        """Returns the attribute; None where Python would raise AttributeError."""
        if name == "data" and name in self.stored:
            return self.stored[name].get_attr(tx, name)
        if name in self.stored:
            return self.stored[name]
        if tx.capture.overrides.modes and (result := tx.overridden_attribute(self, name)) is not None:
            return result
        if self.source is not None:
            self.install_guards(tx)  # what it finds depends on the class
        tx.guards.add_class_names(self.python_type(), name)
        if (replaced := replaced_method(self.python_type(), name)) is not None:
            return self._read_replaced(tx, name, replaced)
        if name == "nbytes":
            return from_python(self.layout(tx).numel() * self.layout(tx).element_size())
        if name == "requires_grad":
            return ConstantValue(self._fake_at_start(tx).requires_grad)
        if name in METADATA_ATTRIBUTES:
            return from_python(getattr(self.layout(tx), name))
        if name in VIEW_ATTRIBUTES:
            return tx.graph.call_function(tx, getattr, [self, ConstantValue(name)])
        if name in ("is_leaf", "grad", "grad_fn", "retains_grad", "name"):
            return self._autograd_attribute(tx, name)
        if name == "__class__":
            return tx.outside.wrap(self.python_type())
        if lookup_in_mro(torch.Tensor, name) is ABSENT:
            return self._attribute_of_subclass(tx, name) or self._instance_attribute(tx, name)
        if callable(getattr(torch.Tensor, name)) and name not in getattr(self.real, "__dict__", {}):
            return NamedMethodValue(self, name)
        raise Unsupported("unsupported attribute", f"Tensor.{name}")

    def _read_replaced(self, tx: Interpreter, name: str, found: Any) -> Value:
        """Reads from this tensor the attribute `name` that the program put into ``torch.Tensor``."""
        if not is_descriptor(found):
            raise Unsupported("unsupported attribute", f"Tensor.{name}, which the program has set")
        return descriptor_get(tx, found, name, self, self.python_type())

    def check_methods(self, tx: Interpreter, *names: str) -> None:
        """Checks, with guards, that the program has not replaced these methods, which an operator is about to call."""
        cls = self.python_type()
        tx.guards.add_class_names(cls, *names)
        if any(replaced_method(cls, name) is not None for name in names):
            raise Unsupported("unsupported operation", f"Tensor.{' or '.join(names)}, which the program has replaced")

    def _autograd_attribute(self, tx: Interpreter, name: str) -> Value:
        is_leaf = self._fake_at_start(tx).is_leaf
        if self.source is not None and self.real is not None:
            tx.guards.add("EQUALS_MATCH", AttrSource(self.source, "is_leaf"), self.real.is_leaf)
        if name == "is_leaf" or (name == "retains_grad" and is_leaf):
            return ConstantValue(name == "is_leaf" and is_leaf)
        if not is_leaf:  # reading it warns or gives an object of autograd's
            kind: BreakReason = "gradient hook" if name == "grad" else "unsupported attribute"
            raise Unsupported(kind, f"Tensor.{name} of a tensor that is not a leaf")
        if name == "grad" and any(self._fake is leaf for leaf in tx.graph.new_leaves):
            raise Unsupported("requires_grad", "of a tensor whose .grad is read")
        if name in ("grad_fn", "name") or self.source is None or self.real is None:
            return NONE
        return tx.outside.wrap(self.real.grad, AttrSource(self.source, "grad"))

    def _instance_attribute(self, tx: Interpreter, name: str) -> Value | None:
        """Returns an attribute that the program has set on the tensor before the frame, or None."""
        if self.source is None or self.real is None:
            return None
        attributes = getattr(self.real, "__dict__", {})
        self.install_guards(tx)
        if name in attributes:
            return tx.outside.wrap(attributes[name], AttrSource(self.source, name))
        tx.guards.add("NO_ATTRIBUTE", self.source, name)
        return None

    def _attribute_of_subclass(self, tx: Interpreter, name: str) -> Value | None:
        """Returns an attribute that a subclass of the program's has; None if it has none, or the tensor has another."""
        cls = self.python_type()
        found = lookup_in_mro(cls, name)
        if found is ABSENT or (name in getattr(self.real, "__dict__", {}) and not is_data_descriptor(found)):
            return None
        if not is_data_descriptor(found):
            self._guard_absent(tx, name)
        return self._read_from_class(tx, name, found)

    def _guard_absent(self, tx: Interpreter, name: str) -> None:
        """Guards that this tensor itself has no such attribute, which would come before that of its class."""
        if self.source is not None and hasattr(self.real, "__dict__"):
            self.install_guards(tx)
            tx.guards.add("DICT_CONTAINS", InstanceDictSource(self.source), name)

    def _read_from_class(self, tx: Interpreter, name: str, found: Any) -> Value:
        cls = self.python_type()
        guard_class_attribute(tx, cls, name, found)
        if is_descriptor(found):
            return descriptor_get(tx, found, name, self, cls)
        return tx.outside.wrap_attribute(found, AttrSource(tx.guards.held(cls, cls.__qualname__), name))

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        if name == "requires_grad":
            if value.python_type() is not bool or not self.fake(tx).is_leaf:  # unlike requires_grad_(), it raises
                raise Unsupported("requires_grad")
            self._require_grad(tx, value)
            return
        if name == "grad":
            self._check_grad(tx, value)
        elif name == "data" and value is self:
            return
        elif name == "data":
            self._check_data(tx, value)
            self._memory = None
            if value.source is not None:  # it may get other memory itself later
                value = value.get_attr(tx, name)
        elif hasattr(torch.Tensor, name):
            raise Unsupported("unsupported mutation", f"Tensor.{name} = ...")
        self.install_guards(tx)
        tx.effects.note_attribute(self, name)
        if name == "grad" and name not in self.stored and tx.is_none(value):
            tx.effects.dropped_gradients.append((self, tx.graph.is_empty))
        self.stored[name] = value

    def _check_grad(self, tx: Interpreter, value: Value) -> None:
        """Checks that PyTorch accepts `value` as the gradient: None, or a tensor like this one."""
        if self.source is None or not self.fake(tx).is_leaf:
            raise Unsupported("unsupported mutation", "Tensor.grad = ... of a tensor made in the frame")
        if tx.is_none(value):
            return
        if not isinstance(value, TensorValue) or _shape_dtype_device(value.fake(tx)) != _shape_dtype_device(
            self.fake(tx)
        ):
            raise Unsupported("unsupported mutation", "Tensor.grad = ... of another shape, dtype or device")

    def _check_data(self, tx: Interpreter, value: Value) -> None:
        """Checks that PyTorch accepts `value` as new memory: a plain tensor of this dtype and device."""
        if self.source is None or not isinstance(value, TensorValue) or value is self:
            raise Unsupported("unsupported mutation", "Tensor.data = ... of a tensor made in the frame")
        kinds = [(t.dtype, t.device, t.layout) for t in (self._fake_at_start(tx), value.fake(tx))]
        plain = {type(t.real) for t in (self, value)} <= {type(None), torch.Tensor, torch.nn.Parameter}
        if kinds[0] != kinds[1] or not plain or tx.graph.inference_mode:
            raise Unsupported("unsupported mutation", "Tensor.data = ... of another kind")
        if self._node is not None and any(node.target is not getattr for node in self._node.users):
            # the graph's views of it stay in the old memory, of which autograd may save the tensor
            raise Unsupported("unsupported mutation", "Tensor.data = ... of a tensor that the graph has used")

    def _require_grad(self, tx: Interpreter, value: Value) -> Value:
        """Accepts the present mode.  A change breaks the graph, but for a tensor made in the frame whose gradients are
        captured."""
        fake, wanted, graph = self._fake_at_start(tx), bool(value.constant(tx)), tx.graph
        if wanted == fake.requires_grad:
            return self
        if not wanted or self.source is not None or type(self) is not TensorValue or not fake.is_floating_point():
            raise Unsupported("requires_grad")
        graph.add_leaf(fake)
        return graph.call_method(tx, "requires_grad_", [self])

    # --- calls

    def call_method(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if (result := self._overridden_call(tx, name, args, kwargs)) is not None:
            return result
        if name == "as_subclass":
            return tx.as_subclass(self, *(each.constant(tx) for each in args))
        if name == "numpy" and not args and not kwargs:
            return tx.numpy_of(self)
        if name == "item" and not args and not kwargs:
            return tx.item_of(self)
        if name == "tolist" and not args and not kwargs:
            return tx.list_of_items(self)
        if name in VALUE_READS:
            raise Unsupported("tensor value read", f"Tensor.{name}()")
        if name == "backward":
            return tx.backward(self, args, kwargs)
        if name in HOOKS and len(args) == 1 and not kwargs:
            return tx.register_hook(self, args[0], name)
        if name in GRADIENT_HOOKS:
            raise Unsupported("gradient hook", f"Tensor.{name}()")
        if name == "requires_grad_":
            return self._require_grad(tx, *(args or kwargs.values() or [ConstantValue(True)]))
        if (
            name == "is_inference"
            and not tx.graph.inference_mode
            and (self.real is None or not self.real.is_inference())
        ):
            self.install_guards(tx)
            return ConstantValue(tx.graph.is_inference_mode(tx.guards))
        if self._can_be_replaced(tx, name):
            return self._become(tx.graph.call_method(tx, name.removesuffix("_"), [self, *args], kwargs), tx)
        if name in UNSUPPORTED_METHODS or (name in INPLACE_RESHAPES and self.source is not None):
            kind: BreakReason = "sparse tensor" if name == "to_sparse" else "unsupported call"
            raise Unsupported(kind, f"Tensor.{name}()")
        if name in METADATA_METHODS and not (name == "type" and (args or kwargs)):
            return self._query(tx, name, args, kwargs)
        if name == "new" and len(args) == 1 and not kwargs and getattr(args[0], "cls", None) is torch.Size:
            name = "new_empty"  # `new` takes a Size for a shape, but a tuple for data
        if name == "type" and args and (of_type := tensor_type_name(getattr(args[0], "obj", None))) is not None:
            args = [ConstantValue(of_type), *args[1:]]
        return tx.graph.call_method(tx, name, [self, *args], kwargs)

    def _can_be_replaced(self, tx: Interpreter, name: str) -> bool:
        """Whether what a method does to the tensor in place is what its functional form returns.

        That is so for a tensor of the frame that is detached, is no view, and that no backward needs; and for the shape
        of a view, unless a count of writes can be seen: that of an input, or one that autograd compares in a backward.
        """
        if name not in {*INPLACE_RESHAPES, "detach_"} or type(self) is not TensorValue:
            return False
        if self.source is not None or levels.depth():
            return False
        fake = self.fake(tx)
        if name == "detach_":
            return not (fake._is_view() or self._is_saved(tx))
        inputs = [v.fake(tx) for v in tx.graph.inputs if isinstance(v, TensorValue)]
        is_counted = storage_id(fake) in map(storage_id, inputs) or any(each.requires_grad for each in inputs)
        return fake._is_view() and not is_counted

    def _is_saved(self, tx: Interpreter) -> bool:
        """Whether autograd has saved the tensor, or one in its memory, for the backward of an operation on it."""
        fake = self.fake(tx)
        results = [t for user in self.node(tx).users for t in tensors_in(user.meta.get("val"))]
        seen: set[Any] = {fake.grad_fn, None}
        waiting: list[Any] = [t.grad_fn for t in results if t.requires_grad]
        while waiting:
            step = waiting.pop()
            if step in seen:
                continue
            seen.add(step)
            saved = [getattr(step, name) for name in dir(step) if name.startswith("_saved_")]
            if any(storage_id(each) == storage_id(fake) for each in tensors_in(saved)):
                return True
            waiting += [before for before, _ in step.next_functions]
        return False

    def _become(self, result: Value, tx: Interpreter) -> Value:
        """Makes this value stand for `result` from now on: it is still the same object for the program."""
        assert isinstance(result, TensorValue)
        self._fake, self._node = result.fake(tx), result.node(tx)
        tx.graph.set_value_of(self._fake, self)
        return self

    def _overridden_call(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value | None:
        """Returns what a class or a mode with ``__torch_function__`` makes of the call, or None if there is none."""
        call = lambda owner, *args, **kwargs: getattr(owner, name)(*args, **kwargs)  # noqa: E731
        return tx.override(call, [self, *args], kwargs)

    def load_input(self, emit: Emitter) -> None:
        """Pushes the tensor as an input of the graph."""
        emit.value(self)

    def _query(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        raw, raw_kwargs = constants(tx, args, kwargs)
        if name == "storage_offset":
            self.guard_offset(tx)
        try:
            found = getattr(self.layout(tx), name)(*raw, **raw_kwargs)
        except (IndexError, TypeError, RuntimeError) as error:  # wrong arguments; after the break Python raises it
            raise Unsupported("exception", str(error)) from None
        return from_python(found)

    def guard_offset(self, tx: Interpreter) -> None:
        """Guards the storage offset of this tensor or of the outside tensors it is a view of: TENSOR_MATCH does not."""
        memory = storage_id(self.fake(tx))
        outside = [self] if self.source is not None else tx.graph.tensors_of(memory)
        for tensor in outside:
            offset = tensor.fake(tx).storage_offset()
            tx.guards.add("STORAGE_OFFSET", tensor.source, offset)

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        self.check_methods(tx, "__getitem__")
        key = tx.index_of_numbers(tx.index_of_arrays(key))
        if isinstance(key, SymbolicNumber):  # indexing would specialise to the present number
            return tx.graph.call_function(tx, torch.select, [self, ConstantValue(0), key])
        return tx.graph.call_function(tx, operator.getitem, [self, key])

    def set_item(self, tx: Interpreter, key: Value, value: Value) -> None:
        self.check_methods(tx, "__setitem__")
        key = tx.index_of_numbers(tx.index_of_arrays(key))
        if isinstance(value, ConstantValue) and issubclass(value.python_type(), NUMPY_NUMBERS):
            value.guard_type(tx)
            cls: Any = value.python_type()
            if cls(1).dtype.kind not in "iu" and not issubclass(cls, (float, complex)):
                raise Unsupported("unsupported operation", f"a {cls.__name__} as an item of a tensor")
        tx.graph.call_function(tx, operator.setitem, [self, key, value])

    def contains(self, tx: Interpreter, item: Value) -> bool:
        raise Unsupported("tensor value read", "... in tensor")

    def length(self, tx: Interpreter) -> int:
        shape = self.fake(tx).shape
        if not shape:
            raise Unsupported("exception", "len() of a 0-d tensor")
        return int(shape[0])

    def unpack(self, tx: Interpreter) -> list[Value]:
        # iter(tensor) in eager calls unbind; doing the same gives the same views and gradients
        return tx.graph.call_method(tx, "unbind", [self]).unpack(tx) if self.length(tx) else []

    def reconstruct(self, emit: Emitter) -> None:
        emit.graph_output(self)


def replaced_method(cls: type, name: str) -> Any:
    """Returns what the program has replaced or added as the method `name` of tensors; None if it is PyTorch's."""
    found = next((c.__dict__[name] for c in cls.__mro__ if name in c.__dict__), None)
    if found is _AT_IMPORT.get(name) or name not in vars(torch.Tensor):
        return None
    function = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
    is_own = isinstance(function, types.FunctionType) and is_of_pytorch(function)
    return None if is_own or isinstance(function, _OF_C) else found


_AT_IMPORT = dict(vars(torch.Tensor))
_OF_C = (types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, types.BuiltinFunctionType)


def tensor_type_name(cls: Any) -> str | None:
    """Returns the name of a class such as ``torch.FloatTensor``, which stands for device and dtype; else None."""
    return f"{cls.__module__}.{cls.__name__}" if type(cls) is _TENSOR_TYPE else None


_TENSOR_TYPE = type(torch.FloatTensor)


def _shape_dtype_device(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.device

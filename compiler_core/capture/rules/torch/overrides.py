"""``__torch_function__`` of arguments, and torch function modes: captured where PyTorch calls them.

PyTorch decides in C++ and in Python which function an operation is for ``__torch_function__``: ``x[0]`` is
``Tensor.__getitem__``, ``1 - x`` is ``Tensor.__rsub__``.  To know it, the operation runs on stand-ins whose
``__torch_function__`` records how it was called.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from compiler_core.capture.rules.python.operators import BINARY, UNARY
from compiler_core.capture.rules.table import HANDLERS, handles, handles_each
from compiler_core.capture.values.base import ABSENT, Args, Kwargs, Value, guard_class_attribute, lookup_in_mro
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue, is_atom, is_not_implemented
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import ListValue, TupleValue
from compiler_core.capture.values.builtin.static import StaticValue, from_python
from compiler_core.capture.values.builtin.symbols import SymbolicNumber
from compiler_core.capture.values.contexts import ContextManagerValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.tensor_subclasses import (
    Overrides,
    SubclassTensorValue,
    TraceableWrapperValue,
    WrapperTensorValue,
    is_subclass_of_program,
    is_wrapper_class,
    overrides_functions,
)
from compiler_core.capture.values.user.functions import FunctionValue, MethodValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported
from compiler_core.torch_private import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    EnableTorchFunction,
    TensorBase,
    device_constructors,
    has_torch_function,
    has_torch_function_unary,
    has_torch_function_variadic,
    make_subclass,
)

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


# ------------------------------------------------------------ which arguments override


def _overriding(values: Iterable[Value], tx: Interpreter) -> Iterator[Value]:
    """Yields the arguments whose ``__torch_function__`` PyTorch would call, also those in lists and tuples.

    Raises Unsupported for a tensor that only kernels of its class can take.
    """
    for value in values:
        if isinstance(value, WrapperTensorValue) and value.is_opaque:
            raise value.refusal()
        if isinstance(value, TraceableWrapperValue):
            continue  # what the graph calls asks its class itself
        if isinstance(value, (SubclassTensorValue, ObjectValue)):
            if overrides_functions(value.cls):
                yield value
        elif isinstance(value, (ListValue, TupleValue)):
            if value._values is not None or any(overrides_functions(type(each)) for each in value.real):
                yield from _overriding(value.unpack(tx), tx)


def is_overridden(tx: Interpreter, args: Args, kwargs: Mapping[str, Value]) -> bool:
    """Whether an argument or a mode overrides what PyTorch's functions do with these arguments."""
    state = tx.capture.overrides
    if state.modes:
        return True
    return state.enabled and next(_overriding([*args, *kwargs.values()], tx), None) is not None


@contextlib.contextmanager
def changed_overrides(tx: Interpreter, **changes: Any) -> Iterator[None]:
    """Changes what overrides functions in this context."""
    before = tx.capture.overrides
    tx.capture.overrides = dataclasses.replace(before, **changes)
    try:
        yield
    finally:
        tx.capture.overrides = before


# ------------------------------------------------------------ how PyTorch calls it


class _Recorded(Exception):
    """What PyTorch called ``__torch_function__`` with: the function, the arguments, and the keywords if it gave any."""

    def __init__(self, func: Any, args: Any = (), kwargs: Any = None) -> None:
        self.func, self.arguments, self.keywords = func, args, kwargs


class _StandInObject:
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, *arguments: Any) -> Any:
        raise _Recorded(func, *arguments)


class _StandInTensor(torch.Tensor):
    __torch_function__ = _StandInObject.__torch_function__


class _RecordingMode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, *arguments: Any) -> Any:
        raise _Recorded(func, *arguments)


class _Int(int):
    """Stands for a symbolic number: no other object is the same."""


class _Float(float):
    """Stands for a symbolic number."""


class _StandIns:
    """Stand-ins of arguments, and the values that they stand for."""

    def __init__(self, tx: Interpreter) -> None:
        self.tx = tx
        self._values: dict[int, tuple[Any, Value]] = {}

    def of(self, value: Value) -> Any:
        made = self._make(value)
        self._values[id(made)] = made, value
        return made

    def _make(self, value: Value) -> Any:
        if isinstance(value, TensorValue):
            is_overriding = isinstance(value, SubclassTensorValue) and overrides_functions(value.cls)
            return torch.empty(0).as_subclass(_StandInTensor if is_overriding else torch.Tensor)
        if isinstance(value, SymbolicNumber):
            return (_Int if value.python_type() is int else _Float)(2)
        if isinstance(value, ConstantValue):
            return value.constant(self.tx)
        if isinstance(value, StaticValue):
            return value.constant(self.tx)
        if isinstance(value, (ListValue, TupleValue)):
            items = [self.of(each) for each in value.unpack(self.tx)]
            return items if isinstance(value, ListValue) else tuple(items)
        return _StandInObject() if next(_overriding([value], self.tx), None) is not None else object()

    def value(self, recorded: Any) -> Value:
        """Returns the value of an argument that PyTorch gave to ``__torch_function__``."""
        if id(recorded) in self._values:
            return self._values[id(recorded)][1]
        if is_atom(recorded):
            return from_python(recorded)
        if type(recorded) in (tuple, list):
            items = [self.value(each) for each in recorded]
            return TupleValue(items) if type(recorded) is tuple else ListValue(items)
        raise Unsupported("unsupported call", f"__torch_function__ with a {type(recorded).__name__}")


def override(tx: Interpreter, fn: Callable[..., Any], args: Args, kwargs: Mapping[str, Value]) -> Value | None:
    """Returns what an argument or a mode that overrides ``fn(*args, **kwargs)`` makes of it; None if none does."""
    if not is_overridden(tx, args, kwargs):
        return None
    stand_ins = _StandIns(tx)
    given, named = [stand_ins.of(a) for a in args], {name: stand_ins.of(a) for name, a in kwargs.items()}
    recorded = _record(tx.capture.overrides, fn, given, named)
    if recorded is None:
        return None
    found = [stand_ins.value(a) for a in recorded.arguments]
    keywords = recorded.keywords
    if keywords is not None:
        keywords = {name: stand_ins.value(a) for name, a in keywords.items()}
    if isinstance(recorded.func, types.FunctionType):
        overriding = _as_python_finds_them(found)
    else:
        overriding = list(_overriding([*found, *(keywords or {}).values()], tx))
    return _call_override(tx, recorded.func, overriding, found, keywords)


def _record(
    state: Overrides, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> _Recorded | None:
    mode = _RecordingMode() if state.modes else contextlib.nullcontext()
    enabled = EnableTorchFunction() if state.enabled else DisableTorchFunctionSubclass()
    with enabled, mode:
        try:
            fn(*args, **kwargs)
        except _Recorded as recorded:
            return recorded
        except Exception:  # nothing overrides it, and the stand-ins are no real arguments
            return None
    return None


def _as_python_finds_them(args: Iterable[Value]) -> list[Value]:
    """Returns the arguments that ``torch.overrides.handle_torch_function`` calls, plain tensors included."""
    found: list[Value] = []
    for arg in args:
        if isinstance(arg, (TensorValue, ObjectValue)):
            cls = arg.python_type()
            if cls is torch.Tensor or overrides_functions(cls):
                found.append(arg)
    return found


def _in_order(overriding: Iterable[Value]) -> list[Value]:
    """Returns one value of each class: in order, but a subclass before its bases."""
    found: list[Value] = []
    for value in overriding:
        cls = value.python_type()
        if all(cls is not known.python_type() for known in found):
            at = (i for i, known in enumerate(found) if issubclass(cls, known.python_type()))
            found.insert(next(at, len(found)), value)
    return found


def _call_override(
    tx: Interpreter, func: Any, overriding: Iterable[Value], args: list[Value], kwargs: Kwargs | None
) -> Value:
    """Calls the innermost mode, then ``__torch_function__`` of each class, until one does not return NotImplemented."""
    function = StaticValue(func) if isinstance(func, types.MethodWrapperType) else tx.outside.wrap(func)
    first = _in_order(overriding)
    classes: list[Value] = [StaticValue(value.python_type()) for value in first]
    given: list[Value] = [function, TupleValue(classes), TupleValue(args)]
    given += [] if kwargs is None else [DictValue(dict(kwargs))]
    state = tx.capture.overrides
    if state.modes:
        *outer, mode = state.modes
        with changed_overrides(tx, modes=outer):
            result = _call_mode(tx, mode, func, given)
        if not is_not_implemented(result):
            return result
    for value in first if state.enabled else ():
        result = _torch_function(tx, value).call(tx, given, {})
        if not is_not_implemented(result):
            return result
    raise Unsupported("exception", f"no implementation found for {function} on types that implement __torch_function__")


def _call_mode(tx: Interpreter, mode: Value, func: Any, given: list[Value]) -> Value:
    if not isinstance(mode, DeviceValue):
        return mode.get_attr(tx, "__torch_function__").call(tx, given, {})
    function, _, args, *rest = given
    kwargs = dict(rest[0].mapping(tx)) if rest and isinstance(rest[0], DictValue) else {}
    if func in device_constructors() and ("device" not in kwargs or tx.is_none(kwargs["device"])):
        kwargs["device"] = ConstantValue(mode.device)
    return function.call(tx, args.unpack(tx), kwargs)


def _torch_function(tx: Interpreter, value: Value) -> Value:
    """Returns ``__torch_function__`` of the class of `value`."""
    cls = value.python_type()
    found = lookup_in_mro(cls, "__torch_function__")
    value.install_guards(tx)
    guard_class_attribute(tx, cls, "__torch_function__", found)
    if isinstance(found, classmethod):
        return MethodValue(tx.outside.wrap(found.__func__), StaticValue(cls))
    if isinstance(found, staticmethod):
        return tx.outside.wrap(found.__func__)
    what = f"{cls.__name__}.__torch_function__ is a plain method, about which PyTorch warns: make it a classmethod"
    raise Unsupported("unsupported call", what)


def overridden_attribute(tx: Interpreter, owner: Value, name: str) -> Value | None:
    """Returns ``owner.name`` of a tensor where an override decides about it, else None."""
    if not is_overridden(tx, [owner], {}):
        return None
    of_pytorch = lookup_in_mro(torch.Tensor, name)
    if isinstance(of_pytorch, types.FunctionType):  # it asks itself whether something overrides it
        return MethodValue(FunctionValue.from_outside(tx.outside, of_pytorch, None), owner)
    if of_pytorch is ABSENT or callable(of_pytorch):
        return None
    return override(tx, getattr, [owner, ConstantValue(name)], {})


# ------------------------------------------------------------ PyTorch's functions about overrides


@handles_each(has_torch_function, has_torch_function_unary, has_torch_function_variadic)
def _has_torch_function(fn: Any, tx: Interpreter, *args: Value) -> Value:
    given = args[0].unpack(tx) if fn is has_torch_function else args
    for value in given:
        value.install_guards(tx)
    return ConstantValue(is_overridden(tx, given, {}) or any(map(_asks_wrapper, given)))


def _asks_wrapper(value: Value) -> bool:
    return isinstance(value, TraceableWrapperValue) and value.overrides


@handles(torch.overrides.handle_torch_function)
def _handle(tx: Interpreter, public_api: Value, relevant_args: Value, *args: Value, **kwargs: Value) -> Value:
    overriding = _as_python_finds_them(relevant_args.unpack(tx))
    if any(map(_asks_wrapper, overriding)):
        return tx.graph.call_function(tx, public_api.constant(tx), args, kwargs)
    return _call_override(tx, public_api.constant(tx), overriding, list(args), kwargs)


@handles(torch.Tensor.__torch_function__.__func__)  # type: ignore[attr-defined]
def _of_tensor(
    tx: Interpreter, cls: Value, func: Value, types: Value, args: Value = NONE, kwargs: Value = NONE
) -> Value:
    """Calls the function as for plain tensors, and makes its results tensors of the class."""
    owner = cls.constant(tx)
    if not all(issubclass(owner, each.constant(tx)) for each in types.unpack(tx)):
        return ConstantValue(NotImplemented)
    given = [] if tx.is_none(args) else args.unpack(tx)
    named = kwargs.mapping(tx) if isinstance(kwargs, DictValue) else {}
    with changed_overrides(tx, enabled=False):
        result = func.call(tx, given, dict(named))
    if func.is_constant() and func.constant(tx) in torch.overrides.get_default_nowrap_functions():
        return result
    return _converted(tx, result, owner)


def _converted(tx: Interpreter, result: Value, cls: Any) -> Value:
    """``torch._tensor._convert(result, cls)``"""
    if cls is torch.Tensor:
        return result
    if isinstance(result, TensorValue) and not issubclass(result.python_type(), cls):
        return as_subclass(tx, result, cls)
    if isinstance(result, TupleValue):
        return TupleValue([_converted(tx, each, cls) for each in result.unpack(tx)], result.cls)
    if isinstance(result, ListValue):
        return ListValue([_converted(tx, each, cls) for each in result.unpack(tx)])
    return result


def as_subclass(tx: Interpreter, tensor: TensorValue, cls: Any) -> Value:
    """``tensor.as_subclass(cls)``"""
    if cls is torch.Tensor:
        with changed_overrides(tx, enabled=False, modes=[]):
            return tx.graph.call_function(tx, torch.ops.aten.alias.default, [tensor])
    if not is_subclass_of_program(cls) or is_wrapper_class(cls):
        raise Unsupported("tensor subclass", f"as_subclass({cls.__name__})")
    found: Value = tx.graph.subclass_tensor(tx, tensor, cls)
    return found


@handles(torch.Tensor.__new__)
def _new_tensor(tx: Interpreter, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    """``Subclass(tensor)``: a view of the whole tensor."""
    made = cls.constant(tx)
    if kwargs or len(args) != 1 or type(args[0]) is not TensorValue or not is_subclass_of_program(made):
        raise Unsupported("skipped function", f"{made.__name__}()")
    return as_subclass(tx, args[0], made)


@handles(make_subclass)
def _make_subclass(tx: Interpreter, cls: Value, data: Value, require_grad: Value = ConstantValue(False)) -> Value:  # noqa: B008
    if not isinstance(data, TensorValue) or require_grad.truth(tx):
        raise Unsupported("unsupported call", "Tensor._make_subclass() of a leaf that requires gradients")
    with changed_overrides(tx, enabled=False, modes=[]):
        detached = data.call_method(tx, "detach", [], {})
    assert isinstance(detached, TensorValue)
    return as_subclass(tx, detached, cls.constant(tx))


def _rule_of_getter(name: str) -> Callable[..., Value]:
    def read(tx: Interpreter, owner: Value, owner_class: Value = NONE) -> Value:
        if not isinstance(owner, SubclassTensorValue):
            return owner.get_attr(tx, name)
        found = owner.attribute_of_tensor(tx, name)
        assert found is not None
        return found

    return read


def _rule_of_operator(op: Any) -> Callable[..., Value]:
    def call(tx: Interpreter, *operands: Value) -> Value:  # not a method that a subclass defines
        return tx.graph.call_function(tx, op, operands)

    return call


def _add_rules_of_descriptors() -> None:
    """Adds rules for what PyTorch gives to ``__torch_function__`` for attributes and operators."""
    for name in dir(torch.Tensor):
        found = getattr(torch.Tensor, name)
        if isinstance(found, types.GetSetDescriptorType):
            handles(found.__get__)(_rule_of_getter(name))
    operators = {**{names[0]: op for op, names in BINARY.items()}, **{name: op for op, name in UNARY.items()}}
    for name, op in {**operators, "__getitem__": operator.getitem, "__setitem__": operator.setitem}.items():
        for found in {getattr(TensorBase, name, None), lookup_in_mro(torch.Tensor, name)}:
            if isinstance(found, (types.MethodDescriptorType, types.WrapperDescriptorType)) and found not in HANDLERS:
                handles(found)(_rule_of_operator(op))


_add_rules_of_descriptors()


PYTHON_METHODS = {found: name for name, found in vars(torch.Tensor).items() if isinstance(found, types.FunctionType)}
"""The names of the methods of ``torch.Tensor`` that are Python functions."""


# ------------------------------------------------------------ contexts


class DisabledOverridesValue(ContextManagerValue):
    """``DisableTorchFunctionSubclass()`` or ``DisableTorchFunction()``."""

    def enter(self, tx: Interpreter) -> Value:
        before = self.attributes["before"] = tx.capture.overrides
        modes = before.modes if self.cls is DisableTorchFunctionSubclass else []
        tx.capture.overrides = Overrides(enabled=False, modes=modes)
        return self

    def leave(self, tx: Interpreter) -> None:
        tx.capture.overrides = self.attributes["before"]

    def reconstruct_exit(self, emit: Emitter) -> None:
        raise Unsupported("unsupported operation", "a graph break where __torch_function__ is disabled")


@handles_each(DisableTorchFunctionSubclass, DisableTorchFunction)
def _disable(cls: Any, tx: Interpreter) -> Value:
    return DisabledOverridesValue(cls, {})


class DeviceValue(ContextManagerValue):
    """``with device:``, a mode that gives new tensors this device."""

    @property
    def device(self) -> torch.device:
        device: torch.device = self.attributes["device"]
        return device

    def enter(self, tx: Interpreter) -> Value:
        _push_mode(tx, self)
        return ConstantValue(self.device)

    def leave(self, tx: Interpreter) -> None:
        _pop_mode(tx)

    def reconstruct(self, emit: Emitter) -> None:
        emit.constant(self.device)

    def reconstruct_exit(self, emit: Emitter) -> None:
        emit.constant(self.device)
        emit.load_attr("__exit__")


def _push_mode(tx: Interpreter, mode: Value) -> None:
    state = tx.capture.overrides
    tx.capture.overrides = dataclasses.replace(state, modes=[*state.modes, mode])


def _pop_mode(tx: Interpreter) -> None:
    state = tx.capture.overrides
    if not state.modes:
        raise Unsupported("unsupported call", "a torch function mode that was entered before is left")
    tx.capture.overrides = dataclasses.replace(state, modes=state.modes[:-1])


def enter_mode(mode: torch.device | TorchFunctionMode) -> None:
    """Called by generated code: enters a mode or device that the frame entered before a graph break in it."""
    TorchFunctionMode.__enter__(mode) if isinstance(mode, TorchFunctionMode) else mode.__enter__()  # type: ignore[no-untyped-call]


@handles(TorchFunctionMode.__init__)
def _init_mode(tx: Interpreter, mode: Value) -> Value:
    return NONE


@handles(TorchFunctionMode.__enter__)
def _enter_mode(tx: Interpreter, mode: Value) -> Value:
    _push_mode(tx, mode)
    return mode


@handles(TorchFunctionMode.__exit__)
def _leave_mode(tx: Interpreter, mode: Value, *exception: Value) -> Value:
    _pop_mode(tx)
    return NONE

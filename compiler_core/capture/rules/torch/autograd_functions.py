"""Rules for ``torch.autograd.Function.apply`` and ``Tensor.register_hook``: one node of the graph, which calls them.

The forward and backward of a Function run as the program wrote them, when the graph runs or, for backends that
differentiate, when the joint graph is traced.  So both are interpreted once in a trial run, whose nodes are discarded:
this adds guards on everything that they depend on, and shows that they only compute tensors.  A Function for which this
cannot be shown breaks the graph.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.fx as fx
from torch.autograd.function import FunctionCtx

from compiler_core.capture.rules.table import handles
from compiler_core.capture.values.base import (
    Args,
    Kwargs,
    NamedMethodValue,
    ObservedException,
    Value,
    guard_class_attribute,
)
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.containers import ContainerValue
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import ListValue, TupleValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.tensor_subclasses import SubclassTensorValue
from compiler_core.capture.values.user.functions import FunctionValue, PartialValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import make_box, weak_cache
from compiler_core.guards.sources import Box
from compiler_core.support import transform_levels as levels
from compiler_core.support.node_facts import GROUPS, group_names
from compiler_core.support.tensors import storage_id
from compiler_core.support.torch_state import grad_mode_change
from compiler_core.torch_private import unsafe_preserve_version_counter

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

_STATIC = inspect.getattr_static(torch.autograd.Function, "apply")
APPLY = getattr(_STATIC, "__func__", _STATIC)  # from PyTorch 2.14 on it is a class method in C++


@handles(APPLY)
def _apply(tx: Interpreter, owner: Value, *args: Value) -> Value:
    cls = owner.constant(tx)
    objects = {i: arg for i, arg in enumerate(args) if isinstance(arg, _NOT_IN_NODES)}
    given = list(_leaves(tx, [arg for i, arg in enumerate(args) if i not in objects]))
    for arg in given:
        if isinstance(arg, SubclassTensorValue):
            raise Unsupported("tensor subclass", f"{cls.__name__}.apply with a {arg.cls.__name__}")
        if not isinstance(arg, TensorValue) and not arg.is_constant():
            raise Unsupported("unsupported call", f"{cls.__name__}.apply with {arg}")
        if isinstance(arg, TensorValue):
            arg.node(tx)  # makes it an input of the graph now
    if tx.capture.effects:
        raise Unsupported("unsupported call", f"{cls.__name__}.apply after changes that it may read")
    if levels.depth():
        _check_no_rule_of_transform(cls)
    trial = _TrialRun(tx, cls, args)
    trial.run()
    in_graph = [arg for i, arg in enumerate(args) if i not in objects]
    if list(map(id, given)) != list(map(id, _leaves(tx, in_graph))):
        raise Unsupported("unsupported call", f"{cls.__name__} changes a list or dict that it is given")
    apply = apply_function(cls)
    if objects:
        try:
            apply = _with_objects(apply, {i: _fixed(tx, each) for i, each in objects.items()})
        except Unsupported as error:
            raise Unsupported("unsupported call", f"{cls.__name__}.apply: {error.context or error.kind}") from None
    result = tx.capture.graph.call_function(tx, apply, in_graph)
    if trial.groups:
        _last_node(tx.capture.graph.fx_graph, apply).meta[GROUPS] = trial.groups
    _check_memory(tx, cls, args, [arg for arg in given if arg not in trial.dirty], result)
    return result


def _leaves(tx: Interpreter, args: Sequence[Value]) -> Iterator[Value]:
    """Yields the arguments, those in tuples, lists and dicts included.  PyTorch differentiates only those outside of
    them."""
    for arg in args:
        if isinstance(arg, (ListValue, TupleValue)):
            yield from _leaves(tx, arg.unpack(tx))
        elif isinstance(arg, DictValue) and arg.cls is dict:
            yield from _leaves(tx, list(arg.mapping(tx).values()))
        else:
            yield arg


def _check_no_rule_of_transform(cls: Any) -> None:
    """Raises Unsupported if a Function has a rule that the trial run does not call: one for ``vmap`` or ``jvp``."""
    for name in ("vmap", "jvp"):
        if getattr(cls, name) is not getattr(torch.autograd.Function, name):
            raise Unsupported("transform", f"{cls.__name__}.{name}, a rule of the program's")


@weak_cache
def apply_function(cls: Any) -> Callable[..., Any]:
    """Returns the function that the node calls: it has the class's name and calls its `apply`."""

    box = make_box(cls)

    def apply(*args: Any) -> Any:
        return box.value.apply(*args)

    apply.__name__ = apply.__qualname__ = cls.__name__
    return apply


_NOT_IN_NODES = (FunctionValue, PartialValue, StaticValue, ObjectValue)
"""Values that a Function may be given and that cannot be arguments of a node."""


def _with_objects(apply: Callable[..., Any], boxes: dict[int, Box]) -> Callable[..., Any]:
    """Returns `apply` with these objects among its arguments."""

    def with_objects(*args: Any) -> Any:
        rest = iter(args)
        return apply(*(boxes[i].value if i in boxes else next(rest) for i in range(len(args) + len(boxes))))

    with_objects.__name__ = with_objects.__qualname__ = apply.__name__
    return with_objects


def _fixed(tx: Interpreter, value: Value) -> Box:
    """Returns a reference to an object from outside, or to a function without state that may change.  The trial run,
    which has used it, guards what it depends on."""
    if isinstance(value, ObjectValue):
        if value.source is None:
            raise Unsupported("unsupported call", f"with {value}, which the frame has made")
        tx.capture.guards.add("ID_MATCH", value.source, value.real)
        return tx.capture.guards.boxed(value.real)
    if isinstance(value, PartialValue):
        args, kwargs = [a.constant(tx) for a in value.args], {k: v.constant(tx) for k, v in value.kwargs.items()}
        return Box(functools.partial(_fixed(tx, value.function).value, *args, **kwargs))
    return Box(_copy(tx, value) if isinstance(value, FunctionValue) else value.constant(tx))


@contextmanager
def trial_run(tx: Interpreter, name: str, given: Sequence[TensorValue]) -> Iterator[list[fx.Node]]:
    """A context in which everything that is captured is discarded, except guards.

    Raises Unsupported if what ran in it, called `name`, reads or changes anything else than the tensors in `given`.
    Yields a list, which has the discarded nodes afterwards.
    """
    capture = tx.capture
    graph = capture.graph.fx_graph
    last = next(iter(reversed(graph.nodes)))
    pending = len(capture.pending_works)

    def outside_state() -> tuple[int, int, list[int]]:
        tensors = sum(isinstance(each, TensorValue) for each in capture.graph.inputs)  # a symbolic number is no tensor
        return tensors, len(capture.effects.tokens), [each.fake(tx)._version for each in given]

    before, grad_enabled = outside_state(), capture.graph.grad_enabled
    capture.graph.change_state(grad_mode_change(False))
    was_trial, capture.graph.is_trial = capture.graph.is_trial, True
    nodes: list[fx.Node] = []
    try:
        with capture.inside(capture.graph.region, f"a change made by {name}"):
            yield nodes
    finally:  # the program may catch what is raised
        capture.graph.is_trial = was_trial
        capture.graph.change_state(grad_mode_change(grad_enabled))
    if outside_state() != before:
        raise Unsupported("unsupported call", f"{name} reads or changes tensors that it is not given")
    if len(capture.pending_works) != pending:
        raise Unsupported("collective", f"{name} does not wait for a collective")
    new = itertools.takewhile(lambda node: node is not last, reversed(graph.nodes))
    nodes += [node for node in new if node.op != "placeholder"]  # a symbolic number stays an input of the graph
    for node in nodes:
        graph.erase_node(node)


@contextmanager
def _later(name: str) -> Iterator[None]:
    """A context for what only the backward runs: what it raises there is not raised here."""
    try:
        yield
    except ObservedException as error:
        raise Unsupported("exception", f"{name} raises {error.context}") from None


class _TrialRun:
    """Interprets the forward and backward of one call, to add their guards and to check for side effects."""

    def __init__(self, tx: Interpreter, cls: type, args: Sequence[Value]) -> None:
        self.tx = tx
        self.cls = cls
        self.args = args
        self.ctx = ObjectValue(FunctionCtx)
        self.dirty: list[Value] = []
        """The arguments that it changes in place."""
        self.groups: tuple[str, ...] = ()
        """The names of the process groups whose collectives the functions call."""
        wanted = [isinstance(a, TensorValue) and a.fake(tx).requires_grad for a in args]
        self.differentiated = tx.capture.graph.grad_enabled and (any(wanted) or levels.depth() > 0)
        if not levels.depth():  # each level has its own
            self.ctx.stored["needs_input_grad"] = TupleValue([ConstantValue(w) for w in wanted])

    def run(self) -> None:
        given = [arg for arg in _leaves(self.tx, self.args) if isinstance(arg, TensorValue)]
        with trial_run(self.tx, self.cls.__name__, given) as nodes:
            outputs = self._forward_in_place([arg for arg in given if self._may_change(arg)])
            if self.differentiated:
                self._backward(outputs)
        self.groups = group_names(nodes)

    def _may_change(self, arg: TensorValue) -> bool:
        """Whether a graph may have a change of an argument by the Function: the frame made its memory."""
        fake = arg.fake(self.tx)
        return type(arg) is TensorValue and arg.source is None and not fake._is_view() and not levels.depth()

    def _forward_in_place(self, may_change: list[TensorValue]) -> Value:
        fakes = [arg.fake(self.tx) for arg in may_change]
        versions = [fake._version for fake in fakes]
        with unsafe_preserve_version_counter(tuple(fakes)):
            outputs = self._forward()
            changed = [a for a, f, before in zip(may_change, fakes, versions, strict=True) if f._version != before]
        marked = self.ctx.stored.get("dirty_tensors", TupleValue([]))
        self.dirty = marked.unpack(self.tx)
        if set(map(id, self.dirty)) != set(map(id, changed)):
            raise Unsupported("in-place autograd.Function", self.cls.__name__)
        return outputs

    def _forward(self) -> Value:
        if self.cls.setup_context is torch.autograd.Function.setup_context:  # type: ignore[attr-defined]
            return self._call("forward", self.ctx, *self.args)
        outputs = self._call("forward", *self.args)
        self._call("setup_context", self.ctx, TupleValue(list(self.args)), outputs)
        return outputs

    def _backward(self, outputs: Value) -> None:
        self.ctx.stored["saved_tensors"] = self.ctx.stored.get("to_save", TupleValue([]))
        each = outputs.unpack(self.tx) if isinstance(outputs, TupleValue) else [outputs]
        defined: Any = self.cls
        name = "backward" if defined.backward is not torch.autograd.Function.backward else "vjp"
        with _later(f"the backward of {self.cls.__name__}"):
            self._call(name, self.ctx, *map(self._gradient, each))

    def _gradient(self, output: Value) -> Value:
        without = self.ctx.stored.get("non_differentiable", TupleValue([])).unpack(self.tx)
        is_made = self.ctx.stored.get("materialize_grads", ConstantValue(True)).truth(self.tx)
        if not isinstance(output, TensorValue) or (output in without and not is_made):
            return NONE
        return self.tx.capture.graph.call_function(self.tx, torch.empty_like, [output])

    def _call(self, name: str, *args: Value) -> Value:
        found = inspect.getattr_static(self.cls, name)
        if not isinstance(found, staticmethod) or not isinstance(found.__func__, types.FunctionType):
            raise Unsupported("unsupported call", f"{self.cls.__name__}.{name}, which is not a static method in Python")
        guard_class_attribute(self.tx, self.cls, name, found)
        return self.tx.capture.outside.wrap(found.__func__).call(self.tx, args, {})


def _last_node(graph: fx.Graph, target: Any) -> fx.Node:
    nodes: Iterator[fx.Node] = iter(reversed(graph.nodes))
    return next(node for node in nodes if node.target is target)


def _check_memory(tx: Interpreter, cls: type, args: Sequence[Value], given: Sequence[Value], result: Value) -> None:
    """Raises Unsupported if an output shares memory with one of several tensors that the Function is given.

    A view of the first argument, the only tensor, is a view operation like PyTorch's: calling the Function on the same
    base makes it again, with its gradient.
    """
    outputs = result.unpack(tx) if isinstance(result, TupleValue) else [result]
    tensors = [arg for arg in given if isinstance(arg, TensorValue)]
    if tensors == [args[0]] and result in outputs:
        return
    owned = {storage_id(a.fake(tx)) for a in tensors}
    for output in outputs:
        if isinstance(output, TensorValue) and storage_id(output.fake(tx)) in owned:
            raise Unsupported("unsupported call", f"{cls.__name__} returns memory that it was given")


# ---------------------------------------------------------------- Tensor.register_hook
#
# On a tensor that the frame made, the hook becomes a node of the graph, which registers it: the hook runs when the
# joint graph is traced, or in the backward of a backend that does not differentiate.  So it is interpreted once in a
# trial run. On a leaf from outside, generated code registers the hook when the graph has run.


class HandleValue(Value):
    """The handle of a hook on a leaf from outside, which the frame may remove, or of another, which it ignores."""

    def __init__(self, call: Any = None) -> None:
        self._call = call
        """What `SideEffects.note_call` returned."""

    def __repr__(self) -> str:
        return "the handle of a hook"

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        return NamedMethodValue(self, name) if name == "remove" and self._call else super().get_attr(tx, name)

    def call_method(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        tx.capture.effects.forget_call(self._call)
        return NONE


def register_hook(tx: Interpreter, tensor: TensorValue, hook: Value, name: str) -> Value:
    """``tensor.register_hook(hook)`` or, as `name` says, ``register_post_accumulate_grad_hook``.

    Raises Unsupported if a hook on a tensor that the frame made does more than to compute a gradient from a gradient.
    """
    what = f"Tensor.{name}()"
    fake = tensor.fake(tx)
    if type(tensor) is not TensorValue or not fake.requires_grad or levels.depth() or tx.capture.graph.is_trial:
        raise Unsupported("gradient hook", what)
    if tensor.source is not None and fake.is_leaf:
        tensor.install_guards(tx)
        return HandleValue(tx.capture.effects.note_call(_ADD[name], [tensor, hook]))
    if tensor.source is not None or name != "register_hook":
        raise Unsupported("gradient hook", f"{what} of a tensor from outside that is not a leaf")
    if not isinstance(hook, (FunctionValue, PartialValue, StaticValue)):
        raise Unsupported("gradient hook", f"{what} with {hook}")
    try:
        _try(tx, tensor, hook)
        copy = _copy(tx, hook)
    except Unsupported as error:
        raise Unsupported("gradient hook", f"{what}: {error.context or error.kind}") from None
    tx.capture.graph.keep_whole("beside hooks on its tensors")
    tx.capture.graph.call_function(tx, _registering(copy), [tensor])
    return HandleValue()


def add_hook(tensor: torch.Tensor, hook: Callable[..., Any]) -> None:
    """Registers a hook; generated code calls it."""
    tensor.register_hook(hook)  # type: ignore[no-untyped-call]


def add_hook_after(tensor: torch.Tensor, hook: Callable[..., Any]) -> None:
    """Registers a hook that runs when the gradient is accumulated; generated code calls it."""
    tensor.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]


_ADD = {"register_hook": add_hook, "register_post_accumulate_grad_hook": add_hook_after}


def _try(tx: Interpreter, tensor: TensorValue, hook: Value) -> None:
    """Interprets the hook, which adds its guards and breaks the graph if it does anything but compute."""
    with trial_run(tx, "a hook", [tensor]):
        gradient = tx.capture.graph.call_function(tx, torch.empty_like, [tensor])
        with _later("the hook"):
            result = hook.call(tx, [gradient], {})
        if not tx.is_none(result) and (not isinstance(result, TensorValue) or _kind(tx, result) != _kind(tx, tensor)):
            raise Unsupported("gradient hook", f"the hook returns {result}")


def _kind(tx: Interpreter, tensor: TensorValue) -> tuple[Any, ...]:
    fake = tensor.fake(tx)
    return fake.shape, fake.dtype, fake.device


def _copy(tx: Interpreter, hook: Value) -> Callable[..., Any]:
    """Returns a function like the hook, which has no state that may change: its variables are constants.

    A tensor is none: the caller may change it before the backward runs.
    """
    hook.install_guards(tx)
    if isinstance(hook, PartialValue):
        args = [_fixed_variable(tx, each) for each in hook.args]
        kwargs = {name: _fixed_variable(tx, each) for name, each in hook.kwargs.items()}
        return functools.partial(_copy(tx, hook.function), *args, **kwargs)
    if not isinstance(hook, FunctionValue):
        function: Callable[..., Any] = hook.constant(tx)
        return function
    if hook.stored or hook.special_attributes:
        raise Unsupported("gradient hook", f"{hook} has attributes")
    for name, cell in zip(hook.code.co_freevars, hook.closure, strict=True):
        if not cell.is_final(tx):
            raise Unsupported("gradient hook", f"{hook} reads {name}, which may be assigned again")
    cells = tuple(types.CellType(_fixed_variable(tx, cell.get(tx))) for cell in hook.closure)
    defaults = tuple(_fixed_variable(tx, each) for each in hook.defaults)
    made = types.FunctionType(hook.code, hook.f_globals, hook.code.co_name, defaults, cells)
    made.__kwdefaults__ = {name: _fixed_variable(tx, each) for name, each in hook.kwdefaults.items()}
    return made


def _fixed_variable(tx: Interpreter, value: Value) -> Any:
    if isinstance(value, TupleValue) and value.cls is tuple:
        return tuple(_fixed_variable(tx, each) for each in value.unpack(tx))
    if isinstance(value, ContainerValue):
        raise Unsupported("gradient hook", f"{value}, which may change")
    return value.constant(tx)


def _registering(hook: Callable[..., Any]) -> Callable[[torch.Tensor], None]:
    """Returns the function that the node calls."""

    def register(tensor: torch.Tensor) -> None:
        tensor.register_hook(hook)  # type: ignore[no-untyped-call]

    register.__name__ = register.__qualname__ = "register_hook"
    return register

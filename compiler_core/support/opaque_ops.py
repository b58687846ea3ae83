"""Operators that stay opaque: one call of PyTorch's kernel, and PyTorch's own autograd for the gradient.

A composite operator is implemented by others, and tracing records those: an LSTM over 200 steps becomes thousands of
nodes, while eager PyTorch may have one fused kernel for all of them.  Each operator in `OPERATORS` stays one node of
the joint graph instead, but for short recurrent layers on a CPU (`is_short`).

If a gradient is required, the node's target is `with_tape`.  It runs the operator under PyTorch's autograd and returns
its results and a `Tape`, which holds the autograd graph of that one call.  The node of the backward, `tape_gradients`,
runs that graph backward.  So both halves run the kernels that eager runs, on any device, with the same random numbers
and the same saved values.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch.fx.node import has_side_effect

from compiler_core.errors import Unsupported
from compiler_core.support.operators import Fact, facts
from compiler_core.support.tensors import tensors_in
from compiler_core.support.transform_levels import is_wrapped
from compiler_core.torch_private import (
    DispatchKey,
    ForceDispatchKeyGuard,
    OpOverload,
    dispatch_tls_local_exclude_set,
    dispatch_tls_local_include_set,
    istft_decomposition,
)

aten = torch.ops.aten
Autocast = tuple[str, torch.dtype, bool]
"""Device type and dtype of an active autocast, and whether it caches casts."""

_AUTOGRAD = ("AutogradFunctionality", "AutogradOther", "AutogradNestedTensor", "ADInplaceOrView")
SECOND_BACKWARD_MESSAGE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)


# ---- while a program runs ------------------------------------------------------------------


class Tape:
    """The autograd graph of one call, from `results` back to `leaves`."""

    def __init__(self, results: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> None:
        self.results, self.leaves = results, leaves
        self.is_last = False
        """Whether no backward comes after the next one, which then frees what autograd saved."""


@has_side_effect
def without_tape(
    operator: Any, args: Sequence[Any], grad: bool, autocast: Sequence[Autocast]
) -> tuple[torch.Tensor, ...]:
    """Returns the results of ``operator(*args)`` in this grad mode and with these autocasts."""
    with captured_state(grad, autocast):
        return _results(operator(*args))


@has_side_effect
def with_tape(operator: Any, args: Sequence[Any], wanted: Sequence[int], autocast: Sequence[Autocast]) -> Any:
    """Returns the results of ``operator(*args)``, and a `Tape` for the gradients of some of the tensors in `args`.

    `wanted` has the indices of these among the tensors of `args`.  The function may be called below autograd; it
    enables autograd for the call.  The results share version counters with those on the tape, so that autograd notices
    writes to them.
    """
    excluded = dispatch_tls_local_exclude_set()
    for key in _AUTOGRAD:
        excluded = excluded.remove(getattr(DispatchKey, key))
    with ForceDispatchKeyGuard(dispatch_tls_local_include_set(), excluded):
        leaves: dict[int, torch.Tensor] = {}
        tensors = iter(range(len(tensors_in(args))))

        def leaf(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [leaf(v) for v in value]
            if not isinstance(value, torch.Tensor) or (at := next(tensors)) not in wanted:
                return value
            leaves[at] = value.detach().requires_grad_()
            return leaves[at]

        given = leaf(args)
        with captured_state(True, autocast):
            results = _results(operator(*given))
        return (*(r.detach() for r in results), Tape(results, [leaves[at] for at in wanted]))


def tape_gradients(tape: Tape, tangents: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor, ...]:
    """Returns one gradient for each leaf of the tape; zeros for a leaf that no given tangent reaches."""
    given = [(r, t) for r, t in zip(tape.results, tangents, strict=True) if t is not None and r.requires_grad]
    with torch.enable_grad():
        found = torch.autograd.grad(
            [r for r, _ in given],
            tape.leaves,
            [t for _, t in given],
            retain_graph=not tape.is_last,
            allow_unused=True,
        )
    return tuple(torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, tape.leaves, strict=True))


NAMES: dict[str, Callable[..., Any]] = {f.__name__: f for f in (without_tape, with_tape, tape_gradients)}
"""The functions that the source of a wrapper may name."""


def _results(found: Any) -> tuple[torch.Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


def captured_state(grad: bool, autocast: Sequence[Autocast]) -> ExitStack:
    """Enters the grad mode and the autocasts that the operator was captured in."""
    state = ExitStack()
    state.enter_context(torch.set_grad_enabled(grad))
    for device, dtype, cache in autocast:
        state.enter_context(torch.autocast(device, dtype, cache_enabled=cache))
    return state


STANDALONE: tuple[Any, ...] = (Tape, *NAMES.values(), _results, captured_state, tensors_in)
"""The classes and functions that a standalone program with opaque operators has to contain, besides imports."""


# ---- while a program is compiled -----------------------------------------------------------


class FakeTape:
    """What represents a tape while the graph is traced."""

    def __init__(self, call: OpaqueCall, wanted: Sequence[int], autocast: Sequence[Autocast]) -> None:
        self.call, self.wanted, self.autocast = call, wanted, autocast

    def __repr__(self) -> str:
        return f"tape of {self.call.operator}"


def is_tape(node: Any) -> bool:
    """Returns whether a node's value is the tape of an opaque operator."""
    return isinstance(node, fx.Node) and isinstance(node.meta.get("val"), FakeTape)


ResultsRule = Callable[["OpaqueCall"], tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class OpaqueCall:
    """A call of an opaque operator."""

    operator: OpOverload
    args: tuple[Any, ...]
    results: ResultsRule

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name."""
        return bind_arguments(self.operator, self.args)

    @property
    def name(self) -> str:
        """What its nodes are named after."""
        return str(self.operator.overloadpacket.__name__)

    @property
    def saves_output(self) -> bool:
        """Whether eager PyTorch saves the output.  On a CPU a recurrent layer saves that of each step, and only the
        LSTM has a kernel for all steps."""
        return self.operator.overloadpacket is aten.lstm or any(t.device.type != "cpu" for t in tensors_in(self.args))

    def with_tensors(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the arguments with their tensors replaced by `tensors`, in order."""
        rest = iter(tensors)

        def place(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [place(v) for v in value]
            return next(rest) if isinstance(value, torch.Tensor) else value

        return tuple(map(place, self.args))

    def fake_results(self) -> tuple[torch.Tensor, ...]:
        """Returns empty tensors with the metadata of the results."""
        return self.results(self)

    def value(self, results: tuple[torch.Tensor, ...]) -> Any:
        """Returns what the operator returns: its only result, or a tuple."""
        return results if len(self.operator._schema.returns) > 1 else results[0]

    def fake_gradient(self, at: int) -> torch.Tensor:
        """Returns an empty tensor with the metadata of the gradient of the tensor with index `at` among the
        arguments."""
        tensor = tensors_in(self.args)[at]
        if at == 0 and self.arguments.get("batch_first"):
            return tensor.new_empty(tensor.transpose(0, 1).shape).transpose(0, 1)
        return tensor.new_empty(tensor.shape)

    def autocast(self, cached: bool = True) -> list[Autocast]:
        """Returns the autocasts that are active and apply to a device of its tensors."""
        kinds = dict.fromkeys(t.device.type for t in tensors_in(self.args))
        return [(k, torch.get_autocast_dtype(k), cached) for k in kinds if torch.is_autocast_enabled(k)]


def opaque_call(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> OpaqueCall | None:
    """Returns the call if `function` is an opaque operator that takes these arguments, else None.

    Within a transform of `torch.func` none is opaque: the transform's rules are for what it is made of.
    """
    rule = OPERATORS.get(_packet(function))
    if rule is None or any(map(is_wrapped, tensors_in([*args, *kwargs.values()]))):
        return None
    for overload in map(functools.partial(getattr, _packet(function)), _packet(function).overloads()):
        names = _argument_names(overload)
        given = _defaults(overload) | dict(zip(names, args, strict=False)) | dict(kwargs)
        if len(args) <= len(names) and given.keys() == set(names) and _lists_match(overload, given):
            return OpaqueCall(overload, tuple(_specialized(given[name]) for name in names), rule)
    return None


def _specialized(value: Any) -> Any:
    """Returns the present value of a symbolic number, which is an argument of the operator from then on."""
    return int(value) if isinstance(value, torch.SymInt) else value


def fake_implementation(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns what to run on fake tensors instead of `function`: `function` itself, unless it is an opaque operator."""
    if OPERATORS.get(_packet(function)) is None:
        return function

    def run(*args: Any, **kwargs: Any) -> Any:
        call = opaque_call(function, args, kwargs)
        if call is None:
            return function(*args, **kwargs)
        tensors = tensors_in(call.args)
        backward, grad = fake_gradients(tensors), torch.is_grad_enabled()
        return call.value(OpaqueFunction.apply(call.fake_results, backward, grad, *tensors))  # type: ignore[no-untyped-call]

    return run


class OpaqueFunction(torch.autograd.Function):
    """An opaque operator as an autograd function: `forward` makes its results, `backward` the gradients of its
    tensors."""

    @staticmethod
    def forward(ctx: Any, forward: Callable[..., Any], backward: Any, grad: bool, *tensors: torch.Tensor) -> Any:
        ctx.gradients = backward
        ctx.set_materialize_grads(False)
        return forward()

    @staticmethod
    def backward(ctx: Any, *tangents: torch.Tensor | None) -> Any:
        _ = ctx.saved_tensors  # nothing is saved here, but a second backward raises, as it does for what eager saves
        return None, None, None, *ctx.gradients(tangents)


def fake_gradients(tensors: Sequence[torch.Tensor]) -> Callable[[Any], list[torch.Tensor | None]]:
    """Returns the backward of an opaque operator on fake tensors, for these arguments."""
    return lambda tangents: [torch.empty_like(t) if t.requires_grad else None for t in tensors]


def draws_random_numbers(node: fx.Node) -> bool:
    """Returns whether the node calls an opaque operator that draws random numbers."""
    operator, args = node.target, node.args
    if operator in (with_tape, without_tape):
        operator, args = args[0], args[1]  # type: ignore[assignment]
        if not isinstance(operator, OpOverload):
            return bool(getattr(operator, "draws", False))
    call = opaque_call(operator, args, node.kwargs if operator is node.target else {})
    return call is not None and bool(call.arguments.get("train")) and call.arguments.get("dropout") != 0


def checks_values(node: fx.Node) -> bool:
    """Returns whether the node calls an opaque operator that raises an error for some values of its arguments."""
    operator = opaque_operator(node)
    return Fact.CHECKS_VALUES in facts(operator) if isinstance(operator, OpOverload) else operator is not None


def opaque_operator(node: Any) -> Any:
    """Returns the opaque operator that a node of a joint graph, or a call of a program, runs; None if it runs none."""
    return node.args[0] if node.target in (with_tape, without_tape) else None


def _packet(function: Any) -> Any:
    try:
        return _PACKETS.get(function) or getattr(function, "overloadpacket", function)
    except TypeError:  # it cannot be hashed
        return None


def bind_arguments(operator: OpOverload, args: Sequence[Any]) -> dict[str, Any]:
    """Returns the arguments of a call by name."""
    return dict(zip(_argument_names(operator), args, strict=True))


def _argument_names(operator: OpOverload) -> list[str]:
    return [a.name for a in operator._schema.arguments]


def _defaults(operator: OpOverload) -> dict[str, Any]:
    return {a.name: a.default_value for a in operator._schema.arguments if a.has_default_value()}


def _lists_match(operator: OpOverload, given: Mapping[str, Any]) -> bool:
    """Returns whether lists are given exactly where the operator takes lists of tensors."""
    lists = {a.name for a in operator._schema.arguments if str(a.type) == "List[Tensor]"}
    return all(isinstance(value, (list, tuple)) == (name in lists) for name, value in given.items())


# ---- recurrent layers ----------------------------------------------------------------------


def recurrent_results(call: OpaqueCall) -> tuple[torch.Tensor, ...]:
    """The output of a recurrent layer and its last hidden states, as empty tensors."""
    given = call.arguments
    x = given["data"] if "batch_sizes" in given else given["input"]
    states = list(given["hx"]) if isinstance(given["hx"], (list, tuple)) else [given["hx"]]
    kinds = _recurrent_dtypes(call, x, len(states))
    width = states[0].shape[2] * (2 if given["bidirectional"] else 1)
    if "batch_sizes" in given:
        output = x.new_empty((x.shape[0], width), dtype=kinds[0])
    elif given["batch_first"]:
        output = x.new_empty((x.shape[1], x.shape[0], width), dtype=kinds[0]).transpose(0, 1)
    else:
        output = x.new_empty((x.shape[0], x.shape[1], width), dtype=kinds[0])
    return (output, *(x.new_empty(s.shape, dtype=kind) for s, kind in zip(states, kinds[1:], strict=True)))


MAX_CELLS = 32
"""Steps of recurrent layers, each with two or three operations of matrices, that are traced as operations."""
MAX_STATE = 4096
"""Elements of a state up to which that is worth it: beyond, the products of matrices take most of the time."""


def is_short(call: OpaqueCall) -> bool:
    """Whether a recurrent layer is traced as its operations.

    On a CPU, eager PyTorch runs each step of a GRU or a plain RNN as some ten kernels; as operations they are fused,
    and a step takes a fourth of the time if it is small.  More steps take too long to compile.
    """
    if _packet(call.operator) not in (aten.gru, aten.rnn_tanh, aten.rnn_relu):
        return False
    given = call.arguments
    if "batch_sizes" in given or (given["train"] and given["dropout"]) or call.autocast():
        return False
    x, state = given["input"], given["hx"]
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return False
    layers, *of_state = state.shape
    sizes = [x.shape[1 if given["batch_first"] else 0], layers, *of_state]
    if not all(isinstance(each, int) for each in sizes):
        return False
    return bool(math.prod(sizes[:2]) <= MAX_CELLS and math.prod(of_state) <= MAX_STATE)


def _recurrent_dtypes(call: OpaqueCall, x: torch.Tensor, states: int) -> Sequence[torch.dtype]:
    """Returns the dtypes of the results.

    They are the input's except under autocast.  There they depend on the kernels: on a CPU a small layer of the same
    kind is run to find out; on a GPU all kernels cast.
    """
    casts = {device: dtype for device, dtype, _ in call.autocast()}
    if x.device.type not in casts or x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return [x.dtype] * (1 + states)
    if x.device.type != "cpu":
        return [casts[x.device.type]] * (1 + states)
    return _dtypes_of_small_layer(call, x.dtype)


def _dtypes_of_small_layer(call: OpaqueCall, dtype: torch.dtype) -> list[torch.dtype]:
    """Returns the dtypes of the results of a CPU layer of the same kind with one feature, under the active autocast."""
    from compiler_core.torch_private import disable_current_modes

    given = call.arguments
    per_layer = len(given["params"]) // (given["num_layers"] * (2 if given["bidirectional"] else 1))
    projects = per_layer in (3, 5)
    kind = str(call.operator._schema.name).removeprefix("aten::")
    layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(kind, torch.nn.RNN)
    more: dict[str, Any] = {"nonlinearity": kind.removeprefix("rnn_")} if layer is torch.nn.RNN else {}
    more |= {"proj_size": 1} if projects else {}
    with disable_current_modes(), torch.random.fork_rng(devices=[]):
        small = layer(
            1,
            2,
            given["num_layers"],
            bias=given["has_biases"],
            bidirectional=given["bidirectional"],
            dtype=dtype,
            **more,
        )
        x = torch.zeros(1, 1, 1, dtype=dtype)
        output, hidden = small(x)
    return [output.dtype, *(h.dtype for h in (hidden if isinstance(hidden, tuple) else [hidden]))]


# ---- operators that check values and raise -------------------------------------------------


def one_hot_results(call: OpaqueCall) -> tuple[torch.Tensor, ...]:
    """The result of ``one_hot``, which checks that each index is a class."""
    indices, count = call.args
    if count == -1:
        raise Unsupported("tensor value read", "one_hot without num_classes, which is the greatest index")
    if indices.dtype != torch.int64 or count < 1:
        raise Unsupported("exception", "one_hot with these arguments")
    return (indices.new_empty((*indices.shape, count)),)


def istft_results(call: OpaqueCall) -> tuple[torch.Tensor, ...]:
    """The result of ``istft``, which checks that the windows cover the signal."""
    return (istft_decomposition(*call.args),)


OPERATORS: dict[Any, ResultsRule] = {
    **dict.fromkeys((aten.lstm, aten.gru, aten.rnn_tanh, aten.rnn_relu), recurrent_results),
    aten.one_hot: one_hot_results,
    aten.istft: istft_results,
}
"""The opaque operators, and the function that makes the fake results of each."""
_PACKETS: dict[Any, Any] = {
    torch.lstm: aten.lstm,
    torch.gru: aten.gru,
    torch.rnn_tanh: aten.rnn_tanh,
    torch.rnn_relu: aten.rnn_relu,
    torch.nn.functional.one_hot: aten.one_hot,
    torch.istft: aten.istft,
}

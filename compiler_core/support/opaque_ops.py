"""Operators of PyTorch's that stay whole: one call, and its own autograd for the gradient.

A composite operator consists of others, and a trace records those: an LSTM over 200 steps becomes thousands of nodes,
while eager PyTorch may have one fused kernel for all of them.  Each operator in `OPERATORS` stays one node of the
joint graph instead.  Where a gradient is wanted the node's target is `with_tape`, which runs the operator under
PyTorch's autograd and returns its results and a `Tape`, which holds autograd's graph of that one call; the node of
the backward, `tape_gradients`, goes through it.  So both halves run the kernels that eager runs, on any device, with
the same random numbers and the same saved values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch.fx.node import has_side_effect

aten = torch.ops.aten
Autocast = tuple[str, torch.dtype, bool]
"""Device type and dtype of an autocast that is on, and whether casts are cached."""

_AUTOGRAD = ("AutogradFunctionality", "AutogradOther", "AutogradNestedTensor", "ADInplaceOrView")
AGAIN = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)


# ---- while a program runs ------------------------------------------------------------------


class Tape:
    """Autograd's graph of one call: `results` with a history that ends in `leaves`."""

    def __init__(self, results: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> None:
        self.results, self.leaves = results, leaves
        self.is_last = False
        """Whether no backward comes after the next one, which then frees what autograd saved."""


@has_side_effect
def without_tape(
    operator: Any, args: Sequence[Any], grad: bool, autocast: Sequence[Autocast]
) -> tuple[torch.Tensor, ...]:
    """The results of ``operator(*args)`` in this grad mode and with these autocasts."""
    with _as_captured(grad, autocast):
        return tuple(operator(*args))


@has_side_effect
def with_tape(operator: Any, args: Sequence[Any], wanted: Sequence[int], autocast: Sequence[Autocast]) -> Any:
    """The results of ``operator(*args)``, and a tape for the gradients of the `wanted` ones of the tensors in `args`.

    It may be called below autograd, which takes part in it nevertheless.  The results share their version counters
    with those on the tape, so that autograd notices a write to one of them.
    """
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in _AUTOGRAD:
        excluded = excluded.remove(getattr(torch._C.DispatchKey, key))
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded):
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
        with _as_captured(True, autocast):
            results = operator(*given)
        return (*(r.detach() for r in results), Tape(results, [leaves[at] for at in wanted]))


def tape_gradients(tape: Tape, tangents: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor, ...]:
    """One for each leaf of the tape, zeros where a result's tangent does not reach it."""
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
"""What the text of a program may name."""


def _as_captured(grad: bool, autocast: Sequence[Autocast]) -> ExitStack:
    """The state that the operator was captured in."""
    state = ExitStack()
    state.enter_context(torch.set_grad_enabled(grad))
    for device, dtype, cache in autocast:
        state.enter_context(torch.autocast(device, dtype, cache_enabled=cache))
    return state


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in nested arguments, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value for t in tensors_in(v)] if isinstance(value, (list, tuple)) else []


STANDALONE: tuple[Any, ...] = (Tape, *NAMES.values(), _as_captured, tensors_in)
"""All that these need but imports, for a program that runs on its own."""


# ---- while a program is compiled -----------------------------------------------------------


class TapeOf:
    """What stands for a tape while the graph is traced."""

    def __init__(self, call: WholeCall, wanted: Sequence[int], autocast: Sequence[Autocast]) -> None:
        self.call, self.wanted, self.autocast = call, wanted, autocast

    def __repr__(self) -> str:
        return f"tape of {self.call.operator}"


def is_tape(node: Any) -> bool:
    return isinstance(node, fx.Node) and isinstance(node.meta.get("val"), TapeOf)


Results = Callable[["WholeCall"], tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class WholeCall:
    """A call of an operator that stays whole."""

    operator: torch._ops.OpOverload
    args: tuple[Any, ...]
    results: Results

    @property
    def given(self) -> dict[str, Any]:
        """The arguments by name."""
        return named(self.operator, self.args)

    def with_tensors(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments, with these in place of the tensors in them."""
        rest = iter(tensors)

        def place(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [place(v) for v in value]
            return next(rest) if isinstance(value, torch.Tensor) else value

        return tuple(map(place, self.args))

    def empty_results(self) -> tuple[torch.Tensor, ...]:
        """Tensors like its results."""
        return self.results(self)

    def empty_gradient(self, at: int) -> torch.Tensor:
        """A tensor like the gradient of the tensor at this place among those in its arguments."""
        tensor = tensors_in(self.args)[at]
        if at == 0 and self.given.get("batch_first"):
            return tensor.new_empty(tensor.transpose(0, 1).shape).transpose(0, 1)
        return tensor.new_empty(tensor.shape)

    def autocast(self, cached: bool = True) -> list[Autocast]:
        """The autocasts that are on now and say something of its tensors."""
        kinds = dict.fromkeys(t.device.type for t in tensors_in(self.args))
        return [(k, torch.get_autocast_dtype(k), cached) for k in kinds if torch.is_autocast_enabled(k)]


def whole_call(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> WholeCall | None:
    """The call, if `function` is an operator that stays whole and takes these arguments; eager raises where none do."""
    rule = OPERATORS.get(_packet(function))
    if rule is None:
        return None
    for overload in map(functools.partial(getattr, _packet(function)), _packet(function).overloads()):
        names = _names(overload)
        given = dict(zip(names, args, strict=False)) | dict(kwargs)
        if len(args) <= len(names) and given.keys() == set(names) and _fits(overload, given):
            return WholeCall(overload, tuple(given[name] for name in names), rule)
    return None


def stand_in(function: Callable[..., Any]) -> Callable[..., Any]:
    """What to run in place of `function` on tensors without values: the same, but for operators that stay whole."""
    if OPERATORS.get(_packet(function)) is None:
        return function

    def run(*args: Any, **kwargs: Any) -> Any:
        call = whole_call(function, args, kwargs)
        if call is None:
            raise TypeError(f"{function} does not take these arguments")
        return Whole.apply(call.empty_results, None, torch.is_grad_enabled(), *tensors_in(call.args))  # type: ignore[no-untyped-call]

    return run


class Whole(torch.autograd.Function):
    """An operator for autograd: `forward` makes its results, `backward` the gradients of its tensors."""

    @staticmethod
    def forward(ctx: Any, forward: Callable[..., Any], backward: Any, grad: bool, *tensors: torch.Tensor) -> Any:
        ctx.gradients = backward
        ctx.set_materialize_grads(False)
        return forward()

    @staticmethod
    def backward(ctx: Any, *tangents: torch.Tensor | None) -> Any:
        return None, None, None, *ctx.gradients(tangents)


def draws(node: fx.Node) -> bool:
    """Whether the node calls an operator that stays whole and draws random numbers."""
    operator, args = node.target, node.args
    if operator in (with_tape, without_tape):
        operator, args = args[0], args[1]  # type: ignore[assignment]
    call = whole_call(operator, args, node.kwargs if operator is node.target else {})
    return call is not None and bool(call.given.get("train")) and call.given.get("dropout") != 0


def operator_of(node: Any) -> Any:
    """The operator that a call in a joint graph or in a program calls whole; None where it does not."""
    return node.args[0] if node.target in (with_tape, without_tape) else None


def _packet(function: Any) -> Any:
    try:
        return _PACKETS.get(function) or getattr(function, "overloadpacket", function)
    except TypeError:  # it cannot be hashed
        return None


def named(operator: torch._ops.OpOverload, args: Sequence[Any]) -> dict[str, Any]:
    """The arguments of a call by name."""
    return dict(zip(_names(operator), args, strict=True))


def _names(operator: torch._ops.OpOverload) -> list[str]:
    return [a.name for a in operator._schema.arguments]


def _fits(operator: torch._ops.OpOverload, given: Mapping[str, Any]) -> bool:
    """Whether lists are given where the operator takes lists, and nowhere else."""
    lists = {a.name for a in operator._schema.arguments if str(a.type) == "List[Tensor]"}
    return all(isinstance(value, (list, tuple)) == (name in lists) for name, value in given.items())


# ---- recurrent layers ----------------------------------------------------------------------


def recurrent(call: WholeCall) -> tuple[torch.Tensor, ...]:
    """The output of a recurrent layer and its last hidden states."""
    given = call.given
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


def _recurrent_dtypes(call: WholeCall, x: torch.Tensor, states: int) -> Sequence[torch.dtype]:
    """The types of the results: the input's but under autocast, where it depends on the kernels, so that a small layer
    of the same kind tells on a CPU; on a GPU all of them cast."""
    casts = {device: dtype for device, dtype, _ in call.autocast()}
    if x.device.type not in casts or x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return [x.dtype] * (1 + states)
    if x.device.type != "cpu":
        return [casts[x.device.type]] * (1 + states)
    return _small_layer(call, x.dtype)


def _small_layer(call: WholeCall, dtype: torch.dtype) -> list[torch.dtype]:
    """The types of what a layer of the same kind with one feature makes on the CPU, with the autocast that is on."""
    from torch.utils._python_dispatch import _disable_current_modes

    given = call.given
    per_layer = len(given["params"]) // (given["num_layers"] * (2 if given["bidirectional"] else 1))
    projects = per_layer in (3, 5)
    kind = str(call.operator._schema.name).removeprefix("aten::")
    layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(kind, torch.nn.RNN)
    more: dict[str, Any] = {"nonlinearity": kind.removeprefix("rnn_")} if layer is torch.nn.RNN else {}
    more |= {"proj_size": 1} if projects else {}
    with _disable_current_modes(), torch.random.fork_rng(devices=[]):
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


def example_batch_sizes(rows: int, steps: int, batch: int) -> list[int]:
    """The sizes of so many steps of a packed sequence, of `rows` in all, each at most the one before."""
    found: list[int] = []
    for left in range(steps, 0, -1):
        found.append(min(batch, rows - sum(found) - left + 1))
    return found


OPERATORS: dict[Any, Results] = dict.fromkeys((aten.lstm, aten.gru, aten.rnn_tanh, aten.rnn_relu), recurrent)
"""The operators that stay whole, and what tensors each makes."""
_PACKETS: dict[Any, Any] = {
    torch.lstm: aten.lstm,
    torch.gru: aten.gru,
    torch.rnn_tanh: aten.rnn_tanh,
    torch.rnn_relu: aten.rnn_relu,
}

"""Calls of the captured graph that a functional run replaces by others.

gradients              formulas that PyTorch chooses by looking at values, which fake tensors have not
opaque operators       one node each in the forward and the backward (`support/opaque_ops.py`)
custom operators       those that write to their arguments return the new values instead
collectives            the same, for those that an ``autograd.Function`` calls
fused optimizers       operations on single tensors (`fused_updates.py`)
counting in memory     ``fill_diagonal_``, since functional values may lie elsewhere
``x.random_(a, b)``    the overload that can be called in Python
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_slot, track_tensor_tree
from torch.overrides import TorchFunctionMode

from compiler_core.autograd.trace.fused_updates import FUSED_UPDATES
from compiler_core.autograd.trace.outputs import JointRefused, count_of_writes, unwrap
from compiler_core.support import opaque_ops
from compiler_core.support.node_facts import FUNCTIONAL, custom_operator
from compiler_core.support.subgraphs import Subgraphs
from compiler_core.support.tensors import compute_gradients, tensors_in
from compiler_core.support.transform_levels import is_wrapped
from compiler_core.torch_private import (
    FunctionalTensor,
    disable_current_modes,
    execution_engine,
    functional_collectives,
)

# ---- gradients whose formula depends on values ---------------------------------------------
# On fake tensors PyTorch takes another formula than on real ones.  These functions compute the gradients as it does for
# real tensors.


def prod(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """``x.prod(dim, keepdim, dtype=...)``.  For its gradient PyTorch checks whether there are zeros."""
    given = dict(zip(("dim", "keepdim"), args, strict=False)) | kwargs
    known = given.keys() <= {"dim", "keepdim", "dtype"} and isinstance(given.get("dim", 0), int)
    differentiated = x.requires_grad and torch.is_grad_enabled() and x.is_floating_point()
    if not known or not differentiated or not x.dim() or 0 in x.shape or is_wrapped(x):
        return torch.prod(x, *args, **kwargs)
    return Prod.apply(x, given)  # type: ignore[no-untyped-call]


class Prod(torch.autograd.Function):
    """The product of a tensor's elements, or of the elements along a dimension."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, given: dict[str, Any]) -> torch.Tensor:
        result = torch.prod(x, **given)
        ctx.save_for_backward(x, result)
        ctx.given = given
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Divides the product by each element if none is zero; otherwise multiplies the other elements, or returns
        zeros if two elements of the whole product are zero."""
        x, result = ctx.saved_tensors
        wide = x.to(gradient.dtype)
        zeros = (wide == 0).sum()
        if "dim" not in ctx.given:
            others = torch.where(zeros > 1, 0, gradient * _product_of_others(wide.flatten(), 0).view(x.shape))
        else:
            dim = ctx.given["dim"]
            if not ctx.given.get("keepdim"):
                gradient, result = gradient.unsqueeze(dim), result.unsqueeze(dim)
            others = gradient * _product_of_others(wide, dim)
        return torch.where(zeros == 0, gradient * (result / wide), others).to(x.dtype), None


def _product_of_others(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Returns, for each element, the product of the elements before and after it."""
    count, one = x.shape[dim], torch.ones_like(x.narrow(dim, 0, 1))
    before = torch.cat([one, x.narrow(dim, 0, count - 1)], dim).cumprod(dim)
    after = torch.cat([one, x.narrow(dim, 1, count - 1).flip(dim)], dim).cumprod(dim).flip(dim)
    return before * after


class PickedValue(torch.autograd.Function):
    """A value that ``max()``, ``min()``, ``median()`` or ``nanmedian()`` picks from all elements of a CPU tensor."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, pick: Callable[..., torch.Tensor]) -> torch.Tensor:
        result = pick(x)
        ctx.save_for_backward(x, result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Distributes the gradient evenly over the elements that are equal to the value, or NaN as it is.

        PyTorch's formula for GPUs and fake tensors finds no element for NaN, and multiplies all others by zero.
        """
        x, result = ctx.saved_tensors
        picked = torch.where(result.isnan(), x.isnan(), x == result)
        return torch.where(picked, gradient / picked.sum(), 0), None


def _picking(pick: Callable[..., Any]) -> Callable[..., Any]:
    def picked(*args: Any, **kwargs: Any) -> Any:
        x = args[0] if len(args) == 1 and not kwargs else None
        if x is None or x.device.type != "cpu" or not (x.requires_grad and torch.is_grad_enabled()) or is_wrapped(x):
            return pick(*args, **kwargs)
        return PickedValue.apply(x, pick)  # type: ignore[no-untyped-call]

    return picked


_PICKING = {name: _picking(getattr(torch, name)) for name in ("max", "min", "median", "nanmedian")}


def index_fill(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``x.index_fill(dim, index, value)``.  For the gradient of `value` PyTorch looks for the different indices, whose
    number data decide."""
    given = _with_differentiated_value(x, args, kwargs)
    if given is None:
        return torch.index_fill(x, *args, **kwargs)
    filled: torch.Tensor = IndexFill.apply(x, *given)  # type: ignore[no-untyped-call]
    return filled


def index_fill_(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``x.index_fill_(dim, index, value)``."""
    given = _with_differentiated_value(x, args, kwargs)
    if given is None:
        return x.index_fill_(*args, **kwargs)
    return x.copy_(IndexFill.apply(x, *given))  # type: ignore[no-untyped-call]


def _with_differentiated_value(x: torch.Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any] | None:
    """Returns the dimension, the index and the value; None if the value gets no gradient."""
    given = dict(zip(("dim", "index", "value"), args, strict=False)) | kwargs
    if given.keys() != {"dim", "index", "value"} or not isinstance(given["dim"], int) or not x.dim():
        return None
    value = given["value"]
    is_differentiated = isinstance(value, torch.Tensor) and value.requires_grad and torch.is_grad_enabled()
    if not is_differentiated or value.dim() or is_wrapped(x) or is_wrapped(value):
        return None
    return [given["dim"], given["index"], value]


class IndexFill(torch.autograd.Function):
    """A tensor in which a value replaces the elements at some indices of a dimension."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(index)
        ctx.dim, ctx.value = dim, value.new_empty(0)
        return torch.index_fill(x, dim, index, value)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, torch.Tensor]:
        """The gradient of the value is the sum over the elements that it replaced, each counted once."""
        (index,) = ctx.saved_tensors
        rest = gradient.index_fill(ctx.dim, index, 0)
        shape = [1] * gradient.dim()
        shape[ctx.dim] = gradient.shape[ctx.dim]
        is_filled = index.new_zeros(gradient.shape[ctx.dim], dtype=torch.bool).index_fill(0, index, True).view(shape)
        return rest, None, None, torch.where(is_filled, gradient, 0).sum().to(ctx.value)


# ---- opaque operators ----------------------------------------------------------------------


def trace_opaque_call(call: opaque_ops.OpaqueCall, tracer: Any, casts_are_cached: bool) -> Any:
    """Returns what `call` returns, whose tensors are functional, and adds the node that computes them.

    Their autograd history adds the node of the backward.  `casts_are_cached`: whether autocast caches casts when the
    program runs.
    """
    tensors = tensors_in(call.args)
    grad = torch.is_grad_enabled()
    wanted = tuple(i for i, t in enumerate(tensors) if grad and t.requires_grad)
    autocast = call.autocast(casts_are_cached)
    if isinstance(call.operator, Subgraphs):
        plain = [unwrap(a) if isinstance(a, torch.Tensor) else a for a in call.args]
        with disable_current_modes():
            call.operator.set_examples(plain, wanted, grad, autocast)
    nodes = _OpaqueNodes(call, wanted, grad, autocast, tracer)
    return call.value(opaque_ops.OpaqueFunction.apply(nodes.forward, nodes.backward, grad, *tensors))  # type: ignore[no-untyped-call]


class _OpaqueNodes:
    """The nodes of one call in the forward and the backward."""

    def __init__(
        self,
        call: opaque_ops.OpaqueCall,
        wanted: Sequence[int],
        grad: bool,
        autocast: list[opaque_ops.Autocast],
        tracer: Any,
    ) -> None:
        self._wanted, self._grad, self._autocast, self._tracer = wanted, grad, autocast, tracer
        self._given = tensors_in(call.args)
        self._tensors = [unwrap(t) for t in self._given]
        self._call = replace(call, args=call.with_tensors(self._tensors))
        self._tape: Any = None
        self._writes: list[tuple[torch.Tensor, int]] = []
        """The tensors that eager may save, and how often each had been written to when the call ended."""

    def forward(self) -> tuple[torch.Tensor, ...]:
        call = self._call
        args = tuple(map(self._number, call.with_tensors([self._proxy(t) for t in self._tensors])))
        with disable_current_modes():
            fakes = call.fake_results()
        if not self._wanted:
            node = self._node(opaque_ops.without_tape, (call.operator, args, self._grad, self._autocast), call.name)
            return self._track(fakes, node)
        node = self._node(opaque_ops.with_tape, (call.operator, args, self._wanted, self._autocast), call.name)
        results = self._track(fakes, node)
        self._tape = self._node(operator.getitem, (node, len(fakes)), f"{call.name}_tape")
        self._tape.node.meta["val"] = opaque_ops.FakeTape(call, self._wanted, self._autocast)
        node.node.meta["val"] = (*node.node.meta["val"], self._tape.node.meta["val"])
        saved = results[:1] if call.saves_output else ()
        self._writes = [(t, count_of_writes(t)) for t in (*self._given, *saved)]
        return results

    def backward(self, tangents: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Returns a gradient, or None, for each tensor of the call.

        Raises:
            RuntimeError: the graph writes to such a tensor after the call.  Eager raises an error then, which the tape
                cannot do, because the write became a new value.
        """
        if any(count_of_writes(t) > count for t, count in self._writes):
            raise RuntimeError(f"a tensor of {self._call.operator} is written to after the call")
        given = [None if t is None else self._proxy(unwrap(t)) for t in tangents]
        node = self._node(opaque_ops.tape_gradients, (self._tape, given), f"{self._call.name}_backward")
        with disable_current_modes():
            fakes = tuple(self._call.fake_gradient(at) for at in self._wanted)
        found = dict(zip(self._wanted, self._track(fakes, node), strict=True))
        return [found.get(at) for at in range(len(self._tensors))]

    def _node(self, target: Any, args: tuple[Any, ...], name: str) -> Any:
        return self._tracer.create_proxy("call_function", target, args, {}, name=name)

    def _track(self, fakes: tuple[torch.Tensor, ...], node: Any) -> tuple[torch.Tensor, ...]:
        track_tensor_tree(fakes, node, constant=None, tracer=self._tracer)
        return tuple(FunctionalTensor.to_functional(t) for t in fakes)

    def _number(self, value: Any) -> Any:
        """Returns the proxy of a symbolic number, and other values as they are."""
        if not isinstance(value, (torch.SymInt, torch.SymFloat)):
            return value
        slot: Any = get_proxy_slot(value, self._tracer)
        return slot.force()

    def _proxy(self, tensor: torch.Tensor) -> Any:
        slot: Any = get_proxy_slot(tensor, self._tracer)
        return slot.proxy


# ---- custom operators that write to their arguments ----------------------------------------
# For each, an operator is registered that copies the arguments that are written to, calls the custom operator on the
# copies, and returns them after its results.  The joint graph calls that one, and the new values are written in order
# afterwards.  Autograd does not see the writes, as in eager: such operators have no formula for gradients.


library: Any = torch.library
_LIBRARY = library.Library(FUNCTIONAL, "DEF")
_ANNOTATION = re.compile(r"Tensor\([^)]*\)")


def mutating_operator(target: Any) -> Any:
    """Returns the operator of `target` if it is a custom operator that writes to arguments, else None."""
    operator = custom_operator(target)
    return operator if operator is not None and operator._schema.is_mutable else None


def call_functionally(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Does what ``operator(*args, **kwargs)`` does: calls its functional form, then writes the new values."""
    differentiated = torch.is_grad_enabled() and any(t.requires_grad for t in tensors_in([*args, *kwargs.values()]))
    if differentiated and any(r.alias_info is None for r in operator._schema.returns):
        raise JointRefused(f"{operator} writes to an argument, and its results require gradients")
    given = _bind_arguments(operator, args, kwargs)
    written = _written_arguments(operator)
    with torch.no_grad():
        functional = functional_operator(operator)
        returned = functional(**given)
        returned = [returned] if len(functional._schema.returns) == 1 else list(returned)
        count = len(returned) - len(written)
        results, values = returned[:count], returned[count:]
        for name, value in zip(written, values, strict=True):
            _write(given[name], value)
    returns = operator._schema.returns
    found = [given[_aliased_argument(operator, r)] if r.alias_info else results.pop(0) for r in returns]
    if not found:
        return None
    return found[0] if len(found) == 1 else tuple(found)


def _write(target: Any, value: Any) -> None:
    if isinstance(target, torch.Tensor):
        target.copy_(value)
    elif isinstance(target, (list, tuple)):
        for each, new in zip(target, value, strict=True):
            each.copy_(new)


def _bind_arguments(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    arguments = operator._schema.arguments
    given = {a.name: value for a, value in zip(arguments, args, strict=False)}
    return {a.name: a.default_value for a in arguments if a.has_default_value()} | given | kwargs


def _written_arguments(operator: Any) -> list[str]:
    return [a.name for a in operator._schema.arguments if a.alias_info is not None and a.alias_info.is_write]


def _aliased_argument(operator: Any, result: Any) -> str:
    """Returns the name of the argument that this result is."""
    sets = result.alias_info.before_set
    names = (a.name for a in operator._schema.arguments if a.alias_info and a.alias_info.before_set == sets)
    return str(next(names))


@functools.cache
def functional_operator(operator: Any) -> Any:
    """Returns the operator that returns what `operator` returns, followed by the arguments that it writes to."""
    schema, written = operator._schema, _written_arguments(operator)
    arguments = _ANNOTATION.sub("Tensor", str(schema)).partition("(")[2].rpartition(" -> ")[0].removesuffix(")")
    types = {a.name: str(a.type) for a in schema.arguments}
    returned = [_schema_type(str(r.type)) for r in schema.returns if r.alias_info is None] + [
        _schema_type(types[name]) for name in written
    ]
    name = f"{schema.name.replace('::', '_')}_{schema.overload_name}".rstrip("_")
    _LIBRARY.define(f"{name}({arguments}) -> ({', '.join(returned)})")

    def run(*args: Any, **kwargs: Any) -> Any:
        given = _bind_arguments(operator, args, kwargs)
        given |= {name: _copy(given[name]) for name in written}
        result = operator(**given)
        results = result if isinstance(result, tuple) else [result] * len(schema.returns)
        new = [each for each, r in zip(results, schema.returns, strict=True) if r.alias_info is None]
        everything = (*new, *(given[name] for name in written))
        return everything[0] if len(everything) == 1 else everything

    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    library.register_fake(f"{FUNCTIONAL}::{name}", run, lib=_LIBRARY)
    return getattr(getattr(torch.ops, FUNCTIONAL), name).default


def _schema_type(annotated: str) -> str:
    """Returns a type as schemas have it: ``Tensor[]`` for ``List[Tensor]``."""
    for name, sign in (("Optional", "?"), ("List", "[]")):
        if annotated.startswith(f"{name}["):
            return _schema_type(annotated[len(name) + 1 : -1]) + sign
    return annotated


def _copy(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [each.clone() for each in value]
    return None if value is None else value.clone()


# ---- collectives ---------------------------------------------------------------------------

_run_backward: Any = execution_engine.run_backward


class FunctionalCollectives(TorchFunctionMode):
    """A mode in which functions of ``torch.distributed`` call operators that return their result.

    An ``autograd.Function`` may call such functions while its forward and backward are traced.  Those that write to
    their arguments are replaced by operators that return the result, and a copy, as capture does it outside of such a
    Function (`capture/rules/torch/collectives.py`, which has checked the calls).
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        functional: Any = functional_collectives
        given = dict(kwargs or {})
        if function is torch.autograd.grad:  # PyTorch turns the mode off while it handles a function
            outputs, inputs, tangents = map(tuple, (*args, given["grad_outputs"]))
            with self:
                return _run_backward(outputs, tangents, False, False, inputs, True, accumulate_grad=False)
        replacement = functional.traceable_collective_remaps.get(function)
        if replacement is None:
            return function(*args, **given)
        if given.get("op") in functional.REDUCE_OP_TO_STR:
            given["op"] = functional.REDUCE_OP_TO_STR[given["op"]]
        replacement(*args, **given)
        return None


# ---- other calls ---------------------------------------------------------------------------


def fill_diagonal_(x: torch.Tensor, fill_value: Any, wrap: bool = False) -> torch.Tensor:
    """``x.fill_diagonal_(fill_value, wrap)`` by diagonals.  PyTorch counts in the memory of `x`, where the functional
    value of a tensor that was written to may lie elsewhere."""
    if x.dim() < 2 or (x.dim() > 2 and len(set(x.shape)) > 1):
        return x.fill_diagonal_(fill_value, wrap)  # raises
    wraps = wrap and x.dim() == 2
    if wraps and not x.is_contiguous():
        raise JointRefused("fill_diagonal_ with wrap=True goes on in the memory of a tensor that is not contiguous")
    for start in range(0, x.shape[0], x.shape[1] + 1) if wraps else (0,):
        diagonal = x[start:].diagonal()
        for _ in range(x.dim() - 2):
            diagonal = diagonal.diagonal(0, 0, -1)
        diagonal.fill_(fill_value)
    return x


RANDOM_BETWEEN: Any = getattr(torch.ops.aten.random, "from")
"""The operator of ``x.random_(a, b)``.  Its name, ``from``, is a Python keyword, so no generated code can call it."""


def random_between(
    x: torch.Tensor, low: int, high: int | None, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    """A decomposition of aten.random.from into the overload that starts at zero."""
    largest = _largest_exact_integer(x.dtype)
    if high is None or high - low > largest or max(abs(low), abs(high)) > largest:
        raise JointRefused(f"random_({low}, {high}) has a range for which Python cannot call the functional operator")
    drawn: torch.Tensor = torch.ops.aten.random.to(x, high - low, generator=generator)
    return drawn + low if low else drawn


def _largest_exact_integer(dtype: torch.dtype) -> int:
    """Returns the greatest n such that `dtype` represents all integers from 0 to n."""
    if dtype.is_floating_point:
        return int(2 / torch.finfo(dtype).eps)
    return 1 if dtype == torch.bool else torch.iinfo(dtype).max


FUNCTIONS: dict[Any, Callable[..., Any]] = {torch.prod: prod, torch.autograd.grad: compute_gradients}
FUNCTIONS[torch.index_fill] = index_fill
FUNCTIONS |= {getattr(torch, n): f for n, f in _PICKING.items()} | FUSED_UPDATES
METHODS: dict[str, Callable[..., Any]] = {"prod": prod, "fill_diagonal_": fill_diagonal_} | _PICKING
METHODS |= {"index_fill": index_fill, "index_fill_": index_fill_}

"""Questions about a node of an FX graph: whether it draws random numbers, communicates with other ranks, writes to its
arguments, may raise an error, or returns a view of one."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx as fx

from compiler_core.support import opaque_ops
from compiler_core.support.operators import Fact, facts
from compiler_core.support.tensors import tensors_in
from compiler_core.torch_private import DispatchKey, OpOverload, OpOverloadPacket

aten = torch.ops.aten
library: Any = torch.library


class Checkpoint(NamedTuple):
    """The mark ``meta["checkpoint"]`` of the nodes of a ``torch.utils.checkpoint``."""

    number: int
    kept: tuple[str, ...] = ()
    """The operators whose results a selective checkpoint keeps for the backward."""


def is_computed_again(node: fx.Node) -> bool:
    """Returns whether the backward computes this value of a checkpoint again."""
    mark: Checkpoint | None = node.meta.get("checkpoint")
    maker = node.args[0] if node.target is operator.getitem else node
    return mark is not None and not (isinstance(maker, fx.Node) and str(maker.target) in mark.kept)


def squeeze_reduced_dims(
    norm: torch.Tensor, order: Any = 2, dim: Sequence[int] | None = None, keepdim: bool = False, **_: Any
) -> torch.Tensor:
    """Removes the dimensions that a norm reduces: PyTorch 2.11 keeps those of one element even with
    ``keepdim=False``."""
    return norm if keepdim else norm.squeeze(tuple(dim or range(norm.dim())))


def is_random(node: fx.Node) -> bool:
    """Returns whether the operator draws random numbers.  Attention and rrelu have the tag ``nondeterministic_seeded``
    but draw only with dropout, and in training."""
    target = node.target
    if opaque_ops.opaque_operator(node) is not None:
        return opaque_ops.draws_random_numbers(node)
    if not isinstance(target, OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    arguments = target._schema.arguments
    given = {a.name: a.default_value for a in arguments} | node.kwargs
    given |= {a.name: value for a, value in zip(arguments, node.args, strict=False)}
    return given.get("dropout_p") != 0.0 and given.get("training") is not False


def reads_any_place(node: fx.Node) -> bool:
    """Returns whether a captured node or an operator may read a tensor's storage outside of the tensor."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name.startswith("as_strided")


def waits_for_data(node: fx.Node) -> bool:
    """Returns whether a captured node needs the values of what others have computed: data decide a size of its result,
    or the number that it returns."""
    return node.meta.get("waits") is not None


COLLECTIVES = ("_c10d_functional", "_c10d_functional_autograd")
"""The namespaces of collectives that return their result, and of `wait_tensor`, which waits for one."""


GROUPS = "process_groups"
"""The key in a captured node's ``meta`` of the names of the groups whose collectives an ``autograd.Function`` calls."""


def is_collective(node: fx.Node) -> bool:
    """Returns whether the node communicates with other ranks, or waits for that.

    All ranks have to call the same collectives in the same order, or they wait for one another for ever.
    """
    return isinstance(node.target, OpOverload) and node.target.namespace in COLLECTIVES


def communicates(graph: fx.Graph) -> bool:
    """Returns whether a node of the graph is a collective, or a Function that calls one (`GROUPS`)."""
    return any(is_collective(node) or GROUPS in node.meta for node in graph.nodes)


FUNCTIONAL = "cutaway_functional"
"""The namespace of the functional forms of custom operators that write to their arguments."""


def custom_operator(target: Any) -> Any:
    """Returns the operator that a node calls if it is a custom one, else None.

    Operators that are composed of PyTorch's (CompositeImplicitAutograd) do not count: tracing sees those instead."""
    if isinstance(target, library.CustomOpDef):
        target = target._opoverload
    if isinstance(target, OpOverloadPacket):
        packet: Any = target
        overloads = packet.overloads()
        target = getattr(packet, overloads[0]) if len(overloads) == 1 else packet
    if not isinstance(target, OpOverload):
        return None
    return target if _is_custom(target) else None


@functools.cache
def _is_custom(operator: OpOverload) -> bool:
    if operator.namespace in ("aten", "prims", "prim", *COLLECTIVES):
        return False
    return not operator.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd)


def has_effects(node: fx.Node) -> bool:
    """Returns whether the node may do more than compute its results: other ranks wait for a collective, and a custom
    operator may print, count or wait.

    It runs once, in the order of the program, even if nothing uses its results.
    """
    return is_collective(node) or custom_operator(node.target) is not None


def group_names(nodes: Iterable[fx.Node]) -> tuple[str, ...]:
    """Returns the names of the groups whose collectives these nodes call."""
    found: dict[str, None] = {}
    for node in nodes:
        found |= dict.fromkeys(node.meta.get(GROUPS, ()))
        if is_collective(node):
            names = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]
            name = (dict(zip(names, node.args, strict=False)) | node.kwargs).get("group_name")
            found |= {name: None} if isinstance(name, str) else {}
    return tuple(found)


def is_wait(node: fx.Node) -> bool:
    """Returns whether the node waits for the collective that makes its argument, and returns the argument itself."""
    return is_collective(node) and getattr(node.target, "_opname", "") == "wait_tensor"


def must_run(node: fx.Node) -> bool:
    """Returns whether the node runs even if nothing uses its result: it draws random numbers, has effects, or may
    raise."""
    return is_random(node) or has_effects(node) or opaque_ops.checks_values(node) or runs_to_raise(node)


def runs_to_raise(node: fx.Node) -> bool:
    """Returns whether `simplify.keep_errors` has found that only the operator's error, if any, is wanted."""
    return bool(node.meta.get("runs_to_raise"))


def may_raise(node: fx.Node) -> bool:
    """Returns whether the operator raises an error for some values of its arguments, or for their dtypes."""
    known = facts(node.target)
    if Fact.NEEDS_ONE_DTYPE in known:
        return len({n.meta["val"].dtype for n in node.all_input_nodes if isinstance(n.meta["val"], torch.Tensor)}) > 1
    if Fact.DIVIDES in known:
        return _divides_integers(node)
    if Fact.CHECKS_ON_REQUEST in known:
        return node.kwargs.get("check_errors") is True or True in node.args
    return Fact.CHECKS_VALUES in known or isinstance(node.kwargs.get("alpha"), bool)


def _divides_integers(node: fx.Node) -> bool:
    """Returns whether a CPU kernel divides integers, and the divisor may be zero."""
    result, divisor = node.meta["val"], node.args[1]
    is_integer = not result.dtype.is_floating_point and not result.dtype.is_complex
    return bool(is_integer and result.device.type == "cpu" and (isinstance(divisor, fx.Node) or not divisor))


def writes_statistics(func: Any, given: Mapping[str, Any]) -> bool:
    """Returns whether a call of a batch norm (`Fact.WRITES_STATISTICS`) writes; `given` are its arguments by name."""
    return given.get("training", True) and given["running_mean"] is not None and given["running_var"] is not None


def written_tensors(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Returns the tensors that a call of an operator writes to."""
    names, written = _argument_names(func)
    if not written:
        return []
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    if Fact.WRITES_STATISTICS in facts(func) and not writes_statistics(func, given):
        return []
    return [t for name in written for t in tensors_in(given.get(name))]


@functools.cache
def _argument_names(func: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the names of an operator's arguments, and of those that it may write to."""
    arguments = func._schema.arguments if isinstance(func, OpOverload) else ()
    written = tuple(a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write)
    if Fact.WRITES_STATISTICS in facts(func):
        written = ("running_mean", "running_var")
    return tuple(a.name for a in arguments), written


def is_pure(node: fx.Node) -> bool:
    """Returns whether the operator only computes its result from its arguments."""
    target = node.target
    return (
        isinstance(target, OpOverload)
        and not target._schema.is_mutable
        and not is_random(node)
        and not has_effects(node)
    )


def is_view(node: fx.Node) -> bool:
    """Returns whether the operator returns a view of its first argument; also true for an element of a tuple of
    views."""
    target = node.target
    if target is aten._unsafe_view.default:
        return True  # its schema declares no alias, but the result shares memory, which matters here
    if isinstance(target, OpOverload):
        return any(r.alias_info is not None and not r.alias_info.is_write for r in target._schema.returns)
    return getattr(target, "__name__", "") == "getitem" and isinstance(node.args[0], fx.Node) and is_view(node.args[0])


def view_base(node: fx.Node) -> fx.Node:
    """Returns the node that owns the memory that `node` is a view of; `node` itself if it is not a view."""
    while is_view(node):
        node = view_source(node)
    return node


def view_source(view: fx.Node) -> fx.Node:
    """Returns the node that a view operation is directly a view of."""
    source = view.args[0]
    assert isinstance(source, fx.Node)
    return source

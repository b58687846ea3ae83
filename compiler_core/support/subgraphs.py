"""Operators that call functions: ``cond``, ``while_loop``, ``map`` and ``scan``, whose functions are graphs.

A captured graph calls PyTorch's higher-order operator, and has the functions as submodules.  In a joint graph the call
is one opaque operator (`support/opaque_ops.py`), a `Subgraphs`, which runs the functions that are wanted.  If gradients
are required, autograd records what ran, and the backward runs that backward.  Each function is compiled by itself, as
a forward and a backward (`pipeline/graph.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from compiler_core.records import Compile
from compiler_core.support import fx_graphs
from compiler_core.support.fx_symbols import hint
from compiler_core.support.opaque_ops import Autocast, OpaqueCall, opaque_operator
from compiler_core.support.tensors import is_dense, new_like, tensors_in
from compiler_core.torch_private import FakeTensorMode, HigherOrderOperator, detect_fake_mode

Function = Callable[..., Sequence[Any]]
"""A function of flat arguments that returns the flat list of its results."""


# ---- what they compute ---------------------------------------------------------------------


def _cond(functions: Sequence[Function], counts: Sequence[int], args: Sequence[Any]) -> Sequence[Any]:
    pred, *operands = args
    return functions[0 if pred else 1](*operands)


def _while_loop(functions: Sequence[Function], counts: Sequence[int], args: Sequence[Any]) -> Sequence[Any]:
    (carried, extra), has_run = _split(args, counts), False
    while functions[0](*carried, *extra)[0]:
        carried, has_run = functions[1](*carried, *extra), True
    return carried if has_run else [each.clone() for each in carried]


def _map(functions: Sequence[Function], counts: Sequence[int], args: Sequence[Any]) -> Sequence[Any]:
    xs, extra = _split(args, counts)
    rows = [functions[0](*row, *extra) for row in zip(*(x.unbind() for x in xs), strict=True)]
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def _scan(functions: Sequence[Function], counts: Sequence[int], args: Sequence[Any]) -> Sequence[Any]:
    carried, xs, extra = _split(args, counts)
    rows = []
    for row in zip(*(x.unbind() for x in xs), strict=True):
        results = functions[0](*carried, *row, *extra)
        carried = results[: len(carried)]
        rows.append(results[len(carried) :])
    return [*carried, *(torch.stack(column) for column in zip(*rows, strict=True))]


def _split(args: Sequence[Any], counts: Sequence[int]) -> Iterator[Sequence[Any]]:
    """Returns the first ``counts[0]`` arguments, the next ``counts[1]``, and so on, and then the rest."""
    for count in counts:
        yield args[:count]
        args = args[count:]
    yield args


_RUN = {"cond": _cond, "while_loop": _while_loop, "map": _map, "scan": _scan}
OPERATORS = {
    "cond": torch.ops.higher_order.cond,
    "while_loop": torch.ops.higher_order.while_loop,
    "map": torch.ops.higher_order.map_impl,
    "scan": torch.ops.higher_order.scan,
}
"""The operators of a captured graph."""
_KINDS = {operator: kind for kind, operator in OPERATORS.items()}


class Subgraphs(HigherOrderOperator):
    """One call of a higher-order operator, as a function of its flat arguments.

    cond         the predicate, and the operands of both branches
    while_loop   what is carried, and what is not, for the condition and the body
    map          what is mapped, and what is the same for each row
    scan         what is carried, what is scanned, and what is the same for each row
    """

    def __init__(self, kind: str, name: str, graphs: Sequence[fx.GraphModule], counts: Sequence[int]) -> None:
        # PyTorch's table of operators, which the base class would fill, holds only those with a fixed meaning
        self.kind, self.graphs, self.counts = kind, tuple(map(_returning_tuple, graphs)), tuple(counts)
        self.__name__, self.__module__ = name, ""
        self.__qualname__ = f"{kind}({', '.join(type(graph).__name__ for graph in graphs)})"
        self.functions: list[Function] = [graph.forward for graph in self.graphs]
        """What runs: the graphs, until they are compiled."""
        self.examples: tuple[Any, ...] = ()
        """Fake tensors and symbolic numbers like the flat arguments; tensors that get gradients require them."""
        self.autocast: Sequence[Autocast] = ()
        self.grad = False
        """The grad mode that it was captured in."""

    def __repr__(self) -> str:
        return str(self.__name__)

    __str__ = __repr__

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        return tuple(_RUN[self.kind](self.functions, self.counts, args))

    @property
    def draws(self) -> bool:
        """Whether its graphs may draw random numbers."""
        return any(map(draws_random_numbers, self.graphs))

    def set_examples(
        self, args: Sequence[Any], wanted: Sequence[int], grad: bool, autocast: Sequence[Autocast]
    ) -> None:
        """Sets what the graphs are compiled for; `wanted` are the tensors that get gradients."""
        mode: Any = detect_fake_mode(list(args))
        tensors = iter(range(len(tensors_in(args))))
        self.examples = tuple(
            _example(a, next(tensors) in wanted, mode) if isinstance(a, torch.Tensor) else a for a in args
        )
        self.grad, self.autocast = grad, autocast

    def examples_of_graph(self, carried_grad: bool) -> list[Any]:
        """Returns examples of the arguments of each graph."""
        if self.kind == "cond":
            return list(self.examples[1:])
        if self.kind == "while_loop":
            return list(self.examples)
        *carried, xs, extra = _split(self.examples, self.counts)
        mode: Any = detect_fake_mode(list(self.examples))
        rows = [_example(_row(x, mode), x.requires_grad, mode) for x in xs]
        first = [_example(c, carried_grad and c.is_floating_point(), mode) for c in (carried[0] if carried else ())]
        return [*first, *rows, *extra]

    def compile(self, compile_: Callable[[str, fx.GraphModule, list[Any]], Function]) -> None:
        """Compiles each graph with `compile_`, which is given its name, the graph and examples of its inputs."""
        carried_grad = any(isinstance(e, torch.Tensor) and e.requires_grad for e in self.examples)
        examples = self.examples_of_graph(carried_grad)
        layouts = [_order(e) if isinstance(e, torch.Tensor) else None for e in examples]
        self.functions = [
            _with_layouts(compile_(type(graph).__name__, graph, examples), layouts) for graph in self.graphs
        ]


def _returning_tuple(gm: fx.GraphModule) -> fx.GraphModule:
    """Returns a graph that returns a tuple: the condition of ``while_loop`` returns a tensor."""
    output = gm.graph.output_node()
    if isinstance(output.args[0], (tuple, list)):
        return gm
    gm = fx_graphs.copy_graph(gm, type(gm).__name__)
    output = gm.graph.output_node()
    output.args = ((output.args[0],),)
    gm.recompile()
    return gm


def _row(x: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    with mode:
        return torch.empty_strided(x.shape[1:], x.stride()[1:], dtype=x.dtype, device=x.device)


def _example(tensor: torch.Tensor, requires_grad: bool, mode: FakeTensorMode) -> torch.Tensor:
    """Returns a fake tensor like `tensor`, without gaps in memory."""
    with mode:
        stride = tensor.stride() if is_dense(tensor) else torch.empty(tensor.shape, device="meta").stride()
        example = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device)
        return example.requires_grad_(requires_grad)


def _order(tensor: torch.Tensor) -> list[int]:
    """Returns the dimensions in the order of memory."""
    return sorted(range(tensor.dim()), key=lambda d: -hint(tensor.stride(d)))


def _with_layouts(function: Function, orders: Sequence[list[int] | None]) -> Function:
    """Returns `function` for tensors of any strides: kernels are compiled for those of the examples."""

    def laid_out(value: Any, order: list[int] | None) -> Any:
        if order is None or (dense := value.permute(order)).is_contiguous():
            return value
        return dense.contiguous().permute([order.index(d) for d in range(len(order))])

    def run(*args: Any) -> Sequence[Any]:
        return function(*map(laid_out, args, orders))

    return run


# ---- calls in a graph ----------------------------------------------------------------------


@dataclass(frozen=True)
class SubgraphsCall(OpaqueCall):
    """A call of a higher-order operator."""

    @property
    def arguments(self) -> dict[str, Any]:
        return {}

    @property
    def name(self) -> str:
        return str(self.operator.__name__)

    @property
    def saves_output(self) -> bool:
        return False  # autograd notices writes to it, by the version that it shares with the tape

    def value(self, results: tuple[torch.Tensor, ...]) -> Any:
        return results

    def fake_gradient(self, at: int) -> torch.Tensor:
        tensor = tensors_in(self.args)[at]
        return tensor.new_empty(tensor.shape)


def subgraphs_call(target: Any, args: Sequence[Any], name: str) -> SubgraphsCall | None:
    """Returns the call if `target` is a higher-order operator of `OPERATORS`, else None; `name` is that of its node."""
    kind = _KINDS.get(target) if not isinstance(target, str) else None
    if kind is None:
        return None
    graphs = [a for a in args if isinstance(a, fx.GraphModule)]
    flat: list[Any] = []
    counts = []
    for each in (a for a in args if not isinstance(a, fx.GraphModule)):
        if isinstance(each, (list, tuple)):
            flat += each
            counts.append(len(each))
        else:
            flat.append(each)
    operator: Any = Subgraphs(kind, name, graphs, counts[:-1])
    return SubgraphsCall(operator, tuple(flat), fake_results)


def fake_results(call: OpaqueCall) -> tuple[torch.Tensor, ...]:
    """Returns empty tensors with the metadata of the results."""
    operator: Any = call.operator
    mode: Any = detect_fake_mode(list(call.args))
    returned = [node.meta["val"] for node in operator.graphs[-1].graph.output_node().args[0]]
    whole, length = len(returned), 0
    if operator.kind in ("map", "scan"):
        *carried, xs, _ = _split(call.args, operator.counts)
        whole, length = len(carried[0]) if carried else 0, xs[0].shape[0]
    with mode:
        empty = [new_like(r) for r in returned]
        return (*empty[:whole], *(r.new_empty((length, *r.shape)) for r in empty[whole:]))


def subgraphs_of(graph: fx.Graph) -> list[Subgraphs]:
    """Returns the higher-order operators that a joint, forward or backward graph calls."""
    return [operator for node in graph.nodes if isinstance(operator := opaque_operator(node), Subgraphs)]


def draws_random_numbers(gm: fx.GraphModule) -> bool:
    """Returns whether a graph, or a graph that it calls, may draw random numbers."""
    graphs = (module.graph for module in gm.modules() if isinstance(module, fx.GraphModule))
    return any(map(fx_graphs.draws_random_numbers, graphs))


def record_subgraphs(compile_: Compile, gm: fx.GraphModule, prefix: str = "") -> None:
    """Adds the graphs that a captured graph calls to the record."""
    for name, graph in gm.named_children():
        if isinstance(graph, fx.GraphModule):
            fx_graphs.record_graph(compile_, "subgraphs", f"{prefix}{name}.captured", graph)
            record_subgraphs(compile_, graph, f"{prefix}{name}.")


def has_subgraphs(graph: fx.Graph) -> bool:
    """Returns whether a captured graph calls a higher-order operator."""
    return any(node.op == "call_function" and node.target in _KINDS for node in graph.nodes)

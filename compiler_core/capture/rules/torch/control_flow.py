"""Rules for ``torch.cond``, ``while_loop``, ``map``, ``scan`` and checkpoints: their functions are parts of the graph.

A function is interpreted as if it were called here, and its nodes are then moved into a graph module.  What they read
from outside of it, such as the parameters of a module, becomes an operand of the node.  PyTorch's own operators take
functions that only compute new tensors from their operands; any other breaks the graph, and eager PyTorch runs it, or
raises its error.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.fx as fx
from torch.fx.traceback import annotate
from torch.utils import checkpoint

from compiler_core.capture.rules.table import handles, handles_named
from compiler_core.capture.values.base import Args, ObservedException, Value, observed_exception
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import ListValue, TupleValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.functions import FunctionValue
from compiler_core.errors import Unsupported
from compiler_core.support import transform_levels as levels
from compiler_core.support.fx_graphs import graph_module
from compiler_core.support.node_facts import communicates
from compiler_core.support.opaque_ops import OpaqueFunction, fake_gradients
from compiler_core.support.subgraphs import OPERATORS, draws_random_numbers
from compiler_core.support.tensors import new_like, storage_id
from compiler_core.torch_private import flex_attention_hop, higher_order_map, higher_order_scan, higher_order_while_loop

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


KIND: Final = "control flow"
PARTS = {"cond": ("true", "false"), "while_loop": ("condition", "body"), "map": ("body",), "scan": ("body",)}
"""What the functions of each operator are called."""


@dataclass(frozen=True)
class _Body:
    """The nodes of one function, and what it returns."""

    arguments: list[fx.Node]
    """The nodes that stand for its own arguments."""
    nodes: list[fx.Node]
    result: Value
    tensors: list[TensorValue]
    """The tensors in `result`."""
    outputs: list[fx.Node]
    fakes: list[torch.Tensor]
    returns_tensor: bool = False
    """Whether its graph returns a tensor, and no tuple: PyTorch's ``while_loop`` wants that of the condition."""


@handles(torch.cond)
def _cond(tx: Interpreter, pred: Value, true_fn: Value, false_fn: Value, operands: Value | None = None) -> Value:
    args = [] if operands is None else list(operands.unpack(tx))
    if not isinstance(pred, TensorValue):
        return (true_fn if pred.truth(tx) else false_fn).call(tx, args, {})
    if pred.fake(tx).numel() != 1:
        raise Unsupported(KIND, "torch.cond with a predicate of several elements")
    if operands is not None:
        _tensors_in(tx, operands, "torch.cond has an operand")
    node = pred.node(tx)
    bodies = [_body(tx, "torch.cond", each, args) for each in (true_fn, false_fn)]
    true, false = bodies
    if _spec(tx, true.result) != _spec(tx, false.result):
        raise Unsupported(KIND, "the branches of torch.cond return different kinds of values")
    _check_same(true.fakes, false.fakes, "the branches of torch.cond return")
    return _node(tx, "cond", bodies, lambda graphs, outside: (node, *graphs, tuple(outside)), [], true.fakes)


@handles_named("torch._higher_order_ops.cond.CondOp.__call__")
def _cond_operator(tx: Interpreter, operator: Value, /, *args: Value, **kwargs: Value) -> Value:
    return _cond(tx, *args, **kwargs)


@handles(higher_order_while_loop)
def _while_loop(tx: Interpreter, cond_fn: Value, body_fn: Value, carried_inputs: Value) -> Value:
    carried = _tensors_in(tx, carried_inputs, "while_loop carries")
    nodes = [each.node(tx) for each in carried]
    bodies = []
    for function in (cond_fn, body_fn):
        names = _names(tx, function, carried_inputs.unpack(tx))
        given = [_argument(tx, each.fake(tx), False, name) for each, name in zip(carried, names, strict=True)]
        bodies.append(_body(tx, "while_loop", function, _packed(tx, carried_inputs, given).unpack(tx), given))
    condition, body = bodies
    if [(f.dtype, f.dim()) for f in condition.fakes] != [(torch.bool, 0)] or condition.result is not condition.tensors[
        0
    ]:
        raise Unsupported(KIND, "the condition of while_loop is not a boolean tensor without dimensions")
    if _spec(tx, body.result) != _spec(tx, carried_inputs):
        raise Unsupported(KIND, "the body of while_loop returns other values than it carries")
    _check_same(body.fakes, [each.fake(tx) for each in carried], "while_loop carries, and its body returns,")
    bodies[0] = replace(condition, returns_tensor=True)
    outside = [n.meta["val"] for n in _outside(bodies)]
    if tx.graph.grad_enabled and any(f.requires_grad for f in (*outside, *(n.meta["val"] for n in nodes))):
        raise Unsupported(KIND, "while_loop with gradients")
    return _node(
        tx, "while_loop", bodies, lambda graphs, outside: (*graphs, tuple(nodes), tuple(outside)), nodes, body.fakes
    )


@handles(higher_order_map)
def _map(tx: Interpreter, f: Value, xs: Value, *args: Value) -> Value:
    rows = _tensors_in(tx, xs, "map over")
    _check_rows(tx, rows, 0)
    nodes = [each.node(tx) for each in rows]
    names = _names(tx, f, [xs])
    given = [_argument(tx, e.fake(tx)[0], e.fake(tx).requires_grad, n) for e, n in zip(rows, names, strict=True)]
    body = _body(tx, "map", f, [_packed(tx, xs, given), *args], given)
    length = rows[0].fake(tx).shape[0]
    return _node(
        tx, "map", [body], lambda graphs, outside: (*graphs, tuple(nodes), tuple(outside)), nodes,
        [each.new_empty((length, *each.shape)) for each in body.fakes],
    )  # fmt: skip


@handles_named("torch._higher_order_ops.map.MapImpl.__call__")
def _map_operator(tx: Interpreter, operator: Value, f: Value, xs: Value, args: Value, /) -> Value:
    return _map(tx, f, xs, *args.unpack(tx))


@handles(higher_order_scan)
def _scan(
    tx: Interpreter,
    combine_fn: Value,
    init: Value,
    xs: Value,
    *,
    dim: Value | None = None,
    reverse: Value | None = None,
) -> Value:
    if torch.__version__ < "2.13":
        raise Unsupported(KIND, "scan of this PyTorch, which stacks results along another dimension")
    axis = 0 if dim is None else dim.constant(tx)
    backward = reverse is not None and reverse.truth(tx)
    graph = tx.graph
    carried, rows = _tensors_in(tx, init, "scan carries"), _tensors_in(tx, xs, "scan over")
    if not carried:
        raise Unsupported(KIND, "scan without init")
    axis = _check_rows(tx, rows, axis)

    def moved(tensor: Value, source: int, target: int, flips: bool) -> Any:
        if source != target:
            tensor = graph.call_method(tx, "movedim", [tensor, ConstantValue(source), ConstantValue(target)])
        return graph.call_method(tx, "flip", [tensor, ListValue([ConstantValue(0)])]) if flips else tensor

    rows = [moved(each, axis, 0, backward) for each in rows]
    nodes = [each.node(tx) for each in (*carried, *rows)]
    needs_grad = graph.grad_enabled and any(n.meta["val"].requires_grad for n in nodes)
    names = _names(tx, combine_fn, [init, xs])
    while True:
        first = [
            _argument(tx, e.fake(tx), needs_grad and e.fake(tx).is_floating_point(), name)
            for e, name in zip(carried, names, strict=False)
        ]
        row = [
            _argument(tx, e.fake(tx)[0], e.fake(tx).requires_grad, name)
            for e, name in zip(rows, names[len(carried) :], strict=True)
        ]
        body = _body(tx, "scan", combine_fn, [_packed(tx, init, first), _packed(tx, xs, row)], [*first, *row])
        if needs_grad or not any(f.requires_grad for f in body.fakes):
            break
        _discard(tx, body)  # a tensor from outside makes what is carried require gradients
        needs_grad = True
    if not isinstance(body.result, TupleValue) or len(parts := body.result.unpack(tx)) != 2:
        raise Unsupported(KIND, "the function of scan does not return two values")
    if _spec(tx, parts[0]) != _spec(tx, init):
        raise Unsupported(KIND, "the function of scan returns other values than it carries")
    _check_same(body.fakes[: len(carried)], [e.fake(tx) for e in carried], "scan carries, and its function returns,")
    length = rows[0].fake(tx).shape[0]
    count = len(carried)
    fakes = [*body.fakes[:count], *(f.new_empty((length, *f.shape)) for f in body.fakes[count:])]
    lists = tuple(nodes[:count]), tuple(nodes[count:])
    result = _node(tx, "scan", [body], lambda graphs, outside: (*graphs, *lists, tuple(outside)), nodes, fakes)
    carry, stacked = result.unpack(tx)
    each = _tensors_in(tx, stacked, "scan returns")
    each = [moved(moved(t, 0, 0, backward), 0, axis if axis < t.fake(tx).dim() else 0, False) for t in each]
    return TupleValue([carry, _packed(tx, stacked, each)])


# ---- functions as graphs -------------------------------------------------------------------


def _body(tx: Interpreter, operator: str, function: Value, args: Args, own: Sequence[TensorValue] = ()) -> _Body:
    """Interprets a function, whose nodes stay in the graph for now; `own` are the arguments that are not operands."""
    if levels.depth():
        raise Unsupported(KIND, f"{operator} in a transform of torch.func")
    graph = tx.graph
    if graph.region is not None and graph.region.number:
        raise Unsupported(KIND, f"{operator} in a checkpoint")
    before, numbers = set(graph.fx_graph.nodes), dict(graph._nodes_by_expr)
    changes, works = len(graph.state_changes), len(tx.capture.pending_works)
    outer, region = graph.region, graph.new_region(marked=False)
    with tx.capture.inside(region, f"in a function of {operator}"):
        result = function.call(tx, list(args), {})
        tensors = _tensors_in(tx, result, f"a function of {operator} returns")
        outputs = [each.node(tx) for each in tensors]
    fakes = [each.fake(tx) for each in tensors]
    nodes = [n for n in graph.fx_graph.nodes if n not in before and n.op != "placeholder"]
    inside = set(nodes)
    graph._nodes_by_expr = {
        **numbers, **{e: n for e, n in graph._nodes_by_expr.items() if isinstance(n, fx.Node) and n.op == "placeholder"}
    }  # fmt: skip
    if outer is not None:
        outer.versions.update({k: v for k, v in region.versions.items() if k not in outer.versions})
    if graph.written_outside(region) or any(each.fake(tx)._version for each in own):
        raise Unsupported(KIND, f"a function of {operator} writes to a tensor from outside")
    if len(graph.state_changes) != changes or len(tx.capture.pending_works) != works or communicates(graph.fx_graph):
        raise Unsupported(KIND, f"a function of {operator} changes PyTorch's global state, or communicates")
    if any("warnings" in node.meta for node in nodes):
        raise Unsupported(KIND, f"a function of {operator} warns")
    if not tensors:
        raise Unsupported(KIND, f"a function of {operator} returns no tensor")
    outside = {storage_id(v) for n in _reads(nodes, inside) if isinstance(v := n.meta["val"], torch.Tensor)}
    outside |= {storage_id(each.fake(tx)) for each in own}
    memory = [storage_id(fake) for fake in fakes]
    if not inside.issuperset(outputs) or outside.intersection(memory) or len(set(memory)) < len(memory):
        raise Unsupported(
            KIND, f"a function of {operator} returns a tensor that it is given, a view of one, or one twice"
        )
    for fake in fakes:
        if type(fake).__name__ != "FakeTensor" or fake.layout is not torch.strided:
            raise Unsupported(KIND, f"a function of {operator} returns a tensor of a special kind")
    return _Body([each.node(tx) for each in own], nodes, result, tensors, outputs, fakes)


def _names(tx: Interpreter, function: Value, args: Args) -> list[str]:
    """Returns what a function calls the tensors in its first arguments: the names of its parameters."""
    code = function.code if isinstance(function, FunctionValue) else None
    known = code.co_varnames[: code.co_argcount] if code is not None else ()
    known = tuple("argument" if name == "self" else name for name in known)  # a graph's own argument has that name
    return [name for arg, name in zip(args, chain(known, repeat("argument")), strict=False) for _ in _leaves(tx, arg)]


def _argument(tx: Interpreter, like: torch.Tensor, requires_grad: bool, name: str) -> TensorValue:
    """Returns a tensor that a function is given in each round; its node is no more than a name."""
    graph = tx.graph
    with graph.mode, torch.no_grad():
        fake = new_like(like)
    node = graph.fx_graph.call_function(_argument)
    graph._set_meta(node, fake.requires_grad_(requires_grad))
    node.meta["parameter"] = name
    graph._values_by_fake[id(fake)] = value = TensorValue(fake, node)
    return value


def _reads(nodes: Sequence[fx.Node], inside: set[fx.Node]) -> list[fx.Node]:
    return list(dict.fromkeys(i for n in nodes for i in n.all_input_nodes if i not in inside))


def _outside(bodies: Sequence[_Body]) -> list[fx.Node]:
    """Returns what the functions read from outside of them."""
    found = [n for b in bodies for n in _reads(b.nodes, {*b.nodes, *b.arguments})]
    return [n for n in dict.fromkeys(found) if n.op != "get_attr"]


def _discard(tx: Interpreter, body: _Body) -> None:
    for node in [*reversed(body.nodes), *body.arguments]:
        tx.graph.fx_graph.erase_node(node)


def _node(
    tx: Interpreter,
    kind: str,
    bodies: Sequence[_Body],
    arguments: Callable[[list[fx.Node], list[fx.Node]], tuple[Any, ...]],
    given: Sequence[fx.Node],
    fakes: Sequence[torch.Tensor],
) -> Value:
    """Moves the nodes of the functions into graphs; returns the results of the node that has these graphs."""
    graph, fx_graph = tx.graph, tx.graph.fx_graph
    outside = _outside(bodies)
    for node in outside:
        if isinstance(value := node.meta["val"], torch.Tensor) and value.layout is not torch.strided:
            raise Unsupported(KIND, f"a function of {kind} reads a tensor of a special kind")
    graphs, draws = [], False
    for part, body in zip(PARTS[kind], bodies, strict=True):
        name = f"{kind}_{part}_{graph.count_of_subgraphs}"
        module = _moved(name, graph.modules, body, outside)
        _discard(tx, body)
        graph.modules.add_module(name, module)
        draws = draws or draws_random_numbers(module)
        attribute = fx_graph.get_attr(name)
        attribute.meta["origin"] = graph.guards.location.items
        graphs.append(attribute)
    graph.count_of_subgraphs += 1
    inputs = [v for n in (*given, *outside) if isinstance(v := n.meta["val"], torch.Tensor)]
    if len(set(map(storage_id, inputs))) < len(inputs):
        raise Unsupported(KIND, f"{kind} with operands that share memory")
    node = fx_graph.call_function(OPERATORS[kind], arguments(graphs, outside))

    def results() -> tuple[torch.Tensor, ...]:
        return tuple(map(new_like, fakes))

    if graph.grad_enabled and any(each.requires_grad for each in inputs) and draws:
        raise Unsupported(KIND, f"{kind} with gradients and random numbers, which PyTorch draws again in the backward")
    with graph.mode:
        made = OpaqueFunction.apply(results, fake_gradients(inputs), torch.is_grad_enabled(), *inputs)  # type: ignore[no-untyped-call]
    values = graph._wrap_result(made, node, None).unpack(tx)
    return _packed(tx, bodies[-1].result, values)


def _moved(name: str, root: torch.nn.Module, body: _Body, outside: Sequence[fx.Node]) -> fx.GraphModule:
    """Returns a copy of the nodes of a function, as a graph of its arguments and of what all functions read."""
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    for node in (*body.arguments, *outside):
        meta = dict(node.meta)
        argument = copied[node] = graph.placeholder(meta.pop("parameter", node.name))
        argument.target, argument.meta = argument.name, meta  # the name is unique
    for node in body.nodes:
        for read in node.all_input_nodes:
            if read.op == "get_attr" and read not in copied:
                copied[read] = graph.node_copy(read)
        copied[node] = graph.node_copy(node, copied.__getitem__)
    outputs = tuple(copied[n] for n in body.outputs)
    graph.output(outputs[0] if body.returns_tensor else outputs)
    return graph_module(root, graph, name)


# ---- nested values -------------------------------------------------------------------------


def _leaves(tx: Interpreter, value: Value) -> list[Value]:
    if type(value) is DictValue and value.cls is dict:
        return [leaf for item in value.mapping(tx).values() for leaf in _leaves(tx, item)]
    if isinstance(value, (TupleValue, ListValue)) and value.python_type() in (tuple, list):
        return [leaf for item in value.unpack(tx) for leaf in _leaves(tx, item)]
    return [value]


def _tensors_in(tx: Interpreter, value: Value, what: str) -> list[TensorValue]:
    """Returns the tensors in nested tuples, lists and dicts; raises Unsupported if there is anything else."""
    leaves = _leaves(tx, value)
    for leaf in leaves:
        if type(leaf) is not TensorValue:
            raise Unsupported(KIND, f"{what} {leaf}, which is not a tensor")
    return leaves  # type: ignore[return-value]


def _spec(tx: Interpreter, value: Value) -> Any:
    """Returns the structure of a nested value."""
    if type(value) is DictValue:
        return dict, [(key, _spec(tx, item)) for key, item in value.mapping(tx).items()]
    if isinstance(value, (TupleValue, ListValue)):
        return value.python_type(), [_spec(tx, item) for item in value.unpack(tx)]
    return None


def _packed(tx: Interpreter, like: Value, values: Sequence[Value]) -> Value:
    """Returns `values` in new containers of the structure of `like`."""
    rest = iter(values)

    def pack(value: Value) -> Value:
        if type(value) is DictValue:
            return DictValue({key: pack(item) for key, item in value.mapping(tx).items()})
        if isinstance(value, ListValue):
            return ListValue([pack(item) for item in value.unpack(tx)])
        if isinstance(value, TupleValue):
            return TupleValue([pack(item) for item in value.unpack(tx)])
        return next(rest)

    return pack(like)


def _check_same(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor], what: str) -> None:
    """Raises Unsupported if tensors differ in what the graph after them depends on."""
    for a, b in zip(some, others, strict=True):
        same = (a.dtype, a.device) == (b.dtype, b.device) and a.shape == b.shape and a.stride() == b.stride()
        if not same:
            raise Unsupported(KIND, f"{what} tensors of different shapes, strides, dtypes or devices")


def _check_rows(tx: Interpreter, rows: Sequence[TensorValue], axis: int) -> int:
    """Returns the axis from the front; raises Unsupported if the tensors have not the same number of rows, or none."""
    fakes = [each.fake(tx) for each in rows]
    if not fakes or not all(-fake.dim() <= axis < fake.dim() for fake in fakes):
        raise Unsupported(KIND, "a tensor has no rows")
    axis %= fakes[0].dim()
    if any(axis >= fake.dim() for fake in fakes):
        raise Unsupported(KIND, "a tensor has no rows")
    if fakes[0].shape[axis] == 0 or any(fake.shape[axis] != fakes[0].shape[axis] for fake in fakes):
        raise Unsupported(KIND, "tensors with different numbers of rows, or none")
    return axis


# ---------------------------------------------------------------- checkpoints
#
# ``checkpoint`` and ``flex_attention`` have functions that the backward runs again.
#
# The function is inlined, and its nodes are marked.  Eager PyTorch saves nothing inside a checkpoint and runs the
# function a second time in the backward.  Here the mark tells the partition to do the same with the operations
# (`autograd/mincut.py`), except for the results that the policy of a selective checkpoint keeps.  Python code runs only
# once, so a function for which a second run would show breaks the graph: one that changes objects or tensors from
# outside.


CHANGES = "in a checkpoint, whose second run makes this change again"


class SelectiveContextValue(Value):
    """One of the two contexts of ``create_selective_checkpoint_contexts(policy)``."""

    def __init__(self, policy: Value) -> None:
        self.policy = policy


@handles(checkpoint.create_selective_checkpoint_contexts)
def _selective_contexts(tx: Interpreter, policy: Value, allow_cache_entry_mutation: Value = NONE) -> Value:
    return TupleValue([SelectiveContextValue(policy), SelectiveContextValue(policy)])


def _policy_of(tx: Interpreter, context_fn: Value | None) -> Value | None:
    """Returns the policy of the contexts that `context_fn` makes; None if they do nothing."""
    if context_fn is None or context_fn.same_object(StaticValue(checkpoint.noop_context_fn)):
        return None
    contexts = context_fn.call(tx, [], {})
    context = contexts.unpack(tx)[0] if isinstance(contexts, TupleValue) else None
    if not isinstance(context, SelectiveContextValue) or tx.graph.region is not None:
        raise Unsupported("checkpoint", "with a context_fn whose contexts are not those of a selective checkpoint")
    return context.policy


def _kept_operators(tx: Interpreter, policy: Value, called: Iterable[Any]) -> Iterator[Any]:
    """Yields those of the operators `called` whose results the policy keeps for the backward."""
    if isinstance(policy, ListValue):
        yield from (each.constant(tx) for each in policy.unpack(tx))
        return
    context = tx.outside.wrap(checkpoint.SelectiveCheckpointContext(is_recompute=False))
    for operator in called:
        try:
            choice = policy.call(tx, [context, StaticValue(operator)], {}).constant(tx)
        except ObservedException as error:  # of a policy that looks at the operator's arguments
            raise Unsupported("checkpoint", f"whose policy, given an operator alone, raises {error.context}") from None
        if choice in _OFFLOADS:
            raise Unsupported("checkpoint", "whose policy moves results to the CPU")
        if choice in (True, checkpoint.CheckpointPolicy.MUST_SAVE, checkpoint.CheckpointPolicy.PREFER_SAVE):
            yield operator


_OFFLOADS = {each for each in checkpoint.CheckpointPolicy if "OFFLOAD" in each.name}


@handles(checkpoint.checkpoint)
def _checkpoint(
    tx: Interpreter,
    function: Value,
    /,
    *args: Value,
    use_reentrant: Value | None = None,
    context_fn: Value | None = None,
    debug: Value | None = None,
    determinism_check: Value | None = None,
    early_stop: Value | None = None,
    preserve_rng_state: Value | None = None,
    **kwargs: Value,
) -> Value:
    if levels.depth():
        raise Unsupported("checkpoint", "in a transform of torch.func")
    if use_reentrant is None or tx.is_none(use_reentrant):
        raise Unsupported("checkpoint", "without use_reentrant, of which PyTorch warns")
    if use_reentrant.truth(tx) and (kwargs or not any(_requires_grad(tx, arg) for arg in args)):
        raise Unsupported(
            "checkpoint", "use_reentrant=True, with keywords or without an input that requires a gradient"
        )
    policy = _policy_of(tx, context_fn)
    if debug is not None and debug.truth(tx):
        raise Unsupported("checkpoint", "with debug=True")
    for each in (determinism_check, early_stop):  # they change nothing of a second run that is the same
        if each is not None:
            each.constant(tx)
    graph = tx.graph
    if graph.region is not None and not graph.region.number:
        raise Unsupported("checkpoint", "in a function of an operator such as torch.cond")
    region, drew, graph.mode.has_drawn = graph.region or graph.new_region(), graph.mode.has_drawn, False
    try:
        with tx.capture.inside(region, CHANGES), graph.mode.noting_operators() as called:
            result = function.call(tx, list(args), kwargs)
            if policy is not None:
                graph.keep_results(region, _kept_operators(tx, policy, list(called)))
    finally:
        drawn_inside, graph.mode.has_drawn = graph.mode.has_drawn, drew or graph.mode.has_drawn
    if graph.written_outside(region):
        raise Unsupported("checkpoint", "its function writes to a tensor from outside, and a second run writes again")
    if drawn_inside and preserve_rng_state is not None and not preserve_rng_state.truth(tx):
        raise Unsupported("checkpoint", "preserve_rng_state=False, so a second run draws other random numbers")
    return result


def _requires_grad(tx: Interpreter, value: Value) -> bool:
    return isinstance(value, TensorValue) and value.fake(tx).requires_grad


# ---------------------------------------------------------------- flex_attention
#
# Its Python code is inlined down to PyTorch's own eager implementation, which is made of ordinary operators: `vmap` of
# the program's functions over the matrix of scores, and a softmax.  They are marked as a checkpoint, so that the
# backward computes the scores again, as PyTorch's does.


@handles(type(flex_attention_hop).__call__)
def _flex_attention(tx: Interpreter, operator: Value, query: Value, *args: Value, **kwargs: Value) -> Value:
    module: Any = sys.modules["torch._higher_order_ops.flex_attention"]
    function = tx.outside.wrap(module.math_attention)
    region = tx.graph.region or tx.graph.new_region()
    with tx.capture.inside(region, "in a function of flex_attention"):
        result, *statistics = function.call(tx, [query, *args], kwargs).unpack(tx)
    assert isinstance(query, TensorValue)
    return TupleValue([_laid_out_like(tx, result, query.fake(tx)), *statistics])


def _laid_out_like(tx: Interpreter, result: Value, query: torch.Tensor) -> Value:
    """Returns the result in the order of memory of the query; its last dimension stays the innermost."""
    strides = query.stride()
    order = [*sorted(range(query.dim() - 1), key=lambda d: strides[d], reverse=True), query.dim() - 1]

    def permuted(value: Value, dims: list[int]) -> Value:
        return tx.graph.call_method(tx, "permute", [value, *map(ConstantValue, dims)])

    if order == list(range(query.dim())):
        return tx.graph.call_method(tx, "contiguous", [result])
    dense = tx.graph.call_method(tx, "contiguous", [permuted(result, order)])
    return permuted(dense, [order.index(d) for d in range(query.dim())])


# ---- operators that call their function once, which is inlined --------------------------------


@handles_named("torch._higher_order_ops.invoke_subgraph.invoke_subgraph_placeholder")
def _nested_region(tx: Interpreter, func: Value, /, *args: Value, **kwargs: Value) -> Value:
    """``torch.compiler.nested_compile_region``"""
    return func.call(tx, list(args), kwargs)


@handles_named("torch._higher_order_ops.wrap.Wrap.__call__")
def _wrap(tx: Interpreter, operator: Value, func: Value, /, *args: Value, **kwargs: Value) -> Value:
    return func.call(tx, list(args), kwargs)


@handles_named("torch._higher_order_ops.wrap.WrapWithSetGradEnabled.__call__")
def _wrap_with_grad(
    tx: Interpreter, operator: Value, enabled: Value, func: Value, /, *args: Value, **kwargs: Value
) -> Value:
    mode = torch.enable_grad if enabled.truth(tx) else torch.no_grad
    return StaticValue(mode).call(tx, [func], {}).call(tx, list(args), kwargs)


@handles_named("torch._higher_order_ops.wrap.WrapWithAutocast.__call__")
def _wrap_with_autocast(
    tx: Interpreter, operator: Value, device: Value, dtype: Value, enabled: Value, cache: Value, func: Value,
    /, *args: Value, **kwargs: Value,
) -> Value:  # fmt: skip
    context = StaticValue(torch.autocast).call(tx, [device, dtype, enabled, cache], {})
    return context.call(tx, [func], {}).call(tx, list(args), kwargs)


# ---- other functions of PyTorch -----------------------------------------------------------------


@handles_named("torch.jit._script._unwrap_optional")
def _unwrap_optional(tx: Interpreter, value: Value) -> Value:
    if tx.is_none(value):
        raise observed_exception(AssertionError, "Unwrapping null optional")
    return value


@handles_named("torch._dynamo.decorators.mark_static")
def _mark_static(tx: Interpreter, tensor: Value, index: Value | None = None) -> Value:
    return NONE


@handles_named("torch._dynamo._trace_wrapped_higher_order_op.ModIndex.apply")
def _index(tx: Interpreter, cls: Value, x: Value, indices: Value) -> Value:
    """``bias[head, row, column]`` within the program's functions: the indices are tensors without dimensions."""
    return tx.graph.call_function(tx, torch.ops.aten.index, [x, indices])


@handles(annotate)
def _annotate(tx: Interpreter, annotation: Value) -> Value:
    """A context that only marks nodes of PyTorch's graphs."""
    return tx.outside.wrap(contextlib.nullcontext).call(tx, [], {})

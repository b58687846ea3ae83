"""Rules for collectives of ``torch.distributed``, which become calls of PyTorch's functional operators.

``dist.all_reduce(x)`` becomes three nodes, as in stock ``torch.compile``::

    reduced = torch.ops._c10d_functional.all_reduce(x, "sum", "0")
    waited = torch.ops._c10d_functional.wait_tensor(reduced)
    x.copy_(waited)

With ``async_op=True`` the last two follow where the program waits.  The functions of
``torch.distributed._functional_collectives`` are inlined; rules replace those that look at the group and at what runs.

Only calls that eager PyTorch runs in the same way are captured.  Others break the graph: tensors with gaps, of complex
numbers, of other sizes than the group needs, and tensors that autograd has recorded, whose change in place it ignores.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.fx as fx

from compiler_core.capture.rules.table import HANDLERS, handles, handles_each, name_of
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.sequences import ListValue, TupleValue
from compiler_core.capture.values.builtin.symbols import from_number
from compiler_core.capture.values.distributed import GroupValue, WorkValue, group_size, is_member, rank_of
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import ComputedSource
from compiler_core.support.node_facts import is_collective
from compiler_core.support.tensors import storage_id, tensors_in
from compiler_core.torch_private import DispatchKey, torch_utils
from compiler_core.torch_private import functional_collectives as functional

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

dist: Any = torch.distributed
c10d: Any = dist.distributed_c10d
ops: Any = torch.ops._c10d_functional
SINGLE = ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast", "all_to_all_single")
COALESCED = ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor")
PARTS = ("_maybe_view_chunk_cat", "_chunk_or_narrow_cat")
"""Functions that put the parts of ranks together along another dimension than the first."""
SUM, FALSE = ConstantValue(dist.ReduceOp.SUM), ConstantValue(False)


# ---- groups --------------------------------------------------------------------------------


def _group(tx: Interpreter, group: Value) -> GroupValue:
    """Returns the group that an argument means."""
    if tx.is_none(group):
        group = GroupValue.default(tx)
    if group.python_type() is dist.DeviceMesh:
        group = GroupValue.of_mesh(tx, group, 0)
    elif isinstance(group, TupleValue):
        mesh, dim = group.unpack(tx)
        group = GroupValue.of_mesh(tx, mesh, dim.constant(tx))
    if not isinstance(group, GroupValue):
        raise Unsupported("collective", f"{group} in place of a group of which this process is a member")
    return group


@handles(vars(type(dist.group))["WORLD"].fget)
def _world(tx: Interpreter, namespace: Value) -> Value:
    return GroupValue.default(tx)


@handles(dist.DeviceMesh.get_group)
def _group_of_mesh(tx: Interpreter, mesh: Value, dim: Value = NONE) -> Value:
    number = dim.constant(tx)
    if number is None and getattr(getattr(mesh, "real", None), "ndim", 0) == 1:
        number = 0
    if not isinstance(number, int):
        raise Unsupported("collective", f"the group of a dimension of {mesh} by name")
    return GroupValue.of_mesh(tx, mesh, number)


def _resolve_group(tx: Interpreter, group: Value, tag: Value = NONE) -> Value:
    """The group of a functional collective: a group, a mesh of one dimension, (mesh, dimension) or a name."""
    if group.python_type() is str:
        return ConstantValue(group.constant(tx))
    if isinstance(group, ListValue):
        raise Unsupported("collective", "a list of ranks in place of a group")
    return ConstantValue(_group(tx, group).name(tx))


def _size_of_group(tx: Interpreter, name: Value) -> Value:
    found = c10d._resolve_process_group(name.constant(tx))
    named = GroupValue(found, tx.guards.held(found, f"process group {name.constant(tx)}"))
    return ConstantValue(named.ask(tx, group_size))


def _wait_result(tx: Interpreter, tensor: Value) -> Value:
    return _wait(tx, tensor)


for _name, _rule in (
    ("_resolve_group", _resolve_group),
    ("_resolve_group_name", _resolve_group),
    ("_group_or_group_name", lambda tx, group: group),
    ("_maybe_wrap_tensor", _wait_result),
):
    if hasattr(functional, _name):
        HANDLERS[getattr(functional, _name)] = _rule
HANDLERS[c10d._get_group_size_by_name] = _size_of_group


@handles_each(*(vars(torch_utils)[name] for name in PARTS if hasattr(torch_utils, name)))
def _parts(function: Any, tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
    return tx.graph.call_function(tx, function, args, kwargs)


# ---- operators -----------------------------------------------------------------------------

OPERATORS = tuple(
    getattr(getattr(torch.ops, space), name)
    for space, names in (
        ("_c10d_functional", (*SINGLE, *(f"{name}_coalesced" for name in COALESCED))),
        ("_c10d_functional_autograd", ("all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single")),
    )
    for name in names
)


@handles_each(*OPERATORS, *(each.default for each in OPERATORS))
def _start(operator: Any, tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """Adds a call of an operator that starts a collective."""
    _check(not _in_try_block(tx), "in a try block: a graph that fails after a collective cannot run again as Python")
    overload = getattr(operator, "default", operator)
    if not overload.has_kernel_for_dispatch_key(DispatchKey.Autograd) and tx.graph.grad_enabled:
        recorded = any(isinstance(arg, TensorValue) and arg.fake(tx).requires_grad for arg in (*args, *kwargs.values()))
        _check(not recorded, f"{overload} has no gradient, and its argument requires one")
    return tx.graph.call_function(tx, overload, args, kwargs)


def _in_try_block(tx: Any) -> bool:
    """Whether the user's code may handle an error of the current instruction (the end of a ``with`` is not counted)."""
    while tx is not None:
        handler = tx.instructions[tx.pc - 1].handler
        while handler is not None:
            at = tx.index[handler.target]
            if handler.target.opname == "PUSH_EXC_INFO" and tx.instructions[at + 1].opname != "WITH_EXCEPT_START":
                return True
            handler = handler.target.handler
        tx = tx.parent
    return False


def _issue(tx: Interpreter, name: str, *args: Any) -> Value:
    values = [arg if isinstance(arg, Value) else ConstantValue(arg) for arg in args]
    return _start(getattr(ops, name), tx, *values)


@handles(ops.wait_tensor, ops.wait_tensor.default)
def _wait(tx: Interpreter, tensor: Value) -> Value:
    """Waits for a collective of this graph.  The operator returns its argument, so the tensor stays the same value."""
    if not isinstance(tensor, TensorValue) or not is_collective(_producer(tensor.node(tx))):
        raise Unsupported("collective", "a wait for a collective that was not started here")
    waited = tx.graph.call_function(tx, ops.wait_tensor.default, [tensor])
    assert isinstance(waited, TensorValue)
    tensor._node, tensor._fake = waited._node, waited._fake
    return tensor


def _producer(node: fx.Node) -> fx.Node:
    """Returns the node itself, or the one of whose results it is an item."""
    return node.all_input_nodes[0] if node.target is operator.getitem else node


# ---- functions that write to their arguments -----------------------------------------------

Write = Callable[["Interpreter"], None]
Starter = Callable[..., tuple[Value, Write]]
"""The rule for a function.  It gets the interpreter, the group and the arguments by name, starts the collective, and
returns the pending result and what writes it to the arguments once it is there."""


def starts(*names: str) -> Callable[[Starter], Starter]:
    """Makes the decorated function the rule for the functions of ``torch.distributed`` of these names."""

    def register(start: Starter) -> Starter:
        for name in names:
            if hasattr(dist, name):
                _add_rule(getattr(dist, name), start)
        return start

    return register


def _add_rule(function: Any, start: Starter) -> None:
    signature = inspect.signature(function)

    @handles(function)
    def call(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
        try:
            given: dict[str, Value] = signature.bind(*args, **kwargs).arguments
        except TypeError:
            raise Unsupported("unsupported call", f"{name_of(function)} with these arguments") from None
        group = _group(tx, given.pop("group", NONE))
        if not group.ask(tx, is_member):
            raise Unsupported("collective", f"{name_of(function)} of a group without this process")
        is_async = given.pop("async_op", FALSE).truth(tx)
        _note_deprecation(tx, function)
        pending, write = start(tx, group, **given)
        work = WorkValue(functools.partial(_finish, pending, write))
        if is_async:
            tx.capture.pending_works[work] = tx.root.stop_point
            return work
        work.finish(tx)
        return NONE


def _finish(pending: Value, write: Write, tx: Interpreter) -> None:
    _wait(tx, pending)
    write(tx)


def _note_deprecation(tx: Interpreter, function: Any) -> None:
    """Has the graph give the warning of a deprecated name, which PyTorch gives before it looks at the arguments."""
    if hasattr(function, "__deprecated__"):

        def warn() -> None:
            with contextlib.suppress(TypeError):
                function()

        tx.graph.warnings.programs.append(warn)


@starts("all_reduce")
def _all_reduce(tx: Interpreter, group: GroupValue, tensor: Value, op: Value = SUM) -> tuple[Value, Write]:
    _check_written(tx, tensor)
    reduced = _issue(tx, "all_reduce", tensor, _reduction(tx, op), group.name(tx))
    return reduced, _copying(tensor, reduced)


@starts("broadcast")
def _broadcast(
    tx: Interpreter, group: GroupValue, tensor: Value, src: Value = NONE, group_src: Value = NONE
) -> tuple[Value, Write]:
    _check_written(tx, tensor)
    if tx.is_none(src) == tx.is_none(group_src):
        raise Unsupported("collective", "broadcast needs one of src and group_src")
    root = group_src.constant(tx) if tx.is_none(src) else group.ask(tx, rank_of, src.constant(tx))
    if not 0 <= root < group.ask(tx, group_size):
        raise Unsupported("collective", "broadcast from a rank outside of the group")
    sent = _issue(tx, "broadcast", tensor, root, group.name(tx))
    return sent, _copying(tensor, sent)


@starts("all_gather_into_tensor", "all_gather_single", "_all_gather_base")
def _all_gather_into(
    tx: Interpreter, group: GroupValue, output_tensor: Value, input_tensor: Value
) -> tuple[Value, Write]:
    size = group.ask(tx, group_size)
    given, result = _check_read(tx, input_tensor), _check_written(tx, output_tensor)
    _check_rows(given, size, result)
    gathered = _issue(tx, "all_gather_into_tensor", input_tensor, size, group.name(tx))
    return gathered, _copying(output_tensor, gathered)


@starts("all_gather")
def _all_gather(tx: Interpreter, group: GroupValue, tensor_list: Value, tensor: Value) -> tuple[Value, Write]:
    size, given = group.ask(tx, group_size), _check_read(tx, tensor)
    outputs = tensor_list.unpack(tx)
    for output in outputs:
        fake = _check_written(tx, output)
        _check(fake.shape == given.shape and fake.dtype == given.dtype, "all_gather of tensors of several sizes")
    _check(len(outputs) == size, "all_gather into a list of another length than the group")
    _check(given.numel() > 0, "all_gather of nothing")
    part = tensor if given.dim() else tx.graph.call_method(tx, "view", [tensor, ConstantValue(1)])
    gathered = _issue(tx, "all_gather_into_tensor", part, size, group.name(tx))

    def write(tx: Interpreter) -> None:
        parts = tx.graph.call_method(tx, "chunk", [gathered, ConstantValue(size)]).unpack(tx)
        for output, part in zip(outputs, parts, strict=True):
            _copying(output, tx.graph.call_method(tx, "view_as", [part, output]))(tx)

    return gathered, write


@starts("reduce_scatter_tensor", "reduce_scatter_single", "_reduce_scatter_base")
def _reduce_scatter(
    tx: Interpreter, group: GroupValue, output: Value, input: Value, op: Value = SUM
) -> tuple[Value, Write]:
    size = group.ask(tx, group_size)
    given, result = _check_read(tx, input), _check_written(tx, output)
    _check_rows(result, size, given)
    scattered = _issue(tx, "reduce_scatter_tensor", input, _reduction(tx, op), size, group.name(tx))
    return scattered, _copying(output, scattered)


@starts("all_to_all_single")
def _all_to_all(
    tx: Interpreter,
    group: GroupValue,
    output: Value,
    input: Value,
    output_split_sizes: Value = NONE,
    input_split_sizes: Value = NONE,
) -> tuple[Value, Write]:
    size = group.ask(tx, group_size)
    given, result = _check_read(tx, input), _check_written(tx, output)
    same_rows = given.dim() > 0 and given.shape[1:] == result.shape[1:] and given.dtype == result.dtype
    _check(same_rows, "all_to_all_single of rows of several sizes or types")
    splits = [
        _splits(tx, result.shape[0], size, output_split_sizes),
        _splits(tx, given.shape[0], size, input_split_sizes),
    ]
    received = _issue(tx, "all_to_all_single", input, *splits, group.name(tx))
    return received, _copying(output, received)


def _splits(tx: Interpreter, rows: Any, size: int, given: Value) -> ListValue:
    """Returns how many of these rows go to or come from each rank."""
    parts = [] if tx.is_none(given) else given.unpack(tx)
    if parts:
        numbers = [getattr(part, "sym", None) or part.constant(tx) for part in parts]
        _check(len(parts) == size and sum(numbers) == rows, "all_to_all_single: the sizes of the parts do not match")
        return ListValue(list(parts))
    _check(rows % size == 0, "all_to_all_single: the rows do not divide by the size of the group")
    return ListValue([from_number(rows // size) for _ in range(size)])


# ---- their arguments -----------------------------------------------------------------------


def _reduction(tx: Interpreter, op: Value) -> str:
    real = op.constant(tx) if op.is_constant() else getattr(op, "real", None)
    found = _reduction_name(real)
    if found is None:
        raise Unsupported("collective", f"the reduction {op}")
    if op.source is not None:
        place = ComputedSource("reduction_name", _reduction_name, (op.source,))
        tx.guards.add("EQUALS_MATCH", place, found)
    return found


def _reduction_name(op: Any) -> str | None:
    return next((name for each, name in functional.REDUCE_OP_TO_STR.items() if each == op), None)


def _copying(output: Value, result: Value) -> Write:
    """Returns what copies a result to the tensor that the function writes to."""

    def write(tx: Interpreter) -> None:
        tx.graph.call_method(tx, "copy_", [output, result])

    return write


def _check(condition: Any, what: str) -> None:
    if not condition:
        raise Unsupported("collective", what)


def _check_rows(part: torch.Tensor, size: int, whole: torch.Tensor) -> None:
    """Checks that `whole` has `size` times the rows of `part`; some backends accept other shapes, too."""
    fits = part.dim() > 0 and part.shape[1:] == whole.shape[1:] and part.shape[0] * size == whole.shape[0]
    _check(fits and part.dtype == whole.dtype, "tensors of other sizes than one times and as often as the group's size")


def _check_read(tx: Interpreter, tensor: Value) -> torch.Tensor:
    """Returns the fake tensor of an argument; raises Unsupported if a collective may treat it in another way."""
    _check(isinstance(tensor, TensorValue), f"{tensor} in place of a tensor")
    fake: torch.Tensor = tensor.fake(tx)  # type: ignore[attr-defined]
    _check(not fake.is_complex() and fake.is_contiguous(), f"{tensor} has gaps, or complex numbers")
    recorded = fake.requires_grad and tx.graph.grad_enabled
    _check(not recorded, f"{tensor} requires gradients, which this collective does not have")
    return fake


def _check_written(tx: Interpreter, tensor: Value) -> torch.Tensor:
    """Like `_check_read`, for a tensor that is written to: autograd must not have recorded it, since it would use the
    new values without knowing."""
    fake = _check_read(tx, tensor)
    memory = storage_id(fake)
    for node in tx.graph.fx_graph.nodes:
        if not node.op.startswith("call") or not any(t.requires_grad for t in tensors_in(node.meta.get("val"))):
            continue
        used = [t for n in (node, *node.all_input_nodes) for t in tensors_in(n.meta.get("val"))]
        _check(memory not in map(storage_id, used), f"autograd has recorded {tensor}, which is written to")
    return fake


# ---- what breaks the graph -----------------------------------------------------------------

_NOT_CAPTURED = (
    "barrier monitored_barrier reduce gather scatter all_to_all reduce_scatter send recv isend irecv batch_isend_irecv "
    "all_gather_coalesced all_reduce_coalesced all_gather_object gather_object scatter_object_list "
    "broadcast_object_list send_object_list recv_object_list"
).split()


@handles(*(getattr(dist, name) for name in _NOT_CAPTURED if hasattr(dist, name)))
def _break(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
    raise Unsupported("collective", "no operator that returns its result")

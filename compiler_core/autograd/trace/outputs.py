"""What a functional run returns: its outputs, its writes to inputs, and the views that lead to returned values."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.fx as fx
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

from compiler_core.autograd.trace import view_chains
from compiler_core.autograd.trace.view_chains import StridedView, ViewCall
from compiler_core.autograd.trace.writes import DataWrites, in_memory_order, long_strides, memory_order
from compiler_core.errors import Refused, set_error_location
from compiler_core.support.fx_graphs import plain_name
from compiler_core.support.fx_symbols import hint, is_symbolic
from compiler_core.support.node_facts import reads_any_place
from compiler_core.support.tensors import extent, storage_id, tensors_in, writes_reach_others
from compiler_core.support.transform_levels import is_wrapped
from compiler_core.torch_private import FunctionalTensor

if TYPE_CHECKING:
    from compiler_core.autograd.trace.functionalize import FunctionalRun

_count_of_writes: Any = vars(torch)["_functionalize_mutation_counter"]
_has_data_mutation: Any = vars(torch)["_functionalize_has_data_mutation"]
_all_mutations_uncounted: Any = vars(torch)["_functionalize_are_all_mutations_hidden_from_autograd"]
_all_mutations_under_no_grad: Any = vars(torch)["_functionalize_are_all_mutations_under_no_grad_or_inference_mode"]


class JointRefused(Refused):
    """The graph cannot be differentiated and run exactly as eager PyTorch does; the message says why.

    `node`: the node of the captured graph that is why, whose line the warning names.
    """

    def __init__(self, message: str, node: fx.Node | None = None) -> None:
        super().__init__(message)
        if node is not None:
            set_error_location(self, node.meta.get("origin", ()))


BASE: Any = object()
"""Stands for the base among the arguments of a `ViewReplay`."""


@dataclass(frozen=True)
class ViewReplay:
    """A captured view operation that is run again on its base, in the grad mode `grad`."""

    node: fx.Node
    grad: bool
    args: tuple[Any, ...]
    """The arguments after the base.  A size that the graph computes is a ``torch.SymInt``; `BASE` is the base once more
    (as in ``x.view_as(x)``)."""
    kwargs: dict[str, Any]
    step: ViewCall | StridedView | None = None
    """The view itself, if `node` is not a view of its first argument alone."""


@dataclass(frozen=True)
class ReturnedValue:
    """How an output of the captured graph is made: `views` of an input or of a forward output."""

    base: str
    """``primal`` (an input) or ``output`` (an output of the forward graph)."""
    index: int
    views: tuple[ViewReplay, ...] = ()
    before_writes: bool = False
    """Whether the views are made before the forward writes to the input: without gradients, and eager makes them then.
    PyTorch does not let autograd use a view whose base was written to since."""


@dataclass(frozen=True)
class InputMutation:
    """The input `primal` is set to the value of the forward output `output` when the forward has run."""

    primal: int
    output: int
    under_no_grad: bool
    resized: bool = False
    """Whether ``out=`` resized it from no elements to the shape of the value."""
    uncounted: bool = False
    """Whether eager PyTorch does not count the write in ``_version``, as that of a batch norm to its statistics."""


@dataclass(frozen=True)
class TensorLayout:
    """Shape, strides, dtype and device of a tensor."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @staticmethod
    def of(tensor: torch.Tensor) -> TensorLayout:
        return TensorLayout(tensor.shape, tensor.stride(), tensor.dtype, tensor.device)


class OutputPlan:
    """The outputs of a joint graph's forward, and how to make what the captured graph returns from them."""

    def __init__(self, run: FunctionalRun, inputs: Sequence[Any]) -> None:
        self.returns: list[ReturnedValue] = []
        self.mutations: list[InputMutation] = []
        self.outputs: list[torch.Tensor] = []
        self.captured_outputs: list[fx.Node] = []
        """For each output, the captured node whose value it is."""
        self.differentiable: list[bool] = []
        """For each output, whether it has a tangent."""
        self._run, self._values = run, run.env
        self._plan(inputs)

    def _plan(self, inputs: Sequence[Any]) -> None:
        """Fills all fields from the final values of the run: later writes to a tensor show in all its views."""
        self._check_as_strided()
        self._check_views()
        placeholders = [n for n in self._run.captured if n.op == "placeholder"]
        primal_of = {n: i for i, n in enumerate(placeholders)}
        index_of: dict[int, int] = {}
        returned: Any = self._run.captured[-1].args[0]
        for node in returned:
            base, views = self._base_and_views(node)
            self._check_history(node, views)
            if base in primal_of:
                early = self._is_written_later(node, views)
                self.returns.append(ReturnedValue("primal", primal_of[base], views, early))
                continue
            value = self._values[base]
            self._check_out_of_transform(base, self.captured_outputs)
            if id(value) not in index_of:
                index_of[id(value)] = self._add_output(base, value)
                self.differentiable[-1] = False
            index = index_of[id(value)]
            # no gradient comes through what is returned detached
            self.differentiable[index] |= self._values[node].requires_grad
            self.returns.append(ReturnedValue("output", index, views))
        self._find_mutations(placeholders, inputs)

    def _check_history(self, node: fx.Node, views: Sequence[ViewReplay]) -> None:
        """Refuses to return a tensor whose history the views of its base that make it again do not have: one that was
        detached until a write gave it a history, and a view that a user's Function made and a write has outdated, at
        which eager raises when the history is asked for."""
        if not views:
            return
        try:
            self._values[node].grad_fn  # noqa: B018
        except RuntimeError as error:
            if any(view.grad for view in views):  # others are made again without a history, as eager's
                raise JointRefused(f"the history of the result {node.name} is lost: {error}", node) from None
        if self._values[node].requires_grad:
            values = [self._values[view.node] for view in views]
            if any(isinstance(value, torch.Tensor) and not value._is_view() for value in values):
                why = "is detached, and what requires grad is written to it (written to a clone, it would be compiled)"
                raise JointRefused(f"the result {node.name} {why}", node)

    def _check_out_of_transform(self, base: fx.Node, others: Iterable[fx.Node]) -> None:
        """Refuses to return several views of what a transform of `torch.func` has made: no views lead from the one to
        the other outside of the transform."""
        if not self._is_out_of_transform(base):
            return
        memory = self._memory(base)
        if any(other is not base and not memory.isdisjoint(self._memory(other)) for other in others):
            raise JointRefused("a transform returns views of memory that it has made")

    def _is_out_of_transform(self, node: fx.Node) -> bool:
        return any(is_wrapped(t) for n in node.all_input_nodes for t in tensors_in(self._values[n]))

    def _memory(self, node: fx.Node) -> set[int]:
        return set(map(storage_id, tensors_in(self._values[node])))

    def _view_out_of_transform(self, node: fx.Node) -> tuple[fx.Node, ViewReplay] | None:
        """Returns the node outside of all transforms that has the memory which a transform returns as `node`, and the
        view that leads from it to `node`; None if the transform has made that memory."""
        if not self._is_out_of_transform(node):
            return None
        before = itertools.takewhile(lambda n: n is not node, self._run.captured)
        owners = (n for n in before if isinstance(self._values[n], torch.Tensor) and not is_wrapped(self._values[n]))
        owner = next((n for n in owners if self._memory(n) == self._memory(node)), None)
        if owner is None or self._is_out_of_transform(owner):
            return None
        base, _ = self._base_and_views(owner)
        if base.op != "placeholder" and memory_order(base.meta["val"]) is None:
            raise JointRefused(f"a transform returns a view of {base.name}, which has gaps in memory")
        view = StridedView.of(base.meta["val"], node.meta["val"])
        numbers = view.size, view.stride, view.offset
        return base, ViewReplay(node, self._run.grad_modes[node], numbers, {}, view)

    def _is_written_later(self, node: fx.Node, views: Sequence[ViewReplay]) -> bool:
        """Returns whether `node`, made by views without gradients, is written to after it was made."""
        if not views or any(view.grad for view in views):
            return False
        return count_of_writes(self._values[node]) > self._run.writes[node]

    def _add_output(self, producer: fx.Node, value: Any) -> int:
        if not isinstance(value, torch.Tensor):
            raise JointRefused(f"an output of the graph is a {type(value).__name__}, not a tensor")
        self.outputs.append(self._with_captured_order(producer, value))
        self.captured_outputs.append(producer)
        self.differentiable.append(value.requires_grad)
        return len(self.outputs) - 1

    def _with_captured_order(self, producer: fx.Node, value: torch.Tensor) -> torch.Tensor:
        """Returns `value` with the memory order that it had at capture; the functional form of a write, or an opaque
        operator, may have made it with another one."""
        wanted = producer.meta.get("val")
        if producer.op == "placeholder" or not isinstance(wanted, torch.Tensor):
            return value
        order = memory_order(wanted)
        if order is None and long_strides(wanted) != long_strides(unwrap(value)):
            raise JointRefused(f"{producer.name} has gaps in memory, which its functional form has not")
        if order is None or order == memory_order(unwrap(value)):
            return value
        self._run.provenance.attribute_to(producer)
        with torch.set_grad_enabled(value.requires_grad):
            return in_memory_order(value, order)

    def _find_mutations(self, placeholders: list[fx.Node], inputs: Sequence[Any]) -> None:
        """Adds an output and an `InputMutation` for each input that the graph has written to."""
        data = DataWrites(self._run.captured, self._values, self._run.written)
        for i, (node, tensor) in enumerate(zip(placeholders, inputs, strict=True)):
            if not isinstance(tensor, FunctionalTensor):
                continue
            self._check_shape(node)
            if not _has_data_mutation(tensor.elem):
                continue
            unseen = data.all_unseen(storage_id(tensor))
            if data.has_history(storage_id(tensor)):
                writer = self._writer(node)
                raise JointRefused(f"the graph writes what requires grad to .data of input {node.name}", writer)
            hidden = unseen or _all_mutations_under_no_grad(tensor.elem) or self._is_hidden_from_autograd(i, tensor)
            self._check_mutation(i, node, tensor, hidden)
            resized = self._is_resized(i, tensor)
            if resized and self._has_views(tensor):
                raise JointRefused("out= resizes a tensor that has views")
            uncounted = unseen or _all_mutations_uncounted(tensor.elem)
            self.mutations.append(InputMutation(i, self._add_output(node, tensor), hidden, resized, uncounted))
            self.differentiable[-1] = tensor.requires_grad and not hidden
        self._check_shared_memory(placeholders)

    def _check_mutation(self, primal: int, node: fx.Node, tensor: torch.Tensor, hidden: bool) -> None:
        """Refuses writes to an input that cannot be made at the end of the forward as eager makes them."""
        example = self._run.examples[primal]
        if may_overlap(example):
            why = "whose elements share memory"
        elif example.requires_grad and example.is_leaf and not hidden:
            why = "a leaf that requires grad"
        else:
            return
        raise JointRefused(f"the graph writes to input {node.name}, {why}", self._writer(node))

    def _check_shared_memory(self, placeholders: list[fx.Node]) -> None:
        """Refuses writes to an input that may change another one."""
        examples, reads_any = self._run.examples, any(map(reads_any_place, self._run.captured))
        by_memory: dict[int, list[int]] = {}
        for i, example in enumerate(examples):
            if isinstance(example, torch.Tensor):
                by_memory.setdefault(storage_id(example), []).append(i)
        for mutation in self.mutations:
            written = examples[mutation.primal]
            others = [examples[i] for i in by_memory[storage_id(written)] if i != mutation.primal]
            anywhere = reads_any or mutation.resized
            if others and (anywhere or writes_reach_others([written], others, any(self.differentiable))):
                node = placeholders[mutation.primal]
                why = "which shares memory with another input (written to a clone, it would be compiled)"
                raise JointRefused(f"the graph writes to input {node.name}, {why}", self._writer(node))

    def _writer(self, node: fx.Node) -> fx.Node:
        """Returns the first node whose result is the memory of `node` after a write, or `node` if there is none."""
        memory, before = storage_id(self._values[node]), self._run.writes[node]
        later = (n for n in self._run.captured if n in self._values and self._run.writes[n] > before)
        return next((n for n in later if any(storage_id(t) == memory for t in tensors_in(self._values[n]))), node)

    def _is_hidden_from_autograd(self, primal: int, tensor: torch.Tensor) -> bool:
        """Returns whether autograd saw no write to an input that requires grad, because all were made through
        ``detach()``."""
        return bool(self._run.examples[primal].requires_grad) and tensor.grad_fn is self._run.histories[primal]

    def _has_views(self, tensor: torch.Tensor) -> bool:
        values = [t for n in self._run.captured if n in self._values for t in tensors_in(self._values[n])]
        return any(t is not tensor and storage_id(t) == storage_id(tensor) for t in values)

    def _is_resized(self, primal: int, tensor: torch.Tensor) -> bool:
        """Returns whether ``out=`` resized an input; refuses it if the input had elements, for which eager gives a
        warning."""
        with disable_proxy_modes_tracing():
            if unwrap(tensor).shape == self._run.examples[primal].shape:
                return False
        if self._run.examples[primal].numel() or self._run.examples[primal].untyped_storage().nbytes():
            raise JointRefused("out= resizes a tensor that has elements")
        return True

    def _check_as_strided(self) -> None:
        """Refuses writes to memory that `as_strided` shows: it counts in the memory of eager's tensor, and a functional
        write makes a value in new memory.  Also refuses views that are not inside of what the graph makes, for which
        eager raises; memory of ours may be larger."""
        nodes = [n for n in self._run.captured if plain_name(n) == "as_strided"]
        shown = [t.elem for n in nodes for t in tensors_in(self._values[n]) if isinstance(t, FunctionalTensor)]
        if any(_has_data_mutation(t) for t in shown):
            raise JointRefused("the graph writes to memory that an as_strided view shows", nodes[0])
        for node in nodes:
            base, shown = self._base_and_views(node)[0], self._values[node]
            if base.op != "placeholder" and shown.numel() and extent(shown)[1] > extent(self._values[base])[1]:
                raise JointRefused(f"{node.name} shows memory behind the elements of {base.name}", node)

    def _check_views(self) -> None:
        """Refuses writes through views whose functional form PyTorch computes inexactly.

        Through windows of ``x.unfold`` that overlap or leave out elements, it adds up the values of an element in
        several windows, and sets one in no window to zero.  Through ``x.expand`` it adds the change to the old value:
        that is NaN for infinities, and rounded.
        """
        for node in {n for by_memory in self._run.written.values() for n in by_memory.values()}:
            view = node
            while (source := self._alias_source(view)) is not None:
                if is_unfold(view) and not self._covers_each_element_once(view, source):
                    raise JointRefused("the graph writes to windows of unfold that do not show each element once", view)
                if is_expanded(view):
                    raise JointRefused("the graph writes to a tensor through an expanded view", view)
                view = source

    def _covers_each_element_once(self, windows: fx.Node, source: fx.Node) -> bool:
        shape, base = self._values[windows].shape, self._values[source].shape
        args, kwargs = fx.map_arg((windows.args, windows.kwargs), self._values.__getitem__)
        given = dict(zip(("self", "dimension", "size", "step"), args, strict=False)) | kwargs
        dim, size, step = given["dimension"], given["size"], given["step"]
        with disable_proxy_modes_tracing():
            return bool(shape[dim] * size == base[dim] and (step == size or shape[dim] == 1))

    def _base_and_views(self, node: fx.Node) -> tuple[fx.Node, tuple[ViewReplay, ...]]:
        """Returns the node that owns the memory of `node`, and the views that lead from it to `node`."""
        views: list[ViewReplay] = []
        self._check_shape(node)
        while (source := self._alias_source(node)) is not None:
            view = node
            node, steps = self._step_towards_base(node, source)
            if self._values[view] is not self._values[node]:
                views += reversed(steps)
            self._check_shape(node)
        if (found := self._view_out_of_transform(node)) is not None:
            node, out_of_transform = found
            views.append(out_of_transform)
        return node, tuple(reversed(views))

    def _step_towards_base(self, node: fx.Node, source: fx.Node) -> tuple[fx.Node, list[ViewReplay]]:
        """Returns a node nearer to the base of `node`, which shares memory with its argument `source`, and the views
        that lead from it to `node`."""
        if self._values[source] is self._values[node]:
            return source, []
        producer, pick = node, None
        if node.target is operator.getitem and not isinstance(self._values[source], torch.Tensor):
            producer, pick = source, int(node.args[1])  # type: ignore[arg-type]
        if producer is node and self._is_view_of_first(node, source):
            return source, [self._replay(node)]
        if pick is not None and (first := self._alias_source(producer)) and self._is_view_of_first(producer, first):
            return source, [self._replay(node)]
        return self._step_by_view_chain(producer, pick, node, source)

    def _is_view_of_first(self, node: fx.Node, source: fx.Node) -> bool:
        """Returns whether a view can be run again by calling its operation: it is a view of its first argument, its
        only tensor."""
        tensors = [n for n in node.all_input_nodes if not is_symbolic(self._values[n])]
        return tensors == [source] and source is node.args[0]

    def _replay(self, node: fx.Node) -> ViewReplay:
        """Returns the view `node`, to be run on its first argument."""
        first = node.args[0]
        args, kwargs = fx.map_arg((node.args[1:], node.kwargs), lambda n: BASE if n is first else self._values[n])
        return ViewReplay(node, self._run.grad_modes[node], args, kwargs)

    def _step_by_view_chain(
        self, producer: fx.Node, pick: int | None, node: fx.Node, source: fx.Node
    ) -> tuple[fx.Node, list[ViewReplay]]:
        """Does a step for an operation of several tensors, by the chain of PyTorch's views that it consists of."""
        args, kwargs = fx.map_arg((producer.args, producer.kwargs), self._values.__getitem__)
        run = producer.target if producer.op == "call_function" else getattr(torch.Tensor, str(producer.target))
        found = view_chains.view_chain(run, args, kwargs, pick, self._run.fake_mode)  # type: ignore[arg-type]
        if found is not None:
            tensor, steps = found
            grad = self._run.grad_modes[producer]
            for base in producer.all_input_nodes:
                if self._values[base] is tensor:
                    return base, [ViewReplay(producer, grad, step.args, step.kwargs, step) for step in steps]
        raise JointRefused(f"{node.name} shares memory with {source.name}, but is not made of views of it", node)

    def _alias_source(self, node: fx.Node) -> fx.Node | None:
        """Returns the argument that `node` is a view of, or the same tensor as; None if it has its own memory."""
        storages = {storage_id(t) for t in tensors_in(self._values[node])}
        for argument in node.all_input_nodes:
            value = self._values[argument]
            if not any(storage_id(t) in storages for t in tensors_in(value)):
                continue
            if any(map(is_wrapped, tensors_in(value))):  # it is taken out of a transform
                return None
            # an element of a tuple is a view only where the operator that made the tuple is one
            if isinstance(value, torch.Tensor) or self._alias_source(argument) is not None:
                return argument
        return None

    def _check_shape(self, node: fx.Node) -> None:
        """Refuses a tensor whose shape the graph has changed in place, unless it is the only one with its memory."""
        tensors = tensors_in(self._values[node])
        if self._run.shapes[node] == [(t.shape, t.stride()) for t in tensors]:
            return
        if node.op == "placeholder" or any(map(self._has_views, tensors)):
            raise JointRefused(f"the graph changes the shape of {node.name} in place", node)


_EXPANDING = frozenset({"expand", "expand_as", "broadcast_to", "broadcast_tensors", "meshgrid"})
"""The names of operations that return expanded views."""


def has_inexact_writes(node: fx.Node) -> bool:
    """Returns whether the node makes a view through which PyTorch's functional form may write other values."""
    return is_unfold(node) or is_expanded(node)


def is_unfold(node: fx.Node) -> bool:
    """Returns whether the node calls ``unfold`` of tensors, which gives a view."""
    return plain_name(node).partition(".")[0] == "unfold"


def is_expanded(node: fx.Node) -> bool:
    """Returns whether the node makes an expanded view."""
    return plain_name(node).partition(".")[0] in _EXPANDING


def count_of_writes(value: Any) -> int:
    """Returns how often the memory of a functional tensor has been written to; 0 for other values."""
    return int(_count_of_writes(value.elem)) if isinstance(value, FunctionalTensor) else 0


def unwrap(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor inside a functional tensor; others unchanged."""
    return tensor.from_functional() if isinstance(tensor, FunctionalTensor) else tensor


def may_overlap(tensor: torch.Tensor) -> bool:
    """Returns whether two elements may have the same address."""
    dims = sorted((hint(stride), hint(size)) for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    extent = 1
    for stride, size in dims:
        if size > 1 and stride < extent:
            return True
        extent += max(size - 1, 0) * stride
    return False

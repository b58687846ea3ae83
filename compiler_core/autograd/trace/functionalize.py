"""Runs a captured graph on functional fake tensors, so that `make_fx` records each ATen operator.

Three layers of PyTorch are active during a `FunctionalRun`: autograd (on top, so that gradients are those of the
operators that the user called), functionalization (turns in-place operators and views of memory into pure ones), and
the proxy mode of `make_fx` (records each operator).  This module adds the bookkeeping: which captured node caused each
operator, in the forward and in the backward, which inputs changed, and how each output of the captured graph is made
from one of the functional graph.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot, track_tensor_tree
from torch.utils.hooks import RemovableHandle

from compiler_core.autograd.trace import replaced_calls
from compiler_core.autograd.trace.eager_memory import EagerMemory, EagerSaves
from compiler_core.autograd.trace.outputs import (
    JointRefused,
    OutputPlan,
    count_of_writes,
    has_inexact_writes,
    may_overlap,
    unwrap,
)
from compiler_core.autograd.trace.shape_assumptions import set_asking_node
from compiler_core.autograd.trace.writes import is_data_read
from compiler_core.errors import set_error_location
from compiler_core.records import ItemId, LineClock
from compiler_core.support import opaque_ops, torch_state
from compiler_core.support.fx_graphs import items_of, plain_name
from compiler_core.support.fx_symbols import as_in_eager
from compiler_core.support.interrupts import safe_point
from compiler_core.support.node_facts import communicates, has_effects, view_base
from compiler_core.support.subgraphs import subgraphs_call
from compiler_core.support.tensors import gradient_function, is_dense, new_like, storage_id, tensors_in
from compiler_core.support.transform_levels import unwrapped
from compiler_core.torch_private import (
    DisableAutocast,
    DisableTorchFunction,
    FakeTensorMode,
    FunctionalTensor,
    disable_current_modes,
    set_grad_enabled,
)

_mirror_autograd_meta: Any = vars(torch)["_mirror_autograd_meta_to"]


_CLAMPS = frozenset(("clamp", "clamp_", "clip", "clip_"))
_DRAWS_IN_PLACE = frozenset(
    ("random_", "uniform_", "normal_", "exponential_", "log_normal_", "cauchy_", "geometric_", "bernoulli_")
)


@functools.cache
def _larger_bound_raises() -> bool:
    """Whether this PyTorch cannot differentiate by a bound of clamp if the other bound has a larger shape."""
    with torch.inference_mode(False), torch.enable_grad(), disable_current_modes():
        bound, larger = (torch.zeros(shape, dtype=torch.float32, device="cpu") for shape in ((), (2,)))
        try:
            torch.autograd.grad(torch.clamp(bound, bound.requires_grad_(), larger).sum(), bound)
        except RuntimeError:
            return True
    return False


class FunctionalRun(fx.Interpreter):
    """One run of a captured graph inside `make_fx`.

    ``run_joint(*primals)`` returns the forward's outputs followed, if any of them has a tangent, by one gradient or
    None for each primal.  Afterwards, `plan` describes the outputs, `reached_primals` has the primals that get a
    gradient from each tangent, and `memory` and `freed_together` tell what eager PyTorch shares and saves (see
    `EagerSaves`).
    """

    def __init__(self, gm: fx.GraphModule, examples: Sequence[Any], fake_mode: FakeTensorMode) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self.captured = list(gm.graph.nodes)
        self.examples = examples
        self.fake_mode = fake_mode
        self.reached_primals: list[frozenset[int]] = []
        self.memory = EagerMemory()
        self.freed_together: tuple[tuple[int, ...], ...] = ()
        self.histories: dict[int, Any] = {}
        """The ``grad_fn`` of each input before the run."""
        self.grad_modes: dict[fx.Node, bool] = {}
        """The grad mode that each node ran in."""
        self.shapes: dict[fx.Node, Any] = {}
        """Shapes and strides of the tensors in each node's value when it was computed."""
        self.writes: dict[fx.Node, int] = {}
        """How often the memory of each node's value had been written to when the value was computed."""
        self.written: dict[fx.Node, dict[int, fx.Node]] = {}
        """The arguments that each node writes to, by the memory; only where `_counts_of_arguments` counts."""
        self._counts_writes = any(is_data_read(n) or has_inexact_writes(n) for n in self.captured)
        self._casts_are_cached = torch.is_autocast_cache_enabled()  # tracing turns it off

    def run_joint(self, *primals: Any) -> list[torch.Tensor | None]:
        mode = get_proxy_mode()
        assert mode is not None
        self.tracer = mode.tracer
        self.provenance = Provenance(self.tracer.graph)
        next_hook_id = RemovableHandle.next_id
        collectives = replaced_calls.FunctionalCollectives() if communicates(self.graph) else contextlib.nullcontext()
        try:
            with collectives:
                return self._run_joint(*primals)
        finally:
            self.provenance.remove_hooks()
            RemovableHandle.next_id = next_hook_id  # a program can see the ids of hooks

    def _run_joint(self, *primals: Any) -> list[torch.Tensor | None]:
        grad_before = torch.is_grad_enabled()
        self.provenance.attribute_inputs([n for n in self.captured if n.op == "placeholder"])
        inputs = [self._wrap(p, e) for p, e in zip(primals, self.examples, strict=True)]
        tensors = [(i, t) for i, t in enumerate(inputs) if isinstance(t, torch.Tensor)]
        self.histories = {i: t.grad_fn for i, t in tensors}
        edges = {i: torch.autograd.graph.get_gradient_edge(t) for i, t in tensors if t.requires_grad}
        self.run(*inputs, enable_io_processing=False)
        set_grad_enabled(grad_before)
        self.plan = OutputPlan(self, inputs)
        forward = [unwrap(t) for t in self.plan.outputs]
        self.provenance.attribute_to(None)
        differentiable = [t for t, d in zip(self.plan.outputs, self.plan.differentiable, strict=True) if d]
        if not differentiable:
            return [*forward]
        self.reached_primals = [_reached_primals(t, edges) for t in differentiable]
        saves = EagerSaves.of(differentiable)
        if saves.checking:
            raise JointRefused(f"{saves.checking[0]} checks values, and may raise")
        self.freed_together = saves.freed_together
        before = len(self.tracer.graph.nodes)
        tangents, found = self._gradients(edges)
        self.provenance.attribute_to(None)
        for node in itertools.islice(self.tracer.graph.nodes, before, None):
            if has_effects(node):
                node.meta["of_gradients"] = True
        gradients = [found.get(i) for i in range(len(inputs))]
        self.memory = EagerMemory(
            inputs=tuple(storage_id(t) if isinstance(t, torch.Tensor) else None for t in (*inputs, *tangents)),
            outputs=tuple(map(storage_id, self.plan.outputs)),
            gradients=tuple(None if g is None else storage_id(g) for g in gradients),
            objects=tuple(map(id, gradients)),
            saved=tuple(frozenset(map(storage_id, tensors)) for tensors in saves.tensors),
        )
        return [*forward, *(None if g is None else unwrap(g) for g in gradients)]

    def _wrap(self, primal: Any, example: Any) -> Any:
        if not isinstance(primal, torch.Tensor):
            return primal
        wrapped = FunctionalTensor.to_functional(primal)
        if example.requires_grad:
            _mirror_autograd_meta(example, wrapped)
        return wrapped

    def run_node(self, n: fx.Node) -> Any:
        safe_point()
        self.provenance.attribute_to(n)
        self._node = n
        if self.fake_mode.shape_env is not None:
            set_asking_node(self.fake_mode.shape_env, n)
        self.grad_modes[n] = torch.is_grad_enabled()
        counts = self._counts_of_arguments(n)
        try:
            result = self._execute(n)
        except Exception as error:
            set_error_location(error, n.meta.get("origin", ()))
            raise
        if (changed := self._counts_of_arguments(n)) != counts:
            self.written[n] = {m: found[0] for m, found in changed.items() if found != counts[m]}
        self.writes[n] = count_of_writes(result)
        self.shapes[n] = [(t.shape, t.stride()) for t in tensors_in(result)]
        touched = [t for a in n.all_input_nodes for t in tensors_in(self.env[a])]
        slot: Any = get_proxy_slot(unwrap(result), self.tracer, None) if n.meta.get("role") == "gradient" else None
        if slot is not None:
            self.provenance.attribute_gradient(n, slot.proxy.node)
        if n.op not in ("placeholder", "output"):
            self.provenance.attribute_gradients(n, [*tensors_in(result), *touched])
        return result

    def _counts_of_arguments(self, n: fx.Node) -> dict[int, tuple[fx.Node, int]]:
        """Returns, for the memory of each argument, the first argument in it, and how often it has been written to.

        Empty for graphs without ``.data``, ``unfold`` and ``expand``, which need no such counts.
        """
        out = n.kwargs.get("out")
        nodes = [out, *n.all_input_nodes] if isinstance(out, fx.Node) else n.all_input_nodes
        found: dict[int, tuple[fx.Node, int]] = {}
        for node in nodes if self._counts_writes else ():
            for tensor in tensors_in(self.env[node]):
                found.setdefault(storage_id(tensor), (node, count_of_writes(tensor)))
        return found

    def _execute(self, n: fx.Node) -> Any:
        self._check_draw(n)
        self._check_bounds(n)
        name = plain_name(n)
        try:
            result = super().run_node(n)
        except Exception as error:  # eager runs it, or raises its error
            raise JointRefused(f"PyTorch cannot functionalize {name}: {error}") from error
        if name.startswith("_foreach") and name.endswith("_"):  # functionalization does not count the writes
            torch.autograd.graph.increment_version(tensors_in(fx.map_arg(n.args[0], self.env.__getitem__)))
        return result

    def _check_draw(self, n: fx.Node) -> None:
        """Refuses in-place random draws into tensors with gaps: PyTorch draws in another order than the functional form
        does."""
        if n.op != "call_method" or n.target not in _DRAWS_IN_PLACE:
            return
        for drawn in map(unwrapped, tensors_in(self.env[n.all_input_nodes[0]])):
            # after a write, the functional value may have other strides than the tensor in memory
            if not is_dense(drawn) or unwrap(drawn).stride() != drawn.stride():
                raise JointRefused(f"{n.target} writes random numbers to a tensor with gaps in memory")

    def _check_bounds(self, n: fx.Node) -> None:
        """Refuses gradients of a bound of clamp if the other bound is larger.

        The gradient has a mask with the common shape of the input and that bound.  PyTorch before 2.14 raises an error
        if the other bound is larger, but not for fake tensors.
        """
        if plain_name(n) not in _CLAMPS or not torch.is_grad_enabled():
            return
        given: Any = fx.map_arg((*n.args, *n.kwargs.values()), self.env.__getitem__)
        if len(given) != 3 or not all(isinstance(each, torch.Tensor) for each in given):
            return
        together: Any = torch.broadcast_shapes
        x, *bounds = (each.shape for each in given)
        for bound in given[1:]:
            if bound.requires_grad and together(x, bound.shape) != together(x, *bounds):
                if _larger_bound_raises():
                    raise JointRefused("a bound of clamp requires grad, and the other bound has a larger shape")

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = opaque_ops.opaque_call(target, args, kwargs) or subgraphs_call(target, args, self._node.name)
        if call and not opaque_ops.is_short(call):
            return replaced_calls.trace_opaque_call(call, self.tracer, self._casts_are_cached)
        if target in (torch_state.enter_autocast, torch_state.leave_autocast):
            *_, self._casts_are_cached = args
        if (custom := replaced_calls.mutating_operator(target)) is not None:
            return replaced_calls.call_functionally(custom, args, kwargs)
        is_operator = getattr(target, "__module__", None) == operator.add.__module__
        with as_in_eager(target), DisableTorchFunction() if is_operator else contextlib.nullcontext():
            return super().call_function(replaced_calls.FUNCTIONS.get(target, target), args, kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target in replaced_calls.METHODS:
            return replaced_calls.METHODS[target](*args, **kwargs)
        # `make_fx` has a mode that notes each function, which takes longer than what decompositions read of tensors.
        # Methods and operators do without: they run no code of the user, and no default device, a mode too, is for them
        with DisableTorchFunction():
            return super().call_method(target, args, kwargs)

    def bernoulli(self, x: torch.Tensor, p: float = 0.5, *, generator: torch.Generator | None = None) -> Any:
        """A decomposition of aten.bernoulli.p, the functional form of bernoulli_ (and so of dropout).

        In place, numbers are drawn in memory order; aten.bernoulli.p draws in index order.
        """
        asked_for = plain_name(self._node) == "bernoulli"
        strides = x.stride()
        order = sorted(range(x.dim()), key=lambda d: (-strides[d], d))
        dense = x.permute(order)
        if asked_for or generator is not None or x.is_contiguous() or not dense.is_contiguous():
            return NotImplemented
        return torch.bernoulli(dense, p).permute([order.index(d) for d in range(x.dim())])

    def _gradients(self, edges: dict[int, Any]) -> tuple[list[torch.Tensor], dict[int, torch.Tensor]]:
        """Returns the tangents, and the gradient of each primal that has one."""
        indices = [i for i, d in enumerate(self.plan.differentiable) if d]
        outputs = [self.plan.outputs[i] for i in indices]
        tangents = []
        for number, i in enumerate(indices, 1):
            self.provenance.attribute_to(self.plan.captured_outputs[i], "tangent")
            tangents.append(self._tangent(number, self.plan.outputs[i]))
        with torch.autograd.set_multithreading_enabled(False), DisableAutocast():
            try:
                found = torch.autograd.grad(outputs, list(edges.values()), tangents, allow_unused=True)
            except Exception as error:
                raise JointRefused(f"PyTorch cannot differentiate the graph: {error}") from error
        return tangents, {i: g for i, g in zip(edges, found, strict=True) if g is not None}

    def _tangent(self, number: int, output: torch.Tensor) -> torch.Tensor:
        """Returns a placeholder for the tangent of `output`, with its layout, or a dense one if its elements may share
        memory: those of a tangent do not."""
        inner = unwrap(output)
        with disable_current_modes(), self.fake_mode:
            like = torch.empty_like(inner) if may_overlap(inner) else inner
            tangent = new_like(like)
        proxy = self.tracer.create_proxy("placeholder", f"tangents_{number}", (), {})
        track_tensor_tree(tangent, proxy, constant=None, tracer=self.tracer)
        return FunctionalTensor.to_functional(tangent)


def _reached_primals(output: torch.Tensor, edges: Mapping[int, Any]) -> frozenset[int]:
    """Returns the primals that autograd brings a gradient to from `output`, even one of zeros."""
    ends = {(edge.node, edge.output_nr): i for i, edge in edges.items()}
    start = torch.autograd.graph.get_gradient_edge(output)
    work: list[tuple[Any, int]] = [(start.node, start.output_nr)]
    seen: set[tuple[Any, int]] = set()
    while work:
        edge = work.pop()
        if edge in seen:
            continue
        seen.add(edge)
        work.extend(e for e in edge[0].next_functions if e[0] is not None)
    return frozenset(i for end, i in ends.items() if end in seen)


class Provenance:
    """Sets ``meta["origin"]`` and ``meta["rule"]`` on the nodes of a graph while it grows."""

    def __init__(self, graph: fx.Graph) -> None:
        self._last = self._newest(graph)
        self._graph = graph
        self._grad_owner: dict[Any, fx.Node] = {}
        self._hooks: list[Any] = []
        self._source: fx.Node | None = None
        self._rule = ""
        self.line_clock = LineClock()

    @staticmethod
    def _newest(graph: fx.Graph) -> fx.Node:
        return graph._root._prev

    def attribute_inputs(self, captured: Sequence[fx.Node]) -> None:
        """Attributes the graph's placeholders so far to those of the captured graph, in order."""
        for node, source in zip(self._graph.find_nodes(op="placeholder"), captured, strict=True):
            node.meta |= {"origin": items_of(source), "rule": "primal"}

    def attribute_to(self, source: fx.Node | None, rule: str = "") -> None:
        """Attributes nodes from now on to `source`; those since the last call belong to the source given there."""
        self.line_clock.switch(None if source is None else _line_of(source))
        node = self._last._next
        while node is not self._graph._root:
            if self._source is not None:
                node.meta["origin"] = items_of(self._source)
                node.meta["decomposed"] = _decomposed_operator(node)
                node.meta["rule"] = self._rule or _forward_rule(node)
                node.meta["module"] = self._source.meta.get("module")
                node.meta["checkpoint"] = self._source.meta.get("checkpoint")
            node = node._next
        self._last, self._source, self._rule = self._newest(self._graph), source, rule

    def attribute_gradients(self, owner: fx.Node, tensors: Sequence[torch.Tensor]) -> None:
        """Attributes the gradient functions behind `tensors` that have not been seen before to `owner`."""
        work = [function for t in tensors if (function := gradient_function(t)) is not None]
        while work:
            function = work.pop()
            if function in self._grad_owner:
                continue
            self._grad_owner[function] = owner
            self._hooks.append(function.register_prehook(self._prehook(owner, f"autograd {function.name()}")))
            work.extend(next_ for next_, _ in function.next_functions if next_ is not None)

    def attribute_gradient(self, source: fx.Node, node: fx.Node) -> None:
        """Attributes the node that is a gradient to that of the captured graph, too, which besides belongs to the
        operation whose backward made it.

        So is what the node is a view of: passes remove views, such as the transpose of a transpose.
        """
        for each in (node, view_base(node)):
            if each.op == "call_function":
                each.meta["origin"] = tuple(dict.fromkeys((*each.meta.get("origin", ()), *items_of(source))))

    def remove_hooks(self) -> None:
        """Removes the hooks: gradient functions and what their hooks refer to would keep each other alive."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._grad_owner.clear()

    def _prehook(self, owner: fx.Node, rule: str) -> Callable[[Any], None]:
        return lambda grads: self.attribute_to(owner, rule)


def _line_of(node: fx.Node) -> ItemId | None:
    """Returns the item of the user's line that a captured node came from, if the record has it."""
    return next((item for item in node.meta.get("origin", ()) if item.startswith("src:")), None)


def _forward_rule(node: fx.Node) -> str:
    if node.op == "get_attr":
        return "constant"
    return f"decompose {node.meta['decomposed']}" if node.meta["decomposed"] else "trace"


def _decomposed_operator(node: fx.Node) -> str | None:
    """Returns the operator whose decomposition contains this node, or None."""
    # compared by name: while tracing, PyTorch has more than one object for an operator
    original = str(node.meta.get("original_aten") or node.target)
    return None if node.op == "get_attr" or original == str(node.target) else original

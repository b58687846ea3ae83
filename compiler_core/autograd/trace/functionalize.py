"""Running a captured graph on functional fake tensors, so that each aten operator can be recorded.

Three layers of PyTorch lie on one another while `FunctionalRun` works: autograd (on top, so that
gradients are those of the operators that the user called), functionalisation (turns in-place
operators and views with memory into pure ones), and the proxy mode of `make_fx` (writes each
operator down).  What is ours is the account of it: which captured node caused each operator, in
the forward and in the backward, what became of the inputs, and how each output of the captured
graph comes from one of the functional graph.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, track_tensor_tree
from torch.utils._python_dispatch import _disable_current_modes

from compiler_core.autograd.trace import custom_operators, derivatives, opaque_nodes, view_chains
from compiler_core.autograd.trace.eager_saves import EagerSaves
from compiler_core.autograd.trace.ownership import Memory
from compiler_core.autograd.trace.provenance import Provenance
from compiler_core.autograd.trace.view_chains import Step
from compiler_core.errors import Refused, came_from
from compiler_core.support import opaque_ops, torch_state
from compiler_core.support.fx_symbols import hint, is_symbolic
from compiler_core.support.interrupts import safe_point
from compiler_core.support.shape_assumptions import asked_by

# functionalisation's C++ half, which torch's type stubs leave out
_mirror_autograd_meta: Any = vars(torch)["_mirror_autograd_meta_to"]
_has_data_mutation: Any = vars(torch)["_functionalize_has_data_mutation"]
_all_mutations_under_no_grad: Any = vars(torch)["_functionalize_are_all_mutations_under_no_grad_or_inference_mode"]


RANDOM_BETWEEN: Any = getattr(torch.ops.aten.random, "from")
"""What ``x.random_(a, b)`` does; its name is a keyword, so that no graph can call it in Python."""


_CLAMPS = frozenset(("clamp", "clamp_", "clip", "clip_"))
_DRAWS_IN_PLACE = frozenset(
    ("random_", "uniform_", "normal_", "exponential_", "log_normal_", "cauchy_", "geometric_", "bernoulli_")
)


class JointRefused(Refused):
    """The graph cannot be differentiated and replayed exactly as eager does; the message says why."""


BASE: Any = object()


@dataclass(frozen=True)
class View:
    """A captured view operation, to be run again on its base; `grad` is the grad mode it ran in."""

    node: fx.Node
    grad: bool
    args: tuple[Any, ...]
    """The operation's arguments after its base; a size that the graph computes is a ``torch.SymInt``, and `BASE` stands
    for the base once more (``x.view_as(x)``)."""
    kwargs: dict[str, Any]
    step: Step | None = None
    """One of the views that the operation is made of, where it is no view of its first argument alone."""


@dataclass(frozen=True)
class Return:
    """How an output of the captured graph is made: `views` of an input or of a forward output."""

    base: str
    """``primal`` (an input) or ``output`` (an output of the forward graph)."""
    index: int
    views: tuple[View, ...] = ()


@dataclass(frozen=True)
class Mutation:
    """Input `primal` takes the value of the forward output `output` when the forward has run."""

    primal: int
    output: int
    under_no_grad: bool
    resized: bool = False
    """Whether it had no elements, and ``out=`` gave it the size of the value."""


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in memory, and where."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @staticmethod
    def of(tensor: torch.Tensor) -> Layout:
        return Layout(tensor.shape, tensor.stride(), tensor.dtype, tensor.device)


class FunctionalRun(fx.Interpreter):
    """One run of a captured graph inside `make_fx`; afterwards its fields tell what happened.

    ``run_joint(*primals)`` returns the forward's outputs (`differentiable` says which of them have
    a tangent) followed, if there are any tangents, by one gradient or None for each primal;
    `reaches` says for each tangent which primals get a gradient from it, `memory` and `shared` what eager PyTorch
    shares and saves (see `EagerSaves`).
    """

    def __init__(self, gm: fx.GraphModule, examples: Sequence[Any], fake_mode: FakeTensorMode) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self.captured = list(gm.graph.nodes)
        self.examples = examples
        self.fake_mode = fake_mode
        self.returns: list[Return] = []
        self.mutations: list[Mutation] = []
        self.differentiable: list[bool] = []
        self.outputs: list[torch.Tensor] = []
        self.reaches: list[frozenset[int]] = []
        self.makers: list[fx.Node] = []
        self.memory = Memory()
        self.shared: tuple[tuple[int, ...], ...] = ()
        self._grad_mode: dict[fx.Node, bool] = {}
        self._shapes: dict[fx.Node, Any] = {}
        self._history: dict[int, Any] = {}
        """What made each input, to autograd, before the graph ran."""
        self._casts_are_cached = torch.is_autocast_cache_enabled()  # tracing turns it off

    def run_joint(self, *primals: Any) -> list[torch.Tensor | None]:
        mode = get_proxy_mode()
        assert mode is not None
        self.tracer = mode.tracer
        self.provenance = Provenance(self.tracer.graph)
        try:
            return self._run_joint(*primals)
        finally:
            self.provenance.let_go()

    def _run_joint(self, *primals: Any) -> list[torch.Tensor | None]:
        grad_before = torch.is_grad_enabled()
        self.provenance.name_inputs([n for n in self.captured if n.op == "placeholder"])
        inputs = [self._wrap(p, e) for p, e in zip(primals, self.examples, strict=True)]
        tensors = [(i, t) for i, t in enumerate(inputs) if isinstance(t, torch.Tensor)]
        self._history = {i: t.grad_fn for i, t in tensors}
        edges = {i: torch.autograd.graph.get_gradient_edge(t) for i, t in tensors if t.requires_grad}
        self.run(*inputs, enable_io_processing=False)
        torch._C._set_grad_enabled(grad_before)
        self._plan(inputs)
        forward = [_unwrap(t) for t in self.outputs]
        self.provenance.stamp(None)
        if not any(self.differentiable):
            return [*forward]
        self.reaches = [_reached(t, edges) for t, d in zip(self.outputs, self.differentiable, strict=True) if d]
        saves = EagerSaves.of([t for t, d in zip(self.outputs, self.differentiable, strict=True) if d])
        self.shared = saves.shared
        tangents, found = self._gradients(edges)
        self.provenance.stamp(None)
        gradients = [found.get(i) for i in range(len(inputs))]
        self.memory = Memory(
            tuple(_storage(t) if isinstance(t, torch.Tensor) else None for t in (*inputs, *tangents)),
            tuple(map(_storage, self.outputs)),
            tuple(None if g is None else _storage(g) for g in gradients),
            tuple(map(id, gradients)),
            tuple(frozenset(map(_storage, tensors)) for tensors in saves.tensors),
        )
        return [*forward, *(None if g is None else _unwrap(g) for g in gradients)]

    def _wrap(self, primal: Any, example: Any) -> Any:
        if not isinstance(primal, torch.Tensor):
            return primal
        wrapped = FunctionalTensor.to_functional(primal)
        if example.requires_grad:
            _mirror_autograd_meta(example, wrapped)
        return wrapped

    def run_node(self, n: fx.Node) -> Any:
        safe_point()
        self.provenance.stamp(n)
        self._node = n
        if self.fake_mode.shape_env is not None:
            asked_by(self.fake_mode.shape_env, n)
        self._grad_mode[n] = torch.is_grad_enabled()
        try:
            result = self._execute(n)
        except Exception as error:
            came_from(error, n.meta.get("origin", ()))
            raise
        self._shapes[n] = [(t.shape, t.stride()) for t in tensors_of(result)]
        touched = [t for a in n.all_input_nodes for t in tensors_of(self.env[a])]
        if n.op not in ("placeholder", "output"):
            self.provenance.own_gradients(n, [*tensors_of(result), *touched])
        return result

    def _execute(self, n: fx.Node) -> Any:
        self._check_draw(n)
        self._check_bounds(n)
        try:
            return super().run_node(n)
        except Exception as error:  # eager runs it, or raises what there is to raise
            name = getattr(n.target, "__name__", n.target)
            raise JointRefused(f"PyTorch cannot functionalise {name}: {error}") from error

    def _check_draw(self, n: fx.Node) -> None:
        """In place, PyTorch draws in another order where there are gaps, which the functional form never sees."""
        if n.op != "call_method" or n.target not in _DRAWS_IN_PLACE:
            return
        for drawn in tensors_of(self.env[n.all_input_nodes[0]]):
            if not torch.ops.aten.is_non_overlapping_and_dense(_unwrap(drawn)):
                raise JointRefused(f"{n.target} draws into a part of a tensor")

    def _check_bounds(self, n: fx.Node) -> None:
        """The gradient of a bound has a mask as large as the input and that bound; PyTorch raises where the other bound
        is larger, but not on tensors without values."""
        if getattr(n.target, "__name__", n.target) not in _CLAMPS or not torch.is_grad_enabled():
            return
        given: Any = fx.map_arg((*n.args, *n.kwargs.values()), self.env.__getitem__)
        if len(given) != 3 or not all(isinstance(each, torch.Tensor) for each in given):
            return
        together: Any = torch.broadcast_shapes
        x, *bounds = (each.shape for each in given)
        for bound in given[1:]:
            if bound.requires_grad and together(x, bound.shape) != together(x, *bounds):
                raise JointRefused("a bound of clamp requires grad, and the other is larger")

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if call := opaque_ops.whole_call(target, args, kwargs):
            return opaque_nodes.traced(call, self.tracer, self._casts_are_cached)
        if target in (torch_state.enter_autocast, torch_state.leave_autocast):
            *_, self._casts_are_cached = args
        if (custom := custom_operators.mutating_operator(target)) is not None:
            return self._call_custom(custom, args, kwargs)
        return super().call_function(derivatives.FUNCTIONS.get(target, target), args, kwargs)

    def _call_custom(self, custom: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = tensors_of([*args, *kwargs.values()])
        if custom_operators.returns_new(custom) and torch.is_grad_enabled() and any(t.requires_grad for t in given):
            raise JointRefused(f"{custom} writes to an argument, and its results require gradients")
        return custom_operators.call(custom, args, kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target in derivatives.METHODS:
            return derivatives.METHODS[target](*args, **kwargs)
        return super().call_method(target, args, kwargs)

    def bernoulli(self, x: torch.Tensor, p: float = 0.5, *, generator: torch.Generator | None = None) -> Any:
        """A decomposition of aten.bernoulli.p, the functional form of bernoulli_ (and so of dropout).

        In place, numbers are drawn in the order of memory; aten.bernoulli.p draws in that of the indices.
        """
        asked_for = getattr(self._node.target, "__name__", self._node.target) == "bernoulli"
        strides = x.stride()
        order = sorted(range(x.dim()), key=lambda d: (-strides[d], d))
        dense = x.permute(order)
        if asked_for or generator is not None or x.is_contiguous() or not dense.is_contiguous():
            return NotImplemented
        return torch.bernoulli(dense, p).permute([order.index(d) for d in range(x.dim())])

    def _gradients(self, edges: dict[int, Any]) -> tuple[list[torch.Tensor], dict[int, torch.Tensor]]:
        """The tangents, and the gradient of each primal that has one."""
        wanted = [i for i, d in enumerate(self.differentiable) if d]
        outputs = [self.outputs[i] for i in wanted]
        tangents = []
        for number, i in enumerate(wanted, 1):
            self.provenance.stamp(self.makers[i], "tangent")
            tangents.append(self._tangent(number, self.outputs[i]))
        with torch.autograd.set_multithreading_enabled(False), torch._C._DisableAutocast():
            try:
                found = torch.autograd.grad(outputs, list(edges.values()), tangents, allow_unused=True)
            except Exception as error:
                raise JointRefused(f"PyTorch cannot differentiate the graph: {error}") from error
        return tangents, {i: g for i, g in zip(edges, found, strict=True) if g is not None}

    def _tangent(self, number: int, output: torch.Tensor) -> torch.Tensor:
        """A placeholder for the gradient that autograd will hand in, laid out as `output` is."""
        inner = _unwrap(output)
        with _disable_current_modes(), self.fake_mode:
            tangent = torch.empty_strided(inner.shape, inner.stride(), dtype=inner.dtype, device=inner.device)
        proxy = self.tracer.create_proxy("placeholder", f"tangents_{number}", (), {})
        track_tensor_tree(tangent, proxy, constant=None, tracer=self.tracer)
        return FunctionalTensor.to_functional(tangent)

    # ---- what the outputs are ------------------------------------------------------------

    def _plan(self, inputs: list[Any]) -> None:
        """Fill `returns`, `mutations`, `outputs` and `differentiable` from the values of the run.

        They are those at its end: what was written to a tensor later shows in all its views.
        """
        self._check_windows()
        placeholders = [n for n in self.captured if n.op == "placeholder"]
        primal_of = {n: i for i, n in enumerate(placeholders)}
        index_of: dict[int, int] = {}
        for node in self.captured[-1].args[0]:
            base, views = self._base(node)
            if base in primal_of:
                self.returns.append(Return("primal", primal_of[base], views))
                continue
            value = self.env[base]
            if id(value) not in index_of:
                index_of[id(value)] = self._output(base, value)
            self.returns.append(Return("output", index_of[id(value)], views))
        self._find_mutations(placeholders, inputs)

    def _output(self, maker: fx.Node, value: Any) -> int:
        if not isinstance(value, torch.Tensor):
            raise JointRefused(f"an output of the graph is a {type(value).__name__}, not a tensor")
        self.outputs.append(self._laid_out(maker, value))
        self.makers.append(maker)
        self.differentiable.append(value.requires_grad)
        return len(self.outputs) - 1

    def _laid_out(self, maker: fx.Node, value: torch.Tensor) -> torch.Tensor:
        """`value` in the order in memory that it had when captured: what stands for a write or a whole operation here
        may have made it in another."""
        wanted = maker.meta.get("val")
        if maker.op == "placeholder" or not isinstance(wanted, torch.Tensor):
            return value
        order = _order_in_memory(wanted)
        if order is None or order == _order_in_memory(_unwrap(value)):
            return value
        self.provenance.stamp(maker)
        with torch.set_grad_enabled(value.requires_grad):
            dense = value.permute(order).clone(memory_format=torch.contiguous_format)
            return dense.permute([order.index(d) for d in range(value.dim())])

    def _find_mutations(self, placeholders: list[fx.Node], inputs: list[Any]) -> None:
        storages = [_storage(t) if isinstance(t, torch.Tensor) else None for t in self.examples]
        for i, (node, tensor) in enumerate(zip(placeholders, inputs, strict=True)):
            if not isinstance(tensor, FunctionalTensor):
                continue
            elem = tensor.elem
            self._check_shape(node)
            if not _has_data_mutation(elem):
                continue
            if storages.count(storages[i]) > 1:
                raise JointRefused(f"the graph writes to input {node.name}, which shares memory with another input")
            if _overlaps(self.examples[i]):
                raise JointRefused(f"the graph writes to input {node.name}, of which elements share memory")
            if any(_storage(tensors_of(self.env[n])[0]) == _storage(tensor) for n in self._data_taken()):
                raise JointRefused(f"the graph writes to input {node.name} and takes its .data, which hides writes")
            hidden = _all_mutations_under_no_grad(elem) or self._is_hidden(i, tensor)
            if self.examples[i].requires_grad and self.examples[i].is_leaf and not hidden:
                raise JointRefused(f"the graph writes to input {node.name}, a leaf that requires grad")
            resized = self._is_resized(i, tensor)
            if resized and self._has_views(tensor):
                raise JointRefused("out= gives another size to a tensor that has views")
            self.mutations.append(Mutation(i, self._output(node, tensor), hidden, resized))
            self.differentiable[-1] = tensor.requires_grad and not hidden

    def _is_hidden(self, primal: int, tensor: torch.Tensor) -> bool:
        """Whether autograd has seen no write to an input that requires grad: all went by way of ``detach()``."""
        return bool(self.examples[primal].requires_grad) and tensor.grad_fn is self._history[primal]

    def _has_views(self, tensor: torch.Tensor) -> bool:
        values = [t for n in self.captured if n in self.env for t in tensors_of(self.env[n])]
        return any(t is not tensor and _storage(t) == _storage(tensor) for t in values)

    def _is_resized(self, primal: int, tensor: torch.Tensor) -> bool:
        """Whether ``out=`` gave it another size, of which eager warns where there was something in it."""
        if _unwrap(tensor).shape == self.examples[primal].shape:
            return False
        if self.examples[primal].numel() or self.examples[primal].untyped_storage().nbytes():
            raise JointRefused("out= gives a tensor another size")
        return True

    def _check_windows(self) -> None:
        """What `as_strided` counts in is the memory of eager's tensor, and that of a value after a write is another."""
        windows = [n for n in self.captured if getattr(n.target, "__name__", n.target) == "as_strided"]
        shown = [t.elem for n in windows for t in tensors_of(self.env[n]) if isinstance(t, FunctionalTensor)]
        if any(_has_data_mutation(t) for t in shown):
            raise JointRefused("the graph writes to memory that as_strided looks at")

    def _data_taken(self) -> list[fx.Node]:
        return [n for n in self.captured if n.target is getattr and n.args[1] == "data"]

    def _base(self, node: fx.Node) -> tuple[fx.Node, tuple[View, ...]]:
        """The node whose memory `node` shows, and the views that lead from there to `node`."""
        views: list[View] = []
        self._check_shape(node)
        while (source := self._alias_source(node)) is not None:
            made = node
            node, steps = self._step(node, source)
            if self.env[made] is not self.env[node]:
                views += reversed(steps)
            self._check_shape(node)
        return node, tuple(reversed(views))

    def _step(self, node: fx.Node, source: fx.Node) -> tuple[fx.Node, list[View]]:
        """From `node`, which shares memory with its argument `source`: a node that is nearer to the memory, and the
        views that lead from that to `node`."""
        if self.env[source] is self.env[node]:
            return source, []
        maker, pick = node, None
        if node.target is operator.getitem and not isinstance(self.env[source], torch.Tensor):
            maker, pick = source, int(node.args[1])  # type: ignore[arg-type]
        if maker is node and self._is_view_of_first(node, source):
            return source, [self._replay(node)]
        if pick is not None and (first := self._alias_source(maker)) and self._is_view_of_first(maker, first):
            return source, [self._replay(node)]
        return self._traced_step(maker, pick, node, source)

    def _is_view_of_first(self, node: fx.Node, source: fx.Node) -> bool:
        """Whether a view can be run again by its name: of its first argument alone."""
        tensors = [n for n in node.all_input_nodes if not is_symbolic(self.env[n])]
        return tensors == [source] and source is node.args[0]

    def _replay(self, node: fx.Node) -> View:
        """The view `node`, to be run again on its first argument."""
        first = node.args[0]
        args, kwargs = fx.map_arg((node.args[1:], node.kwargs), lambda n: BASE if n is first else self.env[n])
        return View(node, self._grad_mode[node], args, kwargs)

    def _traced_step(
        self, maker: fx.Node, pick: int | None, node: fx.Node, source: fx.Node
    ) -> tuple[fx.Node, list[View]]:
        """What an operation of several tensors made, by the chain of PyTorch's views that it is made of."""
        args, kwargs = fx.map_arg((maker.args, maker.kwargs), self.env.__getitem__)
        run = maker.target if maker.op == "call_function" else getattr(torch.Tensor, str(maker.target))
        found = view_chains.chain(run, args, kwargs, pick, self.fake_mode)  # type: ignore[arg-type]
        base = found and next((n for n in maker.all_input_nodes if self.env[n] is found[0]), None)
        if found is None or base is None:
            raise JointRefused(f"{node.name} shares memory with {source.name} by more than a view")
        grad = self._grad_mode[maker]
        return base, [View(maker, grad, step.args, step.kwargs, step) for step in found[1]]

    def _alias_source(self, node: fx.Node) -> fx.Node | None:
        """The argument that `node` is a view of, or the same tensor as; None if its memory is its own."""
        mine = {_storage(t) for t in tensors_of(self.env[node])}
        for argument in node.all_input_nodes:
            value = self.env[argument]
            if not any(_storage(t) in mine for t in tensors_of(value)):
                continue
            # an element of a tuple is a view only where the operator that made the tuple is one
            if isinstance(value, torch.Tensor) or self._alias_source(argument) is not None:
                return argument
        return None

    def _check_shape(self, node: fx.Node) -> None:
        if self._shapes[node] != [(t.shape, t.stride()) for t in tensors_of(self.env[node])]:
            raise JointRefused(f"the graph changes the shape of {node.name} in place")


def random_between(
    x: torch.Tensor, low: int, high: int | None, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    """A decomposition of aten.random.from into the overload that begins at zero."""
    if high is None or high - low > _exact_to(x.dtype) or max(abs(low), abs(high)) > _exact_to(x.dtype):
        raise JointRefused(f"random_({low}, {high}) has no name in Python as a functional operator")
    drawn: torch.Tensor = torch.ops.aten.random.to(x, high - low, generator=generator)
    return drawn + low if low else drawn


def _exact_to(dtype: torch.dtype) -> int:
    """The greatest number to which every whole number is one of `dtype`."""
    if dtype.is_floating_point:
        return int(2 / torch.finfo(dtype).eps)
    return 1 if dtype == torch.bool else torch.iinfo(dtype).max


def _reached(output: torch.Tensor, edges: Mapping[int, Any]) -> frozenset[int]:
    """The primals to which autograd brings a gradient from `output`, be it of zeros."""
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


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors in a node's value, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_of(v)]
    return []


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether two elements may lie in one place."""
    dims = sorted((hint(stride), hint(size)) for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    extent = 1
    for stride, size in dims:
        if size > 1 and stride < extent:
            return True
        extent += max(size - 1, 0) * stride
    return False


def _order_in_memory(tensor: torch.Tensor) -> list[int] | None:
    """The dimensions from the one of the widest steps to that of the smallest; None where elements do not lie so."""
    long = [d for d, n in enumerate(tensor.shape) if hint(n) > 1]
    order = sorted(long, key=lambda d: -hint(tensor.stride(d)))
    reached = 1
    for d in reversed(order):
        if hint(tensor.stride(d)) != reached:
            return None
        reached *= hint(tensor.shape[d])
    return [d for d in range(tensor.dim()) if d not in long] + order


def _unwrap(tensor: torch.Tensor) -> torch.Tensor:
    if not isinstance(tensor, FunctionalTensor):
        return tensor
    return tensor.from_functional()


@contextmanager
def plain_grad_state() -> Iterator[None]:
    """Leave grad mode as it was found, and out of inference mode, whose tensors autograd cannot use."""
    before = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.set_grad_enabled(before):
        yield

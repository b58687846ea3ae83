"""Translates the nodes of a graph: each to a view, a loop nest, a call of PyTorch's operator, or a number.

Every tensor is a view (`ir.TensorView`) of a buffer, so a view operator has no step.  An operator without a lowering
rule, or with a rule that raises `NotLowered`, becomes a call of PyTorch's operator; that is never an error.  Buffers
have the sizes and strides of eager's tensors (``meta["val"]``).
"""

from __future__ import annotations

import itertools
import operator
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from compiler_core.errors import set_error_location
from compiler_core.loops import ir
from compiler_core.loops.lower import (  # noqa: F401  (they fill the table of rules)
    arithmetic,
    creation,
    indexing,
    pointwise,
    reductions,
    scattering,
)
from compiler_core.loops.lower.body import RULES, Body, NotLowered, Operand, Rule, UserRule
from compiler_core.loops.lower.scattering import write_in_place
from compiler_core.records import ItemId
from compiler_core.support import opaque_ops
from compiler_core.support.fx_graphs import graph_tensors, target_name
from compiler_core.support.fx_symbols import SizeConverter, SymbolDefinition, hint, is_symbolic
from compiler_core.support.interrupts import safe_point
from compiler_core.support.node_facts import (
    communicates,
    has_effects,
    is_collective,
    is_random,
    is_wait,
    must_run,
    runs_to_raise,
)
from compiler_core.support.operators import Fact, facts
from compiler_core.support.size_expr import Int, Real, Undecided, prod, span, symbols_in
from compiler_core.support.tensors import tensors_in
from compiler_core.torch_private import FakeTensor, OpOverload

aten = torch.ops.aten


def lower(
    gm: fx.GraphModule,
    name: str,
    languages: ir.Languages = ir.LANGUAGES,
    replayed: bool = False,
    user_rules: Mapping[str, UserRule] = types.MappingProxyType({}),
) -> ir.Program:
    """Lowers a graph to a program.

    Args:
        gm: a functional graph of aten operators.
        name: the name of the program, ``forward`` or ``backward``.
        languages: the device types that have kernels; operators on other devices become calls.
        replayed: whether the launches of the program may be recorded as a CUDA graph.
        user_rules: rules of the user by the text of their operator, which come before the usual ones.

    Steps that neither a result nor an effect needs are left out.
    """
    lowering = _GraphLowering(gm, name, languages, replayed, user_rules)
    for node in gm.graph.nodes:
        safe_point()
        try:
            lowering.node(node)
        except Exception as error:
            set_error_location(error, [node.meta["item"]] if "item" in node.meta else ())
            raise
    return write_in_place(lowering.program())


class _GraphLowering:
    """The program under construction; `env` has the value of each node lowered so far."""

    def __init__(
        self,
        gm: fx.GraphModule,
        name: str,
        languages: ir.Languages,
        replayed: bool,
        user_rules: Mapping[str, UserRule],
    ) -> None:
        self._gm, self._name, self._languages, self._replayed = gm, name, languages, replayed
        self._user_rules = user_rules
        self._communicates = communicates(gm.graph)
        self._for_gpu = any(tensor.is_cuda for tensor in graph_tensors(gm))
        self._names = {node.name for node in gm.graph.nodes}
        self._numbers = itertools.count()
        self._buffers: dict[str, ir.Buffer] = {}
        self._inputs: list[str] = []
        self._constants: dict[str, Any] = {}
        self._number_inputs: dict[str, int | float] = {}
        self._tapes: dict[str, opaque_ops.FakeTape] = {}
        self._steps: list[ir.Step] = []
        self._targets: dict[str, Any] = {}  # of the calls, by name
        self._results: tuple[Any, ...] = ()
        self._sizes = SizeConverter(gm.graph.find_nodes(op="placeholder"), self._names)
        self.env: dict[fx.Node, Any] = {}

    def program(self) -> ir.Program:
        """Returns the program of the nodes lowered so far, without dead code."""
        live = _live_steps(self._steps, self._results)
        return ir.Program(
            self._name,
            self._buffers,
            tuple(self._inputs),
            tuple(live),
            self._results,
            self._constants,
            self._sizes.definitions,
            self._number_inputs,
            self._tapes,
            self._languages,
            self._new_values(),
            self._gm.meta.get("is_alone", False),
        )

    def _new_values(self) -> dict[str, str]:
        """Returns, for each buffer that is the new value of an input, the name of that input."""
        outputs = self._gm.graph.output_node().all_input_nodes
        found = ((self.env[n], n.meta["new_value_of"]) for n in outputs if "new_value_of" in n.meta)
        return {view.buffer: given for view, given in found if isinstance(view, ir.TensorView) and view.buffer != given}

    def node(self, node: fx.Node) -> None:
        """Lowers one node."""
        if node.op == "placeholder":
            self._inputs.append(node.name)
            value: Any = node.meta.get("val")
            if opaque_ops.is_tape(node):
                self._tapes[node.name] = value
            elif not isinstance(value, torch.Tensor):
                self._number_inputs[node.name] = hint(value)
        if is_symbolic(node.meta.get("val")):
            self.env[node] = self._number(node)
        elif node.op == "placeholder":
            self.env[node] = self._result(node, "input")
        elif node.op == "get_attr":
            self._constants[node.name] = operator.attrgetter(str(node.target))(self._gm)
            self.env[node] = self._result(node, "constant")
        elif node.op == "output":
            results = node.args[0]
            self._results = tuple(self._argument(results if isinstance(results, (list, tuple)) else (results,)))
        elif is_view(node):
            self.env[node] = self._view(node)
        elif (selected := self._selected_view(node)) is not None:
            self.env[node] = selected
        else:
            lowered = self._loops(node)
            self.env[node] = self._call(node, lowered) if isinstance(lowered, str) else lowered

    def _number(self, node: fx.Node) -> Int | Real:
        """Returns a number that Python computes: an integer as an expression, another number by name."""
        if isinstance(node.meta["val"], torch.SymInt):
            return self._sizes.convert(node.meta["val"])
        args = self._argument(node.args)
        text = f"{target_name(node.target)}({', '.join(map(repr, args))})" if node.op == "call_function" else node.name
        self._sizes.definitions[node.name] = SymbolDefinition(text, frozenset(symbols_in(args)))
        return Real(node.name)

    def _loops(self, node: fx.Node) -> ir.TensorView | list[ir.TensorView] | str:
        """Lowers the node by its rule; returns its results, or why it becomes a call (empty if there is no rule)."""
        target: Any = node.target
        rule, user_rule = RULES.get(target), self._user_rules.get(str(target))
        if rule is None and user_rule is None:
            return ""
        if runs_to_raise(node):
            return "only its error is wanted, if it raises one"
        if is_random(node) and self._name != "forward":
            return "a backward cannot be left to PyTorch once it runs"
        if self._replayed and is_random(node) and any(tensor.is_cuda for tensor in tensors_in(node.meta.get("val"))):
            return "a CUDA graph would draw the same numbers at each replay; PyTorch's own kernels draw new ones"
        why = unsupported(node, self._languages, self._for_gpu, self._sizes)
        if why:
            return why
        if user_rule is not None:
            try:
                return self._loops_by(user_rule.lower, node)
            except Exception as error:
                user_rule.failed(error)
        try:
            return self._loops_by(rule, node) if rule else ""
        except NotLowered as why:
            return str(why)
        except Undecided as why:
            return f"{why} depends on symbolic sizes"

    def _loops_by(self, rule: Rule, node: fx.Node) -> ir.TensorView | list[ir.TensorView]:
        """Lowers the node by a rule; raises what the rule raises."""
        target: Any = node.target
        args: Any = fx.node.map_aggregate(node.args, self._operand)
        kwargs: Any = fx.node.map_aggregate(dict(node.kwargs), self._operand)
        buffer, *others = results = self._results_of(node)
        reduced = (args[0], reductions.reduced_dims(*args, **kwargs)) if target in reductions.REDUCING else None
        read = _takers(node)
        kept = [other if at in read else None for at, other in enumerate(others, 1)]
        scans = target in reductions.SCANS
        body = Body(node.name, buffer, self._fresh, origin_of(node), reduced, kept, scans)
        rule(body, *args, **kwargs)
        nests = [part.loops() for part in (body, *body.updates)]
        if self._communicates and (body.draws or any(loops.may_fail for loops in nests)):
            raise NotLowered("its kernel may need the graph to run again, and other ranks would not repeat collectives")
        for loops in nests:
            ir.check(loops)
        self._steps += [*body.draws, *nests]
        self._buffers |= {each.name: each for each in results}
        return [_whole(each) for each in results] if others else _whole(buffer)

    def _results_of(self, node: fx.Node) -> list[ir.Buffer]:
        """Returns the buffers of the node's results; each of several has the name of the node that reads it."""
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            return [self._buffer(node, value, "loops")]
        takers = _takers(node)
        buffers = [self._buffer(takers.get(at, node), each, "loops") for at, each in enumerate(value)]
        return [replace(b, name=b.name if at in takers else f"{node.name}_{at}") for at, b in enumerate(buffers)]

    def _call(self, node: fx.Node, reason: str = "") -> ir.TensorView | ir.Result:
        args, kwargs = self._argument(node.args), self._argument(dict(node.kwargs))
        target: Any = node.target
        if Fact.UNINITIALISED in facts(target) and is_plain(node.meta["val"]):
            value = node.meta["val"]
            target, args = aten.empty_strided.default, self._sizes_and_strides(value)
            kwargs = {"dtype": value.dtype, "device": value.device}
        elif target is aten.bernoulli.p and is_drawn_by_us(node):
            target, args = ir.draw_bernoulli, args[1:]
        kwargs = _with_numbered_device(kwargs, node.meta.get("val"))
        if node.op == "call_method":
            target, args = operator.methodcaller(str(node.target), *args[1:], **kwargs), args[:1]
            kwargs = {}
        elif node.op == "call_module":
            target = self._gm.get_submodule(str(node.target))
        reads = tuple(dict.fromkeys(_names_in((args, kwargs))))
        ordered, barrier = call_effects(node)
        origin = origin_of(node)
        call = ir.Call(
            node.name, target, args, kwargs, reads, ordered, barrier, origin, reason, unused_bytes=unused_bytes(node)
        )
        self._steps.append(call)
        self._targets[node.name] = target
        waited = args[0] if is_wait(node) else None  # it returns its argument
        return waited if isinstance(waited, ir.TensorView) else self._result(node, "call")

    def _view(self, node: fx.Node) -> Any:
        """Returns the results of a view operator as views of the buffer of its first argument.

        The operator is run on a tensor without data, because the offset of fake tensors is not reliable.
        """
        target: Any = node.target
        if runs_to_raise(node):
            return self._call(node)
        base = self._argument(node.args[0])
        if not isinstance(base, ir.TensorView) or any(not is_symbolic(n.meta["val"]) for n in node.all_input_nodes[1:]):
            return self._call(node)
        source, *numbers = node.all_input_nodes
        symbolic = bool(numbers) or any(symbols_in([base.size, base.stride]))
        if symbolic and (base.size, base.stride) != self._sizes_and_strides(source.meta["val"]):
            return self._call(node)
        if symbolic and Fact.SAME_START in facts(target):
            return ir.TensorView(base.buffer, *self._sizes_and_strides(node.meta["val"]), base.offset)
        empty = self._without_data(base, source.meta["val"], symbolic)
        args, kwargs = fx.map_arg((node.args[1:], node.kwargs), lambda n: n.meta["val"])
        result = target(empty, *args, **kwargs)
        is_window = target is aten.as_strided.default
        # x[2:].as_strided(n, 1, 0) begins at the start of the memory, not of the view
        start = 0 if is_window and _is_placed(args, kwargs) else base.offset

        def view_of(out: torch.Tensor) -> ir.TensorView:
            offset = start + self._sizes.convert(out.storage_offset())
            return ir.TensorView(base.buffer, *self._sizes_and_strides(out), offset)

        if is_window and not self._is_inside(view_of(result), _is_placed(args, kwargs)):
            return self._call(node)
        return view_of(result) if isinstance(result, torch.Tensor) else [view_of(v) for v in result]

    def _is_inside(self, window: ir.TensorView, is_placed: bool) -> bool:
        """Whether an `as_strided` view shows only elements of its buffer.

        An input or the result of a call may lie anywhere in memory, and have more memory than its elements: PyTorch
        makes such a view, or raises an error if it is outside.
        """
        buffer = self._buffers[window.buffer]
        if buffer.kind == "loops":
            return True  # `OutputPlan` refuses others
        ends = [window.offset + span(window.size, window.stride), span(buffer.size, buffer.stride)]
        return not is_placed and all(isinstance(end, int) for end in ends) and ends[0] <= ends[1]

    def _without_data(self, view: ir.TensorView, value: torch.Tensor, symbolic: bool) -> torch.Tensor:
        """Returns a tensor without data with the sizes and strides of `view`, or of `value` if these are symbolic."""
        dtype = self._buffers[view.buffer].dtype
        if not symbolic:
            return torch.empty_strided(view.size, view.stride, dtype=dtype, device="meta")  # type: ignore[arg-type]
        assert isinstance(value, FakeTensor)
        with value.fake_mode:
            return torch.empty_strided(value.shape, value.stride(), dtype=dtype, device=value.device)

    def _sizes_and_strides(self, value: torch.Tensor) -> tuple[tuple[Int, ...], tuple[Int, ...]]:
        return self._ints(value.shape), self._ints(value.stride())

    def _ints(self, values: Iterable[Any]) -> tuple[Int, ...]:
        return tuple(map(self._sizes.convert, values))

    def _layout(self, value: torch.Tensor) -> tuple[tuple[Int, ...], tuple[Int, ...]]:
        """Returns the tensor's sizes and strides; those of a tensor of one element or none as if it were contiguous."""
        size = self._ints(value.shape)
        if prod(size) in (0, 1):
            value = torch.empty(value.shape, device="meta")
        return size, self._ints(value.stride())

    def _selected_view(self, node: fx.Node) -> Any:
        """Returns the view that a ``getitem`` node selects from those of a view operator, otherwise None."""
        if node.target is operator.getitem:
            of, index = node.args
            known = self.env[of] if isinstance(of, fx.Node) else None
            if isinstance(known, list) and isinstance(index, int):
                return known[index]
        return None

    def _result(self, node: fx.Node, kind: Any) -> ir.TensorView | ir.Result:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_nested:
            return ir.Result(node.name)
        self._buffers[node.name] = self._buffer(node, value, kind)
        return _whole(self._buffers[node.name])

    def _buffer(self, node: fx.Node, value: torch.Tensor, kind: Any) -> ir.Buffer:
        size, stride = self._layout(value)
        return ir.Buffer(node.name, value.dtype, size, stride, value.device, kind, origin_of(node))

    def _argument(self, value: Any) -> Any:
        return fx.node.map_aggregate(value, lambda v: self.env[v] if isinstance(v, fx.Node) else v)

    def _operand(self, value: Any) -> Any:
        if not isinstance(value, fx.Node):
            return value
        known = self.env[value]
        if not isinstance(known, ir.TensorView):
            return known
        return Operand(known, value.meta["val"].dtype, self._is_aligned(known.buffer))

    def _is_aligned(self, name: str) -> bool | None:
        """Whether the buffer starts at an address that PyTorch's allocator returned; None for an input."""
        kind = self._buffers[name].kind
        if kind == "call":
            target = self._targets.get(name)
            returns = target._schema.returns if isinstance(target, OpOverload) else ()
            return len(returns) == 1 and returns[0].alias_info is None
        return None if kind == "input" else kind == "loops"

    def _fresh(self) -> str:
        """Returns a new name for a value, ``v0``, ``v1``, ..., that no node has."""
        names = (f"v{n}" for n in self._numbers)
        return next(name for name in names if name not in self._names)


def _takers(node: fx.Node) -> dict[Any, fx.Node]:
    """Returns the nodes that select a result of several, if they are used, by its number."""
    return {user.args[1]: user for user in node.users if user.target is operator.getitem and user.users}


def _with_numbered_device(kwargs: Any, result: Any) -> Any:
    """Replaces a device without a number by the device of the result `result`.

    A device without a number is the current one when the graph runs, which may differ between forward and backward.
    """
    device = kwargs.get("device")
    if isinstance(device, torch.device) and device.index is None and isinstance(result, torch.Tensor):
        return {**kwargs, "device": result.device}
    return kwargs


def _live_steps(steps: list[ir.Step], results: tuple[Any, ...]) -> list[ir.Step]:
    """Dead-code elimination: returns the steps that the results or an effect depend on."""
    wanted = set(_names_in(results))
    kept: list[ir.Step] = []
    for step in reversed(steps):
        effect = isinstance(step, ir.Call) and (step.ordered or step.barrier)
        if effect or wanted.intersection(step.writes):
            wanted.update(step.reads)
            kept.append(step)
    return kept[::-1]


def _names_in(value: Any) -> list[str]:
    """Returns the names of the buffers and results in nested arguments."""
    found: list[Any] = []
    fx.node.map_aggregate(value, found.append)
    named = (each for each in found if isinstance(each, ir.TensorView | ir.Result))
    return [each.buffer if isinstance(each, ir.TensorView) else each.name for each in named]


def _whole(buffer: ir.Buffer) -> ir.TensorView:
    return ir.TensorView(buffer.name, buffer.size, buffer.stride)


def _is_placed(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call of `as_strided` says where its view begins."""
    return len(args) > 2 or kwargs.get("storage_offset") is not None


UNSAFE_VIEWS = {aten._unsafe_view.default}
"""Operators that alias their input, although their schema does not declare it."""
WITH_MEMORY = ("cpu", "cuda")
"""The devices on which tensors are treated as strided views of buffers; on others, PyTorch's operators make views."""


def unsupported(node: fx.Node, languages: ir.Languages, for_gpu: bool, sizes: SizeConverter) -> str:
    """Returns why loops cannot hold the tensors of a node; empty if they can.

    Loops have strided tensors of real numbers, with at least one element, all on one device that has kernels.

    Args:
        languages: the device types that have kernels.
        for_gpu: whether the graph has a tensor on a GPU.
        sizes: converts PyTorch's sizes.
    """
    inputs = [n.meta.get("val") for n in node.all_input_nodes]
    result = node.meta.get("val")
    result = result if isinstance(result, (tuple, list)) else (result,)
    values: list[Any] = [*result, *(v for v in inputs if not is_symbolic(v))]
    if not all(isinstance(v, torch.Tensor) for v in values):
        return "its values are not all tensors"
    devices = list(dict.fromkeys(v.device for v in values))
    if len(devices) > 1:
        return f"its tensors are on several devices: {', '.join(map(str, devices))}"
    if devices[0].type not in languages:
        return f"there are no kernels for {devices[0].type}, only for {' and '.join(languages)}"
    if not all(map(is_plain, values)):
        return "not all of its tensors are plain strided ones"
    other_types = [str(v.dtype) for v in values if v.dtype not in ir.SHORT]
    if other_types:
        return f"the loop IR has no {other_types[0].removeprefix('torch.')}"
    shapes = [tuple(map(sizes.convert, v.shape)) for v in values]
    if for_gpu and devices[0].type == "cpu" and all(prod(shape) == 1 for shape in shapes):
        return "it is a single number on the CPU in a graph for a GPU, so no C++ kernel is built for it"
    return "one of its tensors is empty" if any(0 in shape for shape in shapes) else ""


def is_plain(value: Any) -> bool:
    """Whether `value` is a tensor that is fully described by its memory, sizes and strides.

    It is not sparse, nested or quantised, has no conjugate or negative bit, and is on a device of `WITH_MEMORY`.
    """
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.device.type not in WITH_MEMORY:
        return False
    return not (value.is_nested or value.is_quantized or value.is_conj() or value.is_neg())


def is_view(node: fx.Node) -> bool:
    """Whether a node is a view operator on plain tensors of one type."""
    target = node.target
    if not isinstance(target, OpOverload) or not (target.is_view or target in UNSAFE_VIEWS):
        return False
    base = node.args[0].meta.get("val") if node.args and isinstance(node.args[0], fx.Node) else None
    value = node.meta.get("val")
    outs = value if isinstance(value, (list, tuple)) else [value]
    values = [v for v in (base, *outs) if isinstance(v, torch.Tensor)]
    return all(map(is_plain, values)) and len(values) == 1 + len(outs) and len({v.dtype for v in values}) == 1


def call_effects(node: fx.Node) -> tuple[bool, bool]:
    """Whether a call is `ordered` and whether it is a `barrier`; see `ir.Call`."""
    target = node.target
    if target is operator.getitem or is_symbolic(node.meta.get("val")) or target is opaque_ops.tape_gradients:
        return False, False
    if opaque_ops.opaque_operator(node) is not None:
        return must_run(node), False
    if not isinstance(target, OpOverload):
        return True, True
    if is_collective(node):
        return True, True
    ordered = is_random(node) or has_effects(node) or runs_to_raise(node)
    return ordered, target._schema.is_mutable or not target._schema.returns


def is_drawn_by_us(node: fx.Node) -> bool:
    """Whether a ``bernoulli`` draws from the CPU's default generator into contiguous memory.

    Only the shape of its argument matters.
    """
    value = node.meta["val"]
    return value.device.type == "cpu" and value.is_contiguous() and node.kwargs.get("generator") is None


def unused_bytes(node: fx.Node) -> int:
    """Returns the bytes of the tensors in the node's tuple result that no other node reads."""
    value = node.meta.get("val")
    taken = {user.args[1] for user in node.users if user.target is operator.getitem}
    left = [t for i, t in enumerate(value) if i not in taken] if isinstance(value, (tuple, list)) else []
    return sum(hint(t.numel()) * t.dtype.itemsize for t in left if isinstance(t, torch.Tensor))


def origin_of(node: fx.Node) -> tuple[ItemId, ...]:
    """Returns the items of the record that a node comes from."""
    item = node.meta.get("item")
    return (item,) if item else tuple(node.meta.get("origin", ()))

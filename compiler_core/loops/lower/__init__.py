"""Lowering: a graph of aten operations to loops, one for each operation, and calls.

Every tensor becomes a window (`ir.View`) on a buffer, so a view operation makes nothing, and
what has no rule, or a rule that refuses, becomes a call of PyTorch's kernel: that is never an
error.  Buffers have the sizes and strides that eager's tensors have (``meta["val"]``).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor

from compiler_core.errors import came_from
from compiler_core.loops import ir
from compiler_core.loops.lower import creation, dropout, indexing, parts, pointwise, pooling, reductions, scattering  # noqa: F401  (they fill the table)
from compiler_core.loops.lower.body import Body
from compiler_core.loops.lower.in_place import write_in_place
from compiler_core.loops.lower.table import RULES, NotLowered, Operand
from compiler_core.records import ItemId
from compiler_core.support import opaque_ops
from compiler_core.support.fx_graphs import target_name, tensors_in
from compiler_core.support.fx_symbols import Definition, Sizes, hint, is_symbolic
from compiler_core.support.interrupts import safe_point
from compiler_core.support.operator_facts import is_random
from compiler_core.support.size_expr import Int, Real, prod, symbols_in

__all__ = ["NotLowered", "lower"]

aten = torch.ops.aten
UNSAFE_VIEWS = {aten._unsafe_view.default}
"""Operations that alias their input although their schema does not say so."""
SAME_START = {
    *(aten.view.default, aten._unsafe_view.default, aten.t.default, aten.transpose.int, aten.permute.default),
    *(aten.expand.default, aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims),
}
"""Views whose first element is that of their input."""
EMPTY = {aten.empty_like.default, aten.new_empty.default, aten.new_empty_strided.default}
"""Operations that look at their input's shape and type only."""
WITH_MEMORY = ("cpu", "cuda")
"""Devices whose tensors are windows on memory; of others, PyTorch's operators make the views."""


def lower(gm: fx.GraphModule, name: str, languages: ir.Languages = ir.LANGUAGES) -> ir.Program:
    """`gm` as loops, on the devices that have kernels by `languages`, and calls; what nothing needs is left out."""
    lowering = _Lowering(gm, name, languages)
    for node in gm.graph.nodes:
        safe_point()
        try:
            lowering.node(node)
        except Exception as error:
            came_from(error, [node.meta["item"]] if "item" in node.meta else ())
            raise
    return write_in_place(lowering.program(), lowering.new_values())


class _Lowering:
    """The program while it grows; `env` holds what each node became."""

    def __init__(self, gm: fx.GraphModule, name: str, languages: ir.Languages) -> None:
        self._gm, self._name, self._languages = gm, name, languages
        self._beside_gpu = any(tensor.is_cuda for tensor in tensors_in(gm))
        self._names = {node.name for node in gm.graph.nodes}
        self._numbers = itertools.count()
        self._buffers: dict[str, ir.Buffer] = {}
        self._inputs: list[str] = []
        self._constants: dict[str, Any] = {}
        self._given: dict[str, int | float] = {}
        self._tapes: dict[str, opaque_ops.TapeOf] = {}
        self._steps: list[ir.Step] = []
        self._results: tuple[Any, ...] = ()
        self._sizes = Sizes(gm.graph.find_nodes(op="placeholder"), self._names)
        self.env: dict[fx.Node, Any] = {}

    def program(self) -> ir.Program:
        live = _live(self._steps, self._results)
        return ir.Program(
            self._name,
            self._buffers,
            tuple(self._inputs),
            tuple(live),
            self._results,
            self._constants,
            self._sizes.definitions,
            self._given,
            self._tapes,
            self._languages,
        )

    def new_values(self) -> dict[str, str]:
        """For each buffer that is the new value of an input, the input."""
        outputs = self._gm.graph.output_node().all_input_nodes
        found = ((self.env[n], n.meta["new_value_of"]) for n in outputs if "new_value_of" in n.meta)
        return {view.buffer: given for view, given in found if isinstance(view, ir.View) and view.buffer != given}

    def node(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            self._inputs.append(node.name)
            value: Any = node.meta.get("val")
            if opaque_ops.is_tape(node):
                self._tapes[node.name] = value
            elif not isinstance(value, torch.Tensor):
                self._given[node.name] = hint(value)
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
        elif _is_view(node):
            self.env[node] = self._view(node)
        elif isinstance(known := self._item(node), ir.View):
            self.env[node] = known
        else:
            lowered = self._loops(node)
            self.env[node] = self._call(node, lowered) if isinstance(lowered, str) else lowered

    def _number(self, node: fx.Node) -> Int | Real:
        """A number that no tensor is needed for: a whole one by its expression, another as Python computes it."""
        if isinstance(node.meta["val"], torch.SymInt):
            return self._sizes.of(node.meta["val"])
        args = self._argument(node.args)
        text = f"{target_name(node.target)}({', '.join(map(repr, args))})" if node.op == "call_function" else node.name
        self._sizes.definitions[node.name] = Definition(text, frozenset(symbols_in(args)))
        return Real(node.name)

    def _loops(self, node: fx.Node) -> ir.View | list[ir.View] | str:
        """The node's result or results by its rule, or why it is left to PyTorch, where there is a rule."""
        target: Any = node.target
        rule = RULES.get(target)
        if rule is None:
            return ""
        if is_random(node) and self._name != "forward":
            return "a backward cannot be left to PyTorch once it runs"
        if why := self._unsupported(node):
            return why
        args: Any = fx.node.map_aggregate(node.args, self._operand)
        kwargs: Any = fx.node.map_aggregate(dict(node.kwargs), self._operand)
        buffer, *others = results = self._results_of(node)
        dims = reductions.REDUCED_DIMS.get(target)
        reduced = (args[0], dims(*args, **kwargs)) if dims else None
        read = {user.args[1] for user in node.users if user.target is operator.getitem and user.users}
        try:
            kept = [other if at in read else None for at, other in enumerate(others, 1)]
            scans = target in reductions.SCANS
            body = Body(node.name, buffer, self._fresh, _origin(node), reduced, kept, scans)
            rule(body, *args, **kwargs)
        except NotLowered as why:
            return str(why)
        self._steps += body.draws
        for part in (body, *body.updates):
            loops = part.loops()
            ir.check(loops)
            self._steps.append(loops)
        self._buffers |= {each.name: each for each in results}
        return [_whole(each) for each in results] if others else _whole(buffer)

    def _results_of(self, node: fx.Node) -> list[ir.Buffer]:
        """The buffers of what `node` makes, each of several called as the node that takes it."""
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            return [self._buffer(node, value, "loops")]
        takers = {user.args[1]: user for user in node.users if user.target is operator.getitem and user.users}
        made = [self._buffer(takers.get(at, node), each, "loops") for at, each in enumerate(value)]
        return [replace(b, name=b.name if at in takers else f"{node.name}_{at}") for at, b in enumerate(made)]

    def _call(self, node: fx.Node, reason: str = "") -> ir.View | ir.Result:
        args, kwargs = self._argument(node.args), self._argument(dict(node.kwargs))
        target: Any = node.target
        if target in EMPTY and is_plain(node.meta["val"]):
            value = node.meta["val"]
            target, args = aten.empty_strided.default, self._form(value)
            kwargs = {"dtype": value.dtype, "device": value.device}
        elif target is aten.bernoulli.p and _is_drawn_by_us(node):
            target, args = ir.draw_bernoulli, args[1:]
        kwargs = _with_numbered_device(kwargs, node.meta.get("val"))
        if node.op == "call_method":
            target, args = operator.methodcaller(str(node.target), *args[1:], **kwargs), args[:1]
            kwargs = {}
        elif node.op == "call_module":
            target = self._gm.get_submodule(str(node.target))
        reads = tuple(dict.fromkeys(_names_in((args, kwargs))))
        ordered, barrier = _effects(node)
        origin = _origin(node)
        call = ir.Call(node.name, target, args, kwargs, reads, ordered, barrier, origin, reason, unnamed=_unnamed(node))
        self._steps.append(call)
        return self._result(node, "call")

    def _view(self, node: fx.Node) -> Any:
        """What a view operation returns, as windows on the buffer of its first argument.

        It is run on a tensor without data, for fake tensors need not know their offset.
        """
        target: Any = node.target
        base = self._argument(node.args[0])
        if not isinstance(base, ir.View) or any(not is_symbolic(n.meta["val"]) for n in node.all_input_nodes[1:]):
            return self._call(node)
        source, *numbers = node.all_input_nodes
        symbolic = bool(numbers) or any(symbols_in([base.size, base.stride]))
        if symbolic and (base.size, base.stride) != self._form(source.meta["val"]):
            return self._call(node)
        if symbolic and target in SAME_START:
            return ir.View(base.buffer, *self._form(node.meta["val"]), base.offset)
        empty = self._without_data(base, source.meta["val"], symbolic)
        args, kwargs = fx.map_arg((node.args[1:], node.kwargs), lambda n: n.meta["val"])
        made = target(empty, *args, **kwargs)

        def window(out: torch.Tensor) -> ir.View:
            return ir.View(base.buffer, *self._form(out), base.offset + self._sizes.of(out.storage_offset()))

        return window(made) if isinstance(made, torch.Tensor) else [window(v) for v in made]

    def _without_data(self, view: ir.View, value: torch.Tensor, symbolic: bool) -> torch.Tensor:
        """A tensor of the form of `view`, which `value` has too where something is `symbolic`."""
        dtype = self._buffers[view.buffer].dtype
        if not symbolic:
            return torch.empty_strided(view.size, view.stride, dtype=dtype, device="meta")  # type: ignore[arg-type]
        assert isinstance(value, FakeTensor)
        with value.fake_mode:
            return torch.empty_strided(value.shape, value.stride(), dtype=dtype, device=value.device)

    def _unsupported(self, node: fx.Node) -> str:
        """Why loops cannot hold all tensors of this node, if they cannot: they have plain tensors of real numbers, with
        elements, all on one device that has kernels."""
        inputs = [n.meta.get("val") for n in node.all_input_nodes]
        made = node.meta.get("val")
        made = made if isinstance(made, (tuple, list)) else (made,)
        values: list[Any] = [*made, *(v for v in inputs if not is_symbolic(v))]
        if not all(isinstance(v, torch.Tensor) for v in values):
            return "its values are not all tensors"
        devices = list(dict.fromkeys(v.device for v in values))
        if len(devices) > 1:
            return f"its tensors are on several devices: {', '.join(map(str, devices))}"
        if devices[0].type not in self._languages:
            return f"there are no kernels for {devices[0].type}, only for {' and '.join(self._languages)}"
        if not all(map(is_plain, values)):
            return "its tensors are not all plain ones, whose elements lie in memory by strides"
        if others := [str(v.dtype) for v in values if v.dtype not in ir.SHORT]:
            return f"loops have no {others[0].removeprefix('torch.')}"
        if self._beside_gpu and devices[0].type == "cpu" and all(prod(self._ints(v.shape)) == 1 for v in values):
            return "it is one number on the CPU beside a GPU, for which no C++ compiler is started"
        return "" if all(0 not in self._ints(v.shape) for v in values) else "one of its tensors is empty"

    def _form(self, value: torch.Tensor) -> tuple[tuple[Int, ...], tuple[Int, ...]]:
        return self._ints(value.shape), self._ints(value.stride())

    def _ints(self, values: Iterable[Any]) -> tuple[Int, ...]:
        return tuple(map(self._sizes.of, values))

    def _layout(self, value: torch.Tensor) -> tuple[tuple[Int, ...], tuple[Int, ...]]:
        """The tensor's sizes and strides; in a tensor of one element or none the strides say nothing."""
        size = self._ints(value.shape)
        told = value if prod(size) not in (0, 1) else torch.empty(value.shape, device="meta")
        return size, self._ints(told.stride())

    def _item(self, node: fx.Node) -> Any:
        """One of several windows that a view operation made."""
        if node.target is operator.getitem:
            of, index = node.args
            known = self.env[of] if isinstance(of, fx.Node) else None
            if isinstance(known, list) and isinstance(index, int):
                return known[index]
        return None

    def _result(self, node: fx.Node, kind: Any) -> ir.View | ir.Result:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_nested:
            return ir.Result(node.name)
        self._buffers[node.name] = self._buffer(node, value, kind)
        return _whole(self._buffers[node.name])

    def _buffer(self, node: fx.Node, value: torch.Tensor, kind: Any) -> ir.Buffer:
        size, stride = self._layout(value)
        return ir.Buffer(node.name, value.dtype, size, stride, value.device, kind, _origin(node))

    def _argument(self, value: Any) -> Any:
        return fx.node.map_aggregate(value, lambda v: self.env[v] if isinstance(v, fx.Node) else v)

    def _operand(self, value: Any) -> Any:
        if not isinstance(value, fx.Node):
            return value
        known = self.env[value]
        if not isinstance(known, ir.View):
            return known
        return Operand(known, value.meta["val"].dtype, self._is_aligned(known.buffer))

    def _is_aligned(self, name: str) -> bool | None:
        """Whether the buffer begins where PyTorch's allocator has memory begin; None of an input."""
        kind = self._buffers[name].kind
        if kind == "call":
            targets = [s.target for s in self._steps if isinstance(s, ir.Call) and s.name == name]
            schemas = [t._schema for t in targets if isinstance(t, torch._ops.OpOverload)]
            return any(len(s.returns) == 1 and s.returns[0].alias_info is None for s in schemas)
        return None if kind == "input" else kind == "loops"

    def _fresh(self) -> str:
        return next(name for n in self._numbers if (name := f"v{n}") not in self._names)


def is_plain(value: Any) -> bool:
    """Whether this is a tensor that its memory, sizes and strides tell all about: it is not sparse, nested or
    quantised, has no bit that says "conjugated" or "negated", and is on a device whose memory windows can show."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.device.type not in WITH_MEMORY:
        return False
    return not (value.is_nested or value.is_quantized or value.is_conj() or value.is_neg())


def _is_view(node: fx.Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or not (target.is_view or target in UNSAFE_VIEWS):
        return False
    base = node.args[0].meta.get("val") if node.args and isinstance(node.args[0], fx.Node) else None
    value = node.meta.get("val")
    outs = value if isinstance(value, (list, tuple)) else [value]
    values = [v for v in (base, *outs) if isinstance(v, torch.Tensor)]
    return all(map(is_plain, values)) and len(values) == 1 + len(outs) and len({v.dtype for v in values}) == 1


def _effects(node: fx.Node) -> tuple[bool, bool]:
    """Whether a call is `ordered` and whether it is a `barrier`; see `ir.Call`."""
    target = node.target
    if target is operator.getitem or is_symbolic(node.meta.get("val")) or target is opaque_ops.tape_gradients:
        return False, False
    if opaque_ops.operator_of(node) is not None:
        return is_random(node), False
    if not isinstance(target, torch._ops.OpOverload):
        return True, True
    return is_random(node), target._schema.is_mutable or not target._schema.returns


def _is_drawn_by_us(node: fx.Node) -> bool:
    """Whether a draw is one of the CPU's default generator's into memory without gaps; the tensor that it is given
    counts by its form only."""
    value = node.meta["val"]
    return value.device.type == "cpu" and value.is_contiguous() and node.kwargs.get("generator") is None


def _with_numbered_device(kwargs: Any, made: Any) -> Any:
    """The arguments with the device on which `made` was made in place of one without a number, which would mean the
    device that is current when the graph runs: a backward's may be another one than the forward's."""
    device = kwargs.get("device")
    if isinstance(device, torch.device) and device.index is None and isinstance(made, torch.Tensor):
        return {**kwargs, "device": made.device}
    return kwargs


def _unnamed(node: fx.Node) -> int:
    """Bytes of what a node returns in a tuple and no other node takes out of it."""
    value = node.meta.get("val")
    taken = {user.args[1] for user in node.users if user.target is operator.getitem}
    left = [t for i, t in enumerate(value) if i not in taken] if isinstance(value, (tuple, list)) else []
    return sum(hint(t.numel()) * t.dtype.itemsize for t in left if isinstance(t, torch.Tensor))


def _live(steps: list[ir.Step], results: tuple[Any, ...]) -> list[ir.Step]:
    """The steps that the results or an effect need."""
    wanted = set(_names_in(results))
    kept: list[ir.Step] = []
    for step in reversed(steps):
        effect = isinstance(step, ir.Call) and (step.ordered or step.barrier)
        if effect or wanted.intersection(step.writes):
            wanted.update(step.reads)
            kept.append(step)
    return kept[::-1]


def _names_in(value: Any) -> list[str]:
    """Names of the buffers and results in nested arguments."""
    if isinstance(value, ir.View):
        return [value.buffer]
    if isinstance(value, ir.Result):
        return [value.name]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, slice):
        value = [value.start, value.stop, value.step]
    return [name for v in value for name in _names_in(v)] if isinstance(value, (list, tuple)) else []


def _origin(node: fx.Node) -> tuple[ItemId, ...]:
    item = node.meta.get("item")
    return (item,) if item else tuple(node.meta.get("origin", ()))


def _whole(buffer: ir.Buffer) -> ir.View:
    return ir.View(buffer.name, buffer.size, buffer.stride)

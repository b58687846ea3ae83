"""What lowering rules are made with: `Body`, the loops of one graph node, and the table of rules.

A rule is called with the `Body` to fill and the arguments of the node: a tensor as an `Operand`, everything else as in
the graph.  It calls `body.store(value)` once for each result, or raises `NotLowered`; then the node becomes a call of
PyTorch's operator.  The decorator `lowers` enters it in the table `RULES`.

The docstring of each rule shows an operator and the loops that it is lowered to.  The examples are checked by
`tests/loops/test_docstring_examples.py`, and updated by ``python -m tests.loops.docstring_examples``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from compiler_core.loops import ir
from compiler_core.records import ItemId
from compiler_core.support.size_expr import Int, Real, Size, hint, prod
from compiler_core.torch_private import OpOverload

Rule = Callable[..., None]


class NotLowered(Exception):
    """Raised by a rule for a node that becomes a call of PyTorch's operator; the message is the reason."""


@dataclass(frozen=True)
class Operand:
    """A tensor argument: its view of a buffer, and its type."""

    view: ir.TensorView
    dtype: torch.dtype
    aligned: bool | None = False
    """Whether its buffer is known to start at an aligned address; None for an input, whose address differs by call."""


@dataclass(frozen=True)
class Element:
    """A value in a body, of the current index."""

    argument: ir.Argument
    dtype: torch.dtype
    is_number: bool = False
    """Whether it is a number that depends on symbols, not an element of a tensor."""
    is_positive: bool = False
    """Whether it is known to be greater than zero: a symbolic size."""


def refuse_bools(x: Element) -> None:
    """Raises `NotLowered` for bools, on which eager's kernel raises an error."""
    if x.dtype is torch.bool:
        raise NotLowered("eager's kernel raises on bools")


@dataclass(frozen=True)
class UserRule:
    """A lowering rule of the user; `failed` is called with the error if it raised one, and the usual rule is used."""

    lower: Rule
    failed: Callable[[Exception], None]


Number = int | float | bool
Symbolic = Size | Real
RULES: dict[OpOverload, Rule] = {}


def lowers(*targets: OpOverload) -> Callable[[Rule], Rule]:
    """Registers the decorated rule for each of `targets`.

    Raises:
        ValueError: there is a rule for one of them already.
    """

    def register(rule: Rule) -> Rule:
        for target in targets:
            if target in RULES:
                raise ValueError(f"{target} already has a lowering rule")
            RULES[target] = rule
        return rule

    return register


_DROPOUT = torch.ops.aten.native_dropout.default
COMPUTE_TYPE = {torch.bfloat16: torch.float32, torch.float16: torch.float32}


class Body:
    """The loops of one node.

    The outer indices are the dimensions of the result whose size is not 1, in the order of their strides.

    Args:
        name: the name of the loops.
        out: the buffer of the first result.
        fresh: returns a new name for a value.
        origin: the items of the record that the statements come from.
        reduced: of a reduction, its input and the reduced dimensions, which become the inner indices.
        others: the buffers of further results, of the same sizes; None for one that nothing reads.
        scans: whether the reduction is a scan, whose result has the sizes of its input.
    """

    def __init__(
        self,
        name: str,
        out: ir.Buffer,
        fresh: Callable[[], str],
        origin: tuple[ItemId, ...],
        reduced: tuple[Operand, Sequence[int]] | None = None,
        others: Sequence[ir.Buffer | None] = (),
        scans: bool = False,
    ) -> None:
        self.name, self.out, self._fresh, self._origin = name, out, fresh, origin
        self._statements: list[ir.Statement] = []
        self._loaded: dict[ir.TensorView, Element] = {}
        size, stride = out.size, out.stride
        self._inner_dims: list[int] = []
        if reduced is not None:
            operand, dims = reduced
            size = operand.view.size
            if not scans:
                stride = _kept_strides(operand.view, out, dims)
            self._inner_dims = [d for d in _dims_by_stride(operand.view.stride) if d in dims and size[d] != 1]
        self._rank = len(size)
        self._outer_dims = [d for d in _dims_by_stride(stride) if d not in self._inner_dims and size[d] != 1]
        self._size, self._stride = size, stride
        self._others = others
        self.updates: list[Body] = []
        self.draws: list[ir.Call] = []

    def add_update(self, size: Sequence[Int]) -> Body:
        """Adds loops over `size` that run after this body and update its result; see `put`."""
        strides = tuple(prod(size[d + 1 :]) for d in range(len(size)))
        space = replace(self.out, size=tuple(size), stride=strides)
        self.updates.append(Body(self.name, space, self._fresh, self._origin))
        return self.updates[-1]

    def put(self, into: ir.Buffer, at: Sequence[ir.Address], value: Element, adds: bool) -> None:
        """Replaces the element at the coordinates `at` of an existing buffer by `value`, or adds to it."""
        whole = Operand(ir.TensorView(into.name, into.size, into.stride), into.dtype)
        argument = self.cast(value, into.dtype).argument
        address = self._address_at(whole, at)
        self._statements.append(ir.Store(into.name, address, argument, self._origin, "+=" if adds else "put"))

    def operand(self, operand: Operand) -> Element:
        """Returns the element of `operand` that broadcasts to the current index."""
        if operand.view not in self._loaded:
            address = self._address(operand.view)
            load = ir.Load(self._fresh(), operand.dtype, operand.view.buffer, address, self._origin)
            self._loaded[operand.view] = self._add(load)
        return self._loaded[operand.view]

    def coordinate(self, dim: int, step: Int = 1, start: Int = 0) -> ir.Address:
        """Returns ``start + step * index``, where `index` is that of dimension `dim` of the result."""
        return ir.Address(tuple(step if d == dim else 0 for d in (*self._outer_dims, *self._inner_dims)), start)

    def index(self, dim: int, step: Int = 1, start: Int = 0) -> Element:
        """Returns `coordinate` as an int64 value."""
        return self.coordinate_value(self.coordinate(dim, step, start))

    def coordinate_value(self, coordinate: ir.Address) -> Element:
        """Returns any coordinate as an int64 value."""
        return self._add(ir.Index(self._fresh(), torch.int64, coordinate, self._origin))

    def position(self, value: Element, size: Int, wraps: bool) -> ir.Address:
        """Returns a coordinate that is read from a tensor, in a dimension of size `size`.

        With `wraps`, negative values count from the end.
        """
        value = self.cast(value, torch.int64)
        if wraps:
            wrapped = self.op("add", value, self.number(size, torch.int64))
            value = self.op("where", self.op("lt", value, 0), wrapped, value)
        position = self._add(ir.Position(self._fresh(), value.argument, size, self._origin))
        assert isinstance(position.argument, str)
        return ir.Address(self.coordinate(-1).strides, 0, ((position.argument, 1),))

    def load(self, operand: Operand, at: Sequence[ir.Address], within: Sequence[ir.Range] = ()) -> Element:
        """Returns the element of `operand` at the coordinates `at`; undefined if a range of `within` does not hold."""
        address = self._address_at(operand, at)
        name, buffer = self._fresh(), operand.view.buffer
        return self._add(ir.Load(name, operand.dtype, buffer, address, self._origin, tuple(within)))

    def _address_at(self, operand: Operand, at: Sequence[ir.Address]) -> ir.Address:
        address = ir.Address(self.coordinate(-1).strides, operand.view.offset)
        for coordinate, size, stride in zip(at, operand.view.size, operand.view.stride, strict=True):
            if stride == 0 and size != 1 and coordinate.values:
                raise NotLowered("indices into an expanded dimension")
            if coordinate.values:  # kept for a size of 1 too, so that the position is checked
                address = address + coordinate * (stride if size != 1 else 1)
            elif size != 1:
                address = address + coordinate * stride
        return address

    def reduced_index(self) -> Element:
        """Returns the row-major number of the current element among those that are reduced."""
        strides: list[Int] = [0] * len(self._outer_dims)
        for d in self._inner_dims:
            strides.append(prod(self._size[k] for k in self._inner_dims if k > d))
        small = isinstance(self.inner_numel, int) and self.inner_numel < 2**31
        kind = torch.int32 if small else torch.int64  # int32 is as wide as a float, so it is vectorised alike
        return self._add(ir.Index(self._fresh(), kind, ir.Address(tuple(strides)), self._origin))

    def number(self, value: Number | Symbolic, dtype: torch.dtype) -> Element:
        """Returns a number as `dtype`; one that depends on symbols is computed in the kernel."""
        if isinstance(value, Real):
            return self.cast(self._add(ir.Scalar(self._fresh(), value, self._origin)), dtype)
        if not isinstance(value, Size):
            return literal(value, dtype)
        strides = (0,) * (len(self._outer_dims) + len(self._inner_dims))
        index = ir.Index(self._fresh(), torch.int64, ir.Address(strides, value), self._origin)
        return self.cast(self._add(index), dtype)

    def op(self, op: str, *args: Element | Number | Symbolic, dtype: torch.dtype | None = None) -> Element:
        """Applies an operation of `ir.OPS`; numbers are converted to the type of the other arguments."""
        of = args[1:] if op == "where" else args
        kind = dtype or next((a.dtype for a in of if isinstance(a, Element)), None)
        if kind is None:
            raise NotLowered("an operation on numbers alone")
        values = [a if isinstance(a, Element) else self.number(a, kind) for a in args]
        result_type = torch.bool if op in ir.COMPARISONS else kind
        return self._add(ir.Compute(self._fresh(), result_type, op, tuple(v.argument for v in values), self._origin))

    def cast(self, value: Element | Number | Symbolic, dtype: torch.dtype) -> Element:
        """Casts `value` to `dtype`, unless it has that type."""
        if not isinstance(value, Element):
            return self.number(value, dtype)
        if value.dtype == dtype:
            return value
        if dtype in COMPUTE_TYPE and value.dtype is not torch.float32:
            # the hardware converts other types to a half type through float32
            value = self.cast(value, torch.float32)
        elif value.dtype in COMPUTE_TYPE and dtype is not torch.float32:
            value = self.cast(value, torch.float32)
        return self._add(ir.Compute(self._fresh(), dtype, "cast", (value.argument,), self._origin))

    def reduce(self, op: str, value: Element, kind: type[ir.Reduce | ir.Scan] = ir.Reduce) -> Element:
        """Reduces `value` over the inner indices, or scans it."""
        if self._inner_dims:
            return self._add(kind(self._fresh(), value.dtype, op, value.argument, self._origin))
        # one element is its reduction, but sums begin at 0, so that one of -0.0 is 0.0
        return self.op("add", value, 0) if op == "sum" and value.dtype.is_floating_point else value

    def uniform(self, vector: int, numel: int, device: int, given: ir.TensorView | None) -> Element:
        """Returns the float32 random number that dropout of `numel` elements draws for the current element.

        `vector` is the number of adjacent elements that a thread of eager's kernel computes at a time, provided that
        `given`, a view of an input, starts at an aligned address.
        """
        names = tuple(f"{self.name}_{part}" for part in ("seed", "offset", "threads"))
        call = ir.Call(self.name, _DROPOUT, (given, numel, device), {}, (), True, False, self._origin, "", names)
        self.draws.append(call)
        numbers = [self._add(ir.Scalar(self._fresh(), Real(n), self._origin, torch.int64)) for n in names]
        position = self.coordinate_value(self._result_address())
        arguments = [v.argument for v in (position, *numbers)]
        arguments.append(ir.Literal(vector, torch.int32))
        return self._add(ir.Compute(self._fresh(), torch.float32, "uniform", tuple(arguments), self._origin))

    def store(self, value: Element | Number | Symbolic, result: int = 0) -> None:
        """Stores result number `result` of the node, cast to its type.  The first result is stored last."""
        out = (self.out, *self._others)[result]
        if out is None:
            return
        value = self.cast(value, out.dtype)
        last = self._statements[-1] if self._statements else None
        if isinstance(last, (ir.Compute, ir.Reduce, ir.Scan)) and last.name == value.argument:
            self._statements[-1] = replace(last, name=out.name)
            value = Element(out.name, value.dtype)
        self._statements.append(ir.Store(out.name, self._result_address(), value.argument, self._origin))

    def _result_address(self) -> ir.Address:
        return ir.Address(tuple(self._stride[d] for d in (*self._outer_dims, *self._inner_dims)))

    def loops(self) -> ir.Loops:
        outer, inner = (tuple(self._size[d] for d in dims) for dims in (self._outer_dims, self._inner_dims))
        return ir.Loops(self.name, outer, inner, ir.eliminate_dead_code(self._statements))

    @property
    def has_several_results(self) -> bool:
        return bool(self._others)

    @property
    def is_reduced(self) -> bool:
        """Whether there are inner indices."""
        return bool(self._inner_dims)

    @property
    def inner_numel(self) -> Int:
        return prod(self._size[d] for d in self._inner_dims)

    def _add(self, statement: ir.ValueStatement) -> Element:
        self._statements.append(statement)
        return Element(statement.name, statement.dtype)

    def _address(self, view: ir.TensorView) -> ir.Address:
        missing = self._rank - len(view.size)
        strides = []
        for d in (*self._outer_dims, *self._inner_dims):
            at = d - missing
            if at >= 0 and view.size[at] not in (1, self._size[d]):
                raise NotLowered(f"sizes {view.size} do not broadcast to {self._size}")
            strides.append(view.stride[at] if at >= 0 and view.size[at] != 1 else 0)
        return ir.Address(tuple(strides), view.offset)


def literal(value: Number, dtype: torch.dtype) -> Element:
    """Returns a literal of `value` rounded to `dtype`, so that every language prints the same number."""
    if dtype is torch.bool:
        return Element(ir.Literal(bool(value), dtype), dtype)
    if not dtype.is_floating_point:
        if isinstance(value, float) and not math.isfinite(value):
            raise NotLowered(f"{value} as an integer")
        info = torch.iinfo(dtype)
        if not info.min <= int(value) <= info.max:
            raise NotLowered(f"{value} does not fit {dtype}")
        return Element(ir.Literal(int(value), dtype), dtype)
    return Element(ir.Literal(rounded(float(value), dtype), dtype), dtype)


def rounded(value: float, dtype: torch.dtype) -> float:
    """Returns `value` rounded to a floating-point type."""
    if dtype is torch.float64 or not math.isfinite(value):
        return value
    if dtype is not torch.float32:
        return torch.tensor(value, dtype=dtype).item()
    try:
        result: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return result


def _dims_by_stride(stride: Sequence[Int]) -> list[int]:
    """Returns the dimensions by decreasing stride."""
    return sorted(range(len(stride)), key=lambda d: -hint(stride[d]))


def _kept_strides(view: ir.TensorView, out: ir.Buffer, dims: Sequence[int]) -> tuple[Int, ...]:
    """Returns the result's strides by dimension of the operand, with or without `keepdim`; 0 for reduced dimensions."""
    if len(out.size) == len(view.size):
        return tuple(0 if d in dims else s for d, s in enumerate(out.stride))
    kept = iter(out.stride)
    return tuple(0 if d in dims else next(kept) for d in range(len(view.size)))

"""What a lowering rule writes into: the loops of one graph node."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from compiler_core.loops import ir
from compiler_core.loops.lower.table import NotLowered, Number, Operand, Symbolic, Value
from compiler_core.records import ItemId
from compiler_core.support.size_expr import Int, Real, Size, hint, prod

_DROPOUT = torch.ops.aten.native_dropout.default
COMPUTE_TYPE = {torch.bfloat16: torch.float32, torch.float16: torch.float32}


class Body:
    """Statements for one node whose result is `out`; `others` are its further results, of the same form, and None
    for one that nobody reads.

    The outer indices run over those dimensions of the result that are not of size 1, in the
    order in which they lie in memory.  `reduced` gives the input of a reduction, or of one that
    `scans`: sizes, and the dimensions that become the inner indices.
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
        self._loaded: dict[ir.View, Value] = {}
        size, stride = out.size, out.stride
        self._inner_dims: list[int] = []
        if reduced is not None:
            operand, dims = reduced
            size = operand.view.size
            if not scans:
                stride = _kept_strides(operand.view, out, dims)
            self._inner_dims = [d for d in _by_stride(operand.view.stride) if d in dims and size[d] != 1]
        self._rank = len(size)
        self._outer_dims = [d for d in _by_stride(stride) if d not in self._inner_dims and size[d] != 1]
        self._size, self._stride = size, stride
        self._others = others
        self.updates: list[Body] = []
        self.draws: list[ir.Call] = []

    def update(self, size: Sequence[Int]) -> Body:
        """Loops over `size` that write into the result once this body has made it; see `put`."""
        strides = tuple(prod(size[d + 1 :]) for d in range(len(size)))
        space = replace(self.out, size=tuple(size), stride=strides)
        self.updates.append(Body(self.name, space, self._fresh, self._origin))
        return self.updates[-1]

    def put(self, into: ir.Buffer, at: Sequence[ir.Address], value: Value, adds: bool) -> None:
        """Write `value` to, or add it at, the coordinates `at` of what an earlier step made."""
        whole = Operand(ir.View(into.name, into.size, into.stride), into.dtype)
        argument = self.cast(value, into.dtype).argument
        address = self._address_at(whole, at)
        self._statements.append(ir.Store(into.name, address, argument, self._origin, "+=" if adds else "put"))

    def operand(self, operand: Operand) -> Value:
        """The element of `operand` that broadcasts to the current index."""
        if operand.view not in self._loaded:
            made = ir.Load(self._fresh(), operand.dtype, operand.view.buffer, self._address(operand.view), self._origin)
            self._loaded[operand.view] = self._add(made)
        return self._loaded[operand.view]

    def coordinate(self, dim: int, step: Int = 1, start: Int = 0) -> ir.Address:
        """``start + step * index`` of dimension `dim` of the result."""
        return ir.Address(tuple(step if d == dim else 0 for d in (*self._outer_dims, *self._inner_dims)), start)

    def index(self, dim: int, step: Int = 1, start: Int = 0) -> Value:
        """The same as a value, int64."""
        return self.at(self.coordinate(dim, step, start))

    def at(self, coordinate: ir.Address) -> Value:
        """Any coordinate as a value, int64."""
        return self._add(ir.Index(self._fresh(), torch.int64, coordinate, self._origin))

    def position(self, value: Value, size: Int, wraps: bool) -> ir.Address:
        """A coordinate that a tensor holds, in a dimension of `size`; with `wraps`, one below 0 counts from the end."""
        value = self.cast(value, torch.int64)
        if wraps:
            beyond = self.op("add", value, self.number(size, torch.int64))
            value = self.op("where", self.op("lt", value, 0), beyond, value)
        made = self._add(ir.Position(self._fresh(), value.argument, size, self._origin))
        assert isinstance(made.argument, str)
        return ir.Address(self.coordinate(-1).strides, 0, ((made.argument, 1),))

    def load(self, operand: Operand, at: Sequence[ir.Address], within: Sequence[ir.Range] = ()) -> Value:
        """The element of `operand` at the coordinates `at`; not to be used where a range of `within` does not hold."""
        address = self._address_at(operand, at)
        name, buffer = self._fresh(), operand.view.buffer
        return self._add(ir.Load(name, operand.dtype, buffer, address, self._origin, tuple(within)))

    def _address_at(self, operand: Operand, at: Sequence[ir.Address]) -> ir.Address:
        address = ir.Address(self.coordinate(-1).strides, operand.view.offset)
        for coordinate, size, stride in zip(at, operand.view.size, operand.view.stride, strict=True):
            if stride == 0 and size != 1 and coordinate.values:
                raise NotLowered("indices into a tensor that is the same everywhere")
            if coordinate.values:  # also where there is one place only: the check is not to be lost
                address = address + coordinate * (stride if size != 1 else 1)
            elif size != 1:
                address = address + coordinate * stride
        return address

    def place(self) -> Value:
        """The row-major number of the current element among those that are reduced."""
        strides: list[Int] = [0] * len(self._outer_dims)
        for d in self._inner_dims:
            strides.append(prod(self._size[k] for k in self._inner_dims if k > d))
        small = isinstance(self.inner_numel, int) and self.inner_numel < 2**31
        kind = torch.int32 if small else torch.int64  # as long as a float, where it fits
        return self._add(ir.Index(self._fresh(), kind, ir.Address(tuple(strides)), self._origin))

    def number(self, value: Number | Symbolic, dtype: torch.dtype) -> Value:
        """A number as `dtype`; one that depends on symbols is computed where it is used."""
        if isinstance(value, Real):
            return self.cast(self._add(ir.Scalar(self._fresh(), value, self._origin)), dtype)
        if not isinstance(value, Size):
            return literal(value, dtype)
        strides = (0,) * (len(self._outer_dims) + len(self._inner_dims))
        made = ir.Index(self._fresh(), torch.int64, ir.Address(strides, value), self._origin)
        return self.cast(self._add(made), dtype)

    def op(self, op: str, *args: Value | Number | Symbolic, dtype: torch.dtype | None = None) -> Value:
        """Apply `op`; a number has the type of the other arguments."""
        of = args[1:] if op == "where" else args
        kind = dtype or next((a.dtype for a in of if isinstance(a, Value)), None)
        if kind is None:
            raise NotLowered("an operation on numbers alone")
        values = [a if isinstance(a, Value) else self.number(a, kind) for a in args]
        made = torch.bool if op in ir.COMPARISONS else kind
        return self._add(ir.Compute(self._fresh(), made, op, tuple(v.argument for v in values), self._origin))

    def cast(self, value: Value | Number | Symbolic, dtype: torch.dtype) -> Value:
        """`value` as `dtype`; itself where it has that type already."""
        if not isinstance(value, Value):
            return self.number(value, dtype)
        if value.dtype == dtype:
            return value
        if dtype in COMPUTE_TYPE and value.dtype is not torch.float32:
            # from any type to a half type by way of float32, as the hardware does
            value = self.cast(value, torch.float32)
        elif value.dtype in COMPUTE_TYPE and dtype is not torch.float32:
            value = self.cast(value, torch.float32)
        return self._add(ir.Compute(self._fresh(), dtype, "cast", (value.argument,), self._origin))

    def reduce(self, op: str, value: Value) -> Value:
        """`value` reduced over the inner indices; itself where there are none."""
        if not self._inner_dims:
            return value
        return self._add(ir.Reduce(self._fresh(), value.dtype, op, value.argument, self._origin))

    def scan(self, op: str, value: Value) -> Value:
        """`value` reduced up to the current inner index; itself where there is none."""
        if not self._inner_dims:
            return value
        return self._add(ir.Scan(self._fresh(), value.dtype, op, value.argument, self._origin))

    def uniform(self, vector: int, numel: int, device: int, given: ir.View | None) -> Value:
        """The random number that dropout of `numel` elements draws for the current one, float32.

        `vector` is how many neighbours eager does at a time, if `given`, a part of an input, begins at an aligned
        address.
        """
        names = tuple(f"{self.name}_{part}" for part in ("seed", "offset", "threads"))
        call = ir.Call(self.name, _DROPOUT, (given, numel, device), {}, (), True, False, self._origin, "", names)
        self.draws.append(call)
        numbers = [self._add(ir.Scalar(self._fresh(), Real(n), self._origin, torch.int64)) for n in names]
        place = self.at(self._place_of_result())
        arguments = [v.argument for v in (place, *numbers)]
        of_eager = ir.Literal(vector, torch.int32)
        return self._add(ir.Compute(self._fresh(), torch.float32, "uniform", (*arguments, of_eager), self._origin))

    def store(self, value: Value | Number | Symbolic, result: int = 0) -> None:
        """A result of the node, cast to its type; the first one is the last statement."""
        out = (self.out, *self._others)[result]
        if out is None:
            return
        value = self.cast(value, out.dtype)
        last = self._statements[-1] if self._statements else None
        if isinstance(last, (ir.Compute, ir.Reduce, ir.Scan)) and last.name == value.argument:
            self._statements[-1] = replace(last, name=out.name)
            value = Value(out.name, value.dtype)
        self._statements.append(ir.Store(out.name, self._place_of_result(), value.argument, self._origin))

    def _place_of_result(self) -> ir.Address:
        return ir.Address(tuple(self._stride[d] for d in (*self._outer_dims, *self._inner_dims)))

    def loops(self) -> ir.Loops:
        outer, inner = (tuple(self._size[d] for d in dims) for dims in (self._outer_dims, self._inner_dims))
        return ir.Loops(self.name, outer, inner, ir.alive(self._statements))

    @property
    def is_reduced(self) -> bool:
        """Whether there are inner indices."""
        return bool(self._inner_dims)

    @property
    def inner_numel(self) -> Int:
        return prod(self._size[d] for d in self._inner_dims)

    def _add(self, statement: ir.Made) -> Value:
        self._statements.append(statement)
        return Value(statement.name, statement.dtype)

    def _address(self, view: ir.View) -> ir.Address:
        missing = self._rank - len(view.size)
        strides = []
        for d in (*self._outer_dims, *self._inner_dims):
            at = d - missing
            if at >= 0 and view.size[at] not in (1, self._size[d]):
                raise NotLowered(f"sizes {view.size} do not broadcast to {self._size}")
            strides.append(view.stride[at] if at >= 0 and view.size[at] != 1 else 0)
        return ir.Address(tuple(strides), view.offset)


def literal(value: Number, dtype: torch.dtype) -> Value:
    """`value` rounded to `dtype`, so that every language prints the same number."""
    if dtype is torch.bool:
        return Value(ir.Literal(bool(value), dtype), dtype)
    if not dtype.is_floating_point:
        if isinstance(value, float) and not math.isfinite(value):
            raise NotLowered(f"{value} as an integer")
        info = torch.iinfo(dtype)
        if not info.min <= int(value) <= info.max:
            raise NotLowered(f"{value} does not fit {dtype}")
        return Value(ir.Literal(int(value), dtype), dtype)
    value = float(value)
    if dtype is torch.float32 and math.isfinite(value):
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            value = math.copysign(math.inf, value)
    elif dtype is not torch.float64 and math.isfinite(value):
        value = torch.tensor(value, dtype=dtype).item()
    return Value(ir.Literal(value, dtype), dtype)


def _by_stride(stride: Sequence[Int]) -> list[int]:
    """Dimensions from the farthest apart to the closest in memory."""
    return sorted(range(len(stride)), key=lambda d: -hint(stride[d]))


def _kept_strides(view: ir.View, out: ir.Buffer, dims: Sequence[int]) -> tuple[Int, ...]:
    """The result's strides by dimension of the operand, whichever way `keepdim` was; 0 where it is reduced."""
    if len(out.size) == len(view.size):
        return tuple(0 if d in dims else s for d, s in enumerate(out.stride))
    kept = iter(out.stride)
    return tuple(0 if d in dims else next(kept) for d in range(len(view.size)))

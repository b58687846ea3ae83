"""Lowering of pointwise operators: type promotion, operators that are one operation of the loop IR, copies, logic."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch

from compiler_core.loops import ir
from compiler_core.loops.lower.body import (
    COMPUTE_TYPE,
    Body,
    Element,
    NotLowered,
    Number,
    Operand,
    lowers,
    refuse_bools,
)
from compiler_core.support.size_expr import Real, Size, Undecided
from compiler_core.torch_private import ELEMENTWISE_TYPE_PROMOTION_KIND as Promotion
from compiler_core.torch_private import OpOverload, elementwise_dtypes

aten = torch.ops.aten
Pointwise = Callable[..., Element]
ALL_DEVICES = ("cpu", "cuda")
NON_OPERAND_KWARGS = {"alpha", "rounding_mode", "memory_format"}
"""Keyword arguments that do not affect the type of the result."""


def promoted_types(promotion: Promotion, args: Sequence[Any]) -> tuple[torch.dtype, torch.dtype]:
    """Returns the type to compute in, for tensors and numbers `args`, and the type to which arguments are cast before.

    The types are those of `torch._prims_common.elementwise_dtypes`.
    """
    given = [_promotion_operand(a) for a in args if isinstance(a, (Operand, int, float, Size, Real))]
    compute, _ = elementwise_dtypes(*given, type_promotion_kind=promotion)
    _, common = elementwise_dtypes(*given, type_promotion_kind=Promotion.DEFAULT)
    return compute, common if COMPUTE_TYPE.get(common) is compute else compute


def pointwise(
    *targets: OpOverload,
    promotion: Promotion = Promotion.DEFAULT,
    rounds: Sequence[str] = (),
    scales: bool = False,
) -> Callable[[Pointwise], Pointwise]:
    """Registers the decorated ``rule(body, *values)``, which returns the result for elements of a common type.

    Args:
        promotion: how the type of the result follows from the types of the arguments.
        rounds: the device types on which numbers are rounded to the type of the tensors, not to the type that is
            computed in, as eager does: there a half tensor of 0.1 equals the number 0.1.
        scales: whether, on the CPU, a second argument without dimensions is not rounded to the common type.
    """

    def register(rule: Pointwise) -> Pointwise:
        @functools.wraps(rule)
        def lower(body: Body, *args: Any, **kwargs: Any) -> None:
            operands = {k: v for k, v in kwargs.items() if k not in NON_OPERAND_KWARGS}
            if not any(isinstance(a, (Operand, Element)) for a in (*args, *operands.values())):
                raise NotLowered("an operator over numbers alone")  # `aten.add(4, 3.5)`
            types = promoted_types(promotion, [*args, *operands.values()])
            rounded = body.out.device.type in rounds
            values = [load_as(body, _round_number(body, a, types[1]) if rounded else a, *types) for a in args]
            on_cpu = body.out.device.type == "cpu"
            if scales and on_cpu and isinstance(args[1], Operand) and not args[1].view.size:
                values[1] = load_as(body, args[1], types[0], types[0])
            named = {k: load_as(body, v, *types) for k, v in kwargs.items()}
            body.store(rule(body, *values, **named))

        lowers(*targets)(lower)
        return rule

    return register


def load_as(body: Body, arg: Any, dtype: torch.dtype, common: torch.dtype | None = None) -> Any:
    """Returns a number, or the current element of a tensor, as `dtype`; an element is cast to `common` first."""
    if isinstance(arg, (Size, Real)):
        fits = dtype is torch.int64  # 256 as an int8 is 0
        is_positive = fits and _is_positive(arg)
        return dataclasses.replace(body.number(arg, dtype), is_number=True, is_positive=is_positive)
    if isinstance(arg, Element):
        return body.cast(arg, dtype)
    if not isinstance(arg, Operand):
        return arg
    return body.cast(body.cast(body.operand(arg), common or dtype), dtype)


def _is_positive(number: Size | Real) -> bool:
    with suppress(Undecided):
        return isinstance(number, Size) and number > 0
    return False


def _round_number(body: Body, arg: Any, dtype: torch.dtype) -> Any:
    """Rounds a number to a floating-point type; returns other arguments as they are."""
    if not dtype.is_floating_point:
        return arg
    if isinstance(arg, (Size, Real)):
        return body.number(arg, dtype)
    return torch.tensor(arg, dtype=dtype).item() if isinstance(arg, (int, float)) else arg


def _promotion_operand(arg: Any) -> Any:
    """Returns what type promotion needs of an argument: a tensor's type and rank, and whether a number is a float."""
    if isinstance(arg, Operand):
        return torch.empty([1] * len(arg.view.size), dtype=arg.dtype, device="meta")
    if isinstance(arg, Size):
        return 1
    return 1.0 if isinstance(arg, Real) else arg


def _register_by_name() -> None:
    """Registers the operators that are a single operation of the loop IR."""
    unary = {n: n for n in ("neg", "sign", "floor", "ceil", "trunc", "round")}
    unary |= {"sgn": "sign", "bitwise_not": "not"}
    for name, op in unary.items():
        pointwise(getattr(aten, name).default)(functools.partial(_unary, op=op))
    for name in (*ir.FLOAT_FUNCTIONS, "sqrt", "rsqrt"):
        pointwise(getattr(aten, name).default, promotion=Promotion.INT_TO_FLOAT)(functools.partial(_unary, op=name))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        op = getattr(aten, name)
        register = pointwise(op.Tensor, op.Scalar, promotion=Promotion.ALWAYS_BOOL, rounds=ALL_DEVICES)
        register(functools.partial(_binary, op=name))
    for name in ("maximum", "minimum"):
        pointwise(getattr(aten, name).default)(functools.partial(_binary, op=name))
    pointwise(aten.atan2.default, promotion=Promotion.INT_TO_FLOAT)(functools.partial(_binary, op="atan2"))
    for name in ("and", "or", "xor"):
        op = getattr(aten, f"bitwise_{name}")
        pointwise(op.Tensor, op.Scalar)(functools.partial(_binary, op=name))
        logical = getattr(aten, f"logical_{name}").default
        pointwise(logical, promotion=Promotion.ALWAYS_BOOL)(functools.partial(_logical, op=name))
    for name in ("isnan", "isinf", "signbit"):
        pointwise(getattr(aten, name).default, promotion=Promotion.ALWAYS_BOOL)(functools.partial(_float_test, op=name))


def _unary(body: Body, x: Element, op: str) -> Element:
    """Lowers an operator of one argument that is an operation of the loop IR.

    >>> lowered("aten.exp(x)", x="bf16[4]")
    exp: for i0 < 4:
        v0: bf16 = load x[i0]
        v1: f32 = cast(v0)
        v2: f32 = exp(v1)
        exp: bf16 = cast(v2)
        store exp[i0] = exp
    """
    if x.dtype.is_floating_point or op in ("neg", "not"):
        return body.op(op, x)
    if op == "sign":
        return body.op("where", body.op("gt", x, 0), 1, body.op("where", body.op("lt", x, 0), -1, 0, dtype=x.dtype))
    refuse_bools(x)
    return x  # an integer is its own floor, ceil, trunc and round


def _binary(body: Body, x: Element | Number, y: Element | Number, op: str) -> Element:
    """Lowers an operator of two arguments that is an operation of the loop IR.

    >>> lowered("aten.lt(x, 0)", x="f32[4]")
    lt: for i0 < 4:
        v0: f32 = load x[i0]
        lt: bool = lt(v0, 0.0)
        store lt[i0] = lt
    """
    return body.op(op, x, y)


def _float_test(body: Body, x: Element, op: str) -> Element:
    """Lowers a test that only floats can pass; of integers, only ``signbit`` can be true.

    >>> lowered("aten.isnan(x)", x="f32[4]")
    isnan: for i0 < 4:
        v0: f32 = load x[i0]
        isnan: bool = isnan(v0)
        store isnan[i0] = isnan
    """
    if not x.dtype.is_floating_point:
        return body.op("lt", x, 0) if op == "signbit" else body.cast(False, torch.bool)
    return body.op(op, x)


def _logical(body: Body, x: Element, y: Element, op: str) -> Element:
    """Lowers ``logical_and``, ``logical_or`` and ``logical_xor``.

    >>> lowered("aten.logical_and(x, y)", x="f32[4]", y="bool[4]")
    logical_and: for i0 < 4:
        v0: f32 = load x[i0]
        v1: bool = load y[i0]
        v2: f32 = cast(v1)
        v3: bool = cast(v0)
        v4: bool = cast(v2)
        logical_and: bool = and(v3, v4)
        store logical_and[i0] = logical_and
    """
    return body.op(op, body.cast(x, torch.bool), body.cast(y, torch.bool))


_register_by_name()


def _shift(body: Body, x: Element | Number, by: Element | Number, op: str) -> Element:
    """Lowers a shift; by a negative number, or by as many bits as there are, it shifts all of them out.

    >>> lowered("aten.__rshift__(x, 40)", x="i32[4]")
    rshift: for i0 < 4:
        v0: i32 = load x[i0]
        rshift: i32 = rshift(v0, 31)
        store rshift[i0] = rshift

    A shift to the left is a product with a power of two, which is defined for negative numbers, too.
    """
    dtype = next(a.dtype for a in (x, by) if isinstance(a, Element))
    if dtype.is_floating_point or dtype is torch.bool:
        raise NotLowered("eager's kernel raises on floats")
    bits = 8 * dtype.itemsize
    keeps_sign = op == "rshift" and dtype is not torch.uint8
    if isinstance(by, Element):
        fits = body.op("and", body.op("ge", by, 0), body.op("lt", by, bits))
        inside = body.op("where", fits, by, 0, dtype=dtype)
        power = body.op("lshift", body.cast(1, dtype), inside) if op == "lshift" else inside
        shifted = body.op("rshift" if op == "rshift" else "mul", body.cast(x, dtype), power)
        rest: Element | int = body.op("rshift", body.cast(x, dtype), bits - 1) if keeps_sign else 0
        return body.op("where", fits, shifted, rest, dtype=dtype)
    assert isinstance(x, Element)
    if op == "rshift" and (keeps_sign or 0 <= by < bits):
        return body.op("rshift", x, by if 0 <= by < bits else bits - 1)
    is_last = op == "lshift" and by == bits - 1 and dtype is not torch.uint8
    power_of_two = (-1 if is_last else 1) << int(by) if 0 <= by < bits else 0
    return body.op("mul", x, power_of_two)


def _register_shifts() -> None:
    for op, name in (("lshift", "left"), ("rshift", "right")):
        of_python, shift = getattr(aten, f"__{op}__"), getattr(aten, f"bitwise_{name}_shift")
        overloads = (of_python.Tensor, of_python.Scalar, shift.Tensor, shift.Tensor_Scalar, shift.Scalar_Tensor)
        pointwise(*overloads)(functools.partial(_shift, op=op))


_register_shifts()


@lowers(
    *(aten.clone.default, aten.contiguous.default, aten._to_copy.default, aten.lift_fresh_copy.default),
    torch.ops.prims.convert_element_type.default,
)
def copy(body: Body, x: Operand, *_: Any, **__: Any) -> None:
    """Lowers operators that copy a tensor, with another type or memory layout if need be.

    >>> lowered("aten._to_copy(x, dtype=torch.bfloat16)", x="f32[4]")
    _to_copy: for i0 < 4:
        v0: f32 = load x[i0]
        _to_copy: bf16 = cast(v0)
        store _to_copy[i0] = _to_copy
    """
    body.store(body.operand(x))


@lowers(aten.copy.default)
def copy_into(body: Body, _: Operand, x: Operand, non_blocking: bool = False) -> None:
    """Lowers ``copy``, which returns the second tensor in the form of the first.

    >>> lowered("aten.copy(x, y)", x="f32[4]", y="i64[4]")
    copy: for i0 < 4:
        v0: i64 = load y[i0]
        copy: f32 = cast(v0)
        store copy[i0] = copy
    """
    body.store(body.operand(x))


@pointwise(aten.logical_not.default, promotion=Promotion.ALWAYS_BOOL)
def logical_not(body: Body, x: Element) -> Element:
    """Lowers ``logical_not``.

    >>> lowered("aten.logical_not(x)", x="f32[4]")
    logical_not: for i0 < 4:
        v0: f32 = load x[i0]
        v1: bool = cast(v0)
        logical_not: bool = not(v1)
        store logical_not[i0] = logical_not
    """
    return body.op("not", body.cast(x, torch.bool))


@lowers(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar)
def where(body: Body, condition: Operand, x: Operand | Number, y: Operand | Number) -> None:
    """Lowers ``where``; the condition may be of any type.

    >>> lowered("aten.where(c, x, y)", c="bool[4]", x="f32[4]", y="f32[4]")
    where: for i0 < 4:
        v0: f32 = load x[i0]
        v1: f32 = load y[i0]
        v2: bool = load c[i0]
        where: f32 = where(v2, v0, v1)
        store where[i0] = where
    """
    dtype = body.out.dtype
    chosen = [load_as(body, a, dtype) for a in (x, y)]
    body.store(body.op("where", body.cast(body.operand(condition), torch.bool), *chosen, dtype=dtype))


@lowers(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(body: Body, x: Operand, mask: Operand, value: Operand | Number) -> None:
    """Lowers ``masked_fill``.  Like `where`."""
    where(body, mask, value, x)


@lowers(aten.threshold_backward.default)
def threshold_backward(body: Body, gradient: Operand, x: Operand, threshold: Number) -> None:
    """Lowers the gradient of ``threshold`` and ``relu``.

    >>> lowered("aten.threshold_backward(g, x, 0)", g="f32[4]", x="f32[4]")
    threshold_backward: for i0 < 4:
        v0: f32 = load g[i0]
        v1: f32 = load x[i0]
        v2: bool = le(v1, 0.0)
        threshold_backward: f32 = where(v2, 0.0, v0)
        store threshold_backward[i0] = threshold_backward
    """
    dtype = COMPUTE_TYPE.get(body.out.dtype, body.out.dtype)
    g, value = (load_as(body, a, dtype) for a in (gradient, x))
    body.store(body.op("where", body.op("le", value, threshold), 0, g))

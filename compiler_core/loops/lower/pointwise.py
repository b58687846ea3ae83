"""Rules for operations that work element by element."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as Promotion
from torch._prims_common import elementwise_dtypes

from compiler_core.loops.lower.body import COMPUTE_TYPE, Body
from compiler_core.loops.lower.table import NotLowered, Number, Operand, Value, lowers, refuse_bools
from compiler_core.support.size_expr import Real, Size

aten = torch.ops.aten
Pointwise = Callable[..., Value]
EVERYWHERE = ("cpu", "cuda")
NO_OPERANDS = {"alpha", "rounding_mode", "memory_format"}
"""Named arguments that have no part in the choice of the result's type."""


def promoted(promotion: Promotion, args: Sequence[Any]) -> tuple[torch.dtype, torch.dtype]:
    """The type to compute in, for tensors and numbers `args`, and the one that other types are rounded to before."""
    numbers = (1 if isinstance(a, Size) else 1.0 if isinstance(a, Real) else a for a in args)
    given = [_like(a) if isinstance(a, Operand) else a for a in numbers if isinstance(a, (Operand, int, float))]
    compute, _ = elementwise_dtypes(*given, type_promotion_kind=promotion)
    _, common = elementwise_dtypes(*given, type_promotion_kind=Promotion.DEFAULT)
    return compute, common if COMPUTE_TYPE.get(common) is compute else compute


def pointwise(
    *targets: torch._ops.OpOverload,
    promotion: Promotion = Promotion.DEFAULT,
    rounds: Sequence[str] = (),
    scales: bool = False,
) -> Callable[[Pointwise], Pointwise]:
    """The decorated ``rule(body, *values)`` makes the result from elements of one common type.

    Numbers are of the type that is computed in or, on devices of the types `rounds`, of the tensors': a half equals
    0.1 that was made of it.  One that `scales` on the CPU, the second of two, is what it is without dimensions, too.
    """

    def register(rule: Pointwise) -> Pointwise:
        @functools.wraps(rule)
        def lower(body: Body, *args: Any, **kwargs: Any) -> None:
            operands = {k: v for k, v in kwargs.items() if k not in NO_OPERANDS}
            types = promoted(promotion, [*args, *operands.values()])
            rounded = body.out.device.type in rounds
            values = [_value(body, _rounded(a, types[1]) if rounded else a, *types) for a in args]
            if scales and body.out.device.type == "cpu" and isinstance(args[1], Operand) and not args[1].view.size:
                values[1] = _value(body, args[1], types[0], types[0])
            named = {k: _value(body, v, *types) for k, v in kwargs.items()}
            body.store(rule(body, *values, **named))

        lowers(*targets)(lower)
        return rule

    return register


def _value(body: Body, arg: Any, dtype: torch.dtype, common: torch.dtype | None = None) -> Any:
    """`arg` as `dtype`; a tensor's element is first made a `common`."""
    if isinstance(arg, (Size, Real)):
        return body.number(arg, dtype)
    if not isinstance(arg, Operand):
        return arg
    return body.cast(body.cast(body.operand(arg), common or dtype), dtype)


def _rounded(arg: Any, dtype: torch.dtype) -> Any:
    is_number = isinstance(arg, (int, float)) and dtype.is_floating_point
    return torch.tensor(arg, dtype=dtype).item() if is_number else arg


def _like(operand: Operand) -> torch.Tensor:
    # promotion looks at the type and at whether the tensor has dimensions
    return torch.empty([1] * len(operand.view.size), dtype=operand.dtype, device="meta")


def _register_by_name() -> None:
    """Operations that the loop IR has under a name of its own."""
    unary = {n: n for n in ("neg", "sign", "floor", "ceil", "trunc", "round")} | {"sgn": "sign"}
    floats = (
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "erf", "erfc", "sqrt", "rsqrt"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    )
    for name, op in unary.items():
        pointwise(getattr(aten, name).default)(functools.partial(_unary, op=op))
    for name in floats:
        pointwise(getattr(aten, name).default, promotion=Promotion.INT_TO_FLOAT)(functools.partial(_unary, op=name))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        op = getattr(aten, name)
        register = pointwise(op.Tensor, op.Scalar, promotion=Promotion.ALWAYS_BOOL, rounds=EVERYWHERE)
        register(functools.partial(_binary, op=name))
    for name in ("maximum", "minimum"):
        pointwise(getattr(aten, name).default)(functools.partial(_binary, op=name))
    for name in ("and", "or", "xor"):
        op = getattr(aten, f"bitwise_{name}")
        pointwise(op.Tensor, op.Scalar)(functools.partial(_binary, op=name))
    for name in ("isnan", "isinf", "signbit"):
        pointwise(getattr(aten, name).default, promotion=Promotion.ALWAYS_BOOL)(functools.partial(_float_test, op=name))


def _unary(body: Body, x: Value, op: str) -> Value:
    if x.dtype.is_floating_point or op == "neg":
        return body.op(op, x)
    if op == "sign":
        return body.op("where", body.op("gt", x, 0), 1, body.op("where", body.op("lt", x, 0), -1, 0, dtype=x.dtype))
    refuse_bools(x)
    return x


def _binary(body: Body, x: Value | Number, y: Value | Number, op: str) -> Value:
    return body.op(op, x, y)


def _float_test(body: Body, x: Value, op: str) -> Value:
    if not x.dtype.is_floating_point:
        return body.op("lt", x, 0) if op == "signbit" else body.cast(False, torch.bool)
    return body.op(op, x)


_register_by_name()


@pointwise(aten.add.Tensor, aten.add.Scalar, rounds=["cpu"])
def add(body: Body, x: Value | Number, y: Value | Number, alpha: Value | Number = 1) -> Value:
    if _is_bool(x, y):
        return body.op("or", x, y) if alpha else body.cast(x, torch.bool)
    return body.op("add", x, y if alpha == 1 else _times(body, y, alpha))


@pointwise(aten.sub.Tensor, aten.sub.Scalar, rounds=["cpu"])
def sub(body: Body, x: Value | Number, y: Value | Number, alpha: Value | Number = 1) -> Value:
    return body.op("sub", x, y if alpha == 1 else _times(body, y, alpha))


@pointwise(aten.rsub.Tensor, aten.rsub.Scalar, rounds=["cpu"])
def rsub(body: Body, x: Value | Number, y: Value | Number, alpha: Value | Number = 1) -> Value:
    return sub(body, y, x, alpha)


@pointwise(aten.mul.Tensor, aten.mul.Scalar, scales=True)
def mul(body: Body, x: Value | Number, y: Value | Number) -> Value:
    return body.op("and" if _is_bool(x, y) else "mul", x, y)


@pointwise(aten.div.Tensor, aten.div.Scalar, promotion=Promotion.INT_TO_FLOAT, scales=True)
def div(body: Body, x: Value | Number, y: Value | Number) -> Value:
    return body.op("div", x, y)


@pointwise(aten.reciprocal.default, promotion=Promotion.INT_TO_FLOAT)
def reciprocal(body: Body, x: Value) -> Value:
    return body.op("div", 1, x)


@pointwise(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_mode(body: Body, x: Value | Number, y: Value | Number, rounding_mode: str | None = None) -> Value:
    dtype = _dtype(x, y)
    if dtype.is_floating_point:
        if rounding_mode != "trunc":
            raise NotLowered("division of floats rounded down")
        return body.op("trunc", body.op("div", x, y))
    if rounding_mode is None:
        raise NotLowered("true division by div.Tensor_mode")
    return body.op("floordiv" if rounding_mode == "floor" else "truncdiv", x, _divisor(y))


@pointwise(aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide(body: Body, x: Value | Number, y: Value | Number) -> Value:
    return div_mode(body, x, y, "floor")


@pointwise(aten.remainder.Tensor, aten.remainder.Scalar, rounds=EVERYWHERE)
def remainder(body: Body, x: Value | Number, y: Value | Number) -> Value:
    return body.op("mod", x, y if _dtype(x, y).is_floating_point else _divisor(y))


@pointwise(aten.fmod.Tensor, aten.fmod.Scalar, rounds=EVERYWHERE)
def fmod(body: Body, x: Value | Number, y: Value | Number) -> Value:
    return body.op("fmod", x, y if _dtype(x, y).is_floating_point else _divisor(y))


def _divisor(y: Value | Number) -> Number:
    # eager raises on an integer division by zero, and so must not be replaced where it could
    if isinstance(y, Value) or y in (0, -1):
        raise NotLowered("an integer divisor that is no constant")
    return y


@pointwise(aten.abs.default)
def absolute(body: Body, x: Value) -> Value:
    refuse_bools(x)
    return x if x.dtype is torch.uint8 else body.op("abs", x)


@pointwise(aten.square.default)
def square(body: Body, x: Value) -> Value:
    return body.op("mul", x, x)


@pointwise(aten.sigmoid.default, promotion=Promotion.INT_TO_FLOAT)
def sigmoid(body: Body, x: Value) -> Value:
    return body.op("div", 1, body.op("add", body.op("exp", body.op("neg", x)), 1))


@pointwise(aten.relu.default)
def relu(body: Body, x: Value) -> Value:
    refuse_bools(x)
    # -0.0 and NaN stay as they are
    return body.op("where", body.op("lt", x, 0), 0, x)


@pointwise(aten.clamp.default)
def clamp(body: Body, x: Value, min: Value | Number | None = None, max: Value | Number | None = None) -> Value:
    if min is not None:
        x = _clamp(body, "lt", x, min)
    return x if max is None else _clamp(body, "gt", x, max)


lowers(aten.clamp.Tensor)(lambda body, x, min=None, max=None: _clamp_tensor(body, x, min, max))


@pointwise(aten.clamp_min.default, aten.clamp_min.Tensor)
def clamp_min(body: Body, x: Value, low: Value | Number) -> Value:
    return _clamp(body, "lt", x, low)


@pointwise(aten.clamp_max.default, aten.clamp_max.Tensor)
def clamp_max(body: Body, x: Value, high: Value | Number) -> Value:
    return _clamp(body, "gt", x, high)


def _clamp(body: Body, op: str, x: Value, bound: Value | Number) -> Value:
    if isinstance(bound, Value):
        return body.op("maximum" if op == "lt" else "minimum", x, bound)
    if math.isnan(bound):
        raise NotLowered("clamp to NaN")
    return body.op("where", body.op(op, x, bound), bound, x)


def _clamp_tensor(body: Body, x: Operand, low: Operand | None, high: Operand | None) -> None:
    types = promoted(Promotion.DEFAULT, [x, low, high])
    value = _value(body, x, *types)
    for op, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            value = body.op(op, value, _value(body, bound, *types))
    body.store(value)


@pointwise(aten.pow.Tensor_Scalar, rounds=["cpu"])
def pow_scalar(body: Body, x: Value, exponent: Value | Number) -> Value:
    """The powers that eager computes without `pow`, as it does; the others by `pow`."""
    if isinstance(exponent, Value):
        raise NotLowered("a power that is no constant")
    if exponent in (1, 2, 3):
        value = x
        for _ in range(int(exponent) - 1):
            value = body.op("mul", value, x)
        return value
    if not x.dtype.is_floating_point:
        raise NotLowered("a power of integers")
    if exponent == 0.5:
        return body.op("sqrt", x)
    if exponent == -0.5:
        return body.op("rsqrt", x)
    if exponent in (-1, -2):
        return body.op("div", 1, x if exponent == -1 else body.op("mul", x, x))
    return body.op("pow", x, exponent)


@pointwise(aten.pow.Tensor_Tensor, aten.pow.Scalar, rounds=["cpu"])
def pow_tensor(body: Body, x: Value | Number, y: Value | Number) -> Value:
    if not _dtype(x, y).is_floating_point:
        raise NotLowered("a power of integers")
    return body.op("pow", x, y)


@pointwise(aten.atan2.default, promotion=Promotion.INT_TO_FLOAT)
def atan2(body: Body, y: Value, x: Value) -> Value:
    return body.op("atan2", y, x)


@pointwise(aten.copysign.Tensor, aten.copysign.Scalar, promotion=Promotion.INT_TO_FLOAT)
def copysign(body: Body, x: Value, sign: Value | Number) -> Value:
    size = body.op("abs", x)
    if not isinstance(sign, Value):
        return body.op("neg", size) if math.copysign(1, sign) < 0 else size
    return body.op("where", body.op("signbit", sign), body.op("neg", size), size)


@pointwise(aten.bitwise_not.default)
def bitwise_not(body: Body, x: Value) -> Value:
    return body.op("not", x)


@pointwise(aten.logical_not.default, promotion=Promotion.ALWAYS_BOOL)
def logical_not(body: Body, x: Value) -> Value:
    return body.op("not", body.cast(x, torch.bool))


@pointwise(aten.logical_and.default, promotion=Promotion.ALWAYS_BOOL)
def logical_and(body: Body, x: Value, y: Value) -> Value:
    return body.op("and", body.cast(x, torch.bool), body.cast(y, torch.bool))


@pointwise(aten.logical_or.default, promotion=Promotion.ALWAYS_BOOL)
def logical_or(body: Body, x: Value, y: Value) -> Value:
    return body.op("or", body.cast(x, torch.bool), body.cast(y, torch.bool))


@pointwise(aten.logical_xor.default, promotion=Promotion.ALWAYS_BOOL)
def logical_xor(body: Body, x: Value, y: Value) -> Value:
    return body.op("xor", body.cast(x, torch.bool), body.cast(y, torch.bool))


@lowers(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar)
def where(body: Body, condition: Operand, x: Operand | Number, y: Operand | Number) -> None:
    dtype = body.out.dtype
    chosen = [_value(body, a, dtype) for a in (x, y)]
    body.store(body.op("where", body.cast(body.operand(condition), torch.bool), *chosen, dtype=dtype))


@lowers(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(body: Body, x: Operand, mask: Operand, value: Operand | Number) -> None:
    where(body, mask, value, x)


@lowers(aten.threshold_backward.default)
def threshold_backward(body: Body, gradient: Operand, x: Operand, threshold: Number) -> None:
    dtype = COMPUTE_TYPE.get(body.out.dtype, body.out.dtype)
    g, value = (_value(body, a, dtype) for a in (gradient, x))
    body.store(body.op("where", body.op("le", value, threshold), 0, g))


@lowers(aten.clone.default, aten.contiguous.default, aten._to_copy.default, aten.lift_fresh_copy.default)
def copy(body: Body, x: Operand, **_: Any) -> None:
    body.store(body.operand(x))


@lowers(aten.copy.default)
def copy_into(body: Body, _: Operand, x: Operand, non_blocking: bool = False) -> None:
    body.store(body.operand(x))


@lowers(torch.ops.prims.convert_element_type.default)
def convert_element_type(body: Body, x: Operand, dtype: torch.dtype) -> None:
    body.store(body.operand(x))


def _is_bool(*args: Value | Number) -> bool:
    return _dtype(*args) is torch.bool


def _dtype(*args: Value | Number) -> torch.dtype:
    return next(a.dtype for a in args if isinstance(a, Value))


def _times(body: Body, y: Value | Number, alpha: Value | Number) -> Value | Number:
    if isinstance(y, Value) or isinstance(alpha, Value):
        return body.op("mul", y, alpha)
    return y * alpha

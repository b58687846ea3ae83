"""Lowering rules for arithmetic, rounding divisions, powers and bounds."""

from __future__ import annotations

import functools
import math

import torch

from compiler_core.loops.lower.body import Body, Element, NotLowered, Number, Operand, lowers, refuse_bools, rounded
from compiler_core.loops.lower.pointwise import ALL_DEVICES, load_as, pointwise, promoted_types
from compiler_core.torch_private import ELEMENTWISE_TYPE_PROMOTION_KIND as Promotion

aten = torch.ops.aten


@pointwise(aten.add.Tensor, aten.add.Scalar, rounds=["cpu"])
def add(body: Body, x: Element | Number, y: Element | Number, alpha: Element | Number = 1) -> Element:
    """Lowers ``x + alpha * y``; of bools, ``or``.

    >>> lowered("aten.add(x, y, alpha=2)", x="f32[4, 8]", y="f32[8]")
    add: for i0 < 4, i1 < 8:
        v0: f32 = load x[8*i0 + i1]
        v1: f32 = load y[i1]
        v2: f32 = mul(v1, 2.0)
        add: f32 = add(v0, v2)
        store add[8*i0 + i1] = add
    """
    if _is_bool(x, y):
        return body.op("or", x, y) if alpha else body.cast(x, torch.bool)
    return body.op("add", x, _scale(body, y, alpha))


@pointwise(aten.sub.Tensor, aten.sub.Scalar, rounds=["cpu"])
def sub(body: Body, x: Element | Number, y: Element | Number, alpha: Element | Number = 1) -> Element:
    """Lowers ``x - alpha * y``.  Like `add`."""
    return body.op("sub", x, _scale(body, y, alpha))


@pointwise(aten.rsub.Tensor, aten.rsub.Scalar, rounds=["cpu"])
def rsub(body: Body, x: Element | Number, y: Element | Number, alpha: Element | Number = 1) -> Element:
    """Lowers ``y - alpha * x``.  Like `add`."""
    return sub(body, y, x, alpha)


@pointwise(aten.mul.Tensor, aten.mul.Scalar, scales=True)
def mul(body: Body, x: Element | Number, y: Element | Number) -> Element:
    """Lowers a product; of bools, ``and``.

    >>> lowered("aten.mul(x, y)", x="bf16[4]", y="f32[4]")
    mul: for i0 < 4:
        v0: bf16 = load x[i0]
        v1: f32 = cast(v0)
        v2: f32 = load y[i0]
        mul: f32 = mul(v1, v2)
        store mul[i0] = mul
    """
    return body.op("and" if _is_bool(x, y) else "mul", x, y)


@pointwise(aten.div.Tensor, aten.div.Scalar, promotion=Promotion.INT_TO_FLOAT, scales=True)
def div(body: Body, x: Element | Number, y: Element | Number) -> Element:
    """Lowers true division; on a GPU, eager multiplies by the reciprocal of a number.

    >>> lowered("aten.div(x, 3)", "cuda", x="f32[4]")
    div: for i0 < 4:
        v0: f32 = load x[i0]
        div: f32 = mul(v0, 0.3333333432674408)
        store div[i0] = div
    """
    is_number = not isinstance(y, Element) or y.is_number
    if body.out.device.type == "cpu" or not is_number or not isinstance(x, Element):
        return body.op("div", x, y)
    if isinstance(y, Element):
        return body.op("mul", x, body.op("div", 1, y))
    divisor = rounded(float(y), x.dtype)
    return body.op("mul", x, 1 / divisor) if divisor else body.op("div", x, y)


@pointwise(aten.reciprocal.default, promotion=Promotion.INT_TO_FLOAT)
def reciprocal(body: Body, x: Element) -> Element:
    """Lowers ``1 / x``.  Like `mul`."""
    return body.op("div", 1, x)


@pointwise(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_mode(body: Body, x: Element | Number, y: Element | Number, rounding_mode: str | None = None) -> Element:
    """Lowers division with a rounding mode.

    >>> lowered("aten.div(x, 3, rounding_mode='floor')", x="i64[4]")
    div: for i0 < 4:
        v0: i64 = load x[i0]
        div: i64 = floordiv(v0, 3)
        store div[i0] = div
    """
    dtype = _dtype(x, y)
    if dtype.is_floating_point:
        if rounding_mode != "trunc":
            raise NotLowered("division of floats rounded down")
        return body.op("trunc", div(body, x, y))
    if rounding_mode is None:
        raise NotLowered("true division by div.Tensor_mode")
    return body.op("floordiv" if rounding_mode == "floor" else "truncdiv", x, _constant_divisor(y))


@pointwise(aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide(body: Body, x: Element | Number, y: Element | Number) -> Element:
    """Lowers division rounded down.  Like `div_mode`."""
    return div_mode(body, x, y, "floor")


@pointwise(aten.remainder.Tensor, aten.remainder.Scalar, rounds=ALL_DEVICES)
def remainder(body: Body, x: Element | Number, y: Element | Number) -> Element:
    """Lowers the remainder with the sign of the divisor.

    >>> lowered("aten.remainder(x, 3)", x="i64[4]")
    remainder: for i0 < 4:
        v0: i64 = load x[i0]
        remainder: i64 = mod(v0, 3)
        store remainder[i0] = remainder
    """
    return body.op("mod", x, y if _dtype(x, y).is_floating_point else _constant_divisor(y))


@pointwise(aten.fmod.Tensor, aten.fmod.Scalar, rounds=ALL_DEVICES)
def fmod(body: Body, x: Element | Number, y: Element | Number) -> Element:
    """Lowers the remainder with the sign of the dividend.  Like `remainder`."""
    return body.op("fmod", x, y if _dtype(x, y).is_floating_point else _constant_divisor(y))


def _constant_divisor(y: Element | Number) -> Element | Number:
    """Returns an integer divisor: a number, or a size that is not zero.

    Eager raises on integer division by zero, kernels cannot.
    """
    if not y.is_positive if isinstance(y, Element) else y in (0, -1):
        raise NotLowered("an integer divisor that is not a constant")
    return y


@pointwise(aten.abs.default)
def absolute(body: Body, x: Element) -> Element:
    """Lowers ``abs``.

    >>> lowered("aten.abs(x)", x="f32[4]")
    abs_1: for i0 < 4:
        v0: f32 = load x[i0]
        abs_1: f32 = abs(v0)
        store abs_1[i0] = abs_1
    """
    refuse_bools(x)
    return x if x.dtype is torch.uint8 else body.op("abs", x)


@pointwise(aten.square.default)
def square(body: Body, x: Element) -> Element:
    """Lowers ``x * x``.

    >>> lowered("aten.square(x)", x="f32[4]")
    pow_1: for i0 < 4:
        v0: f32 = load x[i0]
        pow_1: f32 = mul(v0, v0)
        store pow_1[i0] = pow_1
    """
    return body.op("mul", x, x)


@pointwise(aten.sigmoid.default, promotion=Promotion.INT_TO_FLOAT)
def sigmoid(body: Body, x: Element) -> Element:
    """Lowers ``1 / (exp(-x) + 1)``.

    >>> lowered("aten.sigmoid(x)", x="f32[4]")
    sigmoid: for i0 < 4:
        v0: f32 = load x[i0]
        v1: f32 = neg(v0)
        v2: f32 = exp(v1)
        v3: f32 = add(v2, 1.0)
        sigmoid: f32 = div(1.0, v3)
        store sigmoid[i0] = sigmoid
    """
    return body.op("div", 1, body.op("add", body.op("exp", body.op("neg", x)), 1))


@pointwise(aten.relu.default)
def relu(body: Body, x: Element) -> Element:
    """Lowers ``relu``; -0.0 and NaN are returned as they are.

    >>> lowered("aten.relu(x)", x="f32[4]")
    relu: for i0 < 4:
        v0: f32 = load x[i0]
        v1: bool = lt(v0, 0.0)
        relu: f32 = where(v1, 0.0, v0)
        store relu[i0] = relu
    """
    refuse_bools(x)
    # -0.0 and NaN stay as they are
    return body.op("where", body.op("lt", x, 0), 0, x)


@pointwise(aten.clamp.default)
def clamp(body: Body, x: Element, min: Element | Number | None = None, max: Element | Number | None = None) -> Element:
    """Lowers ``clamp`` to numbers.

    >>> lowered("aten.clamp(x, -1, 1)", x="f32[4]")
    clamp: for i0 < 4:
        v0: f32 = load x[i0]
        v1: bool = lt(v0, -1.0)
        v2: f32 = where(v1, -1.0, v0)
        v3: bool = gt(v2, 1.0)
        clamp: f32 = where(v3, 1.0, v2)
        store clamp[i0] = clamp
    """
    if min is not None:
        x = _clamp(body, x, min, "lt")
    return x if max is None else _clamp(body, x, max, "gt")


@lowers(aten.clamp.Tensor)
def clamp_tensor(body: Body, x: Operand, min: Operand | None = None, max: Operand | None = None) -> None:
    """Lowers ``clamp`` to tensors.

    >>> lowered("aten.clamp(x, y, None)", x="f32[4]", y="f32[4]")
    clamp: for i0 < 4:
        v0: f32 = load x[i0]
        v1: f32 = load y[i0]
        clamp: f32 = maximum(v0, v1)
        store clamp[i0] = clamp
    """
    types = promoted_types(Promotion.DEFAULT, [x, min, max])
    value = load_as(body, x, *types)
    for op, bound in (("maximum", min), ("minimum", max)):
        if bound is not None:
            value = body.op(op, value, load_as(body, bound, *types))
    body.store(value)


def _clamp(body: Body, x: Element, bound: Element | Number, op: str) -> Element:
    """Returns `x` limited by `bound`, from below if `op` is ``lt``, otherwise from above.  Like `clamp`."""
    if isinstance(bound, Element):
        return body.op("maximum" if op == "lt" else "minimum", x, bound)
    if math.isnan(bound):
        raise NotLowered("clamp to NaN")
    return body.op("where", body.op(op, x, bound), bound, x)


pointwise(aten.clamp_min.default, aten.clamp_min.Tensor)(functools.partial(_clamp, op="lt"))
pointwise(aten.clamp_max.default, aten.clamp_max.Tensor)(functools.partial(_clamp, op="gt"))


@pointwise(aten.pow.Tensor_Scalar, rounds=["cpu"])
def pow_scalar(body: Body, x: Element, exponent: Element | Number) -> Element:
    """Lowers a power; those that eager computes without ``pow`` in the same way.

    >>> lowered("aten.pow(x, 3)", x="f32[4]")
    pow_1: for i0 < 4:
        v0: f32 = load x[i0]
        v1: f32 = mul(v0, v0)
        pow_1: f32 = mul(v1, v0)
        store pow_1[i0] = pow_1
    """
    if isinstance(exponent, Element):
        raise NotLowered("an exponent that is not a constant")
    if exponent in (1, 2, 3):
        value = x
        for _ in range(int(exponent) - 1):
            value = body.op("mul", value, x)
        return value
    if not x.dtype.is_floating_point:
        raise NotLowered("a power of integers")
    is_cpu_half = body.out.dtype is torch.float16 and body.out.device.type == "cpu"  # eager calls `pow` for roots, too
    if exponent == 0.5 and not is_cpu_half:
        return body.op("sqrt", x)
    if exponent == -0.5 and not is_cpu_half:
        return body.op("rsqrt", x)
    if exponent in (-1, -2):
        return body.op("div", 1, x if exponent == -1 else body.op("mul", x, x))
    return body.op("pow", x, exponent)


@pointwise(aten.pow.Tensor_Tensor, aten.pow.Scalar, rounds=["cpu"])
def pow_tensor(body: Body, x: Element | Number, y: Element | Number) -> Element:
    """Lowers a power whose exponent is a tensor.

    >>> lowered("aten.pow(x, y)", x="f32[4]", y="f32[4]")
    pow_1: for i0 < 4:
        v0: f32 = load x[i0]
        v1: f32 = load y[i0]
        pow_1: f32 = pow(v0, v1)
        store pow_1[i0] = pow_1
    """
    if not _dtype(x, y).is_floating_point:
        raise NotLowered("a power of integers")
    return body.op("pow", x, y)


@pointwise(aten.copysign.Tensor, aten.copysign.Scalar, promotion=Promotion.INT_TO_FLOAT)
def copysign(body: Body, x: Element, sign: Element | Number) -> Element:
    """Lowers ``copysign``.

    >>> lowered("aten.copysign(x, y)", x="f32[4]", y="f32[4]")
    copysign: for i0 < 4:
        v0: f32 = load x[i0]
        v1: f32 = load y[i0]
        v2: f32 = abs(v0)
        v3: bool = signbit(v1)
        v4: f32 = neg(v2)
        copysign: f32 = where(v3, v4, v2)
        store copysign[i0] = copysign
    """
    size = body.op("abs", x)
    if not isinstance(sign, Element):
        return body.op("neg", size) if math.copysign(1, sign) < 0 else size
    return body.op("where", body.op("signbit", sign), body.op("neg", size), size)


def _is_bool(*args: Element | Number) -> bool:
    return _dtype(*args) is torch.bool


def _dtype(*args: Element | Number) -> torch.dtype:
    return next(a.dtype for a in args if isinstance(a, Element))


def _scale(body: Body, y: Element | Number, alpha: Element | Number) -> Element | Number:
    """Returns ``alpha * y``; eager PyTorch refuses a bool for numbers."""
    if isinstance(alpha, bool):
        raise NotLowered("a bool alpha")
    if alpha == 1:
        return y
    if isinstance(y, Element) or isinstance(alpha, Element):
        return body.op("mul", y, alpha)
    return y * alpha

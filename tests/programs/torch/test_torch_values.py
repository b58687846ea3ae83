"""Functions of every value that a small type has: infinities, NaN, signs of zero, the least and the greatest numbers.

Values are eager's or nearer to those of float64; infinities, NaN and integers are eager's.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import compiler_core
from tests.sampling import pairs

Function = Callable[..., torch.Tensor]
FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
_truncated: Function = functools.partial(torch.div, rounding_mode="trunc")

OF_TORCH = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "deg2rad", "erf", "erfc", "exp"),
    *("exp2", "expm1", "floor", "frac", "isfinite", "isnan", "log", "log10", "log1p", "log2", "nan_to_num", "neg"),
    *("rad2deg", "reciprocal", "relu", "round", "rsqrt", "sgn", "sigmoid", "sin", "sinc", "sinh", "sqrt", "square"),
    *("tan", "tanh", "trunc", "digamma", "erfinv", "i0", "isneginf", "isposinf", "lgamma", "logit", "positive"),
)
SPECIAL = ("entr", "expit", "i0e", "i1", "log_ndtr", "ndtr", "ndtri")
ACTIVATIONS = (
    *("celu", "elu", "gelu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish"),
    *("relu6", "selu", "silu", "softplus", "softshrink", "softsign", "tanhshrink"),
)
OF_ONE: dict[str, Function] = {
    **{name: getattr(torch, name) for name in OF_TORCH},
    **{name: getattr(F, name) for name in ACTIVATIONS},
    **{name: getattr(torch.special, name) for name in SPECIAL},
    **{f"x ** {e}": functools.partial(torch.pow, exponent=e) for e in (-2, -1, -0.5, 0.5, 2, 2.5, 3)},
    **{f"{number} ** x": functools.partial(torch.pow, number) for number in (0.5, 2)},
    **{f"{name} by a number": functools.partial(getattr(torch, name), other=0.7) for name in ("mul", "div", "fmod")},
    **{f"to {to}": functools.partial(torch.Tensor.to, dtype=to) for to in (torch.bool, *INTEGERS)},
    **{f"modulo of {to}": lambda x, to=to: x.to(to).long() % 9 for to in INTEGERS},  # it must be in range
    "truncated quotient": lambda x: _truncated(x, torch.full_like(x, 0.3)),
    "truncated quotient of a tensor": lambda x: _truncated(torch.full_like(x, 1.5), x),
    "truncated quotient by a number": lambda x: _truncated(x, 0.3),
    "truncated quotient by one element": lambda x: _truncated(x, torch.full((1,), 0.3, dtype=x.dtype)),
    "floor of a quotient": lambda x: (x / 49).floor(),
    "clamp": lambda x: x.clamp(-0.5, 2),
    "clamped logit": lambda x: x.logit(0.01),
    "tanh gelu": lambda x: F.gelu(x, approximate="tanh"),
    "steep softplus": lambda x: F.softplus(x, beta=3, threshold=2),
    "threshold": lambda x: F.threshold(x, 0.5, 7),
    "numbers for nan": lambda x: x.nan_to_num(1, 2, 3),
    "rounded": lambda x: x.round(decimals=1),
    "scaled root": lambda x: x.abs().sqrt() / 3 - 1,
    "heaviside": lambda x: torch.heaviside(x, torch.full_like(x, 0.5)),
}
"""Functions of one number."""
OF_TWO: dict[str, Function] = {
    **{
        name: getattr(torch, name)
        for name in (
            *("add", "sub", "mul", "div", "pow", "atan2", "remainder", "fmod", "maximum", "minimum", "fmax", "fmin"),
            *("hypot", "copysign", "logaddexp", "xlogy", "floor_divide", "nextafter", "eq", "ne", "lt", "le"),
            *("logaddexp2", "ldexp", "rsub", "gt", "ge", "isclose"),
        )
    },
    "xlog1py": torch.special.xlog1py,
    "gates": lambda x, y: F.glu(torch.stack([x, y], -1), -1)[..., 0],
    "truncated quotient": _truncated,
    "where": lambda x, y: torch.where(x > y, x, y),
    "lerp": lambda x, y: torch.lerp(x, y, 0.25),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=0.5),
    "clamp": lambda x, y: torch.clamp(x, min=y),
    "far lerp": lambda x, y: torch.lerp(x, y, 0.75),
    **{
        name: functools.partial(getattr(F, name), reduction="none")
        for name in (
            *("binary_cross_entropy_with_logits", "huber_loss", "l1_loss", "mse_loss", "poisson_nll_loss"),
            "smooth_l1_loss",
        )
    },
}
"""Functions of two numbers."""
OF_INTEGERS: dict[str, Function] = {
    **{
        name: getattr(torch, name)
        for name in (
            *("add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "maximum", "minimum", "eq", "lt", "gt"),
            *("bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "atan2", "copysign", "true_divide"),
        )
    },
    "truncated quotient": _truncated,
    "by three": lambda x, y: x // 3 + y % 5,
    "by minus three": lambda x, y: x % -3 - y // -7,
    "left shift": lambda x, y: x << (y & 7),
    "right shift": lambda x, y: x >> (y & 7),
    "negative": lambda x, y: -x + ~y - x.abs() * y.sign(),
    "powers": lambda x, y: x.square() + y**3,
    "float": lambda x, y: x.float() / y,
    "unsigned": lambda x, y: x.to(torch.uint8) + y.to(torch.int16),
}
"""Functions of two integers."""
NO_DERIVATIVE = {"heaviside", "nextafter", "floor_divide"}
NAN_IN_EAGER = {"gelu", "fmod", "fmod by a number", "remainder"}
"""Functions that are NaN in eager where the right value is not: of infinity, and where the quotient is large."""
INEXACT_GRADIENTS = {"sinc": torch.float32, "hardsigmoid": torch.float64}
"""Near 0, the difference of two almost equal numbers; and eager rounds 1/6 to float32 there."""
GROUPS = 7


def every_half(dtype: torch.dtype) -> torch.Tensor:
    """Returns all values of a half type; as a wider type, those of bfloat16."""
    half = dtype if dtype.itemsize == 2 else torch.bfloat16
    return torch.arange(-(2**15), 2**15).to(torch.int16).view(half).to(dtype)


def edges(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns all pairs of some 200 values of a floating-point type."""
    some = every_half(dtype)[::331]
    named = (0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.0, 3.0, -3.0, 49.0, float("inf"), float("-inf"), float("nan"))
    values = torch.cat([some, torch.tensor(named, dtype=dtype)])
    return values.repeat_interleave(len(values)), values.repeat(len(values))


def run(functions: dict[str, Function], program: Any, *arguments: torch.Tensor) -> list[torch.Tensor]:
    """Returns the values of functions of the same numbers, then the gradients by each argument of each function."""
    inputs = []
    for name in functions:
        leaf = arguments[0].is_floating_point() and name not in NO_DERIVATIVE
        inputs.append(tuple(a.clone().requires_grad_(leaf) for a in arguments))
    values = program(inputs)
    sums = [v.sum() for v in values if v.requires_grad]
    leaves = [x for given in inputs for x in given if x.requires_grad]
    found = (
        dict(zip(map(id, leaves), torch.autograd.grad(sums, leaves, allow_unused=True), strict=True)) if sums else {}
    )
    gradients = [found.get(id(x)) for given in inputs for x in given]
    return [*(v.detach() for v in values), *(torch.zeros_like(arguments[0]) if g is None else g for g in gradients)]


def compare(functions: dict[str, Function], *arguments: torch.Tensor) -> None:
    def program(inputs: Sequence[tuple[torch.Tensor, ...]]) -> list[torch.Tensor]:
        return [function(*given) for function, given in zip(functions.values(), inputs, strict=True)]

    found = run(functions, compiler_core.compile(program), *arguments)
    expected = run(functions, program, *arguments)
    is_float = arguments[0].is_floating_point()
    exact = run(functions, program, *(a.double() for a in arguments)) if is_float else expected
    names = list(functions)
    # the gradient at NaN is NaN or the one of a branch, as eager's vectors or scalars have it; on a GPU, conversions
    # from float16 lose the sign of NaN, which `copysign` reads
    at_nan = functools.reduce(operator.or_, map(torch.isnan, arguments))
    for at, (ours, eager, right) in enumerate(zip(found, expected, exact, strict=True)):
        is_gradient = at >= len(names)
        name = names[(at - len(names)) // len(arguments) if is_gradient else at]
        if is_gradient and INEXACT_GRADIENTS.get(name) is eager.dtype:
            continue
        left_out = at_nan if is_gradient or name == "copysign" else eager.isnan() & (name in NAN_IN_EAGER)
        assert ours.dtype == eager.dtype, name
        places = (is_wrong(ours, eager, right) & ~left_out).nonzero().flatten()[:4].tolist()
        what = f"gradient of {name}" if is_gradient else name
        assert not [f"{what} of {[a[i] for a in arguments]}: {ours[i]}, not {eager[i]}" for i in places]


def is_wrong(ours: torch.Tensor, eager: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Returns which of our values are neither eager's nor as near to the right ones, up to roundings on the way."""
    if not eager.is_floating_point():
        return ours != eager
    computed = torch.float64 if eager.dtype is torch.float64 else torch.float32
    right = torch.where(right.isnan(), eager, right).double()
    allowed = 2 * (eager - right).abs() + 2 * torch.finfo(eager.dtype).eps * right.abs()
    allowed += 24 * torch.finfo(computed).eps * (1 + right.abs())
    return (ours != eager) & ~((ours - right).abs() <= allowed) & ~(ours.isnan() & eager.isnan())


def group(functions: dict[str, Function], number: int, dtype: torch.dtype, arguments: int) -> dict[str, Function]:
    """Returns a part of the functions: those for which eager has a kernel."""
    return {
        name: functions[name]
        for name in list(functions)[number::GROUPS]
        if _has_kernel(name, functions[name], [torch.ones(1, dtype=dtype) for _ in range(arguments)])
    }


def _has_kernel(name: str, function: Function, arguments: Sequence[torch.Tensor]) -> bool:
    try:
        run({name: function}, lambda inputs: [function(*inputs[0])], *arguments)
    except NotImplementedError:
        return False
    return True


@pytest.mark.parametrize(("dtype", "number"), pairs(FLOATS, range(GROUPS), 14))
def test_one_number(dtype: torch.dtype, number: int) -> None:
    compare(group(OF_ONE, number, dtype, 1), every_half(dtype))


@pytest.mark.parametrize(("dtype", "number"), pairs(FLOATS, range(GROUPS), 7))
def test_two_numbers(dtype: torch.dtype, number: int) -> None:
    compare(group(OF_TWO, number, dtype, 2), *edges(dtype))


@pytest.mark.parametrize(("dtype", "number"), pairs((torch.int8, torch.uint8), range(GROUPS), 5))
def test_two_small_integers(dtype: torch.dtype, number: int) -> None:
    """All pairs, but for divisors of zero."""
    info = torch.iinfo(dtype)
    values = torch.arange(info.min, info.max + 1, dtype=torch.int16).to(dtype)
    divisors = values[values != 0]
    compare(group(OF_INTEGERS, number, dtype, 2), values.repeat_interleave(len(divisors)), divisors.repeat(len(values)))


@pytest.mark.parametrize(("dtype", "number"), pairs((torch.int16, torch.int32, torch.int64), range(GROUPS), 5))
def test_two_wide_integers(dtype: torch.dtype, number: int) -> None:
    """Without a divisor of -1, by which eager's division of the least number ends the process."""
    info = torch.iinfo(dtype)
    powers = {sign * 2**n + step for n in range(info.bits) for sign in (-1, 1) for step in (-1, 0, 1)}
    values = torch.tensor(sorted(n for n in powers if info.min <= n <= info.max), dtype=dtype)
    divisors = values[(values != 0) & (values != -1)]
    compare(group(OF_INTEGERS, number, dtype, 2), values.repeat_interleave(len(divisors)), divisors.repeat(len(values)))


@pytest.mark.parametrize(
    ("source", "dtype"), pairs([torch.int32, torch.int64, torch.float32, torch.float64], FLOATS[:2], 2)
)
def test_numbers_become_halves_before_they_are_added(source: torch.dtype, dtype: torch.dtype) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        sums = [x.sum(dtype=dtype), x.sum(1, dtype=dtype), x.mean(1, dtype=dtype)]
        if x.device.type == "cpu":
            sums.append(x.cumsum(1, dtype=dtype))  # eager's kernel for a GPU rounds each sum of two
        return [*sums, torch.addcmul(y, x, y), torch.addcmul(x, x, y, value=2)]

    x = torch.tensor([[2049, 1, 1023, -3000], [257, -129, 4099, 1]], dtype=source)
    given = x, torch.tensor([1, 3, 0.5, 2], dtype=dtype)
    for ours, eager in zip(compiler_core.compile(program)(*given), program(*given), strict=True):
        torch.testing.assert_close(ours, eager, rtol=0, atol=0)


@pytest.mark.parametrize(("shape", "dtype"), pairs([(1,), (5, 1), (1, 5), (5, 3)], FLOATS, 2))
def test_sums_of_negative_zeros_are_positive(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if torch.get_default_device().type != "cpu":
        pytest.skip("on a GPU, eager's cumsum of one row begins with its first number, and ours of a few rows, too")

    def program(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.sum(), x.sum(0), x.sum(-1), x.mean(-1), x.cumsum(-1), x.cumsum(0), x.prod(-1), x.amax(-1)]

    x = torch.full(shape, -0.0, dtype=dtype)
    for ours, eager in zip(compiler_core.compile(program)(x), program(x), strict=True):
        assert torch.equal(ours.signbit(), eager.signbit())

"""Tables of the loop IR: operations with their cost, reductions, scans and types."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Op(NamedTuple):
    """An operation: its number of arguments and its cost.

    The unit of `cost` is an addition.  It is used only to compare recomputing with storing, and to choose the number
    of threads.
    """

    arity: int
    cost: int = 1


OPS: dict[str, Op] = {
    # the result has the type of the arguments; integer overflow wraps around
    **{name: Op(2) for name in ("add", "sub", "mul")},
    "div": Op(2, 4),  # floats only
    # the quotient is rounded down (floordiv) or towards 0 (truncdiv); `mod` has the sign of the divisor, `fmod` that
    # of the dividend.  An integer divisor is a Literal other than 0, since eager raises on 0.
    **{name: Op(2, 6) for name in ("floordiv", "truncdiv", "mod", "fmod")},
    **{name: Op(2) for name in ("minimum", "maximum")},  # NaN if an argument is
    "pow": Op(2, 20),
    "atan2": Op(2, 20),
    "neg": Op(1),
    "abs": Op(1),
    "sign": Op(1),  # sign(NaN) and sign(0) are 0
    **{name: Op(1) for name in ("floor", "ceil", "trunc")},
    "round": Op(1),  # half to even
    "sqrt": Op(1, 4),
    "rsqrt": Op(1, 5),
    **{
        name: Op(1, 10)
        for name in (
            *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "erf", "erfc"),
            *("sin", "cos", "tan", "asin", "acos", "atan"),
            *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
        )
    },
    # bitwise on integers, logical on bool
    **{name: Op(2) for name in ("and", "or", "xor")},
    "not": Op(1),
    **{name: Op(2) for name in ("lshift", "rshift")},
    # the result is bool; comparisons with NaN are False, but `ne` is True
    **{name: Op(2) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "isnan": Op(1),
    "isinf": Op(1),
    "signbit": Op(1),
    "where": Op(3),  # condition is bool, the other two have the result's type
    # a random f32 in (0, 1]; see philox.py.  Arguments: the element's position in memory, then the seed, offset and
    # number of threads that a call drew (all i64), and how many elements a thread of eager's kernel computes (i32)
    "uniform": Op(5, 60),
    "cast": Op(1),  # as Tensor.to: towards 0 to an integer, ``!= 0`` to bool
}
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "signbit"})
REDUCTIONS: dict[str, float | bool] = {
    "sum": 0,
    "prod": 1,
    "max": float("-inf"),  # NaN if any element is; of an integer type, its least value
    "min": float("inf"),
    "any": False,  # of bool
    "all": True,
}
"""Each reduction, with its identity element."""
SCANS = ("sum", "prod")
"""The reductions that a `Scan` may have."""
SHORT = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "bool",
}
"""The types of the loop IR, with their names in its text.  An operator of any other type stays a call of PyTorch."""

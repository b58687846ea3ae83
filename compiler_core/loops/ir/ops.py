"""The tables of the loop IR: operations with their cost, reductions, types."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Op(NamedTuple):
    """`cost` is in additions; it only weighs recomputing against storing, and threads."""

    arity: int
    cost: int = 1


OPS: dict[str, Op] = {
    # the result has the type of the arguments; integers wrap around
    **{name: Op(2) for name in ("add", "sub", "mul")},
    "div": Op(2, 4),  # floats only
    # quotient rounded down or towards 0; `mod` has the sign of the divisor, `fmod` of the
    # dividend.  An integer divisor is a Literal other than 0, since eager raises on 0.
    **{name: Op(2, 6) for name in ("floordiv", "truncdiv", "mod", "fmod")},
    **{name: Op(2) for name in ("minimum", "maximum")},  # NaN when an argument is
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
    # on integers bit by bit, on bool logical
    **{name: Op(2) for name in ("and", "or", "xor")},
    "not": Op(1),
    **{name: Op(2) for name in ("lshift", "rshift")},
    # the result is bool; comparisons with NaN are False, but `ne` is True
    **{name: Op(2) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "isnan": Op(1),
    "isinf": Op(1),
    "signbit": Op(1),
    "where": Op(3),  # condition is bool, the other two have the result's type
    # a random f32 in (0, 1] for the element at a place in memory, from the numbers that a call drew and the number
    # of neighbours that a thread of eager's kernel does, all of them i64 but the last, which is i32 (philox.py)
    "uniform": Op(5, 60),
    "cast": Op(1),  # as Tensor.to: to an integer towards 0, to bool "is not 0"
}
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "signbit"})
REDUCTIONS: dict[str, float | bool] = {
    "sum": 0,
    "prod": 1,
    "max": float("-inf"),  # NaN when any element is; the least value of an integer type
    "min": float("inf"),
    "any": False,  # of bool
    "all": True,
}
"""Each reduction and what it is of nothing."""
SCANS = ("sum", "prod")
"""The reductions that there are running ones of."""
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
"""The types that loops compute with; a graph node of any other type is a call of PyTorch's."""

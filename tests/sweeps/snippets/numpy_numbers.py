# mypy: ignore-errors
# ruff: noqa
"""Numbers of NumPy that change from call to call, in arithmetic."""

import math

import numpy as np
import torch

from tests.sweeps.snippets.corpus import each, program

RATES = 0.1, 0.2, 0.3, 0.4, 0.5
DOUBLES = each(lambda v: (torch.randn(3), np.float64(v)), RATES)
SINGLES = each(lambda v: (torch.randn(3), np.float32(v)), RATES)
HALVES = each(lambda v: (torch.randn(3), np.float16(v)), RATES)
PLAIN = each(lambda v: (torch.randn(3), v), RATES)
INTS = each(lambda v: (torch.randn(9), np.int64(v)), (3, 4, 5, 6, 7))


@program(*DOUBLES)
def power_of_number(x, s):
    return x + s**2, -s, round(s * 2, 1)


@program(*DOUBLES)
def math_of_number(x, s):
    return x + math.sqrt(s + 1), s * 2, isinstance(s * 2, float)


@program(*DOUBLES)
def converted(x, s):
    return x * (s * 2).item(), int(s * 20), float(s * 2)


@program(*DOUBLES)
def greater_number(x, s):
    return x * max(s * 2, 0.1)


@program(*DOUBLES)
def tensors_of_numbers(x, s):
    return torch.full((2,), s * 2) + x.sum(), torch.tensor(s * 2), torch.as_tensor([s * 2, s])


@program(*DOUBLES)
def number_first(x, s):
    return (s * 2) * x, (s * 2) / x, (s * 2) - x, x ** (s * 2)


@program(*DOUBLES)
def functions_of_number(x, s):
    return np.maximum(s * 2, 0.1) * x, np.cos(s * np.pi) * x


@program(*SINGLES)
def single_precision(x, s):
    return x * (s * 10), s * 0.1, s + np.float64(0.1), s / 3


@program(*INTS)
def indices(x, s):
    return x[s - 1], x[: s + 1], x[s // 2], x.repeat(s + 1), s // 2, s % 3, s / 2


@program(*INTS)
def sizes_of_numbers(x, s):
    return torch.arange(s * 2), torch.zeros(s + 1, 2), torch.eye(int(s) + 1)


@program(*DOUBLES)
def branch_on_number(x, s):
    return x * s if s * 2 > 0.5 else x - s


@program(*DOUBLES)
def numbers_in_containers(x, s):
    d = {"a": s * 2}
    l = [s, s + 1]
    return x * d["a"] + l[1]


@program(*HALVES)
def half_precision(x, s):
    return x * (s * 2), s * 2, s * 2.0


@program(*PLAIN)
def functions_of_plain_number(x, s):
    return x * np.sqrt(s), x * np.exp(-s), np.log(s)


@program(*DOUBLES)
def items_set_to_numbers(x, s):
    y = x.clone()
    y[0] = s * 2
    y.fill_(s + 1)
    y[1:] = 1 - s
    return y


@program(*DOUBLES)
def number_in_place(x, s):
    s *= 2
    s += 1
    return x * s, np.float32(s), np.float64(s) * x, abs(s)

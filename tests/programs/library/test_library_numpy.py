# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""NumPy's numbers and arrays where they become tensors.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import pytest
import torch

from compiler_core.tools.testing import same_as_eager

np = pytest.importorskip("numpy")

SCALE = np.float32(0.5)
TABLE = np.arange(4, dtype=np.float32)


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.ones(2), np.float32(3), np.int64(2)))
def test_numbers_as_arguments(x, scale, n):
    return x * scale + n, scale, int(n), float(scale), n + 1, n == 2, isinstance(scale, float), type(n * 2)


def test_numbers_are_guarded():
    import compiler_core

    compiled = compiler_core.compile(lambda x, n: x * n, backend="eager")
    for n in (np.float32(2), np.float32(3), np.float64(3), 3, np.float32("nan")):
        got = compiled(torch.ones(1), n).item()
        assert got == float(n) or n != n


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_functions_of_numbers(x):
    n = int(np.prod(x.shape))
    return (
        x * n,
        np.sqrt(16.0),
        np.prod((2, 3)),
        np.ceil(2.5),
        np.log2(8),
        x / np.sqrt(x.shape[-1]),
        int(np.int64(3)),
        np.maximum(1, 2),
    )


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_tensor_of_numbers(x):
    return (
        torch.tensor(SCALE),
        torch.tensor(np.float64(2)),
        torch.tensor(np.int32(3)),
        torch.as_tensor(np.int64(1)),
        x + 1,
    )


@same_as_eager(breaks=["unsupported call"])
def test_tensor_of_numbers_in_a_list(x):
    return torch.tensor([np.float64(1), np.float64(2)]), x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_array_from_outside(x):
    t = torch.from_numpy(TABLE)
    return x + t, torch.tensor(TABLE), torch.as_tensor(TABLE) * 2, TABLE.shape, len(TABLE), TABLE.ndim


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.ones(2, 3), np.arange(6.0).reshape(3, 2).T))
def test_array_with_strides(x, a):
    return torch.from_numpy(a) * x, torch.tensor(a), a.size


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.ones(2, 3), np.arange(24.0).reshape(4, 6)[::2, ::2]))
def test_array_with_gaps(x, a):
    return torch.from_numpy(a) * x, torch.tensor(a), torch.as_tensor(a)


def test_arrays_are_guarded():
    import compiler_core

    compiled = compiler_core.compile(lambda a: torch.from_numpy(a) * 2, backend="eager")
    for a in (np.ones(2), np.ones(3), np.ones(2, dtype=np.int64), np.ones(2)):
        assert torch.equal(compiled(a), torch.from_numpy(a) * 2)


class Holder:
    def __init__(self):
        self.b = torch.ones(2)


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.ones(2), Holder()))
def test_inputs_that_read_alike(a_b, a):
    return a_b + a.b


@same_as_eager(graphs=1, breaks=[])
def test_limits_of_dtypes(x):
    info, whole = np.finfo(np.float32), np.iinfo("int16")
    return x.clamp(min=float(info.eps)) + info.bits + x * float(info.tiny) + whole.max + int(np.finfo("f8").precision)


@same_as_eager()
def test_limits_of_a_wrong_dtype(x):
    try:
        return x * np.iinfo(np.float32).max
    except ValueError as error:
        return x * len(str(error))

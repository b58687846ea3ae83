# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""NumPy's numbers and arrays where they become tensors.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import warnings

import pytest
import torch

from compiler_core.tools.testing import same_as_eager

np = pytest.importorskip("numpy")

SCALE = np.float32(0.5)
TABLE = np.arange(4, dtype=np.float32)


def test_numbers_are_guarded():
    import compiler_core

    compiled = compiler_core.compile(lambda x, n: x * n, backend="eager")
    for n in (np.float32(2), np.float32(3), np.float64(3), 3, np.float32("nan")):
        got = compiled(torch.ones(1), n).item()
        assert got == float(n) or n != n


def test_numbers_that_are_computed_from_a_number_that_changes():
    """NumPy computes them in each call, or leaves the call to Python where it warns."""
    import compiler_core

    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    def step(x, s, n):
        return x[: n + 1] * (1 - s) * np.exp(-s) + max(s, 0.1), s * 2, n // 2, s.item(), 1 / s

    compiled = compiler_core.compile(step, backend=backend)
    x = torch.randn(9)
    for i in range(1, 7):
        args = x, np.float32(i / 8), np.int64(i)
        got, want = compiled(*args), step(*args)
        assert torch.equal(got[0], want[0])
        assert repr(got[1:]) == repr(want[1:])
    assert len(graphs) == 2
    args = x, np.float32(0), np.int64(3)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert repr(compiled(*args)[1:]) == repr((np.float32(0), np.int64(1), 0.0, np.float32("inf")))


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


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.randn(2), np.float32(0.1), [np.int8(3), np.uint8(200)]))
def test_lists_of_numbers(x, number, whole):
    return (
        x + torch.tensor([number, 0.1]),
        torch.tensor([[number], [np.float64(0.1)]]),
        torch.as_tensor(whole),
        torch.tensor((np.float16(0.1), x.shape[0])),
        torch.tensor([number, 2], dtype=torch.float64),
    )


@same_as_eager(inputs=lambda: (torch.randn(2), [np.bool_(True), 1]))
def test_a_list_of_numbers_that_pytorch_refuses(x, numbers):
    try:
        return torch.tensor(numbers)
    except TypeError as error:
        return x * len(str(error))


VALUES = {
    np.float32: (0.1, 2.5, -1.5, 3, 0, float("nan")),
    np.float64: (0.1, 1e30, -1.5, 3, -0.0, float("inf")),
    np.float16: (0.1, 2.5, 300),
    np.int64: (2, 3, 1, 0, -1, 2**40),
    np.int8: (100, 2, -128, 127),
    np.uint8: (200, 2, 255, 0),
}


@pytest.mark.parametrize("kind", VALUES)
def test_numbers_that_change(kind):
    """Arguments that are NumPy's numbers need as many compiles as Python's."""
    import compiler_core
    from compiler_core.api.compile import record_of

    x, small = torch.randn(2, 3), torch.arange(3, dtype=torch.int8)

    def program(n):
        kinds = isinstance(n, np.integer), isinstance(n, float), type(n)
        return x * n, n * x.half(), n - x.double(), small + n, torch.full((2,), n), x + float(n), n, kinds

    def program_of_python(n):
        return x * n, n * x.half(), n - x.double(), small + n, torch.full((2,), n), x + float(n), n

    compiled, of_python = (compiler_core.compile(f, backend="eager") for f in (program, program_of_python))
    for value in VALUES[kind]:
        got, want = compiled(kind(value)), program(kind(value))
        torch.testing.assert_close(got[:6], want[:6], rtol=0, atol=0, equal_nan=True)
        assert got[6].tobytes() == want[6].tobytes() and got[7] == want[7]
        of_python(kind(value).item())
        assert len(record_of(compiled).compiles) == len(record_of(of_python).compiles)


@pytest.mark.parametrize("number", [np.complex64(1 + 2j), np.uint64(2**63 + 1), np.timedelta64(2, "ns")], ids=repr)
def test_numbers_that_are_none_of_python(number):
    """PyTorch reads the real part of a complex64, and NumPy computes with the others."""
    import compiler_core

    def program(x):
        try:
            return number * x, x + number
        except TypeError as error:
            return str(error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        got, want = (f(torch.ones(3)) for f in (compiler_core.compile(program, backend="eager"), program))
    assert repr(got) == repr(want)


@same_as_eager()
def test_numbers_that_pytorch_refuses(x):
    messages = []
    try:
        x[0] = SCALE
    except TypeError as error:
        messages.append(str(error))
    try:
        torch.tensor(np.uint64(3))
    except TypeError as error:
        messages.append(str(error))
    return x * len(messages), messages

# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""NumPy's functions on arrays, which a graph computes: values, dtypes, shared memory and warnings are NumPy's.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import warnings

import pytest
import torch

import compiler_core
from compiler_core.api.compile import record_of
from compiler_core.capture.values.arrays import UFUNCS
from compiler_core.tools.testing import break_kinds, same_as_eager
from tests.sampling import sample

np = pytest.importorskip("numpy")

TABLE = lambda: (np.arange(6.0).reshape(2, 3) + 1,)


@same_as_eager(graphs=1, breaks=[], compiles=1, tolerance=1e-6)
def test_there_and_back(x):
    return torch.from_numpy(np.sin(x.numpy())) + x


@same_as_eager(graphs=1, breaks=[], compiles=1, inputs=TABLE, tolerance=1e-12)
def test_reductions(a):
    sums = a.sum(), a.mean(0), np.std(a, axis=1), np.var(a, ddof=1), a.prod(axis=0), a.cumsum(), np.cumprod(a, 1)
    chosen = a.argmax(), a.argmin(1), (a > 2).any(), np.all(a > 0, axis=0), a.max(axis=(0, 1)), np.amin(a)
    return *sums, *chosen, np.sum(a, axis=-1, keepdims=True)


@same_as_eager(graphs=1, breaks=[], compiles=1, inputs=lambda: (*TABLE(), *TABLE()), tolerance=1e-12)
def test_shapes(a, b):
    joined = np.concatenate([a, b]), np.stack((a, b), axis=-1), np.vstack([a, b]), np.hstack([a, b])
    chosen = np.where(a > 2, a, b), np.where(a > 2, a, 0), np.clip(a, 1, 3), np.sort(a, axis=0), np.tril(a)
    taken = np.take(a, [0, -1], axis=1), np.take(a, [[0, 1], [2, 3]]), np.take(a, np.array([1]), 0), np.take(a, 1, -1)
    products = np.dot(a, b.T), a @ b.T, np.outer(a, b)
    moved = np.tile(a, (2, 1)), np.repeat(a, 2, axis=0), np.diff(a), np.roll(a, 1), a.flatten(), np.copy(a)
    views = np.expand_dims(a, 0), np.squeeze(a[None]), np.swapaxes(a, 0, 1), np.moveaxis(a, 0, 1), np.transpose(a)
    return *joined, *chosen, *taken, *products, *moved, *views, a.ravel(), a[:, 1:], a[0], a[..., None]


@same_as_eager(graphs=1, breaks=[], compiles=1, inputs=TABLE, tolerance=1e-12)
def test_several_arrays(a):
    grids = np.meshgrid(np.arange(3), np.arange(4), indexing="ij"), np.meshgrid(a[0], a[1, :2])
    parts = np.split(a, 3, axis=1), np.array_split(a, [1], 0), np.split(a.ravel(), (2, 5))
    parts[0][1][0] = 7  # the parts are views
    return grids, parts, type(grids[0]).__name__, len(parts[0]), np.column_stack(parts[0]), np.dstack([a, a * 2])


@same_as_eager(graphs=1, breaks=[], compiles=1, inputs=TABLE)
def test_copies_of_reversed_views(a):
    """Views with negative strides see later writes, and a copy has the order of C."""
    view, both = a[:, ::-1], np.flip(a)
    a[0, 0] = 50
    copies = (
        view.copy(),
        both.copy(),
        np.flipud(a).copy(),
        a.T[::-1].copy(),
        a[0, ::-1].copy(),
        a[None, ..., ::-1].copy(),
    )
    return *copies, view, both, view.shape, both.ndim


@same_as_eager(inputs=TABLE)
def test_reversed_views(a):
    view = np.flip(a, axis=0)
    view += 1
    with pytest.raises(ValueError):
        torch.from_numpy(view)
    return view, view.sum(), view * 2, view[0], np.ascontiguousarray(view), a[::-2].copy(), a[[0, 1], ::-1].copy()


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_embedding_of_positions(x):
    """As masked autoencoders and diffusion transformers make it."""

    def embedded(dim, positions):
        omega = np.arange(dim // 2, dtype=np.float64)
        omega /= dim / 2.0
        out = np.einsum("m,d->md", positions.reshape(-1), 1.0 / 10000**omega)
        return np.concatenate([np.sin(out), np.cos(out)], axis=1)

    rows, columns = np.meshgrid(np.arange(2, dtype=np.float32), np.arange(2, dtype=np.float32))
    found = np.empty((4, 8))
    found[:] = np.concatenate([embedded(4, columns), embedded(4, rows)], axis=1)
    return x + torch.from_numpy(found).float().sum(1)


@same_as_eager(graphs=1, breaks=[], compiles=1, inputs=TABLE, tolerance=1e-12)
def test_einsum(a):
    views = np.einsum("ij->ji", a), np.einsum("ii->i", a[:, :2])
    return np.einsum("ij,kj->ik", a, a), np.einsum("ij->", a), np.einsum("ij,i->j", a, np.arange(2)), views


@same_as_eager(graphs=1, breaks=[], compiles=1, inputs=TABLE)
def test_new_arrays(a):
    made = (
        np.zeros((2, 3)),
        np.ones(3, dtype=np.int32),
        np.arange(5),
        np.arange(0, 1, 0.25),
        np.eye(3),
        np.array([1, 2]),
    )
    cast = a.astype(np.float32), a.astype(bool), np.array(a, dtype=np.float32), np.zeros_like(a), np.linspace(0, 1, 5)
    return *made, *cast, np.full((2,), 7), np.full(3, 0.5, dtype=np.float32), np.full_like(a, 2)


@same_as_eager(graphs=1, breaks=[], compiles=1, inputs=lambda: (np.arange(4, dtype=np.int32),), tolerance=1e-12)
def test_integers(a):
    whole = a // 2, a % 3, a**2, -a, ~a, a & 1, a == 2, abs(a), a + True
    return *whole, a / 2, a.mean(), a.sum(), a * 2.5, a.astype(np.float32), np.sin(a), np.sqrt(a), 2 * a


@same_as_eager(graphs=1, breaks=[], compiles=1, inputs=TABLE)
def test_writes_are_seen_by_views(a):
    t = torch.from_numpy(a)
    b = a.T
    b[0, 1] = 9
    c = a.reshape(-1)
    c[2] = -1
    d = a[0]
    d += 3
    t.mul_(2)
    a[a > 8] = 0
    return a, b, c, d, t, torch.from_numpy(a)


@same_as_eager(graphs=1, breaks=[], compiles=1, inputs=lambda: (torch.ones(2, 3),))
def test_array_of_a_tensor_shares_its_memory(x):
    a = x.numpy()
    a += 1
    a[0, 1] = 7
    return (
        a,
        x * 2,
        np.asarray(a) is a,
        isinstance(a, np.ndarray),
        a.shape,
        a.ndim,
        a.size,
        len(a),
        [r.sum() for r in a],
    )


@same_as_eager(graphs=1, breaks=[], compiles=1, inputs=lambda: (np.arange(24.0).reshape(2, 3, 4), torch.ones(3, 4)))
def test_indices_that_are_arrays(a, x):
    """The items have NumPy's order in memory; an index of a tensor may be an array, too."""
    i, wide = np.array([1, 0]), np.array([1, 0, 1], dtype=np.int32)
    items = a[i], a[:, i], a[:, :, wide], a[..., i], a[i, i], a[0, i], a[:, i, i], a[:, 0, wide], a[i[:, None], i]
    b = a.copy()
    b[i, wide[:2]] = 7
    numbers = a.max().item(), float(a[0].min()), int(a.argmax()), a[0, :2, i].shape if x is None else a[0, 0].tolist()
    y = x.clone()
    y[i, 2] = y[i, 1] * 3
    rows = x[i.max()], x[i[1], i.min()], x[: i[0]], x[range(3), x.numpy().argmax(1)]
    return *items, b, *numbers, x[i], x[:, wide], x[i, i], x[np.array([True, False, True])], y, *rows


@same_as_eager(graphs=1, breaks=[], compiles=1, inputs=lambda: (np.arange(6, dtype=np.float32).reshape(2, 3),))
def test_facts_of_arrays(a):
    made, wide = a * 2, a.astype(np.promote_types(a.dtype, np.dtype("float64")))
    facts = [
        (b.dtype, b.dtype.name, b.itemsize, b.nbytes, np.shape(b), np.size(b), np.ndim(b)) for b in (a, made, wide)
    ]
    asked = np.issubdtype(made.dtype, np.floating), np.issubdtype(type(2), np.integer), np.isscalar(2), np.isscalar("a")
    dtypes = (
        np.result_type(np.int8, np.float32),
        np.can_cast(np.float64, np.int8),
        wide.dtype == float,
        made.dtype != float,
    )
    same = np.asarray(a, dtype=np.float32) is a, np.asarray(a, dtype="float64"), np.asarray(made) is made
    return made, facts, asked, dtypes, same, np.array([a, made]), np.array([wide[0], a[1]]), np.zeros(2, a.dtype)


@same_as_eager(breaks=["NumPy", "NumPy", "exception"], inputs=lambda: (np.ones((2, 2, 2)), torch.ones(3, 4)))
def test_indices_that_pytorch_takes_otherwise(a, x):
    i = np.array([1, 0])
    items = a[0, :, i], x[np.array([[0, 1], [1, 2]])]
    try:
        return items, x.split(np.int64(2))
    except TypeError as error:
        return items, str(error)


def test_memory_and_versions():
    def program(x, a):
        view = x.numpy()
        view *= 3
        return view, a.T, a * 2, a[0, 0]

    compiled = compiler_core.compile(program, fullgraph=True)
    for _ in range(2):
        x, a = torch.ones(2, 3), np.ones((2, 3))
        view, transposed, new, number = compiled(x, a)
        a[0, 0] = 5
        x[0, 0] = 6
        assert x._version == 1
        assert view[0, 0] == 6 and transposed[0, 0] == 5 and new[0, 0] == 2 and number == 1
        assert type(number) is np.float64 and type(view) is np.ndarray


@same_as_eager(graphs=1, breaks=[], compiles=1, inputs=TABLE)
def test_numbers_of_arrays(a):
    s = a[0, 1]
    a[0, 1] = 100
    return s, a.max(), a, s * 2, a.max() + a, torch.tensor(a.mean()), torch.ones(3) * a.mean()


@same_as_eager(breaks=["tensor value read"], inputs=lambda: (torch.ones(3, requires_grad=True),))
def test_array_of_what_requires_a_gradient(x):
    return x.numpy()


@same_as_eager(breaks=["exception"], inputs=TABLE)
def test_wrong_shapes(a):
    return a + np.ones(5)


@same_as_eager(breaks=["NumPy"], inputs=TABLE)
def test_items_of_another_dtype(a):
    b = a.astype(np.float32)
    b[0] = a[0]
    return b


def test_floating_point_errors():
    def program(a):
        return np.log(a) + 1 / a

    compiled = compiler_core.compile(program)
    for value in (2.0, 0.0, -1.0, np.inf, np.nan, 3.0):
        a = np.full(3, value)
        found = []
        for call in (program, compiled):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found.append((call(a), [(w.category, str(w.message)) for w in caught]))
        np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-14)
        assert found[0][1] == found[1][1]
    with np.errstate(all="raise"):
        for small in (1e-200, 0.0):
            with pytest.raises(FloatingPointError):
                compiler_core.compile(lambda a: a * a / a)(np.full(2, small))
    assert break_kinds(record_of(compiled)) == []


def test_arrays_are_guarded():
    compiled = compiler_core.compile(lambda a: (a * 2, a.sum(0)))
    fixed = np.ones(2)
    fixed.flags.writeable = False
    for a in (
        np.ones(2),
        np.ones(3),
        np.ones(2, np.int64),
        np.ones((2, 2)).T,
        np.ones(4)[::2],
        np.ones(4)[::-1],
        fixed,
    ):
        for got, wanted in zip(compiled(a), (a * 2, a.sum(0)), strict=True):
            assert type(got) is type(wanted) and got.dtype == wanted.dtype
            np.testing.assert_array_equal(got, wanted)


DTYPES = "bool int8 uint8 int16 int32 int64 float16 float32 float64".split()


@pytest.mark.parametrize("ufunc", sample(UFUNCS, 4), ids=lambda ufunc: ufunc.__name__)
def test_functions_of_all_dtypes(ufunc):
    random = np.random.default_rng(0)
    for i, dtype in enumerate(DTYPES):
        args = [(random.random((3, 3)) * 5).astype(d) for d in (dtype, DTYPES[(i * 5 + 2) % 9])[: ufunc.nin]]
        results = []
        for call in (ufunc, compiler_core.compile(lambda *args: ufunc(*args), backend="eager")):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                try:
                    results.append(call(*args))
                except TypeError as error:
                    results.append(str(error))
        wanted, got = results
        assert type(got) is type(wanted)
        if isinstance(wanted, np.ndarray):
            assert got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol={2: 1e-3, 4: 1e-6}.get(wanted.itemsize, 1e-13))


def test_new_sizes_and_numbers():
    def program(x, n):
        a = x.numpy()
        return (a * n + 1).reshape(-1, 2), a.shape, np.mean(a, axis=0), np.zeros(n), a + n / 2, a.size

    compiled = compiler_core.compile(program)
    for n in (2, 3, 4, 5, 9):
        for got, wanted in zip(compiled(torch.ones(n, 2), n), program(torch.ones(n, 2), n), strict=True):
            assert type(got) is type(wanted)
            np.testing.assert_array_equal(got, wanted)
    assert len(record_of(compiled).compiles) == 2


def test_integers_are_not_assumed():
    def program(a, n):
        return a // n, a + n, np.arange(n), np.power(2.0, a) * n

    compiled = compiler_core.compile(program)
    for n in (2, 3, 4, -5, 7):
        for got, wanted in zip(compiled(np.arange(3), n), program(np.arange(3), n), strict=True):
            np.testing.assert_array_equal(got, wanted)
            assert got.dtype == wanted.dtype


def test_a_write_before_an_error_is_made_once():
    def program(a, x):
        a *= 2
        x.numpy()[0] = 4
        b = np.log(a - 2)
        a += 1
        return b, a

    compiled = compiler_core.compile(program)
    for value in (3.0, 1.0, 5.0):
        found = []
        for call in (program, compiled):
            a, x = np.full(3, value), torch.ones(2)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                b, same = call(a, x)
            assert same is a
            found.append((b.tolist(), a.tolist(), x.tolist(), x._version, [str(w.message) for w in caught]))
        assert found[0] == found[1]

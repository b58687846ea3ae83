# mypy: ignore-errors
# ruff: noqa
"""Programs over tensors: what they are asked, conversions, indexing, Python's protocols, numbers beside tensors.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import functools

import pytest
import torch
import torch.nn as nn

import compiler_core
from compiler_core.tools.testing import check, same_as_eager

one_graph = functools.partial(same_as_eager, graphs=1, breaks=[])


def matrix(*shape):
    return lambda: (torch.randn(*shape),)


# ---------------------------------------------------------------- what a tensor is asked


@one_graph()
def test_shape_and_size(x):
    a, b = x.shape
    n = x.size(0), x.size(-1), x.size(), x.shape[0] * 2, len(x.shape), x.shape.numel()
    return x.reshape(a * b) + x.numel() + x.dim() + x.ndim + x.nelement(), n


@one_graph()
def test_dtype_device_layout(x):
    facts = x.dtype, x.device, x.layout, x.is_cuda, x.is_cpu, x.device.type, x.dtype.is_floating_point, x.itemsize
    return x + 1, facts, x.dtype == torch.float32, x.device == torch.device("cpu"), x.is_sparse, x.nbytes


@same_as_eager(graphs=1, breaks=["unsupported attribute"], grad=True)
def test_grad_fn(x):
    y = x * 2
    return y, y.grad_fn is None, x.grad_fn is None, x.is_leaf, y.is_leaf


@same_as_eager(breaks=["unsupported mutation"], grad=True)
def test_data_assigned_and_used(x, y):
    x.data = y
    return x + 1


@same_as_eager(breaks=["unsupported mutation"], grad=True)
def test_data_assigned_and_viewed(x, y):
    with torch.no_grad():
        x.data = y.data * 2
        return x[0], x + 1


@same_as_eager(breaks=["unsupported mutation"], grad=True)
def test_data_assigned_and_written(x, y):
    with torch.no_grad():
        x.data = y.data * 2
        z = x.mul_(2)
        return z is x, x + 1


@one_graph()
def test_data_of_a_tensor_whose_data_is_assigned_later(x, y):
    x.data = y
    y.data = y.data * 2
    return x + 1, y + 1, x.data


@one_graph(grad=True)
def test_data_assigned(x, y):
    z = y.data * 2
    x.data = x.data * 2
    x.data = x.data + y.data.t()
    y.data = x.data.t()
    return z, y.data[1:], y.data


@same_as_eager(graphs=2, breaks=["unsupported mutation"], grad=True)
def test_data_assigned_after_a_view(x, y):
    view = x.t()
    x.data = x.data * 0
    return view @ y, view


@pytest.mark.cpu  # a wrong class ends the process on a GPU
@one_graph(backend="aot_eager", tolerance=1e-6, inputs=lambda: (torch.tensor([[0, 1], [2, 1]]), torch.randn(3, 3)))
def test_one_hot(i, w):
    try:
        torch.nn.functional.one_hot(i, 2) + 1
    except RuntimeError as error:
        return torch.nn.functional.one_hot(i, 3).float() @ w, str(error)


def spectrum(samples):
    def make():
        window = torch.hann_window(64)
        x = torch.stft(torch.randn(2, samples), 64, window=window, return_complex=True)
        return x.requires_grad_(), window

    return make


@same_as_eager(graphs=2, backend="cpp", tolerance=1e-5, grad=True, inputs=[spectrum(n) for n in (512, 640)])
def test_istft(x, window):
    length = x.shape[-1] * 16 - 16
    try:
        return torch.istft(x * 2, 64, window=window, length=length).sin(), torch.istft(x, 64, window=window * 0)
    except RuntimeError as error:
        return torch.istft(x * torch.sigmoid(x.abs()), 64, window=window), str(error)


@one_graph(grad=True)
def test_transposes_and_parts(x):
    z = torch.complex(x, x)
    return x.T + x.mT, z.H.real, z.imag, x.real


@one_graph()
def test_predicates(x):
    facts = torch.is_tensor(x), torch.is_floating_point(x), x.is_complex(), torch.is_complex(x), x.is_signed()
    more = (
        isinstance(x, torch.Tensor),
        isinstance(x, nn.Parameter),
        isinstance(3, torch.Tensor),
        type(x) is torch.Tensor,
    )
    return x + 1, facts, more, torch.numel(x), x.is_inference(), x.element_size()


@same_as_eager(graphs=1, breaks=[])
def test_attribute_set_on_a_tensor(x):
    y = x + 1
    y.tag = "made"
    return y, y.tag


# ---------------------------------------------------------------- conversions and constructors


@one_graph()
def test_type_by_name(x):
    return x.type("torch.DoubleTensor"), x.type(), x.type_as(x.int())


@one_graph()
def test_new_tensors(x):
    results = x.new_zeros(2, 3), x.new_ones((2,)), x.new_full((2,), 3.0), x.new_tensor([1, 2]), x.new_empty(0)
    return results, torch.zeros_like(x) + torch.ones_like(x, dtype=torch.int32), torch.full_like(x, 2)


@one_graph()
def test_tensor_from_tensors(x):
    return torch.tensor([x[0, 0], x[1, 1]]), torch.tensor([[x[0, 0], 1.0]]), torch.as_tensor(x) is x


@one_graph()
def test_as_tensor_of_a_tensor(x):
    return torch.as_tensor(x) is x, torch.as_tensor(x, dtype=torch.float64), torch.asarray(x) + 1


# ---------------------------------------------------------------- indexing


HALVES = {
    "products": lambda x: (x * 2, x + x.conj(), (x * x).abs()),
    "parts": lambda x: (x.real, x.imag, torch.view_as_real(x) + 1, x.real.float().sin()),
    "casts": lambda x: (x.to(torch.complex64).exp(), x.sum()),
    "writes": lambda x: (x.clone().mul_(2), torch.zeros(3, dtype=torch.complex32)),
    "views": lambda x: (x[0], x.t(), x.reshape(-1), torch.cat([x, x])),
    "comparisons": lambda x: (x == x, x.ne(0)),
}
BYTES = {
    "casts": lambda x: (x.float() * 2, x.to(torch.bfloat16).sin()),
    "views": lambda x: (x.view(torch.uint8), x.clone(), x[1:]),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "cpp"])
@pytest.mark.parametrize("name", [*HALVES, *(f"bytes: {name}" for name in BYTES)])
def test_types_that_few_operators_take(name, backend):
    def complex_halves():
        return (torch.view_as_complex(torch.randn(3, 4, 2).half()),)

    of_bytes = name.startswith("bytes: ")
    program = BYTES[name.removeprefix("bytes: ")] if of_bytes else HALVES[name]
    inputs = (lambda: (torch.randn(3, 4).to(torch.float8_e4m3fn),)) if of_bytes else complex_halves
    check(program, inputs, backend=backend, tolerance=0 if backend == "eager" else 1e-3)


@one_graph(grad=True, inputs=matrix(4, 5, 6), backend="aot_eager")
def test_views_at_known_indices(x):
    i = torch.tensor(2)
    return x[torch.tensor(1)], x[i - 1, 2:], x[:, i], x[None, torch.tensor(-1)]


class Rows:
    def __init__(self):
        self.odd = slice(1, None, 2)
        self.parts = [slice(0, 2), slice(2, None)]


def slices_from_outside():
    return torch.randn(4, 4), slice(0, 3), (slice(None, 2), None, ..., slice(-2, None)), Rows()


@one_graph(inputs=slices_from_outside)
def test_slices_from_outside(x, s, index, rows):
    own = slice(s.start, s.stop, s.step)
    parts = [x[part] for part in rows.parts]
    places = list(range(4))[s], s.indices(4), own == s, own != rows.odd, own is s, type(s), rows.odd.step
    return x[s] * 2, x[index], x[rows.odd], torch.cat(parts), x[own], places, s


# ---------------------------------------------------------------- Python's protocols


@one_graph()
def test_assigning_to_items(x):
    y = x.clone()
    y[0] = 1
    y[1, 2] = x[0, 0]
    y[:, 3] = torch.arange(4.0)
    y[..., 0] += 5
    y[torch.tensor([2, 3])] *= 2
    y[y > 1] = 0.5
    y[[0, 1], [1, 0]] = -1.0
    y[None, 0, 0] = 9
    return y


@same_as_eager(graphs=1, breaks=["tensor value read"])
def test_in_a_tensor(x):
    return 5.0 in x, x + 1


@same_as_eager(graphs=2, breaks=["tensor value read"])
def test_tensor_formatted(x):
    return f"{x.sum():.3f}", str(x), x + 1


@same_as_eager(graphs=1, breaks=[], grad=True)
def test_tensor_of_a_tensor(x):
    y = torch.tensor(x)
    y.add_(1)
    turned = torch.tensor(x.t() if x.dim() == 2 else x.expand(2, *x.shape))
    return x * torch.tensor(x.sum()), y, turned, torch.tensor(x * 3, dtype=torch.float64), torch.tensor(x > 0) + 1


@same_as_eager(graphs=1, breaks=["tensor value read"])
def test_tensor_of_a_tensor_that_requires_grad(x):
    return x + 1, torch.tensor(x, requires_grad=True)


@same_as_eager(
    graphs=2, breaks=["unsupported call"] + ["unsupported attribute"] + ["unsupported call"] + ["tensor value read"] * 2
)
def test_storage(x):
    return x + 1, x.untyped_storage().nbytes(), x.data_ptr() == x.view(-1).data_ptr()


@same_as_eager(graphs=2, breaks=["unsupported call"], inputs=matrix(2, 3))
def test_copy_and_deepcopy(x):
    import copy

    y = x + 1
    return copy.copy(y), copy.deepcopy(y), copy.deepcopy([y, y])


def test_offset_of_a_view_is_guarded():
    def where(x):
        return x + 1, x[1:].storage_offset()

    compiled = compiler_core.compile(where, backend="eager", strict=True)
    whole = torch.randn(6, 3)
    for x in (whole[:4], whole[2:], whole[1:5]):
        assert compiled(x)[1] == where(x)[1]


class Quantised(torch.nn.Parameter):
    kind = "int4"

    def __new__(cls, data, scale=2.0):
        found = super().__new__(cls, data, True)
        found.scale = scale
        return found

    def dequantise(self):
        return self * self.scale

    @property
    def half_rows(self):
        return self.shape[0] // 2


class Bare(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


def quantised_linear():
    net = torch.nn.Linear(4, 4)
    net.weight = Quantised(torch.randn(4, 4))
    return net, torch.randn(2, 4), torch.randn(3).as_subclass(Bare)


@same_as_eager(graphs=1, breaks=[], inputs=quantised_linear)
def test_subclasses_with_the_operations_of_plain_tensors(net, x, bare):
    w = net.weight
    found = w.dequantise() @ x.T, net(x), w.half_rows, w.kind, w.scale, type(w).__name__, type(w * 2).__name__
    return found, bare.sin(), bare[1:], type(bare + 1).__name__, isinstance(w, Quantised), isinstance(bare, Bare), w


def test_subclasses_with_the_operations_of_plain_tensors_in_kernels():
    for backend in ("aot_eager", "cpp"):
        check(
            lambda net, x, bare: (net(x), bare.sin() * net.weight.scale),
            quantised_linear,
            backend=backend,
            tolerance=1e-5,
        )


@pytest.mark.parametrize("value", [True, 1, "a"])
def test_requires_grad_is_set_as_an_attribute(value):
    """Unlike ``requires_grad_()``, it takes no tensor that another was computed from, and bools only."""

    def program(x):
        v = x.t()
        try:
            v.requires_grad = value
        except RuntimeError as error:
            return v, str(error)
        return v

    check(program, lambda: [torch.randn(2, 2, requires_grad=True)])


# ---------------------------------------------------------------- tensors of tensors

of_tensors = functools.partial(same_as_eager, graphs=1, breaks=[], inputs=lambda: (torch.randn(4), torch.arange(3)))


@of_tensors()
def test_a_tensor_of_numbers_and_tensors(x, n):
    return torch.tensor([1.0, x.sum(), 2]), torch.tensor([x[0], x[1]]), torch.tensor([[n[0], 1], [n[1], n[2]]])


@same_as_eager(breaks=["tensor value read"], inputs=lambda: (torch.randn(4),))
def test_a_tensor_of_tensors_that_loses_fractions(x):
    return torch.tensor([x[0], 1.5], dtype=torch.int64)


@same_as_eager(breaks=["tensor value read"], inputs=lambda: (torch.randn(4, requires_grad=True),))
def test_a_tensor_of_tensors_that_require_gradients(x):
    return torch.tensor([x[0], 1.5])


# ---------------------------------------------------------------- constructors of old


@one_graph()
def test_constructors_named_by_type(x):
    made = torch.FloatTensor([1, 2]), torch.LongTensor([1, 2.7]), torch.BoolTensor([1, 0]), torch.HalfTensor([1.5])
    empty = torch.FloatTensor(2, 3).zero_(), torch.Tensor(x.size()).fill_(1), torch.DoubleTensor(x.shape[0]).fill_(2)
    return x + 1, made, empty, torch.Tensor(), torch.IntTensor((3, 2)), torch.FloatTensor([x.sum(), 1])

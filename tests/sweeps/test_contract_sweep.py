# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""Training all modules of PyTorch's module database, and small functions: gradients, shared memory and state.

Each program runs eagerly and compiled, and everything that autograd leaves behind is compared: gradients after two
backward passes with in-place writes to them in between, which gradients share memory or are the same object, and all
parameters and buffers; the backward after a write to an input, a parameter or an output; and a second backward.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

import compiler_core
from compiler_core.tools.testing import difference
from tests.cases.operators import module_db
from tests.sampling import always, sample

pytestmark = pytest.mark.slow

Make = Callable[[], tuple[Callable[..., Any], Sequence[Any], dict[str, Any]]]
PROGRAMS: dict[str, Make] = {}
BIG = {"nn.Transformer", "nn.LinearCrossEntropyLoss"}
"""Modules made of others in the list, and slow to compile."""
MODULES = {
    *("nn.BatchNorm1d", "nn.BatchNorm2d", "nn.LayerNorm", "nn.Embedding", "nn.PReLU", "nn.Softplus", "nn.GLU"),
    *("nn.MaxPool2d", "nn.CrossEntropyLoss", "nn.Bilinear", "nn.TransformerEncoderLayer"),
}
"""Modules of the list that are tested with writes before the backward.  Recurrent layers are left out: they are not
decomposed, and their own autograd does not detect a write to their results."""
SUITE = MODULES | {
    *("nn.LSTM", "nn.GRUCell", "nn.Conv2d", "nn.ConvTranspose2d", "nn.InstanceNorm2d", "nn.GroupNorm"),
    *("nn.MultiheadAttention", "nn.AdaptiveAvgPool2d", "nn.FractionalMaxPool2d", "nn.CTCLoss"),
    *("nn.KLDivLoss", "nn.CosineEmbeddingLoss", "nn.Hardtanh", "nn.ReflectionPad2d", "nn.RNN", "nn.Softmax"),
}
"""Modules of the list that every run of the suite takes, with all small functions; `make sweeps` takes the others."""
BACKENDS = ("eager", "aot_eager", "cpp")
UNLIKE_EAGER: dict[str, str] = {}
"""Programs that are not compared, with the reason."""


def function(*shapes: tuple[int, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator for a program that takes leaves of these shapes."""

    def add(program: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[program.__name__] = _with_leaves(program, shapes)
        return program

    return add


def _with_leaves(program: Callable[..., Any], shapes: Sequence[tuple[int, ...]]) -> Make:
    return lambda: (program, [torch.randn(s).requires_grad_() for s in shapes], {})


def _of_database(info: Any) -> Make:
    def make() -> tuple[Callable[..., Any], Sequence[Any], dict[str, Any]]:
        torch.manual_seed(0)
        given = info.module_inputs_func(info, torch.device("cpu"), torch.float32, True, True)
        first = next(iter(given))
        module = info.module_cls(*first.constructor_input.args, **first.constructor_input.kwargs).train()
        return module, first.forward_input.args, first.forward_input.kwargs

    return make


PROGRAMS |= {info.name: _of_database(info) for info in module_db if info.name not in BIG}


def module(
    shape: tuple[int, ...], whole: int = 0, dtype: torch.dtype = torch.float64
) -> Callable[[Callable[[], nn.Module]], Any]:
    """Decorator for a program that trains a module with state on a batch of this shape; `whole`: of integers below it.

    In float64, since many gradients below a norm are zero except for rounding errors.
    """

    def add(build: Callable[[], nn.Module]) -> Any:
        def make() -> tuple[Callable[..., Any], Sequence[Any], dict[str, Any]]:
            batch = torch.randint(whole, shape) if whole else torch.randn(shape, dtype=dtype).requires_grad_()
            return build().train().to(dtype), [batch], {}

        PROGRAMS[build.__name__] = make
        return build

    return add


@module((4, 3, 5, 5))
def network_with_norms():
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 2, 1), nn.BatchNorm2d(2)]
    return nn.Sequential(*layers, nn.InstanceNorm2d(2, track_running_stats=True, affine=True))


@module((6, 4))
def norm_over_all_batches():
    return nn.Sequential(nn.BatchNorm1d(4, momentum=None), nn.BatchNorm1d(4, affine=False), nn.Tanh())


@module((6, 4, 3))
def norm_without_statistics():
    return nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), nn.InstanceNorm1d(4, track_running_stats=True))


@module((2, 3, 4, 4, 4))
def norms_in_space():
    return nn.Sequential(nn.BatchNorm3d(3), nn.InstanceNorm3d(3, track_running_stats=True, momentum=0.3))


@module((4, 3, 5, 5))
def norm_in_evaluation_inside_training():
    net = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3))
    net[2].eval()
    return net


@module((3, 4))
def spectral_norm_as_a_hook():
    return nn.utils.spectral_norm(nn.Linear(4, 4))


@module((3, 4))
def spectral_norm_as_a_parametrization():
    return nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))


@module((3, 4))
def weight_norm():
    return nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))


@module((3, 4))
def slopes_that_are_drawn():
    return nn.Sequential(nn.RReLU(), nn.Linear(4, 4), nn.RReLU(inplace=True), nn.Dropout(0.3), nn.AlphaDropout(0.2))


@module((3, 2), 5)
def embedding_with_a_norm():
    return nn.Sequential(nn.Embedding(5, 4, max_norm=1.0), nn.Linear(4, 4))


@module((3, 2), 5)
def bag_with_a_norm():
    return nn.Sequential(nn.EmbeddingBag(5, 4, max_norm=1.0), nn.Linear(4, 4))


@module((3, 4), dtype=torch.float32)
def observed_and_quantized():
    from torch.ao.quantization import FakeQuantize, FusedMovingAvgObsFakeQuantize, MovingAverageMinMaxObserver

    return nn.Sequential(
        FakeQuantize(), nn.Linear(4, 4), FusedMovingAvgObsFakeQuantize(), MovingAverageMinMaxObserver()
    )


class Counted(nn.Module):
    """Buffers that are written to in all possible ways."""

    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.register_buffer("average", torch.zeros(4))
        self.register_buffer("largest", torch.zeros(4))
        self.register_buffer("seen", torch.zeros(2, 4))

    def forward(self, x):
        self.steps += 1
        self.average.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        torch.maximum(self.largest, x.detach().amax(0), out=self.largest)
        self.seen[0] = x[0].detach()
        self.seen.data[1].lerp_(self.average, 0.5)
        return x * self.average.clone() + self.steps


@module((3, 4))
def buffers_written_to():
    return Counted()


@function((3, 4))
def exponential_of_exponential(x):
    y = x.exp()
    return y.exp()


@function((3, 4))
def sigmoid_and_what_it_was_made_of(x):
    y = x * 3
    return y.sigmoid(), y


@function((3, 4))
def inverse_roots(x):
    y = x.square() + 1
    return 1 / y, y.sqrt(), y.rsqrt()


@function((3, 4))
def output_that_another_one_is_made_of(x):
    y = x + 1
    return y, (y * 2).sin()


@function((3, 4))
def output_that_is_read_again(x):
    y = x.sin()
    return y, y.cos()


class Threefold(torch.autograd.Function):
    """Returns a saved value as its gradient and ignores the incoming one."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.exp())
        return x * 3

    @staticmethod
    def backward(ctx, gradient):
        return ctx.saved_tensors[0] * 2


FUNCTIONS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "biases_of_one_shape": (lambda x, a, b: (x + a + b).sin(), [(3, 4), (4,), (4,)]),
    "sum_with_a_view": (lambda x, p: x + p.view(3, 4), [(3, 4), (12,)]),
    "sum_of_views": (lambda x, y: x.view(12) + y.view(12), [(3, 4), (3, 4)]),
    "sum_with_a_transposed": (lambda x, y: (x + y.t()).exp(), [(3, 4), (4, 3)]),
    "sum_of_transposed": (lambda x, y: (x.t() + y.t()).exp(), [(3, 4), (3, 4)]),
    "sum_of_rows": (lambda x, y, z: (x[None] + y[None] + z.expand(2, 4)).tanh(), [(4,), (4,), (4,)]),
    "sums_of_all": (lambda x, y: (x.sum() + y.sum()).sin(), [(3, 4), (3, 4)]),
    "put_side_by_side": (lambda x, y: torch.cat([x, y]).sin(), [(3, 4), (2, 4)]),
    "stacked": (lambda x, y: torch.stack([x, y]).sin(), [(4,), (4,)]),
    "sum_of_three": (lambda x, y, z: x + y + z, [(3, 4), (3, 4), (3, 4)]),
    "sum_of_linears": (
        lambda x, w, v, a, b: F.linear(x, w, a) + F.linear(x, v, b),
        [(2, 3), (4, 3), (4, 3), (4,), (4,)],
    ),
    "sum_of_norms": (
        lambda x, a, b, c, d: F.layer_norm(x, (4,), a, b) + F.layer_norm(x, (4,), c, d),
        [(5, 4), (4,), (4,), (4,), (4,)],
    ),
    "itself": (lambda x: x.view(9), [(3, 3)]),
    "hyperbolic_tangent": (lambda x: x.tanh(), [(3, 4)]),
    "rectified": (lambda x: (x.relu(), (x * 2).clamp(0)), [(3, 4)]),
    "sums_to_one": (lambda x: (x.softmax(-1), (x * 2).log_softmax(-1)), [(3, 4)]),
    "bias_that_nobody_saves": (
        lambda x, a, b, w, c: F.linear(F.gelu(F.layer_norm(x, (4,), a, b)), w, c),
        [(3, 4), (4,), (4,), (4, 4), (4,)],
    ),
    "nothing_to_save": (lambda x, y: (x + y, torch.cat([x, y])), [(3, 4), (3, 4)]),
    "factor_that_is_saved": (lambda x: ((x * 2).sum(), x + 1), [(3, 4)]),
    "largest": (lambda x: (x.amax(-1), x.norm()), [(3, 4)]),
    "gradient_that_needs_none": (lambda x: Threefold.apply(x), [(3, 3)]),
}
"""Programs of one expression, with the shapes of their leaves."""
PROGRAMS |= {name: _with_leaves(*row) for name, row in FUNCTIONS.items()}


SMALL = [name for name in sorted(PROGRAMS) if not name.startswith("nn.")]
HALF = sorted({*SUITE, *SMALL})[::2]
OTHER_HALF = sorted({*MODULES, *SMALL} - {*HALF})
"""Every run of the suite takes each small function and module in one of two tests; `make sweeps` takes all in both."""


def _is_stateful(case: tuple[str, str]) -> bool:
    """Whether every run of the suite calls this program, with this backend, and lets it fail after its writes."""
    name, backend = case
    return backend != "aot_eager" and name in ("norms_in_space", "buffers_written_to", "bag_with_a_norm")


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", always(sorted(PROGRAMS), HALF.__contains__))
def test_gradients_and_state(name: str) -> None:
    compare(name, trained, "aot_eager")


@pytest.mark.parametrize("name", sample(SMALL, 6))
def test_gradients_of_kernels(name: str) -> None:
    compare(name, trained, "cpp")


@pytest.mark.parametrize(("name", "backend"), always(itertools.product(SMALL, BACKENDS[1:]), lambda c: "sum_" in c[0]))
def test_gradients_below_an_operation(name: str, backend: str) -> None:
    compare(name, trained_below, backend)


@pytest.mark.parametrize("name", always(sorted({*MODULES, *SMALL}), OTHER_HALF.__contains__))
def test_writes_before_the_backward(name: str) -> None:
    compare(name, written_between, "aot_eager")


@pytest.mark.parametrize("name", sample(SMALL, 6))
def test_writes_before_the_backward_of_kernels(name: str) -> None:
    compare(name, written_between, "cpp")


@pytest.mark.parametrize(("name", "backend"), always(itertools.product(sorted(PROGRAMS), BACKENDS), _is_stateful))
def test_state_after_an_exception(name: str, backend: str) -> None:
    compare(name, failing, backend)


def compare(name: str, use: Callable[..., Any], backend: str) -> None:
    if name in UNLIKE_EAGER:
        pytest.skip(UNLIKE_EAGER[name])
    want = _outcome(name, use, lambda fn: fn)
    got = _outcome(name, use, lambda fn: compiler_core.compile(fn, backend=backend))
    found = difference(want, got, 2e-5)
    assert found is None, found


def _outcome(name: str, use: Callable[..., Any], c: Callable[[Any], Any]) -> Any:
    result = _made(name)
    try:
        return use(*result, c)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _made(name: str) -> Any:
    """Returns a program, its arguments as new leaves, and its parameters."""
    torch.manual_seed(0)
    fn, args, kwargs = PROGRAMS[name]()
    return fn, *tree_map(_leaf, (args, kwargs))


def _leaf(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def trained(fn: Any, args: Sequence[Any], kwargs: dict[str, Any], c: Callable[[Any], Any]) -> Any:
    """Runs two steps that accumulate, with writes to gradients in between, then `torch.autograd.grad`."""
    compiled = c(fn)
    torch.manual_seed(1)
    first = _step(compiled, args, kwargs)
    leaves = _leaves(fn, args, kwargs)
    shared = _groups([leaf.grad for leaf in leaves], _memory)
    for number, leaf in enumerate(leaves, 2):
        if leaf.grad is not None:
            leaf.grad.mul_(number)
    second = _step(compiled, args, kwargs)
    requested = _requested_gradients(compiled, args, kwargs, leaves)
    objects = _groups(requested, id), _groups(requested, _memory)
    state = [t.detach().clone() for t in leaves], _buffers(fn)
    return first, second, shared, [leaf.grad for leaf in leaves], objects, requested, state, torch.rand(3)


def trained_below(fn: Any, args: Sequence[Any], kwargs: dict[str, Any], c: Callable[[Any], Any]) -> Any:
    """As `trained`, with an operation on each result, so that only autograd holds the tangents.

    Gradients that ``torch.autograd.grad`` returns may share less memory than eager's.
    """
    compiled = c(fn)
    found = trained(fn, args, kwargs, lambda _: lambda *a, **k: [t * 1.5 for t in _tensors(compiled(*a, **k))])
    requested = [t if t is None else t.clone() for t in found[5]]
    return found[:4], requested, found[6:]


def written_between(fn: Any, args: Sequence[Any], kwargs: dict[str, Any], c: Callable[[Any], Any]) -> Any:
    """Runs two backward passes after a write to an argument, a parameter or buffer, or a result of the program."""
    compiled, found = c(fn), []
    leaves = _leaves(fn, args, kwargs)
    count = len(leaves) + len(_returned(compiled, args, kwargs))
    for number in range(count):
        outputs = _returned(compiled, args, kwargs)
        wanted = [o for o in outputs if o.requires_grad]
        tensor = (*leaves, *outputs)[number]
        before = tensor.detach().clone()
        with torch.no_grad():
            tensor.add_(1)
        found.append(_backward(wanted, leaves))
        if not isinstance(found[-1], str):  # after an error the state of the graph is not compared
            found.append(_backward(wanted, leaves))
        with torch.no_grad():
            tensor.copy_(before)
    return found


def failing(fn: Any, args: Sequence[Any], kwargs: dict[str, Any], c: Callable[[Any], Any]) -> Any:
    """Calls the program, then takes an element of its result, whose index is out of range in the second of four calls.

    Returns the state after each call, and by how much the failed one raised the ``_version`` of each buffer.
    """

    def pick(index: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = fn(*args, **kwargs)
        return (result[0] if isinstance(result, tuple) else result).reshape(-1)[index]

    compiled, found = c(pick), []
    leaves = _leaves(fn, args, kwargs)
    torch.manual_seed(1)
    for index in (0, 10**9, 0, 0):
        versions = [b._version for b in _buffers_of(fn)]
        try:
            result = compiled(torch.tensor([index]), *args, **kwargs)
            found.append(result.detach().clone())
            if result.requires_grad:
                result.sum().backward()
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
            found.append([b._version - before for b, before in zip(_buffers_of(fn), versions, strict=True)])
        found.append([[t.detach().clone() for t in leaves], _buffers(fn), torch.get_rng_state()])
    return found, [leaf.grad for leaf in leaves]


def _returned(compiled: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    torch.manual_seed(1)
    return _tensors(compiled(*args, **kwargs))


def _backward(outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> Any:
    for leaf in leaves:
        leaf.grad = None
    if not outputs:
        return "no gradient"
    try:
        torch.autograd.backward(outputs, [_tangent(o) for o in outputs])
    except RuntimeError as error:
        return str(error).partition(":")[0].partition("(")[0]  # the rest names an autograd node
    return [leaf.grad for leaf in leaves]


def _step(compiled: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    outputs = _tensors(compiled(*args, **kwargs))
    wanted = [o for o in outputs if o.requires_grad]
    if wanted:
        torch.autograd.backward(wanted, [_tangent(o) for o in wanted])
    return [o.detach().clone() for o in outputs]


def _requested_gradients(compiled: Any, args: Sequence[Any], kwargs: dict[str, Any], leaves: Sequence[Any]) -> Any:
    wanted = [o for o in _tensors(compiled(*args, **kwargs)) if o.requires_grad]
    if not wanted:
        return []
    given = [_tangent(o) for o in wanted]
    return [*torch.autograd.grad(wanted, leaves, given, allow_unused=True), *given]


def _tangent(output: torch.Tensor) -> torch.Tensor:
    """Returns a gradient for `output` with its layout."""
    values = torch.linspace(-0.5, 1.5, output.numel(), dtype=output.real.dtype).square()
    return torch.empty_like(output.detach()).copy_(values.view(output.shape))


def _tensors(value: Any) -> list[torch.Tensor]:
    found = [v.data if isinstance(v, nn.utils.rnn.PackedSequence) else v for v in tree_leaves(value)]
    return [t for t in found if isinstance(t, torch.Tensor)]


def _leaves(fn: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    parameters = list(fn.parameters()) if isinstance(fn, nn.Module) else []
    return [t for t in (*_tensors((args, kwargs)), *parameters) if t.requires_grad]


def _buffers(fn: Any) -> list[torch.Tensor]:
    return [b.clone() for b in _buffers_of(fn)]


def _buffers_of(fn: Any) -> list[torch.Tensor]:
    return list(fn.buffers()) if isinstance(fn, nn.Module) else []


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _groups(tensors: Sequence[torch.Tensor | None], of: Callable[[torch.Tensor], int]) -> list[int | None]:
    """Returns for each tensor the index of the first one with the same key."""
    seen: dict[int, int] = {}
    return [None if t is None else seen.setdefault(of(t), n) for n, t in enumerate(tensors)]

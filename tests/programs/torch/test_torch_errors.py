# mypy: ignore-errors
# ruff: noqa
"""Errors of operators: by the values of their arguments, also where nothing uses the result, and by wrong arguments."""

import itertools
import random

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils._pytree import tree_flatten, tree_unflatten

import compiler_core
from tests.cases.operators import op_db
from tests.sampling import pairs, sample
from tests.cases.torch_version import SINCE_2_13

pytestmark = [pytest.mark.cpu, pytest.mark.filterwarnings("ignore")]

BY_VALUES = {
    "floor division": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "fmod": torch.fmod,
    "div, floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "div, trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor division by 0": lambda a, b: a // 0,
    "remainder by 0": lambda a, b: a % 0,
    "0-dimensional divisor": lambda a, b: a // b[0],
    "number divided": lambda a, b: 3 // b,
    "number, remainder": lambda a, b: 3 % b,
    "floor division in place": lambda a, b: a.clone().floor_divide_(b),
    "floor division, out": lambda a, b: torch.floor_divide(a, b, out=torch.empty(2, dtype=torch.int64)),
    "index": lambda a, b: a[torch.tensor([5])],
    "gather": lambda a, b: a.gather(0, b + 7),
    "take": lambda a, b: torch.take(a, b + 9),
    "index_select": lambda a, b: a.index_select(0, b + 4),
    "index_add": lambda a, b: a.index_add(0, b + 5, a),
    "scatter": lambda a, b: a.scatter(0, b + 5, a),
    "masked_scatter": lambda a, b: a.masked_scatter(torch.tensor([True, True]), torch.tensor([1])),
    "repeat_interleave": lambda a, b: a.repeat_interleave(-b),
    "power": lambda a, b: a ** (b - 3),
    "embedding": lambda a, b: F.embedding(b + 9, torch.ones(3, 2)),
    "embedding bag": lambda a, b: F.embedding_bag(b[None] + 9, torch.ones(3, 2)),
    "nll loss": lambda a, b: F.nll_loss(torch.ones(2, 3), b + 7),
    "cross entropy": lambda a, b: F.cross_entropy(torch.ones(2, 3), b + 7),
    "one hot": lambda a, b: F.one_hot(b, 2),
    "bincount": lambda a, b: torch.bincount(-a),
    "cholesky": lambda a, b: torch.linalg.cholesky(-torch.eye(2)),
    "cholesky_ex": lambda a, b: torch.linalg.cholesky_ex(-torch.eye(2), check_errors=True),
    "inverse": lambda a, b: torch.linalg.inv(torch.zeros(2, 2)),
    "inverses": lambda a, b: torch.vmap(torch.linalg.inv)(a[:, None, None] * torch.ones(2, 2)),
    "inverse in a checkpoint": lambda a, b: checkpoint(torch.linalg.inv, torch.zeros(2, 2), use_reentrant=False),
    "solve": lambda a, b: torch.linalg.solve(torch.zeros(2, 2), torch.ones(2)),
    "lu_factor": lambda a, b: torch.linalg.lu_factor(torch.zeros(2, 2)),
    "svd": lambda a, b: torch.linalg.svd(torch.full((2, 2), float("nan"))),
    "eigh": lambda a, b: torch.linalg.eigh(torch.full((2, 2), float("nan"))),
    "eig": lambda a, b: torch.linalg.eig(torch.full((2, 2), float("nan"))),
    "multinomial": lambda a, b: torch.multinomial(torch.tensor([-1.0, 2.0]), 1),
    "bernoulli": lambda a, b: torch.bernoulli(torch.tensor([2.0])),
    "normal": lambda a, b: torch.normal(torch.ones(2), torch.tensor([-1.0, 1.0])),
    "assertion": lambda a, b: torch._assert_async(b.all()),
    "quantile": lambda a, b: torch.quantile(a.float(), b.float()),
    "nanquantile": lambda a, b: a.float().nanquantile(b.float()),
    "histc": lambda a, b: torch.histc(torch.ones(2), min=3, max=1),
}
"""Operators that raise for ``a = [4, 5]`` and ``b = [0, 2]``."""


def outcome(call, *args):
    """Returns what a call returns or raises, as text; of several results, those that are tensors."""
    torch.manual_seed(0)
    try:
        return "returns", repr(call(*args))
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize(("name", "case"), pairs(BY_VALUES, itertools.product(["aot_eager", None], [False, True]), 4))
def test_errors_by_values_are_raised_whether_the_result_is_used_or_not(name, case):
    backend, is_used = case
    operator = BY_VALUES[name]

    def program(a, b):
        x = a + 1
        try:
            result = operator(a, b)
        except (RuntimeError, IndexError, ZeroDivisionError, ValueError):
            return x + 100
        return (x, result) if is_used else x

    args = torch.tensor([4, 5]), torch.tensor([0, 2])
    assert outcome(compiler_core.compile(program, backend=backend), *args) == outcome(program, *args)


PARTS = {
    "a row too short": lambda a: a.select_scatter(torch.ones(3), 0, 1),
    "a matrix for a row": lambda a: a.select_scatter(torch.ones(2, 4), 0, 1),
    "one element for a row": lambda a: a.select_scatter(torch.ones(1), 0, 1),
    "a number for a row": lambda a: a.select_scatter(torch.tensor(3.0), 0, 1),
    "a row outside": lambda a: a.select_scatter(torch.ones(4), 0, 7),
    "too many rows": lambda a: a.slice_scatter(torch.ones(3, 4), 0, 0, 2),
    "a row for rows": lambda a: a.slice_scatter(torch.ones(4), 0, 0, 2),
    "small rows": lambda a: a.slice_scatter(torch.ones(1, 2), 0, 0, 2),
    "a short diagonal": lambda a: a.diagonal_scatter(torch.ones(2)),
    "an as_strided view": lambda a: torch.as_strided_scatter(a, torch.ones(3), (2, 2), (1, 2)),
}


@pytest.mark.parametrize("backend", ["aot_eager", None])
@pytest.mark.parametrize("name", PARTS)
def test_what_is_written_to_a_part_must_have_its_shape(name, backend):
    a = torch.zeros(3, 4)
    want, got = outcome(PARTS[name], a), outcome(compiler_core.compile(PARTS[name], backend=backend), a)
    assert want[0] != "returns"
    assert got == want


VECTORS, MATRIX = (torch.ones(3), torch.ones(3)), torch.ones(1, 3)
TYPES_AND_SHAPES = {
    "batch norm, matrix of means": lambda: F.batch_norm(torch.ones(4, 3), MATRIX, VECTORS[0], training=True),
    "batch norm, matrix of variances": lambda: F.batch_norm(torch.ones(4, 3), VECTORS[0], MATRIX),
    "batch norm, short means": lambda: F.batch_norm(torch.ones(4, 3), torch.ones(2), VECTORS[0], training=True),
    "index_put": lambda: torch.index_put(torch.ones(6, 3), [torch.tensor([0, 1])], torch.ones(3, 3)),
    "_index_put_impl_": lambda: torch._index_put_impl_(torch.ones(6, 3), [torch.tensor([0, 1])], torch.ones(3, 3)),
    "range of booleans": lambda: torch.arange(0, 4, 2, dtype=torch.bool),
    "embedding bag of booleans": lambda: F.embedding_bag(torch.ones(2, 2).bool(), torch.ones(5, 5), mode="sum"),
}


@pytest.mark.parametrize("backend", ["aot_eager", None])
@pytest.mark.parametrize("name", TYPES_AND_SHAPES)
def test_wrong_types_and_shapes(name, backend):
    call = TYPES_AND_SHAPES[name]
    want, got = outcome(call), outcome(compiler_core.compile(call, backend=backend))
    assert want[0] != "returns"
    assert got == want


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32])
def test_a_mask_of_another_type_in_the_gradient_of_dropout(dtype):
    def program(gradient):
        return torch.ops.aten.native_dropout_backward(gradient, torch.ones(3).to(dtype), 2.0)

    for gradient in (torch.ones(3), torch.ones(3, dtype=torch.bfloat16)):
        assert outcome(compiler_core.compile(program, strict=True), gradient) == outcome(program, gradient)


MUTATIONS = 3
"""Wrong calls made from each sample of an operator."""
UNDEFINED = {
    "results are memory that nothing has written": ("empty", "resize_", "uninitialized"),
    "eager reads memory behind statistics, weights or gradients that are too short": (
        "native_batch_norm",
        "_batch_norm_with_update",
        "ctc_loss",
    ),
    "eager reads outside of a grid, or ends the process, for modes that do not exist": ("grid_sampler",),
    "eager ends the process for pivots of another shape": ("lu_unpack",),
    "memory outside of a tensor is part of it": ("as_strided",),
    "not dense": ("_sparse", "nested"),
    "compiles for a GPU": ("jiterator",),
}
"""Parts of the names of operators that are left out, since eager has no right result, by the reason."""
FOUND = {
    "index_put",
    "native_dropout_backward",
    "nn.functional.embedding_bag",
    "index_select",
    "rsub",
    "trace",
    "_softmax_backward_data",
    "nn.functional.soft_margin_loss",
}
"""Operators whose arguments were not checked."""
OPERATORS = sorted(
    {op.name for op in op_db if not any(part in op.name for parts in UNDEFINED.values() for part in parts)}
)


def mutated(value, rng):
    """Returns a wrong argument in place of `value`: another shape or type, or another number."""
    if isinstance(value, torch.Tensor):
        choices = [
            lambda: value[..., :-1] if value.dim() and value.shape[-1] > 1 else value.reshape(value.shape + (1,)),
            lambda: value.unsqueeze(0),
            lambda: value.select(0, 0) if value.dim() and value.shape[0] else value[None, None],
            lambda: torch.cat([value, value]) if value.dim() else value.expand(3),
            lambda: value.to(torch.bool),
            lambda: value.to(torch.float64 if value.dtype != torch.float64 else torch.int32),
            lambda: value.new_zeros((0, *value.shape[1:])),
        ]
        return rng.choice(choices)().detach()
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    return rng.choice([value + 7, -value - 9, 0, value + 1])


def wrong_calls(name):
    rng = random.Random(name)
    for op in (op for op in op_db if op.name == name):
        if torch.float32 not in op.dtypes or op.variant_test_name not in ("", "no_rounding_mode"):
            continue
        samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=False))
        for each in rng.sample(samples, min(4, len(samples))):
            leaves, spec = tree_flatten(((each.input, *each.args), each.kwargs))
            places = [i for i, v in enumerate(leaves) if isinstance(v, torch.Tensor) or type(v) is int]
            for _ in range(MUTATIONS if places else 0):
                changed, place = list(leaves), rng.choice(places)
                changed[place] = mutated(changed[place], rng)
                args, kwargs = tree_unflatten(changed, spec)
                yield op.op, args, kwargs


def as_text(value):
    """Returns a result as text, without the digits by which two right computations differ."""
    if isinstance(value, torch.Tensor):
        size = (tuple(value.shape), value.dtype, value.layout)
        if value.layout is not torch.strided or not value.is_floating_point():
            return repr((size, value if value.layout is torch.strided else None))
        return repr((size, [f"{x:.2e}" for x in value.detach().double().nan_to_num(7, 8, 9).flatten()[:64].tolist()]))
    if isinstance(value, (list, tuple)):
        return repr([as_text(each) for each in value])
    return repr(value)


@pytest.mark.parametrize("name", [*sorted(FOUND), *sample([o for o in OPERATORS if o not in FOUND], 120)])
def test_wrong_arguments_raise_as_in_eager(name):
    for function, args, kwargs in wrong_calls(name):

        def call():
            return function(*args, **kwargs)

        def run(callee):
            torch.manual_seed(0)
            try:
                return "returns", as_text(callee())
            except Exception as error:
                return type(error).__name__, ""

        want = run(call)
        compiler_core.reset()
        with compiler_core.record() as record:
            got = run(compiler_core.compile(call))
        assert got == want, (args, kwargs)
        assert not [f.message for c in record.compiles for f in c.failures if f.kind == "bug"], (args, kwargs)


NUMBERS, INTEGERS = [float("nan"), float("inf"), 0.0, -3.0], [-7, 0, 1000]
"""Values that operators refuse, in all elements of a tensor."""
ENDS_THE_PROCESS = {"linalg.eigvals"} if SINCE_2_13 else {"linalg.eigvals", "linalg.ldl_solve"}
"""Operators that end the process in eager for such values (LAPACK does)."""
RAISING = (
    "_segment_reduce as_strided cholesky_inverse histc histogram linalg.ldl_solve linalg.lu_solve linalg.pinv linspace "
    "logspace lu_solve lu_unpack nanquantile nn.functional.max_unpool1d nn.functional.max_unpool2d "
    "nn.functional.max_unpool3d pinverse quantile searchsorted"
).split()
"""Operators whose errors were lost where nothing uses the result."""
RAISES = [name for name in RAISING if name not in ENDS_THE_PROCESS]
NAMES = sorted({op.name for op in op_db} - ENDS_THE_PROCESS)


def with_wrong_values(value):
    """Returns tensors like this one with values that operators may refuse."""
    if value.dtype is torch.bool:
        return [torch.zeros_like(value), torch.ones_like(value)]
    if value.is_floating_point() or value.is_complex():
        return [*(torch.full_like(value, n) for n in NUMBERS), -value.detach()]
    low, high = torch.iinfo(value.dtype).min, torch.iinfo(value.dtype).max
    return [torch.full_like(value, n) for n in INTEGERS if low <= n <= high]


def calls_with_wrong_values(name):
    rng = random.Random(name)
    for op in (op for op in op_db if op.name == name):
        for dtype in op.dtypes & {torch.float32, torch.int64}:
            samples = list(op.sample_inputs("cpu", dtype, requires_grad=False))
            for each in rng.sample(samples, min(6, len(samples))):
                leaves, spec = tree_flatten(((each.input, *each.args), each.kwargs))
                for place, leaf in enumerate(leaves):
                    if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
                        for value in with_wrong_values(leaf):
                            yield op.op, *tree_unflatten([*leaves[:place], value, *leaves[place + 1 :]], spec)


def raises(call):
    torch.manual_seed(0)
    try:
        call()
    except Exception:
        return True
    return False


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *pairs(RAISES, ["aot_eager", None], 4),
        *pairs([name for name in NAMES if name not in RAISING], ["aot_eager", None], 60),
    ],
)
def test_wrong_values_raise_where_nothing_uses_the_result(name, backend):
    raising = (
        (f, args, kwargs) for f, args, kwargs in calls_with_wrong_values(name) if raises(lambda: f(*args, **kwargs))
    )
    for function, args, kwargs in itertools.islice(raising, 2):

        def program(x):
            try:
                function(*args, **kwargs)
            except Exception:
                return x + 100
            return x + 1

        torch.manual_seed(0)
        assert compiler_core.compile(program, backend=backend)(torch.ones(1)).item() == 101, (args, kwargs)

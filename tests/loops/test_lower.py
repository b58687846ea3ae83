"""Lowering: operators as loops or calls, with the values, types and strides of eager."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from compiler_core.loops import ir
from compiler_core.loops.lower import lower
from compiler_core.loops.lower.body import RULES, NotLowered, literal, lowers
from tests.cases.captured import put_on_a_gpu
from tests.cases.kernel_programs import assert_same, check, compiled, trace
from tests.sampling import pairs

aten = torch.ops.aten
SPECIAL = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3e38, -3e38, 1e-40, 7.25, -9.75, 88.0, -104.0),
    *(math.inf, -math.inf, math.nan, 1e-8, -1e-8, 20.0, -20.0, math.pi, 255.0),
)


def special(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(SPECIAL, dtype=dtype)


def lowered(program: Any, *inputs: torch.Tensor) -> ir.Program:
    return lower(trace(program, *inputs), "forward")


def calls(program: Any, *inputs: torch.Tensor) -> list[str]:
    """Returns the operators that are called."""
    return [str(s.target) for s in lowered(program, *inputs).steps if isinstance(s, ir.Call)]


EXACT: list[Any] = [
    *(torch.neg, torch.abs, torch.relu, torch.sign, torch.sgn, torch.floor, torch.ceil, torch.trunc, torch.round),
    *(torch.square, torch.isnan, torch.isinf, torch.signbit, torch.reciprocal, torch.isfinite),
    *(lambda x: x.clamp(-1, 1), lambda x: x.clamp(min=0.5), lambda x: x.clamp(max=math.inf), F.relu6),
    *(lambda x: x + 1, lambda x: 2 - x, lambda x: x * -0.5, lambda x: x / 3),
    *(lambda x: x**2, lambda x: x**3, lambda x: x**-1, lambda x: x**-2, lambda x: 1 / x),
    *(lambda x: x > 0, lambda x: x != x, lambda x: x <= 0.1, lambda x: x == 0, lambda x: x.logical_not()),
    # eager's fmod of numbers beyond 1e18 is NaN
    *(lambda x: x.clamp(-99, 99).remainder(0.7), lambda x: x.clamp(-99, 99).fmod(-2), lambda x: x.bool()),
    *(lambda x: torch.maximum(x, x.flip(0)), lambda x: torch.minimum(x, x.flip(0)), lambda x: x.to(torch.float64)),
    *(lambda x: torch.where(x > 0, x, -1.0), lambda x: x.masked_fill(x < 0, 3), lambda x: F.threshold(x, 0.1, 5.0)),
    *(lambda x: x.to(torch.bfloat16), lambda x: x.to(torch.float16), lambda x: x.div(0.3, rounding_mode="trunc")),
    *(lambda x: x.nan_to_num(), lambda x: torch.heaviside(x, torch.ones_like(x))),
    *(lambda x: torch.copysign(x, x.flip(0)), lambda x: torch.copysign(x, -2)),
]
CLOSE: list[Any] = [
    *(torch.exp, torch.exp2, torch.expm1, torch.log, torch.log2, torch.log10, torch.log1p, torch.erf, torch.erfc),
    *(torch.tanh, torch.sinh, torch.cosh, torch.asin, torch.acos, torch.atan, torch.asinh, torch.acosh, torch.atanh),
    *(torch.sqrt, lambda x: x**0.5, lambda x: x**-0.5),  # eager's results differ in the last digit
    # eager fuses the multiplication and the addition, and its gelu of infinity is NaN
    *(lambda x: x.add(x, alpha=0.1), lambda x: F.gelu(x.clamp(-99, 99))),
    *(torch.sigmoid, torch.rsqrt, F.silu, F.softplus, F.elu, F.mish, F.logsigmoid, F.hardswish),
    *(lambda x: F.gelu(x, approximate="tanh"), lambda x: x.pow(1.7), lambda x: torch.pow(2.0, x)),
    *(lambda x: torch.atan2(x, x.flip(0)), lambda x: torch.pow(x, x.flip(0)), lambda x: F.leaky_relu(x, 0.1)),
]
# the vector functions of libm and of PyTorch reduce huge angles differently
ANGLES: list[Any] = [torch.sin, torch.cos, torch.tan]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exact_operations_on_special_values(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(f(x) for f in EXACT)

    x = special(dtype)
    run, _ = compiled(program, x)
    for number, (ours, eager) in enumerate(zip(run([x]), program(x), strict=True)):
        assert_same(ours, eager, 0)
        if eager.is_floating_point():
            assert torch.equal(ours.signbit() & (ours == 0), eager.signbit() & (eager == 0)), f"zeros of {number}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_close_operations_on_special_values(dtype: torch.dtype) -> None:
    check(lambda x: tuple(f(x) for f in CLOSE), special(dtype))
    check(lambda x: tuple(f(x.clamp(-50, 50)) for f in ANGLES), special(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_round_where_eager_does(dtype: torch.dtype) -> None:
    x = torch.cat([special(dtype), torch.randn(200, generator=torch.Generator().manual_seed(0)).to(dtype)])
    check(lambda x: (x + 1, x * 3 - x, (x * x) / 7, x.float(), torch.relu(x), x > 0.5), x, tolerances=[0] * 6)
    check(lambda x: (x.sigmoid(), x.tanh(), F.gelu(x.clamp(-9, 9)), x.nan_to_num(0, 1, 1).amax(), x.amin()), x)


def test_half_types_convert_every_bit_pattern() -> None:
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int16)
    for dtype in (torch.bfloat16, torch.float16):
        check(lambda x: (x.float(), x.float().to(x.dtype)), bits.view(dtype), tolerances=[0, 0])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_integers(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    x = torch.tensor([0, 1, 2, 3, 5, 7, 100, info.max, info.min, info.max - 1, info.min + 1], dtype=dtype)
    y = x.flip(0)
    program = [
        *(lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x - y, lambda x, y: -x, lambda x, y: x.abs()),
        *(
            lambda x, y: x // 3,
            lambda x, y: x % 3,
            lambda x, y: x.fmod(3),
            lambda x, y: x.div(3, rounding_mode="trunc"),
        ),
        *(lambda x, y: x & y, lambda x, y: x | y, lambda x, y: x ^ y, lambda x, y: ~x, lambda x, y: x == y),
        *(lambda x, y: x.sum(), lambda x, y: x.amax(), lambda x, y: x.amin(), lambda x, y: x.sign(), lambda x, y: x**2),
        *(lambda x, y: x.clamp(1, 5), lambda x, y: x.bool(), lambda x, y: torch.maximum(x, y), lambda x, y: x.prod()),
        *(lambda x, y: x.to(torch.int8), lambda x, y: x.to(torch.int64), lambda x, y: x.relu(), lambda x, y: x / 2),
        *(lambda x, y: x + 0.5, lambda x, y: x.clamp(0, 90).float().mean(), lambda x, y: x > 1.5),
    ]
    tolerances = [0] * (len(program) - 2) + [1e-6, 0]
    check(lambda x, y: tuple(f(x, y) for f in program), x, y, tolerances=tolerances)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_shifts(dtype: torch.dtype) -> None:
    """By all that C++ does not define, too: negative numbers, and more bits than there are."""
    bits = 8 * dtype.itemsize
    x = torch.randint(-(2**62), 2**62, (200,)).to(dtype)
    by, one = torch.randint(-3, bits + 3, (200,)).to(dtype), torch.tensor([1])
    numbers = (-1, 0, 1, bits - 1, bits, 70)
    check(lambda x, by: [f for n in numbers for f in (x >> n, x << n)], x, by)
    check(lambda x, by: (x >> by, x << by, torch.bitwise_left_shift(3, by), torch.bitwise_right_shift(100, by)), x, by)
    check(lambda x, by: (x >> by, torch.bitwise_left_shift(x, by), torch.bitwise_right_shift(x, 2)), x, one)


def test_negative_divisors_and_dividends() -> None:
    x = torch.arange(-7, 8)
    check(lambda x: (x // 3, x // -3, x % 3, x % -3, x.fmod(-3), x.div(-3, rounding_mode="trunc")), x)


def test_division_of_integers_by_a_tensor_raises_as_eager_does() -> None:
    x, y = torch.arange(4), torch.tensor([1, 2, 0, 1])
    run, _ = compiled(lambda x, y: (x // y + 1,), x, torch.ones_like(y))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run([x, y])


def test_integers_are_rounded_to_a_half_type_before_arithmetic() -> None:
    n = torch.tensor([257, 2049, 70000, -70000, 3, 0])
    for dtype in (torch.bfloat16, torch.float16):
        h = torch.tensor([256, 2048, math.inf, 1, -3, 0], dtype=dtype)
        check(lambda n, h: (h == n, n - h, torch.maximum(n, h), h.clamp(n, n + 1), n * h), n, h, tolerances=[0] * 5)


INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
FAR = (-0.5, 0.5, -1.0, 255.5, -129.0, 300.0, 65536.0, 2.0**31, -(2.0**31) - 4096, 2.0**33 + 4096, 2.0**63, -1e30)


@pytest.mark.parametrize(("to", "dtype"), pairs(INTEGERS, [torch.float32, torch.float64, torch.bfloat16], 2))
def test_casts_from_float_to_integer_equal_the_processors(dtype: torch.dtype, to: torch.dtype) -> None:
    """Rounding is towards 0, and -0.5 becomes 0; includes numbers out of range and constants."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        whole, known = (x * 1).to(to), torch.full_like(x, -1.0).to(to)
        return whole, whole.to(x.dtype), 1 / whole, whole.double(), known, known + x

    for part in (slice(None), slice(3), slice(-7, None)):  # some as vectors, some one by one
        x = torch.tensor((*FAR, math.inf, -math.inf, math.nan), dtype=dtype)[part]
        run, _ = compiled(program, x)
        for ours, expected in zip(run([x]), program(x), strict=True):
            assert torch.equal(ours.nan_to_num(7), expected.nan_to_num(7)), (ours, expected)
            assert torch.equal(ours.signbit(), expected.signbit()), (ours, expected)


def test_positive_and_negative_zero_differ() -> None:
    x = torch.tensor([-0.0, 0.0, 6.0])
    program = lambda x: (x + 0.0, x + -0.0, torch.where(x > 5, 0.0, x), torch.where(x > 5, -0.0, x))  # noqa: E731
    run, _ = compiled(program, x)
    for ours, expected in zip(run([x]), program(x), strict=True):
        assert torch.equal(ours.signbit(), expected.signbit())


def test_bool_arithmetic() -> None:
    x = torch.tensor([True, False, True, False])
    y = torch.tensor([True, True, False, False])
    check(
        lambda x, y: (x + y, x * y, x & y, x | y, x ^ y, ~x, x.sum(), x.any(), x.all(), x + 1, x == y, x.amax()), x, y
    )


def test_types_promote_as_in_eager() -> None:
    i, h, f, d = torch.arange(6), torch.randn(6).half(), torch.randn(6), torch.randn((), dtype=torch.float64)
    check(lambda i, h, f, d: (i + 0.5, i + h, h + f, f + d, h * d, i / 2, i > 1.5, h > 0.1, i * True), i, h, f, d)
    check(lambda i: (i.clamp(0.5, 3), i.clamp(min=2), i.clamp(max=2.5)), i)


def test_reductions_see_nan_and_infinity() -> None:
    x = torch.randn(4, 70)
    x[0, 3], x[1, 69], x[2, 0] = math.nan, math.inf, -math.inf
    check(lambda x: (x.amax(1), x.amin(1), x.sum(1), x.mean(1), x.max(), x.min(), x.amax(0), x.amin(0)), x)
    check(lambda x: (x.softmax(1), x.log_softmax(1), x.softmax(0)), x)


def test_long_sums_stay_accurate() -> None:
    x = torch.rand(3_000_000, generator=torch.Generator().manual_seed(0)) + 0.5
    check(lambda x: (x.sum(), x.mean(), x.var()), x, tolerances=[1e-6, 1e-6, 1e-5])
    check(lambda x: (x.sum(0),), x.view(-1, 3), tolerances=[1e-6])


def test_tensors_without_dimensions_or_elements() -> None:
    check(lambda x: (x + 1, x.sum(), x.exp() * 2, x.amax(), x.mean()), torch.tensor(2.0))
    check(lambda x: (x + 1, x.sum(1), x.relu(), x.sum()), torch.empty(3, 0))


VIEWS: list[Any] = [
    lambda x: x.t(),
    lambda x: x.t().reshape(-1),
    lambda x: x[1:, ::2],
    lambda x: x[2],
    lambda x: x.unsqueeze(1).expand(-1, 3, -1),
    lambda x: x.view(2, 3, 4),
    lambda x: x.view(2, 3, 4).transpose(0, 2).flatten(1),
    lambda x: x.diagonal(),
    lambda x: x.split(2, 1)[1],
    lambda x: x.unbind(0)[3],
    lambda x: x.chunk(2, 1)[0].squeeze(),
    lambda x: x.unfold(1, 2, 1),
]


@pytest.mark.parametrize("view", VIEWS)
def test_views_of_inputs_values_and_results(view: Any) -> None:
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    check(lambda x: (view(x) * 2, view(x + 1), view((x + 1).exp()).sin(), view(x).sum(0)), x)


def test_a_view_has_no_step() -> None:
    program = lowered(lambda x: (x.t()[1:],), torch.randn(4, 4))
    assert not program.steps
    assert program.results == (ir.TensorView(program.inputs[0], (3, 4), (1, 4), 1),)


def test_a_returned_view_of_an_input_is_a_view_of_it() -> None:
    x = torch.randn(4, 4)
    run, _ = compiled(lambda x: (x.t(), x), x)
    view, same = run([x])
    assert same is x
    assert view.data_ptr() == x.data_ptr()
    view.add_(1)
    assert x._version == view._version


def test_operators_without_a_rule_are_calls() -> None:
    x = torch.randn(6, 6)
    assert calls(lambda x: ((x @ x).relu(), x.sort()[0], x.logcumsumexp(0)), x) == [
        "aten.mm.default",
        "aten.sort.default",
        "<built-in function getitem>",
        "aten.logcumsumexp.default",
    ]
    check(lambda x: ((x @ x.t()).relu(), x.sort()[0] + 1, x.cumsum(0) * x, x.topk(2)[1]), x)


def test_complex_operators_are_calls() -> None:
    x = torch.randn(4, dtype=torch.complex64)
    check(lambda x: ((x * 2).abs() + 1, x.real.exp()), x)


def test_random_draws_keep_their_order() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = torch.rand_like(x), torch.rand_like(x)
        return b * 2, F.dropout(x, 0.4), a + x

    x = torch.randn(8, 8)
    run, _ = compiled(program, x)
    torch.manual_seed(3)
    expected = program(x)
    torch.manual_seed(3)
    for ours, reference in zip(run([x]), expected, strict=True):
        torch.testing.assert_close(ours, reference)


def test_steps_are_not_moved_across_a_mutation() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        before = x * 2
        x.copy_(x + 1)
        return before, x * 3

    x, ours = torch.randn(5), torch.randn(5)
    ours.copy_(x)
    run, _ = compiled(program, x.clone())
    for got, want in zip(run([ours]), program(x), strict=True):
        torch.testing.assert_close(got, want)
    torch.testing.assert_close(ours, x)


def test_dead_code_is_eliminated() -> None:
    assert not lowered(lambda x: (x.exp(), x)[1:], torch.randn(3)).steps


def test_literals_are_rounded_to_their_type() -> None:
    assert literal(0.1, torch.float32).argument == ir.Literal(torch.tensor(0.1).item(), torch.float32)
    assert literal(1e300, torch.float32).argument == ir.Literal(math.inf, torch.float32)
    with pytest.raises(NotLowered):
        literal(300, torch.int8)


def test_an_operator_has_one_rule() -> None:
    with pytest.raises(ValueError, match="already has a lowering rule"):
        lowers(aten.mul.Tensor)(lambda body: None)
    assert all(isinstance(target, torch._ops.OpOverload) for target in RULES)


def test_each_kernel_is_in_the_language_of_its_device() -> None:
    with FakeTensorMode():
        x = torch.empty(4, device="cuda:0")
        graph = make_fx(lambda x: (x.sin(), torch.full((3,), 3.0)))(x)
    program = lower(graph, "forward")
    assert [program.language(s) for s in program.steps if isinstance(s, ir.Loops)] == ["triton", "cpp"]
    on_cpu, on_gpu = lower(graph, "forward", {"cpu": "cpp"}), lower(graph, "forward", {"cuda": "triton"})
    assert [getattr(s, "reason", "") for s in on_cpu.steps] == ["there are no kernels for cuda, only for cpu", ""]
    assert [getattr(s, "reason", "") for s in on_gpu.steps] == ["", "there are no kernels for cpu, only for cuda"]


@pytest.mark.parametrize(("rows", "left_to_pytorch"), [(2, True), (64, False)])
def test_many_additions_to_one_element_of_a_gpu_are_left_to_pytorch(rows: int, left_to_pytorch: bool) -> None:
    def program(x: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return x.index_put((index,), values, accumulate=True)

    gm = trace(program, torch.ones(rows, 8), torch.zeros(2048, dtype=torch.int64), torch.ones(2048, 8))
    assert not any(isinstance(step, ir.Call) for step in lower(gm, "forward").steps)
    put_on_a_gpu(gm)
    assert any(isinstance(step, ir.Call) for step in lower(gm, "forward").steps) == left_to_pytorch

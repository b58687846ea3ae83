"""The programs, sizes, types and layouts of the sweep."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

from compiler_core.capture.tensors.fake_tensors import FakeMode, muted_fake_log
from tests.benchmarks.cases import CASES, Case, Make, registrar
from tests.benchmarks.other_cases import OTHERS
from tests.sweeps.fuzz import tensor_parts
from tests.sweeps.fuzz.tensor_programs import Names, Writer

Tensor = torch.Tensor
MORE: list[Case] = []
case = registrar(MORE)
LAYOUTS = ("plain", "plain", "turned", "sliced", "stepped", "expanded", "later")
DTYPES = (torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.float64)
ROWS = (
    *(1, 2, 3, 7, 17, 31, 64, 100, 127, 128, 129, 255, 256, 257, 509, 1000, 1009, 1024, 4096, 8191, 8192, 12345),
    *(16 * 1009, 31_250, 32_768, 65_536, 83_333, 99_991, 131_072, 250_000, 1_000_000, 1 << 20, 10**7),
)
COLUMNS = (
    *(1, 2, 3, 5, 16, 17, 31, 32, 64, 96, 127, 128, 130, 200, 256, 257, 511, 512, 768, 1000, 1024, 1025, 2048, 3000),
    *(4096, 4097, 8192, 8193, 16_384, 16_385, 32_000, 50_257, 65_536, 100_003, 131_072, 1 << 20, 10**7, 10**8),
)
KEY_SIZES = (
    *((1, 1), (1, 3), (17, 1), (3, 17), (100, 130), (83_333, 768), (31_250, 2048), (8192, 4096), (1009, 1000)),
    *((2, 1 << 20), (1, 10**7), (1_000_000, 16), (65_536, 257), (256, 16_385), (64, 65_536), (128, 50_257)),
)
SYMBOLIC = ("all", "rows", "columns")
MOST = 4 * 10**8
"""The number of elements of a matrix."""


@dataclass(frozen=True)
class Laid(Make):
    """Makes matrices of a layout, for training or not."""

    layout: str = "plain"

    def matrix(self) -> Tensor:
        rows, columns = self.rows, self.columns
        if self.layout == "turned":
            return self._made(columns, rows).t()
        if self.layout == "sliced":
            return self._made(rows, columns + 5)[:, 2:-3]
        if self.layout == "stepped":
            return self._made(rows, 2 * columns)[:, ::2]
        if self.layout == "expanded":
            return self._made(1, columns).expand(rows, columns)
        if self.layout == "later":
            return self._made(rows * columns + 1)[1:].view(rows, columns)
        return self._made(rows, columns)

    def _made(self, *size: int) -> Tensor:
        return torch.randn(size, dtype=self.dtype, device=self.device)

    def images(self) -> Tensor:
        result = super().images()
        return result if self.layout == "plain" else result.contiguous(memory_format=torch.channels_last)

    def whole(self, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.randint(-9, 10, (self.rows, self.columns), device=self.device, dtype=dtype)

    def mask(self) -> Tensor:
        return torch.rand(self.rows, self.columns, device=self.device) < 0.5

    def column(self) -> Tensor:
        return torch.randn(self.rows, 1, dtype=self.dtype, device=self.device)

    def maps(self) -> Tensor:
        """[rows, 4, 6, columns + 7]: gradients of norms of one or two columns are mostly rounding."""
        return self._made(self.rows, 4, 6, self.columns + 7)

    def channels(self) -> Tensor:
        return torch.randn(32, dtype=self.dtype, device=self.device)


# ---- norms


@case(lambda m: [m.matrix(), m.matrix(), m.row(), m.row()], trains=True)
def norm_of_a_sum(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Any:
    return F.layer_norm(x + y, w.shape, w, b)


@case(lambda m: [m.matrix(), m.row()], trains=True)
def rms_norm_and_sum(x: Tensor, w: Tensor) -> Any:
    return F.rms_norm(x, w.shape, w), x.sum(0)


@case(lambda m: [m.matrix(), m.row(), m.row()], trains=True)
def norm_of_columns(x: Tensor, w: Tensor, b: Tensor) -> Any:
    return F.batch_norm(x, w.detach().clone(), b.detach().clone().abs(), w, b, training=True)


@case(lambda m: [m.images(), m.channels(), m.channels()], trains=True)
def batch_norm_in_training(x: Tensor, w: Tensor, b: Tensor) -> Any:
    return F.relu(F.batch_norm(x, w.detach() * 0, w.detach().abs(), w, b, training=True))


@case(lambda m: [m.images(), m.channels(), m.channels()], trains=True)
def norms_of_images(x: Tensor, w: Tensor, b: Tensor) -> Any:
    return F.group_norm(x, 4, w, b) + F.instance_norm(x, weight=w, bias=b)


@case(lambda m: [m.maps(), m.maps(), m.maps()[0, 0, 0], m.maps()[0, 0, 0]], trains=True)
def norms_of_windows(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Any:
    """Norms of maps, between which windows of 2 x 3 are put in their place and rolled (Swin)."""
    x = F.layer_norm(x, w.shape, w, b)
    x = x + y.view(-1, 2, 2, 2, 3, y.shape[-1]).transpose(2, 3).reshape(y.shape).roll((1, 1), (1, 2))
    return F.layer_norm(x, w.shape, w, b), x.sin()


@case(lambda m: [m.matrix()], trains=True)
def weight_norm(x: Tensor) -> Any:
    return x * (x.norm(dim=1, keepdim=True).reciprocal() * 2)


@case(lambda m: [m.matrix()])
def variances(x: Tensor) -> Any:
    return x.var(), x.var(0), x.var(1), x.std(1, correction=0), *torch.var_mean(x, 0, keepdim=True)


# ---- softmaxes, attention and losses


@case(lambda m: [m.matrix(), m.mask()], trains=True)
def masked_softmax(x: Tensor, mask: Tensor) -> Any:
    wide = x.masked_fill(mask, float("-inf")).to(torch.promote_types(x.dtype, torch.float32))
    return F.softmax(wide, -1).to(x.dtype)


@case(lambda m: [m.maps(), m.maps()[0], m.maps()[0, 0, 0]], trains=True)
def attention_of_windows(x: Tensor, b: Tensor, w: Tensor) -> Any:
    """Softmax with a bias for each row of a window, which all windows share."""
    return F.softmax(x + b, -1) * w


@case(lambda m: [m.matrix()], trains=True)
def log_softmax_both_ways(x: Tensor) -> Any:
    return F.log_softmax(x, 0), F.log_softmax(x, 1)


@case(lambda m: [m.scores()], trains=True)
def causal_scores(x: Tensor) -> Any:
    length = x.shape[-1]
    ahead = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
    return torch.softmax(x.masked_fill(ahead, float("-inf")) * 0.125, -1)


@case(lambda m: [m.matrix(), m.indices(m.rows, m.columns)], trains=True)
def nll_with_ignored(x: Tensor, target: Tensor) -> Any:
    return F.cross_entropy(x, target, ignore_index=0, reduction="sum"), F.nll_loss(x.log_softmax(1), target)


@case(lambda m: [m.matrix(), m.indices(m.rows, m.columns), m.row()], trains=True)
def weighted_cross_entropy(x: Tensor, target: Tensor, w: Tensor) -> Any:
    return F.cross_entropy(x, target, weight=w.detach().abs())


@case(lambda m: [m.matrix(), m.matrix()], trains=True)
def losses(x: Tensor, y: Tensor) -> Any:
    return F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y), F.soft_margin_loss(x, y.detach().sign())


@case(lambda m: [m.matrix(), m.matrix()], trains=True)
def losses_of_probabilities(x: Tensor, y: Tensor) -> Any:
    p, q = x.sigmoid(), y.detach().sigmoid()
    return F.binary_cross_entropy_with_logits(x, q), F.kl_div(p.log(), q, reduction="batchmean")


@case(lambda m: [m.matrix(), m.matrix()], trains=True)
def contrastive(x: Tensor, y: Tensor) -> Any:
    return F.cosine_similarity(x, y).mean() + F.pairwise_distance(x, y).sum()


# ---- reductions


@case(lambda m: [m.matrix()], trains=True)
def sums(x: Tensor) -> Any:
    return x.sum(), x.sum(0), x.sum(1), x.mean(), x.mean(0), (x * 2).sum(1, keepdim=True)


@case(lambda m: [m.matrix()])
def extremes(x: Tensor) -> Any:
    return x.amax(), x.amin(0), x.amax(1), *x.max(0), *x.min(1), x.argmax(), x.argmin(0)


@case(lambda m: [m.matrix(), m.mask()])
def truths(x: Tensor, mask: Tensor) -> Any:
    return (x > 0).any(0), mask.all(1), mask.sum(), (x != 0).sum(0), mask.any(), x.count_nonzero(1)


@case(lambda m: [m.matrix()], trains=True)
def products_and_norms(x: Tensor) -> Any:
    return (x * 0.01 + 1).prod(1), x.norm(), x.norm(dim=0), x.logsumexp(0), x.logsumexp((0, 1)), x.abs().sum(0)


@case(lambda m: [m.matrix()])
def rows_and_columns(x: Tensor) -> Any:
    return x.softmax(1), x.sum(0), (x * x).sum(0), x.amax(0), x - x.mean(1, keepdim=True)


@case(lambda m: [m.matrix()])
def rows_and_columns_across(x: Tensor) -> Any:
    return x.t().softmax(1), x.t().sum(0), x.t().cumsum(1)


@case(lambda m: [m.whole(), m.whole(torch.int32), m.whole(torch.int8)])
def whole_numbers(x: Tensor, y: Tensor, z: Tensor) -> Any:
    return x.sum(0), y.sum(1), z.sum(), x.amax(1), z.amin(0), (x // 3 + y % 5).sum(1), (z.float() * 0.5).sum(0)


@case(lambda m: [m.images()])
def over_images(x: Tensor) -> Any:
    return x.mean((2, 3)), x.sum((0, 2, 3)), x.amax(1), x.var((0, 2, 3)), x.softmax(1)


# ---- scans


@case(lambda m: [m.matrix()], trains=True)
def running(x: Tensor) -> Any:
    return x.cumsum(0), x.cumsum(1), x.softmax(1).cumsum(1)


@case(lambda m: [m.matrix()], trains=True)
def softmax_of_running(x: Tensor) -> Any:
    return (x * 0.1).cumsum(1).softmax(1), x.flip(1).cumsum(1).logsumexp(1)


@case(lambda m: [m.matrix(), m.mask()])
def running_others(x: Tensor, mask: Tensor) -> Any:
    return (x * 0.01 + 1).cumprod(1), mask.cumsum(0), x.cumsum(1) / x.abs().sum(1, keepdim=True), x.flip(1).cumsum(1)


# ---- pointwise and places


@case(lambda m: [m.matrix(), m.row(), m.column()], trains=True)
def broadcasts(x: Tensor, w: Tensor, c: Tensor) -> Any:
    return (x * w + c).relu(), (x + c).sigmoid() * w.exp()


@case(lambda m: [m.matrix(), m.matrix()], trains=True)
def activations(x: Tensor, y: Tensor) -> Any:
    return (
        F.gelu(x) * y,
        F.hardswish(x) + F.mish(y),
        F.elu(x) - F.softplus(y),
        F.leaky_relu(x),
        F.glu(torch.cat([x, y], 1)),
    )


@case(lambda m: [m.matrix(), m.matrix()], trains=True)
def moved(x: Tensor, y: Tensor) -> Any:
    turned = x.t().contiguous() + y.t() * 2
    return turned, torch.cat([x, y], 0).flip(0), torch.stack([x, y], 1), x.roll(1, 0) - y, F.pad(x, (1, 2, 3, 0))


@case(lambda m: [m.matrix(), m.matrix()], trains=True, random=True)
def dropouts(x: Tensor, y: Tensor) -> Any:
    return F.dropout(x * 2, 0.1) + F.dropout(y, 0.5)


@case(lambda m: [m.matrix(), m.indices(m.rows, m.rows), m.indices(m.rows, m.columns)], trains=True)
def looked_up(x: Tensor, i: Tensor, j: Tensor) -> Any:
    return F.embedding(i, x).softmax(-1), x.gather(1, j[:, None]), x[i, j] * 2, x.index_select(1, j[:1]).sum()


@case(lambda m: [m.matrix(), m.indices(m.rows, m.rows), m.matrix()], trains=True)
def put(x: Tensor, i: Tensor, y: Tensor) -> Any:
    return x.index_add(0, i, y), x.index_put((i,), y.detach()), x.scatter_add(0, i[:, None].expand_as(y), y)


@case(lambda m: [m.images()], trains=True)
def pools(x: Tensor) -> Any:
    return F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 4), F.adaptive_avg_pool2d(x, 1)


@case(lambda m: [m.images(), m.channels(), m.channels()], trains=True)
def norm_of_pooled(x: Tensor, w: Tensor, b: Tensor) -> Any:
    x = x.clone(memory_format=torch.channels_last)
    y = x + (F.avg_pool2d(x, 3, 1, 1, count_include_pad=False) - x) * w[:, None, None]
    return y, F.group_norm(y, 1, w, b)


@case(lambda m: [m.images(), m.images()], trains=True)
def shuffled_channels(x: Tensor, y: Tensor) -> Any:
    x, y = x.clone(memory_format=torch.channels_last), y.relu()
    for _ in range(2):
        both = torch.cat((x, y), 1).unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)
        x, y = both.chunk(2, 1)
        y = y.sigmoid()
    return x, y.permute(0, 2, 3, 1).clone(memory_format=torch.contiguous_format)


@case(lambda m: [m.images(), m.channels()], trains=True)
def squeeze_and_excite(x: Tensor, w: Tensor) -> Any:
    scale = (x.mean((2, 3)) * w).sigmoid()
    return F.silu(x * scale[:, :, None, None])


@case(lambda m: [m.matrix()])
def made_from_nothing(x: Tensor) -> Any:
    at = torch.arange(x.shape[1], device=x.device)
    return x * at, x.tril(), torch.where(at > 5, x, 0), torch.ones_like(x).cumsum(0), F.one_hot(at[:100] % 7, 7) * 2.0


@case(lambda m: [m.matrix()], trains=True)
def of_numbers(x: Tensor) -> Any:
    """Reductions and scans of numbers, and of one row that is repeated."""
    numbers, row = torch.full_like(x, -1.5), (x[:1] * 0.01).expand_as(x)
    of_all = numbers.var(), F.layer_norm(numbers, numbers.shape)
    of_rows = numbers.sum(1), numbers.cumsum(1), row.exp().cumprod(1), row.prod(1), row.softmax(1), row.cumsum(0)
    return *of_all, *of_rows, x + 1


# ---- optimisers


@case(
    lambda m: [t.detach() for t in (m.matrix(), m.matrix(), m.matrix(), m.matrix(), m.row(), m.row(), m.row(), m.row())]
)
def adamw(*tensors: Tensor) -> Any:
    created: list[Tensor] = []
    for w, g, m, v in (tensors[:4], tensors[4:]):
        m, v = m.lerp(g, 0.1), v.abs().mul(0.999).addcmul(g, g, value=0.001)
        created += [w * (1 - 1e-2) - 1e-3 * (m / 0.1) / ((v / 0.001).sqrt() + 1e-8), m, v]
    return created


@case(lambda m: [m.matrix(), m.row(), m.matrix()])
def clipped(x: Tensor, w: Tensor, y: Tensor) -> Any:
    norm = torch.stack([t.norm() for t in (x, w, y)]).norm()
    return [t * (1 / (norm + 1e-6)).clamp(max=1) for t in (x, w, y)]


@case(lambda m: [m.matrix(), m.row(), m.row()], trains=True)
def a_layer(x: Tensor, w: Tensor, b: Tensor) -> Any:
    """The operations around the matrix products of a transformer layer."""
    y = F.layer_norm(x, w.shape, w, b)
    return x + F.gelu(y * 2 + b), y.sum(0)


ALL = [*CASES, *OTHERS, *MORE]


# ---- points of the sweep -------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """A program with a size, a type, a layout, and which of its sizes are symbolic."""

    program: str
    rows: int
    columns: int
    dtype: torch.dtype = torch.float32
    layout: str = "plain"
    symbolic: str = ""
    """One of `SYMBOLIC`, or none: those that depend on the rows, on the columns, or all."""

    def text(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.program} {self.rows} {self.columns} {dtype} {self.layout} {self.symbolic}".strip()

    @staticmethod
    def parsed(text: str) -> Point:
        program, rows, columns, dtype, layout, *symbolic = text.split()
        return Point(program, int(rows), int(columns), getattr(torch, dtype), layout, *symbolic)

    @property
    def dynamic(self) -> bool | None:
        """The option ``dynamic`` of a compile."""
        return {"": False, "all": True}.get(self.symbolic)

    def make(self, device: str) -> Laid:
        return Laid(self.rows, self.columns, self.dtype, device, self.layout)

    def case(self) -> Case:
        if self.program.startswith("random_"):
            return random_case(int(self.program.removeprefix("random_")), self)
        return next(c for c in ALL if c.name == self.program)

    def inputs(self, device: str) -> list[Tensor]:
        """Makes tensors, which require gradients if the program trains."""
        found = self.case()
        results = [t.detach() for t in found.inputs(self.make(device))]
        return [t.requires_grad_(found.trains and t.is_floating_point()) for t in results]

    def without_memory(self) -> list[Tensor]:
        """Makes tensors without memory, whose sizes are marked as the point says."""
        results = self.inputs("meta")
        if self.symbolic in ("rows", "columns"):
            for tensor, other in zip(results, self.grown().inputs("meta"), strict=True):
                sizes = zip(tensor.shape, other.shape, strict=True)
                tensor._dynamo_weak_dynamic_indices = {d for d, (a, b) in enumerate(sizes) if a != b}  # type: ignore[attr-defined]
        return results

    def grown(self) -> Point:
        """Returns a point with more of the rows or columns that are symbolic."""
        more = {name: 2 * getattr(self, name) + 1 for name in ("rows", "columns") if self.symbolic in (name, "all")}
        return replace(self, **more)


def key_points(symbolic: Sequence[str] = ("",)) -> Iterator[Point]:
    """Yields all programs at sizes for which the size rules differ, with sizes of each kind of `symbolic` in turn."""
    kinds = itertools.cycle(symbolic)
    for each in ALL:
        for rows, columns in KEY_SIZES:
            yield Point(each.name, rows, columns, symbolic=next(kinds))


def random_points(seed: int, symbolic: Sequence[str] = ("",), randoms: float = 0.25) -> Iterator[Point]:
    """Points without end; that share of them with random programs."""
    draw = random.Random(seed)
    while True:
        rows, columns = draw.choice(ROWS), draw.choice(COLUMNS)
        if rows * columns <= MOST:
            name = f"random_{draw.randrange(10**6)}" if draw.random() < randoms else draw.choice(ALL).name
            kinds = draw.choice(DTYPES), draw.choice(LAYOUTS), draw.choice(symbolic)
            yield Point(name, rows, columns, *kinds)


# ---- random programs -----------------------------------------------------------------------


class _Written(Writer):
    """Writes a random program for given tensors."""

    def __init__(self, draw: random.Random, tensors: Sequence[Tensor]) -> None:
        super().__init__(draw)
        self.calls: list[Names] = [{f"a{n}": t for n, t in enumerate(tensors)}]

    def _filled(self, form: str) -> str:
        return super()._filled(form).replace("device=DEVICE", "device=a0.device")

    def _fits(self, line: str, name: str, changes: bool) -> bool:
        many = ".unbind(" in line or ".split(2" in line  # several tensors, with sizes specific to this case
        return not many and super()._fits(line, name, changes)

    def _is_of_use(self, value: Any) -> bool:
        return isinstance(value, Tensor) and not value.is_complex() and value.numel() <= MOST and value.dim() <= 5

    def body(self, count: int) -> str:
        for number in range(count):
            self._statement(f"v{number}")
        return "".join(f"    {line}\n" for line in self.lines) + f"    return {self._result()}\n"


def _some_of_all(m: Laid) -> list[Tensor]:
    return [m.matrix(), m.matrix(), m.row(), m.column(), m.whole(), m.indices(m.rows, m.rows), m.mask()]


@functools.lru_cache(maxsize=64)
def random_case(seed: int, point: Point) -> Case:
    """Returns a program of a few operations that apply to the tensors of a point."""
    draw = random.Random(f"{seed} {point.text()}")
    count = draw.choice((2, 3, 4, 6, 8))
    with FakeMode(allow_non_fake_inputs=True), muted_fake_log():
        tensors = _some_of_all(point.make("cuda"))
        body = _Written(draw, tensors).body(count)
    scope = dict(vars(tensor_parts))
    exec(f"def program({', '.join(f'a{n}' for n in range(len(tensors)))}):\n{body}", scope)
    scope["program"].__doc__ = body
    return Case(f"random_{seed}", scope["program"], _some_of_all, draw.random() < 0.5)  # type: ignore[arg-type]

"""Compares compiled kernels with eager for inputs of all layouts, with 1 to 5 channels and with no element.

    python -m tests.sweeps.layout_values [--only TEXT] [--share I/N] [--backend NAME] [--database]

A case is one program and one layout; its inputs have each number of channels in turn.  With ``--database``, the
programs are PyTorch's operator database, of which each sample of an operator gets all layouts in one case.  The
verdicts are those of `operator_sweep`, which compares values, strides, memory and gradients.

g++ 12 made wrong code for `F.pad` of images with three channels in channels_last alone: such mistakes depend on the
strides and on small numbers of channels, and a test with contiguous inputs finds none of them.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import compiler_core
from tests.sweeps import layouts, operator_sweep
from tests.sweeps.operator_sweep import Case, Result

CHANNELS = (1, 2, 3, 4, 5)
MOST_SAMPLES = 4
"""Samples of an operator of the database."""
NOT_EMPTY = ("pixel_shuffle",)
"""Programs whose gradients PyTorch cannot compute without elements."""

Program = tuple[Callable[..., Any], Callable[[int], tuple[tuple[int, ...], ...]]]
"""A function, and the shapes of its arguments for a number of channels."""


def lines(channels: int) -> tuple[tuple[int, ...], ...]:
    return ((2, channels, 7),)


def images(channels: int) -> tuple[tuple[int, ...], ...]:
    return ((2, channels, 6, 4),)


def volumes(channels: int) -> tuple[tuple[int, ...], ...]:
    return ((2, channels, 4, 6, 2),)


def rows(channels: int) -> tuple[tuple[int, ...], ...]:
    return ((6, channels),)


def two_images(channels: int) -> tuple[tuple[int, ...], ...]:
    return (*images(channels), *images(channels))


def with_shapes(own: Callable[[int], Any], *others: Callable[[int], tuple[int, ...]]) -> Callable[[int], Any]:
    """Returns the shapes `own`, and those of further arguments."""
    return lambda channels: (*own(channels), *(other(channels) for other in others))


def index(n: int, *shape: int) -> Tensor:
    """Returns indices below `n`, each of which comes more than once."""
    return (torch.arange(torch.Size(shape).numel()) * 7 % 5 % max(n, 1)).reshape(shape)


POINTWISE: dict[str, Program] = {
    "relu": (F.relu, images),
    "gelu": (F.gelu, images),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), images),
    "where": (lambda x: torch.where(x > 0, x.exp(), x * 2), images),
    "two": (lambda x, y: x * y + y.sigmoid(), two_images),
    "two layouts": (lambda x, y: x * y.contiguous() + x.contiguous().atan2(y), two_images),
    "of a channel": (lambda x: x * x[:, :1] + x[:, -1:], images),
    "of a row": (lambda x: x - x[..., :1, :], images),
    "bias": (lambda x, b: x * b.view(-1, 1, 1) + b[0], with_shapes(images, lambda c: (c,))),
    "other types": (lambda x: (x.to(torch.bfloat16) + 1, x.double().sin(), (x * 4).int() // 3, x > 0), images),
    "in place": (lambda x: x.clone().mul_(2).add_(x), images),
    "write to channels": (lambda x: _written(x, (slice(None), slice(1, None))), images),
    "write to columns": (lambda x: _written(x, (..., slice(None, None, 2))), images),
    "write to a mask": (lambda x: _written(x, x > 0.3), images),
    "fill of a mask": (lambda x: x.masked_fill(x > 0.3, 2.0), images),
    "lines": (lambda x: x.sin() * x[..., :1], lines),
    "volumes": (lambda x: x.tanh() + x[:, :1] * x[..., :1], volumes),
    "rows": (lambda x: x.exp() - x[:1] * x[:, :1], rows),
    "complex": (lambda x: torch.view_as_real(torch.complex(x, x * 2) * torch.complex(x, -x)), images),
}


def _written(x: Tensor, where: Any) -> Tensor:
    result = x.clone()
    result[where] = result[where] * 2 + 1
    return result


def _reductions() -> Iterator[tuple[str, Program]]:
    kinds: dict[str, Callable[..., Any]] = {
        "sum": torch.sum,
        "mean": torch.mean,
        "amax": torch.amax,
        "argmax": torch.argmax,
        "min": torch.min,
        "var": lambda x, d: torch.var(x, d, correction=0),
        "prod": torch.prod,
        "logsumexp": torch.logsumexp,
        "norm": lambda x, d: torch.linalg.vector_norm(x, 2, d),
        "any": lambda x, d: (x > 0.5).any(d),
        "cumsum": torch.cumsum,
        "cummax": torch.cummax,
        "softmax": torch.softmax,
        "log_softmax": torch.log_softmax,
        "sort": torch.sort,
    }
    for (name, function), dim in itertools.product(kinds.items(), (0, 1, -1)):
        yield f"{name} over {dim}", (functools.partial(_over, function, dim), images)
    for name in ("sum", "mean", "amax", "var", "logsumexp", "norm"):
        for dims in ((2, 3), (0, 2, 3), (0, 1)):
            yield f"{name} over {dims}", (functools.partial(_over, kinds[name], dims), images)
    for name in ("sum", "amax", "softmax", "cumsum", "argmax", "mean"):
        yield f"{name} of volumes", (functools.partial(_over, kinds[name], 1), volumes)
        yield f"{name} of rows", (functools.partial(_over, kinds[name], 1), rows)
    yield "sum of all", (lambda x: (x.sum(), x.square().mean(), x.amax()), images)


def _over(function: Callable[..., Any], dim: Any, x: Tensor) -> Any:
    return function(x, dim)


REDUCTIONS: dict[str, Program] = dict(_reductions())

NORMALISATIONS: dict[str, Program] = {
    "layer_norm over rows": (lambda x: F.layer_norm(x, x.shape[-1:]), images),
    "layer_norm over all": (lambda x: F.layer_norm(x, x.shape[1:]), images),
    "layer_norm over channels": (lambda x: F.layer_norm(x.movedim(1, -1), x.shape[1:2]).movedim(-1, 1), images),
    "layer_norm with weight": (
        lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b),
        with_shapes(images, lambda c: (4,), lambda c: (4,)),
    ),
    "rms_norm": (lambda x: F.rms_norm(x, x.shape[-1:]), images),
    "group_norm of one group": (lambda x: F.group_norm(x, 1), images),
    "group_norm of channels": (
        lambda x, w, b: F.group_norm(x, x.shape[1], w, b),
        with_shapes(images, lambda c: (c,), lambda c: (c,)),
    ),
    "instance_norm": (F.instance_norm, images),
    "instance_norm of volumes": (F.instance_norm, volumes),
    "batch_norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        with_shapes(images, lambda c: (c,), lambda c: (c,)),
    ),
    "batch_norm of volumes": (lambda x: F.batch_norm(x, None, None, training=True), volumes),
    "batch_norm of lines": (lambda x: F.batch_norm(x, None, None, training=True), lines),
    "batch_norm of rows": (lambda x: F.batch_norm(x, None, None, training=True), rows),
    "batch_norm of evaluation": (
        lambda x, m, v: F.batch_norm(x, m, v.square() + 0.1),
        with_shapes(images, lambda c: (c,), lambda c: (c,)),
    ),
    "normalize": (lambda x: F.normalize(x, dim=1), images),
    "local_response_norm": (lambda x: F.local_response_norm(x, 2), images),
}


def _paddings() -> Iterator[tuple[str, Program]]:
    for mode, sizes in (
        ("constant", [(1, 1), (0, 1, 2, 0), (1, 1, 1, 1), (-1, 2, 1, -1), (0, 0, 0, 0, 1, 1)]),
        ("reflect", [(1, 2), (1, 1, 2, 1)]),
        ("replicate", [(1, 2), (1, 1, 2, 1), (-1, 2, 0, 1)]),
        ("circular", [(1, 2), (1, 1, 2, 1)]),
    ):
        for size in sizes:
            made = images if len(size) > 2 else lines
            yield f"pad {mode} {size}", (functools.partial(F.pad, pad=size, mode=mode), made)
    yield "pad with a value", (functools.partial(F.pad, pad=(1, 1, 1, 1), value=-1.5), images)
    yield "pad and multiply", (lambda x: F.pad(x * 2, (1, 1, 1, 1)) * F.pad(x, (2, 0, 2, 0), value=1.0), images)
    for mode in ("constant", "reflect", "replicate", "circular"):
        yield f"pad of volumes {mode}", (functools.partial(F.pad, pad=(1, 1, 1, 1, 1, 1), mode=mode), volumes)


PADDINGS: dict[str, Program] = dict(_paddings())

POOLS: dict[str, Program] = {
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), lines),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), images),
    "max_pool2d that overlaps": (lambda x: F.max_pool2d(x, 3, 1, 1), images),
    "max_pool2d with indices": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), images),
    "max_pool2d dilated": (lambda x: F.max_pool2d(x, 2, 1, 0, 2, True), images),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), volumes),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 3, 2, 1), lines),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), images),
    "avg_pool2d padded": (lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False), images),
    "avg_pool2d ceil": (lambda x: F.avg_pool2d(x, 3, 2, 1, True, divisor_override=4), images),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), volumes),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (4, 3)), images),
    "adaptive_avg_pool2d to 1": (lambda x: F.adaptive_avg_pool2d(x, 1), images),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 2), volumes),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (4, 3)), images),
    "lp_pool2d": (lambda x: F.lp_pool2d(x, 2, 2), images),
}


def _resizes() -> Iterator[tuple[str, Program]]:
    options: dict[str, Any]
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
        for size in ((12, 8), (7, 3), (3, 2)):
            yield f"interpolate {mode} to {size}", (functools.partial(F.interpolate, size=size, mode=mode), images)
    for mode in ("bilinear", "bicubic"):
        for name in ("align_corners", "antialias"):
            options = {"scale_factor": 1.5, "mode": mode, name: True}
            yield f"interpolate {mode} {name}", (functools.partial(F.interpolate, **options), images)
    yield "interpolate linear", (functools.partial(F.interpolate, size=11, mode="linear"), lines)
    yield "interpolate nearest of lines", (functools.partial(F.interpolate, scale_factor=2), lines)
    yield "interpolate trilinear", (functools.partial(F.interpolate, size=(3, 9, 3), mode="trilinear"), volumes)
    yield "interpolate nearest of volumes", (functools.partial(F.interpolate, size=(8, 3, 4)), volumes)
    yield "pixel_unshuffle", (lambda x: F.pixel_unshuffle(x, 2), images)
    yield "pixel_shuffle", (lambda x: F.pixel_shuffle(torch.cat([x] * 4, 1), 2), images)
    yield "channel_shuffle", (lambda x: F.channel_shuffle(torch.cat([x, x * 2], 1), 2), images)
    grid = with_shapes(images, lambda c: (2, 3, 5, 2))
    for mode, padding in itertools.product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")):
        options = {"mode": mode, "padding_mode": padding, "align_corners": False}
        yield f"grid_sample {mode} {padding}", (functools.partial(F.grid_sample, **options), grid)


RESIZES: dict[str, Program] = dict(_resizes())

CONVOLUTIONS: dict[str, Program] = {
    "conv1d": (lambda x, w: F.conv1d(x, w, padding=1), with_shapes(lines, lambda c: (3, c, 3))),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b), with_shapes(images, lambda c: (3, c, 3, 3), lambda c: (3,))),
    "conv2d and relu": (lambda x, w: F.conv2d(x * 2, w, padding=1).relu(), with_shapes(images, lambda c: (c, c, 3, 3))),
    "conv2d strided": (lambda x, w: F.conv2d(x, w, stride=2, dilation=2), with_shapes(images, lambda c: (4, c, 2, 2))),
    "conv2d of points": (lambda x, w: F.conv2d(x, w), with_shapes(images, lambda c: (5, c, 1, 1))),
    "conv2d depthwise": (
        lambda x, w: F.conv2d(x, w, padding=1, groups=x.shape[1]),
        with_shapes(images, lambda c: (2 * c, 1, 3, 3)),
    ),
    "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w, stride=2), with_shapes(images, lambda c: (c, 3, 2, 2))),
    "conv3d": (lambda x, w: F.conv3d(x, w, padding=1), with_shapes(volumes, lambda c: (2, c, 3, 3, 3))),
    "unfold": (lambda x: F.unfold(x, 2, stride=2), images),
    "fold": (lambda x: F.fold(F.unfold(x, 3, padding=1), (6, 4), 3, padding=1), images),
    "batch_norm and relu": (
        lambda x, w: F.batch_norm(F.conv2d(x, w), None, None, training=True).relu(),
        with_shapes(images, lambda c: (c, c, 3, 3)),
    ),
}

PRODUCTS: dict[str, Program] = {
    "matmul": (torch.matmul, with_shapes(images, lambda c: (4, 3))),
    "matmul of channels": (lambda x, w: torch.einsum("nchw,cd->ndhw", x, w), with_shapes(images, lambda c: (c, 3))),
    "bmm": (lambda x: x.flatten(2) @ x.flatten(2).mT, images),
    "mm": (lambda x, w: x @ w, with_shapes(rows, lambda c: (c, 3))),
    "mm of the transposed": (lambda x: x.t() @ x, rows),
    "addmm": (lambda x, w, b: torch.addmm(b, x, w).relu(), with_shapes(rows, lambda c: (c, 3), lambda c: (6, 3))),
    "linear": (lambda x, w, b: F.linear(x, w, b), with_shapes(images, lambda c: (3, 4), lambda c: (3,))),
    "mv": (torch.mv, with_shapes(rows, lambda c: (c,))),
    "outer": (lambda x: torch.outer(x[:, 0], x[0]), rows),
    "baddbmm": (lambda x: torch.baddbmm(x[:, 0], x[:, 0], x[:, -1].mT @ x[:, 0], alpha=0.5), images),
    "attention": (lambda x, y: F.scaled_dot_product_attention(x, y, x * y), two_images),
    "cdist": (torch.cdist, with_shapes(rows, lambda c: (4, c))),
}

INDEXING: dict[str, Program] = {
    "views": (lambda x: (x[:, ::2], x[..., 1:], x[:, -1], x.mT, x.flatten(2), x.movedim(1, -1)), images),
    "copies of views": (lambda x: [v * 2 for v in (x[:, ::2], x[..., 1:, ::2], x.mT, x.flatten(1))], images),
    "an index": (lambda x: x[index(2, 3)] * 2, images),
    "an index of channels": (lambda x: x[:, index(x.shape[1], 4)], images),
    "two indices": (lambda x: x[:, index(x.shape[1], 4), index(6, 4)], images),
    "a negative index": (lambda x: x[:, [0, -1], :, [1, -2]], images),
    "index_select": (lambda x: torch.index_select(x, 1, index(x.shape[1], 3)), images),
    "gather": (lambda x: x.gather(1, index(x.shape[1], 2, 3, 6, 4)), images),
    "gather of rows": (lambda x: x.gather(-1, index(4, 2, x.shape[1], 6, 5)), images),
    "take_along_dim": (lambda x: x.take_along_dim(x.argsort(-1), -1), images),
    "scatter": (lambda x, y: x.scatter(3, index(1, 2, x.shape[1], 6, 1), y), two_images),
    "scatter_add": (lambda x, y: x.scatter_add(2, index(6, *x.shape), y), two_images),
    "scatter_reduce": (lambda x, y: x.scatter_reduce(2, index(6, *x.shape), y, "amax"), two_images),
    "index_add": (lambda x, y: x.index_add(1, index(x.shape[1], x.shape[1]), y, alpha=2), two_images),
    "index_put": (lambda x, y: x.index_put((index(2, 3),), y[:1], accumulate=True), two_images),
    "select_scatter": (lambda x: x.select_scatter(x[:, 0] * 2, 1, -1), images),
    "slice_scatter": (lambda x: x.slice_scatter(x[..., 1:] * 2, -1, 0, 3), images),
    "diagonal": (lambda x: (x.diagonal(0, 2, 3) * 2, x.tril(), x.triu(1)), images),
    "roll": (lambda x: (x.roll(1, 1), x.roll((1, -1), (2, 3))), images),
    "flip": (lambda x: (x.flip(1), x.flip(-1, -2)), images),
    "rot90": (lambda x: x.rot90(1, (2, 3)), images),
    "cat": (lambda x, y: torch.cat([x, y * 2], 1), two_images),
    "cat of rows": (lambda x, y: torch.cat([x, y[..., 1:], x * y], -1), two_images),
    "stack": (lambda x, y: (torch.stack([x, y], 1), torch.stack([x, y * 2], -1)), two_images),
    "repeat": (lambda x: (x.repeat(1, 2, 1, 1) + 1, x.repeat_interleave(2, 1), x.tile(2)), images),
    "unbind": (lambda x: [part.exp() for part in x.unbind(1)], images),
    "windows": (lambda x: x.unfold(-1, 2, 1) * 2, images),
    "reshape": (lambda x: (x.mT.reshape(2, -1) * 2, x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])), images),
    "embedding": (lambda x: F.embedding(index(6, 2, 3), x), rows),
    "one_hot": (lambda x: F.one_hot(x.argmax(1), x.shape[1]), images),
    "cross_entropy": (lambda x: F.cross_entropy(x, index(x.shape[1], 2, 6, 4)), images),
    "cross_entropy of rows": (lambda x: F.cross_entropy(x, index(x.shape[1], 6), label_smoothing=0.1), rows),
    "flip of volumes": (lambda x: x.flip(1) + x.roll(1, 2), volumes),
    "contiguous": (lambda x: (x.contiguous(), x.clone(), x * 1, torch.empty_like(x).copy_(x)), images),
    "channels_last": (lambda x: (x * 2).contiguous(memory_format=torch.channels_last), images),
    "channels_last_3d": (lambda x: (x * 2).to(memory_format=torch.channels_last_3d), volumes),
}

PROGRAMS: dict[str, Program] = {
    **(POINTWISE | REDUCTIONS | NORMALISATIONS | PADDINGS),
    **(POOLS | RESIZES | CONVOLUTIONS | PRODUCTS | INDEXING),
}


def cases(only: str = "") -> Iterator[Case]:
    for name in PROGRAMS:
        if only in name:
            yield from cases_of(name)


def cases_of(name: str) -> Iterator[Case]:
    """Yields a case for each layout that the arguments can have."""
    function, shapes = PROGRAMS[name]
    for layout in dict.fromkeys(n for shape in shapes(3) for n in layouts.layouts(torch.zeros(shape))):
        yield _case(name, function, [shapes(channels) for channels in CHANNELS], layout)
    if name not in NOT_EMPTY:
        yield _case(name, function, [tuple((0, *s[1:]) if s[0] == 2 else s for s in shapes(3))], "no element")


def _case(name: str, function: Callable[..., Any], shapes: Sequence[Any], layout: str) -> Case:
    def call(*inputs: Any) -> list[Any]:
        return [function(*each) for each in inputs]

    def make() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        generator = torch.Generator().manual_seed(0)
        first, *others = [
            [_argument(torch.randn(shape, generator=generator), layout) for shape in each] for each in shapes
        ]
        return first, tuple(others), {}

    return Case(f"{name}, {layout}", call, make, gradients=True)


def _argument(x: Tensor, layout: str) -> Tensor:
    return layouts.layouts(x).get(layout, x).requires_grad_()


def database_cases(only: str = "") -> Iterator[Case]:
    """Yields samples of each operator of PyTorch's database; a case has all layouts of one sample."""
    for name in operator_sweep.names():
        if only in name:
            samples = [case for case in operator_sweep.cases_of(name) if not case.name.startswith(f"{name}_[")]
            yield from (_in_all_layouts(case) for case in samples[:: max(1, len(samples) // MOST_SAMPLES)])


def _in_all_layouts(case: Case) -> Case:
    x, *_ = case.make()
    names = list(layouts.layouts(x)) if isinstance(x, Tensor) and x.layout is torch.strided else ["contiguous"]

    def call(*inputs: Any) -> list[Any]:
        return [case.function(each, *args, **kwargs) for each, args, kwargs in inputs]

    def make() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        first, *others = [_laid_out(case.make(), name) for name in names]
        return first, tuple(others), {}

    return Case(case.name, call, make, case.gradients, case.values)


def _laid_out(inputs: Any, layout: str) -> Any:
    x, args, kwargs = inputs
    if isinstance(x, Tensor) and x.layout is torch.strided:
        x = layouts.layouts(x.detach()).get(layout, x.detach()).requires_grad_(x.requires_grad)
    return x, args, kwargs


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backend", default="default")
    parser.add_argument("--only", default="", help="programs whose names contain this")
    parser.add_argument("--share", default="0/1", help="the I-th of N shares of the cases")
    parser.add_argument("--database", action="store_true", help="the operators of PyTorch's database")
    options = parser.parse_args(argv)
    first, _, count = options.share.partition("/")
    warnings.simplefilter("ignore")
    results: list[Result] = []
    started, shown = time.monotonic(), 0.0
    chosen = database_cases if options.database else cases
    for case in itertools.islice(chosen(options.only), int(first), None, int(count)):
        results.append(operator_sweep.run(case, None if options.backend == "default" else options.backend))
        if results[-1].verdict in ("wrong", "crashed"):
            print(f"{results[-1].verdict:8} {results[-1].case}: {results[-1].reason[:300]}", flush=True)
        if time.monotonic() - shown > 5:
            shown = time.monotonic()
            print(f"{len(results):,} cases, {shown - started:.0f} s, at {case.name}", file=sys.stderr, flush=True)
        if len(results) % 100 == 0:
            compiler_core.reset()
    print(operator_sweep.table(results))
    return int(any(r.verdict in ("wrong", "crashed") for r in results))


if __name__ == "__main__":
    sys.exit(main())

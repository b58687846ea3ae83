"""Convolutions of images with few channels whose windows do not overlap, as matrix products.

Vision transformers begin with such a convolution.  cuDNN's kernels for tensor cores take eight channels at a time, and
are slow with three; the product of the windows, one a row, with the filters is several times as fast::

    y = aten.convolution(x, w, b, stride=[16, 16], ...)      y = aten.addmm(b, windows(x), filters(w).t())
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from compiler_core.support.fx_symbols import has_symbols
from compiler_core.support.tensors import HALF_TYPES

aten = torch.ops.aten
MAX_CHANNELS = 7
LEAST_WINDOWS = dict.fromkeys(HALF_TYPES, 32) | {torch.float32: 256}
"""The most channels of an image, and the least elements of a window, for which the product is faster.

On an H200, with four images ``[3, 224, 224]`` in bfloat16, windows of 32 x 32 take 365 us as a convolution and 13 us as
a product, windows of 16 x 16 110 and 13 us, and their backward 48 and 28 us.  In float32 they take 80 and 50 us, though
cuDNN may use TF32, and the product does not.  For windows of 2 x 2 with four channels, and in float32 of 4 x 4 with
three, the convolution is faster.
"""


def convolution(image: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *how: Any) -> Any:
    """Decomposes ``aten.convolution``."""
    if not _is_faster_as_product(image, weight, *how):
        return NotImplemented
    rows, filters = _windows(image, weight.shape[2:]), weight.flatten(1).t()
    product = rows @ filters if bias is None else torch.addmm(bias, rows, filters)
    return product.view(image.shape[0], *_counts(image.shape, weight.shape[2:]), -1).movedim(-1, 1).contiguous()


def convolution_backward(
    gradient: torch.Tensor,
    image: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Sequence[int] | None,
    *how: Any,
) -> Any:
    """Decomposes ``aten.convolution_backward``."""
    wanted = how[-1]
    if not _is_faster_as_product(image, weight, *how[:-1]):
        return NotImplemented
    kernel = weight.shape[2:]
    rows = gradient.movedim(1, -1).flatten(0, -2)
    of_image = _image_of(rows @ weight.flatten(1), image.shape, kernel) if wanted[0] else None
    of_weight = (rows.t() @ _windows(image, kernel)).view(weight.shape) if wanted[1] else None
    return of_image, of_weight, rows.sum(0) if wanted[2] else None


def _is_faster_as_product(
    image: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> bool:
    if transposed or groups != 1 or any(padding) or any(d != 1 for d in dilation):
        return False
    if not image.is_cuda or image.dtype not in LEAST_WINDOWS or image.dtype is not weight.dtype:
        return False
    if has_symbols(image) or not (image.is_contiguous() and weight.is_contiguous()):
        return False
    kernel = list(weight.shape[2:])
    if list(stride) != kernel or any(n % k for n, k in zip(image.shape[2:], kernel, strict=True)):
        return False
    return image.shape[1] <= MAX_CHANNELS and prod(weight.shape[1:]) >= LEAST_WINDOWS[image.dtype]


def _windows(image: torch.Tensor, kernel: Sequence[int]) -> torch.Tensor:
    """Returns the windows of an image ``[batch, channels, *sizes]``, as rows ``[windows, channels * elements]``."""
    n = len(kernel)
    divided = [each for pair in zip(_counts(image.shape, kernel), kernel, strict=True) for each in pair]
    order = [0, *range(2, 2 + 2 * n, 2), 1, *range(3, 3 + 2 * n, 2)]
    return image.view(*image.shape[:2], *divided).permute(order).flatten(n + 1).flatten(0, n)


def _image_of(rows: torch.Tensor, shape: Sequence[int], kernel: Sequence[int]) -> torch.Tensor:
    """Returns the image whose windows are `rows`."""
    n = len(kernel)
    order = [0, n + 1, *(at for d in range(n) for at in (1 + d, n + 2 + d))]
    return rows.view(shape[0], *_counts(shape, kernel), shape[1], *kernel).permute(order).reshape(shape)


def _counts(shape: Sequence[int], kernel: Sequence[int]) -> list[int]:
    """Returns how many windows an image of this shape has in each dimension."""
    return [size // k for size, k in zip(shape[2:], kernel, strict=True)]

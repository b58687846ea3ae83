"""Dropout on GPUs, with the numbers that eager's kernel would draw."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import _disable_current_modes

from compiler_core.loops.ir import philox
from compiler_core.loops.lower.body import COMPUTE_TYPE, Body, literal
from compiler_core.loops.lower.table import NotLowered, Operand, Value, lowers
from compiler_core.support.size_expr import prod

aten = torch.ops.aten
MOST = 2**31
"""Eager counts more elements with longer numbers."""


@lowers(aten.native_dropout.default)
def native_dropout(body: Body, x: Operand, p: float, train: bool | None) -> None:
    """The result in one product of three, as eager's, and the mask."""
    if train is False or p == 1:
        raise NotLowered("nothing is drawn")
    dtype = COMPUTE_TYPE.get(x.dtype, x.dtype)
    drawn = body.cast(_uniform(body, x), torch.promote_types(dtype, torch.float32))
    value = body.cast(body.operand(x), dtype)
    # always true, but it lies as what is loaded does: Triton then draws for neighbours in one thread, which share a
    # philox, and not in a layout of its own, from which mask and product are both converted
    beside = body.op("or", body.op("eq", value, value), body.op("ne", value, value))
    kept = body.op("and", body.op("lt", drawn, 1 - p), beside)
    likely = literal(1 - p, dtype).argument.value  # type: ignore[union-attr]
    product = body.op("mul", value, body.cast(kept, dtype))
    body.store(kept, 1)
    body.store(body.op("mul", product, 1 / likely))


def _uniform(body: Body, x: Operand) -> Value:
    """What eager draws for each element; see `philox`."""
    size, device, numel = x.view.size, body.out.device, prod(x.view.size)
    if device.type != "cuda" or device.index is None:
        raise NotLowered("only what is drawn on a GPU of CUDA is known")
    if not isinstance(numel, int) or not isinstance(x.view.offset, int) or numel >= MOST:
        raise NotLowered("how eager's kernel draws depends on a size that is not known, or is very large")
    in_order = [prod(size[d + 1 :]) for d in range(len(size))]
    for stride in (x.view.stride, body.out.stride):
        if any(n != 1 and s != t for n, s, t in zip(size, stride, in_order, strict=True)):
            raise NotLowered("its elements do not lie in memory in their order")
    if x.aligned is False:
        raise NotLowered("where eager's tensor begins in memory is not known")
    if torch.cuda.is_available():
        with _disable_current_modes():
            if why := philox.differs(device.index, x.dtype):
                raise NotLowered(why)
    vector = philox.vector(x.dtype, numel, x.view.offset)
    return body.uniform(vector, numel, device.index, x.view if x.aligned is None else None)

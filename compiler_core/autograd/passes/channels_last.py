"""Convolutions on GPUs with their channels last in memory.

The tensor cores' kernels read images as ``[batch, height, width, channels]``.  Given others, cuDNN rearranges each
input before and each result after every call, which takes about as long as the convolutions themselves.  So where a
graph has convolutions that tensor cores do, what they take is laid out so once, and what follows keeps that layout up
to where it can be seen: the graph's results, and operations that depend on where elements lie, get eager's.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor

from compiler_core.support.fx_symbols import is_symbolic

aten = torch.ops.aten

IMAGES = {aten.convolution.default: (0, 1), aten.convolution_backward.default: (0, 1, 2)}
"""The operations that want channels last, and which of their arguments are images or weights."""
ANY_LAYOUT = {
    *(aten.clone.default, aten._to_copy.default, aten.where.self, aten.cat.default, aten.constant_pad_nd.default),
    *(aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.amax.default, aten.amin.default),
    *(aten.max_pool2d_with_indices.default, aten.max_pool2d_with_indices_backward.default),
    *(aten.avg_pool2d.default, aten.avg_pool2d_backward.default),
    *(aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool2d_backward.default),
    *(aten.upsample_nearest2d.default, aten.upsample_nearest2d_backward.default),
    *(aten.upsample_bilinear2d.default, aten.upsample_bilinear2d_backward.default),
    *(aten.squeeze.dims, aten.unsqueeze.default, aten.expand.default),
}
"""What gives the same values for any layout, besides what works element by element."""


VIEWS = {
    *(aten.permute.default, aten.transpose.int, aten.t.default, aten.view.default, aten._unsafe_view.default),
    *(aten.slice.Tensor, aten.select.int, aten.squeeze.dim, aten.split.Tensor, aten.split_with_sizes.default),
}
"""Views of the same elements for any layout in which they can be taken."""
FEW_CHANNELS = 4
FEW_TAPS = 25
"""The most elements of a filter of a depthwise float32 convolution whose gradient cuDNN makes as quickly as PyTorch."""


def to_channels_last(graph: fx.Graph) -> None:
    """Rearrange what convolutions take, where that pays; the results of the graph keep their layouts."""
    convolutions = [n for n in graph.nodes if _is_of_images(n) and not _has_few_channels(n)]
    if convolutions and all(map(_gains, convolutions)) and not any(map(_is_dynamic, graph.nodes)):
        rearrange(graph)


def rearrange(graph: fx.Graph) -> None:
    """Give all convolutions of images channels last, whatever that is worth."""
    rearranging = _Rearranging(graph)
    for node in list(graph.nodes):
        rearranging.visit(node)


def _is_of_images(node: fx.Node) -> bool:
    """Whether it is a convolution over two dimensions."""
    return node.target in IMAGES and _value(node.args[0]).dim() == 4


def _has_few_channels(convolution: fx.Node) -> bool:
    """Such as one of coloured images, which alone is no reason: cuDNN has tensor cores do it, with fewer digits, only
    where channels are last."""
    image, _ = IMAGES[convolution.target][-2:]  # type: ignore[index]
    return bool(_value(convolution.args[image]).shape[1] < FEW_CHANNELS)


def _gains(convolution: fx.Node) -> bool:
    """Whether cuDNN is quicker with channels last.

    Measured on an H100 over the convolutions of ten networks, channels first / channels last: forward 1.0 to 3.4,
    backward 1.0 to 4.4 in bfloat16 and in float32, where tensor cores may do it.  Depthwise ones are no work for tensor
    cores, and as much quicker; but in float32 the gradient of one with 7 x 7 filters takes twice as long.
    """
    images = [_value(convolution.args[k]) for k in IMAGES[convolution.target]]  # type: ignore[index]
    names = [a.name for a in convolution.target._schema.arguments]  # type: ignore[union-attr]
    given = dict(zip(names, convolution.args, strict=False))
    if given["transposed"] or not all(v.is_cuda for v in images):
        return False
    weight = images[-1]
    if all(v.dtype in (torch.float16, torch.bfloat16) for v in images):
        return True
    if any(v.dtype is not torch.float32 for v in images):
        return False
    if given["groups"] > 1 and weight.shape[1] == 1:
        return convolution.target is aten.convolution.default or prod(weight.shape[2:]) <= FEW_TAPS
    setting: Any = torch.backends.cudnn
    return bool(setting.conv.fp32_precision == "tf32")


def _is_dynamic(node: fx.Node) -> bool:
    """Whether it is an input whose size, or which itself, is a symbol."""
    value = node.meta.get("val") if node.op == "placeholder" else None
    return any(map(is_symbolic, value.shape)) if isinstance(value, torch.Tensor) else is_symbolic(value)


class _Rearranging:
    """The graph while it is changed; `formerly` has the strides of eager's tensor for each node that lies otherwise."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._formerly: dict[fx.Node, tuple[int, ...]] = {}
        self._copies: dict[tuple[fx.Node, tuple[int, ...]], fx.Node] = {}

    def visit(self, node: fx.Node) -> None:
        places = IMAGES[node.target] if _is_of_images(node) else None  # type: ignore[index]
        if places is not None:
            wanted = dict.fromkeys(a for k in places if isinstance(a := node.args[k], fx.Node))
            self._replace(node, {a: self._laid_out(a, _channels_last(_value(a)), node) for a in wanted})
        moved = {a: self._formerly[a] for a in node.all_input_nodes if a in self._formerly}
        if places is None and moved and not self._takes_any_layout(node):
            self._replace(node, {a: self._laid_out(a, strides, node) for a, strides in moved.items()})
        if places is not None or any(a in self._formerly for a in node.all_input_nodes):
            self._note(node)

    def _takes_any_layout(self, node: fx.Node) -> bool:
        target = node.target
        if target in VIEWS:
            return all(user.op != "output" for user in node.users) and _can_be_taken(node)
        if getattr(target, "__name__", "") == "getitem" or target in ANY_LAYOUT:
            return True
        return isinstance(target, torch._ops.OpOverload) and torch.Tag.pointwise in target.tags

    def _replace(self, node: fx.Node, others: dict[fx.Node, fx.Node]) -> None:
        node.args = fx.map_arg(node.args, lambda a: others.get(a, a))
        node.kwargs = fx.map_arg(node.kwargs, lambda a: others.get(a, a))

    def _laid_out(self, node: fx.Node, strides: tuple[int, ...], before: fx.Node) -> fx.Node:
        """`node`, or a copy of it, with these strides."""
        value = _value(node)
        sizes = value.shape if before.op != "output" else [2] * value.dim()  # there, they are seen
        if _same(sizes, value.stride(), strides):
            return node
        if (node, strides) not in self._copies:
            order = sorted(range(value.dim()), key=lambda d: -strides[d])
            with self._graph.inserting_before(before):
                turned = self._add(node, aten.permute.default, node, order)
                copied = self._add(node, aten.clone.default, turned, memory_format=torch.contiguous_format)
                back = [order.index(d) for d in range(value.dim())]
                self._copies[node, strides] = self._add(node, aten.permute.default, copied, back)
        return self._copies[node, strides]

    def _add(self, like: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        made = self._graph.call_function(target, args, kwargs)
        made.meta = {k: v for k, v in like.meta.items() if k != "role"} | {"rule": "channels_last"}
        made.meta["val"] = _computed(made)
        return made

    def _note(self, node: fx.Node) -> None:
        """How the result of `node` lies now."""
        if node.op == "output":
            return
        before, now = node.meta.get("val"), _computed(node)
        if now is not None:
            node.meta["val"] = now
        if isinstance(before, torch.Tensor):
            if before.stride() != now.stride():
                self._formerly[node] = before.stride()
        elif isinstance(before, (tuple, list)):
            self._formerly[node] = ()  # what takes its elements looks at each


def _can_be_taken(view: fx.Node) -> bool:
    try:
        _computed(view)
    except (RuntimeError, ValueError):  # "view size is not compatible with input tensor's size and stride"
        return False
    return True


def _computed(node: fx.Node) -> Any:
    """What `node` makes of its arguments; a convolution leaves channels last."""
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda a: a.meta["val"])
    fakes = [a.meta["val"] for a in node.all_input_nodes if isinstance(a.meta["val"], FakeTensor)]
    mode = fakes[0].fake_mode if fakes else None
    target: Any = node.target
    if mode is None:
        return target(*args, **kwargs)  # an element of several results
    with mode:
        made = target(*args, **kwargs)
        if target not in IMAGES:
            return made
        results = made if isinstance(made, (tuple, list)) else (made,)
        laid = [r.to(memory_format=torch.channels_last) if r is not None and r.dim() == 4 else r for r in results]
        return laid[0] if isinstance(made, torch.Tensor) else tuple(laid)


def _value(node: Any) -> torch.Tensor:
    value = node.meta["val"]
    assert isinstance(value, torch.Tensor)
    return value


def _channels_last(value: torch.Tensor) -> tuple[int, ...]:
    _, channels, height, width = value.shape
    return height * width * channels, 1, width * channels, channels


def _same(sizes: Sequence[int], strides: Sequence[int], others: Sequence[int]) -> bool:
    """Whether elements lie in the same places; the stride of an index of size 1 says nothing."""
    return all(a == b for n, a, b in zip(sizes, strides, others, strict=True) if n != 1)

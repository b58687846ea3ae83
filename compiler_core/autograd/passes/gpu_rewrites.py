"""Rewrites for GPUs: constants are made there, and convolutions get the channels_last memory format."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
import torch.fx as fx

from compiler_core.support.fx_symbols import evaluate_call, has_symbols
from compiler_core.support.node_facts import is_pure, is_view, may_raise
from compiler_core.support.operators import Fact, facts, is_pointwise
from compiler_core.support.tensors import tensors_in
from compiler_core.torch_private import disable_current_modes

aten = torch.ops.aten


# ---- constants -----------------------------------------------------------------------------
# A copy from the CPU waits for the host, and no CUDA graph can contain it.  So what a graph computes on the CPU from
# numbers alone, and reads on the GPU only, is made on the GPU.


def make_constants_on_gpus(graph: fx.Graph) -> None:
    """Moves constants to the devices that read them::

        i = aten.arange(8, device=cpu);  j = aten._to_copy(i, device=cuda)      j = aten.arange(8, device=cuda)
        c = aten.full([], 4.0, device=cpu);  y = aten.mul(x, aten.sqrt(c))      y = aten.mul(x, 2.0)

    If something else reads the constant on the CPU, it is made on both devices.
    """
    constants: set[fx.Node] = set()
    moved: dict[tuple[fx.Node, torch.device], fx.Node] = {}
    for node in list(graph.nodes):
        if _is_constant(node, constants):
            constants.add(node)
            continue
        value = node.meta.get("val")
        found = [n for n in node.all_input_nodes if n in constants]
        if not found or not isinstance(value, torch.Tensor) or not value.is_cuda:
            continue
        if Fact.TAKES_CPU_NUMBERS in facts(node.target):
            node.args = tuple(_number(node, a) if a in found else a for a in node.args)
        elif Fact.TAKES_CPU_TENSORS in facts(node.target):
            for constant in found:
                node.replace_input_with(constant, _made_on(constant, value.device, moved))


def _is_constant(node: fx.Node, constants: set[fx.Node]) -> bool:
    """Returns whether a node computes a tensor on the CPU from numbers and `constants` alone."""
    value, target = node.meta.get("val"), node.target
    if node.op != "call_function" or not isinstance(value, torch.Tensor) or value.device.type != "cpu":
        return False
    if not is_pure(node) or may_raise(node) or node.kwargs.get("pin_memory"):
        return False
    if not all(n in constants for n in node.all_input_nodes):
        return False
    if not node.all_input_nodes:
        return Fact.CREATION in facts(target)
    return target is aten._to_copy.default or is_view(node) or is_pointwise(target)


def _number(node: fx.Node, constant: fx.Node) -> Any:
    """Returns the number that `constant` has, if the result of `node` has the same type with it, else `constant`."""
    if not _is_number(constant):
        return constant
    with disable_current_modes():
        number = _evaluated(constant).item()
    given: Any = [number if a is constant else a.meta["val"] if isinstance(a, fx.Node) else a for a in node.args]
    return number if torch.result_type(*given) == node.meta["val"].dtype else constant


def _is_number(constant: fx.Node) -> bool:
    """Returns whether a constant has no dimensions, and is computed from such constants alone."""
    return constant.meta["val"].dim() == 0 and all(map(_is_number, constant.all_input_nodes))


def _evaluated(constant: Any) -> Any:
    """Returns the tensor that a constant is."""
    target: Any = constant.target
    args, kwargs = fx.map_arg((constant.args, constant.kwargs), _evaluated)
    return target(*args, **kwargs)


def _made_on(node: fx.Node, device: torch.device, moved: dict[tuple[fx.Node, torch.device], fx.Node]) -> fx.Node:
    """Returns the node that computes on another device what `node`, a constant, computes."""
    if (node, device) not in moved:
        inputs = {n: _made_on(n, device, moved) for n in node.all_input_nodes}
        with node.graph.inserting_after(node):
            made = node.graph.node_copy(node, inputs.__getitem__)
        if not inputs or "device" in node.kwargs:
            made.kwargs = {**made.kwargs, "device": device}
        value = node.meta["val"]
        made.meta["val"] = value.new_empty_strided(value.shape, value.stride(), device=device)
        moved[node, device] = made
    return moved[node, device]


# ---- channels_last -------------------------------------------------------------------------
# The kernels for tensor cores read images as ``[batch, height, width, channels]``.  For other layouts cuDNN rearranges
# each input before and each result after every call, which takes about as long as the convolutions themselves.  So if a
# graph has convolutions for tensor cores, their inputs are rearranged once, and the following operations keep the
# layout up to where it is visible: the graph's results, and operations that depend on the layout, get eager's layout.
#
#     y = convolution(x, w)           x_cl, w_cl = copies of x and w in channels_last
#     z = relu(y)                     z = relu(convolution(x_cl, w_cl));  returned: a copy of z in eager's layout


IMAGE_ARGUMENTS = {aten.convolution.default: (0, 1), aten.convolution_backward.default: (0, 1, 2)}
"""The operations that want channels_last, and the indices of their arguments that are images or weights."""
MIN_CHANNELS = 4
MAX_DEPTHWISE_TAPS = 25
"""The most elements of a depthwise float32 filter for which cuDNN computes the gradient as fast as PyTorch."""


def to_channels_last(graph: fx.Graph) -> None:
    """Gives convolutions channels_last inputs if that is faster; the results of the graph keep their layouts."""
    if any(map(_has_symbolic_size, graph.nodes)):  # asked first: what is below would make guards of symbolic sizes
        return
    convolutions = [n for n in graph.nodes if _is_2d_convolution(n) and not _has_few_channels(n)]
    if convolutions and all(map(_is_faster_channels_last, convolutions)):
        force_channels_last(graph)


def force_channels_last(graph: fx.Graph) -> None:
    """Gives all 2-d convolutions channels_last inputs, whether that is faster or not."""
    rearranging = _ChannelsLastRewriter(graph)
    for node in list(graph.nodes):
        rearranging.visit(node)


def _is_2d_convolution(node: fx.Node) -> bool:
    """Returns whether it is a convolution over two dimensions."""
    return node.target in IMAGE_ARGUMENTS and _value(node.args[0]).dim() == 4


def _has_few_channels(convolution: fx.Node) -> bool:
    """Returns whether the image has few channels, such as a colour image.  Such a convolution alone is not a reason to
    rearrange: cuDNN uses tensor cores for it, at lower precision, only if channels are last."""
    image, _ = IMAGE_ARGUMENTS[convolution.target][-2:]  # type: ignore[index]
    return bool(_value(convolution.args[image]).shape[1] < MIN_CHANNELS)


def _is_faster_channels_last(convolution: fx.Node) -> bool:
    """Returns whether cuDNN is faster with channels_last.

    Measured on an H100 over the convolutions of ten networks, as the time for channels first divided by the time for
    channels last: forward 1.0 to 3.4, backward 1.0 to 4.4, in bfloat16 and in float32 where TF32 is allowed.  Depthwise
    ones do not use tensor cores, and gain as much; but in float32 the gradient of one with 7 x 7 filters takes twice as
    long.  Ten transposed ones on an H200: forward 1.0 to 2.5, backward 1.3 to 2.9; but in float32 one with three
    channels in the result takes 1.5 times as long.
    """
    images = [_value(convolution.args[k]) for k in IMAGE_ARGUMENTS[convolution.target]]  # type: ignore[index]
    names = [a.name for a in convolution.target._schema.arguments]  # type: ignore[union-attr]
    given = dict(zip(names, convolution.args, strict=False))
    if not all(v.is_cuda for v in images) or (given["transposed"] and given["groups"] != 1):
        return False
    image, weight = images[-2:]
    if all(v.dtype in (torch.float16, torch.bfloat16) for v in images):
        return True
    if any(v.dtype is not torch.float32 for v in images):
        return False
    if given["transposed"] and weight.shape[1] < MIN_CHANNELS:
        return False
    if weight.shape[1] == 1 and image.shape[1] > 1:  # depthwise
        return convolution.target is aten.convolution.default or prod(weight.shape[2:]) <= MAX_DEPTHWISE_TAPS
    setting: Any = torch.backends.cudnn
    return bool(setting.conv.fp32_precision == "tf32")


def _has_symbolic_size(node: fx.Node) -> bool:
    """Returns whether a tensor of the node has a symbolic size.  Other symbols, as a learning rate, do not matter."""
    return any(map(has_symbols, tensors_in(node.meta.get("val"))))


class _ChannelsLastRewriter:
    """Rewrites a graph node by node.  `_eager_strides` has the strides of eager's tensor for each node whose layout
    changed."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._eager_strides: dict[fx.Node, tuple[int, ...]] = {}
        self._copies: dict[tuple[fx.Node, tuple[int, ...]], fx.Node] = {}

    def visit(self, node: fx.Node) -> None:
        places = IMAGE_ARGUMENTS[node.target] if _is_2d_convolution(node) else None  # type: ignore[index]
        if places is not None:
            wanted = dict.fromkeys(a for k in places if isinstance(a := node.args[k], fx.Node))
            self._replace(node, {a: self._with_strides(a, _channels_last_strides(_value(a)), node) for a in wanted})
        moved = {a: self._eager_strides[a] for a in node.all_input_nodes if a in self._eager_strides}
        if places is None and moved and not self._takes_any_layout(node):
            self._replace(node, {a: self._with_strides(a, strides, node) for a, strides in moved.items()})
        if places is not None or any(a in self._eager_strides for a in node.all_input_nodes):
            self._update_value(node)

    def _takes_any_layout(self, node: fx.Node) -> bool:
        target = node.target
        if Fact.VIEW_IN_ANY_LAYOUT in facts(target):
            return all(user.op != "output" for user in node.users) and _view_is_valid(node)
        if getattr(target, "__name__", "") == "getitem" or Fact.ANY_LAYOUT in facts(target):
            return not is_wrong_in_channels_last(target, node.args)
        return is_pointwise(target)

    def _replace(self, node: fx.Node, others: dict[fx.Node, fx.Node]) -> None:
        node.args = fx.map_arg(node.args, lambda a: others.get(a, a))
        node.kwargs = fx.map_arg(node.kwargs, lambda a: others.get(a, a))

    def _with_strides(self, node: fx.Node, strides: tuple[int, ...], before: fx.Node) -> fx.Node:
        """Returns `node`, or a copy of it, with these strides."""
        value = _value(node)
        sizes = value.shape if before.op != "output" else [2] * value.dim()  # the caller sees strides of outputs
        if _same_strides(sizes, value.stride(), strides):
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
        result = self._graph.call_function(target, args, kwargs)
        result.meta = {k: v for k, v in like.meta.items() if k != "role"} | {"rule": "channels_last"}
        result.meta["val"] = _run_node(result)
        return result

    def _update_value(self, node: fx.Node) -> None:
        """Recomputes the value of `node`, and notes eager's strides if they differ."""
        if node.op == "output":
            return
        before, now = node.meta.get("val"), _run_node(node)
        if now is not None:
            node.meta["val"] = now
        if isinstance(before, torch.Tensor):
            if before.stride() != now.stride():
                self._eager_strides[node] = before.stride()
        elif isinstance(before, (tuple, list)):
            self._eager_strides[node] = ()  # each of its elements is handled separately


def is_wrong_in_channels_last(target: Any, args: Sequence[Any]) -> bool:
    """Returns whether PyTorch's CUDA kernel for channels_last gives wrong values.

    Before PyTorch 2.14, that of the gradient of average pooling with padding does (pytorch/pytorch#188344).
    """
    return target is aten.avg_pool2d_backward.default and any(args[4])


def _view_is_valid(view: fx.Node) -> bool:
    try:
        _run_node(view)
    except (RuntimeError, ValueError):  # "view size is not compatible with input tensor's size and stride"
        return False
    return True


def _run_node(node: fx.Node) -> Any:
    """Returns the value of `node` for its current arguments.  Convolutions return channels_last."""
    result = evaluate_call(node)
    if node.target not in IMAGE_ARGUMENTS:
        return result
    results = result if isinstance(result, (tuple, list)) else (result,)
    laid = [r.to(memory_format=torch.channels_last) if r is not None and r.dim() == 4 else r for r in results]
    return laid[0] if isinstance(result, torch.Tensor) else tuple(laid)


def _value(node: Any) -> torch.Tensor:
    value = node.meta["val"]
    assert isinstance(value, torch.Tensor)
    return value


def _channels_last_strides(value: torch.Tensor) -> tuple[int, ...]:
    _, channels, height, width = value.shape
    return height * width * channels, 1, width * channels, channels


def _same_strides(sizes: Sequence[int], strides: Sequence[int], others: Sequence[int]) -> bool:
    """Returns whether both strides address the same elements; the stride of a dimension of size 1 does not matter."""
    return all(a == b for n, a, b in zip(sizes, strides, others, strict=True) if n != 1)

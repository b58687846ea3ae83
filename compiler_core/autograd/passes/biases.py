"""Rewrites of biases and activations around matrix products and convolutions on GPUs."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from compiler_core.support.fx_graphs import add_origins
from compiler_core.support.fx_symbols import hint
from compiler_core.support.operator_facts import is_view
from compiler_core.support.operators import Fact, facts, is_pointwise

aten = torch.ops.aten
_RELU_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MIN_FUSED_RELU_ELEMENTS = 1 << 18
"""For float32 products of at least so many elements, a separate pass for the ReLU costs more than a larger choice of
cuBLAS kernels gains."""


def fuse_relu_into_addmm(graph: fx.Graph) -> None:
    """On GPUs, computes a ReLU of a matrix product with a bias as an epilogue of the product, without a pass over its
    result::

        y = aten.addmm(b, x, w);  z = aten.relu(y)      z = aten._addmm_activation(b, x, w)

    cuBLAS gives the same bits for both, also for NaN.  Small float32 results are left to `split_addmm_bias`.
    """
    for relu in graph.find_nodes(op="call_function", target=aten.relu.default):
        product, between = relu.args[0], []
        while is_view(product) and len(product.users) == 1:
            between.append(product)
            product = product.args[0]
        if product.target is not aten.addmm.default or not _can_fuse_relu(product):
            continue
        with graph.inserting_before(product):
            clipped = graph.call_function(aten._addmm_activation.default, product.args)
        clipped.meta = dict(product.meta)
        for node in (clipped, *between):
            add_origins(node, relu)
        product.replace_all_uses_with(clipped)
        relu.replace_all_uses_with(relu.args[0])
        graph.erase_node(product)
        graph.erase_node(relu)


def _can_fuse_relu(product: fx.Node) -> bool:
    value, bias = product.meta["val"], product.args[0]
    assert isinstance(bias, fx.Node)
    large = value.dtype is not torch.float32 or hint(value.numel()) >= MIN_FUSED_RELU_ELEMENTS
    plain = not product.kwargs and len(product.users) == 1 and bias.meta["val"].dim() == 1
    return bool(value.is_cuda and plain and large and value.dtype in _RELU_DTYPES)


def split_addmm_bias(graph: fx.Graph) -> None:
    """On GPUs, adds the bias of a float32 matrix product separately, if all that read the sum are elementwise::

        y = aten.addmm(b, x, w)      m = aten.mm(x, w);  y = aten.add(m, b)

    The addition fuses into its readers at no cost.  Without a bias cuBLAS can choose among more kernels, such as those
    that split the inner dimension of the product (split-K), which keep a GPU busy when the result is small.
    Half-precision products are unchanged, since the product would be rounded before the sum.
    """
    for node in graph.find_nodes(op="call_function", target=aten.addmm.default):
        value = node.meta["val"]
        if (
            value.is_cuda
            and value.dtype is torch.float32
            and not node.kwargs
            and all(map(_is_read_elementwise, node.users))
        ):
            bias, left, right = node.args
            with graph.inserting_before(node):
                product = graph.call_function(aten.mm.default, (left, right))
                added = graph.call_function(aten.add.Tensor, (product, bias))
            product.meta, added.meta = dict(node.meta), dict(node.meta)
            node.replace_all_uses_with(added)
            graph.erase_node(node)


def split_convolution_bias(graph: fx.Graph) -> None:
    """On GPUs, adds the bias of a convolution separately, if all that read the result are elementwise.

    cuDNN has no bias: PyTorch adds it in a separate kernel, and sums its gradient in another::

        y = convolution(x, w, b, ...)              c = convolution(x, w, None, ...);  y = add(c, view(b, [1, -1, 1, 1]))
        gx, gw, gb = convolution_backward(g, ...)  gx, gw, _ = convolution_backward(g, ...);  gb = sum(g, [0, 2, 3])
    """
    for node in graph.find_nodes(op="call_function", target=aten.convolution.default):
        value, bias = node.meta["val"], node.args[2]
        if bias is not None and _adds_bias_after(node) and all(map(_is_read_elementwise, node.users)):
            with graph.inserting_after(node):
                shaped = graph.call_function(aten.view.default, (bias, [1, -1] + [1] * (value.dim() - 2)))
            with graph.inserting_after(shaped):
                added = graph.call_function(aten.add.Tensor, (node, shaped))
            shaped.meta, added.meta = dict(bias.meta), dict(node.meta)
            shaped.meta["val"] = bias.meta["val"].view([1, -1] + [1] * (value.dim() - 2))
            node.replace_all_uses_with(added, lambda user, added=added: user is not added)
            node.update_arg(2, None)
    for node in graph.find_nodes(op="call_function", target=aten.convolution_backward.default):
        gradient = node.args[0]
        if node.args[-1][2] and gradient.meta["val"].is_cuda:
            _split_bias_gradient(graph, node)


def _adds_bias_after(node: fx.Node) -> bool:
    """Returns whether PyTorch adds the bias to the result of the convolution, as it does around cuDNN's kernels.

    PyTorch's own depthwise kernels, for images with channels first, start their sums with the bias: in half precision
    the result is rounded once, not twice.
    """
    value, groups = node.meta["val"], node.args[-1]
    if not value.is_cuda:
        return False
    if value.dtype is torch.float32 or groups == 1:
        return True
    return bool(value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last))


def _split_bias_gradient(graph: fx.Graph, node: fx.Node) -> None:
    taken = [user for user in node.users if user.args[1] == 2]
    gradient: Any = node.args[0]
    wanted: Any = node.args[-1]
    node.args = (*node.args[:-1], [*wanted[:2], False])
    node.meta["val"] = (*node.meta["val"][:2], None)
    for user in taken:
        dims = [d for d in range(gradient.meta["val"].dim()) if d != 1]
        with graph.inserting_before(user):
            total = graph.call_function(aten.sum.dim_IntList, (gradient, dims))
        total.meta = dict(user.meta)
        user.replace_all_uses_with(total)
        graph.erase_node(user)


def _is_read_elementwise(node: fx.Node) -> bool:
    """Returns whether `node`, directly or through views, is read by loops over its elements."""
    if is_view(node):
        return all(map(_is_read_elementwise, node.users))
    # those that read the shape only: as stochastic depth does to draw its mask
    return is_pointwise(node.target) or bool(facts(node.target) & (Fact.READS_ELEMENTS | Fact.READS_METADATA))

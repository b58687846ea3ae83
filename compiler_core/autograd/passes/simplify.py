"""Rewrites of the functional aten graph that every later stage is glad of:

    copy_graph         into a fresh graph: placeholders named and first, only our own metadata
    inline_constants   tensors of one element that tracing left as attributes become aten.full
    drop_aliases       detach and the like have no meaning in a functional graph
    cancel_transposes  the backward of a product transposes what the forward transposed
    narrow_masks       zeros and ones that were drawn pass through bool, the smallest form to save them in
    relu_in_product    what clips a matrix product at 0 goes into it
    bias_apart         the bias of a matrix product is added by whoever reads the sum
    conv_bias_apart    so is that of a convolution, and its gradient is a sum beside the convolution's
    exp_of_log_softmax the exponential of a log-softmax, which its gradient has, is a quotient of what made it
    forms_alone        what a pooling's gradient reads for its form alone need not be what was pooled
    merge_equal        the same pure operation on the same arguments is computed once

Each rewrite changes the graph that it is given.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from compiler_core.support.fx_graphs import graph_module
from compiler_core.support.fx_symbols import hint, is_symbolic
from compiler_core.support.operator_facts import is_pure, is_random, is_view, view_base

aten = torch.ops.aten
_ALIASES = (aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default)
_ELEMENTS = (aten.clone.default, aten._to_copy.default, aten.sum.dim_IntList, aten.mean.dim, aten.amax.default)
_FORMS_ALONE = (
    *(aten.max_pool2d_with_indices_backward.default, aten.max_pool3d_with_indices_backward.default),
    *(aten.avg_pool2d_backward.default, aten.avg_pool3d_backward.default),
    *(aten.adaptive_max_pool2d_backward.default, aten.adaptive_max_pool3d_backward.default),
    *(aten._adaptive_avg_pool2d_backward.default, aten._adaptive_avg_pool3d_backward.default),
)
"""Gradients that read nothing of their second argument's values."""
_CLIPS = (torch.float32, torch.bfloat16, torch.float16)
CLIPPED = 1 << 18
"""Elements of a float32 product from which a pass over them costs more than the choice among cuBLAS's kernels."""
_KEPT_META = ("val", "origin", "rule", "module", "decomposed")


def copy_graph(gm: fx.GraphModule, names: Sequence[str]) -> fx.GraphModule:
    """`gm` with its placeholders first and called `names`, its output flat, and lean metadata."""
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    for node, name in zip(placeholders, names, strict=True):
        copied[node] = graph.placeholder(name)
    for node in gm.graph.nodes:
        if node.op not in ("placeholder", "output"):
            copied[node] = graph.node_copy(node, copied.__getitem__)
    for node, made in copied.items():
        made.meta = {k: node.meta[k] for k in _KEPT_META if node.meta.get(k) is not None}
    outputs: Any = gm.graph.output_node().args[0]
    graph.output([copied[o] if isinstance(o, fx.Node) else None for o in outputs])
    return graph_module(gm, graph)


def inline_constants(gm: fx.GraphModule) -> None:
    for node in list(gm.graph.nodes):
        if node.op != "get_attr":
            continue
        tensor = getattr(gm, node.target)
        if not isinstance(tensor, torch.Tensor) or tensor.numel() != 1 or tensor.device.type != "cpu":
            continue
        with gm.graph.inserting_before(node):
            where: dict[str, Any] = {"dtype": tensor.dtype, "device": tensor.device}
            full = gm.graph.call_function(aten.full.default, (list(tensor.shape), _item(tensor)), where)
        full.meta = dict(node.meta)
        node.replace_all_uses_with(full)
        gm.graph.erase_node(node)


def _item(tensor: torch.Tensor) -> Any:
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        return tensor.item()


def drop_aliases(graph: fx.Graph) -> None:
    for node in list(graph.nodes):
        if node.target in _ALIASES:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def cancel_transposes(graph: fx.Graph) -> None:
    """The transpose of a transpose is the matrix itself."""
    for node in graph.find_nodes(op="call_function", target=aten.t.default):
        source = node.args[0]
        if source.target is aten.t.default:
            node.replace_all_uses_with(source.args[0])


def narrow_masks(graph: fx.Graph) -> None:
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if getattr(node.target, "overloadpacket", None) is not aten.bernoulli or value.element_size() == 1:
            continue
        with graph.inserting_after(node):
            mask = graph.call_function(aten._to_copy.default, (node,), {"dtype": torch.bool})
        with graph.inserting_after(mask):
            wide = graph.call_function(aten._to_copy.default, (mask,), {"dtype": value.dtype})
        mask.meta, wide.meta = (node.meta | {"val": value.to(torch.bool)}), dict(node.meta)
        node.replace_all_uses_with(wide, delete_user_cb=lambda user, mask=mask: user is not mask)


def relu_in_product(graph: fx.Graph) -> None:
    """On GPUs, a ReLU behind a matrix product with a bias is the product's own (an epilogue): no pass over its result.

    cuBLAS gives the same bits for both, NaN among them.  Small float32 results are left to `bias_apart`.
    """
    for relu in graph.find_nodes(op="call_function", target=aten.relu.default):
        product, between = relu.args[0], []
        while is_view(product) and len(product.users) == 1:
            between.append(product)
            product = product.args[0]
        if product.target is not aten.addmm.default or not _can_clip(product):
            continue
        with graph.inserting_before(product):
            clipped = graph.call_function(aten._addmm_activation.default, product.args)
        clipped.meta = dict(product.meta)
        for node in (clipped, *between):
            node.meta["origin"] = tuple(dict.fromkeys((*node.meta.get("origin", ()), *relu.meta.get("origin", ()))))
        product.replace_all_uses_with(clipped)
        relu.replace_all_uses_with(relu.args[0])
        graph.erase_node(product)
        graph.erase_node(relu)


def _can_clip(product: fx.Node) -> bool:
    value, bias = product.meta["val"], product.args[0]
    assert isinstance(bias, fx.Node)
    large = value.dtype is not torch.float32 or hint(value.numel()) >= CLIPPED
    plain = not product.kwargs and len(product.users) == 1 and bias.meta["val"].dim() == 1
    return bool(value.is_cuda and plain and large and value.dtype in _CLIPS)


def bias_apart(graph: fx.Graph) -> None:
    """On GPUs, the bias of a matrix product becomes an addition, where all that read the sum go through its elements.

    It costs them nothing, and without it cuBLAS can choose among more kernels: those that cut the product's inner
    dimension in parts, say, which keep a GPU busy where the result is small.  Half types stay as they are: the
    product would be rounded before the sum.
    """
    for node in graph.find_nodes(op="call_function", target=aten.addmm.default):
        value = node.meta["val"]
        if value.is_cuda and value.dtype is torch.float32 and not node.kwargs and all(map(_goes_through, node.users)):
            bias, left, right = node.args
            with graph.inserting_before(node):
                product = graph.call_function(aten.mm.default, (left, right))
                added = graph.call_function(aten.add.Tensor, (product, bias))
            product.meta, added.meta = dict(node.meta), dict(node.meta)
            node.replace_all_uses_with(added)
            graph.erase_node(node)


def conv_bias_apart(graph: fx.Graph) -> None:
    """On GPUs, the bias of a convolution becomes an addition, where all that read the result go through its elements.

    cuDNN has no bias: PyTorch adds it in a kernel of its own, and sums its gradient in another::

        y = convolution(x, w, b, ...)              c = convolution(x, w, None, ...);  y = add(c, view(b, [1, -1, 1, 1]))
        gx, gw, gb = convolution_backward(g, ...)  gx, gw, _ = convolution_backward(g, ...);  gb = sum(g, [0, 2, 3])
    """
    for node in graph.find_nodes(op="call_function", target=aten.convolution.default):
        value, bias = node.meta["val"], node.args[2]
        if bias is not None and _bias_is_added(node) and all(map(_goes_through, node.users)):
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
            _sum_of_bias_apart(graph, node)


def _bias_is_added(node: fx.Node) -> bool:
    """Whether eager adds the bias to what the convolution made.  Kernels of depthwise convolutions begin with it, which
    a half type would show."""
    value, groups = node.meta["val"], node.args[-1]
    return bool(value.is_cuda and (value.dtype is torch.float32 or groups == 1))


def _sum_of_bias_apart(graph: fx.Graph, node: fx.Node) -> None:
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


def _goes_through(node: fx.Node) -> bool:
    """Whether loops read what `node` reads, as it stands or through views."""
    if is_view(node):
        return all(map(_goes_through, node.users))
    return torch.Tag.pointwise in getattr(node.target, "tags", ()) or node.target in _ELEMENTS


def exp_of_log_softmax(graph: fx.Graph) -> None:
    """exp(a - log(sum(exp(a)))) becomes exp(a) / sum(exp(a)), one exponential in place of two, where a is what its row
    exceeds its maximum by: then no exponential is infinite and no sum is 0."""
    for node in graph.find_nodes(op="call_function", target=aten.exp.default):
        difference = node.args[0]
        logarithm = _operand(difference, aten.sub.Tensor, 1)
        total = _operand(logarithm, aten.log.default, 0)
        exponential = _operand(total, aten.sum.dim_IntList, 0)
        below = _operand(exponential, aten.exp.default, 0)
        maximum = _operand(below, aten.sub.Tensor, 1)
        row = _operand(maximum, aten.amax.default, 0)
        if row is None or row is not below.args[0] or below is not difference.args[0]:
            continue
        if maximum.args[1:] != total.args[1:]:
            continue
        with graph.inserting_before(node):
            quotient = graph.create_node("call_function", aten.div.Tensor, (exponential, total), name="softmax")
        quotient.meta = dict(node.meta)
        node.replace_all_uses_with(quotient)
        graph.erase_node(node)


def forms_alone(graph: fx.Graph) -> None:
    """An operator that looks at a tensor's size and strides alone gets an empty one, so that it need not be saved."""
    for node in [n for target in _FORMS_ALONE for n in graph.find_nodes(op="call_function", target=target)]:
        gradient, image, *rest = node.args
        assert isinstance(image, fx.Node)
        value = image.meta["val"]
        if any(map(is_symbolic, (*value.shape, *value.stride()))):
            continue
        with graph.inserting_before(node):
            form = (gradient, list(value.shape), list(value.stride()))
            empty = graph.call_function(aten.new_empty_strided.default, form)
        empty.meta = dict(node.meta) | {"val": value}
        node.args = (gradient, empty, *rest)


def _operand(node: Any, target: Any, at: int) -> Any:
    """Argument `at` of `node`, if it is a plain call of `target`."""
    return node.args[at] if isinstance(node, fx.Node) and node.target is target and not node.kwargs else None


def merge_equal(graph: fx.Graph, keep: Sequence[fx.Node]) -> None:
    """Compute equal pure operations once; the memory of the nodes in `keep` stays apart, as that of eager's outputs."""
    seen: dict[tuple[Any, str, str], fx.Node] = {}
    apart = {*keep, *map(_maker, keep)}
    for node in list(graph.nodes):
        if not is_pure(node) or node in apart:
            continue
        # repr tells 1, 1.0, True and -0.0 apart, which are equal as keys
        first = seen.setdefault((node.target, repr(node.args), repr(node.kwargs)), node)
        if first is not node:
            first.meta["origin"] = tuple(dict.fromkeys((*first.meta.get("origin", ()), *node.meta.get("origin", ()))))
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def _maker(node: fx.Node) -> fx.Node:
    """The operation that made the memory that `node` shows, alone or as one of several results."""
    base = view_base(node)
    of = base.args[0] if base.target is operator.getitem else base
    assert isinstance(of, fx.Node)
    return of


def remove_dead(graph: fx.Graph) -> None:
    """Drop what nothing uses, except random operators: each draw moves the stream of numbers."""
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op not in ("placeholder", "output") and not is_random(node):
            graph.erase_node(node)

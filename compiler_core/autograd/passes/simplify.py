"""Small rewrites of the functional ATen graph, each of which changes the graph that it is given."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from compiler_core.support.fx_graphs import add_origins, ancestors, descendants, graph_module
from compiler_core.support.fx_symbols import hint, is_symbolic
from compiler_core.support.interrupts import safe_point
from compiler_core.support.node_facts import is_pure, is_view, may_raise, must_run, view_base
from compiler_core.support.operators import Fact, facts, is_pointwise
from compiler_core.torch_private import disable_current_modes

aten = torch.ops.aten
_KEPT_META = ("val", "origin", "rule", "module", "decomposed", "of_gradients", "checkpoint")


def copy_graph(gm: fx.GraphModule, names: Sequence[str]) -> fx.GraphModule:
    """Copies `gm` with its placeholders first and named `names`, its outputs in a flat list, and only our own
    metadata."""
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    for node, name in zip(placeholders, names, strict=True):
        copied[node] = graph.placeholder(name)
    for node in gm.graph.nodes:
        safe_point()
        if node.op not in ("placeholder", "output"):
            copied[node] = graph.node_copy(node, copied.__getitem__)
    for node, new in copied.items():
        new.meta = {k: node.meta[k] for k in _KEPT_META if node.meta.get(k) is not None}
    outputs: Any = gm.graph.output_node().args[0]
    graph.output([copied[o] if isinstance(o, fx.Node) else None for o in outputs])
    return graph_module(gm, graph)


def inline_constants(gm: fx.GraphModule) -> None:
    """Replaces CPU tensor constants of one element by aten.full::

    c = self._tensor_constant0      c = aten.full([], 2.0, dtype=float32, device=cpu)
    """
    for node in list(gm.graph.nodes):
        if node.op != "get_attr":
            continue
        tensor = getattr(gm, node.target)
        if not isinstance(tensor, torch.Tensor) or tensor.numel() != 1 or tensor.device.type != "cpu":
            continue
        with disable_current_modes():
            number = tensor.item()
        _replace_by_full(node, tensor, number)


def give_zeros_memory(graph: fx.Graph) -> None:
    """Replaces zeros that have no memory, which kernels cannot read; as outputs they stay what they are in eager
    PyTorch::

    z = aten._efficientzerotensor([4]);  y = aten.add(z, g)      z = aten.zeros([4]);  y = aten.add(z, g)
    """
    for node in graph.find_nodes(op="call_function", target=aten._efficientzerotensor.default):
        with graph.inserting_before(node):
            zeros = graph.call_function(aten.zeros.default, node.args, node.kwargs)
        zeros.meta = {**node.meta, "val": torch.zeros_like(node.meta["val"])}
        node.replace_all_uses_with(zeros, delete_user_cb=lambda user: user.op != "output")


def _replace_by_call(node: fx.Node, target: Any, args: Any, kwargs: Any = None, name: str | None = None) -> fx.Node:
    """Puts a call with the same metadata in the place of a node."""
    with node.graph.inserting_before(node):
        result = node.graph.create_node("call_function", target, args, kwargs, name)
    result.meta = dict(node.meta)
    node.replace_all_uses_with(result)
    node.graph.erase_node(node)
    return result


def _replace_by_full(node: fx.Node, like: torch.Tensor, number: Any) -> None:
    """Replaces a node by a tensor like `like` that is filled with a number."""
    where = {"dtype": like.dtype, "device": like.device}
    _replace_by_call(node, aten.full.default, (list(like.shape), number), where)


def keep_errors(graph: fx.Graph) -> None:
    """Marks operators of the forward whose results nothing uses, and which may raise an error, so that they run::

    a = aten.index(x, [i]);  return [b]      a = aten.index(x, [i]);  return [b]
    """
    used = ancestors([graph.output_node()])
    of_backward = descendants(node for node in graph.nodes if node.name.startswith("tangents_"))
    for node in graph.nodes:
        if node not in used and node not in of_backward and may_raise(node):
            node.meta["runs_to_raise"] = True


def conjugate_numbers(graph: fx.Graph) -> None:
    """Replaces the conjugate of a number in a gradient by a tensor.  Unlike a number, it takes part in the choice of
    the result's type, if the other operand has no dimensions either::

    c = aten._conj(2j);  y = aten.mul(g, c)      c = aten.full([], -2j, dtype=complex128);  y = aten.mul(g, c)
    """
    for node in graph.find_nodes(op="call_function", target=aten._conj.default):
        if isinstance(node.args[0], fx.Node):
            continue
        number: Any = node.args[0]
        node.meta["val"] = node.meta["val"].resolve_conj()
        _replace_by_full(node, node.meta["val"], number.conjugate())


def drop_aliases(graph: fx.Graph) -> None:
    """Removes detach, alias and lift_fresh_copy::

    y = aten.detach(x);  z = aten.cos(y)      z = aten.cos(x)
    """
    for node in list(graph.nodes):
        if Fact.ALIAS in facts(node.target):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def cancel_transposes(graph: fx.Graph) -> None:
    """Replaces the transpose of a transpose by the matrix.  The backward of a matrix product transposes what the
    forward transposed::

        b = aten.t(a);  c = aten.t(b);  aten.mm(g, c)      aten.mm(g, a)
    """
    for node in graph.find_nodes(op="call_function", target=aten.t.default):
        source = node.args[0]
        if source.target is aten.t.default:
            node.replace_all_uses_with(source.args[0])


def narrow_masks(graph: fx.Graph) -> None:
    """Passes drawn zeros and ones through bool, the smallest dtype to save them in::

    m = aten.bernoulli(p);  y = x * m      m = aten.bernoulli(p);  b = m.to(bool);  y = x * b.to(float32)
    """
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


def softmax_from_log_softmax(graph: fx.Graph) -> None:
    """Computes a softmax from its parts, with one exponential instead of two::

        y = exp(sub(a, log(sum(exp(a)))))      e = exp(a);  y = div(e, sum(e))

    It applies where `a` is the row minus its maximum: then no exponential is infinite and no sum is 0.
    """
    for node in graph.find_nodes(op="call_function", target=aten.exp.default):
        difference = node.args[0]
        logarithm = _argument_of(difference, aten.sub.Tensor, 1)
        total = _argument_of(logarithm, aten.log.default, 0)
        exponential = _argument_of(total, aten.sum.dim_IntList, 0)
        below = _argument_of(exponential, aten.exp.default, 0)
        maximum = _argument_of(below, aten.sub.Tensor, 1)
        row = _argument_of(maximum, aten.amax.default, 0)
        if row is None or row is not below.args[0] or below is not difference.args[0]:
            continue
        if maximum.args[1:] != total.args[1:]:
            continue
        _replace_by_call(node, aten.div.Tensor, (exponential, total), name="softmax")


def rsqrt_in_batch_norms(graph: fx.Graph) -> None:
    """Computes 1 / sqrt(variance + eps) of a batch norm in evaluation as one operation, as in training::

        s = aten.sqrt(v);  r = aten.reciprocal(s);  i = aten.mul(r, 1)      i = aten.rsqrt(v)

    PyTorch's decomposition has the three operations on the left, which fusion would compute for each element of the
    input.
    """
    for node in graph.find_nodes(op="call_function", target=aten.reciprocal.default):
        root = node.args[0]
        if root.target is not aten.sqrt.default or "batch_norm" not in (node.meta.get("decomposed") or ""):
            continue
        inverse = _replace_by_call(node, aten.rsqrt.default, root.args, name="rsqrt")
        for user in list(inverse.users):
            if user.target is aten.mul.Tensor and user.args[1] == 1:
                user.replace_all_uses_with(inverse)
                graph.erase_node(user)
        if not root.users:
            graph.erase_node(root)


def replace_shape_only_inputs(graph: fx.Graph) -> None:
    """Gives an operator that reads only the size and strides of an argument an empty tensor, so that the argument need
    not be saved::

        aten.max_pool2d_with_indices_backward(g, x, ...)      e = aten.new_empty_strided(g, size, stride)
                                                              aten.max_pool2d_with_indices_backward(g, e, ...)
    """
    for node in [n for n in graph.nodes if Fact.IGNORES_SELF in facts(n.target)]:
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


def _argument_of(node: Any, target: Any, at: int) -> Any:
    """Returns argument `at` of `node` if it is a call of `target` without keyword arguments, else None."""
    return node.args[at] if isinstance(node, fx.Node) and node.target is target and not node.kwargs else None


def eliminate_common_subexpressions(graph: fx.Graph, keep: Sequence[fx.Node]) -> None:
    """Computes equal pure operations once::

        a = aten.cos(x);  b = aten.cos(x);  a * b      a = aten.cos(x);  a * a

    The nodes in `keep` are not merged: in eager PyTorch they have separate memory.
    """
    seen: dict[tuple[Any, str, str], fx.Node] = {}
    separate = {*keep, *map(_producer, keep)}
    for node in list(graph.nodes):
        safe_point()
        if not is_pure(node) or node in separate:
            continue
        # repr distinguishes 1, 1.0, True and -0.0, which are equal as keys
        first = seen.setdefault((node.target, repr(node.args), repr(node.kwargs)), node)
        if first is not node:
            add_origins(first, node)
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def _producer(node: fx.Node) -> fx.Node:
    """Returns the operation that made the memory of `node`, as its only result or as one of several."""
    base = view_base(node)
    of = base.args[0] if base.target is operator.getitem else base
    assert isinstance(of, fx.Node)
    return of


def eliminate_dead_code(graph: fx.Graph) -> None:
    """Removes nodes that nothing uses, except random operators, which advance the random number generator, collectives,
    which other ranks wait for, and those that are kept for their errors::

    a = aten.cos(x);  b = aten.sin(x);  return [b]      b = aten.sin(x);  return [b]
    """
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op not in ("placeholder", "output") and not must_run(node):
            graph.erase_node(node)


_RELU_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MIN_SPLIT_SIDE, MAX_SPLIT_ELEMENTS, MIN_SPLIT_LENGTH = 256, 1 << 20, 768
"""Products of float32 that are faster without a bias: the least rows and columns, the most elements of the result, and
the least inner dimension."""
MIN_FUSED_RELU_ELEMENTS = 1 << 18
"""For float32 products of at least so many elements, a separate pass for the ReLU costs more than a larger choice of
cuBLAS kernels gains."""

IN_FLOAT32 = {aten.mm.default: aten.mm.dtype, aten.bmm.default: aten.bmm.dtype}
"""Products of matrices, and their overloads whose result has another type."""


# ---- what is beside matrix products and convolutions on GPUs --------------------------------


def fuse_relu_into_addmm(graph: fx.Graph) -> None:
    """On GPUs, computes a ReLU of a matrix product with a bias as an epilogue of the product, without a pass over its
    result::

        y = aten.addmm(b, x, w);  z = aten.relu(y)      z = aten._addmm_activation(b, x, w)

    cuBLAS gives the same bits for both, also for NaN.  Small float32 results are left to `split_addmm_bias`.
    """
    for relu in graph.find_nodes(op="call_function", target=aten.relu.default):
        product, between = _behind_views(relu.args[0])
        if product.target is not aten.addmm.default or not _can_fuse_relu(product):
            continue
        clipped = _replace_by_call(product, aten._addmm_activation.default, product.args)
        for node in (clipped, *between):
            add_origins(node, relu)
        relu.replace_all_uses_with(relu.args[0])
        graph.erase_node(relu)


def _behind_views(node: Any) -> tuple[Any, list[fx.Node]]:
    """Returns what a chain of views begins with, and the views from the last to the first; each has one reader."""
    between = []
    while is_view(node) and len(node.users) == 1:
        between.append(node)
        node = node.args[0]
    return node, between


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
    With a long inner dimension and a small result that is faster even if the sum takes a kernel: on an H200,
    [1024, 3072] by [3072, 768] with a bias takes 153 us, without it 113 us, and the sum 5 us.
    Half-precision products are unchanged, since the product would be rounded before the sum.
    """
    for node in graph.find_nodes(op="call_function", target=aten.addmm.default):
        value = node.meta["val"]
        if (
            value.is_cuda
            and value.dtype is torch.float32
            and not node.kwargs
            and (all(map(_is_read_elementwise, node.users)) or _has_long_products(node))
        ):
            bias, left, right = node.args
            with graph.inserting_before(node):
                product = graph.call_function(aten.mm.default, (left, right))
            product.meta = dict(node.meta)
            _replace_by_call(node, aten.add.Tensor, (product, bias))


def _has_long_products(node: fx.Node) -> bool:
    """Returns whether cuBLAS splits the inner dimension of a product without a bias, which it does not do with one."""
    left: Any = node.args[1]
    result, length = node.meta["val"], hint(left.meta["val"].shape[1])
    is_small = min(map(hint, result.shape)) >= MIN_SPLIT_SIDE and hint(result.numel()) <= MAX_SPLIT_ELEMENTS
    return bool(is_small and length >= MIN_SPLIT_LENGTH)


def return_float32_gradients(graph: fx.Graph) -> None:
    """On GPUs, computes products of bfloat16 matrices in float32 if they are returned as gradients in float32.  Under
    autocast those of all weights are::

        p = aten.mm(a, b);  g = aten._to_copy(p, dtype=float32)      g = aten.mm(a, b, float32)
        return [g]                                                   return [g]

    cuBLAS adds up in float32 in any case, and a separate kernel for the conversion takes nearly as long as the product:
    on an H200, [4096, 1024] by [1024, 14336] takes 338 us with it and 209 us without.  Unlike eager's, the gradient is
    not rounded to bfloat16.  Products of float16 are unchanged: a GradScaler looks for those that overflow.
    """
    gradients = descendants(node for node in graph.nodes if node.name.startswith("tangents_"))
    for node in graph.find_nodes(op="call_function", target=aten._to_copy.default):
        product, between = _behind_views(node.args[0])
        if node not in gradients or not _is_only_returned(node) or not _can_be_float32(product, node):
            continue
        wide = _replace_by_call(product, IN_FLOAT32[product.target], (*product.args, torch.float32))
        for each in (wide, *reversed(between)):
            each.meta["val"] = each.meta["val"].to(torch.float32)
            add_origins(each, node)
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)


def _is_only_returned(node: fx.Node) -> bool:
    return all(user.op == "output" or (is_view(user) and _is_only_returned(user)) for user in node.users)


def _can_be_float32(product: fx.Node, converted: fx.Node) -> bool:
    """Returns whether `converted`, a copy of a matrix product, differs from it in its type only, and nothing else reads
    the product."""
    if product.target not in IN_FLOAT32 or product.kwargs or len(product.users) != 1:
        return False
    value, result, source = product.meta["val"], converted.meta["val"], converted.args[0]
    assert isinstance(source, fx.Node)
    types = value.is_cuda and value.dtype is torch.bfloat16 and result.is_cuda and result.dtype is torch.float32
    return bool(types and result.stride() == source.meta["val"].stride())


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
        _replace_by_call(user, aten.sum.dim_IntList, (gradient, dims))


def _is_read_elementwise(node: fx.Node) -> bool:
    """Returns whether `node`, directly or through views, is read by loops over its elements."""
    if is_view(node):
        return all(map(_is_read_elementwise, node.users))
    # those that read the shape only: as stochastic depth does to draw its mask
    return is_pointwise(node.target) or bool(facts(node.target) & (Fact.READS_ELEMENTS | Fact.READS_METADATA))

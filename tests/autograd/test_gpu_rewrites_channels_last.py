"""Tests of convolutions in channels_last: eager's values, and eager's layouts wherever they are visible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from compiler_core.autograd.joint import trace_joint
from compiler_core.autograd.passes.gpu_rewrites import force_channels_last, to_channels_last
from compiler_core.autograd.trace import decompositions
from compiler_core.records import Compile
from compiler_core.support.fx_symbols import evaluate_call
from compiler_core.support.tensors import tensors_in
from compiler_core.torch_private import DisableAutocast
from tests.cases.captured import put_on_a_gpu

aten = torch.ops.aten
Tensors = Sequence[torch.Tensor]


def blocks(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor, scale: torch.Tensor) -> Any:
    """Two convolutions with typical operations of a network between and after them."""
    x = F.conv2d(x, first, padding=1)
    x = F.batch_norm(x, None, None, scale, scale, training=True).relu()
    x = F.max_pool2d(F.conv2d(x, second) + x, 2)
    return x.flatten(1).sum(1), x[:, 1:], x.mean((2, 3)), x.view(x.shape[0], -1)


def training(*tensors: torch.Tensor) -> list[torch.Tensor]:
    outputs = blocks(*tensors)
    loss = sum(out.square().sum() for out in outputs)
    return [*outputs, *torch.autograd.grad(loss, tensors)]


SIZES = (2, 3, 8, 12), (6, 3, 3, 3), (6, 6, 1, 1), (6,)


def inputs() -> list[torch.Tensor]:
    return [torch.randn(size) for size in SIZES]


def traced(program: Callable[..., Any], tensors: Tensors) -> fx.GraphModule:
    results = [t.detach().requires_grad_(program is training) for t in tensors]
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [mode.from_tensor(t) for t in results]
        gm: fx.GraphModule = make_fx(program, decomposition_table=decompositions.decomposition_table())(*fakes)
    for node in list(gm.graph.nodes):
        if node.target is aten.detach.default:
            node.replace_all_uses_with(node.args[0])
    gm.graph.eliminate_dead_code()
    return gm


@pytest.mark.parametrize("program", [blocks, training])
def test_same_values_and_layouts(program: Callable[..., Any]) -> None:
    tensors = inputs()
    gm = traced(program, tensors)
    expected = gm(*tensors)
    force_channels_last(gm.graph)
    gm.graph.lint()
    gm.recompile()
    for got, want in zip(gm(*tensors), expected, strict=True):
        assert got.stride() == want.stride()
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        (blocks, ["x_1", "first_1", "getitem"]),  # a view of the last is a result
        (training, ["arg0_1", "arg1_1", "getitem", "getitem_5", "getitem_6", "getitem_3"]),  # and three gradients
    ],
)
def test_images_stay_channels_last_between_convolutions(program: Callable[..., Any], wanted: list[str]) -> None:
    gm = traced(program, inputs())
    force_channels_last(gm.graph)
    for node in gm.graph.nodes:
        if node.target in (aten.convolution.default, aten.convolution_backward.default):
            images = [a for a in node.all_input_nodes if a.meta["val"].dim() == 4]
            assert all(a.meta["val"].is_contiguous(memory_format=torch.channels_last) for a in images)
    copied = [n.args[0].args[0] for n in gm.graph.nodes if _copies(n) and n.meta.get("rule") == "channels_last"]
    assert [n.name for n in copied] == wanted


def _copies(node: fx.Node) -> bool:
    return node.target is aten.clone.default


def on_a_gpu(
    program: Callable[..., Any], dtype: torch.dtype = torch.float32, sizes: Sequence[tuple[int, ...]] = SIZES
) -> fx.GraphModule:
    with FakeTensorMode():
        gm: fx.GraphModule = make_fx(program)(*(torch.empty(s, dtype=dtype, device="cuda") for s in sizes))
    to_channels_last(gm.graph)
    return gm


def test_types_of_results_under_autocast() -> None:
    """The layouts of a graph that has autocast's casts are computed without autocast, which would sum in float32."""

    def program(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        y = F.conv_transpose2d(x, k, stride=2)
        with DisableAutocast():
            return y.sum(1)

    graph = fx.Graph()
    graph.output((graph.call_function(program, tuple(graph.placeholder(name) for name in "xk")),))
    with FakeTensorMode():
        fakes = [torch.empty(size, device="cuda") for size in ((2, 8, 4, 4), (8, 6, 2, 2))]
    torch.set_autocast_enabled("cuda", True)
    before = torch.get_autocast_dtype("cuda")
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    try:
        joint = trace_joint(fx.GraphModule({}, graph), fakes, Compile("0/0", 0))
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.set_autocast_dtype("cuda", before)
    (added_up,) = joint.gm.graph.find_nodes(op="call_function", target=aten.sum.dim_IntList)
    assert added_up.meta["val"].dtype is torch.bfloat16
    assert any(map(_copies, joint.gm.graph.nodes))
    for node in joint.gm.graph.nodes:
        if node.op == "call_function":
            got, want = (list(tensors_in(v)) for v in (node.meta["val"], evaluate_call(node)))
            assert [(t.dtype, t.shape) for t in got] == [(t.dtype, t.shape) for t in want], node.format_node()


def copies(gm: fx.GraphModule) -> int:
    return sum(map(_copies, gm.graph.nodes))


@pytest.fixture
def precision() -> Iterator[Any]:
    """PyTorch's setting for the precision of float32 convolutions."""
    setting: Any = torch.backends.cudnn
    before = setting.conv.fp32_precision
    yield setting.conv
    setting.conv.fp32_precision = before


def test_only_what_tensor_cores_do_is_rearranged(precision: Any) -> None:
    def one(x: torch.Tensor, w: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w).relu()

    sizes = (2, 8, 8, 12), (6, 8, 3, 3)
    precision.fp32_precision = "tf32"
    assert copies(on_a_gpu(one, sizes=sizes)) == 3, "image, weight, result"
    assert copies(on_a_gpu(one, torch.float64, sizes)) == 0
    precision.fp32_precision = "ieee"
    assert copies(on_a_gpu(one, sizes=sizes)) == 0
    assert copies(on_a_gpu(one, torch.bfloat16, sizes)) == 3
    on_cpu = traced(one, [torch.randn(size) for size in sizes])
    to_channels_last(on_cpu.graph)
    assert copies(on_cpu) == 0


@pytest.mark.parametrize("channels", [3, 8])
def test_coloured_images_alone_are_no_reason(channels: int, precision: Any) -> None:
    """For example the patches of a vision transformer: eager's kernel computes them in full float32."""
    precision.fp32_precision = "tf32"
    sizes = (2, channels, 32, 32), (5, channels, 8, 8)
    gm = on_a_gpu(lambda x, w: F.conv2d(x, w, stride=8).relu(), sizes=sizes)
    assert bool(copies(gm)) == (channels > 3)


def convolved(x: torch.Tensor, w: torch.Tensor, groups: int) -> torch.Tensor:
    return F.conv2d(x, w, padding=w.shape[-1] // 2, groups=groups).relu()


def test_graphs_with_symbolic_sizes_get_no_guards() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, x.new_ones(x.shape[1], 1, 3, 3), groups=x.shape[1])

    gm = make_fx(program, tracing_mode="symbolic")(torch.randn(2, 6, 8, 8))
    put_on_a_gpu(gm)
    guards = gm.shape_env.guards  # type: ignore[union-attr]
    before = len(guards)
    to_channels_last(gm.graph)
    assert copies(gm) == 0
    assert len(guards) == before


def test_a_symbol_that_is_no_size_is_no_obstacle() -> None:
    """A learning rate is one in the graph of a whole training step."""
    gm = make_fx(lambda x, w: F.conv2d(x, w).relu())(
        *(torch.randn(s).bfloat16() for s in ((2, 8, 8, 12), (6, 8, 3, 3)))
    )
    put_on_a_gpu(gm)
    with gm.graph.inserting_before(next(iter(gm.graph.nodes))):
        gm.graph.placeholder("rate").meta["val"] = ShapeEnv().create_unbacked_symfloat()
    to_channels_last(gm.graph)
    assert copies(gm) == 3, "image, weight, result"


@pytest.mark.parametrize("taps", [3, 7])
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_depthwise_convolutions_are_rearranged_where_cudnn_is_quick(
    taps: int, trains: bool, dtype: torch.dtype, precision: Any
) -> None:
    precision.fp32_precision = "ieee"  # tensor cores are not used

    def program(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = convolved(x, w, 6)
        return torch.autograd.grad(y.sum(), [x, w]) if trains else y

    results = [torch.randn(s, dtype=dtype) for s in ((2, 6, 8, 8), (6, 1, taps, taps))]
    gm = make_fx(program)(*(t.requires_grad_(trains) for t in results))
    put_on_a_gpu(gm)
    to_channels_last(gm.graph)
    slow = dtype is torch.float32 and trains and taps == 7
    assert (copies(gm) == 0) == slow


def test_a_permuted_image_is_not_copied() -> None:
    def program(x: torch.Tensor, first: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        y = F.conv2d(x, first).permute(0, 2, 3, 1)
        return (y - y.mean(-1, keepdim=True)).sum((1, 2))

    gm = traced(program, inputs())
    expected = gm(*inputs())
    force_channels_last(gm.graph)
    gm.recompile()
    assert copies(gm) == 2, "image and weight"
    assert gm(*inputs()).stride() == expected.stride()


@pytest.mark.parametrize("padding", [0, 1])
def test_a_padded_average_keeps_the_layout(padding: int) -> None:
    """PyTorch's CUDA kernel for its gradient is wrong for channels_last."""

    def program(x: torch.Tensor, first: torch.Tensor, *_: torch.Tensor) -> Any:
        y = F.avg_pool2d(F.conv2d(x, first), 3, 1, padding)
        return torch.autograd.grad(y.sum(), [x, first])

    gm = traced(lambda *tensors: program(*(t.requires_grad_() for t in tensors)), inputs())
    force_channels_last(gm.graph)
    (gradient,) = (n for n in gm.graph.nodes if n.target is aten.avg_pool2d_backward.default)
    image = gradient.args[1].meta["val"]
    assert image.is_contiguous() == bool(padding)
    assert image.is_contiguous(memory_format=torch.channels_last) != bool(padding)

"""Values that are computed from absent tangents are masked; two devices have two flags."""

from __future__ import annotations

import torch
import torch.fx as fx
from torch.fx.experimental.proxy_tensor import make_fx

from compiler_core.autograd.partition import mask_absent


def backward(tangents_1: torch.Tensor, tangents_2: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    here = tangents_1 + tangents_2.exp()
    there = tangents_1.to("meta") + tangents_2.to("meta").exp()
    return here, there


def test_flags_of_two_devices_have_different_names() -> None:
    traced = make_fx(backward, tracing_mode="fake")(torch.ones(3), torch.ones(3))
    for node, name in zip(traced.graph.find_nodes(op="placeholder"), ("tangents_1", "tangents_2"), strict=True):
        node.name = node.target = name
    given = mask_absent(traced.graph, ("tangents_1", "tangents_2"))
    assert given == {"given_2": (1,), "given_2_meta": (1,)}
    module = fx.GraphModule(traced, traced.graph)
    flags = torch.tensor(False), torch.tensor(False, device="meta")
    by_name = dict(zip(given, flags, strict=True))
    order = [node.target for node in module.graph.find_nodes(op="placeholder")]
    here, there = module(torch.ones(3), torch.full((3,), torch.inf), *(by_name[name] for name in order[2:]))
    assert torch.equal(here, torch.ones(3))
    assert there.device.type == "meta"

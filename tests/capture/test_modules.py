# mypy: ignore-errors
# (the programs are written like users' code, without annotations)
"""Programs with nn.Modules, compared with eager: values, gradients, buffers, hooks, and changes between calls."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.tools.testing import break_kinds, check, graph_count, same_as_eager


class Block(nn.Module):
    def __init__(self, width=4, act="relu"):
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.register_buffer("shift", torch.ones(width))
        self.scale = nn.Parameter(torch.full((1,), 0.5))
        self.act = getattr(F, act)
        self.unused = None

    def forward(self, x, *, residual=True):
        y = self.act(self.fc(self.norm(x))) * self.scale + self.shift
        return x + y if residual else y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 3)})
        self.tied = self.stem[0]
        self.params = nn.ParameterList([nn.Parameter(torch.randn(4)) for _ in range(2)])
        self.plain = [nn.Linear(4, 4)]
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        x = self.stem(x)
        for i, block in enumerate(self.blocks):
            x = block(x, residual=i > 0)
        x = self.tied(x) + self.params[0] + self.plain[0](x)
        return {name: head(x) for name, head in self.heads.items()}, len(self.blocks), self.blocks[-1](x)


@same_as_eager(graphs=1, breaks=[], grad=True, inputs=lambda: (Net(), torch.randn(2, 4)))
def test_nested_modules(net, x):
    return net(x)


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(4, 2), nn.Softmax(dim=-1),
    )  # fmt: skip


@same_as_eager(graphs=1, breaks=[], compiles=1, grad=True, inputs=lambda: (convolutions(), torch.randn(2, 3, 8, 8)))
def test_convolutions(net, x):
    return net(x)


def test_training_mode_and_attributes_recompile():
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    compiled = cc.compile(net, backend="eager", strict=True)
    x = torch.randn(3, 4)

    def compare():
        torch.manual_seed(1)
        want = net(x)
        torch.manual_seed(1)
        assert torch.equal(want, compiled(x))
        return len(record_of(compiled).compiles)

    assert [compare(), compare()] == [1, 1]
    net.eval()
    assert compare() == 2
    assert "training" in record_of(compiled).compiles[-1].cause.guard
    net.train()
    assert compare() == 2
    net[1].p = 0.25
    assert compare() == 3
    assert ".p" in record_of(compiled).compiles[-1].cause.guard
    net[0] = nn.Linear(4, 4, bias=False)
    assert compare() == 4
    net.append(nn.ReLU())
    assert compare() == 5
    net[0].weight.data.mul_(2)
    assert compare() == 5
    net[0].weight = nn.Parameter(torch.randn(4, 4))
    assert compare() == 5
    net[0].weight.requires_grad_(False)
    assert compare() == 6


@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward"])
def test_hooks_break_and_run(kind):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    called = []
    compiled = cc.compile(net, backend="eager", strict=True)
    x = torch.randn(2, 4, requires_grad=True)
    compiled(x).sum().backward()
    handle = getattr(net[0], f"register_{kind}_hook")(lambda *args: called.append(len(args)))
    net(x).sum().backward()
    compiled(x).sum().backward()
    assert len(called) == 2
    handle.remove()
    compiled(x)
    assert len(called) == 2


def test_global_hooks():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = cc.compile(lambda x: net(x), backend="eager", strict=True)
    compiled(torch.randn(2, 4))
    called = []
    handle = nn.modules.module.register_module_forward_hook(lambda m, a, r: called.append(type(m).__name__))
    try:
        compiled(torch.randn(2, 4))
    finally:
        handle.remove()
    assert called == ["Linear", "ReLU", "Sequential"]


def test_forward_replaced(monkeypatch):
    block = Block()
    compiled = cc.compile(lambda x: block(x), backend="eager", strict=True)
    x = torch.randn(2, 4)
    assert torch.equal(compiled(x), block(x))
    monkeypatch.setattr(Block, "forward", lambda self, x: x - 1)
    assert torch.equal(compiled(x), x - 1)
    block.forward = lambda x: x - 2
    assert torch.equal(compiled(x), x - 2)


def train_step(net, optimiser, x):
    optimiser.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimiser.step()
    return loss


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
def test_training_step(make):
    def inputs():
        net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.1), nn.Linear(8, 2))
        return net, make(net.parameters(), lr=0.1), torch.randn(3, 4)

    def program(net, optimiser, x):
        return [train_step(net, optimiser, x).detach() for _ in range(2)], [p.grad for p in net.parameters()]

    check(program, inputs)

    def unrolled(net, optimiser, x):
        a = train_step(net, optimiser, x)
        b = train_step(net, optimiser, x)
        return a.detach(), b.detach(), list(net.parameters())

    record = check(unrolled, inputs)
    assert graph_count(record) >= 1
    assert "backward" in break_kinds(record)


def test_module_attributes_are_the_originals():
    net = Net()
    compiled = cc.compile(net, backend="eager", strict=True)
    assert compiled.stem is net.stem
    assert compiled.calls == 0
    compiled(torch.randn(2, 4))
    assert net.calls == 1
    assert isinstance(compiled, nn.Module)


class Deep(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.inner = Deep(depth - 1) if depth else None
        self.w = nn.Parameter(torch.randn(1))

    def forward(self, x):
        x = x * self.w
        return x if self.inner is None else self.inner(x)


@same_as_eager(graphs=1, breaks=[], compiles=1, grad=True, inputs=lambda: (Deep(20), torch.randn(3)))
def test_deeply_nested(net, x):
    return net(x)


class Overrides(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def __call__(self, x):
        return super().__call__(x) + 1

    def __getattr__(self, name):
        return 7 if name == "seven" else super().__getattr__(name)

    def forward(self, x):
        return self.fc(x) * self.seven


@same_as_eager(inputs=lambda: (Overrides(), torch.randn(2, 2)), grad=True)
def test_special_methods_of_a_module(net, x):
    return net(x)


def test_a_compiled_module_stands_for_its_original():
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    compiled = cc.compile(net, backend="eager", strict=True)
    assert list(compiled.state_dict()) == ["_orig_mod.0.weight", "_orig_mod.0.bias"]
    assert len(compiled) == 2
    assert compiled[0] is net[0]
    assert list(compiled) == list(net)
    compiled.eval()
    assert not net.training
    assert not compiled.training
    net.train()
    assert compiled.training
    compiled.note = 3
    assert net.note == 3
    del compiled.note
    assert not hasattr(net, "note")
    assert not hasattr(compiled, "note")
    copied = copy.deepcopy(compiled.eval())
    x = torch.randn(2, 4)
    assert copied[0] is not net[0]
    assert torch.equal(copied(x), compiled(x))


def test_a_compiled_module_with_hooks_is_compiled_all_the_same():
    net, x = nn.Linear(4, 4), torch.randn(2, 4)
    compiled = cc.compile(net, backend="eager", strict=True)
    net.register_forward_hook(lambda module, args, output: output * 2)
    compiled.register_forward_hook(lambda module, args, output: output + 1)
    assert torch.equal(compiled(x), net(x) + 1)
    assert graph_count(record_of(compiled)) > 0

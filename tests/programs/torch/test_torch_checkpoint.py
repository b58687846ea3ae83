# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""``torch.utils.checkpoint`` in the graph: what the backward computes again, and which checkpoints break the graph."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.tools.testing import same_as_eager

one_graph = functools.partial(same_as_eager, graphs=1, breaks=[])


def leaf():
    return (torch.randn(4, 6, requires_grad=True),)


class Block(nn.Module):
    def __init__(self, width=6, dropout=0.0):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 12), nn.Linear(12, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(self.down(F.gelu(self.up(self.norm(x)))))


class Stack(nn.Module):
    def __init__(self, use=True, dropout=0.0):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dropout=dropout) for _ in range(3))
        self.use = use

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.use else block(x)
        return x


def stack():
    return Stack(dropout=0.5), torch.randn(4, 6)


# ---------------------------------------------------------------- one graph


@one_graph(grad=True, inputs=stack)
def test_a_checkpoint_of_checkpoints(net, x):
    return checkpoint(net, x, use_reentrant=False, preserve_rng_state=True)


@one_graph(grad=True, inputs=lambda: (Stack(use=False), torch.randn(4, 6, requires_grad=True)))
def test_reentrant(net, x):
    for block in net.blocks:
        x = checkpoint(block, x, use_reentrant=True)
    return x


@one_graph(grad=True, inputs=lambda: (Stack(use=False).blocks, torch.randn(4, 6)))
def test_sequential(blocks, x):
    return checkpoint_sequential(nn.Sequential(*[blocks[0], blocks[1], blocks[2]]), 2, x, use_reentrant=False)


@one_graph(grad=True, inputs=leaf)
def test_a_partial_and_keywords(x):
    run = functools.partial(checkpoint, use_reentrant=False, early_stop=False, determinism_check="none")
    return run(lambda a, *, scale: (a * scale).tanh(), x, scale=2.0)


def test_a_size_that_changes():
    net = Stack()
    compiled = cc.compile(net, strict=True, dynamic=True)
    for rows in (3, 5, 7):
        xs = [torch.arange(rows * 6.0).reshape(rows, 6).requires_grad_() for _ in range(2)]
        for run, x in zip((net, compiled), xs, strict=True):
            run(x).sin().sum().backward()
        torch.testing.assert_close(xs[1].grad, xs[0].grad)
    assert len(record_of(compiled).compiles) == 1


# ---------------------------------------------------------------- what is saved


def saved(function, *args):
    """Returns the names and bytes of what the forward of the only compile saves."""
    compiled = cc.compile(function, strict=True)
    compiled(*args)
    (compile_,) = record_of(compiled).compiles
    values = [value for value in compile_.partition.values if value.decision == "saved"]
    return {value.node.partition("#")[2]: value for value in values}


def test_only_what_enters_a_checkpoint_is_saved():
    x = torch.randn(8, 6)
    plain, checked = (saved(Stack(use), x) for use in (False, True))
    made = [value for name, value in checked.items() if not name.startswith("primals")]
    assert [value.bytes for value in made] == [x.nbytes] * 2  # what the first and the second block return
    assert all("a result of a checkpoint" in value.reason for value in made)
    assert sum(v.bytes for v in plain.values()) > 2 * sum(v.bytes for v in checked.values())


def test_an_input_of_a_checkpoint_is_not_copied():
    x = torch.randn(100, requires_grad=True)
    values = saved(lambda a: checkpoint(lambda b: (b + 1).sin(), a, use_reentrant=False), x)
    assert list(values) == ["primals_1"]
    assert "copy" not in values["primals_1"].reason


def test_random_numbers_are_saved():
    x = torch.randn(100, requires_grad=True)
    values = saved(lambda a: checkpoint(lambda b: F.dropout(b.sin()).cos(), a, use_reentrant=False), x)
    assert sum(v.bytes for v in values.values()) == x.nbytes + x.numel()  # with a byte for what is dropped


# ---------------------------------------------------------------- selective checkpoints


PRODUCTS = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]


def keep_products(context, operator, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if operator in PRODUCTS else CheckpointPolicy.PREFER_RECOMPUTE


def keep_all_but_products(context, operator, *args, **kwargs):
    return operator not in PRODUCTS


def keep_wide_products(context, operator, *args, **kwargs):
    return operator in PRODUCTS and args[0].shape[0] > 2


def selective(policy):
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    return lambda x, w: checkpoint(lambda a: (a @ w).relu().exp() @ w, x, use_reentrant=False, context_fn=contexts)


def products():
    return torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "cpp"])
@pytest.mark.parametrize("policy", [PRODUCTS, keep_products, keep_all_but_products])
def test_a_selective_checkpoint(policy, backend):
    """Eager refuses a second backward, which this allows."""
    found = []
    for compiles in (lambda fn: fn, functools.partial(cc.compile, backend=backend, strict=True, fullgraph=True)):
        torch.manual_seed(3)
        x, w = products()
        y = compiles(selective(policy))(x, w)
        y.sum().backward()
        found.append((y, x.grad, w.grad))
    torch.testing.assert_close(found[1], found[0])


@same_as_eager(breaks=["checkpoint"], grad=True, inputs=products)
def test_a_policy_that_looks_at_arguments(x, w):
    return selective(keep_wide_products)(x, w).sum()


@pytest.mark.parametrize(
    ("policy", "kept"),
    [(PRODUCTS, ["mm"]), (keep_products, ["mm"]), (keep_all_but_products, ["exp", "relu"]), ([], [])],
)
def test_what_a_policy_keeps(policy, kept):
    values = saved(lambda x, w: selective(policy)(x, w).sin(), *products())
    of_policy = [name for name, value in values.items() if value.reason.startswith("the policy of its checkpoint")]
    made = {name for name in values if not name.startswith("primals")}
    assert {name.rstrip("_0123456789") for name in of_policy} <= set(kept), values
    assert (made - {"mm_1"} != set()) == bool(kept), values  # the last product is a result of the checkpoint


# ---------------------------------------------------------------- what breaks the graph


@same_as_eager(breaks=["checkpoint"], grad=True, inputs=lambda: (nn.BatchNorm1d(6), torch.randn(4, 6)))
def test_running_statistics(norm, x):
    return checkpoint(norm, x * 2, use_reentrant=False), norm.running_mean, norm.num_batches_tracked


@same_as_eager(breaks=["checkpoint"], grad=True, inputs=leaf)
def test_other_random_numbers_the_second_time(x):
    return checkpoint(lambda a: F.dropout(a.sin()).sum() * 0 + 1, x, use_reentrant=False, preserve_rng_state=False)


@same_as_eager(breaks=["checkpoint"], grad=True, inputs=lambda: (torch.ones(3), nn.Linear(3, 3)))
def test_reentrant_without_an_input_that_requires_a_gradient(x, net):
    return checkpoint(net, x.detach(), use_reentrant=True)

"""Distributed programs that two ranks run by eager and compiled: each returns the tensors that must be equal.

A program takes `compile_`, which compiles a module or function or returns it as it is, and the dtype in which to
compute.  `differences` compares the results with those of float64: a compiled program may have rounding errors as
large as eager's, and no others.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

Compile = Callable[[Any], Any]
Results = dict[str, Tensor]
WIDTH, ROWS, STEPS = 16, 6, 3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.out(nn.functional.gelu(self.fc(self.norm(x))))
        return x + hidden


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        y: Tensor = self.head(x)
        return y


class Branches(nn.Module):
    """Uses one of two layers, another one on each rank and in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.first, self.second, self.third = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        y: Tensor = self.second(x) if (self.steps + dist.get_rank()) % 2 else self.third(x)
        return y


def _made(kind: Callable[[], nn.Module], dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    return kind().to(dtype)


def _batch(seed: int, dtype: torch.dtype, same: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(100 * seed + (0 if same else dist.get_rank()))
    return torch.randn(ROWS, WIDTH, generator=generator).to(dtype)


def _local(value: Any) -> Tensor:
    tensor: Tensor = value.to_local() if hasattr(value, "to_local") else value
    return tensor.detach().clone()


def _trained(
    model: Any, called: Any, dtype: torch.dtype, micro: int = 1, optimizer: Any = None,
    without_sync: Callable[[bool], Any] = lambda is_last: nullcontext(), same: bool = False,
) -> Results:  # fmt: skip
    """Trains for some steps of `micro` batches; returns losses, gradients after each batch, and parameters."""
    found: Results = {}
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(micro):
            with without_sync(part == micro - 1):
                y = called(_batch(micro * step + part, dtype, same))
                loss = y.to(torch.promote_types(y.dtype, torch.float32)).square().mean()
                (loss / micro).backward()
            at = f"step {step}.{part}"
            found[f"{at} loss"] = _local(loss)
            found |= {f"{at} grad {name}": _local(p.grad) for name, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
        found |= {f"step {step} {name}": _local(p) for name, p in model.named_parameters()}
    return {name.replace("_orig_mod.", ""): each for name, each in found.items()}


def _sharded(dtype: torch.dtype, wrap: Callable[[Any], Any] = lambda block: block, **options: Any) -> Any:
    model = _made(Network, dtype)
    options["mesh"] = init_device_mesh("cpu", (dist.get_world_size(),))
    for number, block in enumerate(model.blocks):
        model.blocks[number] = wrap(block)
        fully_shard(model.blocks[number], **options)
    fully_shard(model, **options)
    return model


def fsdp_accumulates(compile_: Compile, dtype: torch.dtype) -> Results:
    model = _sharded(dtype)

    def sync(is_last: bool) -> Any:
        model.set_requires_gradient_sync(is_last)
        return nullcontext()

    return _trained(model, compile_(model), dtype, micro=3, without_sync=sync)


def fsdp_in_bfloat16_accumulates(compile_: Compile, dtype: torch.dtype) -> Results:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if dtype == torch.float32 else MixedPrecisionPolicy()
    model = _sharded(dtype, mp_policy=policy)

    def sync(is_last: bool) -> Any:
        model.set_requires_gradient_sync(is_last)
        return nullcontext()

    return _trained(model, compile_(model), dtype, micro=3, without_sync=sync)


def fsdp_without_resharding(compile_: Compile, dtype: torch.dtype) -> Results:
    model = _sharded(dtype, reshard_after_forward=False)
    return _trained(model, compile_(model), dtype, micro=2)


def fsdp_of_compiled_blocks(compile_: Compile, dtype: torch.dtype) -> Results:
    model = _sharded(dtype, compile_)
    return _trained(model, model, dtype)


def fsdp_with_checkpoints(compile_: Compile, dtype: torch.dtype) -> Results:
    model = _sharded(dtype, checkpoint_wrapper)
    return _trained(model, compile_(model), dtype)


def ddp_static_graph(compile_: Compile, dtype: torch.dtype) -> Results:
    model = DistributedDataParallel(_made(Network, dtype), static_graph=True)
    return _trained(model, compile_(model), dtype)


def ddp_without_sync(compile_: Compile, dtype: torch.dtype) -> Results:
    model = DistributedDataParallel(_made(Network, dtype), gradient_as_bucket_view=True)

    def sync(is_last: bool) -> Any:
        return nullcontext() if is_last else model.no_sync()

    return _trained(model, compile_(model), dtype, micro=2, without_sync=sync)


def ddp_with_unused_parameters(compile_: Compile, dtype: torch.dtype) -> Results:
    network = _made(Branches, dtype)
    model = DistributedDataParallel(network, find_unused_parameters=True)

    def count(is_last: bool) -> Any:
        network.steps += 1
        return nullcontext()

    return _trained(model, compile_(model), dtype, without_sync=count)


def ddp_with_sharded_optimizer(compile_: Compile, dtype: torch.dtype) -> Results:
    model = DistributedDataParallel(_made(Network, dtype))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.1)
    return _trained(model, compile_(model), dtype, optimizer=optimizer)


def tensor_parallel(compile_: Compile, dtype: torch.dtype) -> Results:
    model, mesh = _made(Network, dtype), init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        parallelize_module(block, mesh, {"fc": ColwiseParallel(), "out": RowwiseParallel()})
    return _trained(model, compile_(model), dtype, same=True)


def pipeline(compile_: Compile, dtype: torch.dtype) -> Results:
    block = _made(Network, dtype).blocks[dist.get_rank()]
    stage = PipelineStage(compile_(block), dist.get_rank(), dist.get_world_size(), torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 3, loss_fn=lambda y, target: (y - target).square().mean())
    found: Results = {}
    for step in range(STEPS):
        block.zero_grad()
        losses: list[Tensor] = []
        if dist.get_rank() == 0:
            schedule.step(_batch(step, dtype, same=True))
        else:
            schedule.step(target=_batch(step + 9, dtype, same=True), losses=losses)
        found |= {f"step {step} loss {number}": _local(loss) for number, loss in enumerate(losses)}
        found |= {f"step {step} grad {name}": _local(p.grad) for name, p in block.named_parameters()}
    return found


def collectives(compile_: Compile, dtype: torch.dtype) -> Results:
    """Those of code, in place and functional, of all ranks and of some."""
    groups, world = [dist.new_group([rank]) for rank in range(dist.get_world_size())], dist.group.WORLD
    assert world is not None

    def reduce(x: Tensor) -> Tensor:
        y, z = x * 2, x.sin()
        dist.all_reduce(y)
        dist.all_reduce(z, group=groups[dist.get_rank()])
        gathered = functional.all_gather_tensor(x.relu(), 0, world)
        scattered = functional.reduce_scatter_tensor(x.cos(), "sum", 0, world)
        work = dist.all_reduce(x, op=dist.ReduceOp.MAX, async_op=True)
        w = y + z
        work.wait()
        total: Tensor = w + gathered.sum(0) + scattered.sum(0) + x
        return total

    called = compile_(reduce)
    return {f"call {number}": called(_batch(number, dtype)) for number in range(2)}


class ReducedTwice(torch.autograd.Function):
    """Sums over the ranks in the forward and in the backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.clone()
        dist.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


def gradients_of_collectives(compile_: Compile, dtype: torch.dtype) -> Results:
    """A contrastive loss over the rows of all ranks, which are normalised together."""
    model, world = _made(Network, dtype), dist.group.WORLD
    assert world is not None

    def loss_of(x: Tensor) -> Tensor:
        y = model(x)
        y = y - ReducedTwice.apply(y.mean(0)) / 2
        y = y * torch.rsqrt(functional.all_reduce(y.square().mean(0), "sum", world) + 1)
        scores: Tensor = y @ functional.all_gather_tensor(y, 0, world).t()
        return scores.logsumexp(1)

    return _trained(model, compile_(loss_of), dtype)


def one_rank_runs_python(compile_: Compile, dtype: torch.dtype) -> Results:
    """Collectives of the forward and backward, compiled on rank 0 only."""
    model, world = _made(Network, dtype), dist.group.WORLD
    assert world is not None

    def run(x: Tensor) -> Tensor:
        gathered = functional.all_gather_tensor(model(x), 0, world)
        y = gathered.sin().mean(0)
        z = y.detach().clone()
        dist.all_reduce(z)
        result: Tensor = (functional.all_reduce(y, "sum", world) * z).tanh()
        return result

    return _trained(model, compile_(run) if dist.get_rank() == 0 else run, dtype)


def experts(compile_: Compile, dtype: torch.dtype) -> Results:
    """Sends rows to the experts of both ranks, as many as a gate decides, and gets them back."""
    model, world = _made(Network, dtype), dist.group.WORLD
    assert world is not None

    def run(x: Tensor) -> Tensor:
        gate = x[:, 0] > 0
        order = torch.argsort(gate.to(torch.int64), stable=True)
        sent = torch.stack([(~gate).sum(), gate.sum()])
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        there, back = received.tolist(), sent.tolist()
        rows = functional.all_to_all_single(x[order], there, back, world)
        y: Tensor = functional.all_to_all_single(model(rows), back, there, world)
        return y

    return _trained(model, compile_(run), dtype)


PROGRAMS: tuple[Callable[[Compile, torch.dtype], Results], ...] = (
    fsdp_accumulates, fsdp_in_bfloat16_accumulates, fsdp_without_resharding, fsdp_of_compiled_blocks,
    fsdp_with_checkpoints, ddp_static_graph, ddp_without_sync, ddp_with_unused_parameters,
    ddp_with_sharded_optimizer, tensor_parallel, pipeline, collectives, gradients_of_collectives,
    one_rank_runs_python, experts,
)  # fmt: skip


def differences(compile_: Compile, program: Callable[[Compile, torch.dtype], Results]) -> list[str]:
    """Runs a program by eager in float64 and float32, and compiled; returns what is wrong with the compiled results."""
    exact = program(lambda each: each, torch.float64)
    eager = program(lambda each: each, torch.float32)
    found = program(compile_, torch.float32)
    if list(found) != list(eager):
        return [f"{program.__name__}: results {sorted(set(found) ^ set(eager))} are of one run only"]
    rounding = 2**-8 if "bfloat16" in program.__name__ else 1e-6
    allowed = {name: 4 * _error(eager[name], each) + rounding for name, each in exact.items()}
    errors = {name: _error(found[name], each) for name, each in exact.items()}
    return [
        f"{program.__name__}: {name} has the error {errors[name]:.2g}, at most {allowed[name]:.2g} is expected"
        for name in exact
        if not errors[name] <= allowed[name] or found[name].dtype != eager[name].dtype
    ]


def _error(value: Tensor, exact: Tensor) -> float:
    return float((value.double() - exact).norm() / exact.norm().clamp_min(1e-12))

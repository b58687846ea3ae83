"""Times whole training steps on a GPU: forward, backward and AdamW in one graph, beside eager PyTorch and stock.

    python -m tests.benchmarks.bench_whole_step [PROGRAM ...]

*ours* is `compile(step, capture_backward=True, mode="reduce-overhead")` with the fused AdamW, *of lists* the same
with AdamW as PyTorch makes it.  *eager* has the fused AdamW.  *stock* is the best of four: the step compiled in the
default mode and with CUDA graphs, and the modules compiled with CUDA graphs, with the fused AdamW or with a compiled
one.  *by hand* is a CUDA graph of the eager step with the fused AdamW, which the program records itself.
Milliseconds are lower quartiles of 11 rounds that take turns, since a machine with other users runs Python at two
speeds.  Errors are the largest relative ones of the losses of 5 steps, beside float64.
"""

from __future__ import annotations

import copy
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import compiler_core
from compiler_core.api.compile import record_of
from tests.benchmarks.bench_checkpoints import Block

ROUNDS, CALLS, LOSSES, RATE = 11, 20, 5, 1e-3
Step = Callable[..., torch.Tensor]
Inputs = tuple[torch.Tensor, ...]


def classify(modules: list[Any], optimizers: list[Any], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    optimizers[0].zero_grad()
    loss = F.cross_entropy(modules[0](x), y)
    loss.backward()
    optimizers[0].step()
    return loss.detach()


def accumulate(modules: list[Any], optimizers: list[Any], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    optimizers[0].zero_grad()
    total = torch.zeros((), device=x.device, dtype=x.dtype)
    for part, labels in zip(x.chunk(4), y.chunk(4), strict=True):
        loss = F.cross_entropy(modules[0](part), labels) / 4
        loss.backward()
        total = total + loss.detach()
    optimizers[0].step()
    return total


def adversarial(modules: list[Any], optimizers: list[Any], real: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    generator, critic = modules
    with torch.no_grad():
        made = generator(noise)
    optimizers[1].zero_grad()
    judged = F.softplus(-critic(real)).mean() + F.softplus(critic(made)).mean()
    judged.backward()
    optimizers[1].step()
    optimizers[0].zero_grad()
    fooled = F.softplus(-critic(generator(noise))).mean()
    fooled.backward()
    optimizers[0].step()
    return judged.detach() + fooled.detach()


def policy(modules: list[Any], optimizers: list[Any], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    actor, value = modules
    for each in optimizers:
        each.zero_grad()
    chosen = F.log_softmax(actor(x), -1).gather(1, y[:, None]).squeeze(1)
    ratio, advantage = (chosen - chosen.detach() + 0.1 * x[:, 0]).exp(), x[:, 1]
    clipped = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    loss = F.mse_loss(value(x).squeeze(-1), x[:, 2]) - clipped.mean()
    loss.backward()
    for each in optimizers:
        each.step()
    return loss.detach()


class Tagger(nn.Module):
    """A GRU cell that is unrolled over 12 steps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(32, 64), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x.new_zeros(len(x), 64)
        for step in x.unbind(1):
            state = self.cell(step, state)
        result: torch.Tensor = self.out(state)
        return result


class Blocks(nn.Module):
    """Transformer blocks and a classifier."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks, self.out = nn.ModuleList(Block() for _ in range(blocks)).eval(), nn.Linear(768, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        result: torch.Tensor = self.out(x.mean(1))
        return result


class Residual(nn.Module):
    """A small residual network with batch norm."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        layers = [(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)) for _ in range(8)]
        self.first, self.layers = nn.Conv2d(3, width, 3), nn.ModuleList(nn.Sequential(*each) for each in layers)
        self.out = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = F.relu(x + layer(x))
        result: torch.Tensor = self.out(x.mean((2, 3)))
        return result


def mlp() -> list[nn.Module]:
    return [
        nn.Sequential(
            nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10)
        )
    ]


def perceptron(size: int, results: int) -> nn.Module:
    return nn.Sequential(nn.Linear(size, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, results))


PROGRAMS: dict[str, tuple[Step, Callable[[], list[nn.Module]], tuple[int, ...], int]] = {
    "MLP": (classify, mlp, (64, 256), 10),
    "residual CNN": (classify, lambda: [Residual()], (32, 3, 32, 32), 10),
    "6 transformer blocks": (classify, lambda: [Blocks(6)], (8, 128, 768), 10),
    "GRU tagger": (classify, lambda: [Tagger()], (16, 12, 32), 10),
    "4 micro-batches": (accumulate, mlp, (64, 256), 10),
    "GAN": (adversarial, lambda: [perceptron(16, 32), perceptron(32, 1)], (64, 32), 0),
    "policy update": (policy, lambda: [perceptron(8, 4), perceptron(8, 1)], (256, 8), 4),
}
"""The step, its modules, the shape of the batch, and the number of classes (0: noise in place of labels)."""


def adamw(modules: Sequence[nn.Module], **options: Any) -> list[Any]:
    return [torch.optim.AdamW(m.parameters(), RATE, **options) for m in modules]


class Way:
    """One way to run the step, with its own modules and optimizers."""

    def __init__(self, step: Step, modules: Sequence[nn.Module], optimizers: Sequence[Any], inputs: Inputs) -> None:
        self.step, self.modules, self.optimizers, self.inputs = step, modules, optimizers, inputs

    def __call__(self) -> torch.Tensor:
        return self.step(self.modules, self.optimizers, *self.inputs)


class Recorded(Way):
    """A CUDA graph of the eager step."""

    graph: torch.cuda.CUDAGraph | None = None
    calls = 0

    def __call__(self) -> torch.Tensor:
        self.calls += 1
        if self.calls <= 3:
            with torch.cuda.stream(torch.cuda.Stream()):
                result = super().__call__()
            torch.cuda.synchronize()
            return result
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.result = super().__call__()
        self.graph.replay()
        return self.result


class CompiledOptimizer:
    def __init__(self, optimizer: Any) -> None:
        self.zero_grad, self.step = optimizer.zero_grad, torch.compile(optimizer.step)


def ways(step: Step, modules: Sequence[nn.Module], inputs: Inputs) -> dict[str, Way]:
    """Returns each way to run the step."""
    graphs = "reduce-overhead"

    def copies() -> list[nn.Module]:
        return [copy.deepcopy(m) for m in modules]

    found: dict[str, Way] = {}
    own = copies()
    found["eager"] = Way(step, own, adamw(own, fused=True), inputs)
    for name, mode in (("stock 1", "default"), ("stock 2", graphs)):
        own = copies()
        found[name] = Way(torch.compile(step, mode=mode), own, adamw(own), inputs)
    own = copies()
    compiled: list[Any] = [torch.compile(m, mode=graphs) for m in own]
    found["stock 3"] = Way(step, compiled, adamw(own, fused=True), inputs)
    own = copies()
    compiled = [torch.compile(m, mode=graphs) for m in own]
    found["stock 4"] = Way(step, compiled, [CompiledOptimizer(o) for o in adamw(own)], inputs)
    own = copies()
    found["recorded"] = Recorded(step, own, adamw(own, fused=True, capturable=True), inputs)
    own = copies()
    compiled_step = compiler_core.compile(step, capture_backward=True, mode=graphs)
    found["ours"] = Way(compiled_step, own, adamw(own, fused=True), inputs)
    own = copies()
    compiled_step = compiler_core.compile(step, capture_backward=True, mode=graphs)
    found["of lists"] = Way(compiled_step, own, adamw(own), inputs)
    return found


def row(name: str) -> str:
    """Returns a row of the table."""
    step, make, shape, classes = PROGRAMS[name]
    torch.manual_seed(0)
    modules = [m.cuda() for m in make()]
    x = torch.randn(shape, device="cuda")
    y = torch.randint(classes, shape[:1], device="cuda") if classes else torch.randn(shape[0], 16, device="cuda")
    double = [copy.deepcopy(m).double() for m in modules]
    exact = Way(step, double, adamw(double), (x.double(), y if classes else y.double()))
    wanted = [exact() for _ in range(LOSSES)]
    found, errors = ways(step, modules, (x, y)), {}
    for way, run in list(found.items()):
        try:
            losses = [run().clone() for _ in range(LOSSES)]
        except Exception as error:
            print(f"{name}, {way}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
            del found[way]
            continue
        errors[way] = max(abs(a.item() / b.item() - 1) for a, b in zip(losses, wanted, strict=True))
    times: dict[str, list[float]] = {way: [] for way in found}
    for _ in range(ROUNDS):
        for way, run in found.items():
            run()
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(CALLS):
                run()
            torch.cuda.synchronize()
            times[way].append((time.perf_counter() - began) / CALLS * 1e3)
    ms = {way: statistics.quantiles(each, n=4)[0] for way, each in times.items()}
    print(name, {way: round(each, 3) for way, each in ms.items()}, file=sys.stderr, flush=True)
    stock = min((value for way, value in ms.items() if way.startswith("stock")), default=float("nan"))
    by_hand = ms.get("recorded", float("nan"))
    record = record_of(found["ours"].step)
    graphs = f"{len(record.compiles)} / {sum(len(c.breaks) for c in record.compiles)}"
    return (
        f"| {name} | {ms['eager']:.3f} | {stock:.3f} | {by_hand:.3f} | {ms['ours']:.3f} | {ms['of lists']:.3f} | "
        f"{stock / ms['ours']:.2f} | {by_hand / ms['ours']:.2f} | "
        f"{graphs} | {errors['eager']:.0e} | {errors['ours']:.0e} |"
    )


def main() -> None:
    warnings.simplefilter("ignore")
    heading = "step | eager | stock | by hand | ours | of lists | stock / ours | by hand / ours | compiles / breaks"
    print(f"| {heading} | error of eager | of ours |")
    print("|---" * 11 + "|")
    for name in sys.argv[1:] or PROGRAMS:
        print(row(name), flush=True)
        torch._dynamo.reset()


if __name__ == "__main__":
    main()

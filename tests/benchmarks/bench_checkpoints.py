"""Times a training step of transformer blocks with activation checkpoints on a GPU, and its memory at the peak.

    python -m tests.benchmarks.bench_checkpoints [--engines eager stock ours]

Each engine and way runs in a separate process.  Milliseconds are the lower third of 15 steps; MiB are those beyond
parameters and inputs, gradients included; *norms* is the sum of the norms of the gradients.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import compiler_core

WIDTH, HEADS, BLOCKS, STEPS = 768, 12, 8, 15


class Block(nn.Module):
    """A transformer block with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + F.dropout(self.down(F.gelu(self.up(self.norms[1](x)))), 0.1)


class Stack(nn.Module):
    """Blocks, each in a checkpoint if `checkpoints` is set."""

    def __init__(self, checkpoints: bool) -> None:
        super().__init__()
        self.blocks, self.checkpoints = nn.ModuleList(Block() for _ in range(BLOCKS)), checkpoints

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x)
        return x.float().square().mean()


def measure(engine: str, checkpoints: bool) -> str:
    """Returns a row of the table."""
    torch.manual_seed(0)
    net, x = Stack(checkpoints).cuda(), torch.randn(16, 512, WIDTH, device="cuda")
    run = {"eager": lambda: net, "stock": lambda: torch.compile(net), "ours": lambda: compiler_core.compile(net)}[
        engine
    ]()

    def step() -> None:
        net.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(x)
        loss.backward()

    torch.manual_seed(1)
    step()
    norms = sum(p.grad.norm().item() for p in net.parameters() if p.grad is not None)
    for _ in range(3):
        step()
    net.zero_grad()
    torch.cuda.reset_peak_memory_stats()
    before, times = torch.cuda.memory_allocated(), []
    for _ in range(STEPS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    peak = (torch.cuda.max_memory_allocated() - before) >> 20
    return f"| {engine} | {checkpoints} | {sorted(times)[STEPS // 3] * 1e3:.2f} | {peak:,} | {norms:.5f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", nargs="+", default=["eager", "stock", "ours"])
    parser.add_argument("--only", choices=["with", "without"])
    given = parser.parse_args()
    if given.only:
        print(measure(given.engines[0], given.only == "with"))
        return
    print("| engine | checkpoints | ms | MiB | norms |\n|---|---|---|---|---|")
    for only in ("without", "with"):
        for engine in given.engines:
            own = [sys.executable, "-m", "tests.benchmarks.bench_checkpoints", "--engines", engine, "--only", only]
            print(subprocess.run(own, capture_output=True, text=True, check=True).stdout, end="", flush=True)


if __name__ == "__main__":
    main()

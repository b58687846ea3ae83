"""Measures the peak GPU memory of a training step for each engine, in one run.

    python -m tests.benchmarks.bench_memory [--only resnet] [--batches 4]

MiB above the memory in use before the step (parameters and inputs), including gradients.  `--batches` multiplies the
batch sizes of the networks, so that saved tensors are most of the memory.
"""

from __future__ import annotations

import argparse
import copy

import torch

import compiler_core
from tests.benchmarks.bench_nets import ENGINES, NETS, step


def peak(net: str, engine: str, batches: int) -> float:
    torch.manual_seed(0)
    torch._dynamo.reset()
    compiler_core.reset()
    model, x, target = NETS[net]("cuda")
    model = copy.deepcopy(model).cuda()
    run = step(model, ENGINES[engine](model), torch.cat([x] * batches), torch.cat([target] * batches), True)
    for _ in range(3):
        run()
        model.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    run()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--batches", type=int, default=4)
    options = parser.parse_args()
    engines = ("eager", "stock", "ours")
    print(f"{'MiB':24}{''.join(f'{name:>11}' for name in engines)}")
    for net in NETS:
        if options.only in net:
            found = [peak(net, engine, options.batches) for engine in engines]
            print(f"{net:24}{''.join(f'{f:11,.1f}' for f in found)}", flush=True)


if __name__ == "__main__":
    main()

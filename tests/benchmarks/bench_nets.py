"""Times whole networks, a call and a training step, for each engine in one run.

    python -m tests.benchmarks.bench_nets [--device cuda] [--warm 120] [--seconds 170] [--only resnet] [--profile]

Milliseconds of wall time, so that the host's work between launches counts; medians of interleaved rounds.  Errors of
our and stock's loss and gradients are relative to eager's.  `--warm` first fills the disk caches, with a process for
each row and at most this many seconds; after `--seconds` no further row begins.  `--profile` only prints a profile of
the host's time in our steps.
"""

from __future__ import annotations

import argparse
import copy
import cProfile
import os
import pstats
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import compiler_core
from tests.benchmarks.nets import ResNet18, Transformer

Step = Callable[[], list[torch.Tensor]]
ENGINES: dict[str, Callable[[Any], Any]] = {
    "eager": lambda model: model,
    "stock": torch.compile,
    "stock r-o": lambda model: torch.compile(model, mode="reduce-overhead"),
    "ours": compiler_core.compile,
    "ours r-o": lambda model: compiler_core.compile(model, mode="reduce-overhead"),
}


def resnet(device: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """The configuration of the documentation: batch 16, 128 pixels."""
    return ResNet18(), torch.randn(16, 3, 128, 128, device=device), torch.randint(1000, (16,), device=device)


def transformer(device: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    tokens = torch.randint(1000, (8, 256), device=device)
    return Transformer(6, 512, heads=8), tokens, tokens


def mlp(device: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """So small that the host's work dominates."""
    layers = (
        nn.Linear(256, 1024),
        nn.GELU(),
        nn.LayerNorm(1024),
        nn.Linear(1024, 1024),
        nn.ReLU(),
    )
    return (
        nn.Sequential(*layers, nn.Linear(1024, 10)),
        torch.randn(64, 256, device=device),
        torch.randint(10, (64,), device=device),
    )


NETS = {"resnet": resnet, "transformer": transformer, "mlp": mlp}

ROWS = {"training": True, "inference": False}


def step(model: nn.Module, run: Any, x: torch.Tensor, target: torch.Tensor, trains: bool) -> Step:
    """Returns a function that runs one call and returns its results."""

    def infer() -> list[torch.Tensor]:
        with torch.no_grad():
            return [run(x)]

    def train() -> list[torch.Tensor]:
        model.zero_grad(set_to_none=True)
        loss = F.cross_entropy(run(x).flatten(0, -2), target.flatten())
        loss.backward()
        return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]

    return train if trains else infer


def milliseconds(run: Step, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls * 1e3


def error(found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    pairs = zip(found, exact, strict=True)
    return max(float((a.double() - b.double()).norm() / b.double().norm().clamp(min=1e-12)) for a, b in pairs)


def steps_of(net: str, device: str, trains: bool, engines: Sequence[str]) -> dict[str, Step]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    compiler_core.reset()
    model, x, target = NETS[net](device)
    model = model.to(device).train(trains)
    copies = {name: copy.deepcopy(model) for name in engines}
    return {name: step(own, ENGINES[name](own), x, target, trains) for name, own in copies.items()}


def warm(nets: Sequence[str], seconds: float, arguments: Sequence[str]) -> None:
    """Compiles each row in a separate process to fill the disk caches; a noisy autotuning may not be cached."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_nets", "--rounds", "0", *arguments]
    environment = os.environ | {"TORCHINDUCTOR_AUTOTUNE_LOCAL_CACHE": "0"}
    end = time.monotonic() + seconds
    started = [
        subprocess.Popen([*command, "--only", net, "--row", row], env=environment, stdout=subprocess.DEVNULL)
        for net in nets
        for row in ROWS
    ]
    for process in started:
        try:
            process.wait(max(end - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            process.kill()


def row(net: str, device: str, trains: bool, engines: Sequence[str], rounds: int, calls: int) -> None:
    steps = steps_of(net, device, trains, engines)
    firsts: dict[str, list[torch.Tensor]] = {}
    for name, run in steps.items():
        firsts[name] = [t.clone() for t in run()]
        for _ in range(4):
            run()
    if not rounds:
        return
    found = {name: [milliseconds(run, 2)] for name, run in steps.items()}
    for _ in range(rounds):
        for name, run in steps.items():
            found[name].append(milliseconds(run, calls))
    times = "".join(f"{statistics.median(found[name][1:]):11.3f}" for name in engines)
    wrong = [error(firsts[n], firsts["eager"]) for n in engines[1:]]
    last = max(error(list(steps[n]()), list(steps["eager"]())) for n in engines if n.startswith("ours"))
    print(
        f"{net + (' training' if trains else ''):24}{times}   {' '.join(f'{e:.0e}' for e in wrong)} {last:.0e}",
        flush=True,
    )


def profile(net: str, device: str) -> None:
    """Prints a profile of the host's time in a training step."""
    model, x, target = NETS[net](device)
    model = model.to(device)
    run = step(model, compiler_core.compile(model), x, target, True)
    for _ in range(5):
        run()
    watched = cProfile.Profile()
    watched.enable()
    for _ in range(50):
        run()
    watched.disable()
    print(net)
    pstats.Stats(watched).sort_stats("tottime").print_stats(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--warm", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--row", default="", choices=["", *ROWS])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--only", default="")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    chosen = [net for net in NETS if options.only in net]
    if options.profile:
        for net in chosen:
            profile(net, options.device)
        return
    if options.warm:
        warm(chosen, options.warm, ["--device", options.device, "--engines", *options.engines])
    print(f"{'milliseconds':24}{''.join(f'{name:>11}' for name in options.engines)}   errors, of ours after all calls")
    end = time.monotonic() + options.seconds
    for name, trains in ROWS.items():
        for net in chosen:
            if time.monotonic() < end and options.row in ("", name):
                row(net, options.device, trains, options.engines, options.rounds, options.calls)


if __name__ == "__main__":
    main()

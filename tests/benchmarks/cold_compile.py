"""Runs one compile in this process, with the caches of the environment; prints its wall seconds, and the processor
seconds of this process and its children.

    python tests/benchmarks/cold_compile.py core|stock PROGRAM [--device D] [--profile]

PyTorch is imported before the clock starts; the compiler's own imports count, as in the first cell of a session.
``walk_through`` runs the walk-through function for two shapes, forward and backward, and checks it against eager
PyTorch; ``resnet``, ``transformer`` and ``lengths`` run the loss and its backward, ``lengths`` for each of three
lengths; ``whole_step`` compiles a step of the transformer with AdamW as one function, in one graph of ours.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.benchmarks.nets import ResNet18, Transformer

Inputs = dict[str, torch.Tensor]
Times = tuple[float, float]


class Clock:
    """Measures wall and processor seconds since it was created."""

    def __init__(self) -> None:
        self._start = self._now()

    def read(self) -> Times:
        (wall, cpu), (was, used) = self._now(), self._start
        return wall - was, cpu - used

    def _now(self) -> Times:
        times = os.times()
        return times.elapsed, times.user + times.system + times.children_user + times.children_system


def function(inputs: Inputs) -> torch.Tensor:
    x = inputs["x"]
    y = inputs["y"]
    x = x.cos().cos()
    if x.mean() > 0.5:
        x = x / 1.1
    return x * y


def walk_through(compiled: Callable[[Any], Any], device: str) -> Times:
    results = [{k: torch.randn(n, requires_grad=True, device=device) for k in "xy"} for n in (10, 8)]
    clock = Clock()
    fast = compiled(function)
    for inputs in results:
        fast(inputs).sum().backward()
    took = clock.read()
    for inputs in results:
        found = [t.grad for t in inputs.values()]
        for tensor in inputs.values():
            tensor.grad = None
        function(inputs).sum().backward()
        for got, tensor in zip(found, inputs.values(), strict=True):
            torch.testing.assert_close(got, tensor.grad, atol=1e-6, rtol=1e-6)
    return took


def resnet(compiled: Callable[[Any], Any], device: str) -> Times:
    images, target = torch.randn(4, 3, 64, 64, device=device), torch.randint(10, (4,), device=device)
    return _step(compiled, ResNet18(10).to(device), images, target)


def transformer(compiled: Callable[[Any], Any], device: str) -> Times:
    tokens = torch.randint(1000, (2, 64), device=device)
    return _step(compiled, Transformer(12, 128).to(device), tokens, tokens)


def lengths(compiled: Callable[[Any], Any], device: str) -> Times:
    """Three lengths; from the second on the length is symbolic."""
    model = Transformer(2, 128).to(device)
    batches = [torch.randint(1000, (2, length), device=device) for length in (64, 48, 33)]

    def loss(tokens: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(tokens).flatten(0, -2), tokens.flatten())

    clock = Clock()
    fast = compiled(loss)
    for tokens in batches:
        fast(tokens).backward()
    return clock.read()


def whole_step(compiled: Callable[..., Any], device: str) -> Times:
    tokens = torch.randint(1000, (2, 64), device=device)
    model = Transformer(12, 128).to(device)
    optimizer = torch.optim.AdamW(model.parameters())

    def step(tokens: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).flatten(0, -2), tokens.flatten())
        loss.backward()
        optimizer.step()
        return loss

    clock = Clock()
    compiled(step, **({"capture_backward": True} if compiled is _core else {}))(tokens)
    return clock.read()


def _step(compiled: Callable[[Any], Any], model: torch.nn.Module, x: torch.Tensor, target: torch.Tensor) -> Times:
    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x).flatten(0, -2), target.flatten())

    clock = Clock()
    compiled(loss)(x, target).backward()
    return clock.read()


def _core(function: Any, **options: Any) -> Any:
    import compiler_core

    return compiler_core.compile(function, strict=True, **options)


ENGINES: dict[str, Callable[[Any], Any]] = {"core": _core, "stock": torch.compile}
PROGRAMS: dict[str, Callable[[Any, str], Times]] = {
    "walk_through": walk_through,
    "resnet": resnet,
    "transformer": transformer,
    "lengths": lengths,
    "whole_step": whole_step,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--profile", action="store_true", help="also print where the time went")
    options = parser.parse_args()
    torch.manual_seed(0)
    profile = cProfile.Profile(time.process_time)
    if options.profile:
        profile.enable()
    took = PROGRAMS[options.program](ENGINES[options.engine], options.device)
    profile.disable()
    if options.profile:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(70)
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)
    print(*took)


if __name__ == "__main__":
    main()

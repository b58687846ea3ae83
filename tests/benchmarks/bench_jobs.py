"""Times what tutorials on `torch.compile` time: a sum of two tensors, a vision transformer, and ResNet-18.

    python -m tests.benchmarks.bench_jobs [--device cuda] [--seconds 10] [--only resnet18] [--engines eager core stock]

Each row is one call of `compiler_core.time`: medians, the first and last decile, and the speed against eager PyTorch,
in rounds in which all engines take turns.  With one GPU, CUDA events measure the time.  Weights are random.
"""

from __future__ import annotations

import argparse
import importlib.metadata
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

import compiler_core
from tests.benchmarks.nets import ResNet18

Job = tuple[str, Callable[..., Any], tuple[Any, ...]]


def add(device: str) -> Iterator[Job]:
    """A function with one addition."""

    def call(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.add(a, b)

    yield "torch.add, 3 x 4", call, (torch.randn(3, 4, device=device), torch.randn(3, 4, device=device))


def vit(device: str) -> Iterator[Job]:
    """The base size of transformers' ViT, on ten images."""
    from transformers import ViTConfig, ViTModel

    model: Any = ViTModel(ViTConfig()).eval().to(device)
    images = torch.randn(10, 3, 224, 224, device=device)

    @torch.no_grad()
    def infer(images: torch.Tensor) -> torch.Tensor:
        return model(images).last_hidden_state  # type: ignore[no-any-return]

    yield "ViT-base, 10 images of 224 pixels", infer, (images,)


def resnet18(device: str) -> Iterator[Job]:
    """Inference, and a training step: forward, loss, backward and the optimizer's step."""
    batch = 16 if device == "cuda" else 8
    model = ResNet18().to(device)
    images, labels = torch.randn(batch, 3, 128, 128, device=device), torch.randint(1000, (batch,), device=device)

    @torch.no_grad()
    def infer(images: torch.Tensor) -> torch.Tensor:
        return model(images)  # type: ignore[no-any-return]

    model.eval()
    yield f"ResNet-18, {batch} images of 128 pixels, inference", infer, (images,)
    model.train()
    optimizer = torch.optim.Adam(model.parameters())

    def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    yield f"ResNet-18, {batch} images of 128 pixels, training step", step, (images, labels)


JOBS = {job.__name__: job for job in (add, vit, resnet18)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=10, help="for how long each row is timed")
    parser.add_argument("--only", choices=JOBS)
    parser.add_argument("--engines", nargs="+", default=["eager", "core", "stock"])
    given = parser.parse_args()
    machine = torch.cuda.get_device_name() if given.device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"{machine}, torch {importlib.metadata.version('torch')}", flush=True)
    for name in [given.only] if given.only else JOBS:
        for title, function, args in JOBS[name](given.device):
            torch._dynamo.reset()
            timings = compiler_core.time(function, *args, engines=given.engines, seconds=given.seconds)
            print(f"\n{title}\n{timings}", flush=True)


if __name__ == "__main__":
    main()

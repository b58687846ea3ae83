"""Times what tutorials on `torch.compile` time: a sum of two tensors, a vision transformer, and ResNet-18.

    python -m tests.benchmarks.bench_jobs [--device cuda] [--seconds 10] [--only resnet18] [--engines eager core stock]

Each row is one call of `compiler_core.time`: medians, the first and last decile, and the speed against eager PyTorch,
in rounds in which all engines take turns.  With one GPU, CUDA events measure the time.  Weights are random.  A row is
printed as soon as it is measured, with the seconds since the start; rows that would begin after ``--within`` seconds
are left out.  ``--small`` takes small images and few layers.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

import compiler_core
from tests.benchmarks.nets import ResNet18, VisionTransformer

Job = tuple[str, Callable[..., Any], tuple[Any, ...]]


def add(device: str, small: bool) -> Iterator[Job]:
    """A function with one addition."""

    def call(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.add(a, b)

    yield "torch.add, 3 x 4", call, (torch.randn(3, 4, device=device), torch.randn(3, 4, device=device))


def resnet18(device: str, small: bool) -> Iterator[Job]:
    """Inference, and a training step: forward, loss, backward and the optimizer's step."""
    batch, pixels = (2, 32) if small else (16 if device == "cuda" else 8, 128)
    model = ResNet18().to(device)
    images, labels = torch.randn(batch, 3, pixels, pixels, device=device), torch.randint(1000, (batch,), device=device)

    @torch.no_grad()
    def infer(images: torch.Tensor) -> torch.Tensor:
        return model(images)  # type: ignore[no-any-return]

    model.eval()
    yield f"ResNet-18, {batch} images of {pixels} pixels, inference", infer, (images,)
    model.train()
    optimizer = torch.optim.Adam(model.parameters())

    def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    yield f"ResNet-18, {batch} images of {pixels} pixels, training step", step, (images, labels)


def vit(device: str, small: bool) -> Iterator[Job]:
    """The base size of a vision transformer on ten images: transformers' if it is installed, else one of torch.nn."""
    batch, pixels, layers = (2, 32, 2) if small else (10, 224, 12)
    model: Any
    if importlib.util.find_spec("transformers"):
        from transformers import ViTConfig, ViTModel

        title, model = "transformers' ViT", ViTModel(ViTConfig(image_size=pixels, num_hidden_layers=layers))
    else:
        title, model = "ViT of torch.nn (transformers is not installed)", VisionTransformer(pixels, layers)
    model = model.eval().to(device)
    images = torch.randn(batch, 3, pixels, pixels, device=device)

    @torch.no_grad()
    def infer(images: torch.Tensor) -> torch.Tensor:
        found = model(images)
        return found if isinstance(found, torch.Tensor) else found.last_hidden_state

    yield f"{title}, base size, {layers} layers, {batch} images of {pixels} pixels", infer, (images,)


JOBS = {job.__name__: job for job in (add, resnet18, vit)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=10, help="for how long each row is timed")
    parser.add_argument("--only", choices=JOBS)
    parser.add_argument("--engines", nargs="+", default=["eager", "core", "stock"])
    parser.add_argument("--within", type=float, default=float("inf"), help="no row begins after this many seconds")
    parser.add_argument("--small", action="store_true", help="small images, few layers")
    given = parser.parse_args()
    start = time.monotonic()
    machine = torch.cuda.get_device_name() if given.device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"{machine}, torch {importlib.metadata.version('torch')}", flush=True)
    for name in [given.only] if given.only else JOBS:
        for title, function, args in JOBS[name](given.device, given.small):
            if time.monotonic() - start > given.within:
                print(f"\n{title}\nleft out: {given.within:g} s are over", flush=True)
                continue
            torch._dynamo.reset()
            timings = compiler_core.time(function, *args, engines=given.engines, seconds=given.seconds)
            print(f"\n{title}, after {time.monotonic() - start:.0f} s\n{timings}", flush=True)


if __name__ == "__main__":
    main()

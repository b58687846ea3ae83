"""Programs for stock `torch.compile`, each run in a separate process together with PyTorch's and depyf's own dumps.

python -m tests.tools.stock.stock_programs NAME RECORD.json [DEPYF_FOLDER]
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch

import compiler_core


def walk_through(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    x = inputs["x"].cos().cos()
    y = inputs["y"]
    if x.mean() > 0.5:
        return x * y
    return x * y - 1


def train_walk_through() -> None:
    """Two sizes, forward and backward: a break, and a recompile."""
    compiled = torch.compile(walk_through)
    for size in (8, 16):
        inputs = {name: torch.randn(size, requires_grad=True) for name in "xy"}
        compiled(inputs).sum().backward()


def train_block() -> None:
    """A transformer block, with dropout and an optimizer."""
    model = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled, x = torch.compile(model), torch.randn(2, 8, 32)
    for _ in range(2):
        optimizer.zero_grad()
        compiled(x).square().mean().backward()
        optimizer.step()


def resnet18() -> None:
    from tests.cases.architectures import MODELS

    model = MODELS["tv_resnet18"]()[0].eval()
    with torch.no_grad():
        torch.compile(model)(torch.randn(1, 3, 32, 32))


PROGRAMS: dict[str, Callable[[], None]] = {"walk": train_walk_through, "block": train_block, "resnet18": resnet18}


def main(name: str, to: str, depyf_folder: str = "") -> None:
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    with ExitStack() as stack:
        record = stack.enter_context(compiler_core.record(name, engine="torch", logs=True))
        if depyf_folder:
            import depyf

            stack.enter_context(depyf.prepare_debug(depyf_folder))
        PROGRAMS[name]()
    record.save(Path(to))


if __name__ == "__main__":
    main(*sys.argv[1:])

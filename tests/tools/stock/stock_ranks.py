"""A job of three ranks on this machine, a small network trained with DistributedDataParallel under `torch.compile`:

python -m tests.tools.stock.stock_ranks STORE_FILE BACKEND

The ranks are forked from one process, which has imported what they need.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import torch
import torch._inductor.compile_fx
from torch import nn

from tests import warm_python

RANKS = 3


def run_job(folder: Path, backend: str) -> Path:
    """Runs all ranks; returns the folder of the TORCH_TRACE logs."""
    inductor = Path(os.environ["CUTAWAY_CACHE_DIR"]) / "inductor"
    env = os.environ | {"TORCH_TRACE": str(folder / "trace"), "TORCHINDUCTOR_CACHE_DIR": str(inductor)}
    (folder / "trace").mkdir()
    ran = warm_python.run(["-m", "tests.tools.stock.stock_ranks", str(folder / "store"), backend], env=env)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return folder / "trace"


class Net(nn.Module):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)
        self.rank = rank

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).relu()
        if self.rank == 2:
            x = x.sin()
        x = self.second(x)
        return x.square()


def main(store: str, backend: str) -> int:
    """Runs all ranks; returns how many failed."""
    ranks = []
    for rank in range(RANKS):
        if not (child := os.fork()):
            run_rank(rank, store, backend)
        ranks.append(child)
    return sum(os.waitpid(child, 0)[1] != 0 for child in ranks)


def run_rank(rank: int, store: str, backend: str) -> None:
    """Runs one rank and ends its process; the last rank runs a different program."""
    warnings.simplefilter("ignore")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Net(rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(model, backend=backend)
    for _ in range(2):
        optimizer.zero_grad()
        compiled(torch.randn(6, 8)).mean().backward()
        optimizer.step()
    torch.distributed.destroy_process_group()
    # No destructors: that of the reducer holds the GIL and joins Gloo's thread, which may be waiting for the GIL.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

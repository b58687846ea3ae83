"""One rank of a job on this machine, a small network trained with DistributedDataParallel under `torch.compile`:

python -m tests.stock.stock_ranks RANK STORE_FILE BACKEND
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import torch
from torch import nn

RANKS = 3


def run_job(folder: Path, backend: str) -> Path:
    """All ranks together; gives the folder of what TORCH_TRACE wrote."""
    inductor = Path(os.environ["CUTAWAY_CACHE_DIR"]) / "inductor"
    env = os.environ | {"TORCH_TRACE": str(folder / "trace"), "TORCHINDUCTOR_CACHE_DIR": str(inductor)}
    (folder / "trace").mkdir()
    command = [sys.executable, "-m", "tests.stock.stock_ranks"]
    started = [
        subprocess.Popen([*command, str(rank), str(folder / "store"), backend], env=env, stderr=subprocess.PIPE)
        for rank in range(RANKS)
    ]
    said = [each.communicate()[1].decode()[-2000:] for each in started]
    assert [each.returncode for each in started] == [0] * RANKS, said
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


def main(rank: int, store: str, backend: str) -> None:
    """The last rank does something else than the others."""
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


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])

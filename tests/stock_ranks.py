"""One rank of a job on this machine, a small network trained with DistributedDataParallel under `torch.compile`:

python -m tests.stock_ranks RANK STORE_FILE
"""

from __future__ import annotations

import os
import sys
import warnings

import torch
from torch import nn

RANKS = 3


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


def main(rank: int, store: str) -> None:
    """The last rank does something else than the others."""
    warnings.simplefilter("ignore")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Net(rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(model)
    for _ in range(2):
        optimizer.zero_grad()
        compiled(torch.randn(6, 8)).mean().backward()
        optimizer.step()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

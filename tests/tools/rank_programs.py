"""A job of ranks on this machine, in one of which something is planted:

python -m tests.tools.rank_programs FOLDER ENGINE PLANTED

The ranks are forked from one process, which has imported what they need.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import compiler_core
from tests import warm_python

RANKS = 2
ROOT = Path(__file__).parents[2]


def run_job(folder: Path, engine: str, planted: str) -> Path:
    """Runs all ranks; returns the folder of their files."""
    folder.mkdir()
    command = ["-m", "tests.tools.rank_programs", str(folder), engine, planted]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = warm_python.run(command, env=env)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return folder / "ranks"


def size(x: torch.Tensor, y: torch.Tensor, flag: bool) -> torch.Tensor:
    x = x * 2
    return x.sum() + y.sum()


def branch(x: torch.Tensor, y: torch.Tensor, flag: bool) -> torch.Tensor:
    x = x * 2
    if flag:
        x = x.sin()
    return x.sum() + y.sum()


def order(x: torch.Tensor, y: torch.Tensor, flag: bool) -> torch.Tensor:
    first, second = (y, x) if flag else (x, y)
    dist.all_reduce(first)
    dist.all_reduce(second)
    return x.sum() + y.sum()


def run_eager(x: torch.Tensor, y: torch.Tensor, flag: bool) -> None:
    """Reduces in plain Python code, in an order that depends on `flag`."""
    y = y.view(2, -1)
    for each in (y, x) if flag else (x, y):
        dist.all_reduce(each)
    with torch.inference_mode():
        dist.barrier()


PROGRAMS: dict[str, Callable[..., torch.Tensor]] = {"size": size, "branch": branch, "order": order, "killed": branch}


def train(kind: str, compiled: bool) -> list[float]:
    """Trains a small network for three steps, with other data on each rank; returns the losses."""
    torch.manual_seed(0)
    model: torch.nn.Module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    if kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        fully_shard(model, mesh=init_device_mesh("cpu", (RANKS,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    called = compiler_core.compile(model, backend="aot_eager", strict=True) if compiled else model
    losses = []
    for step in range(3):
        torch.manual_seed(10 * step + dist.get_rank())
        optimizer.zero_grad()
        loss = called(torch.randn(6, 8)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(folder: str, engine: str, planted: str) -> int:
    """Runs all ranks; returns how many failed."""
    ranks = []
    for rank in range(RANKS):
        if not (child := os.fork()):
            run_rank(rank, Path(folder), engine, planted)
        ranks.append(child)
    ends = [os.waitpid(child, 0)[1] for child in ranks]
    return sum(end not in (0, signal.SIGKILL if planted == "killed" else 0) for end in ends)


def run_rank(rank: int, folder: Path, engine: str, planted: str) -> None:
    """Runs one rank and ends its process."""
    warnings.simplefilter("ignore")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", f"file://{folder / 'store'}", rank=rank, world_size=RANKS)
    if engine == "train":
        assert train(planted, compiled=True) == train(planted, compiled=False)
        os._exit(0)
    compiler_core.record_ranks(folder / "ranks")
    compile_: Callable[..., Any] = torch.compile if engine == "torch" else compiler_core.compile
    compiled = compile_(PROGRAMS[planted], backend="eager")
    is_odd = rank == 1
    x = torch.ones(511 if is_odd and planted == "size" else 512)
    for _ in range(2):
        compiled(x, torch.ones(512), is_odd and planted in ("branch", "order"))
    if planted == "size":
        run_eager(torch.ones(512), torch.ones(512), is_odd)
    if planted == "killed" and is_odd:
        time.sleep(1.5)
        os.kill(os.getpid(), signal.SIGKILL)
    # `os._exit` would run no handlers; Gloo's destructors may hang, so the rest of the exit is left out.
    atexit._run_exitfuncs()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

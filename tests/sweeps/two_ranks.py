"""Two ranks that train and differ, on two GPUs with NCCL, or on CPUs with gloo:

torchrun --nproc-per-node 2 -m tests.sweeps.two_ranks [FOLDER]

A network is trained under DistributedDataParallel and FSDP2 as plain PyTorch, by stock `torch.compile` and by ours;
the losses must be equal, and the times of a step are printed.  On CPUs the programs of `rank_trainings` follow, whose
results are compared with eager's tensor by tensor.  Then the ranks are recorded while rank 1 does something
else than rank 0, which must be found with its rank and line.  It needs PyTorch only, and takes a minute or two.
"""

from __future__ import annotations

import functools
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import compiler_core
from tests.sweeps.rank_trainings import PROGRAMS as PROGRAMS_OF_TWO
from tests.sweeps.rank_trainings import differences
from tests.tools.rank_programs import PROGRAMS

WIDTH, BATCH, STEPS = 256, 32, 5
TIMED_STEPS = 60
TOLERANCE = 2e-4
"""Of losses, relative: gradients of one batch are summed in another order by other kernels."""

IS_CUDA = torch.cuda.is_available() and torch.cuda.device_count() >= 2
ENGINES: dict[str, Callable[..., Any]] = {
    "plain PyTorch": lambda model: model,
    "torch.compile": torch.compile,
    "cutaway": lambda model: compiler_core.compile(model, strict=True),
}
EXPECTED = {
    "size": ["rank_programs.py:", "size 511, the others 512"],
    "branch": ["rank_programs.py:", "sin float32[512], the others nothing"],
    "order": ["rank_programs.py:", "collective call allreduce(float32[2, 256])", "the others allreduce(float32[512])"],
    "eager": ["two_ranks.py:", "collective call allreduce(float32[3])", "the others allreduce(float32[1, 3])"],
}
"""What the comparison says of rank 1, by what is planted."""


def main(folder: str = "") -> int:
    """Runs this rank; returns the exit code."""
    warnings.simplefilter("ignore")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device(f"cuda:{rank}" if IS_CUDA else "cpu")
    if IS_CUDA:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if IS_CUDA else "gloo", device_id=device if IS_CUDA else None)
    shared = [folder or tempfile.mkdtemp()]
    dist.broadcast_object_list(shared)
    root = Path(shared[0])
    _print(f"PyTorch {torch.__version__}, {dist.get_backend()}, {device}; files in {root}")
    faults = [fault for kind in ("DDP", "FSDP2") for fault in _compare_training(kind, device)]
    faults += [] if IS_CUDA else _compare_programs()
    for planted in ("size", "branch", "order"):
        _run_planted(planted, device, root / planted)
        faults += _check_found(planted, root / planted)
    compiler_core.record_ranks(root / "eager")
    _train_with_one_collective_more(device)
    time.sleep(1.5)  # what was recorded is written within half a second, also if the process is killed afterwards
    faults += _check_found("eager", root / "eager")
    _print("\n".join(faults) or "All is as expected.")
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(bool(faults))  # without destructors: those of Gloo may hang


def _print(text: str) -> None:
    if dist.get_rank() == 0:
        print(text, flush=True)


def _compare_training(kind: str, device: torch.device) -> list[str]:
    """Trains by each engine, prints the times of a step, and returns what is wrong."""
    torch._dynamo.reset()
    steps = {engine: _training(kind, device, compile_) for engine, compile_ in ENGINES.items()}
    losses = {engine: [step(10 * number) for number in range(STEPS)] for engine, step in steps.items()}
    times: dict[str, list[float]] = {engine: [] for engine in steps}
    for number in range(TIMED_STEPS):  # in turn, so that what slows the machine down for a while slows all
        for engine, step in steps.items():
            began = time.perf_counter()
            step(number)
            times[engine].append(time.perf_counter() - began)
    medians = ", ".join(f"{name} {1e3 * statistics.median(each):.2f} ms" for name, each in times.items())
    ratios = [ours / stock for ours, stock in zip(times["cutaway"], times["torch.compile"], strict=True)]
    _print(f"{kind}: a step takes {medians}; ours is {statistics.median(ratios):.3f} of torch.compile's")
    expected = torch.tensor(losses["plain PyTorch"])
    found = torch.tensor(losses["cutaway"])
    _print(f"{kind}: losses {losses['plain PyTorch']}; of ours {losses['cutaway']}")
    is_equal = torch.allclose(found, expected, rtol=TOLERANCE, atol=0)
    return [] if is_equal else [f"{kind}: rank {dist.get_rank()} has losses {found.tolist()}, not {expected.tolist()}"]


def _compare_programs() -> list[str]:
    """Runs the programs with gloo; returns what is wrong."""
    faults = []
    for program in PROGRAMS_OF_TWO:
        for backend in ("aot_eager", "cpp"):
            torch._dynamo.reset()
            faults += differences(functools.partial(compiler_core.compile, backend=backend, strict=True), program)
        _print(f"{program.__name__}: ran")
    return [f"rank {dist.get_rank()}: {fault}" for fault in faults]


def _network(device: torch.device) -> torch.nn.Sequential:
    torch.manual_seed(0)
    blocks = [
        torch.nn.Sequential(torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()) for _ in range(4)
    ]
    return torch.nn.Sequential(*blocks).to(device)


def _training(kind: str, device: torch.device, compile_: Callable[..., Any]) -> Callable[[int], float]:
    """Returns a function that makes a step, with other data on each rank, and returns its loss."""
    network = _network(device)
    model: torch.nn.Module = network
    if kind == "DDP":
        model = torch.nn.parallel.DistributedDataParallel(network)
    else:
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for block in network:
            fully_shard(block, mesh=mesh)
        fully_shard(network, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    called = compile_(model)

    def step(seed: int) -> float:
        torch.manual_seed(seed + dist.get_rank())
        optimizer.zero_grad()
        loss: torch.Tensor = called(torch.randn(BATCH, WIDTH, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def _run_planted(planted: str, device: torch.device, folder: Path) -> None:
    """Records a program that differs on rank 1, and saves the record."""
    is_odd = dist.get_rank() == 1
    folder.mkdir(parents=True, exist_ok=True)
    x = torch.ones(511 if is_odd and planted == "size" else 512, device=device)
    y = torch.ones(512, device=device) if planted != "order" else torch.ones(2, 256, device=device)
    with compiler_core.record() as record:
        compiled = compiler_core.compile(PROGRAMS[planted])
        for _ in range(2):
            compiled(x, y, is_odd and planted != "size")
    record.save(folder / f"rank_{dist.get_rank()}.json")


def _train_with_one_collective_more(device: torch.device) -> None:
    """Trains by our compiler; in one step rank 1 reduces another tensor than rank 0."""
    model = torch.nn.parallel.DistributedDataParallel(_network(device))
    compiled = compiler_core.compile(model)
    for number in range(4):
        compiled(torch.randn(BATCH, WIDTH, device=device)).square().mean().backward()
        if number == 2 and dist.get_rank() == 1:
            dist.all_reduce(torch.ones(3, device=device))
        elif number == 2:
            dist.all_reduce(torch.ones(1, 3, device=device))


def _check_found(planted: str, folder: Path) -> list[str]:
    dist.barrier()
    if dist.get_rank():
        return []
    text = str(compiler_core.compare_ranks(folder))
    _print(f"{planted}: {text}")
    missing = [each for each in ("rank 1 differs at ", *EXPECTED[planted]) if each not in text]
    return [f"{planted}: {missing} is not in the comparison"] if missing else []


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Times networks of timm and torchvision, decoding, and a large cross entropy, for each engine.

    python -m tests.benchmarks.bench_networks [--device cuda] [--only resnet50] [--processes 16] [--limit 400]

Each row is a separate process: processes compile in parallel and are timed one at a time, while the others stand
still.  Milliseconds of wall time, lower quartiles of interleaved rounds; *gain* is the time of stock's faster mode
divided by that of our faster mode, so above 1 ours is faster.  Errors of stock's and our results are relative to
eager's.  Networks have random weights, a batch of 8.
For a check without a GPU: `--device cpu --pixels 64 --engines eager stock ours --only mobilenetv3`.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import fcntl
import functools
import importlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.benchmarks.bench_nets import ENGINES, Step, error, milliseconds
from tests.benchmarks.nets import Decoder

BATCH = 8
NETWORKS = """
    timm:efficientnet_b0 timm:mobilenetv3_small_100 timm:vit_small_patch16_224 timm:resnet50 timm:densenet121
    timm:swin_tiny_patch4_window7_224 timm:convnext_tiny timm:regnety_004 timm:deit_tiny_patch16_224 timm:mixer_s32_224
    timm:mobilenetv2_100 timm:ghostnet_100 timm:resnext50_32x4d timm:repvgg_a0 timm:mobilevit_xxs timm:poolformer_s12
    torchvision:shufflenet_v2_x1_0 torchvision:resnet18 torchvision:squeezenet1_1 torchvision:mnasnet1_0
""".split()
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
Prepared = Callable[[Callable[[Any], Any]], Step]
"""Returns a step of an engine, with its own copy of the network."""


def network(name: str, device: str, pixels: int) -> tuple[nn.Module, torch.Tensor]:
    """Returns a network, and images of its native size or of `pixels`."""
    library, _, model = name.partition(":")
    size: Sequence[int] = (pixels or 224,) * 2
    if library == "timm":
        result = importlib.import_module("timm").create_model(model, pretrained=False)
        if not pixels or result.default_cfg.get("fixed_input_size"):
            size = result.default_cfg["input_size"][-2:]
    else:
        result = importlib.import_module("torchvision").models.get_model(model, weights=None)
    for module in result.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0  # stock draws other random numbers
    return result.to(device), torch.randn(BATCH, 3, *size, device=device)


def on_images(name: str, trains: bool, dtype: str, device: str, pixels: int) -> Prepared:
    model, x = network(name, device, pixels)
    model.train(trains)
    cast = functools.partial(torch.autocast, device, TYPES[dtype], enabled=dtype != "float32")

    def prepare(engine: Callable[[Any], Any]) -> Step:
        own = copy.deepcopy(model)
        parameters = list(own.parameters())
        run = engine(own)

        def infer() -> list[torch.Tensor]:
            with torch.no_grad(), cast():
                return [run(x)]

        def train() -> list[torch.Tensor]:
            for parameter in parameters:
                parameter.grad = None
            with cast():
                result = run(x)
            loss = result.float().square().mean()
            loss.backward()
            return [loss.detach(), *(p.grad for p in parameters if p.grad is not None)]

        return train if trains else infer

    return prepare


def decoding(device: str, pixels: int) -> Prepared:
    """Decoding one token after 99 others."""
    model = Decoder(12, 768, heads=12).to(device, torch.float16).eval()
    token, place = torch.tensor([[5]], device=device), torch.tensor([99], device=device)

    def prepare(engine: Callable[[Any], Any]) -> Step:
        run = engine(copy.deepcopy(model))

        def step() -> list[torch.Tensor]:
            with torch.no_grad():
                return [run(token, place)]

        return step

    return prepare


def cross_entropy(trains: bool, device: str, pixels: int) -> Prepared:
    """A cross entropy over 32,000 classes, in float32."""
    rows = 2048 if device == "cuda" else 64
    logits = torch.randn(rows, 32_000, device=device, requires_grad=trains)
    target = torch.randint(32_000, (rows,), device=device)

    def prepare(engine: Callable[[Any], Any]) -> Step:
        run = engine(lambda x, y: F.cross_entropy(x, y))

        def step() -> list[torch.Tensor]:
            loss = run(logits, target)
            return [loss.detach(), *(torch.autograd.grad(loss, logits) if trains else ())]

        return step

    return prepare


CASES: dict[str, Callable[[str, int], Prepared]] = {
    f"{name} {way} {dtype}": functools.partial(on_images, name, way == "training", dtype)
    for name in NETWORKS
    for way in ("inference", "training")
    for dtype in TYPES
} | {
    "decoding one token float16": decoding,
    "cross entropy forward float32": functools.partial(cross_entropy, False),
    "cross entropy training float32": functools.partial(cross_entropy, True),
}


@contextlib.contextmanager
def alone(path: str) -> Iterator[None]:
    """Context manager in which the benchmark's other processes stand still, so that they use neither CPU nor GPU.

    `path` is the file by which the processes take turns.
    """
    with Path(path).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        others = children_of(os.getppid()) - {os.getpid()} if path != os.devnull else set()
        send(signal.SIGSTOP, others)
        try:
            yield
        finally:
            send(signal.SIGCONT, others)


def children_of(process: int) -> set[int]:
    lists = Path(f"/proc/{process}/task").glob("*/children")
    return {int(number) for file in lists for number in file.read_text().split()}


def send(signal_number: int, processes: Iterable[int]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal_number)


def measured(case: str, options: argparse.Namespace) -> dict[str, Any]:
    """Returns milliseconds and errors by engine, measured in this process."""
    torch.manual_seed(0)
    prepare = CASES[case](options.device, options.pixels)
    steps = {name: prepare(ENGINES[name]) for name in options.engines}
    firsts = {name: [t.clone() for t in run()] for name, run in steps.items()}
    for run in steps.values():
        milliseconds(run, 4)
    found: dict[str, list[float]] = {name: [] for name in steps}
    with alone(options.lock):
        for _ in range(options.rounds):
            for name, run in steps.items():
                run()  # the step before was another engine's, so guards and code are not in the caches
                found[name].append(milliseconds(run, options.calls))
    return {
        "times": {name: statistics.quantiles(times, n=4)[0] for name, times in found.items()},
        "errors": {name: error(first, firsts["eager"]) for name, first in firsts.items() if name != "eager"},
    }


def in_process(case: str, lock: str, options: argparse.Namespace) -> dict[str, Any]:
    """Runs `measured` in a separate process."""
    given = {k: str(getattr(options, k)) for k in ("device", "pixels", "rounds", "calls")}
    command = [sys.executable, "-W", "ignore", "-m", "tests.benchmarks.bench_networks", "--one", case, "--lock", lock]
    command += [word for k, v in given.items() for word in (f"--{k}", v)] + ["--engines", *options.engines]
    return figures_of(command, {"TORCHINDUCTOR_COMPILE_THREADS": "1"} | os.environ, options.limit)


def figures_of(command: Sequence[str], environment: Mapping[str, str], limit: float) -> dict[str, Any]:
    """Runs a process and returns what its last line has as JSON; if that fails, the end of its errors is the `problem`.

    A process that is killed at the limit, in seconds, may have been `alone`: the others are let go on.
    """
    try:
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        send(signal.SIGCONT, children_of(os.getpid()))
        return {"problem": f"not done in {limit:g} s"}
    if run.returncode:
        return {"problem": f"exit {run.returncode}: {run.stderr.strip()[-300:]}"}
    done: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return done


def gain(times: dict[str, float]) -> float:
    """Returns the time of stock's faster mode divided by that of ours."""
    best = {
        who: min((t for name, t in times.items() if name.startswith(who)), default=math.nan)
        for who in ("stock", "ours")
    }
    return best["stock"] / best["ours"]


def table(cases: Sequence[str], options: argparse.Namespace) -> None:
    print(f"{'milliseconds':46}{''.join(f'{name:>11}' for name in options.engines)}    gain   errors", flush=True)
    gains: list[float] = []
    with tempfile.NamedTemporaryFile() as lock, ThreadPoolExecutor(options.processes) as pool:
        running = {pool.submit(in_process, case, lock.name, options): case for case in cases}
        for future in as_completed(running):
            case, done = running[future], future.result()
            if "problem" in done:
                print(f"{case:46} {done['problem']}", flush=True)
                continue
            gains.append(gain(done["times"]))
            cells = "".join(f"{done['times'][name]:11.3f}" for name in options.engines)
            wrong = " ".join(f"{name} {e:.0e}" for name, e in done["errors"].items())
            print(f"{case:46}{cells}{gains[-1]:8.2f}   {wrong}", flush=True)
    known = [g for g in gains if not math.isnan(g)]
    if known:
        mean = statistics.geometric_mean(known)
        print(f"{len(known)} of {len(cases)} rows: geometric mean {mean:.3f}, least {min(known):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="+", default=[""], help="rows with all words of one of these in their name")
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=float, default=400.0, help="seconds for one row")
    parser.add_argument("--pixels", type=int, default=0, help="image size instead of each network's own")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=8)
    parser.add_argument("--one", help="measure one row in this process")
    parser.add_argument("--lock", default=os.devnull, help="the file that those hold who are timed")
    options = parser.parse_args()
    if "eager" not in options.engines:
        options.engines.insert(0, "eager")
    if options.one:
        print(json.dumps(measured(options.one, options)))
        return
    table([case for case in CASES if any(all(word in case for word in o.split()) for o in options.only)], options)


if __name__ == "__main__":
    main()

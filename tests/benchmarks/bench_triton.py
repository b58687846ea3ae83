"""Compares our Triton kernels with eager, stock Inductor and a plain copy, on one GPU in one run.

    python tests/benchmarks/bench_triton.py [rows columns]

Times are medians of `triton.testing.do_bench`; the bandwidth counts each input as read once and
each output as written once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from compiler_core.autograd.trace import decompositions
from compiler_core.config import Options
from compiler_core.pipeline import graph as graph_stages
from compiler_core.records import Record

Program = Callable[..., torch.Tensor]


def gelu(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(x + b) * y


def cosine(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.cos(torch.cos(x)) * y


def softmax(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, 1)


def layer_norm(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, b.shape, b, b)


def rms_norm(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * b


def transpose(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous() + 1


def mean_of_squares(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return ((x - y) ** 2).mean()


def sum_of_rows(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (x * y).sum(0)


PROGRAMS: dict[Program, str] = {
    gelu: "xyb",
    cosine: "xy",
    softmax: "x",
    layer_norm: "xb",
    rms_norm: "xb",
    transpose: "x",
    mean_of_squares: "xy",
    sum_of_rows: "xy",
}
"""The programs, with the inputs that each reads."""


def ours(program: Program, inputs: tuple[torch.Tensor, ...]) -> Callable[[], Any]:
    record = Record()
    compile_ = record.compile(record.frame(program.__name__, __file__, 1, "root"))
    table = decompositions.decomposition_table()
    gm = make_fx(lambda *args: [program(*args)], decomposition_table=table, tracing_mode="fake")(*inputs)
    run = graph_stages.compile_kernels(gm, "forward", compile_, Options())
    return lambda: run([*inputs])[0]


def measure(program: Program, inputs: tuple[torch.Tensor, ...]) -> str:
    from triton.testing import do_bench

    want = program(*(t.double() for t in inputs))
    compiled = torch.compile(program)
    runs = {"eager": lambda: program(*inputs), "Inductor": lambda: compiled(*inputs), "ours": ours(program, inputs)}
    times = {}
    for name, run in runs.items():
        error = float((run() - want).norm() / want.norm())
        assert error < 1e-6, f"{program.__name__}: {name} is off by {error:.1e}"
        times[name] = do_bench(run, warmup=50, rep=300, return_mode="median")
    read = sum(t.nbytes for letter, t in zip("xyb", inputs, strict=True) if letter in PROGRAMS[program])
    bandwidth = (read + want.nbytes // 2) / times["ours"] / 1e9
    columns = " ".join(f"{times[name]:10.4f}" for name in runs)
    speed = f"{times['eager'] / times['ours']:8.2f} {times['Inductor'] / times['ours']:8.2f}"
    return f"{program.__name__:16} {columns} {speed} {bandwidth:8.2f}"


def main(rows: int = 8192, columns: int = 4096) -> None:
    from triton.testing import do_bench

    torch.manual_seed(20261121)
    x, y = (torch.randn(rows, columns, device="cuda") for _ in range(2))
    b = torch.randn(columns, device="cuda")
    copied = torch.empty_like(x)
    copy = do_bench(lambda: copied.copy_(x), warmup=50, rep=300, return_mode="median")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, float32 {rows} x {columns}, medians in ms")
    print(f"copy             {copy:10.4f} {'':30} {2 * x.nbytes / copy / 1e9:17.2f} TB/s")
    print(f"{'':16} {'eager':>10} {'Inductor':>10} {'ours':>10} {'x eager':>8} {'x Induct':>8} {'TB/s':>8}")
    for program in PROGRAMS:
        print(measure(program, (x, y, b)), flush=True)


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("bench_triton.py needs a CUDA device")
    main(*map(int, sys.argv[1:3]))

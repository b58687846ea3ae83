"""Our kernels on a GPU with one choice about reductions changed at a time.

python -m tests.benchmarks.bench_reductions
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import compiler_core
from compiler_core import columns
from compiler_core.codegen import split, triton
from tests.benchmarks.bench_cases import runner, seconds
from tests.benchmarks.cases import CASES, Make

NORMS = ("layer_norm_training", "rms_norm_training")
CHANNELS = ("batch_norm_relu", "mean_squared_error")
CHOICES: list[tuple[Any, str, int, Sequence[str]]] = [
    *((columns, "PARTS", value, NORMS) for value in (128, 256, 512, 1024)),
    (triton, "AHEAD", 0, NORMS),
    (columns, "MOST_KEPT", 0, NORMS),
    *((split, "WANTED_PROGRAMS", value, CHANNELS) for value in (256, 512, 1024, 2048)),
]


def microseconds(name: str, dtype: torch.dtype) -> float:
    case = next(c for c in CASES if c.name == name)
    make = Make(8192, 4096, dtype, "cuda")
    torch.manual_seed(0)
    inputs = [t.requires_grad_(case.trains and t.is_floating_point()) for t in case.inputs(make)]
    compiler_core.reset()
    run = runner(compiler_core.compile(case.program), inputs, case.trains)
    for _ in range(3):
        run()
    return 1e6 * seconds(run, "cuda", 1)


def main() -> None:
    for module, name, value, cases in CHOICES:
        before = getattr(module, name)
        setattr(module, name, value)
        try:
            times = [f"{c} {d}: {microseconds(c, d):.1f}" for c in cases for d in (torch.float32, torch.bfloat16)]
        finally:
            setattr(module, name, before)
        print(f"{module.__name__}.{name} = {value}:", *times, sep="  ", flush=True)


if __name__ == "__main__":
    main()

"""Times our kernels on a GPU, with one parameter of reductions changed at a time.

python -m tests.benchmarks.bench_reductions
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch

import compiler_core
from compiler_core.codegen.triton import printer as triton
from compiler_core.loops.schedule.block_sizes import DEFAULT_RULES, override_rules
from tests.benchmarks.bench_cases import runner, seconds
from tests.benchmarks.cases import CASES, Make

NORMS = ("layer_norm_training", "rms_norm_training")
CHANNELS = ("batch_norm_relu", "mean_squared_error")
CHOICES: list[tuple[str, int, Sequence[str]]] = [
    *(("mix_order.max_parts", value, NORMS) for value in (128, 256, 512, 1024)),
    ("mix_order.min_parts", 1 << 30, NORMS),
    ("AHEAD", 0, NORMS),
    *(("target_programs", value, CHANNELS) for value in (256, 512, 1024, 2048)),
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


@contextmanager
def chosen(name: str, value: int) -> Iterator[None]:
    """Context manager that changes one parameter, of the size rules or of `codegen.triton`."""
    if name == "AHEAD":
        with mock.patch.object(triton, name, value):
            yield
    else:
        within, _, last = name.rpartition(".")
        changed: dict[str, Any] = (
            {within: replace(DEFAULT_RULES.mix_order, **{last: value})} if within else {last: value}
        )
        with override_rules(replace(DEFAULT_RULES, **changed)):
            yield


def main() -> None:
    for name, value, cases in CHOICES:
        with chosen(name, value):
            times = [f"{c} {d}: {microseconds(c, d):.1f}" for c in cases for d in (torch.float32, torch.bfloat16)]
        print(f"{name} = {value}:", *times, sep="  ", flush=True)


if __name__ == "__main__":
    main()

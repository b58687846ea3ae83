"""AddressSanitizer sees what a C++ kernel does outside of a tensor, and nothing in kernels that are right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sweeps import sanitized

PROGRAM = """
import torch
import compiler_core
from compiler_core.codegen.build import compilers

x = torch.randn(33, 65)
compiler_core.compile(lambda x: (x.softmax(-1), x.cumsum(0)), backend="cpp", strict=True)(x)
compilers.functions('extern "C" void outside(float* x) noexcept {{\\n  x[{}] = 1;\\n}}\\n')["outside"](x.data_ptr())
"""

BENCHMARKS = """
import sys
import torch
import compiler_core
from tests.benchmarks.bench_cases import runner
from tests.benchmarks.cases import CASES, Make
from tests.benchmarks.other_cases import OTHERS

rows, columns, threads = map(int, sys.argv[1:])
torch.set_num_threads(threads)
for case in [*CASES, *OTHERS]:
    print(case.name, file=sys.stderr, flush=True)
    compiler_core.reset()
    inputs = case.inputs(Make(rows, columns, torch.float32, "cpu"))
    inputs = [t.requires_grad_(case.trains and t.is_floating_point()) for t in inputs]
    runner(compiler_core.compile(case.program, backend="cpp", strict=True), inputs, case.trains)()
"""


@pytest.mark.sweep
@pytest.mark.cpu
@pytest.mark.parametrize(("index", "is_reported"), [(33 * 65 - 1, False), (33 * 65, True)])
def test_a_write_behind_a_tensor(index: int, is_reported: bool, tmp_path: Path) -> None:
    done = run(PROGRAM.format(index), tmp_path)
    assert bool(done.returncode) == is_reported, done.stderr
    assert ("heap-buffer-overflow" in done.stderr) == is_reported


@pytest.mark.sweep
@pytest.mark.cpu
@pytest.mark.parametrize(("rows", "columns", "threads"), [(37, 101, 1), (1000, 33, 2)])
def test_kernels_of_the_benchmarks_stay_inside_their_tensors(
    rows: int, columns: int, threads: int, tmp_path: Path
) -> None:
    done = run(BENCHMARKS, tmp_path, rows, columns, threads)
    assert not done.returncode, done.stderr


def run(program: str, cache: Path, *arguments: int) -> subprocess.CompletedProcess[str]:
    """Runs a program in a process with the sanitizers."""
    environment = {**os.environ, **sanitized.environment(), "CUTAWAY_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

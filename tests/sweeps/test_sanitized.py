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


@pytest.mark.sweep
@pytest.mark.cpu
@pytest.mark.parametrize(("index", "is_reported"), [(33 * 65 - 1, False), (33 * 65, True)])
def test_a_write_behind_a_tensor(index: int, is_reported: bool, tmp_path: Path) -> None:
    environment = {**os.environ, **sanitized.environment(), "CUTAWAY_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM.format(index)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert bool(done.returncode) == is_reported, done.stderr
    assert ("heap-buffer-overflow" in done.stderr) == is_reported

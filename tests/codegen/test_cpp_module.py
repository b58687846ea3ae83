"""Tests of launching C++ kernels with tensors."""

import sys
import threading
from typing import Any

import pytest
import torch

from compiler_core.codegen.cpp import launch as cpp_module
from compiler_core.codegen.source import Launcher
from compiler_core.errors import BuildError
from tests.limits import HANG_S

SCALE = """using i64 = __INT64_TYPE__; using f32 = float; using f64 = double;

extern "C" i64 scale(const f32* __restrict in_a, f32* __restrict out_b, i64 n, f64 by) noexcept {
  for (i64 i = 0; i < n; ++i) out_b[i] = in_a[i] * (f32)by;
  return n > 4;
}

extern "C" void fill(f32* __restrict out_b) noexcept {
  out_b[0] = 1;
}

extern "C" void await(volatile f32* flag) noexcept {
  while (flag[0] == 0) {}
}
"""


@pytest.fixture(params=["tensors", "addresses"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Launcher]:
    """The kernels, launched by the C method, and through ctypes."""
    assert cpp_module._launcher_factory() is not None
    if request.param == "addresses":
        monkeypatch.setattr(cpp_module, "_launcher_factory", lambda: None)
    return cpp_module.launchers(SCALE)


def test_kernels_take_tensors_and_numbers(kernels: dict[str, Launcher]) -> None:
    a, b = torch.randn(6), torch.zeros(6)
    assert not kernels["scale"](a[1:], b[2:], 3, 2.5)
    assert torch.equal(b, torch.cat([torch.zeros(2), a[1:4] * 2.5, torch.zeros(1)]))
    assert kernels["scale"](torch.nn.Parameter(a), b, 6, 2)
    assert torch.equal(b, a * 2)
    assert not kernels["fill"](b)
    assert b[0] == 1


def test_a_kernel_lets_other_threads_run(kernels: dict[str, Launcher]) -> None:
    flag = torch.zeros(1)
    waiting = threading.Thread(target=kernels["await"], args=(flag,), daemon=True)
    waiting.start()
    flag.fill_(1)
    waiting.join(HANG_S)
    assert not waiting.is_alive()


def test_no_references_are_kept_and_none_lost() -> None:
    fill, b = cpp_module.launchers(SCALE)["fill"], torch.zeros(1)
    before = sys.getrefcount(b), sys.getrefcount(False)
    for _ in range(100):
        fill(b)
    after = sys.getrefcount(b), sys.getrefcount(False)
    assert before[0] == after[0]
    assert abs(before[1] - after[1]) < 50


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((torch.ones(2), torch.ones(2), 2), "wrong number of arguments"),
        ((torch.ones(2), torch.ones(2), 2, 1.0, 1.0), "wrong number of arguments"),
        ((torch.ones(2), 5, 2, 1.0), "an argument that is not a tensor"),
        ((torch.ones(2), torch.ones(2), "2", 1.0), "cannot be interpreted as an integer"),
        ((torch.ones(2), torch.ones(2), 1 << 80, 1.0), "too big"),
        ((torch.ones(2), torch.ones(2), 2, "1"), "must be real number"),
        ((torch.ones(2), torch.ones(2).to_sparse(), 2, 1.0), "a tensor without memory"),
    ],
)
def test_what_a_kernel_cannot_take_is_refused(arguments: tuple[Any, ...], error: str) -> None:
    scale = cpp_module.launchers(SCALE)["scale"]
    with pytest.raises((TypeError, OverflowError), match=error):
        scale(*arguments)
    b = torch.zeros(2)
    assert not scale(torch.ones(2), b, -1, -1.0)  # -1 is also the error value of the conversion
    assert torch.equal(b, torch.zeros(2))


def test_what_cannot_be_built_says_so() -> None:
    with pytest.raises(BuildError, match="failed with status"):
        cpp_module.launchers('extern "C" void broken(f32* __restrict a) noexcept {\n}\n')


def test_a_source_without_kernels_has_none() -> None:
    assert cpp_module.launchers("") == {}

"""An error of the compiler at any instruction leaves PyTorch's global state as eager leaves it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.capture.interpreter import Interpreter

STEP = 9
"""Errors are planted at each instruction whose number is a multiple of this."""
MOST = 300


def modes(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad(), torch.autocast("cpu", torch.float16):
        y = x @ x
        torch.rand(3)
    return y + 1


def switched(x: torch.Tensor) -> torch.Tensor:
    torch.set_grad_enabled(False)
    y = x.sin()
    torch.set_grad_enabled(True)
    return y


def defaults(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        x * 2
    with torch.enable_grad():
        w = x.cos()
    torch.set_default_dtype(torch.float64)
    z = torch.ones(2)
    torch.set_default_dtype(torch.float32)
    return w, z


def devices(x: torch.Tensor) -> torch.Tensor:
    with torch.device("meta"):
        torch.ones(2)
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        y = x.sin()
    with torch.random.fork_rng():
        torch.manual_seed(1)
        torch.rand(2)
    return y


def state() -> dict[str, Any]:
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "autocast's cache": torch.is_autocast_cache_enabled(),
        "default dtype": torch.get_default_dtype(),
        "default device": str(torch.get_default_device()),
        "anomaly mode": torch.is_anomaly_enabled(),
        "random state": torch.get_rng_state().tolist(),
        "Python's random state": random.getstate(),
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
    }


@pytest.mark.filterwarnings("ignore::compiler_core.CompileWarning")
@pytest.mark.parametrize("program", [modes, switched, defaults, devices])
def test_state_after_an_error_at_each_instruction(program: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    x, original, failed = torch.ones(3, 3), Interpreter.step, 0
    torch.manual_seed(0)
    program(x)
    expected = state()
    for at in range(1, MOST, STEP):
        count = itertools.count(1)

        def step(self: Interpreter, at: int = at, count: Any = count) -> None:
            if next(count) == at:
                raise RuntimeError("planted")
            original(self)

        monkeypatch.setattr(Interpreter, "step", step)
        torch.manual_seed(0)
        with compiler_core.record() as record:
            compiler_core.compile(program, backend="eager")(x)
        assert state() == expected, f"after an error at instruction {at}"
        if not any(compile_.failures for compile_ in record.compiles):
            break
        failed += 1
    assert failed >= 2


def test_an_error_of_a_program_on_the_cpu_initialises_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_rng_state", asked.append)
    compiled = compiler_core.compile(torch.mm, strict=True)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        compiled(torch.ones(3, 4), torch.ones(3, 4))
    assert not asked

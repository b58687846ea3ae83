"""Saves the state of the process that a program changes."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import torch


def save_process_state() -> Callable[[], None]:
    """Saves the state of the process and returns a function that restores it.

    Saved are random number generators (Python's, NumPy's, PyTorch's), PyTorch's gradient mode and default dtype, and
    the environment variables.
    """
    import numpy

    in_use: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    states: list[tuple[Callable[[Any], Any], Any]] = [
        (random.setstate, random.getstate()),
        (numpy.random.set_state, numpy.random.get_state()),
        (torch.set_rng_state, torch.get_rng_state()),
        (torch.set_grad_enabled, torch.is_grad_enabled()),
        (torch.set_default_dtype, torch.get_default_dtype()),
        (_set_environment, dict(os.environ)),
    ]
    if in_use:
        states.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))

    def restore() -> None:
        for put_back, state in states:
            put_back(state)

    return restore


def _set_environment(wanted: dict[str, str]) -> None:
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)

"""Code of the program that runs while its caller is captured: functions with a cache, and modules that it imports."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager

from compiler_core.support.eager_warnings import unsilence_warnings
from compiler_core.support.interrupts import immediate_signals
from compiler_core.torch_private import EnableTorchFunction


@contextmanager
def as_in_program(torch_functions: bool) -> Iterator[None]:
    """In the block, warnings, signals and overrides of functions of PyTorch do what they do where the program runs.

    Args:
        torch_functions: whether ``__torch_function__`` of arguments is called there.
    """
    overrides = EnableTorchFunction() if torch_functions else contextlib.nullcontext()
    with unsilence_warnings(), overrides, immediate_signals():
        yield

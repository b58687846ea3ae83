"""The corpus on another device, and through kernels:  CUTAWAY_TEST_DEVICE=cuda python -m pytest tests/programs

Programs make their tensors on that device, except tests with the mark ``gpu``, which choose devices themselves.  With
CUTAWAY_TEST_KERNELS=1 they run through the default backend in the place of `eager`, and values need only be close.
Graphs and breaks are not counted then: a default device is a mode, which some functions look at.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from compiler_core.tools.testing import settings

_on = contextlib.ExitStack()


@contextlib.contextmanager
def elsewhere(device: str | None, kernels: bool) -> Iterator[None]:
    """Within the block, programs make tensors on `device`, or where they do anyway if it is None."""
    before = vars(settings).copy()
    settings.backend_overrides = {"cpp": None, "eager": None} if kernels else {"cpp": None}
    settings.tolerance, settings.counts = 1e-4, False
    if device:
        torch.set_default_device(device)
    try:
        yield
    finally:
        if device:
            torch.set_default_device(None)
        vars(settings).update(before)


@pytest.fixture(autouse=True)
def _own_devices(request: Any) -> Iterator[None]:
    """Runs a test that chooses devices itself without a default device."""
    before = torch.get_default_device()
    chosen = before.type != "cpu" and request.node.get_closest_marker("gpu")
    if chosen:
        torch.set_default_device(None)
    yield
    if chosen:
        torch.set_default_device(before)


def pytest_configure(config: Any) -> None:
    device = os.environ.get("CUTAWAY_TEST_DEVICE")
    kernels = os.environ.get("CUTAWAY_TEST_KERNELS") == "1"
    if device or kernels:
        _on.enter_context(elsewhere(device, kernels))


def pytest_collection_modifyitems(items: list[Any]) -> None:
    if torch.get_default_device().type == "cpu":
        return
    for item in items:
        if item.get_closest_marker("cpu"):
            item.add_marker(pytest.mark.skip(reason="for the CPU alone"))


def pytest_unconfigure(config: Any) -> None:
    _on.close()

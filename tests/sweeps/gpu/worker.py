"""A process that runs the cases of jobs; `pool` describes the protocol."""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import sys
import time
import types
import unittest
import warnings
from typing import Any

import torch

MOST_CACHED = 1 << 29
"""The bytes of a device that a worker may keep between jobs."""


class Events:
    """The stream of events: the process's standard output, to which nothing else may write."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(1), "w")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def send(self, **event: Any) -> None:
        print(json.dumps(event), file=self._file, flush=True)


def without_expecttest() -> None:
    """Stubs `expecttest`, which PyTorch's operator database imports for tests that are not run here."""
    if importlib.util.find_spec("expecttest") is None:
        module: Any = types.ModuleType("expecttest")
        module.TestCase = unittest.TestCase
        module.assert_expected_inline = lambda *args, **kwargs: None
        sys.modules["expecttest"] = module


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    device = parser.parse_args().device
    events = Events()
    without_expecttest()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False  # what rounds more than float32 would hide differences
    from tests.sweeps.gpu.sections import SECTIONS

    _use(device)
    for line in sys.stdin:
        job = json.loads(line)
        at = SECTIONS[job["section"]].run(job["item"], job["start"], time.monotonic() + job["seconds"], device, events)
        works = _device_works(device)
        if works:
            _release_memory()
        events.send(next=at, ends=not works)


def _use(device: str) -> None:
    """Multiplies matrices forward and backward: the first product of a thread on a GPU gives a warning."""
    factor = torch.ones(2, 2, device=device, requires_grad=True)
    (factor @ factor).sum().backward()


def _release_memory() -> None:
    """Returns cached memory to the device, which the workers share; the next job needs blocks of other sizes."""
    if torch.cuda.is_available() and torch.cuda.memory_reserved() > MOST_CACHED:
        gc.collect()
        torch.cuda.empty_cache()


def _device_works(device: str) -> bool:
    """Whether this process can still use the device; after a failed device assertion it cannot use the GPU."""
    try:
        if device.startswith("cuda"):
            torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


if __name__ == "__main__":
    main()

"""What a user sees of the error of ``fullgraph=True``."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
import torch

import compiler_core
from compiler_core.errors import FullGraphError

INSIDE = ("compiled_region.py", "frame.py", "compile_frame", "_compile_frame")


def printing(x: torch.Tensor) -> torch.Tensor:
    print(end="")
    return x + 1


def test_the_traceback_has_no_frames_of_the_compilers_stages() -> None:
    with pytest.raises(FullGraphError) as raised:
        compiler_core.compile(printing, backend="eager", fullgraph=True)(torch.ones(2))
    frames = traceback.extract_tb(raised.value.__traceback__)
    inner = [frame for frame in frames if Path(frame.filename).name in INSIDE or frame.name in INSIDE]
    assert not inner
    assert frames[0].filename == __file__
    assert len(frames) <= 4
    assert 'print(end="")' in str(raised.value)

"""The kernels that runs of the tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import kept_kernels


def test_libraries_are_kept_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    first, second = tmp_path / "first", tmp_path / "second"
    kept_kernels.take(first)
    for at, name in enumerate(("old.so", "new.so", "building-1")):
        (first / name).write_bytes(b"x" * 10)
        os.utime(first / name, (at, at))
    kept_kernels.keep(first)
    kept_kernels.take(second)
    assert {file.name for file in second.iterdir()} == {"old.so", "new.so"}
    kept_kernels.keep(second, limit=10)
    assert [file.name for file in kept_kernels.kept().iterdir()] == ["new.so"]

"""Triton's compiled kernels in our cache.

Triton itself keeps a folder of files for each kernel and trusts what it finds there.  We keep one sealed file
(`compiler_core.cache`) and unpack it for Triton to read.
"""

from __future__ import annotations

import functools
import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compiler_core import cache

_lock = threading.RLock()


@contextmanager
def in_our_cache() -> Iterator[None]:
    """What Triton compiles inside, in whatever thread, is kept by us; elsewhere it keeps its own habits."""
    from triton import knobs

    with _lock, cache.workshop(cache.folder("triton")) as inside, knobs.cache.scope():
        knobs.cache.dir = str(inside)
        knobs.cache.manager_class = _manager()
        yield


@functools.cache
def _manager() -> Any:
    from triton.runtime.cache import FileCacheManager

    class Packed(FileCacheManager):  # type: ignore[misc]
        """Triton's own manager in a folder that is gone afterwards, but for the packed group of files."""

        def get_group(self, filename: str) -> dict[str, str] | None:
            packed = cache.read(self._packed(filename))
            if packed is None:
                return None
            with zipfile.ZipFile(io.BytesIO(packed)) as files:
                files.extractall(self.cache_dir)
                return {name: str(Path(self.cache_dir, name)) for name in files.namelist()}

        def put_group(self, filename: str, group: dict[str, str]) -> str:
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as files:
                for name, path in group.items():
                    files.write(path, name)
            cache.write(self._packed(filename), buffer.getvalue())
            return str(self._packed(filename))

        def _packed(self, filename: str) -> Path:
            key = hashlib.sha256(f"{self.key}/{filename}".encode()).hexdigest()
            return cache.folder("triton") / f"{key}.zip"

    return Packed

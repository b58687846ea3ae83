"""Generated code: unused names, and source that tracebacks find."""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Container


def unused_name(name: str, taken: Container[str]) -> str:
    """Returns `name`, with as many underscores appended as it takes to differ from all names in `taken`."""
    while name in taken:
        name += "_"
    return name


def keep_source(owner: object, filename: str, text: str) -> None:
    """Lets tracebacks and `inspect` find the source of generated code, until `owner` is freed."""
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    weakref.finalize(owner, linecache.cache.pop, filename, None).atexit = False

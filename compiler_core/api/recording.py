"""Opens records, and finds the record that is open."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from compiler_core.records import Record
from compiler_core.support.interrupts import kept_handlers

_open_records: list[Record] = []


@contextmanager
def record(
    title: str = "",
    *,
    engine: Literal["core", "torch"] = "core",
    steps: bool = False,
    logs: bool = False,
    **options: str,
) -> Iterator[Record]:
    """Context manager that records everything compiled inside it.

    Args:
        title: a name for the record.
        engine: ``core`` records the functions compiled with `compiler_core.compile`; ``torch`` observes stock
            `torch.compile`, which runs unchanged.
        steps: with ``engine="torch"``, also record every step of Dynamo's symbolic interpreter.  For our own
            interpreter pass ``steps=True`` to `compile`.
        logs: with ``engine="torch"``, also record all messages of PyTorch's loggers (``TORCH_LOGS=all`` and its
            artifacts).  A compile then takes several times as long.
        options: noted in `Record.options`.

    Yields:
        The record, which is filled while the context is open.

    Example::

        with compiler_core.record() as record:
            compiled(x)
        record.save("record.json")
    """
    opened = new_record(title)
    opened.engine, opened.options = engine, options
    with kept_handlers():
        if engine == "torch":
            from compiler_core.stock.observer import observing  # a slow import

            with observing(opened, steps, logs):
                yield opened
            return
        _open_records.append(opened)
        try:
            yield opened
        finally:
            _open_records.remove(opened)
            opened.find_problems()


def new_record(title: str = "") -> Record:
    """Returns an empty record with the time and the installed versions."""
    versions = {"python": platform.python_version(), "torch": torch.__version__, "cutaway": _cutaway_version()}
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Record(title=title, created=now, versions=versions, _made_here=True)


def open_record() -> Record | None:
    """Returns the innermost open record, or None."""
    return _open_records[-1] if _open_records else None


def _cutaway_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("cutaway")
    except PackageNotFoundError:
        return "source"

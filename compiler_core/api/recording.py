"""Opens records, and finds the record that is open."""

from __future__ import annotations

import datetime
import functools
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from compiler_core import config
from compiler_core.instruments import tool
from compiler_core.records import Record

open_records: list[Record] = []
"""The innermost is the last."""


@contextmanager
def recording(opened: Record) -> Iterator[Record]:
    """Context manager in which what our compiler compiles is written to a record, with the class of an exception that
    ends the block."""
    open_records.append(opened)
    try:
        with noted_exception(opened):
            yield opened
    finally:
        open_records.remove(opened)
        opened.find_problems()


@contextmanager
def noted_exception(opened: Record) -> Iterator[None]:
    """Writes the class of an exception that ends the block to the record."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, GeneratorExit) and not (isinstance(error, SystemExit) and not error.code):
            opened.raised = type(error).__name__
        raise


def new_record(title: str = "") -> Record:
    """Returns an empty record with the time and the installed versions."""
    versions = {"python": platform.python_version(), "torch": torch.__version__, "cutaway": _cutaway_version()}
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Record(title=title, created=now, versions=versions, _made_here=True)


def open_record() -> Record | None:
    """Returns the innermost open record, or None."""
    if config.ranks_folder() is not None and (record_rank := tool("record_rank_if_asked")):
        record_rank()
    return open_records[-1] if open_records else None


@functools.cache
def _cutaway_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("cutaway")
    except PackageNotFoundError:
        return "source"

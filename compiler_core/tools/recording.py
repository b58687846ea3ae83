"""`record` and `record_ranks`: what is compiled from here on is recorded, by our compiler and by stock's."""

from __future__ import annotations

import atexit
import datetime
import os
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Literal

import torch

from compiler_core import config
from compiler_core.api.compiled import new_record, noted_exception, open_records, recording
from compiler_core.errors import UsageError
from compiler_core.records import Record, limits
from compiler_core.support.interrupts import kept_handlers
from compiler_core.tools.growing_file import make_folder
from compiler_core.tools.ranks.collectives import record_collectives
from compiler_core.tools.ranks.journal import Journal
from compiler_core.tools.stock.hooks.torch_internals import hides_errors, stances

_rank_files: dict[int, tuple[Path, Record, Callable[[], None]]] = {}
"""The files and the record of this process's rank, or of the process that it was forked from, and what ends the
recording of collectives."""


@contextmanager
def record(
    title: str = "",
    *,
    engine: Literal["core", "torch"] = "core",
    steps: bool = False,
    logs: bool = False,
    frames: bool = False,
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
        frames: also record every Python frame that runs in a compiled call of this thread, and what became of it
            (`Record.seen`).  Calls are slow meanwhile.  Inlined calls are known for compiles that record their steps.
        options: noted in `Record.options`.

    Yields:
        The record, which is filled while the context is open.

    Raises:
        UsageError: there is no such engine.

    Example::

        with compiler_core.record() as record:
            compiled(x)
        record.save("record.json")
    """
    if engine not in ("core", "torch"):
        raise UsageError(f"unknown engine {engine!r}; choose from core and torch")
    opened = new_record(title)
    opened.engine, opened.options = engine, options
    with kept_handlers(), _settings(opened), _frames(opened) if frames else nullcontext(), _collectives(opened):
        if engine == "torch":
            from compiler_core.tools.stock.observer import observing  # a slow import

            with observing(opened, steps, logs), noted_exception(opened):
                yield opened
            return
        with recording(opened):
            yield opened


@contextmanager
def _settings(opened: Record) -> Iterator[None]:
    """Notes the settings for which code runs as plain Python: what keeps the compiler from compiling, in a record
    without a frame, and stock's that hides errors, in one with a compile that raised an error."""
    with stances() as found:
        yield
    if not opened.frames and (why := _reason_of_none(opened.engine, found)):
        opened.notes.append(f"Nothing was compiled: {why}.")
    has_raised = any(each.outcome == "failed" and not each.is_broken for each in opened.compiles)
    if opened.engine == "torch" and has_raised and hides_errors():
        opened.notes.append(
            "torch._dynamo.config.suppress_errors is set, so a function whose compile raised an error runs as plain "
            "Python."
        )


def _reason_of_none(engine: str, stances: Collection[str]) -> str:
    """Returns what keeps the compiler from compiling; empty if nothing that is known does.

    `stances`: those of `torch.compiler.set_stance` that were set.
    """
    if stance := next((each for each in ("force_eager", "eager_on_recompile") if each in stances), ""):
        calls = "calls" if stance == "force_eager" else "calls for which nothing is compiled yet"
        return f'torch.compiler.set_stance("{stance}") is set, with which {calls} run as plain Python'
    if engine == "torch" and os.environ.get("TORCHDYNAMO_DISABLE") == "1":
        return "TORCHDYNAMO_DISABLE=1 is set, with which torch.compile returns what it is given"
    return ""


@contextmanager
def _frames(opened: Record) -> Iterator[None]:
    """Writes the frames that run in compiled calls to a record, once all else is in it."""
    from compiler_core.tools.frames.frame_watch import FrameWatch
    from compiler_core.tools.frames.stock_frame_watch import StockFrameWatch

    watch = FrameWatch() if opened.engine == "core" else StockFrameWatch()
    try:
        with watch:
            yield
    finally:
        watch.write(opened)


@contextmanager
def _collectives(opened: Record) -> Iterator[None]:
    """Records collectives in a process that belongs to a job."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        yield
        return
    end = record_collectives(opened)
    try:
        yield
    finally:
        end()


def record_ranks(folder: str | Path | None = None, rank: int | None = None) -> Path:
    """Records everything that this process compiles from now on, by our compiler and by stock's, in its own files.

    Each rank of a job calls it once, after which its files can be opened at any time, also when it is killed:
    ``rank_N_PID.log``, PyTorch's structured trace, and ``rank_N_PID.jsonl`` of our compiler and of all collectives.
    With ``CUTAWAY_RANKS`` in the environment a process that compiles with this package need not call it.

    Args:
        folder: where the files are written; by default ``$CUTAWAY_RANKS``, else ``ranks``.
        rank: the number of this rank; by default that of ``torchrun``, Slurm, MPI or `torch.distributed`.

    Returns:
        The path of the files, without their endings.  A second call returns the path of the first.

    Raises:
        OSError: the folder cannot be made or written.

    Example::

        compiler_core.record_ranks("ranks/")  # in train.py, under torchrun
        compiler_core.compare_ranks("ranks/")  # afterwards, anywhere
    """
    process = os.getpid()
    if process in _rank_files:
        return _rank_files[process][0]
    from compiler_core.tools.stock.hooks.trace_file import write_trace

    target = make_folder(folder or config.ranks_folder() or "ranks")
    number = _rank() if rank is None else rank
    path, opened = target / f"rank_{number}_{process}", new_record(f"rank {number}")
    write_trace(path.with_name(f"{path.name}.log"))
    for _, inherited, end in _rank_files.values():
        open_records[:] = [each for each in open_records if each is not inherited]
        end()
    _rank_files.clear()
    open_records.insert(0, opened)
    journal = Journal(opened, path.with_name(f"{path.name}.jsonl"))
    end = record_collectives(opened, journal.write_collectives)
    _rank_files[process] = path, opened, end
    atexit.register(journal.close)
    atexit.register(_note_end, opened)
    atexit.register(end)
    return path


def record_rank_if_asked() -> None:
    """Records this rank, if it is not yet; a program that only has ``CUTAWAY_RANKS`` set continues where that cannot be
    done."""
    if os.getpid() in _rank_files:
        return
    try:
        record_ranks()
    except OSError as error:
        sys.stderr.write(f"cutaway: this rank is not recorded: {error}\n")
        _rank_files[os.getpid()] = Path(), new_record(), lambda: None


def _note_end(opened: Record) -> None:
    """Notes the exception that ended the process, with the time, which tells the first rank of several that fail."""
    error = getattr(sys, "last_value", None)
    if error is not None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        text = traceback.format_exception_only(error)[-1].strip()
        opened.notes.append(f"The process raised {limits.truncate(text)}; it ended at {now}.")


def _rank() -> int:
    """Returns the rank of this process, 0 if it belongs to no job."""
    known = config.rank()
    if known is None and torch.distributed.is_available() and torch.distributed.is_initialized():
        known = torch.distributed.get_rank()
    return known or 0

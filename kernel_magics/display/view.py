"""What a person sees of a record: the explorer in a notebook, the summary in a terminal."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from compiler_core.errors import BuildError
from compiler_core.records import Record
from compiler_core.records.differences import Comparison
from kernel_magics.display import outputs, summary

if TYPE_CHECKING:
    from kernel_magics.display.explorer import Explorer


@dataclass(frozen=True)
class Both:
    """Both engines on one cell; the comparison is the first record's."""

    records: tuple[Record, Record]
    comparison: Comparison


class View:
    """Shows one record while it is written and once it is whole.  This one is the terminal's."""

    latest: ClassVar[View | None] = None
    """That of the cell that was compiled last."""

    explorer: Explorer | None = None
    record: Record | None = None
    both: Both | None = None
    """What two engines made of the cell, where it was asked for."""

    def start(self, record: Record) -> None:
        """The cell begins."""
        self.record = record
        View.latest = self
        outputs.close_unshown(self.explorer)

    def stop(self) -> None:
        """The cell has run, or failed; nothing of the compiler may interrupt what follows."""

    def show(self, record: Record) -> None:
        """The record is whole."""
        say(summary.text(record))

    def grown(self) -> None:
        """The record that was shown has more in it now."""


class NotebookView(View):
    """The explorer: first the progress, then the record."""

    def __init__(self) -> None:
        from kernel_magics.display.explorer import Explorer

        self.explorer = Explorer()
        self._interrupt = Interrupt()
        self._stop_following: Callable[[], None] = lambda: None
        self._shown: Any = None

    def start(self, record: Record) -> None:
        from IPython.display import display

        super().start(record)
        assert self.explorer is not None
        self.explorer.on_cancel(self._interrupt)
        self._stop_following = self.explorer.follow(record)
        self._shown = display(self.explorer, display_id=True)

    def stop(self) -> None:
        self._interrupt.disarm()
        self._stop_following()

    def show(self, record: Record) -> None:
        assert self.explorer is not None
        self.explorer.record = record
        # once more, so that the saved notebook has the record's own formats beside the widget
        self.explorer.shown_as = self._shown
        self._shown.update(self.explorer)

    def grown(self) -> None:
        assert self.explorer is not None
        self.explorer.grown()


class Interrupt:
    """Interrupts the cell, as the Stop button does, from any thread; after `disarm` it does nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed = True

    def __call__(self) -> None:
        with self._lock:
            if self._armed:
                # a real signal: it also ends the wait for a compiler that runs as a process
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def disarm(self) -> None:
        with self._lock:
            self._armed = False


def make_view(shell: Any) -> View:
    """The explorer where there is a kernel and the browser half is built, else the summary in words."""
    if getattr(shell, "kernel", None) is None:
        return View()
    try:
        return NotebookView()
    except BuildError as error:
        warn(str(error))
        return View()


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """Nothing that only shows or saves may cost the cell its result: say what failed, and go on."""
    try:
        yield
    except Exception as error:
        warn(f"{what}: {type(error).__name__}: {error}")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


def warn(text: str) -> None:
    sys.stderr.write(f"Cutaway: {text}\n")

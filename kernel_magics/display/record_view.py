"""Views of a record: the explorer in a notebook, the summary in a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from IPython.core.getipython import get_ipython

from compiler_core.errors import BuildError
from compiler_core.records import Record
from compiler_core.records.differences import Comparison
from kernel_magics.display import outputs, summary
from kernel_magics.display.interrupt import Interrupt
from kernel_magics.display.page_requests import CellTask

if TYPE_CHECKING:
    from kernel_magics.display.explorer import Explorer
    from kernel_magics.run.experiments import CellExperiments


@dataclass(frozen=True)
class Run:
    """The result of an experiment: another run of the cell, or the cell's own with more in its record."""

    record: Record
    label: str
    """What was changed."""
    pane: str
    """The pane that has the answer."""


@dataclass(frozen=True)
class EngineComparison:
    """The records of one cell with two engines, and their comparison (that of the first record)."""

    records: tuple[Record, Record]
    comparison: Comparison


class RecordView:
    """Shows one record, while it is written and when it is complete.  This base class is the terminal's view."""

    latest: ClassVar[RecordView | None] = None
    """The view of the cell that was compiled last."""

    explorer: Explorer | None = None
    record: Record | None = None
    both: EngineComparison | None = None
    """The comparison of two engines, if the cell ran with two."""
    experiments: CellExperiments | None = None
    """What can be tried with the cell; None if it raised."""

    def start(self, record: Record) -> None:
        """Called when the cell starts."""
        self.record = record
        RecordView.latest = self
        outputs.close_undisplayed(self.explorer)

    def stop(self) -> None:
        """Called when the cell has run or failed; afterwards Stop has no effect."""

    def show_progress(self, text: str, share: float) -> None:
        """Called while the cell is timed, before the record is complete: what is done, and the share that is."""

    def offer_timing(self, time: CellTask) -> None:
        """Lets the user time the cell later, by `time`."""

    def refuse_timing(self, why: str) -> None:
        """Says why the cell cannot be timed."""

    def offer_experiments(self, experiments: CellExperiments) -> None:
        """Lets the user run the cell again with one thing changed."""
        self.experiments = experiments

    def show_run(self, run: Run) -> None:
        """Shows another run of the cell beside its own."""

    def show(self, record: Record) -> None:
        """Shows the complete record."""
        print_line(summary.text(record))

    def end(self) -> None:
        """Called last: says so where the record could not be shown."""

    def open_explorer(self) -> Explorer | None:
        """Returns the explorer; makes it if the view has none, such as that of ``%explain``.  None in a terminal."""
        if self.explorer is None and self.record is not None and _has_kernel(get_ipython()):
            from kernel_magics.display.explorer import Explorer

            self.explorer = Explorer(self.record)
        return self.explorer

    def refresh(self) -> None:
        """Shows the record again, after something was added to it."""


class NotebookView(RecordView):
    """Shows the explorer: first the progress, then the record."""

    explorer: Explorer

    def __init__(self) -> None:
        from kernel_magics.display.explorer import Explorer

        self.explorer = Explorer()
        self._interrupt = Interrupt()
        self._stop_following: Callable[[], None] = lambda: None
        self._shown: Any = None

    def start(self, record: Record) -> None:
        from IPython.display import display

        super().start(record)
        self.explorer.on_cancel(self._interrupt)
        self._stop_following = self.explorer.follow(record)
        self._shown = display(self.explorer, display_id=True)

    def stop(self) -> None:
        self._interrupt.disarm()
        self._stop_following()

    def show_progress(self, text: str, share: float) -> None:
        self.explorer.show_timing_progress(text, share)

    def offer_timing(self, time: CellTask) -> None:
        self.explorer.reruns.offer_timing(time)

    def refuse_timing(self, why: str) -> None:
        self.explorer.reruns.refuse_timing(why)

    def offer_experiments(self, experiments: CellExperiments) -> None:
        super().offer_experiments(experiments)
        self.explorer.reruns.offer_experiments(experiments)

    def show_run(self, run: Run) -> None:
        self.explorer.reruns.add_run(run)

    def show(self, record: Record) -> None:
        self.explorer.show_record(record, self._shown)

    def end(self) -> None:
        self.explorer.end()

    def refresh(self) -> None:
        self.explorer.refresh()


class StaticView(RecordView):
    """Shows the complete record without a widget, when a program and no person runs the notebook.

    Such a program (nbclient, nbconvert, papermill) would save the widget's whole state in the notebook, and nbconvert's
    page would then show the widget, which needs scripts from the network, and not the HTML.
    """

    _shown: Any = None

    def show(self, record: Record) -> None:
        from IPython.display import display

        from kernel_magics.display.explorer import record_bundle

        self._shown = display(record_bundle(record), raw=True, display_id=True)

    def refresh(self) -> None:
        from kernel_magics.display.explorer import record_bundle

        if self.record is not None and self._shown is not None:
            self._shown.update(record_bundle(self.record), raw=True)


def make_view(shell: Any) -> RecordView:
    """Returns the explorer's view if there is a kernel and the browser code is built, else the terminal's view."""
    if not _has_kernel(shell):
        return RecordView()
    if _is_run_by_program(shell.kernel):
        return StaticView()
    try:
        return NotebookView()
    except BuildError as error:
        warn(str(error))
        return RecordView()


def _is_run_by_program(kernel: Any) -> bool:
    """Whether no person can answer `input()`, so that no page shows the outputs.  Voila is an exception."""
    is_voila = os.environ.get("SERVER_SOFTWARE", "").startswith("voila")
    return getattr(kernel, "_allow_stdin", True) is False and not is_voila


def _has_kernel(shell: Any) -> bool:
    return getattr(shell, "kernel", None) is not None


def cell_labels(record: Record) -> dict[str, str]:
    """Returns the label of each source that is a cell, as tracebacks name it: ``In[3]``."""
    shell = get_ipython()
    named = {s.name: shell.compile.format_code_name(s.name) for s in record.sources} if shell else {}
    return {filename: name[1] for filename, name in named.items() if name}


@contextmanager
def warn_on_error(what: str) -> Iterator[None]:
    """Prints a warning for an exception in the block, and continues: a failure to show or save a record must not lose
    the cell's result."""
    try:
        yield
    except Exception as error:
        warn(f"{what}: {type(error).__name__}: {error}")


def print_line(text: str) -> None:
    """Prints a line to `sys.stdout`."""
    sys.stdout.write(text + "\n")


def warn(text: str) -> None:
    """Prints a warning to `sys.stderr`."""
    sys.stderr.write(f"Cutaway: {text}\n")

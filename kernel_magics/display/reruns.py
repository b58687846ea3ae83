"""Runs the cell of an explorer again: times it, makes experiments with it, and shows any of its runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.errors import UsageError
from compiler_core.records import Guard
from compiler_core.records.plain import to_plain
from kernel_magics.display import messages
from kernel_magics.display.messages import CHANGE, EXPERIMENTS, FUSIONS, MAX_RUNS, TIMED_FORMS
from kernel_magics.display.page_requests import CellTask, ChangeRefused, PageRequests
from kernel_magics.display.record_view import Run

if TYPE_CHECKING:
    from kernel_magics.display.explorer import Explorer
    from kernel_magics.run.experiments import CellExperiments

_NO_INPUTS = "this record has no inputs to run again: run a cell with %%compile in this kernel"


class Reruns:
    """The further runs of one explorer's cell, as Python or the page asks for them."""

    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer
        self._timing: PageRequests | None = None
        self._trying: PageRequests | None = None
        self._experiments: CellExperiments | None = None
        self._runs: list[Run] = []
        """The cell's own run, and the experiments; empty if nothing was tried."""
        self._panes: dict[str, list[str]] = {}
        """The panes of each run when it was shown last, by its label."""

    def close(self) -> None:
        """Forgets the cell, its inputs and its runs."""
        self._timing = self._trying = self._experiments = None
        self._runs = []

    def offer_timing(self, time: CellTask) -> None:
        """Shows the button by which the page asks for `time`."""
        self._timing = PageRequests(time, self._show_timing, self._show_own_run)
        self._show_timing("", 0.0, "")

    def refuse_timing(self, why: str) -> None:
        """Shows why the cell can be neither timed nor tried."""
        self._explorer.timing = {"forms": [], "running": "", "share": 0.0, "message": why}

    def time(self, forms: Sequence[str]) -> None:
        """Times the cell; see `Explorer.time`."""
        unknown = [form for form in forms if form not in TIMED_FORMS]
        if unknown:
            raise UsageError(f"no form is called {unknown[0]!r}; the forms are {', '.join(TIMED_FORMS)}")
        if self._timing is None:
            raise UsageError(_NO_INPUTS)
        self._timing.run(forms)

    def offer_experiments(self, experiments: CellExperiments) -> None:
        """Shows the menu of experiments."""
        self._experiments = experiments
        self._trying = PageRequests(self._try, self._show_timing, lambda: None, "tried")
        self._show_experiments()

    def experiment(self, name: str, item: str) -> None:
        """Makes an experiment and shows its run; see `Explorer.experiment`."""
        if name not in EXPERIMENTS and name not in FUSIONS:
            raise UsageError(
                f"no experiment is called {name!r}; the experiments are {', '.join((*EXPERIMENTS, *FUSIONS))}"
            )
        if self._trying is None:
            raise UsageError(_NO_INPUTS)
        self._trying.run([name, item])

    def change(self, number: int) -> None:
        """Tries a change of the code and shows its run; see `Explorer.try_change`."""
        if self._trying is None:
            raise UsageError(_NO_INPUTS)
        self._trying.run([CHANGE, str(number)])

    def add_run(self, made: Run) -> None:
        """Shows another run of the cell, beside its own and those that were made before."""
        if not self._runs:
            assert self._explorer.record is not None
            self._runs = [Run(self._explorer.record, "As it ran", "")]
        if made.record is not self._runs[0].record:
            kept = [run for run in self._runs[1:] if run.label != made.label]
            self._runs = [self._runs[0], *kept[2 - MAX_RUNS :], made]
        self._show_run(len(self._runs) - 1 if made.record is not self._runs[0].record else 0, made.pane)

    def on_request(self, _: Explorer, content: dict[str, Any], __: list[Any]) -> None:
        """Does what a message of the page asks for."""
        if self._timing is not None and content["type"] == "time":
            self._timing.request(content["forms"])
        elif self._trying is not None and content["type"] == "try":
            self._trying.request([content["experiment"], content["item"]])
        elif content["type"] == "run":
            self._show_run(content["run"])
        elif content == messages.CANCEL:
            for requests in filter(None, (self._timing, self._trying)):
                requests.stop()

    def _try(self, words: Sequence[str], progress: Callable[[str, float], None]) -> None:
        """Makes an experiment and shows its run; one that was made before is replaced."""
        name, item = words
        assert self._experiments is not None
        if name == CHANGE:
            self._try_change(int(item), progress)
        elif name in FUSIONS:
            self.add_run(self._experiments.run_fused(name, item.split(","), progress))
        else:
            self.add_run(self._experiments.run(name, self._guard(item), progress))

    def _try_change(self, number: int, progress: Callable[[str, float], None]) -> None:
        """Tries a change and shows its run; where it is refused, the record says so, and it is no longer offered."""
        assert self._experiments is not None
        try:
            made = self._experiments.run_changed_code(number, progress)
        except ChangeRefused:
            self._show_experiments(self._explorer.experiments.get("shown", 0))
            self._explorer.refresh()
            raise
        self.add_run(made)

    def _guard(self, item: str) -> Guard | None:
        """Returns the guard of the shown record that is this item."""
        record = self._explorer.record
        for compile_ in record.compiles if record else ():
            for guard in compile_.guards:
                if item == f"{compile_.id}:guards#{guard.key}":
                    return guard
        return None

    def _show_own_run(self) -> None:
        """Shows the cell's own run again, which has new times."""
        self._show_run(0)

    def _show_run(self, number: int, pane: str = "") -> None:
        """Shows one of the runs, and opens a pane."""
        if number >= len(self._runs):
            self._explorer.refresh()
            return
        explorer, run = self._explorer, self._runs[number]
        is_shown = run.record is explorer.record
        with explorer.hold_sync():  # what was pinned need not be in the other record
            self._panes[self._runs[explorer.experiments.get("shown", 0)].label] = explorer.shown
            explorer.selection, explorer.compile = [], ""
            explorer.shown = ["source", pane] if pane else self._panes.get(run.label, [])
            explorer.set_packed(run.record)
            self._show_experiments(number)
        explorer.update_output(send=is_shown)

    def _show_experiments(self, shown: int = 0) -> None:
        if self._experiments is not None:
            runs = [run.label for run in self._runs]
            changes = [{"problem": problem, "edit": to_plain(edit)} for problem, edit in self._experiments.changes()]
            choices = self._experiments.choices()
            self._explorer.experiments = {"choices": choices, "changes": changes, "runs": runs, "shown": shown}

    def _show_timing(self, running: str, share: float, message: str) -> None:
        self._explorer.timing = {"forms": list(TIMED_FORMS), "running": running, "share": share, "message": message}

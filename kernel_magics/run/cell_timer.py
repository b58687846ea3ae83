"""Times a cell as plain PyTorch and compiled: ``%%compile --time``, and the explorer's button.

The cell runs again, hundreds of times, on the state that it finds now.  That state is restored after each sample and at
the end, so that nothing changes for the user.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from compiler_core.errors import UsageError
from compiler_core.records import Record, needing_action
from compiler_core.records.timings import COMPILED
from compiler_core.tools.questions.verdict import find_pays_off
from kernel_magics.cell.parse import Program, Unit
from kernel_magics.display.messages import CORE_FORMS
from kernel_magics.run import outside_effects
from kernel_magics.run.request import Request, unit_compiler
from kernel_magics.run.silenced_output import silenced_output

if TYPE_CHECKING:
    from compiler_core.tools.timing.forms import Form
    from compiler_core.tools.timing.rounds import Progress
    from compiler_core.tools.timing.saved_state import SavedState

SECONDS = 2.0
"""For how long all forms together are timed, besides compiling."""


def no_progress(text: str, share: float) -> None:
    """Shows nothing."""


class CellTimer:
    """Times a cell that has run with the options `request`."""

    def __init__(self, shell: Any, program: Program, request: Request) -> None:
        self.shell, self.program, self.request = shell, program, request

    def time(self, record: Record, others: Sequence[str] = (), progress: Progress = no_progress) -> None:
        """Fills `Record.timings`, and makes the verdict.

        Args:
            record: the record of the cell.
            others: names of forms (`options.TIMED_FORMS`) besides plain PyTorch and the cell as it was compiled.
            progress: called with what is done, and the share of it that is.

        Raises:
            UsageError: the cell cannot be timed; the message says why.
        """
        from compiler_core.tools.timing.rounds import time_forms

        state = self.saved_state(progress)
        with silenced_output(self.shell):
            self.rehearse(state)
            forms = [self._form(name) for name in dict.fromkeys(("eager", COMPILED, *others))]
            timings = time_forms(forms, state, SECONDS, progress)
        for row in timings.rows:
            if row.name == COMPILED:  # compiled by now, so the first call took less than it did in the cell
                row.compile_seconds = record.compile_ns / 1e9
                row.problems = len(needing_action(record.problems))
        find_pays_off(timings)
        record.timings = timings
        record.find_problems()

    def of(self, program: Program) -> CellTimer:
        """Returns the same for another text of the cell."""
        made = copy.copy(self)
        made.program = program
        return made

    def saved_state(self, progress: Progress = no_progress) -> SavedState:
        """Saves the state that the cell finds now, for `rehearse`; UsageError if it cannot be restored."""
        from compiler_core.tools.timing.saved_state import SavedState

        if self.program.is_async:
            raise UsageError("the cell awaits, and what it waits for cannot be repeated")
        progress("saving the state", 0.0)
        namespace = self.shell.user_ns
        functions = [types.FunctionType(code, namespace) for code in (self.program.skeleton, *self.program.units)]
        state = SavedState(functions, skipped=[self.shell])
        if state.obstacles:
            raise UsageError(f"the cell uses {state.obstacles[0]}, whose state cannot be restored after each run")
        progress("running it once", 0.0)
        return state

    def rehearse(self, state: SavedState, then: Callable[[object], None] = lambda value: None) -> None:
        """Runs the cell once as plain Python, calls `then` with its value, and restores the state.

        UsageError if it raises, or if it would do what cannot be undone.
        """
        namespace = self.shell.user_ns
        refused: list[str] = []
        with state.preserved(), outside_effects.refuse_effects(namespace, refused), self._plainly():
            try:
                then(self.program.bind(namespace, _uncompiled)())
            except Exception as error:
                if not refused:
                    text = str(error).strip().partition("\n")[0].partition(". ")[0]
                    raise UsageError(f"it raises {type(error).__name__} when it runs again: {text}") from None
        if refused:
            raise UsageError(f"the cell changes {refused[0]}, which cannot be undone")

    def _form(self, name: str) -> Form:
        from compiler_core.tools.timing.forms import Form

        if name == "pinned":
            return self._pinned_form()
        run = self.program.bind(self.shell.user_ns, self._compiler(name))
        return Form(name, self._run_plainly(run) if name == "eager" else run)

    def _plainly(self) -> AbstractContextManager[Any]:
        """Returns a context manager in which the cell runs as plain PyTorch, without its own `torch.compile`."""
        from torch.compiler import set_stance

        return set_stance("force_eager") if self.request.as_written else nullcontext()

    def _run_plainly(self, run: Callable[[], object]) -> Callable[[], object]:
        if not self.request.as_written:
            return run

        def run_plainly() -> object:
            with self._plainly():
                return run()

        return run_plainly

    def _compiler(self, name: str) -> Callable[[types.FunctionType], Unit]:
        if name == "eager":
            return _uncompiled
        if name == COMPILED:
            return unit_compiler(self.request, Record())
        if name in CORE_FORMS:
            request = Request(dynamic=self.request.dynamic, **CORE_FORMS[name])
        else:
            request = Request(engine="torch", mode=name.partition(":")[2] or None, dynamic=self.request.dynamic)
        compile_unit = unit_compiler(request, Record())
        # stock keeps what it compiled by code objects; those of the cell stay free of it
        return lambda unit: compile_unit(types.FunctionType(unit.__code__.replace(), unit.__globals__))

    def _pinned_form(self) -> Form:
        """Returns the form in which each unit of the cell is pinned to its one compile, after the first run."""
        from compiler_core.tools.pin import pin
        from compiler_core.tools.timing.forms import Form

        request = self.request if self.request.engine == "core" else Request()
        compile_unit = unit_compiler(request, Record())
        compiled: list[Unit] = []

        def remember(unit: types.FunctionType) -> Unit:
            compiled.append(compile_unit(unit))
            return compiled[-1]

        def pinned() -> Callable[[], object]:
            units = iter([pin(unit) for unit in compiled])
            return self.program.bind(self.shell.user_ns, lambda _: next(units))

        return Form("pinned", self.program.bind(self.shell.user_ns, remember), pinned)


def _uncompiled(unit: types.FunctionType) -> Unit:
    return unit

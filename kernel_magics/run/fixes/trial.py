"""Tries a change of the user's code: the cell runs with it, and it is offered if it helps and the values are right."""

from __future__ import annotations

import dataclasses
import linecache
import re
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from compiler_core.errors import UsageError
from compiler_core.records import Problem, Record
from compiler_core.records.differences import Comparison, SourceEdit
from compiler_core.records.two_runs.compare import compare
from kernel_magics.cell.parse import Program, parse
from kernel_magics.display.page_requests import ChangeRefused
from kernel_magics.display.record_view import Run, cell_labels
from kernel_magics.run.cell_timer import CellTimer
from kernel_magics.run.fixes.expressions import Modules
from kernel_magics.run.fixes.live_code import compiled_code, functions_at, lines_of, replaced_code
from kernel_magics.run.fixes.rewrites import disabled, rewritten
from kernel_magics.run.request import fresh, open_record, unit_compiler
from kernel_magics.run.silenced_output import silenced_output
from kernel_magics.run.snapshots import plain_values, value_difference

Progress = Callable[[str, float], None]
_COUNTED = ("graphs", "graph breaks", "recompiles")
_DYNAMIC = "dynamic sizes and numbers"
_BY_OPTION = frozenset({"dynamic sizes", "dynamic numbers"})
"""The advice that an option of the magic follows."""


@dataclass(frozen=True)
class Fix:
    """A change that may remove a problem."""

    problem: int
    """The number of the problem in the record."""
    edit: SourceEdit
    flipped: tuple[SourceEdit, SourceEdit] | None = None
    disables: str = ""
    """The name of the function that is left to Python."""
    is_dynamic: bool = False
    """Whether the change is an option of the magic, and not of the code."""


class Fixes:
    """The changes that may remove the problems of a cell whose run has `record`."""

    def __init__(self, timer: CellTimer, record: Record) -> None:
        self._timer, self._record, self._request = timer, record, timer.request
        self._shell, self._program = timer.shell, timer.program
        self.found = [] if timer.program.is_async else list(self._find())

    # ---- finding

    def _find(self) -> Iterator[Fix]:
        modules = self._modules() if self._record.problems else Modules()
        for number, problem in enumerate(self._record.problems):
            if problem.kind == "graph break" and problem.grade != "expected" and self._is_cell(problem.filename):
                fix = self._rewritten(number, problem, modules) or self._disabled(number, problem, modules)
            else:
                fix = self._dynamic(number, problem)
            if fix is not None:
                fix.edit.in_cell = fix.edit.file == self._program.filename
                yield fix

    def _modules(self) -> Modules:
        values = reversed(self._shell.user_ns.items())
        named = {value.__name__: name for name, value in values if isinstance(value, types.ModuleType)}
        guards = [guard.code for compile_ in self._record.compiles for guard in compile_.guards]
        with_gradients = any("requires_grad=True" in code for code in guards)
        torch, numpy, math = (named.get(each, "") for each in ("torch", "numpy", "math"))
        return Modules(torch, numpy, math, with_gradients)

    def _rewritten(self, number: int, problem: Problem, modules: Modules) -> Fix | None:
        made = rewritten(problem.filename, self._text(problem.filename), problem.lineno, modules)
        return Fix(number, made.edit, made.flipped) if made and self._can_edit(made.edit) else None

    def _disabled(self, number: int, problem: Problem, modules: Modules) -> Fix | None:
        """Returns the change that leaves a function with several breaks to Python."""
        made = disabled(problem.filename, self._text(problem.filename), problem.lineno, modules)
        if made is None:
            return None
        name, edit = made
        function = self._shell.user_ns.get(name)
        if not isinstance(function, types.FunctionType) or function.__code__.co_filename != problem.filename:
            return None
        lines = lines_of(function.__code__)
        breaks = [p for p in self._record.problems if p.kind == "graph break" and p.filename == problem.filename]
        own = [each for each in breaks if each.lineno in lines]
        is_training = any(each.is_training for each in own)  # a step of training is what is to be compiled
        return Fix(number, edit, disables=name) if len(own) > 1 and not is_training else None

    def _is_cell(self, filename: str) -> bool:
        return self._cell_number(filename) is not None

    def _cell_number(self, filename: str) -> int | None:
        named = self._shell.compile.format_code_name(filename)
        found = re.fullmatch(r"In\[(\d+)\]", named[1]) if named else None
        return int(found[1]) if found else None

    def _text(self, filename: str) -> list[str]:
        if filename == self._program.filename:
            return self._program.source.split("\n")
        return [line.rstrip("\n") for line in linecache.getlines(filename)]

    def _can_edit(self, edit: SourceEdit) -> bool:
        return edit.file == self._program.filename or bool(self._functions(edit))

    def _functions(self, edit: SourceEdit) -> list[types.FunctionType]:
        codes = [self._program.skeleton, *self._program.units]
        return functions_at(self._shell.user_ns, codes, edit.file, edit.first)

    def _dynamic(self, number: int, problem: Problem) -> Fix | None:
        first = self._program.source.partition("\n")[0]
        is_advised = not _BY_OPTION.isdisjoint(problem.remedies)
        if not is_advised or self._request.dynamic or not first.startswith("# %%compile"):
            return None
        magic = first.removeprefix("# ")
        edit = SourceEdit(_DYNAMIC, self._program.filename, 1, [magic], [f"{magic} --dynamic"])
        return Fix(number, edit, is_dynamic=True)

    # ---- trying

    def run(self, number: int, progress: Progress) -> Run:
        """Tries the change with this number.

        Raises:
            ChangeRefused: it does not help, or changes values or what is printed.
            UsageError: the cell cannot run again.
        """
        if not 0 <= number < len(self.found):
            raise UsageError(f"there is no change number {number}")
        fix = self.found[number]
        state = self._timer.saved_state(progress)
        with silenced_output(self._shell) as printed:
            expected = _Outcome(self, self._program, printed)
            self._timer.rehearse(state, expected.keep)
            if fix.flipped:
                progress("comparing the other branch", 0.0)
                before, after = (self._outcome_with(edit, state, printed) for edit in fix.flipped)
                after.refuse_difference(before, "with the condition negated, ")
            progress("compiling the changed cell", 0.0)
            with self._changed(fix) as program, state.preserved():
                made = _Outcome(self, program, printed)
                record = self._compiled(fix, program, made)
        made.refuse_difference(expected, "")
        comparison = self._compared(record, fix)
        self._refuse_useless(comparison)
        if fix.disables:
            self._refuse_idle(comparison)
        return Run(record, f"Line {fix.edit.first}: {fix.edit.title}", "engines")

    def _outcome_with(self, edit: SourceEdit, state: Any, printed: Any) -> _Outcome:
        with self._edited(edit) as program:
            found = _Outcome(self, program, printed)
            try:
                CellTimer(self._shell, program, self._request).rehearse(state, found.keep)
            except UsageError as error:
                raise ChangeRefused(
                    f"The change was tried and is wrong: with the condition negated, {error}."
                ) from None
        return found

    def _changed(self, fix: Fix) -> AbstractContextManager[Program]:
        if fix.is_dynamic:
            return nullcontext(self._program)
        if fix.disables and fix.edit.file != self._program.filename:
            return self._left_to_python(fix.disables)
        return self._edited(fix.edit)

    @contextmanager
    def _left_to_python(self, name: str) -> Iterator[Program]:
        import torch

        namespace = self._shell.user_ns
        function = namespace[name]
        namespace[name] = torch.compiler.disable(function)
        try:
            yield self._program
        finally:
            namespace[name] = function

    @contextmanager
    def _edited(self, edit: SourceEdit) -> Iterator[Program]:
        """Context manager in which the cell's functions, or its program, have other text."""
        lines = self._text(edit.file)
        at = edit.first - 1
        source = "\n".join([*lines[:at], *edit.added, *lines[at + len(edit.removed) :]])
        if edit.file == self._program.filename:
            yield parse(self._shell, source)
            return
        functions = self._functions(edit)
        number = self._cell_number(edit.file) or 0
        code = compiled_code(self._shell, source, number, functions[0].__code__.co_qualname, edit.first)
        if code is None or any(code.co_freevars != each.__code__.co_freevars for each in functions):
            raise UsageError("the changed function has other variables of the functions around it")
        with replaced_code(functions, code):
            yield self._program

    def _compiled(self, fix: Fix, program: Program, outcome: _Outcome) -> Record:
        changes: dict[str, Any] = {"save": None, "time": None} | ({"dynamic": True} if fix.is_dynamic else {})
        request = dataclasses.replace(self._request, **changes)
        with open_record(request, f"{self._record.title}, changed") as record:
            record.source(program.filename, 1, program.source.splitlines())
            record.notes += program.notes
            outcome.keep(program.bind(self._shell.user_ns, fresh(unit_compiler(request, record)))())
        record.labels |= cell_labels(record) | {program.filename: self._record.label(self._program.filename)}
        record.find_problems()
        return record

    def _compared(self, record: Record, fix: Fix) -> Comparison:
        record.comparison = compare(self._record, record)
        record.comparison.values = {}
        record.comparison.edit = fix.edit
        return record.comparison

    def _refuse_useless(self, comparison: Comparison) -> None:
        """Raises ChangeRefused unless there are fewer breaks or recompiles, or as many and fewer graphs."""
        totals = {total.name: (int(total.before or 0), int(total.after or 0)) for total in comparison.totals}
        stops = [totals.get(name, (0, 0)) for name in ("graph breaks", "recompiles")]
        before, after = totals.get("graphs", (0, 0))
        is_fewer = any(new < old for old, new in stops) or (0 < after < before)
        if any(new > old for old, new in stops) or not is_fewer or (before and not after):
            numbers = [f"{old} {name} became {new}" for name, (old, new) in totals.items() if name in _COUNTED]
            raise ChangeRefused(f"The change was tried and does not help: {', '.join(numbers)}.")

    def _refuse_idle(self, comparison: Comparison) -> None:
        """Raises ChangeRefused if most of what was compiled is left to Python."""
        for total in comparison.totals:
            if total.name == "captured operations" and 2 * (total.after or 0) < (total.before or 0):
                text = f"of {total.before:.0f} operations {total.after or 0:.0f} would be compiled"
                raise ChangeRefused(f"The change was tried and does not help: {text}.")


class _Outcome:
    """The values and the output of one run of the cell."""

    def __init__(self, fixes: Fixes, program: Program, printed: Any) -> None:
        self._fixes, self._program, self._printed = fixes, program, printed
        self._start = len(printed.stdout), len(printed.stderr)
        self.values: dict[str, object] = {}
        self.output = ""

    def keep(self, value: object) -> None:
        self.values = plain_values(self._fixes._shell.user_ns, [self._program.skeleton, *self._program.units], value)
        out, errors = self._start
        self.output = self._printed.stdout[out:] + self._printed.stderr[errors:]

    def refuse_difference(self, expected: _Outcome, when: str) -> None:
        """Raises ChangeRefused if this run differs from the one that it must be like."""
        for name in dict.fromkeys([*expected.values, *self.values]):
            how = value_difference(expected.values.get(name), self.values.get(name))
            if how:
                raise ChangeRefused(f"The change was tried and is wrong for this cell: {when}{name} differs: {how}.")
        if self.output != expected.output:
            raise ChangeRefused(f"The change was tried and is wrong for this cell: {when}it prints something else.")

"""Tries the changes that the advice on a cell's problems stands for: the cell runs again with each, on saved state.

What came of it becomes data of the problem (`AdviceTrial`), from which its advice follows: a change is advised if there
are fewer of the breaks, recompiles or graphs, or if compiling takes less than half of the time, and if values,
gradients and printed text are those of plain PyTorch.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from compiler_core.errors import UsageError
from compiler_core.records import Problem, Record
from compiler_core.records.differences import COMPILES, SECONDS, AdviceTrial, SourceEdit, Total, TrialOutcome
from compiler_core.records.problems import problem_count
from compiler_core.records.timings import bytes_text
from compiler_core.tools.questions.compare import compare
from compiler_core.tools.questions.line_facts import from_cache
from compiler_core.tools.questions.memory import TRIED_MEMORY, highest_peak
from compiler_core.tools.questions.problems import conclude
from kernel_magics.cell.parse import Program, parse
from kernel_magics.display.interrupt import Interrupt
from kernel_magics.display.page_requests import ChangeRefused
from kernel_magics.display.record_view import Run, cell_labels
from kernel_magics.run.cell_timer import CellTimer
from kernel_magics.run.fixes.finding import Fix, FixFinder
from kernel_magics.run.fixes.live_code import (
    compiled_class,
    compiled_code,
    fresh_code,
    replaced_code,
    with_lines,
)
from kernel_magics.run.request import Request, fresh, open_record, unit_compiler
from kernel_magics.run.silenced_output import silenced_output
from kernel_magics.run.snapshots import TOLERANCE, plain_values, value_difference

Progress = Callable[[str, float], None]
BUDGET_S = 60.0
"""For how many seconds all advice on a cell is tried."""
_DECIMAL = re.compile(r"(-?\d+\.\d*(?:[eE][-+]?\d+)?)")
_GRAD_FN = re.compile(r"grad_fn=<\w+>")
_LOADING_COUNTS_NS = 30_000_000_000
"""Compiling that took longer did not do so because stock was loaded, and its C++ header compiled, on the way."""
FASTER = 2
"""By what factor a change must reduce the time of compiling, which is measured once."""


_WHY_NOTHING = (
    "less than half of the memory at the peak is saved for the backward, and no line of the program is known that "
    "keeps a large part of it after the call"
)


class Fixes:
    """The changes that may remove the problems of a cell whose run has `record`."""

    def __init__(self, timer: CellTimer, record: Record) -> None:
        self._timer, self._record, self._request = timer, record, timer.request
        self._shell, self._program = timer.shell, timer.program
        self._finder = self._made_finder()
        self._found = list(self._finder.find())

    def _made_finder(self) -> FixFinder:
        return FixFinder(self._shell, self._program, self._request, self._record)

    @property
    def offers(self) -> list[tuple[int, Fix]]:
        """The changes that no trial has refuted, each with the number of a problem that it may remove."""
        return [(n, fix) for fix in self._found for n in fix.problems if not self._is_refuted(n, fix)]

    def _is_refuted(self, number: int, fix: Fix) -> bool:
        tried = self._record.problems[number].tried if number < len(self._record.problems) else []
        return any(trial.change == fix.change and trial.is_refuted for trial in tried)

    # ---- trying

    def run(self, number: int, progress: Progress) -> Run:
        """Tries the change that one of `offers` has.

        Raises:
            ChangeRefused: it does not help, or changes values or what is printed.
            UsageError: it cannot be tried.
        """
        offers = self.offers
        if not 0 <= number < len(offers):
            raise UsageError(f"there is no change number {number}")
        problem, fix = offers[number]
        state = self._timer.saved_state(progress)
        with silenced_output(self._shell) as printed:
            expected = self._expected(state, printed)
            record, trials = self._try(fix, state, expected, printed, progress)
        trial = trials[problem]
        if trial.outcome == "not tried":
            raise UsageError(trial.why)
        for number, each in trials.items():
            self._add(number, [each])
        if record is None or trial.outcome != "helps":
            how = "is wrong for this cell" if trial.outcome == "wrong" else "does not help"
            raise ChangeRefused(f"The change was tried and {how}: {trial.why or trial.numbers()}.")
        return Run(
            record, f"Line {fix.edit.first}: {fix.edit.title}" if fix.is_of_code else fix.change.strip("`"), "engines"
        )

    def run_all(self, progress: Progress, seconds: float = BUDGET_S) -> None:
        """Tries all changes; what came of it is in the problems of the record.

        Nothing is noted if it is interrupted.  What is not tried after `seconds` is noted as that.
        """
        is_large = highest_peak(self._record) is not None and self._finder.can_compile_otherwise
        if is_large and all(fix.problems for fix in self._found):
            self._record.notes.append(f"{TRIED_MEMORY} nothing: {_WHY_NOTHING}")
        if not self._found:
            return
        found: dict[int, list[AdviceTrial]] = {}
        why = ""
        try:
            with _Budget(seconds):
                state = self._timer.saved_state(progress)
                with silenced_output(self._shell) as printed:
                    expected = self._expected(state, printed)
                    for number, fix in enumerate(self._found):
                        if not fix.problems:
                            self._try_memory(fix, state, expected, printed, progress)
                            continue
                        _, trials = self._try(fix, state, expected, printed, _part(progress, number, len(self._found)))
                        for each, trial in trials.items():
                            found.setdefault(each, []).append(trial)
        except _BudgetUsed:
            why = f"the {seconds:g} s for trials were used up"
        except UsageError as refusal:
            why = str(refusal)
        for fix in self._found:
            if not fix.problems and not any(note.startswith(_tried(fix)) for note in self._record.notes):
                self._record.notes.append(f"{_tried(fix)} not tried: {why}")
            for each in fix.problems:
                if all(trial.change != fix.change for trial in found.get(each, ())):
                    found.setdefault(each, []).append(AdviceTrial(fix.change, "not tried", why, fix.remedies))
        for problem, made in found.items():
            self._add(problem, made)

    def _expected(self, state: Any, printed: Any) -> _Ran:
        """Runs the cell as plain PyTorch; returns what it left behind."""
        expected = self._ran(self._program, printed)
        self._timer.rehearse(state, expected.keep)
        return expected

    def _ran(self, program: Program, printed: Any) -> _Ran:
        return _Ran(functools.partial(self._values, program), printed)

    def _values(self, program: Program, value: object) -> dict[str, object]:
        """Returns copies of what a run of a program, which has just ended with `value`, left behind."""
        return plain_values(self._shell.user_ns, [program.skeleton, *program.units], value)

    def _add(self, number: int, trials: list[AdviceTrial]) -> None:
        """Notes trials in a problem, in place of earlier ones of the same changes."""
        problem = self._record.problems[number]
        again = {trial.change for trial in trials}
        conclude(problem, [*(each for each in problem.tried if each.change not in again), *trials])

    def _try(
        self, fix: Fix, state: Any, expected: _Ran, printed: Any, progress: Progress
    ) -> tuple[Record | None, dict[int, AdviceTrial]]:
        """Tries a change; returns the record of its run, if there is one, and for each problem what came of it."""
        before = self._record
        try:
            record = self._changed_run(fix, state, expected, printed, progress)
            if fix.is_timed and self._request.engine == "torch" and before.compile_ns < _LOADING_COUNTS_NS:
                before = self._compiled_again(fix, state, printed, progress)
        except (_Differs, UsageError) as error:
            outcome: TrialOutcome = "wrong" if isinstance(error, _Differs) else "not tried"
            return None, dict.fromkeys(fix.problems, AdviceTrial(fix.change, outcome, str(error), fix.remedies))
        record.comparison = compare(before, record)
        record.comparison.values, record.comparison.edit = {}, fix.edit if fix.is_of_code or fix.options else None
        return record, {each: self._concluded(fix, self._record.problems[each], record) for each in fix.problems}

    def _changed_run(self, fix: Fix, state: Any, expected: _Ran, printed: Any, progress: Progress) -> Record:
        """Returns the record of a run with a change; raises `_Differs` if it does something else than plain PyTorch."""
        if fix.flipped:
            progress("comparing the other branch", 0.0)
            self._compare_flipped(fix.flipped, state, printed)
        progress("compiling the changed cell" if fix.is_of_code else f"trying {fix.change}", 0.0)
        made = self._ran(self._program, printed)
        with state.preserved():
            record = self._compiled(fix, made)
        same = _contiguous if fix.lines else _detached if fix.around is not None else _as_it_is
        self._check_same(made, expected, state, printed, same)
        return record

    def _compiled_again(self, fix: Fix, state: Any, printed: Any, progress: Progress) -> Record:
        """Returns the record of another run without a change, in which nothing has to be loaded any more."""
        from compiler_core.torch_private import inductor_config

        progress("compiling without the change again", 0.0)
        unchanged = dataclasses.replace(fix, block=None, around=_as_it_is)
        with state.preserved(), inductor_config.patch(force_disable_caches=True):
            return self._compiled(unchanged, self._ran(self._program, printed))

    def _try_memory(self, fix: Fix, state: Any, expected: _Ran, printed: Any, progress: Progress) -> None:
        """Tries to save less for the backward; a note says what became of the memory at the peak."""
        before = highest_peak(self._record)
        try:
            after = highest_peak(self._changed_run(fix, state, expected, printed, progress))
        except (_Differs, UsageError) as error:
            text = f"it cannot be used here: {error}"
        else:
            kind, words = (
                ("result", "of results, which stay after the call,")
                if fix.is_of_code
                else ("saved", "saved for the backward")
            )
            sizes = [(each.bytes, each.bytes_of(kind)) if each else (0, 0) for each in (before, after)]
            (was, was_part), (now, now_part) = sizes
            helps = "" if now < was or (fix.is_of_code and now_part < was_part) else "it does not help: "
            (old, old_part), (new, new_part) = [tuple(map(bytes_text, each)) for each in sizes]
            when = "at the peak" if before is None or before.is_peak else "at the end of the forward"
            text = f"{helps}{old} {when} became {new}, with the same values; {old_part} {words} became {new_part}"
        self._record.notes.append(f"{_tried(fix)} {text}")

    def _check_same(self, made: _Ran, expected: _Ran, state: Any, printed: Any, compared: _Compared) -> None:
        """Raises `_Differs` unless a run is like the expected one, besides what no two runs of plain PyTorch agree in,
        such as the time; UsageError if they do not agree in tensors."""
        if expected.varies is None and made.differs_from(expected, compared):
            expected.find_what_varies(self._expected(state, printed))
        if how := made.differs_from(expected, compared):
            raise _Differs(how)

    def _compare_flipped(self, edits: tuple[SourceEdit, SourceEdit], state: Any, printed: Any) -> None:
        """Raises `_Differs` unless the cell does the same with both edits, which have a condition negated."""
        ran = []
        for edit in edits:
            with self._edited(edit) as program:
                ran.append(self._ran(program, printed))
                try:
                    self._timer.of(program).rehearse(state, ran[-1].keep)
                except UsageError as error:
                    raise _Differs(f"with the condition negated, {error}".rstrip(".:")) from None
        if how := ran[1].differs_from(ran[0]):
            raise _Differs(f"with the condition negated, {how}")

    def _compiled(self, fix: Fix, ran: _Ran) -> Record:
        """Runs the cell with a change; returns the record.  Raises `_Differs` if the cell raises."""
        options: dict[str, Any] = {"save": None, "time": None} | fix.options
        request = dataclasses.replace(self._request, **options)
        with ExitStack() as changed:
            if request.engine == "torch":
                from compiler_core.torch_private import functorch_config, inductor_config

                changed.enter_context(fresh_code(self._record))
                changed.enter_context(inductor_config.patch(fallback_random=True))  # the numbers that PyTorch draws
                changed.enter_context(functorch_config.patch(activation_memory_budget=request.memory_budget))
            program = changed.enter_context(self._changed(fix))
            record = changed.enter_context(open_record(request, f"{self._record.title}, changed"))
            record.source(program.filename, 1, program.source.splitlines())
            record.notes += program.notes
            run = self._bound(fix, program, request, record, changed)
            try:
                value = run()
            except Exception as error:
                text = str(error).strip().partition("\n")[0].rstrip(".:")
                raise _Differs(f"it raises {type(error).__name__}: {text}") from None
            ran.keep(value)
        record.labels |= cell_labels(record) | {program.filename: self._record.label(self._program.filename)}
        record.find_problems()
        return record

    def _bound(
        self, fix: Fix, program: Program, request: Request, record: Record, changed: ExitStack
    ) -> Callable[[], object]:
        """Returns a function that runs a program, compiled with a change; `changed` undoes what is entered into it."""
        compile_unit = fresh(unit_compiler(request, record))
        if fix.block is not None:
            changed.enter_context(compiled_class(fix.block, fix.around or self._function_compiler(compile_unit)))
            compile_unit = _as_it_is if fix.around is None else compile_unit
        elif fix.around is not None:
            compile_unit = _with(fix.around, compile_unit)
        if fix.lines:
            compile_unit = with_lines(fix.lines, self._shell.user_ns, compile_unit)
        return program.bind(self._shell.user_ns, compile_unit)

    # ---- what is changed

    @contextmanager
    def _changed(self, fix: Fix) -> Iterator[Program]:
        if not fix.is_of_code:
            yield self._program
        elif fix.disables and fix.edit.file != self._program.filename:
            with self._left_to_python(fix.disables):
                yield self._program
        else:
            with self._edited(fix.edit) as program:
                yield program

    @contextmanager
    def _left_to_python(self, name: str) -> Iterator[None]:
        import torch

        namespace = self._shell.user_ns
        function = namespace[name]
        namespace[name] = torch.compiler.disable(function)
        try:
            yield
        finally:
            namespace[name] = function

    @contextmanager
    def _edited(self, edit: SourceEdit) -> Iterator[Program]:
        """Context manager in which the cell's functions, or its program, have other text."""
        lines = self._finder.text(edit.file)
        at = edit.first - 1
        source = "\n".join([*lines[:at], *edit.added, *lines[at + len(edit.removed) :]])
        if edit.file == self._program.filename:
            yield self._parsed(source)
            return
        functions = self._finder.functions(edit)
        number = self._finder.cell_number(edit.file) or 0
        code = compiled_code(self._shell, source, number, functions[0].__code__.co_qualname, edit.first)
        if code is None or any(code.co_freevars != each.__code__.co_freevars for each in functions):
            raise UsageError("the changed function has other variables of the functions around it")
        with replaced_code(functions, code):
            yield self._program

    def _parsed(self, source: str) -> Program:
        """Returns the program that another text of the cell is."""
        return parse(self._shell, source)

    def _function_compiler(self, compile_unit: Callable[[types.FunctionType], Any]) -> Callable[[Any], Any]:
        """Returns a function that compiles any function as the cell is compiled."""
        if self._request.engine == "core":
            return compile_unit
        import torch

        request = self._request
        given: dict[str, Any] = {"backend": request.backend, "mode": request.mode, "options": request.options}
        given |= {"fullgraph": request.fullgraph, "dynamic": request.dynamic or None}
        return functools.partial(torch.compile, **{name: value for name, value in given.items() if value is not None})

    # ---- what came of it

    def _concluded(self, fix: Fix, problem: Problem, record: Record) -> AdviceTrial:
        assert record.comparison is not None
        known = {total.name: total for total in record.comparison.totals}
        compiles = Total(COMPILES, *(float(_compiles(each)) for each in (self._record, record)))
        counted = [known[name] for name in ("graph breaks", "graphs", SECONDS) if name in known]
        trial = AdviceTrial(fix.change, "helps", "", fix.remedies, [compiles, *counted], fix.is_timed)
        trial.outcome, trial.why = self._outcome(fix, problem, record)
        return trial

    def _outcome(self, fix: Fix, problem: Problem, record: Record) -> tuple[TrialOutcome, str]:
        """Returns whether a change helps, and why it does not if its numbers do not say so."""
        assert record.comparison is not None
        totals = {total.name: (int(total.before or 0), int(total.after or 0)) for total in record.comparison.totals}
        before, after = totals.get("graphs", (0, 0))
        if before and not after:
            return "does not help", "nothing would be compiled"
        if fix.is_timed:
            if any(from_cache(each) for each in record.compiles):
                return "not tried", "its kernels came from the cache, so its time says nothing"
            seconds = next(total for total in record.comparison.totals if total.name == SECONDS)
            is_faster = FASTER * (seconds.after or 0.0) < (seconds.before or 0.0)
            return ("helps" if is_faster else "does not help"), ""
        if "capture_backward" in fix.options:  # the first step, which makes state, is compiled apart
            old, new = totals.get("graph breaks", (0, 0))
            return ("helps" if new < old else "does not help"), ""
        stops = [totals.get(name, (0, 0)) for name in ("graph breaks", "recompiles")]
        if any(new > old for old, new in stops):
            return "does not help", ""
        if fix.disables:
            old, new = totals.get("captured operations", (0, 0))
            if 2 * new < old:
                return "does not help", f"of {old} operations {new} would be compiled"
        if fix.is_of_code:
            return ("helps" if any(new < old for old, new in stops) or after < before else "does not help"), ""
        same = [each for each in record.problems if (each.kind, each.title) == (problem.kind, problem.title)]
        was = [each for each in self._record.problems if (each.kind, each.title) == (problem.kind, problem.title)]
        is_fewer = problem_count(same, problem.kind) < problem_count(was, problem.kind) and stops[1][1] < stops[1][0]
        return ("helps" if is_fewer else "does not help"), ""


def _tried(fix: Fix) -> str:
    """Returns how the note on a trial to reduce memory begins."""
    return f"{TRIED_MEMORY} {fix.change}:"


def _compiles(record: Record) -> int:
    return sum(compile_.outcome == "compiled" for compile_ in record.compiles)


_Compared = Callable[[object], object]
"""What is compared of a value."""


def _as_it_is(value: Any) -> Any:
    return value


def _contiguous(value: object) -> object:
    """Returns a value with its tensors laid out in the order of their dimensions."""
    return _with_tensors(value, "contiguous")


def _detached(value: object) -> object:
    """Returns a value with tensors that require no gradient."""
    return _with_tensors(value, "detach")


def _with_tensors(value: object, method: str) -> object:
    import torch

    from compiler_core.torch_private import tree_map

    return tree_map(lambda leaf: getattr(leaf, method)() if isinstance(leaf, torch.Tensor) else leaf, value)


def _with(around: Callable[[Any], Any], compile_unit: Callable[[types.FunctionType], Any]) -> Callable[[Any], Any]:
    """Returns `compile_unit` with something around what it returns."""
    return lambda unit: around(compile_unit(unit))


def _part(progress: Progress, number: int, count: int) -> Progress:
    """Returns the progress of one of several parts, each of which has the same share."""
    return lambda text, share: progress(text, (number + share) / count)


class _Differs(Exception):
    """A run with a change does something else than plain PyTorch; the text says what."""


class _BudgetUsed(Exception):
    """The time for trials is used up."""


class _Budget:
    """Context manager that interrupts the block after some seconds, and then raises `_BudgetUsed`."""

    def __init__(self, seconds: float) -> None:
        self._interrupt = Interrupt()
        self._end = time.monotonic() + seconds
        self._timer = threading.Timer(seconds, self._interrupt)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        self._interrupt.disarm()
        self._timer.cancel()
        if kind is not None and issubclass(kind, KeyboardInterrupt) and time.monotonic() >= self._end:
            raise _BudgetUsed from None


class _Ran:
    """The values and the output of one run of the cell; `values_of` returns the values of a run that has ended."""

    def __init__(self, values_of: Callable[[object], dict[str, object]], printed: Any) -> None:
        self._values_of, self._printed = values_of, printed
        self._start = len(printed.stdout), len(printed.stderr)
        self.values: dict[str, object] = {}
        self.output = ""
        self.varies: set[str] | None = None
        """What is another value in each run of plain PyTorch; None: not known."""

    def keep(self, value: object) -> None:
        """Notes what the run that has just ended left behind, and its value."""
        self.values = self._values_of(value)
        out, errors = self._start
        self.output = self._printed.stdout[out:] + self._printed.stderr[errors:]

    def find_what_varies(self, again: _Ran) -> None:
        """Notes what differs in another run of plain PyTorch; UsageError if tensors do."""
        for name, how in self._differences(again):
            if any(map(_has_tensors, (self.values.get(name), again.values.get(name)))):
                raise UsageError(f"two runs of it as plain PyTorch do not agree: {name} differs: {how}")
        # a time differs by little in two runs of plain PyTorch, and by much if code is compiled in one of them
        self.varies = {name for name, value in self.values.items() if repr(value) != repr(again.values.get(name))}
        self.varies |= {""} if self.output != again.output else set()
        self.varies -= {name for name in self.values if _has_tensors(self.values[name])}

    def differs_from(self, expected: _Ran, compared: _Compared = _as_it_is) -> str:
        """Returns how this run differs from the one that it must be like; empty if it does not."""
        for name, how in self._differences(expected, compared):
            if name not in (expected.varies or ()):
                return f"{name} differs: {how}" if name else how
        return ""

    def _differences(self, expected: _Ran, compared: _Compared = _as_it_is) -> Iterator[tuple[str, str]]:
        """Yields the names whose values differ, and how; an empty name for what is printed."""
        for name in dict.fromkeys([*expected.values, *self.values]):
            values = expected.values.get(name), self.values.get(name)
            if how := value_difference(*map(compared, values)):
                yield name, how
        if not _same_text(self.output, expected.output):
            yield "", "it prints something else"


def _same_text(one: str, other: str) -> bool:
    """Returns whether texts are the same, besides numbers with a decimal point that are nearly equal, and the names of
    the autograd nodes of printed tensors, which compiled code has others of."""
    parts, others = (_DECIMAL.split(_GRAD_FN.sub("", text)) for text in (one, other))  # texts and numbers in turn
    if len(parts) != len(others) or parts[::2] != others[::2]:
        return False
    pairs = zip(parts[1::2], others[1::2], strict=True)
    return all(a == b or math.isclose(float(a), float(b), rel_tol=TOLERANCE, abs_tol=TOLERANCE) for a, b in pairs)


def _has_tensors(value: object) -> bool:
    import torch

    from compiler_core.torch_private import tree_leaves

    return any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(value))

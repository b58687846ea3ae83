"""Tests of the rule by which a call is called faster than another, on planted times."""

from __future__ import annotations

import ast
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from compiler_core.records.differences import SECONDS, AdviceTrial, Total
from compiler_core.records.timings import Timing, Timings
from compiler_core.tools import in_turn
from compiler_core.tools.editing.kernel_trial import Trial
from compiler_core.tools.in_turn import MIN_ROUNDS, seconds_in_rounds
from compiler_core.tools.questions.verdict import MAX_LOAD, verdict
from compiler_core.tools.sweep.results import Thresholds, _flags, _row_changes
from compiler_core.tools.timing.faster import compare
from compiler_core.tools.timing.forms import Form
from compiler_core.tools.timing.machine_load import machine_load
from compiler_core.tools.timing.rounds import time_forms
from compiler_core.tools.timing.saved_state import SavedState
from tests.sweeps.fair_timing import busy_machine

ROOT = Path(__file__).parents[2]
Noise = Callable[[random.Random], float]


def steady(draw: random.Random) -> float:
    return 1e-4 * (1 + abs(draw.gauss(0, 0.02)))


def waiting(draw: random.Random) -> float:
    """The time of a call that often waits for a processor."""
    return steady(draw) + (draw.uniform(1e-3, 2e-2) if draw.random() < 0.4 else 0.0)


def wide(draw: random.Random) -> float:
    return float(1e-4 * 2 ** draw.gauss(0, 1))


@pytest.mark.parametrize("noise", [steady, waiting, wide])
@pytest.mark.parametrize("rounds", [5, 15, 60])
def test_equal_calls_are_never_called_faster(noise: Noise, rounds: int) -> None:
    draw, outcomes = random.Random(0), Counter[str]()
    for _ in range(200):
        busier = [1 + number / rounds for number in range(rounds)]  # the machine gets busier for both
        one, other = ([noise(draw) * each for each in busier] for _ in range(2))
        outcomes[compare(one, other).outcome] += 1
    assert set(outcomes) <= {"same", "unclear"}


@pytest.mark.parametrize("noise", [steady, waiting])
def test_a_call_that_takes_twice_as_long_is_found(noise: Noise) -> None:
    draw = random.Random(0)
    one = [noise(draw) for _ in range(60)]
    assert compare(one, [2 * each for each in one]).outcome == "faster"
    assert compare([2 * each for each in one], one).outcome == "slower"


@pytest.mark.parametrize(
    ("times", "outcome"),
    [
        ([1.0] * 15, "faster"),
        ([1.0] * 14 + [3.0], "faster"),
        ([1.0] * 13 + [3.0] * 2, "same"),  # likely by chance
        ([1.96] * 15, "same"),  # too small
        ([1.0] * 160 + [3.0] * 40, "faster"),
        ([1.0] * 120 + [3.0] * 80, "same"),  # neither is faster in most rounds
        ([1.0] * 5, "faster"),
        ([1.0] * 4 + [3.0], "same"),  # few rounds: the ranges overlap
        ([1.0, 1.1, 1.9, 1.1, 1.2], "same"),  # few rounds: they vary more than they differ
        ([1.0], "same"),  # a single round
        ([0.0] * 15, "faster"),  # below the clock's resolution
    ],
)
def test_what_counts_as_a_difference(times: list[float], outcome: str) -> None:
    assert compare(times, [2.0] * len(times)).outcome == outcome


def test_a_reference_that_was_disturbed_in_most_rounds_is_not_comparable() -> None:
    """Eager from 43 us to 22.9 ms beside 58.1 us: the median says 220 times, the fastest rounds say hardly at all."""
    eager = [43e-6, 43e-6, 60e-6, *[14.2e-3] * 16, 22.9e-3, 22.9e-3]
    compiled = [38e-6, 39e-6, 40e-6, *[58.1e-6] * 18]
    compared = compare(compiled, eager)
    assert compared.speed > 200
    assert compared.outcome == "unclear"
    assert compared.text == "not comparable: the times vary too much"


def row(name: str, times: Sequence[float], reference: Sequence[float]) -> Timing:
    compared, ordered = compare(times, reference), sorted(times)
    differs = compared.outcome in ("faster", "slower")
    return Timing(
        name, ordered[len(times) // 2], ordered[0], ordered[-1], len(times), 0, 0, compared.speed, differs,
        unclear=compared.outcome == "unclear",
    )  # fmt: skip


def test_the_smaller_factor_counts_where_the_ranges_do_not_overlap() -> None:
    eager, compiled = [4.0, 4.0, 4.0, *[40.0] * 16, 44.0, 44.0], [1.0] * 21
    assert compare(compiled, eager).text == "4.00x"
    assert compare(eager, compiled).text == "0.25x"


def test_nothing_is_called_faster_beside_a_doubt() -> None:
    reference, times = [2.0] * 15, [1.0] * 15
    rows = [row("eager", reference, reference), row("compiled", times, reference)]
    certain, busy = (verdict(Timings(rows, load=load), 0, 0) for load in (0.5, 3.0))
    assert (certain.change, certain.speed) == ("faster", "Eager 2 s → compiled 1 s (2.00x)")
    assert (busy.change, busy.speed) == ("", "Eager 2 s → compiled 1 s (2.00x, doubtful)")
    assert busy.warnings
    disturbed = [0.9, 0.9, *[14.0] * 13]
    varying = [row("eager", disturbed, disturbed), row("compiled", times, disturbed)]
    found = verdict(Timings(varying), 0, 0)
    assert (found.change, found.speed) == (
        "",
        "Eager 14 s → compiled 1 s (not comparable: the times vary too much)",
    )


def test_a_trial_beside_other_programs_is_doubtful() -> None:
    """One whose threads wait for a processor may be any number of times slower."""
    trial = Trial("kernel")
    with busy_machine(is_busy=True):
        assert machine_load() > MAX_LOAD
        trial.set_times([[1.0] * 15, [473.0] * 15])
    assert trial.times == "1000000.0 us -> 473000000.0 us (0.0021x, doubtful)"
    assert "Other programs keep this machine busy" in str(trial)
    trial.set_times([[1.0, 1.0, *[14.0] * 13], [0.1] * 15])
    assert "The times of the original vary more than 3-fold" in str(trial)


def test_a_trial_within_the_noise_is_not_called_faster() -> None:
    trial, draw = Trial("kernel"), random.Random(1)
    trial.set_times([[wide(draw) for _ in range(21)] for _ in range(2)])
    assert trial.seconds is not None
    assert trial.seconds[0] != trial.seconds[1]
    assert "x)" not in trial.times
    trial.set_times([[2.0] * 21, [1.0] * 21])
    assert "(2.00x" in trial.times


def test_sweeps_compare_what_was_timed_in_turn() -> None:
    cells = {
        "state": "ok",
        "graphs": 1,
        "graph_breaks": 0,
        "recompiles": 0,
        "failures": 0,
        "peak_bytes": 1,
        "breaks": [],
    }
    cells |= {"error": None, "eager_error": None}
    old = cells | {"compile_seconds": 2.0, "compiled_seconds": 1.0, "speed": 1.5}
    new = cells | {"compile_seconds": 3.0, "compiled_seconds": 2.0, "speed": 1.4}  # the machine was busier
    assert not list(_row_changes("a", old, new, 1.25))
    slow = new | {"speed": 0.7}
    assert [each.what for each in _row_changes("a", old, slow, 1.25)] == ["speed"]
    assert list(_flags(slow, Thresholds())) == ["0.70 times as fast as plain PyTorch"]
    assert not list(_flags(new | {"speed": 1.0}, Thresholds()))


@pytest.fixture
def busy_processors() -> Iterator[None]:
    with busy_machine(True):
        yield


@pytest.mark.usefixtures("busy_processors")
def test_equal_calls_beside_busy_processes_are_not_called_different() -> None:
    """Both ways in which calls are timed: forms of a call, and an edited kernel beside the original."""

    def call() -> int:
        return sum(range(2000))

    timings = time_forms([Form("eager", call), Form("again", call)], SavedState([call]), 0.05)
    assert not timings.rows[1].differs, str(timings)
    one, other = seconds_in_rounds([call, call], lambda: None)
    assert compare(one, other).outcome in ("same", "unclear")


@pytest.mark.usefixtures("busy_processors")
def test_a_call_of_three_times_the_work_is_not_faster_beside_busy_processes() -> None:
    calls = [lambda: sum(range(2000)), lambda: sum(range(6000))]
    one, other = seconds_in_rounds(calls, lambda: None)
    assert compare(other, one).outcome != "faster"


def test_calls_that_become_slow_are_timed_in_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_turn, "MAX_SECONDS", 0.05)
    first = iter([0.001] * 4)

    def call() -> None:
        time.sleep(next(first, 0.005))

    assert 1 <= len(seconds_in_rounds([call, call], lambda: None)[0]) < MIN_ROUNDS


def test_only_one_loop_measures() -> None:
    """What reads a clock to measure: the loop itself, and what times one sample of it."""
    files = (file for part in ("compiler_core/tools", "kernel_magics") for file in (ROOT / part).rglob("*.py"))
    reading = {file.name for file in files if re.search(r"\btime\.perf_counter(_ns)?\(", file.read_text())}
    in_texts = {"reproducer.py", "standalone_script.py"}  # programs that users get
    assert reading - in_texts == {"in_turn.py", "forms.py", "device_timer.py", "guard_times.py"}


# ---------------------------------------------------------------- the surfaces

COMPARED = re.compile(r"\b(?:faster|slower) than\b|\btimes as (?:fast|slow|long)\b")


def texts_with_ratios() -> Iterator[str]:
    """Yields the files and functions in which a text is made that says how much faster something is."""
    for file in sorted([*(ROOT / "compiler_core").rglob("*.py"), *(ROOT / "kernel_magics").rglob("*.py")]):
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef) and any(map(is_ratio, _nodes_of(function))):
                yield f"{file.relative_to(ROOT)}: {function.name}"


def _nodes_of(function: ast.FunctionDef) -> Iterator[ast.AST]:
    docstring = function.body[0] if ast.get_docstring(function) is not None else None
    return (node for statement in function.body if statement is not docstring for node in ast.walk(statement))


def is_ratio(node: ast.AST) -> bool:
    """Whether a node is a text such as ``f"{speed:.2f}x"`` or ``"3 times as fast"``."""
    if isinstance(node, ast.JoinedStr):
        pairs = zip(node.values, node.values[1:], strict=False)
        return any(isinstance(a, ast.FormattedValue) and _begins_with_x(b) for a, b in pairs)
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(COMPARED.search(node.value))


def _begins_with_x(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and re.match(r"x\b", str(node.value)) is not None


def test_each_text_with_a_ratio_is_made_by_the_rule() -> None:
    """`comparison_text` gets the outcome of `compare`; a sweep stores the speed that `_speed` takes from it."""
    assert list(texts_with_ratios()) == [
        "compiler_core/tools/questions/verdict.py: comparison_text",
        "compiler_core/tools/sweep/results.py: _flags",
    ]
    pages = (ROOT / "extension" / "src").rglob("*.ts")
    ratios = [page.name for page in pages if re.search(r"\}x[`,\" $]", page.read_text())]
    assert ratios == ["speed_table.ts"]
    (table,) = (ROOT / "extension" / "src").rglob("speed_table.ts")
    assert "row.differs ? `${ratio(row.speed)}x" in table.read_text()


def test_the_time_of_one_run_has_these_words() -> None:
    totals = [Total("compiles", 9, 2), Total(SECONDS, 20.4, 1.3)]
    trial = AdviceTrial("compile each Block", "helps", "", ["blocks"], totals, is_timed=True)
    assert trial.numbers() == "compiling took 20.4 s in one run, 1.3 s in another, 9 compiles became 2"

"""Of each planted recompile the cause and the line are named, on both engines, live and from logs, and nothing else is
reported; the advice that is offered works; the script without the fault has no problem."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.records import Compile, Frame, Problem
from compiler_core.records.advice import NOTHING_TO_CHANGE, REMEDIES
from tests.docs import recompiles
from tests.faults import from_logs
from tests.faults.fault import Change, Recompiled
from tests.faults.harness import ENGINES, Engine, Run, causes, changed, facts, run
from tests.faults.recompiles import RECOMPILES

CASES = [(fault, engine) for fault in RECOMPILES for engine in ENGINES if fault.happens_on(engine)]
CHANGES = [(f, c, e) for f in RECOMPILES for c in f.changes for e in c.engines if f.happens_on(e)]


def named(values: list[Any]) -> list[str]:
    """Returns the names of cases: titles, advice and engines."""
    return [" - ".join(map(_name, value)) for value in values]


def _name(value: Recompiled | Change | Engine) -> str:
    if isinstance(value, str):
        return value
    return value.title if isinstance(value, Recompiled) else value.remedy


@functools.cache
def found(fault: Recompiled, engine: Engine) -> Run:
    return run(fault.script, fault.title, engine, fault.options)


@pytest.mark.parametrize(("fault", "engine"), CASES, ids=named(CASES))
def test_the_cause_is_named_and_nothing_else(fault: Recompiled, engine: Engine) -> None:
    ran = found(fault, engine)
    torch.testing.assert_close(ran.results, run(fault.script, fault.title, None).results)
    assert list(errors(fault, engine, ran.compiles, ran.problems)) == []


def test_logs_name_the_same(tmp_path: Path) -> None:
    """One process runs all scripts, whose log has the same causes, lines, advice and grades."""
    from_logs.write_scripts(tmp_path)
    command = [sys.executable, "-m", "tests.faults.from_logs", str(tmp_path)]
    subprocess.run(command, env=os.environ | {"TORCH_TRACE": str(tmp_path / "trace")}, check=True, timeout=200)
    (record,) = compiler_core.read_logs(tmp_path / "trace")
    wrong = {}
    for fault in filter(lambda each: each.happens_on("torch"), RECOMPILES):
        file = str(from_logs.file_of(fault, tmp_path))
        compiles = [c for frame in record.frames if is_of(frame, file) for c in frame.compiles]
        problems = [problem for problem in record.problems if problem.filename == file]
        wrong[fault.title] = list(errors(fault, "torch", compiles, problems))
    assert {title: why for title, why in wrong.items() if why} == {}


def is_of(frame: Frame, file: str) -> bool:
    """Whether a frame is of a file, or of a package that the file calls."""
    callers = [compile_.caller for compile_ in frame.compiles if compile_.caller]
    return frame.filename == file or any(caller.filename == file for caller in callers)


def errors(fault: Recompiled, engine: Engine, compiles: list[Compile], problems: list[Problem]) -> Iterator[str]:
    """Yields how what was found differs from the truth."""
    truth = fault.of(engine)
    if [p.kind for p in problems] != ["recompile"] * fault.problems:
        yield f"problems: {[p.title for p in problems]}"
    if len(compiles) != truth["compiles"]:
        yield f"{len(compiles)} compiles"
    true = {name: truth[name] for name in ("name", "aspect", "expected", "got")}
    cause = next((each for each in causes(compiles) if facts(each) == true), None)
    if cause is None:
        yield f"causes: {[facts(each) for each in causes(compiles)]}"
    elif cause.is_confirmed != truth["is_confirmed"]:
        yield f"confirmed: {cause.is_confirmed}; besides: {[each.subject for each in cause.besides]}"
    if (lines := {p.lineno for p in problems}) != {truth["line"]}:
        yield f"lines: {lines}"
    remedy = truth["remedy"] or fault.changes[0].remedy
    if remedy not in {key for problem in problems for key in problem.remedies}:
        yield f"advice: {[p.advice for p in problems]}"
    grade = "expected" if remedy in NOTHING_TO_CHANGE else "costly"
    if [p.grade for p in problems][-1:] != [grade]:
        yield f"grades: {[p.grade for p in problems]}"


@pytest.mark.parametrize(("fault", "change", "engine"), CHANGES, ids=named(CHANGES))
def test_the_advice_that_is_offered_works(fault: Recompiled, change: Change, engine: Engine) -> None:
    before = found(fault, engine)
    assert change.remedy in before.remedies
    script = changed(fault.script, change)
    after = run(script, fault.title, engine, fault.options | change.options)
    torch.testing.assert_close(after.results, run(script, fault.title, None).results)
    assert len(after.compiles) == change.compiles < len(before.compiles)
    assert len(after.problems) == (change.compiles > 1)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_script_without_its_fault_has_no_problem(engine: Engine) -> None:
    for fault in filter(lambda each: each.happens_on(engine), RECOMPILES):
        first_call_only = fault.script + ONLY_FIRST
        ran = run(first_call_only, fault.title, engine, fault.options)
        assert ran.problems == [], fault.title


def test_every_advice_is_proven() -> None:
    proven = {change.remedy for fault in RECOMPILES for change in fault.changes}
    proven |= {fault.remedy for fault in RECOMPILES if fault.remedy}
    assert set(REMEDIES) == proven


def test_the_page_says_what_the_record_says() -> None:
    assert recompiles.PAGE.read_text() == recompiles.page(lambda fault: found(fault, "core")), (
        "run `python -m tests.docs.recompiles`"
    )


ONLY_FIRST = """

def run_first(call, run=run):
    calls = []
    def first(*args):
        if not calls:
            calls.append(args)
            call(*args)
        return None
    run(first)

run = run_first
"""

"""How what was found differs from the truth, for each kind of planted fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compiler_core.capture.break_kinds import KINDS
from compiler_core.records import Compile, Problem, Recompile
from compiler_core.records.problems import needing_action
from compiler_core.tools.questions.advice import NOTHING_TO_CHANGE
from tests.faults.fault import Broken, Fault, Recompiled


def errors(fault: Fault, engine: str, compiles: list[Compile], problems: list[Problem]) -> list[str]:
    """Returns how the compiles and problems of a script differ from the truth."""
    if isinstance(fault, Recompiled):
        return list(_of_recompile(fault, engine, compiles, problems))
    assert isinstance(fault, Broken)
    return list(_of_break(fault, engine, compiles, problems))


def _of_recompile(fault: Recompiled, engine: str, compiles: list[Compile], problems: list[Problem]) -> Iterator[str]:
    truth = fault.of(engine)
    broken = [problem for problem in problems if problem.kind == "graph break"]
    if len(broken) != fault.breaks:
        yield f"graph breaks: {[p.title for p in broken]}"
    problems = [problem for problem in problems if problem not in broken]
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


def causes(compiles: list[Compile]) -> list[Recompile]:
    """Returns the causes of recompiles."""
    return [compile_.cause for compile_ in compiles if compile_.cause is not None]


def facts(cause: Recompile) -> dict[str, Any]:
    """Returns what a cause says, as a row of the corpus has it."""
    name = cause.item if cause.aspect == "relation" else cause.name
    return {"name": name, "aspect": cause.aspect, "expected": cause.expected, "got": cause.got}


def _of_break(fault: Broken, engine: str, compiles: list[Compile], problems: list[Problem]) -> Iterator[str]:
    truth = fault.of(engine)
    if truth["grade"] != "expected":
        problems = needing_action(problems)
    if [p.kind for p in problems] != ["graph break"] * truth["problems"]:
        yield f"problems: {[(p.kind, p.title) for p in problems]}"
    breaks = [break_ for compile_ in compiles for break_ in compile_.breaks]
    if truth["reason"] not in {break_.reason for break_ in breaks}:
        yield f"reasons: {[(break_.reason, break_.kind) for break_ in breaks]}"
    if (lines := {p.lineno for p in problems}) != {truth["line"]}:
        yield f"lines: {lines}"
    if [p.grade for p in problems][:1] != [truth["grade"]]:
        yield f"grades: {[p.grade for p in problems]}"
    advice = [p.advice for p in problems]
    if engine != "core":  # what is advised follows from the reason
        ours = KINDS[truth["reason"]].hint if truth["reason"] != "other" else ""
        names = [*fault.config, fault.advice if fault.advice in ours else ""]
    else:
        names = [fault.advice]
    if not all(any(name in text for text in advice) for name in names):
        yield f"advice: {advice}"
    if engine == "core" and fault.expression not in {break_.expression for break_ in breaks}:
        yield f"expressions: {[break_.expression for break_ in breaks]}"

"""Runs the scripts of planted recompiles on an engine, and collects what is said about them."""

from __future__ import annotations

import linecache
import sys
import types
from dataclasses import dataclass
from typing import Any, Literal

import torch

import compiler_core
from compiler_core.records import Compile, Problem, Recompile, Record
from tests.faults.fault import Change

Engine = Literal["core", "torch"]
ENGINES: tuple[Engine, ...] = ("core", "torch")


@dataclass
class Run:
    """What a run of a script left behind."""

    record: Record
    results: list[Any]
    """What the calls returned, or what each raised."""

    @property
    def compiles(self) -> list[Compile]:
        return [c for c in self.record.compiles if c.outcome == "compiled"]

    @property
    def problems(self) -> list[Problem]:
        return self.record.problems

    @property
    def remedies(self) -> set[str]:
        """The kinds of the advice that is offered."""
        return {key for problem in self.problems for key in problem.remedies}


def changed(script: str, change: Change) -> str:
    """Returns the script with the change; each text that it replaces must be there."""
    for old, new in change.replace.items():
        assert old in script, f"{old!r} is not in the script"
        script = script.replace(old, new)
    return script


def run(script: str, name: str, engine: Engine | None, options: dict[str, Any] | None = None) -> Run:
    """Runs a script: eagerly if `engine` is None, else compiled and recorded."""
    filename = f"{name.replace(' ', '_')}.py"
    linecache.cache[filename] = (len(script), None, script.splitlines(keepends=True), filename)
    module = types.ModuleType("script")
    sys.modules[module.__name__] = module  # dataclasses look there
    space: dict[str, Any] = vars(module)
    space["torch"] = torch
    torch.manual_seed(0)
    exec(compile(script, filename, "exec"), space)
    results: list[Any] = []
    program = space["program"]
    if engine is None:
        _call_run(space["run"], program, results)
        return Run(Record(), results)
    torch._dynamo.reset()
    with compiler_core.record(engine=engine) as record:
        make: Any = compiler_core.compile if engine == "core" else torch.compile
        compiled = make(program, backend="eager", **(options or {}))
        _call_run(space["run"], compiled, results)
    record.find_problems()
    return Run(record, results)


def _call_run(run: Any, program: Any, results: list[Any]) -> None:
    def call(*args: Any) -> None:
        results.append(program(*args))

    if run.__code__.co_varnames[0] == "program":
        results += run(program)
    else:
        run(call)


def causes(compiles: list[Compile]) -> list[Recompile]:
    """Returns the causes of recompiles."""
    return [compile_.cause for compile_ in compiles if compile_.cause is not None]


def facts(cause: Recompile) -> dict[str, Any]:
    """Returns what a cause says, as a row of the corpus has it."""
    name = cause.item if cause.aspect == "relation" else cause.name
    return {"name": name, "aspect": cause.aspect, "expected": cause.expected, "got": cause.got}

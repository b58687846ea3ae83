"""Runs the scripts of planted faults on an engine, and collects what is said about them."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import torch

import compiler_core
from compiler_core.records import Compile, Problem, Record
from tests.cases.scripts import namespace_of
from tests.faults.fault import RUN

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


def changed(script: str, replace: dict[str, str]) -> str:
    """Returns the script with texts replaced; each must be there."""
    for old, new in replace.items():
        assert old in script, f"{old!r} is not in the script"
        script = script.replace(old, new)
    return script


def load(script: str, filename: str, rank: int = 0, compiler: Any = None) -> dict[str, Any]:
    """Runs a script, and returns what it defines."""
    text = script if "def run(" in script else script + RUN
    return namespace_of(text, filename, rank=rank, compiler=compiler)


def run(
    script: str,
    name: str,
    engine: Engine | None,
    options: dict[str, Any] | None = None,
    rank: int = 0,
    is_compiled: bool = False,
) -> Run:
    """Runs a script: eagerly if `engine` is None, else compiled and recorded.

    `is_compiled`: the script compiles what it wants to, by ``compiler``.
    """
    filename = f"{name.replace(' ', '_')}.py"
    make: Any = compiler_core.compile if engine == "core" else torch.compile
    compiler = functools.partial(make, **{"backend": "eager", **(options or {})})
    space = load(script, filename, rank, compiler)
    results: list[Any] = []
    program = space["program"]
    if engine is None:
        call_run(space["run"], program, results)
        return Run(Record(), results)
    torch._dynamo.reset()
    with compiler_core.record(engine=engine) as record, warnings.catch_warnings():
        if engine == "torch":
            warnings.simplefilter("ignore")  # stock says once what it cannot trace
        call_run(space["run"], program if is_compiled else compiler(program), results)
    record.find_problems()
    return Run(record, results)


def call_run(run: Any, program: Any, results: list[Any]) -> None:
    """Makes the calls of a script; what they return is added to `results`."""

    def call(*args: Any, **kwargs: Any) -> Any:
        results.append(program(*args, **kwargs))
        return results[-1]

    if run.__code__.co_varnames[0] == "program":
        results += run(program)
    else:
        run(call)

"""What a planted fault is: a small script, its true cause and line, and changes of the script that work."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

MARK = "  # the fault"
"""At the end of the user's line that has the fault."""

RUN = """
def run(call):
    call(torch.arange(1.0, 7.0).reshape(2, 3))
"""


@dataclass(frozen=True, eq=False)
class Change:
    """A change of the script, or options of the compile, that the advice `remedy` stands for."""

    remedy: str
    replace: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    compiles: int = 1
    """How many compiles the changed script takes."""
    engines: tuple[str, ...] = ("core", "torch")


@dataclass(frozen=True, eq=False)
class Fault:
    """A script with one planted fault.

    The script defines ``program``, and ``run(call)``, which makes the calls through ``call``; or ``run(program)``,
    whose own lines call the program, and which returns the results.  Without `run`, it is called once, with six
    numbers.
    """

    title: str
    script: str

    @property
    def line(self) -> int:
        """The number of the line that has the fault."""
        return next(i for i, text in enumerate(self.script.split("\n"), 1) if text.endswith(MARK))


@dataclass(frozen=True, eq=False)
class OfEngines(Fault):
    """A fault of which the engines may say something else."""

    facts: ClassVar[tuple[str, ...]]
    """The fields that an engine should name."""
    stock: dict[str, Any] | None = field(default_factory=dict, kw_only=True)
    """Those that differ for stock; None: stock has no such fault."""
    on_core: bool = field(default=True, kw_only=True)
    """Whether our engine has the fault, too."""
    logs: dict[str, Any] = field(default_factory=dict, kw_only=True)
    """Those that also differ in stock's logs, which have no sources of libraries."""

    def of(self, engine: str) -> dict[str, Any]:
        """Returns the facts that an engine should name; ``logs``: stock, from its logs."""
        facts = {name: getattr(self, name) for name in self.facts}
        if engine == "core":
            return facts
        return facts | (self.stock or {}) | (self.logs if engine == "logs" else {})

    def happens_on(self, engine: str) -> bool:
        """Returns whether an engine has the fault."""
        return self.on_core if engine == "core" else self.stock is not None


@dataclass(frozen=True, eq=False)
class Recompiled(OfEngines):
    """A recompile."""

    facts = ("name", "aspect", "expected", "got", "compiles", "remedy", "line", "is_confirmed")
    name: str
    """The object in the user's words."""
    aspect: str
    expected: str
    got: str
    changes: tuple[Change, ...] = ()
    remedy: str = ""
    """The advice where nothing needs to change; empty if `changes` have theirs."""
    compiles: int = 2
    problems: int = 1
    """How many problems it has: recompiles of one cause count as one."""
    breaks: int = 0
    """How many graph breaks it has besides."""
    options: dict[str, Any] = field(default_factory=dict)
    is_confirmed: bool = True


@dataclass(frozen=True, eq=False)
class Broken(OfEngines):
    """A graph break."""

    facts = ("reason", "grade", "problems", "line")
    reason: str
    """Why, in the words of both engines (`records.BreakReason`)."""
    expression: str
    """The user's code at the break, which our engine names."""
    advice: str
    """A part of our engine's advice."""
    repair: dict[str, str]
    """The script without the fault, as the advice says: what is replaced."""
    grade: str = "costly"
    problems: int = 1
    config: dict[str, bool] = field(default_factory=dict)
    """Options of Dynamo's that its advice names."""


@dataclass(frozen=True, eq=False)
class Diverged(OfEngines):
    """Ranks that do not do the same; the script has the number of the rank as ``rank``."""

    facts = ("kind", "here", "others", "line")
    kind: str
    """What differs first at the line (`tools.ranks.facts.Kind`)."""
    here: str
    """A part of what rank 1 has there, and of what rank 0 has (`others`)."""
    others: str
    repair: dict[str, str]
    """The script without the fault: what is replaced."""


@dataclass(frozen=True, eq=False)
class Repeated(Fault):
    """A compile that is slow since a block of operations is repeated."""

    blocks: int
    unit: str
    """What is compiled in place of the program, as the advice says: a function of the script."""
    compiles: int = 1
    """How many compiles that takes."""


@dataclass(frozen=True, eq=False)
class Saved(Fault):
    """Much memory between forward and backward: the largest value that is saved."""

    bytes: int
    repair: dict[str, str]


@dataclass(frozen=True, eq=False)
class Inexact(Fault):
    """A value that differs from the exact one."""

    edit: dict[str, str] = field(default_factory=dict)
    """What is wrong in the kernels; empty if the program's precision is too low."""
    repair: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Missed(Fault):
    """A miss of our cache of compiled graphs in a second run, which has ``rank`` 1."""

    name: str
    """The field of the cache's key that differs."""
    before: str
    after: str
    repair: dict[str, str]

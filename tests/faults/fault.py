"""What a planted fault is: a small script, its true cause and line, and changes of the script that work."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MARK = "  # the fault"
"""At the end of the user's line that has the fault."""

FACTS = ("name", "aspect", "expected", "got", "compiles", "remedy", "line", "is_confirmed")
"""The fields of a row that may differ for stock."""


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
class Recompiled:
    """A script with one planted recompile.

    The script defines ``program``, and ``run(call)``, which makes the calls through ``call``; or ``run(program)``,
    whose own lines call the program, and which returns the results.  A row in `stock` is what stock says instead.
    """

    title: str
    script: str
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
    options: dict[str, Any] = field(default_factory=dict)
    stock: dict[str, Any] | None = field(default_factory=dict)
    """Fields that differ for stock; None: stock does not compile again."""
    is_confirmed: bool = True

    def of(self, engine: str) -> dict[str, Any]:
        """Returns the facts that an engine should name."""
        facts = {name: getattr(self, name) for name in FACTS}
        return facts | (self.stock or {}) if engine == "torch" else facts

    def happens_on(self, engine: str) -> bool:
        return engine == "core" or self.stock is not None

    @property
    def line(self) -> int:
        """The number of the line that has the fault."""
        return next(i for i, text in enumerate(self.script.split("\n"), 1) if text.endswith(MARK))

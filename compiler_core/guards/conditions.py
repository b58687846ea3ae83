"""Conditions on sizes and numbers: ``L['x'].size()[0] % 2 == 0``.

Each is a guard of its own, with the user's line that asked; all that one compile has are checked in one
generated function, which fetches each tensor and each of its sizes once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from compiler_core.guards.sources import Attribute, Computed, Extent, Global, Item, Local, Scope, Source
from compiler_core.support.safe_repr import shown

NAMES: dict[str, Any] = {"math": math, "torch": torch}
"""What an expression may name besides its sources."""


@dataclass(frozen=True)
class Condition:
    """A Python expression over `sources`, in which each has a name; in `text`, it stands for itself."""

    code: str
    text: str
    sources: dict[str, Source]

    def holds(self, scope: Scope) -> bool:
        return bool(eval(self.code, dict(NAMES), self.values(scope)))

    def values(self, scope: Scope) -> dict[str, Any]:
        return {name: source.fetch(scope) for name, source in self.sources.items()}

    def numbers(self) -> Iterator[Source]:
        """The outside ints and floats in it."""
        work = list(self.sources.values())
        while work:
            source = work.pop()
            if isinstance(source, Computed):
                work += [arg for arg in source.args if isinstance(arg, Source)]
            elif not isinstance(source, Extent):
                yield source

    def seen(self, scope: Scope) -> str:
        """What the sources are now."""
        values = self.values(scope)
        return ", ".join(f"{source.text} is {shown(values[name])}" for name, source in self.sources.items())


def checker(conditions: Sequence[Condition], scope: Scope) -> Callable[[dict[str, Any]], bool]:
    """One function of a frame's locals that says whether all `conditions` hold."""
    return _Writer(scope).function(conditions)


class _Writer:
    """Writes that function: what is fetched on the way to two sources is fetched once."""

    def __init__(self, scope: Scope) -> None:
        self.lines: list[str] = []
        self.space: dict[str, Any] = {**NAMES, "G": scope.f_globals, "scope_of": _scope_like(scope)}
        self._names: dict[Any, str] = {}

    def function(self, conditions: Sequence[Condition]) -> Callable[[dict[str, Any]], bool]:
        sources = {name: source for condition in conditions for name, source in condition.sources.items()}
        for name, source in sources.items():
            self.lines.append(f"{name} = {self._expression(source)}")
        tests = " and ".join(f"({condition.code})" for condition in conditions)
        text = "def holds(L):\n" + "".join(f"    {line}\n" for line in [*self.lines, f"return {tests}"])
        exec(compile(text, "<cutaway conditions>", "exec"), self.space)
        made: Callable[[dict[str, Any]], bool] = self.space["holds"]
        return made

    def _variable(self, key: Any, expression: Callable[[], str]) -> str:
        """A local that holds this expression, which is computed once."""
        if key not in self._names:
            text = expression()
            self._names[key] = f"t{len(self._names)}_"
            self.lines.append(f"{self._names[key]} = {text}")
        return self._names[key]

    def _of(self, source: Source) -> str:
        return self._variable(source, lambda: self._expression(source))

    def _expression(self, source: Source) -> str:
        if isinstance(source, Extent):
            base = self._of(source.base)
            whole = self._variable((source.base, source.method), lambda: f"{base}.{source.method}()")
            return f"{whole}[{source.index}]"
        if isinstance(source, Local):
            return f"L[{source.name!r}]"
        if isinstance(source, Global) and source.module is None:
            return f"G[{source.name!r}]"
        if isinstance(source, Attribute) and source.table is None:
            return f"{self._of(source.base)}.{source.name}"
        if isinstance(source, Item) and isinstance(source.key, (int, str)):
            return f"{self._of(source.base)}[{source.key!r}]"
        if isinstance(source, Computed):
            args = [self._of(arg) if isinstance(arg, Source) else repr(arg) for arg in source.args]
            return f"{self._bound(source.function)}({', '.join(args)})"
        return f"{self._bound(source.fetch)}(scope_of(L))"

    def _bound(self, function: Callable[..., Any]) -> str:
        """A name for `function`."""
        name = f"f{len(self.space)}_"
        self.space[name] = function
        return name


def _scope_like(scope: Scope) -> Callable[[dict[str, Any]], Scope]:
    f_globals = scope.f_globals
    return lambda f_locals: Scope(f_locals, f_globals, {})

"""A hypothesis strategy for random programs, which fills the holes of the grammar."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.sweeps.fuzz.grammar import EXPRESSIONS, HOLE, INPUTS, LEAVES, LOOP_STATEMENTS, RETURN, STATEMENTS, YIELD

Draw = Callable[[st.SearchStrategy[Any]], Any]
MAX_DEPTH = 3
MAX_NESTING = 4
PREFIX = {"matrix": "x", "int": "n", "fn": "f", "counter": "count"}

IN_PLACE = re.compile(r"_\(|\] [^ ]?= |[+*/-]= |out=|total")

GLOBALS = {
    "NET": "NET = Net()",
    "BOX": "BOX = Box(torch.ones(4, 4), 2)",
    "COUNT": "COUNT = 1",
    "LOG": "LOG = [1]",
    "TOTALS": "TOTALS = {'a': 1}",
}


@dataclass
class Scope:
    """The names in scope of a block, by kind."""

    parent: Scope | None
    is_function: bool = False
    gives: str = "result"
    """The kind that the enclosing function returns, or a generator yields."""
    yields: bool = False
    in_loop: bool = False
    names: dict[str, str] = field(default_factory=dict)

    def inner(self, in_loop: bool = False) -> Scope:
        return Scope(self, False, self.gives, self.yields, self.in_loop or in_loop)

    def readable(self, kind: str) -> list[str]:
        found: dict[str, str] = {}
        at: Scope | None = self
        while at is not None:
            found = {**at.names, **found}
            at = at.parent
        return [n for n, k in found.items() if k == kind or (kind, k) == ("int", "counter")]

    def own(self, kind: str) -> list[str]:
        """Returns the names of this kind that the block may assign to."""
        at, found = self, [n for n, k in self.names.items() if k == kind]
        while not at.is_function and at.parent is not None:
            at = at.parent
            found = [*(n for n, k in at.names.items() if k == kind), *found]
        return found


@functools.cache
def _below(n: int) -> st.SearchStrategy[int]:
    return st.integers(0, n - 1)


class Writer:
    """Writes one program; each decision is drawn."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self.lines: list[str] = []
        self.indent = 0
        self._made = 0
        self._left = 40
        """The number of statements that may still be written."""
        self._header: dict[str, str] = {}
        """The names bound by the line before a block."""

    # ------------------------------------------------------------ decisions

    def below(self, n: int) -> int:
        drawn: int = self._draw(_below(n))
        return drawn

    def pick(self, options: Sequence[str]) -> str:
        return options[self.below(len(options))]

    # ------------------------------------------------------------ holes

    def expression(self, kind: str, scope: Scope, depth: int = 0) -> str:
        """Draws an expression of this kind: a variable, a form without holes, or another form of the grammar."""
        known = scope.readable(kind)
        forms = EXPRESSIONS.get(kind, [])
        choice = self.below(8)
        if not forms or depth >= MAX_DEPTH or choice < 2 + depth:
            leaves = LEAVES.get(kind, [])
            if known and (not leaves or choice != 1):
                return known[-1 - self.below(len(known))]
            return self.pick(leaves)
        return self.fill(self.form(forms, scope), scope, depth + 1)

    def form(self, forms: Sequence[str], scope: Scope) -> str:
        """Draws a form whose variables exist; one that often raises or breaks the graph is drawn rarely."""
        rarely = self.below(6) == 5
        possible = [f for f in forms if f.startswith("!") == rarely and possible_in(f, scope)]
        return self.pick(possible or [f for f in forms if possible_in(f, scope)]).removeprefix("! ")

    def fill(self, text: str, scope: Scope, depth: int = 0, named: dict[str, str] | None = None) -> str:
        """Fills the holes of one line; new names are in scope only after it."""
        named = {} if named is None else named
        result: dict[str, str] = {}

        def fill_one(hole: re.Match[str]) -> str:
            sort, kind, name = hole.groups()
            if not kind:
                return named[name]
            if sort == "+":
                found = self._new_name(kind)
                result[found] = kind
            elif sort:
                options = scope.own(kind) if sort == "=" else scope.readable(kind)
                found = options[-1 - self.below(len(options))]
            else:
                found = self.expression(scope.gives if kind == "ret" else kind, scope, depth)
            if name:
                named[name] = found
            return found

        filled = HOLE.sub(fill_one, text)
        scope.names.update(result)
        return filled

    def _new_name(self, kind: str) -> str:
        self._made += 1
        return f"{PREFIX.get(kind, kind)}{self._made}"

    # ------------------------------------------------------------ statements

    def block(self, scope: Scope, nesting: int, most: int = 4) -> None:
        """Draws one to `most` statements; names bound in the block may be unbound after it and leave the scope."""
        for _ in range(1 + self.below(most)):
            if self._left <= 0:
                break
            self._left -= 1
            self.statement(scope, nesting)
        if self.lines[-1].endswith(":"):
            self.write("pass")

    def statement(self, scope: Scope, nesting: int) -> None:
        forms = [*STATEMENTS, RETURN]
        if scope.in_loop:
            forms += LOOP_STATEMENTS
        if scope.yields:
            forms += YIELD * 4
        flat = nesting >= MAX_NESTING
        named: dict[str, str] = {}
        for line in self.form([f for f in forms if not (flat and "\n" in f)], scope).splitlines():
            self._line(line, scope, nesting, named)

    def _line(self, line: str, scope: Scope, nesting: int, named: dict[str, str]) -> None:
        text = line.lstrip()
        before, self.indent = self.indent, self.indent + (len(line) - len(text)) // 4
        if text in ("<block>", "<loop>"):
            inner = scope.inner(in_loop=text == "<loop>")
            inner.names.update(self._header)
            self.block(inner, nesting + 1)
        elif text.startswith("<function"):
            self._function(text.strip("<>").removeprefix("function "), scope, nesting)
        else:
            # what the head of a block binds may be unbound after it
            at = scope.inner() if text.endswith(":") and not text.startswith(("def", "class")) else scope
            self.write(self.fill(text, at, 0, named))
            self._header = at.names if at is not scope else {}
            if text.startswith("del <@"):
                scope.names.pop(named[text[6:-1]])
        self.indent = before

    def write(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def _function(self, signature: str, around: Scope, nesting: int) -> None:
        """Draws the body of a function such as ``a:matrix +int -> yield matrix``."""
        parameters, gives = signature.split(" -> ")
        inner = Scope(around, True, gives.removeprefix("yield "), gives.startswith("yield "))
        outer = [part[1:] for part in parameters.split() if part.startswith("+")]
        for name, _, kind in (part.partition(":") for part in parameters.split() if ":" in part):
            inner.names[name] = kind
        for kind in outer:
            self._nonlocal(kind, around, inner)
        start = len(self.lines)
        self.block(inner, nesting + 1, most=3)
        self.write(self.fill("yield <ret>" if inner.yields else "return <ret>", inner))
        self._declare_globals(start)

    def _nonlocal(self, kind: str, around: Scope, inner: Scope) -> None:
        options = [name for name in around.own(kind) if name not in inner.names]
        if options and around.parent is not None:
            name = options[-1 - self.below(len(options))]
            self.write(f"nonlocal {name}")
            inner.names[name] = kind

    def _declare_globals(self, start: int) -> None:
        if any(re.match(r"\s*COUNT = ", line) for line in self.lines[start:]):
            self.lines.insert(start, "    " * self.indent + "global COUNT")


@functools.cache
def _wants(form: str) -> list[tuple[str, str]]:
    """Returns the variables that a form requires, as (sort, kind)."""
    return [(sort, kind) for sort, kind, _ in HOLE.findall(form) if sort in ("=", "?") and sort and kind]


def possible_in(form: str, scope: Scope) -> bool:
    return all(scope.own(kind) if sort == "=" else scope.readable(kind) for sort, kind in _wants(form))


# ---------------------------------------------------------------- whole programs


def _program(draw: Draw) -> str:
    writer = Writer(draw)
    module = Scope(None)
    for _ in range(writer.below(3)):
        _module_function(writer, module)
    scope = Scope(module, is_function=True)
    kinds = ["matrix", *(writer.pick(list(INPUTS)) for _ in range(writer.below(6)))]
    parameters = [writer._new_name(kind) for kind in kinds]
    scope.names.update(zip(parameters, kinds, strict=True))
    writer.write(f"def program({', '.join(parameters)}):")
    writer.indent = 1
    start = len(writer.lines)
    writer.block(scope, 0, most=10)
    writer.write(f"return {_result(writer, scope)}")
    writer._declare_globals(start)
    body = "\n".join(writer.lines)
    # leaves that require gradients are not to be written to
    calls, grad = _calls(writer, parameters, kinds), not writer.below(4 if IN_PLACE.search(body) else 2)
    text = f"{body}\n\n\n{calls}\n\nGRAD = {grad}\n"
    used = [name for name in GLOBALS if re.search(rf"\b{name}\b", text)]
    before = "".join(f"{GLOBALS[name]}\n" for name in used)
    return f"from tests.sweeps.fuzz.parts import *\n\n{before}CHANGES = {used}\n\n\n{text}"


def _module_function(writer: Writer, module: Scope) -> None:
    writer._left += 5
    named: dict[str, str] = {}
    writer._line("def <+fn>(a, k=<digit>, *rest, key=<digit>, **more):", module, 1, named)
    writer._line("    <function a:matrix k:int key:int more:counts -> matrix>", module, 1, named)
    writer.lines += ["", ""]


def _result(writer: Writer, scope: Scope) -> str:
    """Returns the result of the program: an expression or, often, all variables."""
    if writer.below(4) == 1:
        return writer.expression("result", scope)
    hidden = ("fn", "gen", "counter", "iter")
    names = [name for name, kind in scope.names.items() if kind not in hidden and writer.below(3)]
    return f"[{', '.join(names)}]"


def _calls(writer: Writer, parameters: list[str], kinds: list[str]) -> str:
    """Returns functions that make the arguments of a first call and of later calls, which differ in some."""
    first: dict[str, str] = {}
    calls = []
    for number in range(1 + writer.below(4)):
        scope = Scope(None, is_function=True)
        lines = []
        for name, kind in zip(parameters, kinds, strict=True):
            result = first.get(name)
            if result is None or not writer.below(3):
                result = writer.fill(writer.pick([i for i in INPUTS[kind] if possible_in(i, scope)]), scope)
            first.setdefault(name, result)
            scope.names[name] = kind
            lines.append(f"    {name} = {result}")
        returned = "".join(f"{name}, " for name in parameters)
        calls.append("\n".join([f"def call_{number}():", *lines, f"    return ({returned})"]))
    names = ", ".join(f"call_{number}" for number in range(len(calls)))
    return "\n\n\n".join(calls) + f"\n\n\nCALLS = [{names}]"


@st.composite
def programs(draw: Draw) -> str:
    """The source of a module with a function `program`, `CALLS` that make its arguments, the names of the
    globals that it may change, `CHANGES`, and whether its gradients are compared, `GRAD`."""
    return _program(draw)

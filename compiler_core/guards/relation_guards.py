"""Kinds of guards on several objects, and on numbers: identity, and conditions on sizes, numbers and flags.

Each condition, such as ``L['x'].size()[0] % 2 == 0``, is a separate guard in the record, with the user's line that
caused it.  All conditions of a compile are checked by one generated function, which fetches each tensor and each of its
sizes once.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.guards.kinds import KINDS, NOTHING, Found, GuardKind, GuardSpec
from compiler_core.guards.sources import (
    AttrSource,
    ComputedSource,
    GetItemSource,
    GlobalSource,
    LocalSource,
    Scope,
    Source,
    TensorPropertySource,
)
from compiler_core.records.recompiles import Mismatch
from compiler_core.support.fx_symbols import EXPRESSION_NAMES
from compiler_core.support.interrupts import GUARD_FAILURES, guard_function
from compiler_core.support.texts import safe_repr
from compiler_core.torch_private import C_guards as cpp
from compiler_core.torch_private import DisableTorchFunction

if TYPE_CHECKING:
    from compiler_core.guards.tree import GuardTree


# ---------------------------------------------------------------- identity


def _leads_to(scope: Scope, source: Source, obj: Any) -> bool:
    try:
        return source.fetch(scope) is obj
    except GUARD_FAILURES:
        return False


def _two_objects(guard: GuardSpec, obj: Any, scope: Scope) -> Iterator[Mismatch]:
    if not _leads_to(scope, guard.value, obj):
        yield Mismatch("aliasing", "one object", "two objects", item=guard.value.shown)


def _one_object(guard: GuardSpec, obj: Any, scope: Scope) -> Iterator[Mismatch]:
    if _leads_to(scope, guard.value, obj):
        yield Mismatch("aliasing", "two objects", "one object", item=guard.value.shown)


def _install_same(tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
    cpp.install_object_aliasing_guard(tree.manager(guard.source), tree.manager(guard.value), code_parts, None)


def _install_not_same(tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
    root: Any = tree.root
    holds = guard_function(lambda f_locals: guard.holds(tree.scope_of(f_locals)))
    root.add_epilogue_lambda_guard(holds, code_parts, None)


def _equal_objects(guard: GuardSpec, obj: Any, scope: Scope) -> Iterator[Mismatch]:
    first: dict[int, Source] = {}
    for source in (guard.source, *guard.value):
        try:
            seen = first.setdefault(id(source.fetch(scope)), source)
        except GUARD_FAILURES:  # nothing is there any more: the guard on that object itself fails
            continue
        if seen is not source:
            yield Mismatch("aliasing", "two objects", "one object", item=source.shown, of=seen)
            return


def _install_all_different(tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
    sources = [guard.source, *guard.value]
    managers, names = [tree.manager(s) for s in sources], [s.text for s in sources]
    # named for tensors, it compares the identity of any objects
    cpp.install_no_tensor_aliasing_guard(managers, names, code_parts, None)


# ---------------------------------------------------------------- conditions


@dataclass(frozen=True)
class Condition:
    """A condition as a Python expression."""

    code: str
    """The expression that is evaluated; it uses the names in `sources`."""
    text: str
    """The expression for the reader, with the text of each source in place of its name."""
    shown: str
    """The expression as the user would write it."""
    sources: dict[str, Source]
    expected: str = ""
    """For a condition on one size, stride or number: the value that it must have, or its least value."""
    is_specialised: bool = False
    """Whether it is a number that the program needs itself."""

    def holds(self, scope: Scope) -> bool:
        return bool(eval(self.code, dict(EXPRESSION_NAMES), self._values(scope)))

    def failing(self, scope: Scope) -> str:
        """Returns the parts of ``a and b`` that do not hold, as the user would write them; else all of it."""
        parts, shown = _parts(self.code), _parts(self.shown)
        if len(parts) != len(shown):
            return self.shown
        values = self._values(scope)
        fails = [not eval(part, dict(EXPRESSION_NAMES), values) for part in parts]
        return " and ".join(text for text, part_fails in zip(shown, fails, strict=True) if part_fails) or self.shown

    def _values(self, scope: Scope) -> dict[str, Any]:
        return {name: source.fetch(scope) for name, source in self.sources.items()}

    def number_sources(self) -> Iterator[Source]:
        """Yields the sources that are ints and floats rather than sizes and strides of tensors."""
        work = list(self.sources.values())
        while work:
            source = work.pop()
            if isinstance(source, ComputedSource):
                work += [arg for arg in source.args if isinstance(arg, Source)]
            elif not isinstance(source, TensorPropertySource):
                yield source

    def current_values(self, scope: Scope) -> str:
        """Returns the values of the sources as text, for messages."""
        values = self._values(scope)
        shown = sorted(self.sources.items(), key=lambda each: self.shown.find(each[1].shown))
        return ", ".join(f"{source.shown} is {safe_repr(values[name])}" for name, source in shown)


def _parts(expression: str) -> list[str]:
    """Returns the operands of ``a and b``, or the expression itself."""
    try:
        found = ast.parse(expression, mode="eval").body
    except SyntaxError:
        return [expression]
    return (
        list(map(ast.unparse, found.values))
        if isinstance(found, ast.BoolOp) and isinstance(found.op, ast.And)
        else [expression]
    )


class _FunctionWriter:
    """Writes the function that checks conditions.  A value on the path to several sources is fetched once."""

    def __init__(self, scope: Scope) -> None:
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {**EXPRESSION_NAMES, "G": scope.f_globals, "scope_of": _scope_factory(scope)}
        self._names: dict[Any, str] = {}

    def function(self, conditions: Sequence[Condition]) -> Callable[[dict[str, Any]], bool]:
        """Returns a function that takes a frame's locals and returns whether all `conditions` hold."""
        sources = {name: source for condition in conditions for name, source in condition.sources.items()}
        for name, source in sources.items():
            self.lines.append(f"{name} = {self._expression(source)}")
        tests = " and ".join(f"({condition.code})" for condition in conditions)
        text = "def holds(L):\n" + "".join(f"    {line}\n" for line in [*self.lines, f"return {tests}"])
        exec(compile(text, "<cutaway conditions>", "exec"), self.namespace)
        function: Callable[[dict[str, Any]], bool] = self.namespace["holds"]
        return function

    def _variable(self, key: Any, expression: Callable[[], str]) -> str:
        """Returns the local variable that holds this expression, and assigns it the first time."""
        if key not in self._names:
            text = expression()
            self._names[key] = f"t{len(self._names)}_"
            self.lines.append(f"{self._names[key]} = {text}")
        return self._names[key]

    def _source_variable(self, source: Source) -> str:
        return self._variable(source, lambda: self._expression(source))

    def _expression(self, source: Source) -> str:
        if isinstance(source, TensorPropertySource):
            base = self._source_variable(source.base)
            extents = self._variable((source.base, source.method), lambda: f"{base}.{source.method}()")
            return f"{extents}[{source.index}]"
        if isinstance(source, LocalSource):
            return f"L[{source.name!r}]"
        if isinstance(source, GlobalSource) and source.module is None:
            return f"G[{source.name!r}]"
        if isinstance(source, AttrSource) and source.table is None:
            return f"{self._source_variable(source.base)}.{source.name}"
        if isinstance(source, GetItemSource) and isinstance(source.key, (int, str)):
            return f"{self._source_variable(source.base)}[{source.key!r}]"
        if isinstance(source, ComputedSource):
            args = [self._source_variable(arg) if isinstance(arg, Source) else repr(arg) for arg in source.args]
            return f"{self._bind(source.function)}({', '.join(args)})"
        return f"{self._bind(source.fetch)}(scope_of(L))"

    def _bind(self, function: Callable[..., Any]) -> str:
        """Adds `function` to the namespace; returns its name there."""
        name = f"f{len(self.namespace)}_"
        self.namespace[name] = function
        return name


def _scope_factory(scope: Scope) -> Callable[[dict[str, Any]], Scope]:
    f_globals = scope.f_globals
    return lambda f_locals: Scope(f_locals, f_globals, {})


def _failed_condition(guard: GuardSpec, obj: Any, scope: Scope) -> Iterator[Found]:
    condition: Condition = guard.value
    try:
        if condition.holds(scope):
            return
        found = None if condition.expected else condition.current_values(scope)
    except GUARD_FAILURES:
        yield NOTHING
        return
    source = guard.source
    if found is not None:
        yield Mismatch("relation", condition.shown, found, item=condition.failing(scope))
    elif not isinstance(source, TensorPropertySource):
        yield Mismatch("value", condition.expected, safe_repr(obj), is_specialised=condition.is_specialised)
    else:
        yield Mismatch(
            "size" if source.method == "size" else "stride", condition.expected, str(obj), (source.index,),
            is_specialised=condition.is_specialised, is_broadcast=source.method == "size" and obj in (0, 1),
            of=source.base,
        )  # fmt: skip


def install_conditions(tree: GuardTree, guards: Sequence[GuardSpec]) -> None:
    """Installs all conditions of a compile as one Python function."""
    root: Any = tree.root
    holds = _FunctionWriter(tree.scope).function([guard.value for guard in guards])
    root.add_epilogue_lambda_guard(guard_function(holds), [guard.text for guard in guards], None)


# ---------------------------------------------------------------- the kinds

KINDS |= {
    # the objects at the guard's source and at the value, another source, are one
    "SAME_OBJECT": GuardKind(
        lambda source, other: f"{source} is {other.text}",
        expected=lambda other: f"the object at {other.text}",
        differences=_two_objects,
        install=_install_same,
    ),
    "NOT_SAME_OBJECT": GuardKind(
        lambda source, other: f"{source} is not {other.text}",
        expected=lambda other: f"not the object at {other.text}",
        differences=_one_object,
        install=_install_not_same,
    ),
    # the objects at the guard's source and at the value, a tuple of sources, are all different
    "ALL_DIFFERENT": GuardKind(
        lambda source, others: f"all_different({', '.join([source, *(other.text for other in others)])})",
        expected=lambda others: "objects that are not one and the same",
        differences=_equal_objects,
        install=_install_all_different,
    ),
    # a `Condition` on sizes and numbers
    "CONDITION": GuardKind(
        lambda source, condition: condition.text,
        aspect="relation",
        expected=lambda condition: str(condition.text),
        differences=_failed_condition,
        install=lambda tree, guard, code_parts: install_conditions(tree, [guard]),
    ),
}


# ---------------------------------------------------------------- conditions on flags
#
# Conditions on a tensor of one number, which a guard computes at each call: ``bool(self.n_averaged == 0)``.


HOLE: Any = object()
"""Stands for the result of the step before among the arguments of one."""
_SIGNS = {
    operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=",
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.mod: "%", operator.floordiv: "//",
    operator.truediv: "/",
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """A call of a function or of the tensor's method of this name; its arguments are constants and `HOLE`."""

    function: Callable[..., Any] | str
    args: tuple[Any, ...]

    def __call__(self, value: Any) -> Any:
        args = [value if each is HOLE else each for each in self.args]
        return getattr(args[0], self.function)(*args[1:]) if isinstance(self.function, str) else self.function(*args)

    def text(self, inner: str) -> str:
        args = [inner if each is HOLE else safe_repr(each) for each in self.args]
        if isinstance(self.function, str):
            return f"{args[0]}.{self.function}({', '.join(args[1:])})"
        if self.function in _SIGNS:
            return f"({args[0]} {_SIGNS[self.function]} {args[1]})"
        return f"{getattr(self.function, '__name__', self.function)}({', '.join(args)})"


@dataclass(frozen=True)
class FlagCondition:
    """The truth of what some steps make of a tensor."""

    steps: tuple[Step, ...]

    def holds(self, tensor: torch.Tensor) -> bool:
        found: Any = tensor
        with DisableTorchFunction(), torch.no_grad():
            for step in self.steps:
                found = step(found)
            return bool(found)

    def text(self, source: str) -> str:
        for step in self.steps:
            source = step.text(source)
        return source

    def shown(self, name: str) -> str:
        text = self.text(name)
        return text[1:-1] if self.steps and self.steps[-1].function in _SIGNS else text


def _difference(obj: Any, wanted: tuple[FlagCondition, bool]) -> Found:
    condition, truth = wanted
    if not isinstance(obj, torch.Tensor) or obj.numel() != 1:
        return safe_repr(obj)
    return None if condition.holds(obj) == truth else str(not truth)


KINDS["CONDITION_OF_FLAG"] = GuardKind(
    lambda source, wanted: f"bool({wanted[0].text(source)}) is {wanted[1]}",
    _difference,
    aspect="value",
    expected=lambda wanted: str(wanted[1]),
    named=lambda name, wanted: wanted[0].shown(name),
)

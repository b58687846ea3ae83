"""Guards: what a kind of guard is, the guards of a compile, and both as text and as plain data for the record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from compiler_core.errors import UsageError
from compiler_core.guards.sources import (
    UNSET,
    AttrSource,
    Box,
    GetItemSource,
    GlobalSource,
    InstanceDictSource,
    Scope,
    Source,
    is_of_environment,
    path,
)
from compiler_core.records import FailedGuard, Guard, GuardAspect, ItemId, Span, Symbol
from compiler_core.records.recompiles import Mismatch
from compiler_core.support.interrupts import GUARD_FAILURES, guard_function
from compiler_core.support.texts import safe_repr

if TYPE_CHECKING:
    from compiler_core.guards.tree import GuardTree

MISSING: Any = object()
"""Stands for the value of a source that no longer leads to anything."""
NOTHING = "nothing there"
NO_VALUE = "no value"
"""What a context variable has that is not set."""
ABSENT, PRESENT = "absent", "present"
"""A key, attribute or global."""
IMMUTABLE_EXAMPLE = 0
"""An example value for managers of items: C++ skips an item with an immutable example while the version of its dict is
unchanged."""
Found = str | Mismatch | None
"""What differs from what a guard expects; None if nothing does."""


@dataclass(frozen=True)
class GuardKind:
    """A kind of guard: a row of the table `KINDS`.

    A guard on one object needs `difference`, and `add` if the C++ tree can check it; without `add` the tree calls
    `difference`.  Others have `differences` and `install` in place of both.
    """

    code: Callable[[str, Any], str]
    """Returns the condition as a Python expression, from the source's text and the value.  A comment may follow it."""
    difference: Callable[[Any, Any], Found] = lambda obj, value: None
    """Compares an object with the value."""
    add: Callable[[Any, Any, list[str]], None] | None = None
    """Adds the check to the C++ guard manager of the source; the texts are what PyTorch reports if it fails."""
    aspect: GuardAspect = "other"
    """What of the object is compared."""
    expected: Callable[[Any], str] = safe_repr
    """Returns what the condition expects, for messages."""
    named: Callable[[str, Any], str] = lambda name, value: name
    """Returns what is compared in the user's words, from those for the source and the value."""
    keeps: Callable[[Any], Any] = lambda value: value
    """Returns what a guard keeps of the value that `Capture.guard` was called with.

    It is not the object itself where a fact about the object is enough.  For a comparison of identities it is a box
    (`lifetimes.py`), which holds the object weakly if the program may drop it.
    """
    differences: Callable[[GuardSpec, Any, Scope], Iterable[Found]] | None = None
    """Checks a guard in a frame's scope; the object is that at the guard's source, or MISSING."""
    install: Callable[[GuardTree, GuardSpec, list[str]], None] | None = None
    """Installs a guard in the C++ tree."""


KINDS: dict[str, GuardKind] = {}
"""All kinds of guards by name.  The modules that define kinds fill it when the package is imported."""


def guarded_value(kind: str, value: Any) -> Any:
    """Returns what a guard of this kind keeps of `value`."""
    return KINDS[kind].keeps(value)


@dataclass(frozen=True)
class GuardSpec:
    """One guard: a condition of kind `kind` on the value at `source`.

    `value` is what the condition compares with: what `guarded_value` returned at capture.  `line` is the line
    at which capture first depended on the condition, `caller` for that of a library the user's line that called it.
    """

    kind: str
    source: Source
    value: Any
    line: ItemId | None = None
    caller: ItemId | None = None
    name: str = ""
    """The source in the user's words, where they are not `Source.shown`."""

    @property
    def text(self) -> str:
        """The condition as a Python expression."""
        return KINDS[self.kind].code(self.source.text, self.value)

    @property
    def expected(self) -> str:
        """What the condition expects, for messages."""
        return KINDS[self.kind].expected(self.value)

    def holds(self, scope: Scope) -> bool:
        """Checks the guard in Python."""
        return next(self._mismatches(self.fetch(scope), scope), None) is None

    def failures(self, scope: Scope) -> list[FailedGuard]:
        """Checks the guard in Python; returns each fact for which it does not hold."""
        obj = self.fetch(scope)
        return [self._failed(obj, found, scope) for found in self._mismatches(obj, scope)]

    def fetch(self, scope: Scope) -> Any:
        """Returns the value at the source, or MISSING."""
        try:
            return self.source.fetch(scope)
        except GUARD_FAILURES:
            return MISSING

    def install(self, tree: GuardTree) -> None:
        """Installs the guard in the C++ tree."""
        kind, value, code_parts = KINDS[self.kind], self.value, [self.text]
        if kind.install is not None:
            kind.install(tree, self, code_parts)
        elif kind.add is not None:
            kind.add(tree.manager(self.source), value, code_parts)
        else:
            holds = guard_function(lambda obj: kind.difference(obj, value) is None)
            tree.manager(self.source).add_lambda_guard(holds, code_parts, None)

    def _mismatches(self, obj: Any, scope: Scope) -> Iterator[Mismatch]:
        kind = KINDS[self.kind]
        all_found: Iterable[Found]
        if kind.differences is not None:
            all_found = kind.differences(self, obj, scope)
        else:
            all_found = [NOTHING if obj is MISSING else kind.difference(obj, self.value)]
        for found in all_found:
            if isinstance(found, str):
                yield Mismatch(kind.aspect, self.expected, found)
            elif found is not None:
                yield found

    def _failed(self, obj: Any, found: Mismatch, scope: Scope) -> FailedGuard:
        source = found.of or self.source
        if obj is UNSET or (isinstance(self.value, Box) and self.value.value is UNSET):  # a context variable
            known = NO_VALUE if obj is UNSET else safe_repr(obj)
            found = Mismatch("value", self.expected if obj is UNSET else NO_VALUE, known)
        if (of_list := _list_of_size(source, scope)) is not None:
            found, source, obj = found._replace(aspect="length", is_specialised=False), of_list, of_list.fetch(scope)
        if found.aspect == "key" and isinstance(source, InstanceDictSource):
            found, source = found._replace(aspect="attribute", item=found.item.strip("'\"")), source.base
        if is_of_environment(source):
            item, expected, got = (text.removeprefix("b") for text in (found.item, found.expected, found.got))
            found = found._replace(item=item, expected=expected, got=got)
        name = KINDS[self.kind].named((self.name if source is self.source else "") or source.shown, self.value)
        return FailedGuard(
            self.kind, self.text.partition("  # ")[0], source.text, name, found.aspect, found.expected,
            found.got, self.line, list(found.dims), found.item, found.is_specialised,
            found.is_broadcast, _place(source), "" if obj is MISSING else type(obj).__qualname__, caller=self.caller,
            member=_member(source),
        )  # fmt: skip


def _list_of_size(source: Source, scope: Scope) -> Source | None:
    """Returns the source of a `ParameterList` if this is what it keeps of its length, which users do not write."""
    if not isinstance(source, AttrSource) or source.name != "_size":
        return None
    try:
        return source.base if type(source.base.fetch(scope)) is torch.nn.ParameterList else None
    except GUARD_FAILURES:
        return None


def _member(source: Source) -> str:
    """Returns the attribute in which an object holds the value; empty if it is elsewhere."""
    if isinstance(source, GetItemSource) and isinstance(source.base, InstanceDictSource):
        return str(source.key)
    return source.name if isinstance(source, AttrSource) else ""


def _place(source: Source) -> Literal["argument", "global", "attribute"]:
    steps = list(path(source))
    if isinstance(source, AttrSource) and source.table is None and source.name in ("start", "stop", "step"):
        steps = steps[1:]  # the ends of a slice, which are passed with it
    if any(isinstance(step, (AttrSource, InstanceDictSource)) for step in steps):
        return "attribute"
    return "global" if isinstance(steps[-1], GlobalSource) else "argument"


# ---------------------------------------------------------------- the guards of a compile


def all_hold(guards: Sequence[GuardSpec], scope: Scope) -> bool:
    """Whether all guards hold."""
    return all(guard.holds(scope) for guard in guards)


def failures(guards: Sequence[GuardSpec], scope: Scope) -> list[FailedGuard]:
    """Returns each fact for which a guard does not hold.

    What differs as a consequence is left out: what is read from an object that is another one, or of another class,
    items of a list that is shorter, the list of keys of a dict that has another key, and conditions on what is not
    there, such as the second size of a vector.
    """
    found: list[FailedGuard] = []
    replaced: set[Source] = set()
    for guard in guards:
        if any(source in replaced for source in path(guard.source)):
            continue
        failed = guard.failures(scope)
        found += failed
        if any(each.is_another_object or each.got == NOTHING for each in failed):
            replaced.add(guard.source)
    other_items = {each.source for each in found if each.aspect in ("length", "key", "keys")}
    found = [each for each in found if each.got != NOTHING or each.source.rpartition("[")[0] not in other_items]
    found = [each for each in found if each.got != NOTHING or each.aspect != "relation"] or found
    with_keys = {each.source for each in found if each.aspect == "key"}
    return [each for each in found if each.aspect not in ("keys", "length") or each.source not in with_keys]


def guards_text(
    guards: Sequence[GuardSpec], kept: Sequence[bool], symbols: Sequence[Symbol] = ()
) -> tuple[str, list[Span], list[Guard]]:
    """Returns the guards as one Python function, the span of each in it, and the guards as plain data.

    Guards that are not `kept` become comments.  Comments at the top explain the `symbols` of the graphs.
    """
    lines = ["def guards(L, G):", *(f"    # {symbol_text(symbol)}" for symbol in symbols), "    return ("]
    spans = [Span(symbol.key, i, i) for i, symbol in enumerate(symbols, start=2)]
    found = guard_records(guards)
    joined = ""
    for guard, spec, keep in zip(found, guards, kept, strict=True):
        _, separator, comment = spec.text.partition("  # ")
        if keep:
            lines.append(f"        {joined}{guard.code}{separator}{comment}")
            joined = "and "
        else:
            lines.append(f"        # dropped: {guard.code}")
        guard.dropped = not keep
        spans.append(Span(guard.key, len(lines), len(lines)))
    if not any(kept):
        lines.append("        True")
    lines.append("    )")
    return "\n".join(lines) + "\n", spans, found


def symbol_text(symbol: Symbol) -> str:
    """Returns what a symbol stands for, its range or the number it became, and why, as one line."""
    if symbol.became is not None:
        return f"{symbol.key} is {symbol.source}, specialised to {symbol.became}: {symbol.condition}"
    if symbol.equals is not None:
        return f"{symbol.key} is {symbol.source}, which must equal {symbol.equals}: {symbol.condition}"
    low, high = (None if bound is None else f"{bound:g}" for bound in (symbol.low, symbol.high))
    span = ""
    if high is not None:
        span = f", {low or 'any'} to {high}"
    elif low is not None:
        span = f", from {low}"
    return f"{symbol.key} is {symbol.source}{span}: {symbol.why}"


def guard_records(guards: Sequence[GuardSpec]) -> list[Guard]:
    """Returns the guards as plain data for the record."""
    return [_guard_record(f"g{i}", guard) for i, guard in enumerate(guards)]


def _guard_record(key: str, guard: GuardSpec) -> Guard:
    code, _, _ = guard.text.partition("  # ")
    record = Guard(key, guard.kind, guard.source.text, code, guard.expected, guard.line)
    record.name, record.caller = guard.name or guard.source.shown, guard.caller
    if guard.kind == "TENSOR_MATCH":
        record.sizes = list(guard.value.sizes)
    return record


def apply_guard_filter(guards: Sequence[GuardSpec], keep: Callable[[list[Guard]], Sequence[bool]] | None) -> list[bool]:
    """Calls the user's `guard_filter`, if any; returns for each guard whether it is kept.

    Raises UsageError if the filter does not return one bool for each guard.
    """
    if keep is None:
        return [True] * len(guards)
    kept = list(keep(guard_records(guards)))
    if len(kept) != len(guards) or not all(isinstance(each, bool) for each in kept):
        raise UsageError(f"guard_filter is given {len(guards)} guards and returns True or False for each, not {kept!r}")
    return kept

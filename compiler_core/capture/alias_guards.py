"""Which outside objects must not be one and the same: a change of one was not seen through another's name."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value
from compiler_core.capture.values.user.cells import CellValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported
from compiler_core.guards import GuardSpec
from compiler_core.guards.sources import FreeCell, InstanceDict, Source

if TYPE_CHECKING:
    from compiler_core.capture.graph_builder import Capture


def must_differ(capture: Capture) -> Iterator[GuardSpec]:
    """A guard for each type of which a changed object is at hand beside others."""
    by_type: dict[type, dict[Source, None]] = {}
    for obj, source in capture.hashed.values():
        by_type.setdefault(type(obj), {})[source] = None
    owners = capture.effects.owners()
    _check_dicts(capture, owners)
    for value in [*owners, *_looked_at(capture, {type(v.real) for v in owners})]:
        by_type.setdefault(type(value.real), {})[value.source] = None
    _add_own_dicts(capture, owners, by_type)
    _add_namespaces(capture, owners, by_type)
    if capture.effects.writes_cells():
        by_type.setdefault(types.CellType, {}).update(dict.fromkeys(_cells(capture)))
    for first, *rest in by_type.values():
        if rest:
            yield GuardSpec("ALL_DIFFERENT", first, tuple(rest), None)


def own_cells(capture: Capture) -> Iterator[tuple[FreeCell, Source, bool]]:
    """A cell of the frame's own function, one that was reached otherwise, and whether they must be one and the
    same: code is shared by functions with other cells, of which guards know nothing."""
    for other, own in capture.same_cells.items():
        yield own, other, True
    if capture.effects.writes_cells(own=True):
        looked_at = [v.source for _, v in capture.seen.values() if isinstance(v, CellValue) and v.is_looked_at]
        for own in [source for source in looked_at if isinstance(source, FreeCell)]:
            yield from ((own, other, False) for other in _cells(capture) if other not in capture.same_cells)


def _check_dicts(capture: Capture, owners: list[Any]) -> None:
    """A change of an object is not seen through its ``__dict__``, should that be at hand as a dict of its own."""
    dicts = {id(obj): value for obj, value in capture.seen.values() if type(obj) is dict} if owners else {}
    changed = {id(owner) for owner in owners}
    for obj, value in capture.seen.values() if dicts else ():
        own = dicts.get(id(getattr(obj, "__dict__", None))) if isinstance(value, ObjectValue) else None
        if own is not None and (id(own) in changed or id(value) in changed):
            raise Unsupported("unsupported mutation", f"{value} beside its own __dict__")


def _add_own_dicts(capture: Capture, owners: list[Any], by_type: dict[type, dict[Source, None]]) -> None:
    """A dict may turn out to be the ``__dict__`` of an object: one of the two was changed, the other looked at."""
    if any(type(v.real) is dict for v in owners):
        objects = [v for _, v in capture.seen.values() if isinstance(v, ObjectValue) and _is_looked_at(capture, v)]
    else:
        objects = [v for v in owners if isinstance(v, ObjectValue)] if _looked_at(capture, {dict}) else []
    own = [InstanceDict(v.source) for v in objects if v.source is not None and hasattr(v.real, "__dict__")]
    if own:
        dicts = by_type.setdefault(dict, {})
        dicts.update(dict.fromkeys([v.source for v in _looked_at(capture, {dict})] + own))


def _add_namespaces(capture: Capture, owners: list[Any], by_type: dict[type, dict[Source, None]]) -> None:
    """A dict may turn out to be the globals of a function: one of the two was changed, the other looked at."""
    changed = [v for v in owners if type(v.real) is dict]
    for value in changed:
        if id(value.real) in capture.namespaces:
            raise Unsupported("unsupported mutation", f"{value}, which is the globals")
    dicts = _looked_at(capture, {dict}) if capture.effects.writes_globals() else changed
    others = [v.source for v in dicts if id(v.real) not in capture.namespaces]
    if others:
        by_type.setdefault(dict, {}).update(dict.fromkeys([*others, *capture.namespaces.values()]))


def _looked_at(capture: Capture, classes: set[type]) -> list[Any]:
    """The outside objects of these very types that something depends on."""
    return [v for obj, v in capture.seen.values() if type(obj) in classes and _is_looked_at(capture, v)]


def _is_looked_at(capture: Capture, value: Value) -> bool:
    kinds = ("TYPE_MATCH", "TENSOR_MATCH")
    return value.source is not None and any((kind, value.source, None) in capture.guards for kind in kinds)


def _cells(capture: Capture) -> list[Source]:
    """The cells of outside functions that were read or written."""
    found = [v for _, v in capture.seen.values() if isinstance(v, CellValue) and v.is_looked_at]
    return [v.source for v in found if v.source is not None and not isinstance(v.source, FreeCell)]

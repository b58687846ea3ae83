"""Guards that outside objects are distinct: capture did not apply a change of one to the others."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value
from compiler_core.capture.values.user.cells import CellValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported
from compiler_core.guards import GuardSpec
from compiler_core.guards.sources import FreeCellSource, InstanceDictSource, Source

if TYPE_CHECKING:
    from compiler_core.capture.graph_builder import Capture


def distinct_object_guards(capture: Capture) -> Iterator[GuardSpec]:
    """Yields a guard for each type if one object of it was changed and others were read or changed."""
    by_type: dict[type, dict[Source, None]] = {}
    for obj, source in capture.identity_keys.values():
        by_type.setdefault(type(obj), {})[source] = None
    owners = capture.effects.owners()
    _check_instance_dicts(capture, owners)
    for value in [*owners, *_guarded_objects(capture, {type(v.real) for v in owners})]:
        by_type.setdefault(type(value.real), {})[value.source] = None
    _add_instance_dicts(capture, owners, by_type)
    _add_namespaces(capture, owners, by_type)
    yield from _namespace_identities(capture, by_type.get(dict, {}))
    if capture.effects.writes_cells():
        by_type.setdefault(types.CellType, {}).update(dict.fromkeys(_cells(capture)))
    for first, *rest in by_type.values():
        if rest:
            yield GuardSpec("ALL_DIFFERENT", first, tuple(rest), None)


def cell_identities(capture: Capture) -> Iterator[tuple[FreeCellSource, Source, bool]]:
    """Yields a cell of the frame's own function, a cell reached in another way, and whether they must be the same.

    Generated code checks it, because functions with different cells share a code object and guards do not see cells.
    """
    for other, own in capture.same_cells.items():
        yield own, other, True
    if capture.effects.writes_cells(own=True):
        read = [v.source for _, v in capture.values_by_id.values() if isinstance(v, CellValue) and v.is_read]
        for own in [source for source in read if isinstance(source, FreeCellSource)]:
            yield from ((own, other, False) for other in _cells(capture) if other not in capture.same_cells)


def _check_instance_dicts(capture: Capture, owners: list[Any]) -> None:
    """Raises Unsupported if an object was changed and its ``__dict__`` was reached as a dict, or the reverse."""
    if not owners:
        return
    dicts = {id(obj): value for obj, value in capture.values_by_id.values() if type(obj) is dict}
    if not dicts:
        return
    changed = {id(owner) for owner in owners}
    for obj, value in capture.values_by_id.values():
        own = dicts.get(id(getattr(obj, "__dict__", None))) if isinstance(value, ObjectValue) else None
        if own is not None and (id(own) in changed or id(value) in changed):
            raise Unsupported("unsupported mutation", f"{value} beside its own __dict__")


def _add_instance_dicts(capture: Capture, owners: list[Any], by_type: dict[type, dict[Source, None]]) -> None:
    """Adds the ``__dict__`` of objects, which may be an outside dict in another call.

    It matters if one of the two was changed and the other was read.
    """
    if any(type(v.real) is dict for v in owners):
        objects = [
            v for _, v in capture.values_by_id.values() if isinstance(v, ObjectValue) and _is_guarded(capture, v)
        ]
    else:
        objects = [v for v in owners if isinstance(v, ObjectValue)] if _guarded_objects(capture, {dict}) else []
    own = [InstanceDictSource(v.source) for v in objects if v.source is not None and hasattr(v.real, "__dict__")]
    if own:
        dicts = by_type.setdefault(dict, {})
        dicts.update(dict.fromkeys([v.source for v in _guarded_objects(capture, {dict})] + own))


def _add_namespaces(capture: Capture, owners: list[Any], by_type: dict[type, dict[Source, None]]) -> None:
    """Adds the globals of functions, which may be an outside dict in another call.

    It matters if one of the two was changed and the other was read.
    """
    changed = [v for v in owners if type(v.real) is dict]
    for value in changed:
        if id(value.real) in capture.namespaces:
            raise Unsupported("unsupported mutation", f"{value}, which is the globals")
    dicts = _guarded_objects(capture, {dict}) if capture.effects.writes_globals() else changed
    others = [v.source for v in dicts if id(v.real) not in capture.namespaces]
    if others:
        by_type.setdefault(dict, {}).update(dict.fromkeys([*others, *capture.namespaces.values()]))


def _namespace_identities(capture: Capture, dicts: dict[Source, None]) -> Iterator[GuardSpec]:
    """Yields a guard for each of `dicts` that is the globals of a function, and removes it where those are listed."""
    for value in _guarded_objects(capture, {dict}):
        namespace = capture.namespaces.get(id(value.real))
        if namespace is not None and {namespace, value.source} <= dicts.keys() and namespace != value.source:
            del dicts[value.source]
            yield GuardSpec("SAME_OBJECT", namespace, value.source, None)


def _guarded_objects(capture: Capture, classes: set[type]) -> list[Any]:
    """Returns the outside objects of exactly these types that are guarded, because something depends on them."""
    return [v for obj, v in capture.values_by_id.values() if type(obj) in classes and _is_guarded(capture, v)]


def _is_guarded(capture: Capture, value: Value) -> bool:
    kinds = ("TYPE_MATCH", "TENSOR_MATCH")
    return value.source is not None and any((kind, value.source, None) in capture.guards for kind in kinds)


def _cells(capture: Capture) -> list[Source]:
    """Returns the cells of outside functions that were read or written."""
    found = [v for _, v in capture.values_by_id.values() if isinstance(v, CellValue) and v.is_read]
    return [v.source for v in found if v.source is not None and not isinstance(v.source, FreeCellSource)]

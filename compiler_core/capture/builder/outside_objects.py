"""The objects from outside the frame that one capture attempt has met, and the values that stand for them."""

from __future__ import annotations

import types
from typing import Any

from compiler_core.capture.builder.guard_collector import GuardCollector
from compiler_core.capture.side_effects import SideEffects
from compiler_core.capture.tensors.dynamic_policy import DynamicPolicy
from compiler_core.capture.value_builder import build_value, is_static
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import ConstantValue, from_python, is_atom, is_instance
from compiler_core.capture.values.builtin.keys import ObjectKey
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.builtin.symbols import SymbolicNumber
from compiler_core.capture.values.user.cells import CellValue
from compiler_core.capture.values.user.functions import FunctionValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import ConstantSource, FreeCellSource, Scope, Source, root_source


class OutsideObjects(GuardCollector):
    """Maps objects from outside the frame to values: one value for each object, however it is reached."""

    def __init__(self, scope: Scope, policy: DynamicPolicy) -> None:
        super().__init__(scope, policy)
        self.effects = SideEffects()
        self.values_by_id: dict[int, tuple[Any, Value]] = {}
        """Outside objects by their id, each with the value that stands for it."""
        self.identity_keys: dict[int, tuple[Any, Source]] = {}
        """Outside objects that were used as dict keys or set elements, and compare by identity."""
        self.tuple_keys: dict[int, tuple[tuple[Any, ...], Value]] = {}
        """Tuples used as dict keys, each with the value it was made from, which reading the key returns."""
        self.namespaces: dict[int, ConstantSource] = {}
        """The globals of the frame and of the functions that it calls, by their id."""
        self.same_cells: dict[Source, FreeCellSource] = {}
        """Cells of the frame's own function that were reached through another function's closure."""

    def wrap(self, obj: Any, source: Source | None) -> Value:
        """Returns the value of an outside object; the same object always gives the same value.

        If `source` is None, the object was reached through something guarded that is assumed not to change, such as a
        function of a class.
        """
        if type(obj) in (int, float) and source is not None:
            reason = self.symbols.policy.symbol_reason(obj, source)
            if reason is not None:
                return SymbolicNumber(self.symbols.symbol_for_number(obj, source, reason), source)
        if is_atom(obj):
            return ConstantValue(obj, source)
        if is_static(obj):
            return self._static(obj, source)
        path = source or self.held(obj, getattr(obj, "__name__", type(obj).__name__))
        if id(obj) in self.values_by_id:
            value = self.values_by_id[id(obj)][1]
            if value.source is not None and value.source != path:
                self.guard("SAME_OBJECT", path, value.source)
            return value
        value = build_value(self, obj, path)  # type: ignore[arg-type]  # the only subclass is Capture
        self.values_by_id[id(obj)] = (obj, value)
        return value

    def wrap_static(self, obj: Any) -> Value:
        """Returns the value of an object that is assumed not to change."""
        return self.wrap(obj, None)

    def wrap_attribute(self, obj: Any, source: Source) -> Value:
        """Returns the value of a class attribute or default; functions and classes are assumed not to change there."""
        return self._static(obj, None) if is_static(obj) else self.wrap(obj, source)

    def _static(self, obj: Any, source: Source | None) -> Value:
        if is_instance(obj, types.FunctionType):
            return FunctionValue.from_outside(self, obj, source)
        return StaticValue(obj, source)

    def cell(self, cell: types.CellType, source: Source) -> CellValue:
        """Returns the value of a cell; a cell that is reached by two paths is guarded to be the same on both."""
        if id(cell) not in self.values_by_id:
            self.values_by_id[id(cell)] = (cell, CellValue(source=source, real=cell))
        found = self.values_by_id[id(cell)][1]
        assert isinstance(found, CellValue)
        assert found.source is not None
        if found.source != source:
            self._guard_same_cell(found.source, source)
        return found

    def _guard_same_cell(self, known: Source, source: Source) -> None:
        if isinstance(known, FreeCellSource):
            self.same_cells[source] = known
        elif isinstance(source, FreeCellSource):
            self.same_cells[known] = source
        elif not all(isinstance(root_source(s), ConstantSource) for s in (known, source)):
            self.guard("SAME_OBJECT", source, known)

    def namespace(self, f_globals: dict[str, Any]) -> ConstantSource | None:
        """Returns a source for the globals of an inlined function or of a module; None for the frame's own globals."""
        held = self.namespaces[id(f_globals)] = self.held(f_globals, str(f_globals.get("__name__", "globals")))
        return None if f_globals is self.scope.f_globals else held

    def check_globals_unchanged(self, namespace: Any) -> None:
        """Raises Unsupported if `namespace` is the globals of code that has stored a global."""
        held = self.namespaces.get(id(namespace))
        if held is not None and self.effects.writes_globals(None if namespace is self.scope.f_globals else held):
            raise Unsupported("unsupported call", "a read of globals through their dict, after some were stored")

    def key_value(self, key: Any) -> Value:
        """Returns a dict key as a value."""
        if isinstance(key, ObjectKey):
            return key.value
        if type(key) is tuple:
            known = self.tuple_keys.get(id(key))
            return known[1] if known else TupleValue([self.key_value(k) for k in key])
        if isinstance(key, Value):
            return key
        return from_python(key) if is_atom(key) or isinstance(key, (tuple, frozenset)) else self.wrap_static(key)

"""Identity and equality of symbolic values, with the guards that they need."""

from __future__ import annotations

from compiler_core.capture.opcodes.stack import InterpreterState
from compiler_core.capture.rules.python.operators import equal
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.symbols import is_symbolic
from compiler_core.capture.values.user.functions import FunctionValue
from compiler_core.errors import Unsupported
from compiler_core.guards.constants import may_be_distinct_objects


class Comparisons(InterpreterState):
    """The comparisons of the interpreter: ``a is b``, and ``a is b or a == b``, by which containers find items."""

    def is_same(self, a: Value, b: Value) -> bool:
        """``a is b``, guarded where the answer depends on objects from outside the frame."""
        tx = self._tx
        a.install_guards(tx)
        b.install_guards(tx)
        same = a.same_object(b)
        both_outside = a.source is not None and b.source is not None
        if both_outside and not same and not a.is_constant() and not b.is_constant():
            assert a.source is not None
            self.capture.guard("NOT_SAME_OBJECT", a.source, b.source)
        if same and isinstance(a, FunctionValue) and a.source is not None and b.source not in (None, a.source):
            self.capture.guard("SAME_OBJECT", a.source, b.source)
        if isinstance(a, ConstantValue) and isinstance(b, ConstantValue) and not is_symbolic([a, b]):
            if may_be_distinct_objects(a.value, b.value):
                self._guard_identity(a, b, same)
        return same

    def is_none(self, value: Value) -> bool:
        """``value is None``"""
        return self.is_same(value, NONE)

    def _guard_identity(self, a: ConstantValue, b: ConstantValue, same: bool) -> None:
        """Guards whether two equal constants are one object."""
        if a.source is not None and b.source is not None:
            if a.source != b.source:
                self.capture.guard("SAME_OBJECT" if same else "NOT_SAME_OBJECT", a.source, b.source)
            return
        outside = a.source or b.source
        if outside is None:
            return
        if not same:  # in another call, the object from outside may be the literal
            raise Unsupported("unsupported operation", f"{a} is {b}, which are equal")
        self.capture.guard("ID_MATCH", outside, a.value)

    def is_same_or_equal(self, a: Value, b: Value) -> bool:
        """``a is b or a == b``, which is how containers search for an item."""
        tx = self._tx
        if is_symbolic([a, b]):
            return equal(tx, a, b)
        if isinstance(a, ConstantValue) and isinstance(b, ConstantValue) and a.constant(tx) == b.constant(tx):
            return True
        return self.is_same(a, b) or equal(tx, a, b)

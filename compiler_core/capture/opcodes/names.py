"""Opcodes for globals, attributes and imports."""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from typing import TYPE_CHECKING, cast

from compiler_core.bytecode import Instruction
from compiler_core.capture.opcodes.stack import InterpreterState
from compiler_core.capture.value_builder import is_static
from compiler_core.capture.values.base import NULL, UNBOUND, ObservedException, Value
from compiler_core.capture.values.user.super import SuperValue
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import is_library
from compiler_core.guards.sources import GlobalSource

if TYPE_CHECKING:
    pass


def _is_loaded(module: str, name: str = "__name__") -> bool:
    return module in sys.modules and name in vars(sys.modules[module])


BEFORE_3_13 = sys.version_info < (3, 13)


class NameOpcodes(InterpreterState):
    """Globals, attributes and imports."""

    # --- globals

    def _global(self, name: str) -> Value:
        stored = self.capture.effects.global_value(self.module, name)
        if stored is UNBOUND:
            raise Unsupported("exception", f"name {name!r} is not defined")
        if stored is not None:
            return stored
        if name in self.f_globals:
            found, home = self.f_globals[name], str(self.f_globals.get("__name__", ""))
            if self.module is not None and is_static(found) and is_library(home):
                self.capture.guard_library_name(self.f_globals, home, name)
                return self.capture.wrap(found, None)
            return self.capture.wrap(found, GlobalSource(name, self.module))
        if name in self.f_builtins:
            if self.module is None:
                self.capture.guard("GLOBAL_ABSENT", GlobalSource(name), name)
            elif not is_library(self.f_globals.get("__name__", "")):
                self.capture.guard("DICT_CONTAINS", self.module, name)
            return self.capture.wrap(
                self.f_builtins[name], GlobalSource(name, self.capture.held(self.f_builtins, "builtins"))
            )
        raise Unsupported("exception", f"name {name!r} is not defined")

    def LOAD_GLOBAL(self, instruction: Instruction) -> None:
        value = self._global(cast(str, instruction.argval))
        self._push_callable(value, bool((instruction.arg or 0) & 1))

    def _push_callable(self, value: Value, with_null: bool) -> None:
        """Pushes a value and, if a call follows, CPython's NULL below it (from 3.13 on, above it)."""
        if with_null and BEFORE_3_13:
            self.push(NULL)
        self.push(value)
        if with_null and not BEFORE_3_13:
            self.push(NULL)

    def STORE_GLOBAL(self, instruction: Instruction) -> None:
        self.capture.effects.store_global(self.module, cast(str, instruction.argval), self.pop())

    def DELETE_GLOBAL(self, instruction: Instruction) -> None:
        self._global(cast(str, instruction.argval))
        if self.module is not None:
            raise Unsupported("unsupported mutation", "del of another module's global")
        self.capture.effects.store_global(None, cast(str, instruction.argval), UNBOUND)

    # --- attributes

    def LOAD_ATTR(self, instruction: Instruction) -> None:
        owner = self.pop()
        method_form = sys.version_info >= (3, 12) and bool((instruction.arg or 0) & 1)
        self._push_callable(owner.get_attr(self._tx, cast(str, instruction.argval)), method_form)

    def LOAD_METHOD(self, instruction: Instruction) -> None:
        owner = self.pop()
        self._push_callable(owner.get_attr(self._tx, cast(str, instruction.argval)), True)

    def LOAD_SUPER_ATTR(self, instruction: Instruction) -> None:
        _, cls, owner = self.pop_many(3)
        value = SuperValue.create(self._tx, cls.constant(self._tx), owner)
        found = value.get_attr(self._tx, cast(str, instruction.argval))
        self._push_callable(found, bool((instruction.arg or 0) & 1))

    def STORE_ATTR(self, instruction: Instruction) -> None:
        owner = self.pop()
        owner.set_attr(self._tx, cast(str, instruction.argval), self.pop())

    def DELETE_ATTR(self, instruction: Instruction) -> None:
        self.pop().del_attr(self._tx, cast(str, instruction.argval))

    # --- imports

    def IMPORT_NAME(self, instruction: Instruction) -> None:
        names, level = self.pop(), self.pop().constant(self._tx)
        name = cast(str, instruction.argval)
        if level:
            name = importlib.util.resolve_name("." * level + name, self.f_globals.get("__package__"))
        if name not in sys.modules:
            self.capture.awaited.append(self.capture.held(partial(_is_loaded, name), f"{name}.is_loaded"))
            raise Unsupported("unsupported instruction", f"import of {name!r}, which is not loaded yet")
        wanted = names.constant(self._tx) or ()
        module = sys.modules[name if level or wanted else name.partition(".")[0]]
        lacks = [n for n in wanted if n not in vars(module)] if hasattr(module, "__path__") else []
        if lacks:
            has_name = partial(_is_loaded, name, lacks[0])
            self.capture.awaited.append(self.capture.held(has_name, f"{name}.{lacks[0]}.is_loaded"))
            raise Unsupported("unsupported instruction", f"import of {lacks[0]!r} from {name!r}, which lacks it so far")
        self.push(self.capture.wrap_static(module))

    def IMPORT_FROM(self, instruction: Instruction) -> None:
        name = cast(str, instruction.argval)
        try:
            self.push(self.stack[-1].get_attr(self._tx, name))
        except ObservedException as error:
            raise Unsupported("exception", f"cannot import name {name!r}") from error

"""Opcodes for locals, cells, globals, attributes, constants and imports, and those that only move values."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from compiler_core.bytecode import Instruction
from compiler_core.capture.opcodes.table import opcode, opcodes
from compiler_core.capture.outside_objects import is_static
from compiler_core.capture.values.base import NULL, UNBOUND, ObservedException, Value, observed_exception
from compiler_core.capture.values.builtin.constant import is_atom
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.builtin.sets import SetValue
from compiler_core.capture.values.builtin.static import StaticValue, from_python
from compiler_core.capture.values.user.functions import CellValue
from compiler_core.capture.values.user.objects import SuperValue
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import is_library
from compiler_core.guards.sources import GlobalSource
from compiler_core.records.capture import library_of
from compiler_core.support.interrupts import raised_by_handler
from compiler_core.support.torch_state import as_in_program

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

BEFORE_3_13 = sys.version_info < (3, 13)


def _name(instruction: Instruction) -> str:
    assert isinstance(instruction.argval, str)
    return instruction.argval


@opcode()
def SWAP(tx: Interpreter, instruction: Instruction) -> None:
    assert instruction.arg is not None
    i = -instruction.arg
    tx.stack[-1], tx.stack[i] = tx.stack[i], tx.stack[-1]


# --- locals


def _load(tx: Interpreter, name: Any) -> Value:
    value = tx.locals.get(name, UNBOUND)
    if value is UNBOUND:
        raise _unbound_error(name)
    return value


@opcode()
def LOAD_FAST_AND_CLEAR(tx: Interpreter, instruction: Instruction) -> None:
    """Saves a variable whose slot an inlined comprehension uses; the variable may be a cell."""
    name = _name(instruction)
    shared = name in tx.code.co_cellvars and name in tx.cells
    tx.push(tx.cells.pop(name) if shared else tx.locals.pop(name, UNBOUND))


def _store(tx: Interpreter, name: str, value: Value) -> None:
    if isinstance(value, CellValue) and name in (*tx.code.co_cellvars, *tx.code.co_freevars):
        tx.cells[name] = value  # restored after an inlined comprehension, which used the slot
        tx.locals.pop(name, None)
    else:
        tx.locals[name] = value


@opcode()
def LOAD_FAST_LOAD_FAST(tx: Interpreter, instruction: Instruction) -> None:
    tx.stack += [_load(tx, name) for name in cast("tuple[str, ...]", instruction.argval)]


def _store_two(tx: Interpreter, instruction: Instruction, second: Value, first: Value) -> None:
    for name, value in zip(cast("tuple[str, ...]", instruction.argval), (first, second), strict=True):
        _store(tx, name, value)


def _store_and_load(tx: Interpreter, instruction: Instruction, value: Value) -> Value:
    stored, loaded = cast("tuple[str, ...]", instruction.argval)
    _store(tx, stored, value)
    return _load(tx, loaded)


@opcode()
def DELETE_FAST(tx: Interpreter, instruction: Instruction) -> None:
    _load(tx, instruction.argval)
    del tx.locals[_name(instruction)]


# --- cells


def _cell(tx: Interpreter, instruction: Instruction) -> CellValue:
    return tx.cells[_name(instruction)]


def _cell_value(tx: Interpreter, instruction: Instruction) -> Value:
    cell = _cell(tx, instruction)
    if not cell.is_empty():
        return cell.get(tx)
    name = instruction.argval
    if name in tx.code.co_cellvars:
        raise _unbound_error(name)
    text = f"cannot access free variable {name!r} where it is not associated with a value in enclosing scope"
    raise observed_exception(NameError, text)


@opcode()
def DELETE_DEREF(tx: Interpreter, instruction: Instruction) -> None:
    _cell_value(tx, instruction)
    if _cell(tx, instruction).source is not None:
        raise Unsupported("unsupported instruction", "del of a variable of the enclosing function")
    _cell(tx, instruction).set(tx, UNBOUND)


def _unbound_error(name: object) -> ObservedException:
    return observed_exception(
        UnboundLocalError, f"cannot access local variable {name!r} where it is not associated with a value"
    )


def load_constant(tx: Interpreter, obj: Any) -> Value:
    """Returns the value of a constant of a code object."""
    if is_atom(obj):
        return from_python(obj)
    if type(obj) in (tuple, frozenset):
        if type(obj) is tuple:
            return TupleValue([load_constant(tx, v) for v in obj])
        return SetValue.from_members(obj)
    if hasattr(obj, "co_code"):
        return StaticValue(obj)
    # an object that generated code, such as the code around a resume function, has as a constant
    return tx.outside.wrap(obj)


def _is_loaded(module: str, name: str = "__name__") -> bool:
    return module in sys.modules and name in vars(sys.modules[module])


# --- globals


def _global(tx: Interpreter, name: str) -> Value:
    stored = tx.effects.global_value(tx.module, name)
    if stored is UNBOUND:
        raise Unsupported("exception", f"name {name!r} is not defined")
    if stored is not None:
        return stored
    if name in tx.f_globals:
        found, home = tx.f_globals[name], str(tx.f_globals.get("__name__", ""))
        if tx.module is not None and is_static(found) and is_library(home):
            tx.guards.add_library_name(tx.f_globals, home, name)
            return tx.outside.wrap(found)
        return tx.outside.wrap(found, GlobalSource(name, tx.module))
    if name in tx.f_builtins:
        if tx.module is None:
            tx.guards.add("GLOBAL_ABSENT", GlobalSource(name), name)
        elif not is_library(tx.f_globals.get("__name__", "")):
            tx.guards.add("DICT_CONTAINS", tx.module, name)
        return tx.outside.wrap(tx.f_builtins[name], GlobalSource(name, tx.guards.held(tx.f_builtins, "builtins")))
    raise Unsupported("exception", f"name {name!r} is not defined")


@opcode()
def LOAD_GLOBAL(tx: Interpreter, instruction: Instruction) -> None:
    value = _global(tx, _name(instruction))
    _push_callable(tx, value, bool((instruction.arg or 0) & 1))


def _push_callable(tx: Interpreter, value: Value, with_null: bool) -> None:
    """Pushes a value and, if a call follows, CPython's NULL below it (from 3.13 on, above it)."""
    if with_null and BEFORE_3_13:
        tx.push(NULL)
    tx.push(value)
    if with_null and not BEFORE_3_13:
        tx.push(NULL)


@opcode()
def DELETE_GLOBAL(tx: Interpreter, instruction: Instruction) -> None:
    _global(tx, _name(instruction))
    if tx.module is not None:
        raise Unsupported("unsupported mutation", "del of another module's global")
    tx.effects.store_global(None, _name(instruction), UNBOUND)


# --- attributes


@opcode()
def LOAD_ATTR(tx: Interpreter, instruction: Instruction) -> None:
    owner = tx.pop()
    method_form = sys.version_info >= (3, 12) and bool((instruction.arg or 0) & 1)
    _push_callable(tx, owner.get_attr(tx, _name(instruction)), method_form)


@opcode()
def LOAD_METHOD(tx: Interpreter, instruction: Instruction) -> None:
    owner = tx.pop()
    _push_callable(tx, owner.get_attr(tx, _name(instruction)), True)


@opcode()
def LOAD_SUPER_ATTR(tx: Interpreter, instruction: Instruction) -> None:
    _, cls, owner = tx.pop_many(3)
    value = SuperValue.create(tx, cls.constant(tx), owner)
    found = value.get_attr(tx, _name(instruction))
    _push_callable(tx, found, bool((instruction.arg or 0) & 1))


opcodes(
    **dict.fromkeys(("NOP", "RESUME", "PRECALL", "CACHE", "COPY_FREE_VARS"), (0, lambda tx, at: None)),
    POP_TOP=(1, lambda tx, at, value: None),
    PUSH_NULL=(0, lambda tx, at: NULL),
    COPY=(0, lambda tx, at: tx.stack[-at.arg]),
    LOAD_CONST=(0, lambda tx, at: load_constant(tx, at.argval)),
    **dict.fromkeys(("LOAD_FAST", "LOAD_FAST_CHECK"), (0, lambda tx, at: _load(tx, at.argval))),
    **dict.fromkeys(("STORE_FAST", "STORE_FAST_MAYBE_NULL"), (1, lambda tx, at, value: _store(tx, at.argval, value))),
    STORE_FAST_STORE_FAST=(2, _store_two),
    STORE_FAST_LOAD_FAST=(1, _store_and_load),
    MAKE_CELL=(0, lambda tx, at: tx.cells.update({at.argval: CellValue(tx.locals.pop(at.argval, UNBOUND))})),
    LOAD_CLOSURE=(0, lambda tx, at: _cell(tx, at)),
    **dict.fromkeys(("LOAD_DEREF", "LOAD_CLASSDEREF"), (0, _cell_value)),
    STORE_DEREF=(1, lambda tx, at, value: _cell(tx, at).set(tx, value)),
    STORE_GLOBAL=(1, lambda tx, at, value: tx.effects.store_global(tx.module, at.argval, value)),
    STORE_ATTR=(2, lambda tx, at, value, owner: owner.set_attr(tx, at.argval, value)),
    DELETE_ATTR=(1, lambda tx, at, owner: owner.del_attr(tx, at.argval)),
)


# --- imports


@opcode()
def IMPORT_NAME(tx: Interpreter, instruction: Instruction) -> None:
    names, level = tx.pop(), tx.pop().constant(tx)
    name = _name(instruction)
    if level:
        name = importlib.util.resolve_name("." * level + name, tx.f_globals.get("__package__"))
    wanted = names.constant(tx) or ()
    lacks = _lacking(name, wanted)
    if lacks and _is_imported_now(tx, name, wanted):
        lacks = _lacking(name, wanted)
    if lacks:
        is_loaded, module = partial(_is_loaded, *lacks), ".".join(lacks)
        source = tx.guards.held(is_loaded, f"{module}.is_loaded")
        tx.capture.awaited.append(("RETURNS", source, False))
        raise Unsupported("unsupported instruction", f"import of {module!r}, which is not loaded yet")
    tx.push(tx.outside.wrap(sys.modules[name if level or wanted else name.partition(".")[0]]))


def _lacking(name: str, wanted: Sequence[str]) -> tuple[str, ...]:
    """Returns the module that an import would load, or the package and the name that it would look for there."""
    if name not in sys.modules:
        return (name,)
    module = sys.modules[name]
    is_package = hasattr(module, "__path__")
    return next(((name, each) for each in wanted if is_package and each not in vars(module)), ())


def _is_imported_now(tx: Interpreter, name: str, wanted: Sequence[str]) -> bool:
    """Runs an import if it does the same here as in its place; returns whether it ran.

    It is one of an installed module, which reads nothing that the frame has changed; nor may it change anything that
    capture has read.
    """
    capture = tx.capture
    if capture.changes() or capture.overrides.modes or not _is_installed(name):
        return False
    statement = f"from {name} import {', '.join(wanted)}" if wanted else f"import {name}"
    at_its_line = compile("\n" * (tx.lineno - 1) + statement, tx.code.co_filename, "exec")
    try:
        with as_in_program(capture.overrides.enabled):
            exec(at_its_line, tx.f_globals, {})
    except Exception as error:
        if raised_by_handler(error):
            raise
        return False  # Python raises it
    if not capture.guards_hold():
        raise Unsupported("unsupported instruction", f"import of {name!r}, which changed what the frame has read")
    return True


def _is_installed(name: str) -> bool:
    """Whether a module is Python's or of an installed package, which does not look at the program's own state."""
    top = name.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except Exception:  # a finder of the program fails
        return False
    return is_library(top) or (spec is not None and library_of(spec.origin or "") != "")


@opcode()
def IMPORT_FROM(tx: Interpreter, instruction: Instruction) -> None:
    name = _name(instruction)
    try:
        tx.push(tx.stack[-1].get_attr(tx, name))
    except ObservedException as error:
        raise Unsupported("exception", f"cannot import name {name!r}") from error

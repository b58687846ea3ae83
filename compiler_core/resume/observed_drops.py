"""Objects whose end the program may observe, and that a frame drops before it ends.

After a graph break, the caller of a resume function holds the arguments until that returns.  So a file would not be
written, a ``__del__`` not called and a weak reference not dead where the program expects it: such a frame runs as plain
Python.  What the frame keeps until its end, or leaves by a ``with`` statement, is no such object.
"""

from __future__ import annotations

import io
import pathlib
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from compiler_core.bytecode import Instruction
from compiler_core.bytecode.flow import pair_halves
from compiler_core.bytecode.opset import PAIRS
from compiler_core.capture.interpreter import Interpreter
from compiler_core.capture.values import base
from compiler_core.capture.values.base import UNBOUND, Value
from compiler_core.capture.values.builtin.constant import ConstantValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.user.functions import FunctionValue, MethodValue
from compiler_core.capture.values.user.object_attributes import InstanceValue
from compiler_core.resume.resume_functions import breaking_instruction

_WEAK = (weakref.ref, weakref.proxy, weakref.finalize)
_FILES = (io.open, pathlib.Path.open)
_MAKERS = (tempfile.TemporaryDirectory, tempfile.TemporaryFile, tempfile.NamedTemporaryFile)
_COMPRESSED = ("gzip", "bz2", "lzma", "codecs")
"""Modules with an ``open``."""
_KEEPING = frozenset({"BEFORE_WITH", "LOAD_SPECIAL", "GET_ITER", "STORE_ATTR", "STORE_SUBSCR"})
"""Instructions that keep the object on top of the stack, or end it themselves."""
_RETURNING = frozenset({"RETURN_VALUE", "YIELD_VALUE"})


def level_that_drops(active: Sequence[Interpreter]) -> int | None:
    """Returns the level of the active frame that drops such an object, which is known before the instruction that
    breaks the graph; None if no frame does."""
    innermost = active[-1]
    reads = breaking_instruction(innermost.instructions[innermost.pc], innermost.kw_names).reads
    operands = [v for v in innermost.stack[len(innermost.stack) - reads :] if v not in (base.NULL, UNBOUND)]
    function = _called(operands[0]) if operands else None
    if _makes_observed(function, operands[1:]):
        for level in reversed(range(len(active))):
            use = _use_of_result(active[level], active[level].pc - (level < len(active) - 1))
            if use != "returned":
                return level if use == "dropped" else None
    for name, is_deleted in _dropped_variables(innermost):
        value = innermost.locals.get(name, UNBOUND)
        is_observed = value in operands and function in _WEAK
        if isinstance(value, InstanceValue):
            is_deleted &= not issubclass(value.cls, BaseException)  # `except E as e` deletes its variable
            is_observed |= _is_observed(value.cls) or (is_deleted and value in operands)
        if is_observed:
            return len(active) - 1
    return None


def _called(value: Value) -> Any:
    if isinstance(value, MethodValue):
        return _called(value.function)
    return value.fn if isinstance(value, FunctionValue) else value.obj if isinstance(value, StaticValue) else None


def _makes_observed(function: Any, args: Sequence[Value]) -> bool:
    """Whether a call makes an object whose end the program may observe."""
    is_compressed = getattr(function, "__module__", "") in _COMPRESSED and getattr(function, "__name__", "") == "open"
    if function in _FILES or is_compressed:
        texts = [str(arg.value) for arg in args if isinstance(arg, ConstantValue) and isinstance(arg.value, str)]
        return any(set(text) <= set("rwaxbtU+") and not set("wax+").isdisjoint(text) for text in texts)
    return function in _MAKERS or (isinstance(function, type) and _is_observed(function))


def _is_observed(cls: type) -> bool:
    return hasattr(cls, "__del__") and not issubclass(cls, (io.BytesIO, io.StringIO))


def _use_of_result(tx: Interpreter, at: int) -> str:
    """Returns what a frame does with what the instruction at `at` pushes: it is "kept", "returned" or "dropped"."""
    following = tx.instructions[at + 1]
    if following.opname in _RETURNING:
        return "returned"
    stored = [name for verb, name in _variables_of(following)[:1] if verb == "STORE"]
    if not stored:
        return "kept" if following.opname in _KEEPING else "dropped"
    if any(name == stored[0] for name, _ in _dropped_variables(tx)):
        return "dropped"
    returned = ("LOAD", stored[0]) in _variables_returned(tx.instructions)
    return "returned" if returned else "kept"


def _variables_of(instruction: Instruction) -> list[tuple[str, str]]:
    """Returns what each half of an instruction does with a variable, and its name."""
    halves = [(instruction.opname, str(instruction.argval))]
    if instruction.opname in PAIRS:
        halves = pair_halves(instruction)
    parts = [(opname.split("_"), name) for opname, name in halves]
    return [(verb, name) for (verb, *kind), name in parts if kind and kind[0] in ("FAST", "GLOBAL", "NAME", "DEREF")]


def _variables_returned(instructions: Sequence[Instruction]) -> Iterator[tuple[str, str]]:
    """Yields the variables that a frame returns or yields, alone or in a tuple or other container."""
    pushed: list[tuple[str, str]] = []
    for instruction in instructions:
        if instruction.opname in _RETURNING:
            yield from pushed
        is_pushed = instruction.opname.startswith(("LOAD_", "BUILD_"))
        pushed = [*pushed, *_variables_of(instruction)] if is_pushed else []


def _dropped_variables(tx: Interpreter) -> Iterator[tuple[str, bool]]:
    """Yields the variables that a frame deletes or sets more than once, and whether it deletes them."""
    found = Counter(each for instruction in tx.instructions for each in _variables_of(instruction))
    for name in {name for _, name in found}:
        if found["DELETE", name] or found["STORE", name] > 1:
            yield name, found["DELETE", name] > 0

"""Loads, stores and calls, executed on texts."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from compiler_core.bytecode import Instruction, constant_text, opset
from compiler_core.tools.decompile.forms import MERGED, StackText
from compiler_core.tools.decompile.statement_writer import StatementWriter

_NULL = "<NULL>"
LOADS = {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_NAME", "LOAD_GLOBAL"}
STORES = {"STORE_FAST", "STORE_DEREF", "STORE_NAME", "STORE_GLOBAL"}


class StackInstructions(StatementWriter):
    """Executes loads, stores and calls.  Each method returns False for other instructions."""

    def __init__(self, header: str, names: dict[str, Any] | None) -> None:
        super().__init__(header)
        self._names = names
        """The constants that the text names, to be filled; None: they are described, as ``<code f>``."""
        self._keywords: tuple[str, ...] = ()

    def _load(self, instruction: Instruction, at: int) -> bool:
        has_flag = bool(opset.flag_bits(instruction.opname) and (instruction.arg or 0) & 1)
        if instruction.opname in LOADS:
            self._loaded.add(str(instruction.argval))
            self._push_callable(StackText(str(instruction.argval), (at,), is_stable=True), has_flag)
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            of = self._pop()
            text = f"({of.text})" if type(of.constant) is int else of.inner  # 1.real is no Python
            value = StackText(f"{text}.{instruction.argval}", (*of.instructions, at))
            self._push_callable(value, has_flag or instruction.opname == "LOAD_METHOD")
        elif instruction.opname == "LOAD_SUPER_ATTR":  # since 3.12
            values = self._pop_many(3)
            text = f"{values[0].text}({values[1].text}, {values[2].text}).{instruction.argval}"
            self._push_callable(StackText(text, (*instructions_of(values), at)), has_flag)
        elif instruction.opname == "LOAD_FAST_LOAD_FAST" and isinstance(instruction.argval, tuple):
            self._loaded.update(instruction.argval)
            self._stack += [StackText(name, (at,), is_stable=True) for name in instruction.argval]
        elif instruction.opname == "LOAD_CONST":
            text = self._constant(instruction.argval)
            self._stack.append(StackText(text, (at,), not text.startswith("-"), True, instruction.argval))
        elif instruction.opname == "LOAD_COMMON_CONSTANT":
            name = getattr(instruction.argval, "__name__", "")
            self._stack.append(StackText(name, (at,), is_stable=True))
        elif instruction.opname in ("LOAD_CLOSURE", "PUSH_NULL"):
            text = _NULL if instruction.opname == "PUSH_NULL" else f"<cell {instruction.argval}>"
            self._stack.append(StackText(text, (at,), is_stable=True))
        else:
            return False
        return True

    def _constant(self, value: object) -> str:
        """A function that the compiler put among the constants is printed by its name."""
        name = getattr(value, "__name__", "") if inspect.isroutine(value) else ""
        if self._names is None:
            return name if name.isidentifier() else constant_text(value)
        if _is_literal(value):
            return repr(value)
        known = next((text for text, held in self._names.items() if held is value), None)
        if known is None:
            base = name if name.isidentifier() else f"constant_{type(value).__name__}"
            known = base if base not in self._taken.union(self._names) else f"{base}_{len(self._names)}"
            self._names[known] = value
        return known

    def _push_callable(self, value: StackText, with_null: bool) -> None:
        null = [StackText(_NULL, is_stable=True)] if with_null else []
        self._stack += [*null, value] if opset.VERSION < (3, 13) else [value, *null]

    def _store(self, instruction: Instruction, at: int) -> bool:
        if instruction.opname in STORES:
            self._assign(str(instruction.argval), at)
        elif instruction.opname in opset.PAIRS and isinstance(instruction.argval, tuple):
            self._assign(instruction.argval[0], at)
            if instruction.opname == "STORE_FAST_STORE_FAST":
                self._assign(instruction.argval[1], at)
            else:
                self._loaded.add(instruction.argval[1])
                self._stack.append(StackText(instruction.argval[1], (at,), is_stable=True))
        elif instruction.opname == "POP_TOP":
            self._drop(at)
        elif instruction.opname == "DELETE_FAST" and self._stack:  # its last use is in the next statement
            self._dropped.append(str(instruction.argval))
            self.line_of[at] = len(self.lines) + 1
        elif instruction.opname == "COPY":
            self._stack.append(self._stable_copy(instruction.arg or 1))
        elif instruction.opname == "SWAP":
            depth = instruction.arg or 1
            self._stable_copy(depth)
            self._stable_copy(1)
            self._stack[-1], self._stack[-depth] = self._stack[-depth], self._stack[-1]
            self._settled = min(self._settled, max(len(self._stack) - depth, 0))
        else:
            return False
        return True

    def _drop(self, at: int) -> None:
        value = self._pop()
        if value.is_stable:
            self.line_of[at] = len(self.lines)
        else:
            self._store_pending(None)
            self._emit(value.text, (*value.instructions, at))

    def _assign(self, name: str, at: int) -> None:
        value = self._pop()
        self._store_pending(name)
        self._emit(f"{name} = {value.text}", (*value.instructions, at))

    def _call(self, instruction: Instruction, at: int) -> bool:
        if instruction.opname == "KW_NAMES" and isinstance(instruction.argval, tuple):
            self._keywords = instruction.argval
            self.line_of[at] = len(self.lines) + 1
        elif instruction.opname in ("CALL", "CALL_KW"):
            names = self._pop() if instruction.opname == "CALL_KW" else StackText("", constant=self._keywords)
            keywords = names.constant if isinstance(names.constant, tuple) else ()
            self._keywords = ()
            args = self._pop_many(instruction.arg or 0)
            called, callable_parts = self._pop_callable(args)
            plain = len(args) - len(keywords)
            texts = [v.text for v in args[:plain]]
            texts += [f"{name}={v.text}" for name, v in zip(keywords, args[plain:], strict=False)]
            self._push_call(called, texts, [*callable_parts, names, *args], at)
        elif instruction.opname == "CALL_FUNCTION_EX":
            args = self._pop_many(1 + ((instruction.arg or 0) & 1))
            called, callable_parts = self._pop_callable([])
            texts = [f"*{args[0].inner}", *map(_keywords, args[1:])]
            self._push_call(called, texts, [*callable_parts, *args], at)
        else:
            return False
        return True

    def _pop_callable(self, args: list[StackText]) -> tuple[StackText, list[StackText]]:
        """Pops a callable and NULL, or a function and its self, which is added to `args`; returns the callable and both
        values."""
        pair = self._pop_many(2)
        found = [v for v in pair if v.text != _NULL]
        if len(found) == 2:
            args.insert(0, found[1])
        return (found[0] if found else StackText("<nothing>")), pair

    def _push_call(self, called: StackText, texts: list[str], parts: list[StackText], at: int) -> None:
        self._stack.append(StackText(f"{called.inner}({', '.join(texts)})", (*instructions_of(parts), at)))


def _keywords(value: StackText) -> str:
    """Returns keyword arguments that are a dict, those of several dicts as they stand in a call."""
    if value.text.startswith(MERGED) and value.is_atom:
        return value.text[len(MERGED) - 2 : -1]
    return f"**{value.inner}"


def instructions_of(values: Iterable[StackText]) -> Iterator[int]:
    """Yields the indices of the instructions that made any of `values`."""
    return (i for value in values for i in value.instructions)


def _is_literal(value: object) -> bool:
    """Returns whether a value is what its `repr` evaluates to."""
    if isinstance(value, tuple) and type(value) is tuple:
        return all(map(_is_literal, value))
    if type(value) is float:
        return value - value == 0
    return value is None or value is Ellipsis or type(value) in (bool, int, str, bytes)

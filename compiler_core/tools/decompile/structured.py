"""Decompiles a function to statements that run: branches, loops, ``try`` and ``with``, and nested functions.

Where the structure of the bytecode is not that of statements, `ValueError` says why.  Code that several paths
share may be printed more than once.
"""

from __future__ import annotations

import copy
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import CodeType
from typing import Any

from compiler_core.bytecode import Instruction, argument_names, disassemble, opset
from compiler_core.tools.decompile.branches import ADDS
from compiler_core.tools.decompile.contexts import Region
from compiler_core.tools.decompile.flow_of_statements import is_conditional
from compiler_core.tools.decompile.forms import MERGED, StackText
from compiler_core.tools.decompile.imports import import_statement
from compiler_core.tools.decompile.protected import Protected
from compiler_core.tools.decompile.stack_instructions import LOADS, STORES

_ATTRIBUTES = {1: "__defaults__", 2: "__kwdefaults__", 4: "__annotations__"}
_SAVED = "<saved>"
"""A variable that a comprehension uses: its value before."""
_STATEMENTS = {
    "LOAD_BUILD_CLASS": "a class statement",
    "CHECK_EG_MATCH": "an except* clause",
    **dict.fromkeys("MATCH_CLASS MATCH_KEYS MATCH_MAPPING MATCH_SEQUENCE".split(), "a match statement"),
}
"""What an instruction without text is a part of."""
MAX_LINES = 5000
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
BUILTINS = {"iter", "tuple", "set", "slice", "AssertionError", "BaseException"}
"""What the texts call by name."""


class StructuredDecompiler(Protected):
    """Prints the paths of a function as nested statements."""

    def __init__(self, code: CodeType, names: dict[str, Any]) -> None:
        super().__init__(code, names)
        self.lines[0] = self.lines[0].replace(".0", "iterable_0")
        self._code = code

    def run(self) -> None:
        """Prints the function.

        Raises:
            ValueError: it has no Python text.
        """
        if self._code.co_flags & _GENERATORS:
            raise ValueError("a generator or coroutine has no Python text")
        if self._path(0, None):
            raise ValueError("the end of the function is reached without a return")
        self.lines[1:1] = [f"    {each}" for each in self._declarations()]
        for name in called_builtins(self.lines[1:]) & _local_names(self._code):
            raise ValueError(f"a variable hides the builtin {name}")

    def _declarations(self) -> Iterator[str]:
        """Yields the statements that say where variables belong."""
        written: dict[str, set[str]] = {}
        for each in disassemble(self._code):
            written.setdefault(each.opname, set()).add(str(each.argval))
        outside = written.get("STORE_GLOBAL", set()) | written.get("DELETE_GLOBAL", set())
        cells = written.get("STORE_DEREF", set()) | written.get("DELETE_DEREF", set())
        for word, found in (("global", outside), ("nonlocal", cells.intersection(self._code.co_freevars))):
            if found:
                yield f"{word} {', '.join(sorted(found))}"
        if names := self._names_without_value():
            yield "if False:  # local variables without a value"
            yield f"    {' = '.join(names)} = None"

    def _names_without_value(self) -> list[str]:
        """Returns the local variables that no statement of the text assigns, so that they would be those of another
        scope."""
        used, written = set(self._code.co_cellvars), set(argument_names(self._code))
        for each in self._instructions:
            values = each.argval if isinstance(each.argval, tuple) else (each.argval,)
            for name, opname in zip(values, opset.PAIRS.get(each.opname, (each.opname,)), strict=False):
                if opname in ("LOAD_FAST", "LOAD_FAST_CHECK"):
                    used.add(str(name))
                elif opname in ("STORE_FAST", "DELETE_FAST", "STORE_DEREF", "DELETE_DEREF"):
                    written.add(str(name))
        return sorted(used - written - {".0"})

    # ---------------------------------------------------------------- paths

    def _path(self, at: int, stop: int | None, *, enters: bool = False) -> bool:
        while True:
            at = self._structure.place(at)
            if at == stop:
                return True
            if at < 0:
                raise ValueError("a path leaves a try statement in its middle")
            if not enters and self._leaves_or_repeats(at):
                return False
            if self._is_outside(at):
                return self._leave(at, stop)
            handler = self._entered(at)
            if not enters and at in self._structure.loops and not self._covers_loop(handler, at):
                following = self._loop(at, stop)
            elif handler is not None:
                following = self._try(at, handler, stop, enters=enters)
            else:
                following = self._instruction(at, stop)
            enters = False
            if following is None:
                return False
            if len(self.lines) > MAX_LINES:
                raise ValueError("its paths have too many statements")
            at = following

    def _covers_loop(self, handler: int | None, header: int) -> bool:
        return all(handler in self._structure.chain(at) for at in self._structure.loops[header])

    def _instruction(self, at: int, stop: int | None) -> int | None:
        instruction = self._instructions[at]
        if instruction.argval == ".0":  # the parameter of a comprehension
            instruction = copy.copy(instruction)
            instruction.argval = "iterable_0"
        named = {each.name for each in self._contexts if isinstance(each, Region)}
        if not self._structure.deleted_names(at) <= named:
            raise ValueError("the name of an exception is deleted elsewhere than in its except clause")
        if instruction.opname == "BEFORE_WITH":
            return self._with(at, stop)
        if instruction.opname == "RERAISE":
            self._raise_again(at)
            return None
        if is_conditional(instruction):
            return self._structured_branch(at, stop)
        if instruction.opname == "FOR_ITER":
            raise ValueError("FOR_ITER outside of a loop has no Python text")
        if instruction.opname in ADDS or instruction.opname == "MAP_ADD":
            return self._add_to_display(instruction, at)
        if instruction.opname == "MAKE_FUNCTION":
            return self._make_function(instruction, at)
        if instruction.opname == "DELETE_FAST" and not str(instruction.argval).startswith("__"):
            return self._delete(at, str(instruction.argval))
        if instruction.opname == "LOAD_FAST_AND_CLEAR":
            self._stack.append(StackText(_SAVED, is_stable=True))
            return at + 1
        if instruction.opname == "MAKE_CELL" and self._stack:
            raise ValueError("a comprehension whose variables a nested function uses has no Python text")
        if instruction.opname == "IMPORT_NAME":
            return self._import(at)
        if instruction.opname == "END_FOR":
            self._pop_many(2 if opset.VERSION < (3, 13) else 1)
            return at + 1
        if instruction.opname == "BINARY_OP" and (stored := self._stored_in_place(instruction, at)):
            return stored
        following = self._step(instruction, at)
        if self.unprinted:
            raise ValueError(f"{_STATEMENTS.get(self.unprinted[0], self.unprinted[0])} has no Python text")
        return following

    def _raise_again(self, at: int) -> None:
        region, value = self._region(), self._pop()
        self._store_pending(None)
        if region is None or region.kind != "except":
            self._emit(f"raise {value.text}", (*value.instructions, at))
        elif value.text == region.caught:
            self._emit("raise", (at,))
        else:
            raise ValueError("another exception than the caught one is raised again")

    def _stored_in_place(self, instruction: Instruction, at: int) -> int | None:
        """Prints ``name += value`` if the result is stored to the name that it is of; returns what follows."""
        store = self._instructions[at + 1]
        is_same = store.opname in STORES and store.argval == self._stack[-2].text and self._entered(at + 1) is None
        if not (is_same and str(instruction.argval).endswith("=")):
            return None
        name, value = self._pop_many(2)
        self._store_pending(name.text)
        self._emit(f"{name.text} {instruction.argval} {value.text}", (*value.instructions, at, at + 1))
        return at + 2

    def _assign(self, name: str, at: int) -> None:
        if self._stack and self._stack[-1].text == _SAVED:
            self._pop()
        else:
            super()._assign(name, at)

    def _drop(self, at: int) -> None:
        """Prints a name whose value is dropped, since loading it may raise."""
        value = self._stack[-1] if self._stack else None
        opname = self._instructions[value.instructions[-1]].opname if value and value.instructions else ""
        if value is not None and opname in LOADS and not value.text.startswith("__"):
            self._stack[-1] = replace(value, is_stable=False)
        super()._drop(at)

    def _delete(self, at: int, name: str) -> int:
        self._store_pending(name)
        self._emit(f"del {name}", (at,))
        return at + 1

    # ---------------------------------------------------------------- displays and functions

    def _add_to_display(self, instruction: Instruction, at: int) -> int:
        """Prints what a comprehension adds to its list, set or dict."""
        depth = instruction.arg or 1
        if instruction.opname == "MAP_ADD":
            if not self._stack[-2].is_stable:  # an assignment would compute the value first
                self._settle_below(1)
            key, value = self._pop_many(2)
            text = f"{self._stable_copy(depth).text}[{key.text}] = {value.text}"
        else:
            value = self._pop()
            text = ADDS[instruction.opname].format(self._stable_copy(depth).text, value.text)
        self._store_pending(None)
        self._emit(text, (at,))
        return at + 1

    def _settle_below(self, count: int) -> None:
        """Stores all but the last `count` values on the stack that are still to be computed."""
        above = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        self._store_pending(None)
        self._stack += above

    def _make_function(self, instruction: Instruction, at: int) -> int:
        """Prints a nested function, which reads the variables around it by their names."""
        code, following = self._pop().constant, at + 1
        flags = [flag for flag in (8, 4, 2, 1) if (instruction.arg or 0) & flag]
        while (setter := self._instructions[following]).opname == "SET_FUNCTION_ATTRIBUTE":  # since 3.13
            flags.append(setter.arg or 0)
            following += 1
        attributes = {flag: self._pop() for flag in flags}
        if not isinstance(code, CodeType) or self._names is None:
            raise ValueError("a nested function of unknown code has no Python text")
        attributes.pop(8, None)
        if 4 in attributes:
            attributes[4] = self._annotations(attributes[4])
        self._stack += reversed(attributes.values())
        self._store_pending(None)
        attributes = dict(zip(reversed(attributes), self._pop_many(len(attributes)), strict=True))
        nested = StructuredDecompiler(code, self._names)
        nested.run()
        store = self._instructions[following]
        is_named = store.opname in STORES and store.argval == code.co_name
        name = code.co_name if is_named else f"function_{self._new_temporary()}"
        head, *body = nested.lines
        if (docstring := _docstring(code)) is not None:
            body.insert(0, f"    {docstring!r}")
        text = "\n".join([f"def {name}({head.partition('(')[2]}", *body])
        self.lines += textwrap.indent(text, "    " * self._indent).splitlines()
        if not is_named and code.co_name not in ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"):
            self._emit(f"{name}.__name__, {name}.__qualname__ = {code.co_name!r}, {code.co_qualname!r}")
        self._stack.append(StackText(name, (at,), is_stable=True))
        for flag, value in attributes.items():
            self._emit(f"{name}.{_ATTRIBUTES[flag]} = {value.text}")
        return following

    def _annotations(self, pairs: StackText) -> StackText:
        """Returns the dict of a tuple of names and annotations in turn."""
        made = self._instructions[pairs.instructions[-1]]
        count = len(made.argval) if isinstance(made.argval, tuple) else made.arg or 0
        text = self._temporary_of(pairs)
        items = ", ".join(f"{text}[{i}]: {text}[{i + 1}]" for i in range(0, count, 2))
        return StackText(f"{{{items}}}", is_stable=False)

    def _temporary_of(self, value: StackText) -> str:
        self._stack.append(value)
        self._store_pending(None)
        self._store_in_temporary(len(self._stack) - 1)
        return self._pop().text

    def _import(self, at: int) -> int:
        level, names = self._pop_many(2)
        found = import_statement(self._instructions, at, level.constant, names.constant)
        if found is None:
            raise ValueError("an import in an expression has no Python text")
        text, stored, following = found
        self._store_pending(*stored)
        self._emit(text, range(at, following))
        return following


def called_builtins(lines: Iterable[str]) -> set[str]:
    """Returns the builtins that the lines may call by their names."""
    text = "\n".join(lines)
    found = {name for name in BUILTINS if re.search(rf"\b{name}\b(?! =)", text)}
    return found | {"dict"} if MERGED in text else found


def _docstring(code: CodeType) -> str | None:
    first = code.co_consts[0] if code.co_consts else None
    return first if isinstance(first, str) else None


def _local_names(code: CodeType) -> set[str]:
    """Returns the variables of a function and those nested in it."""
    found = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
    return found.union(*(_local_names(each) for each in code.co_consts if isinstance(each, CodeType)))

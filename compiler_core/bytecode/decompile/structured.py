"""Decompiles a function to statements that run: branches, loops, conditional expressions and nested functions.

Where the structure of the bytecode is not that of statements, as for exception handlers, `ValueError` says why.  Code
that several paths share may be printed more than once.
"""

from __future__ import annotations

import copy
import textwrap
from collections.abc import Iterator
from types import CodeType
from typing import Any

from compiler_core.bytecode import Instruction, disassemble, opset
from compiler_core.bytecode.decompile.branches import ADDS, Branches, Loop, texts_of
from compiler_core.bytecode.decompile.forms import StackText
from compiler_core.bytecode.decompile.stack_instructions import STORES
from compiler_core.bytecode.decompile.structure import is_conditional

MAX_LINES = 5000
BUILTINS = {"iter", "tuple", "set", "slice", "AssertionError"}
"""What the texts call by name."""


class StructuredDecompiler(Branches):
    """Prints the paths of a function as nested statements."""

    def __init__(self, code: CodeType, names: dict[str, Any]) -> None:
        super().__init__(code, names)
        self.lines[0] = self.lines[0].replace(".0", "iterable_0")
        self._code = code
        self._taken = _all_names(code)

    def run(self) -> None:
        """Prints the function.

        Raises:
            ValueError: it has no Python text.
        """
        if self._path(0, None):
            raise ValueError("the end of the function is reached without a return")
        self.lines[1:1] = [f"    {each}" for each in self._declarations()]
        if hidden := BUILTINS.intersection(_local_names(self._code)):
            raise ValueError(f"a variable hides the builtin {min(hidden)}")

    def _declarations(self) -> Iterator[str]:
        """Yields the statements ``global`` and ``nonlocal`` that the function needs."""
        written: dict[str, set[str]] = {}
        for each in disassemble(self._code):
            written.setdefault(each.opname, set()).add(str(each.argval))
        outside = written.get("STORE_GLOBAL", set()) | written.get("DELETE_GLOBAL", set())
        cells = written.get("STORE_DEREF", set()) | written.get("DELETE_DEREF", set())
        for word, found in (("global", outside), ("nonlocal", cells.intersection(self._code.co_freevars))):
            if found:
                yield f"{word} {', '.join(sorted(found))}"

    # ---------------------------------------------------------------- paths

    def _path(self, at: int, stop: int | None, *, enters: bool = False) -> bool:
        """Prints a path until `stop` (True) or its end (False); `enters`: it begins at the header of the loop."""
        while True:
            at = self._structure.place(at)
            if at == stop:
                return True
            if not enters and self._leaves_or_repeats(at):
                return False
            if not enters and at in self._structure.loops:
                following = self._loop(at, stop)
            else:
                following = self._instruction(at, stop)
            enters = False
            if following is None:
                return False
            if len(self.lines) > MAX_LINES:
                raise ValueError("its paths have too many statements")
            at = following

    def _leaves_or_repeats(self, at: int) -> bool:
        """Prints ``continue`` or ``break`` if the path comes to the start or the end of a loop."""
        for number, loop in enumerate(reversed(self._loops)):
            if at not in (loop.header, loop.follow):
                continue
            if number:
                raise ValueError("a jump leaves two loops")
            self._store_pending(None)
            if at == loop.follow:
                if loop.broken is not None and texts_of(loop.broken) != texts_of(self._stack):
                    raise ValueError("the ways out of a loop leave different values on the stack")
                loop.broken = list(self._stack)
            elif len(self._stack) != loop.depth:
                raise ValueError("the stack grows in a loop")
            self._emit("break" if at == loop.follow else "continue")
            return True
        return False

    def _instruction(self, at: int, stop: int | None) -> int | None:
        instruction = self._instructions[at]
        if instruction.argval == ".0":  # the parameter of a comprehension
            instruction = copy.copy(instruction)
            instruction.argval = "iterable_0"
        if instruction.handler is not None:
            raise ValueError("an exception handler has no Python text")
        if is_conditional(instruction):
            return self._structured_branch(at, stop)
        if instruction.opname == "FOR_ITER":
            raise ValueError("FOR_ITER outside of a loop has no Python text")
        if instruction.opname in ADDS or instruction.opname == "MAP_ADD":
            return self._add_to_display(instruction, at)
        if instruction.opname == "MAKE_FUNCTION":
            return self._make_function(instruction, at)
        if instruction.opname == "SET_FUNCTION_ATTRIBUTE" and instruction.arg == 8:  # the cells, since 3.13
            self._stack.append(self._pop_many(2)[1])
            return at + 1
        if instruction.opname == "END_FOR":
            self._pop_many(2 if opset.VERSION < (3, 13) else 1)
            return at + 1
        if instruction.opname == "BINARY_OP" and (stored := self._stored_in_place(instruction, at)):
            return stored
        following = self._step(instruction, at)
        if self.unprinted:
            raise ValueError(f"{self.unprinted[0]} has no Python text")
        return following

    def _stored_in_place(self, instruction: Instruction, at: int) -> int | None:
        """Prints ``name += value`` if the result is stored to the name that it is of; returns what follows."""
        store = self._instructions[at + 1]
        is_same = store.opname in STORES and store.argval == self._stack[-2].text and store.handler is None
        if not (is_same and str(instruction.argval).endswith("=")):
            return None
        name, value = self._pop_many(2)
        self._store_pending(name.text)
        self._emit(f"{name.text} {instruction.argval} {value.text}", (*value.instructions, at, at + 1))
        return at + 2

    # ---------------------------------------------------------------- loops

    def _loop(self, header: int, stop: int | None) -> int | None:
        """Prints a loop; returns the instruction after it."""
        body = self._structure.loops[header]
        is_for = self._instructions[header].opname == "FOR_ITER"
        exits = dict.fromkeys(
            following for at in sorted(body) for following in self._structure.successors(at) if following not in body
        )
        outer = [stop, *(each for loop in self._loops[-1:] for each in (loop.header, loop.follow))]
        follow = next(iter(exits)) if len(exits) == 1 else self._structure.join_point(exits, outer)
        if follow is None and exits:
            follow = self._structure.successors(header)[1] if is_for else next(iter(exits))
        if is_for:
            return self._for(header, follow)
        self._store_pending(None)
        depth = len(self._stack)
        loop = Loop(header, follow, depth)
        self._emit("while True:")
        start = len(self.lines)
        self._print_body(loop, header)
        self._write_while_test(start)
        if loop.broken is None:
            return None
        self._stack, self._settled = loop.broken, 0
        return follow

    def _for(self, header: int, follow: int | None) -> int | None:
        first, exhausted = header + 1, self._structure.successors(header)[1]
        iterator = self._pop()
        self._store_pending(None)
        names, first = self._stored_after(header, 1) if self._is_store(header + 1) else (None, first)
        if not self._is_store(header + 1) and self._instructions[header + 1].opname == "UNPACK_SEQUENCE":
            count = self._instructions[header + 1].arg or 0
            names, first = self._stored_after(header + 1, count)
            names = None if names is None else [f"({', '.join(names)},)"]
            first = first if names else header + 1
        target = names[0] if names else self._new_temporary()
        text = iterator.text
        if iterator.instructions and self._instructions[iterator.instructions[-1]].opname == "GET_ITER":
            text = text.removeprefix("iter(").removesuffix(")")
        self._emit(f"for {target} in {text}:", iterator.instructions)
        self._stack.append(StackText("<iterator>", is_stable=True))
        loop = Loop(header, follow, len(self._stack))
        before = list(self._stack)
        if names is None:
            self._stack.append(StackText(target, is_stable=True))
        start = len(self.lines)
        self._print_body(loop, first)
        self._stack = before[:-1] if opset.VERSION < (3, 12) else [*before, StackText("<end>", is_stable=True)]
        if opset.VERSION >= (3, 12):
            exhausted = self._after_end_for(exhausted)
        self._drop_last_continue(start)
        if exhausted == follow or loop.broken is None:
            if loop.broken is not None and texts_of(loop.broken) != texts_of(self._stack):
                raise ValueError("the ways out of a loop leave different values on the stack")
            return exhausted
        self._emit("else:")
        start = len(self.lines)
        flows, self._stack, _ = self._block(exhausted, follow, self._stack)
        if self.lines[start].strip() == "pass":
            del self.lines[start - 1 :]
        if flows and texts_of(loop.broken) != texts_of(self._stack):
            raise ValueError("the ways out of a loop leave different values on the stack")
        self._stack, self._settled = loop.broken, 0
        return follow

    def _after_end_for(self, at: int) -> int:
        """Takes the iterator off the stack, as the instructions after an exhausted loop do."""
        self._stack = self._stack[:-2]
        pops = ("END_FOR",) if opset.VERSION < (3, 13) else ("END_FOR", "POP_TOP")
        for opname in pops:
            if self._instructions[at].opname == opname:
                at = self._structure.place(at + 1)
        return at

    def _is_store(self, at: int) -> bool:
        return self._instructions[at].opname in ("STORE_FAST", "STORE_DEREF", "STORE_NAME", "STORE_GLOBAL")

    def _print_body(self, loop: Loop, at: int) -> None:
        self._loops.append(loop)
        self._indent += 1
        self._settled = 0
        self._path(at, None, enters=at == loop.header)
        self._indent -= 1
        self._loops.pop()

    def _drop_last_continue(self, start: int) -> None:
        """Leaves out a ``continue`` at the end of a loop's body."""
        last = "    " * (self._indent + 1) + "continue"
        if self.lines[-1] == last and len(self.lines) > start + 1:
            self.lines.pop()
        elif self.lines[-1] == last:
            self.lines[-1] = last.replace("continue", "pass")

    def _write_while_test(self, start: int) -> None:
        """Writes ``while test:`` for a loop that begins with a test that leaves it."""
        self._drop_last_continue(start)
        indent = "    " * (self._indent + 1)
        first, *others = self.lines[start:]
        if others[1:] and first.startswith(f"{indent}if not (") and others[0] == f"{indent}    break":
            self.lines[start - 1] = f"{'    ' * self._indent}while {first.strip()[len('if not (') : -2]}:"
            del self.lines[start : start + 2]

    # ---------------------------------------------------------------- displays and functions

    def _add_to_display(self, instruction: Instruction, at: int) -> int:
        """Prints what a comprehension adds to its list, set or dict."""
        depth = instruction.arg or 1
        if instruction.opname == "MAP_ADD":
            key, value = self._pop_many(2)
            text = f"{self._stable_copy(depth).text}[{key.text}] = {value.text}"
        else:
            value = self._pop()
            text = ADDS[instruction.opname].format(self._stable_copy(depth).text, value.text)
        self._store_pending(None)
        self._emit(text, (at,))
        return at + 1

    def _make_function(self, instruction: Instruction, at: int) -> int:
        """Prints a nested function, which reads the variables around it by their names."""
        if (instruction.arg or 0) & ~8:
            raise ValueError("a nested function with defaults or annotations has no Python text")
        code = self._pop().constant
        if (instruction.arg or 0) & 8:
            self._pop()
        elif self._stack and self._stack[-1].text.startswith("(<cell"):  # since 3.13, they are set afterwards
            self._stack[-1] = StackText("<cells>", is_stable=True)
        if not isinstance(code, CodeType) or self._names is None:
            raise ValueError("a nested function of unknown code has no Python text")
        self._store_pending(None)
        nested = StructuredDecompiler(code, self._names)
        nested.run()
        name = f"function_{self._new_temporary()}"
        head, *body = nested.lines
        text = "\n".join([f"def {name}({head.partition('(')[2]}", *body])
        self.lines += textwrap.indent(text, "    " * self._indent).splitlines()
        self._stack.append(StackText(name, (at,), is_stable=True))
        return at + 1


def _local_names(code: CodeType) -> set[str]:
    """Returns the variables of a function and those nested in it."""
    found = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
    return found.union(*(_local_names(each) for each in code.co_consts if isinstance(each, CodeType)))


def _all_names(code: CodeType) -> set[str]:
    """Returns the names that a function and those nested in it use."""
    found = {*code.co_names, *code.co_varnames, *code.co_cellvars, *code.co_freevars}
    return found.union(*(_all_names(each) for each in code.co_consts if isinstance(each, CodeType)))

"""Prints branches as ``if`` statements, and what both sides leave on the stack as assignments."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from compiler_core.bytecode import Instruction, opset
from compiler_core.bytecode.decompile.decompiler import Decompiler
from compiler_core.bytecode.decompile.forms import StackText
from compiler_core.bytecode.decompile.structure import Structure, is_conditional

_OWN = ("MAP_ADD", "MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE", "END_FOR", "FOR_ITER")
ADDS = {"LIST_APPEND": "{}.append({})", "SET_ADD": "{}.add({})"}
_CONTINUES = {"TRUE": "not {}", "FALSE": "{}", "NOT_NONE": "{} is None", "NONE": "{} is not None"}
"""The condition under which a conditional jump is not made, by the end of its name."""
_JUMPS = {"TRUE": "{}", "FALSE": "not {}", "NOT_NONE": "{} is not None", "NONE": "{} is None"}


@dataclass
class Loop:
    """A loop that is being printed."""

    header: int
    follow: int | None
    """The first instruction after the loop, where ``break`` leads."""
    depth: int
    """The stack depth at the header."""
    broken: list[StackText] | None = None
    """The stack at a ``break``."""


class Branches(Decompiler, ABC):
    """Prints branches; a subclass prints paths."""

    def __init__(self, code: CodeType, names: dict[str, Any]) -> None:
        super().__init__(code, names)
        self._structure = Structure(self._instructions, self._where)
        self._loops: list[Loop] = []

    @abstractmethod
    def _path(self, at: int, stop: int | None) -> bool:
        """Prints a path until `stop` (True) or its end (False)."""

    def _structured_branch(self, at: int, stop: int | None) -> int | None:
        """Prints an ``if`` statement, and the values that both sides leave; returns where the path continues."""
        keeps = self._instructions[at].opname.endswith("_OR_POP")
        if keeps:
            self._stable_copy(1)
        condition, opposite, fall, target = self._condition(at)
        around = [each for loop in self._loops[-1:] for each in (loop.header, loop.follow)]
        meet = self._structure.join_point((fall, target), [stop, *around])
        if meet in around and meet != stop:  # both sides end with the same continue or break
            meet = None
        self._store_pending(None)
        stacks = [list(self._stack[: len(self._stack) - keeps]), list(self._stack)]
        if target in around or fall == meet:  # the short side first
            condition, fall, target = f"not ({condition})" if target in around else opposite, target, fall
            stacks.reverse()
        self._emit(f"if {condition}:")
        flows, first, end = self._block(fall, meet, stacks[0])
        if not flows:
            self._stack, self._settled = stacks[1], 0
            return target
        self._emit("else:")
        start = len(self.lines)
        flows, second, _ = self._block(target, meet, stacks[1])
        if self.lines[start].strip() == "pass":
            del self.lines[start - 1 :]
        if flows:
            self._unify(first, second, end)
        else:
            self._stack, self._settled = first, 0
        return meet

    def _block(self, at: int, stop: int | None, stack: list[StackText]) -> tuple[bool, list[StackText], int]:
        """Prints a path as an indented block.

        Returns whether it comes to `stop`, the stack there, and the number of lines up to its end.
        """
        self._stack, self._settled = list(stack), 0
        start = len(self.lines)
        self._indent += 1
        flows = self._path(at, stop)
        if flows:
            self._store_pending(None)
        if len(self.lines) == start:
            self._emit("pass")
        self._indent -= 1
        return flows, list(self._stack), len(self.lines)

    def _unify(self, first: list[StackText], second: list[StackText], end: int) -> None:
        """Makes the values that two sides leave on the stack the same, by assignments at the end of each side.

        `end` is the number of lines up to the end of the first side.
        """
        if len(first) != len(second):
            raise ValueError("the sides of a branch leave different numbers of values")
        indent = "    " * (self._indent + 1)
        lines: tuple[list[str], list[str]] = ([], [])
        for depth, texts in enumerate(zip(texts_of(first), texts_of(second), strict=True)):
            if texts[0] != texts[1]:
                name = self._new_temporary()
                for side, text in zip(lines, texts, strict=True):
                    side.append(f"{indent}{name} = {text}")
                self._stack[depth] = StackText(name, is_stable=True)
        if lines[1] and len(self.lines) == end:
            lines[1].insert(0, f"{'    ' * self._indent}else:")
        self.lines += lines[1]
        is_empty = bool(lines[0]) and self.lines[end - 1] == f"{indent}pass"
        self.lines[end - is_empty : end] = lines[0]
        self._settled = 0

    def _condition(self, at: int) -> tuple[str, str, int, int]:
        """Returns the condition of a branch and its opposite, and both successors.

        Tests that are part of one condition are joined: those that follow without a statement between them, and lead to
        the same place.
        """
        fall, target = self._structure.successors(at)
        kind = self._instructions[at].opname.partition("IF_")[2].removesuffix("_OR_POP")
        value = self._pop()
        condition, opposite = _conditions(kind, value)
        if self._instructions[at].opname.endswith("_OR_POP"):
            self._stack.append(value)
            return condition, opposite, fall, target
        while (second := self._next_test(fall)) is not None:
            (text, negated), (next_fall, next_target) = second
            if next_target == target:
                condition, opposite = _joined("and", condition, text), _joined("or", opposite, negated)
            elif next_fall == target:
                condition, opposite = _joined("or", opposite, text), _joined("and", condition, negated)
            else:
                break
            fall, target = next_fall, next_target
        return condition, opposite, fall, target

    def _next_test(self, at: int) -> tuple[tuple[str, str], tuple[int, int]] | None:
        """Returns the condition of the test that begins at `at`, its opposite, and both successors; None if there is
        no test, or statements come before it."""
        names = ("lines", "_stack", "_loaded", "_dropped", "unprinted", "line_of")
        saved = {name: copy.copy(getattr(self, name)) for name in names}
        saved |= {name: getattr(self, name) for name in ("_settled", "_temporaries", "_keywords")}
        try:
            return self._evaluated_test(at)
        finally:
            for name, value in saved.items():
                setattr(self, name, value)

    def _evaluated_test(self, at: int) -> tuple[tuple[str, str], tuple[int, int]] | None:
        count = len(self.lines)
        while at not in self._structure.loops and self._instructions[at].handler is None:
            instruction = self._instructions[at]
            if is_conditional(instruction):
                if instruction.opname.endswith("_OR_POP") or len(self._stack) == 0:
                    return None
                kind, value = instruction.opname.partition("IF_")[2], self._pop()
                fall, target = self._structure.successors(at)
                return _conditions(kind, value), (fall, target)
            if instruction.target is not None or instruction.opname in opset.TERMINATORS or _is_special(instruction):
                return None
            following = self._step(instruction, at)
            if following is None or len(self.lines) != count or self.unprinted:
                return None
            at = self._structure.place(following)
        return None


def _conditions(kind: str, value: StackText) -> tuple[str, str]:
    """Returns the condition under which a jump on `value` is not made, and its opposite."""
    found = [forms[kind] for forms in (_CONTINUES, _JUMPS)]
    one, other = (value.text if form == "{}" else form.format(value.inner) for form in found)
    return one, other


def _joined(word: str, *conditions: str) -> str:
    return f" {word} ".join(f"({each})" if " " in each else each for each in conditions)


def _is_special(instruction: Instruction) -> bool:
    return instruction.opname in ADDS or instruction.opname in _OWN


def texts_of(values: Iterable[StackText]) -> list[str]:
    """Returns the texts of values."""
    return [value.text for value in values]

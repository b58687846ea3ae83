"""Prints branches as ``if`` statements, and what both sides leave on the stack as assignments."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable
from types import CodeType
from typing import Any

from compiler_core.bytecode import Instruction, opset
from compiler_core.tools.decompile.comprehensions import all_names, with_own_names
from compiler_core.tools.decompile.contexts import Loop, Region
from compiler_core.tools.decompile.decompiler import Decompiler
from compiler_core.tools.decompile.flow_of_statements import is_conditional
from compiler_core.tools.decompile.forms import StackText
from compiler_core.tools.decompile.structure import Structure

_OWN = (
    "MAP_ADD MAKE_FUNCTION SET_FUNCTION_ATTRIBUTE END_FOR FOR_ITER BEFORE_WITH POP_EXCEPT WITH_EXCEPT_START "
    "LOAD_FAST_AND_CLEAR"
).split()
ADDS = {"LIST_APPEND": "{}.append({})", "SET_ADD": "{}.add({})"}
_CONTINUES = {"TRUE": "not {}", "FALSE": "{}", "NOT_NONE": "{} is None", "NONE": "{} is not None"}
"""The condition under which a conditional jump is not made, by the end of its name."""
_JUMPS = {"TRUE": "{}", "FALSE": "not {}", "NOT_NONE": "{} is not None", "NONE": "{} is None"}


class Branches(Decompiler, ABC):
    """Prints branches; a subclass prints paths."""

    def __init__(self, code: CodeType, names: dict[str, Any]) -> None:
        super().__init__(code, names)
        self._taken = all_names(code)
        self._instructions = with_own_names(self._instructions, self._where, self._taken)
        self._structure = Structure(self._instructions, self._where)
        self._contexts: list[Loop | Region] = []
        """What is being printed around the path, the innermost last."""

    @abstractmethod
    def _path(self, at: int, stop: int | None, *, enters: bool = False) -> bool:
        """Prints a path until `stop` (True) or its end (False); `enters`: it begins at the header of the loop."""

    # ---------------------------------------------------------------- where a path is

    def _loop_around(self) -> Loop | None:
        """Returns the loop that is left by ``break`` without leaving a part of a ``try`` statement."""
        found = self._contexts[-1] if self._contexts else None
        return found if isinstance(found, Loop) else None

    def _region(self) -> Region | None:
        """Returns the innermost part of a ``try`` or ``with`` statement."""
        return next((each for each in reversed(self._contexts) if isinstance(each, Region)), None)

    def _chain(self) -> tuple[int, ...]:
        """Returns the handlers around the path."""
        region = self._region()
        return region.chain if region else ()

    def _is_outside(self, at: int) -> bool:
        """Returns whether a path has left the innermost part of a ``try`` or ``with`` statement."""
        region = self._region()
        if region is None:
            return False
        if self._structure.is_silent(at):
            loops = (each for each in self._contexts if isinstance(each, Loop))
            inner = self._contexts[self._contexts.index(region) :]
            return any(at in (loop.header, loop.follow) and loop not in inner for loop in loops)
        ends = {"except": "POP_EXCEPT", "final": "RERAISE"}.get(region.kind)
        chain = self._structure.chain(at)
        return self._instructions[at].opname == ends or chain[: len(region.chain)] != region.chain

    def _entered(self, at: int) -> int | None:
        """Returns the handler of the ``try`` statement that begins at `at`, or None."""
        around, chain = self._chain(), () if self._structure.is_silent(at) else self._structure.chain(at)
        return chain[len(around)] if len(chain) > len(around) else None

    def _flow(self, at: int) -> list[int]:
        """Returns where control goes from an instruction; what is outside of the region leads to its end."""
        if at < 0:
            return []
        region = self._region()
        if region is not None and self._is_outside(at):
            return [region.end]
        return self._structure.flow(at, self._chain())

    def _join_point(self, starts: Iterable[int], stop: int | None) -> int | None:
        loop, region = self._loop_around(), self._region()
        barriers = [stop, *((loop.header, loop.follow) if loop else ()), *((region.end,) if region else ())]
        return self._structure.join_point(starts, barriers, self._flow)

    # ---------------------------------------------------------------- branches

    def _structured_branch(self, at: int, stop: int | None) -> int | None:
        """Prints an ``if`` statement, and the values that both sides leave; returns where the path continues."""
        keeps = self._instructions[at].opname.endswith("_OR_POP")
        if keeps:
            self._stable_copy(1)
        condition, opposite, fall, target = self._condition(at)
        loop = self._loop_around()
        around = (loop.header, loop.follow) if loop else ()
        meet = self._join_point((fall, target), stop)
        if meet in around and meet != stop:  # both sides end with the same continue or break
            meet = None
        self._store_pending(None)
        stacks = [list(self._stack[: len(self._stack) - keeps]), list(self._stack)]
        if target in around or fall == meet:  # the short side first
            condition, fall, target = f"not ({condition})" if target in around else opposite, target, fall
            stacks.reverse()
        return self._two_sides(condition, (fall, target), stacks, meet)

    def _two_sides(
        self, condition: str, starts: tuple[int, int], stacks: list[list[StackText]], meet: int | None
    ) -> int | None:
        """Prints an ``if`` statement of two paths, from `starts` with `stacks`; returns where they continue."""
        self._emit(f"if {condition}:")
        flows, first, end = self._block(starts[0], meet, stacks[0])
        if not flows:
            self._stack, self._settled = stacks[1], 0
            return starts[1]
        self._emit("else:")
        start = len(self.lines)
        flows, second, _ = self._block(starts[1], meet, stacks[1])
        if self.lines[start].strip() == "pass":
            del self.lines[start - 1 :]
        if flows:
            self._unify(first, second, end)
        else:
            self._stack, self._settled = first, 0
        return meet

    def _block(
        self, at: int, stop: int | None, stack: list[StackText], *, enters: bool = False
    ) -> tuple[bool, list[StackText], int]:
        """Prints a path as an indented block.

        Returns whether it comes to `stop`, the stack there, and the number of lines up to its end.
        """
        self._stack, self._settled = list(stack), 0
        start = len(self.lines)
        self._indent += 1
        flows = self._path(at, stop, enters=enters)
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
        count, before = len(self.lines), list(self._stack)
        while at not in self._structure.loops and (
            self._structure.is_silent(at) or self._structure.chain(at) == self._chain()
        ):
            instruction = self._instructions[at]
            if is_conditional(instruction):
                if instruction.opname.endswith("_OR_POP") or len(self._stack) == 0:
                    return None
                kind, value = instruction.opname.partition("IF_")[2], self._pop()
                if self._stack != before:  # a part of a chained comparison
                    return None
                fall, target = self._structure.successors(at)
                return _conditions(kind, value), (fall, target)
            if instruction.target is not None or _is_special(instruction):
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
    return any(instruction.opname in found for found in (ADDS, _OWN, opset.TERMINATORS))


def texts_of(values: Iterable[StackText]) -> list[str]:
    """Returns the texts of values."""
    return [value.text for value in values]

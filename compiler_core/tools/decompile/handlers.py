"""Exception handlers as ``try``, ``except``, ``finally`` and ``with`` have them.

CPython's compiler writes the code of ``finally`` once for each way that leaves ``try``, and once more as a handler that
ends by raising the exception again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler_core.bytecode import Instruction, opset
from compiler_core.tools.decompile.flow_of_statements import StatementFlow

_STORES = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")
_OF_HANDLERS = ("RERAISE", "PUSH_EXC_INFO", "POP_EXCEPT", "BEFORE_WITH")
_LONGEST_TAIL = 12


class Handlers(StatementFlow):
    """The handlers of a function; a handler is named by the index of its first instruction."""

    def __init__(self, instructions: Sequence[Instruction], where: Mapping[Instruction, int]) -> None:
        super().__init__(instructions, where)
        self._chains: dict[int, tuple[int, ...]] = {}
        self._left: dict[int, set[int]] = {}
        self.entries: dict[int, tuple[int, bool]] = {}
        """The stack depth that a handler starts with, and whether the offset of the instruction comes on top."""
        for instruction in instructions:
            if instruction.handler is not None:
                start = (instruction.handler.depth, instruction.handler.lasti)
                if self.entries.setdefault(where[instruction.handler.target], start) != start:
                    raise ValueError("a handler starts with different stacks")

    def chain(self, at: int) -> tuple[int, ...]:
        """Returns the handlers around an instruction, the innermost last, without those that only clean up."""
        handler = self._instructions[at].handler
        if handler is None:
            return ()
        first = self._where[handler.target]
        if first not in self._chains:
            self._chains[first] = ()  # a handler that covers itself
            outer = self.chain(first)
            self._chains[first] = outer if self._cleans_up(first) else (*outer, first)
        return self._chains[first]

    def is_silent(self, at: int) -> bool:
        """Returns whether an instruction raises nothing, so that CPython's compiler gives it no handler."""
        opname = self._instructions[at].opname
        return opname == "NOP" or (opset.VERSION >= (3, 13) and opname.startswith("POP_JUMP"))

    def deleted_names(self, at: int) -> set[str]:
        """Returns the names of ``except ... as name`` that are deleted if an instruction raises."""
        found: set[str] = set()
        seen: set[int] = set()
        handler = self._instructions[at].handler
        while handler is not None and (first := self._where[handler.target]) not in seen:
            seen.add(first)
            if (name := self.deleted_name(first)) is not None:
                found.add(name)
            elif not self._cleans_up(first):
                break
            handler = self._instructions[first].handler
        return found

    def deleted_name(self, at: int) -> str | None:
        """Returns the name that three instructions set to None and delete, or None."""
        load, store, delete = (self._instruction(at + i) for i in range(3))
        is_clean_up = load.opname == "LOAD_CONST" and load.argval is None and store.opname in _STORES
        same = delete.opname == store.opname.replace("STORE", "DELETE") and delete.argval == store.argval
        return str(store.argval) if is_clean_up and same else None

    def _cleans_up(self, first: int) -> bool:
        """Whether a handler only restores what was there, and raises the exception again."""
        opnames = [self._instruction(first + i).opname for i in range(4)]
        if opnames[:3] == ["COPY", "POP_EXCEPT", "RERAISE"] or restored_names(self._instructions, first):
            return True
        return self.deleted_name(first) is not None and opnames[3] == "RERAISE"

    def _instruction(self, at: int) -> Instruction:
        return self._instructions[at] if at < len(self._instructions) else Instruction("NOP")

    # ---------------------------------------------------------------- with

    def after_suppressed(self, handler: int) -> int | None:
        """Returns where a ``with`` statement continues after ``__exit__`` has returned a true value; None: the handler
        is no ``with`` statement's."""
        test = handler + (2 if self._instruction(handler + 2).opname != "TO_BOOL" else 3)
        opnames = [self._instruction(i).opname for i in (handler, handler + 1, test + 1)]
        jump = self._instruction(test)
        if opnames != ["PUSH_EXC_INFO", "WITH_EXCEPT_START", "RERAISE"] or not jump.opname.endswith("_IF_TRUE"):
            return None
        assert jump.target is not None
        at = self._where[jump.target]
        pops = [self._instruction(at + i).opname for i in range(4)]
        return self.place(at + 4) if pops == ["POP_TOP", "POP_EXCEPT", "POP_TOP", "POP_TOP"] else None

    def after_exit_call(self, at: int) -> int | None:
        """Returns what follows the call ``__exit__(None, None, None)`` that begins at `at`, or None."""
        for _ in range(3):
            load = self._instruction(at)
            if load.opname != "LOAD_CONST" or load.argval is not None:
                return None
            at = self.place(at + 1)
        at += self._instruction(at).opname == "PRECALL"
        call, pop = self._instruction(at), self._instruction(at + 1)
        return at + 2 if (call.opname, call.arg, pop.opname) == ("CALL", 2, "POP_TOP") else None

    # ---------------------------------------------------------------- except

    def after_except(self, at: int) -> int:
        """Returns what follows POP_EXCEPT and the deletion of the name of the exception."""
        return at + 1 if self.deleted_name(at + 1) is None else at + 4

    def left_to(self, handler: int) -> set[int]:
        """Returns where control goes when the exception has been handled."""
        if handler not in self._left:
            self._left[handler] = set()
            self._left[handler] = self._find_left(handler)
        return self._left[handler]

    def _find_left(self, handler: int) -> set[int]:
        if self._instructions[handler].opname != "PUSH_EXC_INFO":
            return {handler}
        if (after := self.after_suppressed(handler)) is not None:
            return {after}
        found, seen, work = set[int](), set[int](), [handler + 1]
        around = self.chain(handler)
        while work:
            at = work.pop()
            if at in seen:
                continue
            seen.add(at)
            if self._instructions[at].opname == "POP_EXCEPT":
                found.add(self.place(self.after_except(at)))
            else:
                work += self.flow(at, around)
        return found

    def flow(self, at: int, around: tuple[int, ...]) -> list[int]:
        """Returns where control goes from an instruction, also by exceptions that are handled before they come to the
        handlers `around`."""
        inner = self.chain(at)[len(around) :]
        return [*self.successors(at), *(after for handler in inner for after in sorted(self.left_to(handler)))]

    # ---------------------------------------------------------------- finally

    def is_finally(self, handler: int, entry: int) -> bool:
        """Returns whether each way that leaves the code at `entry` runs a copy of the handler's code."""
        if self._instructions[handler].opname != "PUSH_EXC_INFO" or self.after_suppressed(handler) is not None:
            return False
        around = (*self.chain(handler), handler)
        inside, outside, work = set[int](), set[int](), [entry]
        while work:
            at = work.pop()
            if self.chain(at)[: len(around)] != around and not self.is_silent(at):
                outside.add(at)
            elif at not in inside:
                inside.add(at)
                work += self.flow(at, around)
        if any(self._instructions[at].opname in ("RETURN_VALUE", "RETURN_CONST") for at in inside):
            return False
        return bool(outside) and all(self.after_finally(handler, at) is not None for at in outside)

    def after_finally(self, handler: int, copy: int) -> int | None:
        """Returns what follows a copy of the code of ``finally``, or None if the code at `copy` is another."""
        after: int | None = None
        seen, work = set[tuple[int, int]](), [(handler + 1, copy)]
        while work:
            pair = self.skip_nops(work[-1][0]), self.skip_nops(work.pop()[1])
            if pair in seen:
                continue
            seen.add(pair)
            if self._instructions[pair[0]].opname == "RERAISE":
                if after is not None and not self.same_tail(after, pair[1]):
                    return None
                after = pair[1] if after is None else after
            elif not self._do_the_same(*pair):
                return None
            else:
                work += zip(self.successors(pair[0]), self.successors(pair[1]), strict=True)
        return None if self._instructions[handler + 1].opname == "POP_TOP" else after

    def same_tail(self, one: int, other: int) -> bool:
        """Returns whether two paths without branches do the same until they meet or end."""
        for _ in range(_LONGEST_TAIL):
            one, other = self.skip_nops(one), self.skip_nops(other)
            if one == other:
                return True
            if not self._do_the_same(one, other):
                return False
            following = self.successors(one)
            if not following:
                return True
            if len(following) > 1:
                return False
            one, other = following[0], self.successors(other)[0]
        return False

    def ends_soon(self, at: int) -> bool:
        """Returns whether a path without branches ends the function."""
        for _ in range(_LONGEST_TAIL):
            following = self.successors(self.skip_nops(at))
            if len(following) != 1:
                return not following
            at = following[0]
        return False

    def _do_the_same(self, one: int, other: int) -> bool:
        first, second = self._instructions[one], self._instructions[other]
        if _kind(first) != _kind(second) or first.opname in _OF_HANDLERS:
            return False
        return (first.target is not None or first.arg == second.arg) and self.chain(one) == self.chain(other)

    def skip_nops(self, at: int) -> int:
        """Returns the first instruction from `at` on that does something."""
        at = self.place(at)
        while self._instructions[at].opname == "NOP":
            at = self.place(at + 1)
        return at


def restored_names(instructions: Sequence[Instruction], first: int) -> list[str]:
    """Returns the names that a handler of a comprehension gives their values back; none if it is another handler.

    Since 3.12, a comprehension is part of the function around it, and its variables are set back after it.
    """
    if [each.opname for each in instructions[first : first + 2]] != ["SWAP", "POP_TOP"]:
        return []
    names: list[str] = []
    for each in instructions[first + 2 :]:
        if each.opname == "RERAISE":
            return names
        if each.opname == "STORE_FAST_STORE_FAST" and isinstance(each.argval, tuple):
            names += each.argval
        elif each.opname == "STORE_FAST":
            names.append(str(each.argval))
        elif each.opname != "SWAP":
            break
    return []


def _kind(instruction: Instruction) -> str:
    """Returns the name of an instruction without the direction of its jump."""
    return instruction.opname.replace("FORWARD_", "").replace("BACKWARD_", "")

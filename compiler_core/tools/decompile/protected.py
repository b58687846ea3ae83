"""Prints ``try`` and ``with`` statements.

If a block is left in several ways that continue at different places, each way sets a variable; an ``if`` statement
after the block tests it.
"""

from __future__ import annotations

import re
from itertools import pairwise

from compiler_core.tools.decompile.contexts import Exit, Exits, Region
from compiler_core.tools.decompile.forms import StackText
from compiler_core.tools.decompile.ways_out import WaysOut

_OF_TYPES = set(
    "LOAD_GLOBAL LOAD_FAST LOAD_FAST_CHECK LOAD_DEREF LOAD_NAME LOAD_CONST LOAD_ATTR LOAD_METHOD BUILD_TUPLE PUSH_NULL "
    "BINARY_SUBSCR PRECALL CALL BINARY_OP NOP".split()
)
"""The instructions of the expression after ``except``."""


class Protected(WaysOut):
    """Prints statements that handle exceptions."""

    _n_regions = 0

    def _new_exits(self, depth: int) -> Exits:
        self._n_regions += 1
        return Exits(self._n_regions, depth)

    def _new_region(self, kind: str, handler: int, exits: Exits, chain: tuple[int, ...]) -> Region:
        self._n_regions += 1
        return Region(kind, handler, chain, exits, -self._n_regions)

    def _print_region(self, region: Region, at: int, stack: list[StackText], *, enters: bool = False) -> None:
        self._contexts.append(region)
        self._block(at, region.end, stack, enters=enters)
        self._contexts.pop()

    def _settle_for_handlers(self) -> None:
        """Stores what is on the stack where no statement changes it, so that handlers find it there."""
        for i, value in enumerate(self._stack):
            is_own = re.fullmatch(r"t\d+", value.text) and value.text not in self._taken
            if not value.text.startswith("<") and value.constant is None and not is_own:
                self._store_in_temporary(i)
        self._settled = len(self._stack)

    # ---------------------------------------------------------------- with

    def _with(self, at: int, stop: int | None) -> int | None:
        """Prints a ``with`` statement, whose first instruction is at `at`; returns where the path continues."""
        around, chain = self._chain(), self._structure.chain(at + 1)
        handler = chain[-1] if chain[:-1] == around and len(chain) > len(around) else None
        suppressed = None if handler is None else self._structure.after_suppressed(handler)
        if handler is None or suppressed is None or self._structure.entries[handler][0] != len(self._stack):
            raise ValueError("a with statement has another form than CPython's")
        context = self._pop()
        self._settle_for_handlers()
        exits = self._new_exits(len(self._stack))
        region = self._new_region("with", handler, exits, chain)
        exits.found.append(Exit(suppressed, []))
        self._emit(exits.marker(exits.found[0]))
        stack, start = list(self._stack), len(self.lines)
        inner = [*stack, StackText(region.kept, is_stable=True)]
        following = self._instructions[at + 1]
        if following.opname == "POP_TOP":
            self._emit(f"with {context.text}:", (*context.instructions, at, at + 1))
            self._print_region(region, at + 2, inner)
        else:
            is_stored = self._is_store(at + 1)
            name = str(following.argval) if is_stored else self._new_temporary()
            self._emit(f"with {context.text} as {name}:", (*context.instructions, at, at + is_stored))
            inner += [] if is_stored else [StackText(name, is_stable=True)]
            self._print_region(region, at + 1 + is_stored, inner)
        self._stack = stack
        return self._continue_after(exits, start - 1, stop)

    # ---------------------------------------------------------------- try

    def _try(self, at: int, handler: int, stop: int | None, *, enters: bool) -> int | None:
        """Prints a ``try`` statement whose block begins at `at`; returns where the path continues."""
        depth, has_offset = self._structure.entries[handler]
        if depth > len(self._stack):
            raise ValueError("a handler needs more values than there are")
        self._store_pending(None)
        self._settle_for_handlers()
        exits, stack, start = self._new_exits(depth), list(self._stack), len(self.lines)
        around = self._chain()
        kind = "finally" if self._structure.is_finally(handler, at) else "try"
        self._emit("try:")
        self._print_region(self._new_region(kind, handler, exits, (*around, handler)), at, stack, enters=enters)
        offset = [StackText("<offset>", is_stable=True)] if has_offset else []
        stack = stack[:depth]
        if kind == "finally":
            region = self._new_region("final", handler, exits, around)
            region.caught = f"<exception of {handler}>"
            self._emit("finally:")
            self._print_region(region, handler + 1, [*stack, *offset, *_handled(region)])
        elif self._instructions[handler].opname != "PUSH_EXC_INFO":
            self._catch_plainly(handler, exits, [*stack, *offset])
        else:
            if len(exits.found) == 1:
                exits.after_body = exits.found[0]
            self._clauses(handler, exits, [*stack, *offset])
        self._stack = stack
        return self._continue_after(exits, start, stop)

    def _catch_plainly(self, handler: int, exits: Exits, stack: list[StackText]) -> None:
        """Prints a handler that runs as if no exception were being handled: after the statement."""
        caught = self._new_temporary()
        self._emit(f"except BaseException as {caught}:")
        region = self._new_region("try", handler, exits, self._chain())
        self._indent += 1
        self._stack = [*stack, StackText(caught, is_stable=True)]
        self._mark_exit(region, handler)
        self._indent -= 1

    def _clauses(self, handler: int, exits: Exits, stack: list[StackText]) -> None:
        """Prints the clauses of a ``try`` statement; `stack` is below what PUSH_EXC_INFO leaves."""
        at, is_first = self._structure.place(handler + 1), True
        while True:
            region = self._new_region("except", handler, exits, self._chain())
            region.caught = f"<exception of {handler}>"
            found = self._clause_type(at, [*stack, *_handled(region)])
            if found is None:
                break
            text, test = found
            is_first, at = False, self._clause(region, text, test, stack)
        opname = self._instructions[at].opname
        if opname == "RERAISE" and not is_first:
            return
        if opname != "POP_TOP":
            if not is_first:
                raise ValueError("the type of an except clause is not a simple expression")
            region.caught = self._new_temporary()
        self._emit("except:" if opname == "POP_TOP" else f"except BaseException as {region.caught}:")
        self._print_region(region, at, [*stack, *_handled(region)])

    def _clause(self, region: Region, text: str, test: int, stack: list[StackText]) -> int:
        """Prints a clause with a type, whose test is at `test`; returns where the next clause begins."""
        jump, first = self._instructions[test + 1], self._instructions[test + 2]
        if not jump.opname.endswith("IF_FALSE") or jump.target is None:
            raise ValueError("the test of an except clause has another form than CPython's")
        if first.opname == "POP_TOP":
            self._emit(f"except {text}:", (test, test + 1, test + 2))
        elif self._is_store(test + 2):
            region.name = str(first.argval)
            self._emit(f"except {text} as {region.name}:", (test, test + 1, test + 2))
        else:
            raise ValueError("the name of an except clause has another form than CPython's")
        self._print_region(region, test + 3, [*stack, _handled(region)[0]])
        return self._structure.place(self._where[jump.target])

    def _clause_type(self, at: int, stack: list[StackText]) -> tuple[str, int] | None:
        """Returns the text of the type of a clause, and the instruction that tests it; None if there is none."""
        self._stack, self._settled = list(stack), 0
        count = len(self.lines)
        while (instruction := self._instructions[at]).opname in _OF_TYPES and len(self.lines) == count:
            self._step(instruction, at)
            at += 1
        if instruction.opname != "CHECK_EXC_MATCH":
            del self.lines[count:]
            return None
        if len(self.lines) > count or len(self._stack) != len(stack) + 1:
            raise ValueError("the type of an except clause is not a simple expression")
        return self._stack[-1].text, at

    # ---------------------------------------------------------------- after the statement

    def _continue_after(self, exits: Exits, start: int, stop: int | None) -> int | None:
        """Prints which of its exits a statement has left by, if there are several; returns where the path continues."""
        self._settled = 0
        if len(exits.found) > 2:
            raise ValueError("a try statement continues at more than two places")
        others = [each for each in exits.found if each is not exits.after_body]
        if exits.after_body is not None and len(others) == 1 and self._print_else(exits.after_body, others[0], stop):
            exits.found = others
        name = self._new_temporary() if len(exits.found) > 1 else None
        self._replace_markers(exits, start, name)
        stacks = [[*self._stack, *each.values] for each in exits.found]
        if name is not None:
            starts = exits.found[0].at, exits.found[1].at
            return self._two_sides(f"{name} == 0", starts, stacks, self._join_point(starts, stop))
        if not exits.found:
            return None
        self._stack = stacks[0]
        return exits.found[0].at

    def _print_else(self, body: Exit, other: Exit, stop: int | None) -> bool:
        """Prints the ``else`` block of a ``try`` statement if what follows its body leads to where the clauses go."""
        meet = self._join_point((body.at, other.at), stop)
        if body.values or other.values or meet not in (None, other.at):
            return False
        stack = list(self._stack)
        self._emit("else:")
        flows, after, _ = self._block(body.at, meet, stack)
        self._stack = stack
        if flows and after != stack:
            raise ValueError("the else block of a try statement leaves values on the stack")
        return True

    def _replace_markers(self, exits: Exits, start: int, name: str | None) -> None:
        """Turns the markers of exits into assignments to `name`; None: removes them."""
        kept = self.lines[:start]
        lines = [*self.lines[start:], ""]
        for line, following in pairwise(lines):
            text = line.lstrip()
            indent = line[: len(line) - len(text)]
            if not text.startswith(f"\0{exits.number}:"):
                kept.append(line)
            elif name is not None:
                kept.append(f"{indent}{name} = {text.partition(':')[2]}")
            elif _is_header(kept[-1], indent) and not following.startswith(indent):
                kept.append(f"{indent}pass")
        self.lines[:] = kept


def _is_header(line: str, indent: str) -> bool:
    """Whether a line is that of a statement whose block is indented by `indent`."""
    return len(line) - len(line.lstrip()) < len(indent)


def _handled(region: Region) -> list[StackText]:
    """Returns what PUSH_EXC_INFO leaves on the stack."""
    return [StackText(each, is_stable=True) for each in (region.kept, region.caught)]

"""Code objects for a loop with a graph break inside: Python runs the loop, and its body is a function.

A *loop function* is a copy of a function's code, like a resume function, in which the body of one loop is a call::

    for x in items:                                     for x in items:
        y = x.sin() + y                                     number, *values = body(x, y, ...)
        print(y)                                            if number == 0:
        if y.sum() > 9:                   becomes                y, ... = values; continue
            break                                           if number == 1:  # the first way to leave the loop
    return y.cos()                                              y, ... = values; return resumed(y, ...)
                                                        return resumed(y, ...)

The *body function* is an ordinary function, which the frame hook compiles like a resume function: once for all rounds
for which its guards hold.  In it a break of the body is in no loop, so that it may break and resume.  It takes the
locals that the body reads, and returns those that are read later.  A local that may be unbound, or that an exception
handler around the loop reads, is a cell variable that both share.  What follows the loop is a resume function.

The loop function itself is never compiled.  It keeps the iterator, so that leaving the loop drops it when Python would,
and has a condition of ``while`` that reads a length.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from compiler_core.bytecode import (
    Handler,
    Instruction,
    bound_locals,
    comprehension_variables,
    disassemble,
    instruction_indices,
    live_locals,
    make,
    opset,
    outermost_loops,
)
from compiler_core.bytecode.flow import falls_through, names_written, stack_edges, successors
from compiler_core.bytecode.opset import JUMP_CONDITIONS, JUMP_OR_POP_CONDITIONS
from compiler_core.errors import Unsupported
from compiler_core.resume.resume_functions import (
    HANDLED,
    VALUE,
    ResumeLayout,
    assemble_part,
    entry_code,
    line_positions,
    resume_code,
)

_ARGUMENTS, _BODY, _ITEM = "__arguments", "__body", "__item"
_STAYS_IN_LOOP_FUNCTION = frozenset({"POP_TOP", "POP_ITER", "SWAP", "NOP", "END_FOR"})
"""What follows a loop and is no part of a statement: it only drops the iterator."""
_RETURNED = frozenset({"LOAD_CONST", "LOAD_FAST"})
_OF_LENGTH = frozenset({
    "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST", "LOAD_DEREF", "LOAD_CONST", "LOAD_GLOBAL", "LOAD_ATTR",
    "PUSH_NULL", "PRECALL", "CALL", "BINARY_OP", "COMPARE_OP", "TO_BOOL",
})  # fmt: skip
"""The instructions of a condition such as ``len(tokens) < n``."""
_RETURNS = frozenset({"RETURN_VALUE", "RETURN_CONST"})


class LoopPart(NamedTuple):
    """A function that a loop function calls: the body, or what follows the loop."""

    code: types.CodeType
    layout: ResumeLayout
    line: int
    carried: tuple[str, ...] = ()
    """Of the body: the locals that a round passes on to the next one."""


class LoopCode(NamedTuple):
    """The code of a loop function, and the functions that it calls."""

    code: types.CodeType
    parts: list[LoopPart]


def loop_code(code: types.CodeType, layout: ResumeLayout, at: int) -> LoopCode:
    """Returns the code of the loop function for the outermost loop around the instruction `at`.

    Args:
        code: the user's code.
        layout: the parameters, as those of a resume function that starts before the loop.
        at: the index of an instruction in the loop.

    Raises:
        Unsupported: the loop has not the form of a statement of Python's.
    """
    loop = _Loop(code, layout, at)
    return _LoopFunction(loop, _Body(loop)).code()


def _refuse(why: str) -> Unsupported:
    return Unsupported("unsupported operation", f"a loop {why}")


class _Loop:
    """A loop in a code object: its instructions by index, where its body starts, and how it is left."""

    def __init__(self, code: types.CodeType, layout: ResumeLayout, at: int) -> None:
        self.code, self.layout = code, layout
        self.instructions = disassemble(code)
        self.where = instruction_indices(self.instructions)
        number = outermost_loops(code)[at]
        self.inside = {i for i, each in enumerate(outermost_loops(code)) if each is not None and each == number}
        self.depths = dict(self._depths(layout.target, len(layout.stack)))
        self.head = self._head()
        self.is_for = self.instructions[self.head].opname == "FOR_ITER"
        self.depth = self.depths[self.head]
        """The depth of the stack at the head, with the iterator."""
        if len(layout.stack) not in (self.depth, self.depth - self.is_for):
            raise _refuse("with values of an expression around it")
        # that of a try or with block around the loop
        handler = self.instructions[self.head].handler
        while handler is not None and self.where[handler.target] in self.inside:
            handler = handler.target.handler
        self.handler = handler
        self.start, self.items = self._start()
        conditions = {} if self.is_for else dict(self._conditions())
        if self.head in conditions:
            self.start = self.ways(conditions[self.head])[0]
        self.conditions = {
            first: jump
            for first, jump in sorted(conditions.items())
            if first == self.head or self.ways(jump)[0] in (self.head, self.start)
        }
        """The conditions of a ``while`` that Python evaluates: from the first instruction to the last, a jump."""
        self.live = live_locals(self.instructions, comprehension_variables(self.instructions))
        self.bound = bound_locals(self.instructions, layout.names, layout.target)
        self.locals = set(code.co_varnames) - {*code.co_cellvars, *code.co_freevars}

    def _depths(self, start: int, depth: int) -> Iterator[tuple[int, int]]:
        """Yields the instructions that can run from `start` on, each with the depth of the stack there."""
        found, work = set[int](), [(start, depth)]
        while work:
            at, depth = work.pop()
            if at in found:
                continue
            found.add(at)
            yield at, depth
            for target, after in stack_edges(self.instructions[at], depth):
                work.append((at + 1 if target is None else self.where[target], after))

    def _head(self) -> int:
        """Returns the only instruction at which the loop is entered."""
        target, entered = self.layout.target, set[int]()
        if target in self.inside:
            entered.add(target)
        for at in self.depths:
            if at not in self.inside:
                entered |= self.inside.intersection(successors(self.instructions, self.where, at))
        if len(entered) != 1:
            raise _refuse("that is entered at several places")
        head = entered.pop()
        before = self.instructions[target:head]  # the iterable
        is_plain = all(each.target is None and each.handler == before[-1].handler for each in before)
        if not is_plain or (before and before[-1].opname != "GET_ITER"):
            raise _refuse("that begins later")
        return head

    def _start(self) -> tuple[int, int]:
        """Returns where the body starts, after the targets of a ``for`` are stored, and how many values are then on the
        stack above those of the head."""
        if not self.is_for:
            return self.head, 0
        at, items = self.head + 1, 1
        while items:
            name, arg = self.instructions[at].opname, self.instructions[at].arg or 0
            if name == "UNPACK_SEQUENCE":
                items += arg - 1
            elif name in ("STORE_FAST", "STORE_DEREF"):
                items -= 1
            elif name == "STORE_FAST_STORE_FAST":
                items -= 2
            else:
                return self.head + 1, 1  # such as an attribute
            at += 1
        return at, 0

    def _conditions(self) -> Iterator[tuple[int, int]]:
        """Yields the conditions of a ``while`` that read a length.

        Python evaluates them, since a list that each round makes longer would have a compile for each length.
        """
        targets = {self.where[x.target] for x in self.instructions if x.target is not None}
        for jump in self.inside:
            if self.instructions[jump].opname not in JUMP_CONDITIONS:
                continue
            first = jump - 1
            while first in self.inside and self.instructions[first].opname in _OF_LENGTH:
                if self.depths[first] == self.depth or first in targets:
                    break
                first -= 1
            part = self.instructions[first:jump]
            names = {str(each.argval) for each in part if each.opname == "LOAD_GLOBAL"}
            is_whole = self.depths.get(first) == self.depth and all(each.opname in _OF_LENGTH for each in part)
            if is_whole and names == {"len"} and self.ways(jump) != (-1, -1):
                yield first, jump

    def ways(self, jump: int) -> tuple[int, int]:
        """Returns where a conditional jump stays in the loop, and where it leaves it; -1 for both if it only stays."""
        target = self.instructions[jump].target
        assert target is not None
        found = [self.after_jumps(self.where[target]), self.after_jumps(jump + 1)]
        found.sort(key=lambda at: at not in self.inside)
        return (found[0], found[1]) if found[0] in self.inside and found[1] not in self.inside else (-1, -1)

    def after_jumps(self, at: int) -> int:
        """Returns where an instruction leads if it is an unconditional jump, but not beyond the head of the loop."""
        while at != self.head and self.instructions[at].opname.startswith("JUMP_"):
            target = self.instructions[at].target
            if target is None or self.instructions[at].opname in JUMP_OR_POP_CONDITIONS:
                break
            at = self.where[target]
        return at

    def line(self, at: int) -> int:
        """Returns the line of an instruction."""
        return self.instructions[at].lineno or self.code.co_firstlineno

    def reads(self, at: int, known: Iterable[str]) -> list[str]:
        """Returns the locals of `known` that may be read from an instruction on."""
        return sorted(self.live[at].intersection(known) & self.locals)

    def copies(self, indices: Iterable[int]) -> dict[int, Instruction]:
        """Returns new instructions, by the indices of the old ones; their jumps and handlers are still the old ones."""
        return {at: dataclasses.replace(self.instructions[at], offset=None) for at in sorted(indices)}


class _Exit(NamedTuple):
    """A way to leave the body, also for the next round: the instruction to continue at, and how many values are then
    on the stack above the loop's."""

    at: int
    values: int


class _Body:
    """The body function of a loop."""

    def __init__(self, loop: _Loop) -> None:
        self.loop = loop
        self.exits: list[_Exit] = []
        self._indices = sorted(self._explore())
        self.written = self._names_written()
        first = loop.layout.first
        if first in self.written:
            raise _refuse("that changes the self of its method")
        self.returned = [loop.reads(each.at, self.written) for each in self.exits]
        """For each exit, the locals that it returns: those that later rounds, or what follows the loop, may read."""
        self.shared = self._shared()
        self.returned = [[n for n in names if n not in self.shared] for names in self.returned]
        names = self._read_at_start(self._assembled())
        self.names = tuple(n for n in names if n not in self.shared)

    def _explore(self) -> set[int]:
        """Returns the instructions of the body, and finds its exits.

        It goes on until the next round begins, or something below the values of the body on the stack is used.
        """
        loop, found, exits = self.loop, set[int](), dict[int, int]()
        work = [(loop.start, loop.depth + loop.items)]
        while work:
            at, depth = work.pop()
            values = depth - loop.depth
            if (at == loop.head and (at != loop.start or found)) or at in loop.conditions:
                if values:
                    raise _refuse("with values of an expression in it")
                exits[at] = 0
                continue
            if at in found or at in exits:
                continue
            if values < 0:
                raise _refuse("whose body uses values around it")
            instruction = loop.instructions[at]
            if self._leaves(at, values):
                if values > 1:
                    raise _refuse("that is left with several values")
                exits[at] = values
                continue
            found.add(at)
            handler = instruction.handler
            if handler is not None and handler != loop.handler and handler.depth < loop.depth:
                raise _refuse("with a try block around a part of it")
            for target, after in stack_edges(instruction, depth):
                if handler is None or target is not handler.target or handler != loop.handler:
                    work.append((at + 1 if target is None else loop.where[target], after))
        self.exits = [_Exit(at, exits[at]) for at in sorted(exits)]
        return found

    def _leaves(self, at: int, values: int) -> bool:
        """Whether the body ends before an instruction; `values`: how many of it are on the stack."""
        instruction = self.loop.instructions[at]
        uses = opset.least_depth(instruction.opname, instruction.arg) > values
        if at in self.loop.inside:
            if uses:
                raise _refuse("whose body uses values around it")
            return False
        return uses or instruction.opname in _RETURNS or (not self.loop.is_for and not values)

    def _names_written(self) -> set[str]:
        found, instructions = set[str](), [self.loop.instructions[at] for at in self._indices]
        inlined = comprehension_variables(instructions)
        for each in instructions:
            found |= names_written(each) - inlined.get(each, frozenset())
            if each.opname == "DELETE_FAST":
                found.add(str(each.argval))
        return found & self.loop.locals

    def _read_at_start(self, instructions: Sequence[Instruction]) -> list[str]:
        live = live_locals(instructions, comprehension_variables(instructions))
        return sorted(live[0] & self.loop.locals - {self.loop.layout.first})

    def _shared(self) -> set[str]:
        """Returns the locals that are cell variables of the loop function and of the body."""
        loop = self.loop
        found = set[str]()
        if loop.handler is not None:
            found |= loop.live[loop.where[loop.handler.target]] & self.written
        instructions = self._assembled()
        bound = bound_locals(instructions, loop.bound[loop.start])
        found |= set(self._read_at_start(instructions)) - loop.bound[loop.start]
        where = instruction_indices(instructions)
        for end, names in zip(self._ends, self.returned, strict=True):
            found |= set(names) - bound[where[end]]
        return found

    def _assembled(self) -> list[Instruction]:
        """Returns the instructions of the function after those that lead to its body."""
        loop = self.loop
        copies = loop.copies(self._indices)
        ends = [self._end(i, each, self.returned[i]) for i, each in enumerate(self.exits)]
        self._ends = [each[0] for each in ends]
        at_ends = {each.at: end for each, end in zip(self.exits, self._ends, strict=True)}
        in_body = copies if loop.head != loop.start else {at: copies[at] for at in copies if at != loop.head}
        found = [make.jump(copies[loop.start])]
        for at, copied in copies.items():
            found.append(copied)
            if copied.target is not None:
                to = loop.where[copied.target]
                copied.target = in_body.get(to) or at_ends[to]
            if copied.handler is not None:
                copied.handler = self._handler(copied.handler, copies)
            if falls_through(copied) and at + 1 not in in_body:
                found.append(make.jump(at_ends[at + 1]))
                found[-1].positions = copied.positions
        return [*found, *(x for end in ends for x in end)]

    def _handler(self, handler: Handler, copies: dict[int, Instruction]) -> Handler | None:
        """Returns a handler in the body function, which has nothing of what lies below the body's values."""
        loop = self.loop
        if handler == loop.handler:
            return None
        return Handler(copies[loop.where[handler.target]], handler.depth - loop.depth, handler.lasti)

    def _end(self, number: int, exit_: _Exit, names: Sequence[str]) -> list[Instruction]:
        """Returns the code that ends the body at an exit: returns its number, locals, and the value on the stack."""
        value = [_ITEM] * exit_.values
        stored = [*map(make.store_fast, value)] or [make.nop()]
        loads = [make.load_const(number), *map(make.load_fast, [*names, *value])]
        found = [*stored, *loads, make.build_tuple(len(loads)), make.return_value()]
        for each in found:
            each.positions = line_positions(self.loop.line(exit_.at))
        return found

    @property
    def layout(self) -> ResumeLayout:
        """The parameters of the function."""
        loop = self.loop
        cells = (*loop.layout.cells, *sorted(self.shared))
        return ResumeLayout(loop.start, (VALUE,) * loop.items, self.names, cells, loop.layout.first)

    def code(self) -> types.CodeType:
        loop, instructions = self.loop, self._assembled()
        layout = self.layout
        *entry, _ = entry_code(loop.instructions, layout)
        return assemble_part(loop.code, layout, entry, instructions, loop.line(loop.start))


class _LoopFunction:
    """The loop function."""

    def __init__(self, loop: _Loop, body: _Body) -> None:
        self.loop, self.body = loop, body
        self._kinds = [*loop.layout.stack[: loop.depth - 1], VALUE] if loop.is_for else list(loop.layout.stack)
        """The kinds of the stack slots at the head."""
        self._parts: list[LoopPart] = []
        self._cells = set(body.shared)
        """The locals that are cell variables."""
        self._line = loop.line(loop.head)
        self._outside = loop.copies(self._handler_indices())

    def code(self) -> LoopCode:
        loop, layout = self.loop, self.loop.layout
        body = self.body.code()
        call, parts = self._call(body), list[list[Instruction]]()
        labels = {first: make.nop() for first in loop.conditions}
        rounds = {loop.head: call[0], **labels}
        if loop.is_for:
            heading = loop.copies(range(layout.target, loop.start))
            head = rounds[loop.head] = heading[loop.head]
            assert head.target is not None
            parts.append(self._after(loop.where[head.target], self._kinds_at_end()))
            head.target = parts[0][0]
            main = [*heading.values(), *call]
        else:
            main = [make.jump(rounds[loop.head]), *call]
            parts += (self._condition(first, label, call[0], rounds) for first, label in labels.items())
        targets = []
        for exit_ in self.body.exits:
            if exit_.at not in rounds:
                parts.append(self._after(exit_.at, self._kinds + [VALUE] * exit_.values))
            targets.append(rounds[exit_.at] if exit_.at in rounds else parts[-1][0])
        main += [*self._dispatch(targets), *itertools.chain(*parts)]
        for each in main:
            each.handler = self._copied_handler(each.handler)
        for each in self._outside.values():
            each.handler = self._copied_handler(each.handler)
            each.target = None if each.target is None else self._outside[loop.where[each.target]]
        own = tuple(sorted(self._cells))
        *entry, _ = entry_code(loop.instructions, layout)
        entry = [*self._take_arguments(), *entry, *make.function(body), make.store_fast(_BODY)]
        code = assemble_part(loop.code, layout, entry, [*main, *self._outside.values()], self._line, own, (_ARGUMENTS,))
        again = zip(self.body.exits, self.body.returned, strict=True)
        passed = {name for each, names in again if each.at in rounds for name in names}
        carried = tuple(sorted(passed | self.body.shared))
        return LoopCode(code, [LoopPart(body, self.body.layout, loop.line(loop.start), carried), *self._parts])

    def _condition(
        self, first: int, label: Instruction, call: Instruction, rounds: dict[int, Instruction]
    ) -> list[Instruction]:
        """Returns the code of a condition that Python evaluates, and of what follows the loop if it does not hold."""
        loop, jump = self.loop, self.loop.conditions[first]
        stays, leaves = loop.ways(jump)
        again = call if stays == loop.start else rounds[stays]
        left = self._after(leaves, self._kinds)
        copies, jumped = list(loop.copies(range(first, jump + 1)).values()), make.nop()
        target = copies[-1].target
        assert target is not None
        to = (again, left[0]) if loop.after_jumps(loop.where[target]) == stays else (left[0], again)
        copies[-1].target = jumped
        return [label, *copies, make.jump(to[1]), jumped, make.jump(to[0]), *left]

    def _take_arguments(self) -> list[Instruction]:
        """Returns the code that takes the arguments out of their list, so that the caller keeps none of them."""
        names = self.loop.layout.parameters
        stores = [make.store_deref(n) if n in self._cells else make.store_fast(n) for n in names]
        clear = make.load_callable([make.load_fast(_ARGUMENTS), make.load_attr("clear")])
        unpack = [make.load_fast(_ARGUMENTS), make.unpack_sequence(len(names)), *stores]
        return [*unpack, *clear, *make.call(0), make.pop_top()]

    def _handler_indices(self) -> set[int]:
        """Returns the instructions of the exception handler around the loop, and what follows it."""
        loop = self.loop
        if loop.handler is None:
            return set()
        return {at for at, _ in loop._depths(loop.where[loop.handler.target], loop.handler.start_depth)}

    def _copied_handler(self, handler: Handler | None) -> Handler | None:
        if handler is None:
            return None
        target = self._outside.get(self.loop.where.get(handler.target, -1))
        return dataclasses.replace(handler, target=target) if target is not None else None

    def _call(self, body: types.CodeType) -> list[Instruction]:
        """Returns the code that calls the body, and leaves its result on the stack."""
        items = [make.store_fast(_ITEM)] if self.loop.items else []
        layout = self.body.layout
        loads = [make.load_fast(layout.first)] if layout.first else []
        loads += map(make.load_closure, layout.cells)
        loads += map(make.load_fast, (*([_ITEM] * self.loop.items), *layout.names))
        calls = [*make.load_callable([make.load_fast(_BODY)]), *loads, *make.call(len(loads))]
        for each in calls:
            each.positions, each.handler = line_positions(self._line), self.loop.handler
        return [*items, make.nop(), *calls]

    def _dispatch(self, targets: list[Instruction]) -> list[Instruction]:
        """Returns the code that takes the body's result: stores the locals, and goes on at the target of its exit."""
        found: list[Instruction] = []
        ends = list(zip(self.body.returned, (each.values for each in self.body.exits), targets, strict=True))
        following = make.nop()
        for number, (names, values, target) in enumerate(ends):
            if number < len(ends) - 1:
                test = [make.copy(1), make.load_const(0), make.load_subscript(), make.load_const(number), make.is_op()]
                found += [*test, *make.pop_jump_if(False, following)]
            found += [make.unpack_sequence(1 + len(names) + values), make.pop_top()]
            found += [*map(make.store_fast, names), make.jump(target)]
            found.append(following)
            following = make.nop()
        return found[:-1]

    def _kinds_at_end(self) -> list[str]:
        """Returns the kinds of the stack slots where a ``for`` goes when its iterator has no more items."""
        effect = opset.stack_effect("FOR_ITER", 0, jump=True)
        return self._kinds[:effect] if effect < 0 else self._kinds + [VALUE] * effect

    def _after(self, at: int, kinds: Sequence[str]) -> list[Instruction]:
        """Returns the code that goes on at an instruction after the loop: drops the iterator, and returns the result
        of a resume function."""
        loop, found, stack = self.loop, [make.nop()], list(kinds)
        if loop.is_for and loop.instructions[at].opname == "END_FOR":
            found = []  # FOR_ITER must jump to it
        while True:
            instruction = loop.instructions[at]
            if instruction.opname == "JUMP_FORWARD":
                assert instruction.target is not None
                at = loop.where[instruction.target]
                continue
            if instruction.opname not in _STAYS_IN_LOOP_FUNCTION:
                break
            found += loop.copies([at]).values()
            if instruction.opname == "SWAP":
                other = -(instruction.arg or 1)
                stack[-1], stack[other] = stack[other], stack[-1]
            elif instruction.opname != "NOP":
                if stack.pop() != VALUE:
                    raise _refuse("after which an exception is handled")
                del stack[len(stack) + 1 + opset.stack_effect(instruction.opname, instruction.arg, jump=False) :]
            at += 1
        following = loop.instructions[at : at + 2]
        if following[0].opname in _RETURNS:
            return [*found, *loop.copies([at]).values()]
        if following[0].opname in _RETURNED and following[1].opname == "RETURN_VALUE" and not stack:
            return [*found, *loop.copies([at, at + 1]).values()]
        return [*found, *self._resume(at, stack)]

    def _resume(self, at: int, stack: Sequence[str]) -> list[Instruction]:
        """Returns the code that returns the result of a resume function that begins at an instruction."""
        loop, layout = self.loop, self.loop.layout
        names = [n for n in loop.reads(at, loop.locals) if n != layout.first]
        new = [n for n in names if n not in loop.bound[at] or n in self.body.shared]
        self._cells |= set(new)
        plain = tuple(n for n in names if n not in new)
        resumes = ResumeLayout(at, tuple(stack), plain, (*layout.cells, *new), layout.first)
        code = resume_code(loop.code, resumes)
        self._parts.append(LoopPart(code, resumes, loop.line(at)))
        found: list[Instruction] = []
        for i, kind in reversed(list(enumerate(stack))):
            if kind == HANDLED:
                handled = [*make.load_callable([make.load_const(sys.exception)]), *make.call(0)]
                found += [*handled, make.store_fast(f"__stack{i}"), Instruction("POP_EXCEPT")]
            elif kind == VALUE:
                found.append(make.store_fast(f"__stack{i}"))
            else:
                raise _refuse("in an expression")
        loads = [make.load_fast(layout.first)] if layout.first else []
        loads += map(make.load_closure, resumes.cells)
        loads += [make.load_fast(f"__stack{i}") for i in range(len(stack))] + list(map(make.load_fast, plain))
        function = make.function(code)
        called = make.load_callable(function)
        return [*found, *called, *loads, *make.call(len(loads)), make.return_value()]

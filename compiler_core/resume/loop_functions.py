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

The loop function itself is never compiled.  It keeps the iterator, so that leaving the loop drops it when Python would.
"""

from __future__ import annotations

import dataclasses
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
from compiler_core.bytecode.flow import (
    falls_through,
    names_written,
    stack_edges,
    successors,
)
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
_STAYS_IN_LOOP_FUNCTION = frozenset({"POP_TOP", "SWAP", "NOP", "END_FOR"})
"""What follows a loop and is no part of a statement: it only drops the iterator."""
_RETURNED = frozenset({"LOAD_CONST", "LOAD_FAST"})
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
        if self.depth != len(layout.stack):
            raise _refuse("with values of an expression around it")
        self.handler = self._handler_around()
        self.start, self.items = self._start()
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
        elif self.instructions[target].opname != "GET_ITER" or target + 1 not in self.inside:
            raise _refuse("that begins later")
        for at in self.depths:
            if at not in self.inside:
                entered |= self.inside.intersection(successors(self.instructions, self.where, at))
        if len(entered) != 1:
            raise _refuse("that is entered at several places")
        return entered.pop()

    def _handler_around(self) -> Handler | None:
        """Returns the exception handler of a try or with block around the loop."""
        handler = self.instructions[self.head].handler
        while handler is not None and self.where[handler.target] in self.inside:
            handler = handler.target.handler
        return handler

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
    """A way to leave the body: the instruction to continue at, and what is then on the stack above the loop's."""

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
        self.next = loop.reads(loop.head, self.written)
        """The locals that later rounds, or what follows the loop, may read."""
        self.left = [loop.reads(each.at, self.written) for each in self.exits]
        """The same for each exit."""
        self.shared = self._shared()
        self.next, *self.left = ([n for n in names if n not in self.shared] for names in (self.next, *self.left))
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
            if at == loop.head and (at != loop.start or found):
                if values:
                    raise _refuse("with values of an expression in it")
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
        for end, names in zip(self._ends, (self.next, *self.left), strict=True):
            found |= set(names) - bound[where[end]]
        return found

    def _assembled(self) -> list[Instruction]:
        """Returns the instructions of the function after those that lead to its body."""
        loop = self.loop
        copies = loop.copies(self._indices)
        ends = [self._end(0, loop.head, 0, self.next)]
        ends += [self._end(i + 1, e.at, e.values, self.left[i]) for i, e in enumerate(self.exits)]
        self._ends = [each[0] for each in ends]
        at_ends = {loop.head: ends[0][0], **{e.at: end[0] for e, end in zip(self.exits, ends[1:], strict=True)}}
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

    def _end(self, number: int, at: int, values: int, names: Sequence[str]) -> list[Instruction]:
        """Returns the code that ends the body before an instruction: returns the number of the end, locals, and the
        value on the stack."""
        stored = [make.store_fast(_ITEM)] if values else [make.nop()]
        loads = [make.load_const(number), *map(make.load_fast, names), *([make.load_fast(_ITEM)] if values else [])]
        found = [*stored, *loads, make.build_tuple(len(loads)), make.return_value()]
        for each in found:
            each.positions = line_positions(self.loop.line(at))
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
        self._kinds = [*loop.layout.stack[:-1], VALUE] if loop.is_for else list(loop.layout.stack)
        """The kinds of the stack slots at the head."""
        self._parts: list[LoopPart] = []
        self._cells = set(body.shared)
        """The locals that are cell variables."""
        self._line = loop.line(loop.head)
        self._outside = loop.copies(self._handler_indices())

    def code(self) -> LoopCode:
        loop, layout = self.loop, self.loop.layout
        body = self.body.code()
        exits = [self._after(each.at, self._kinds + [VALUE] * each.values) for each in self.body.exits]
        heading = loop.copies(range(layout.target, loop.start))
        head = heading.get(loop.head, make.nop())
        ended: list[Instruction] = []
        if loop.is_for:
            assert head.target is not None
            ended = self._after(loop.where[head.target], self._kinds_at_end())
            head.target = ended[0]
        main = [*heading.values(), *([head] if head not in heading.values() else [])]
        main += [*self._call(body), *self._dispatch(head, exits)]
        instructions = [*main, *ended, *(x for each in exits for x in each), *self._outside.values()]
        for each in [*main, *ended, *(x for exit_ in exits for x in exit_)]:
            each.handler = self._copied_handler(each.handler)
        for each in self._outside.values():
            each.handler = self._copied_handler(each.handler)
            each.target = None if each.target is None else self._outside[loop.where[each.target]]
        own = tuple(sorted(self._cells))
        *entry, _ = entry_code(loop.instructions, layout)
        entry = [*self._take_arguments(), *entry, *make.function(body), make.store_fast(_BODY)]
        code = assemble_part(loop.code, layout, entry, instructions, self._line, own, (_ARGUMENTS,))
        carried = tuple(sorted({*self.body.next, *self.body.shared}))
        return LoopCode(code, [LoopPart(body, self.body.layout, loop.line(loop.start), carried), *self._parts])

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
        start = loop.where[loop.handler.target]
        depth = loop.handler.depth + loop.handler.lasti + 1
        return {at for at, _ in loop._depths(start, depth)}

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

    def _dispatch(self, head: Instruction, exits: list[list[Instruction]]) -> list[Instruction]:
        """Returns the code that takes the body's result: stores the locals, and goes on with the next round or where
        the loop is left."""
        found: list[Instruction] = []
        ends = [(self.body.next, 0, head)]
        ends += [(n, e.values, x[0]) for n, e, x in zip(self.body.left, self.body.exits, exits, strict=True)]
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

"""Prints loops as ``for`` and ``while`` statements."""

from __future__ import annotations

from compiler_core.bytecode import opset
from compiler_core.tools.decompile.branches import Branches, texts_of
from compiler_core.tools.decompile.contexts import Loop, Region
from compiler_core.tools.decompile.forms import StackText


class Loops(Branches):
    """Prints loops; a subclass prints paths."""

    def _leaves_or_repeats(self, at: int) -> bool:
        """Prints ``continue`` or ``break`` if the path comes to the start or the end of a loop."""
        for number, loop in enumerate(reversed(self._contexts)):
            if isinstance(loop, Region):
                return False
            if at not in (loop.header, loop.follow):
                continue
            if number:
                raise ValueError("a jump leaves two loops")
            self._store_pending(None)
            self._leave_loop(loop, at)
            return True
        return False

    def _leave_loop(self, loop: Loop, at: int) -> None:
        if at == loop.follow:
            if loop.broken is not None and texts_of(loop.broken) != texts_of(self._stack):
                raise ValueError("the ways out of a loop leave different values on the stack")
            loop.broken = list(self._stack)
        elif len(self._stack) != loop.depth:
            raise ValueError("the stack grows in a loop")
        self._emit("break" if at == loop.follow else "continue")

    def _loop(self, header: int, stop: int | None) -> int | None:
        """Prints a loop; returns the instruction after it."""
        is_for = self._instructions[header].opname == "FOR_ITER"
        follow = self._follow(header, stop, is_for)
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

    def _follow(self, header: int, stop: int | None, is_for: bool) -> int | None:
        """Returns the first instruction after a loop."""
        body, around = self._structure.loops[header], self._chain()
        exits = dict.fromkeys(
            following for at in sorted(body) for following in self._structure.flow(at, around) if following not in body
        )
        follow = next(iter(exits)) if len(exits) == 1 else self._join_point(exits, stop)
        if (follow is not None and follow >= 0) or not exits:
            return follow
        if is_for:
            return self._structure.successors(header)[1]
        return next((each for each in exits if not self._structure.ends_soon(each)), next(iter(exits)))

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
        self._contexts.append(loop)
        self._indent += 1
        self._settled = 0
        self._path(at, None, enters=at == loop.header)
        self._indent -= 1
        self._contexts.pop()

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

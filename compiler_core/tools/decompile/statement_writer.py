"""The symbolic stack of the decompiler, and the statements that it has written."""

from __future__ import annotations

from collections.abc import Iterable

from compiler_core.tools.decompile.forms import StackText


class StatementWriter:
    """A stack of texts instead of values, and the lines of a Python function."""

    def __init__(self, header: str) -> None:
        self.lines = [header]
        self.line_of: dict[int, int] = {}
        """From the index of an instruction to the number of its line."""
        self._stack: list[StackText] = []
        self._settled = 0
        """This many values from the bottom of the stack are known to be stable."""
        self._loaded: set[str | None] = set()
        """Names that may be on the stack."""
        self._indent = 1
        self._temporaries = 0
        self._taken: set[str] = set()
        """Names that the function itself uses."""
        self._dropped: list[str] = []

    def _pop(self) -> StackText:
        if not self._stack:
            return StackText("<unknown>", is_stable=True)
        self._settled = min(self._settled, len(self._stack) - 1)
        return self._stack.pop()

    def _pop_many(self, count: int) -> list[StackText]:
        return [self._pop() for _ in range(count)][::-1]

    def _new_temporary(self) -> str:
        while True:
            self._temporaries += 1
            if (name := f"t{self._temporaries - 1}") not in self._taken:
                return name

    def _stable_copy(self, depth: int) -> StackText:
        """Returns the value at `depth`, stored in a temporary first if printing it twice would compute it twice."""
        if depth > len(self._stack):
            return StackText("<unknown>", is_stable=True)
        if not self._stack[-depth].is_stable:
            self._store_in_temporary(len(self._stack) - depth)
        return self._stack[-depth]

    def _store_pending(self, *written: str | None) -> None:
        """Called before a statement: stores what was computed earlier and is used later, or is overwritten by it, in
        temporaries."""
        first = 0 if self._loaded.intersection(written) else self._settled
        for i, value in enumerate(self._stack[first:], first):
            if not value.is_stable or value.text in written:
                self._store_in_temporary(i)
        self._settled = len(self._stack)

    def _store_in_temporary(self, at: int) -> None:
        value, name = self._stack[at], self._new_temporary()
        self._emit(f"{name} = {value.text}", value.instructions)
        self._stack[at] = StackText(name, is_stable=True)

    def _emit(self, text: str, instructions: Iterable[int] = ()) -> None:
        dropped = f"  # drops {', '.join(self._dropped)}" if self._dropped else ""
        self._dropped.clear()
        self.lines.append("    " * self._indent + text + dropped)
        for i in instructions:
            self.line_of[i] = len(self.lines)

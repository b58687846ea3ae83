"""The whole state of the symbolic interpreter after any recorded step.

`Replay` gives the state after any step, in any order.  Its stacks are linked lists that share their tails, so reading a
`Steps` takes time linear in its differences, and a state is found by binary search.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from compiler_core.records.steps import StepCode, StepNote, Steps, StepStore, StepText
from compiler_core.tools.record_reading import is_consistent


@dataclass(frozen=True)
class CallState:
    """An active call: its current instruction, and its stack and locals as text."""

    call: int
    name: str
    filename: str
    line: int
    instruction: str
    stack: list[str]
    locals: dict[str, str]


@dataclass(frozen=True)
class StepState:
    """The state after a step: the active calls, the frame's own first, and all notes so far."""

    step: int
    calls: list[CallState]
    nodes: list[StepNote]
    guards: list[StepNote]
    effects: list[StepNote]
    added: list[StepNote]
    """The notes of this step alone, with the break if the attempt ended here."""


_Stack = tuple[int, Any] | None
"""The top value and the rest of the stack; None if empty."""


class Replay:
    """The state after any step of a `Steps`."""

    def __init__(
        self,
        steps: Steps,
        line_item: Callable[[str, int], str | None] = lambda filename, line: None,
        instruction_item: Callable[[int], str | None] = lambda at: None,
    ) -> None:
        """
        Args:
            steps: the recorded attempt; ValueError if it is inconsistent.
            line_item: returns the item of a file name and line number, or None.
            instruction_item: returns the item of the frame's instruction with this index, or None.
        """
        if not is_consistent(steps):
            raise ValueError("the steps of this record are inconsistent")
        self.steps = steps
        self._line_item = functools.cache(line_item)
        self._instruction_item = instruction_item
        self._rows: list[list[int]] = [[] for _ in steps.calls]
        self._stacks: list[list[tuple[int, _Stack]]] = [[] for _ in steps.calls]
        self._stores: dict[tuple[int, str], list[StepStore]] = {}
        self._names: list[dict[str, None]] = [{} for _ in steps.calls]
        self._texts: dict[int, list[StepText]] = {}
        self._steps_of: dict[str, list[int]] = {}
        self._read()

    def __len__(self) -> int:
        return len(self.steps.call)

    def _read(self) -> None:
        steps = self.steps
        results = _by_step(steps.results)
        for n, call in enumerate(steps.call):
            self._rows[call].append(n)
            self._move(n, call, steps.pops[n], steps.pushes[n])
            for result in results.get(n, ()):
                self._move(n, result.call, result.pops, result.pushes)
        for store in steps.stores:
            self._stores.setdefault((store.call, store.name), []).append(store)
            self._names[store.call][store.name] = None
        for text in steps.texts:
            self._texts.setdefault(text.value, []).append(text)

    def _move(self, n: int, call: int, pops: int, pushes: Sequence[int]) -> None:
        if not pops and not pushes:
            return
        history = self._stacks[call]
        stack = history[-1][1] if history else None
        while pops and stack is not None:
            stack, pops = stack[1], pops - 1
        for value in pushes:
            stack = (value, stack)
        history.append((n, stack))

    # ---- the state

    def state(self, n: int) -> StepState:
        """Returns the state after step `n`; IndexError if there is no such step."""
        if not 0 <= n < len(self):
            raise IndexError(f"there is no step {n}; there are {len(self)}")
        so_far = self.steps.notes[: bisect_right(self.steps.notes, n, key=_step)]
        kinds = {kind: [x for x in so_far if x.kind == kind] for kind in ("node", "guard", "effect")}
        calls = [self._call(call, n) for call in self.calls(n)]
        return StepState(n, calls, kinds["node"], kinds["guard"], kinds["effect"], self.notes(n))

    def calls(self, n: int) -> list[int]:
        """Returns the numbers of the active calls at step `n`, the frame's own first."""
        found, call = [], self.steps.call[n] if len(self) else None
        while call is not None:
            found.append(call)
            call = self.steps.calls[call].caller
        return found[::-1]

    def _call(self, call: int, n: int) -> CallState:
        code, at = self._position(call, n)
        stack = [self.text(v, n) for v in self.stack(call, n)]
        local = {name: self.text(v, n) for name, v in self.locals(call, n).items()}
        return CallState(call, code.name, code.filename, code.lines[at], code.instructions[at], stack, local)

    def _position(self, call: int, n: int) -> tuple[StepCode, int]:
        """Returns the code of a call, and the index of its current instruction."""
        rows = self._rows[call]
        row = bisect_right(rows, n) - 1
        return self.steps.codes[self.steps.calls[call].code], self.steps.at[rows[row]] if row >= 0 else 0

    def stack(self, call: int, n: int) -> list[int]:
        """Returns the values on a call's stack after step `n`, the top last."""
        history = self._stacks[call]
        i = bisect_right(history, n, key=lambda entry: entry[0]) - 1
        stack = history[i][1] if i >= 0 else None
        found = []
        while stack is not None:
            value, stack = stack
            found.append(value)
        return found[::-1]

    def locals(self, call: int, n: int) -> dict[str, int]:
        """Returns the values of a call's locals and cells after step `n`, by name."""
        found = {}
        for name in self._names[call]:
            history = self._stores[call, name]
            i = bisect_right(history, n, key=_step) - 1
            value = history[i].value if i >= 0 else None
            if value is not None:
                found[name] = value
        return found

    def text(self, value: int, n: int) -> str:
        """Returns the text of a value after step `n`."""
        history = self._texts.get(value, [])
        i = bisect_right(history, n, key=_step) - 1
        return history[i].text if i >= 0 else self.steps.values[value]

    def notes(self, n: int) -> list[StepNote]:
        """Returns the notes of step `n`."""
        notes = self.steps.notes
        return notes[bisect_left(notes, n, key=_step) : bisect_right(notes, n, key=_step)]

    # ---- items of the record

    def items(self, n: int) -> list[str]:
        """Returns the items of step `n`: the frame's instruction, the user's line, and what the step added."""
        found = [self._instruction_item(self._position(0, n)[1]), self._line(self.steps.call[n], n)]
        found += [note.item for note in self.notes(n)]
        return list(dict.fromkeys(item for item in found if item is not None))

    def _line(self, call: int, n: int) -> str | None:
        """Returns the line of the innermost call whose source the record has; None at an instruction without a line."""
        at: int | None = call
        while at is not None:
            code, index = self._position(at, n)
            if self._has_source(self.steps.calls[at].code):
                return self._line_item(code.filename, code.lines[index])
            at = self.steps.calls[at].caller
        return None

    def _has_source(self, code: int) -> bool:
        filename = self.steps.codes[code].filename
        return any(self._line_item(filename, line) is not None for line in self.steps.codes[code].lines)

    def steps_of(self, item: str) -> list[int]:
        """Returns the steps that added `item` (a node, a guard) or that ran it (a line, an instruction)."""
        if not self._steps_of:
            for n in range(len(self)):
                for each in self.items(n):
                    self._steps_of.setdefault(each, []).append(n)
        return self._steps_of.get(item, [])

    def step_of(self, item: str) -> int | None:
        """Returns the first step of `item`, or None."""
        return next(iter(self.steps_of(item)), None)

    # ---- as text

    def lines(self) -> Iterator[str]:
        """Yields a line for each step: the source line, the instruction, and its effects."""
        stores, results = _by_step(self.steps.stores), _by_step(self.steps.results)
        for n, call in enumerate(self.steps.call):
            code, at = self._position(call, n)
            place = f"{'  ' * (len(self.calls(n)) - 1)}{code.name}:{code.lines[at] or '?'}"
            done = [f"push {self.text(v, n)}" for v in self.steps.pushes[n]]
            done += [f"gives {self.text(v, n)}" for result in results.get(n, ()) for v in result.pushes]
            done += [f"{s.name} = {'nothing' if s.value is None else self.text(s.value, n)}" for s in stores.get(n, ())]
            done += [f"+ {note.kind}: {note.text}" for note in self.notes(n)]
            yield f"{n:6}  {place:<24}  {code.instructions[at]:<32}  {'; '.join(done)}".rstrip()


def steps_text(attempts: Sequence[Steps]) -> str:
    """Returns all attempts of a compile as text, a line for each step."""
    parts = []
    for i, steps in enumerate(attempts, 1):
        dropped = f", and {steps.dropped:,} that were not kept" if steps.dropped else ""
        parts.append(f"attempt {i} of {len(attempts)}: {steps.outcome}, {len(steps.call):,} steps{dropped}")
        parts += Replay(steps).lines()
    return "\n".join(parts) + "\n"


def _step(entry: Any) -> int:
    return int(entry.step)


def _by_step(entries: Sequence[Any]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for entry in entries:
        found.setdefault(entry.step, []).append(entry)
    return found

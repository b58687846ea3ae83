"""Every step of Dynamo's symbolic interpreter as differences, where that was asked for.

It only looks: a lazy value that is asked for anything becomes a real one, and then Dynamo captures something else.  So
nothing is ever asked of a value: what it is stands in its ``__dict__``.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from contextlib import ExitStack
from itertools import islice
from typing import Any

from compiler_core.bytecode.instructions import raw_units
from compiler_core.bytecode.listing import bytecode_text
from compiler_core.records.steps import StepCall, StepCode, StepNote, StepResult, Steps, StepStore
from compiler_core.stock import versions
from compiler_core.support.safe_repr import shown

MOST_STEPS = 200_000
_REACH = 4
_WIDE = ("CALL", "BUILD_", "SWAP", "COPY", "UNPACK_", "PRECALL", "RAISE", "MAKE_FUNCTION", "FORMAT")
_PLAIN = (int, float, str, bool, bytes, type(None), complex)


class Stepping:
    """Records the attempts of all compiles while a record is open.  `found` is called with each attempt's steps."""

    def __init__(self, found: Callable[[Steps], None]) -> None:
        self._found = found
        self._attempt: _Attempt | None = None

    def install(self, stack: ExitStack, guard: Callable[[Callable[..., Any]], Callable[..., Any]]) -> bool:
        """Watch until `stack` closes; False where this PyTorch has no such interpreter."""
        interpreter = versions.interpreter()
        guards = versions.guards_set()
        if interpreter is None:
            return False
        begin, end, note = guard(self._begin), guard(self._end), guard(self._guard)
        step, add = interpreter.step, getattr(guards, "add", None)

        def stepped(tx: Any) -> Any:
            token = begin(tx)
            failed = True
            try:
                result = step(tx)
                failed = False
                return result
            finally:
                if token is not None:
                    end(tx, token, failed)

        stack.callback(setattr, interpreter, "step", step)
        interpreter.step = stepped
        if add is not None:

            def added(self_: Any, guard_: Any, *args: Any, **kwargs: Any) -> Any:
                note(guard_)
                return add(self_, guard_, *args, **kwargs)

            stack.callback(setattr, guards, "add", add)
            guards.add = added
        return True

    def _begin(self, tx: Any) -> _Step | None:
        parent = tx.__dict__.get("parent")
        if self._attempt is None or (parent is None and self._attempt.root is not tx):
            if parent is not None:
                return None
            self._attempt = _Attempt(tx)
            self._found(self._attempt.steps)
        return self._attempt.begin(tx)

    def _end(self, tx: Any, step: _Step, failed: bool) -> None:
        if self._attempt is not None:
            self._attempt.end(tx, step, failed)

    def _guard(self, guard: Any) -> None:
        if self._attempt is not None:
            self._attempt.note("guard", f"{guard.create_fn_name()} {guard.name}".strip())


_Step = tuple[int, int, int]
"""Its number, its call, and how much of the stack below it cannot touch."""


class _Attempt:
    """One attempt to capture a frame."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.steps = Steps()
        self._calls: dict[int, tuple[Any, int, list[Any]]] = {}
        """Each interpreter's number, and its stack as it was last seen."""
        self._codes: dict[types.CodeType, tuple[int, dict[int, int]]] = {}
        self._values: dict[int, tuple[Any, int]] = {}
        self._texts: dict[str, int] = {}
        self._nodes = 0

    def begin(self, tx: Any) -> _Step | None:
        at = tx.__dict__.get("instruction_pointer")
        if at is None:
            return None
        if len(self.steps.call) >= MOST_STEPS:
            self.steps.dropped += 1
            return None
        inst = tx.__dict__["instructions"][at]
        call, seen = self._call(tx)
        reach = _REACH + (inst.arg or 0 if inst.opname.startswith(_WIDE) else 0)
        number = len(self.steps.call)
        self.steps.call.append(call)
        self.steps.at.append(self._codes[tx.f_code][1].get(inst.offset, 0))
        self.steps.pops.append(0)
        self.steps.pushes.append([])
        return number, call, max(0, len(seen) - reach)

    def end(self, tx: Any, step: _Step, failed: bool) -> None:
        number, call, below = step
        _, _, seen = self._calls[id(tx)]
        stack = tx.__dict__["stack"]
        same = below
        while same < len(seen) and same < len(stack) and seen[same] is stack[same]:
            same += 1
        pops, pushes = len(seen) - same, [self._value(value) for value in stack[same:]]
        seen[same:] = stack[same:]
        last = len(self.steps.call) - 1
        if last == number:
            self.steps.pops[number], self.steps.pushes[number] = pops, pushes
        elif pops or pushes:
            self.steps.results.append(StepResult(last, call, pops, pushes))
        inst = tx.__dict__.get("current_instruction")
        if inst is not None and inst.opname.startswith(("STORE_FAST", "STORE_DEREF", "DELETE_FAST")):
            value = tx.__dict__["symbolic_locals"].get(inst.argval)
            self.steps.stores.append(
                StepStore(last, call, str(inst.argval), None if value is None else self._value(value))
            )
        self._new_nodes(tx)
        if failed and tx is self.root:
            self.steps.outcome = "broke"
            self.note("break", "the attempt ended here")

    def note(self, kind: Any, text: str, item: str | None = None) -> None:
        if self.steps.call:
            self.steps.notes.append(StepNote(len(self.steps.call) - 1, kind, text, item))

    def _new_nodes(self, tx: Any) -> None:
        graph = tx.output.graph
        count = len(graph.nodes)
        if count > self._nodes:
            for node in reversed(list(islice(reversed(graph.nodes), count - self._nodes))):
                self.note("node", f"{node.name} = {getattr(node.target, '__name__', node.target)}")
        self._nodes = count

    def _call(self, tx: Any) -> tuple[int, list[Any]]:
        known = self._calls.get(id(tx))
        if known is None:
            parent = tx.__dict__.get("parent")
            caller = self._calls[id(parent)][1] if id(parent) in self._calls else None
            self.steps.calls.append(StepCall(self._code(tx.f_code), caller))
            # the interpreter is kept, so that no other gets its id
            known = self._calls[id(tx)] = (tx, len(self.steps.calls) - 1, [])
        return known[1], known[2]

    def _code(self, code: types.CodeType) -> int:
        if code not in self._codes:
            rows = bytecode_text(code)[0].split("\n")
            lines, last = [], 0
            for row in rows:
                last = int(row[:5]) if row[:5].strip().isdigit() else last
                lines.append(last)
            texts = [" ".join(row[7:].split()[1:]) for row in rows]
            self.steps.codes.append(StepCode(code.co_name, code.co_filename, texts, lines))
            places = {unit.offset: i for i, unit in enumerate(raw_units(code.co_code))}
            self._codes[code] = len(self.steps.codes) - 1, places
        return self._codes[code][0]

    def _value(self, value: Any) -> int:
        known = self._values.get(id(value))
        if known is None:
            text = describe(value)
            number = self._texts.get(text) if text.startswith("constant ") else None
            if number is None:
                number = len(self.steps.values)
                self.steps.values.append(text)
                self._texts[text] = number
            known = self._values[id(value)] = (value, number)
        return known[1]


def describe(value: Any) -> str:
    """What Dynamo knows a value as, without asking it anything."""
    kind = type(value).__name__
    held = object.__getattribute__(value, "__dict__") if hasattr(type(value), "__dict__") else {}
    if "_cache" in held:
        cache = held["_cache"]
        made = getattr(cache, "vt", None)
        return (
            describe(made) if made is not None else f"not looked at yet: {type(getattr(cache, 'value', None)).__name__}"
        )
    proxy = held.get("proxy")
    if proxy is not None and getattr(proxy, "node", None) is not None:
        return f"{kind.removesuffix('Variable')} {proxy.node.name}"
    if "value" in held and type(held["value"]) in _PLAIN:
        return f"constant {shown(held['value'])[:60]}"
    return kind.removesuffix("Variable")

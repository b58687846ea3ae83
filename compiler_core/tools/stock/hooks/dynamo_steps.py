"""Records every step of Dynamo's symbolic interpreter as differences (``steps=True``).

Values are described from their ``__dict__`` only.  Calling a method of a lazy value or reading an attribute would
realize it, and Dynamo would then capture something else.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any

from compiler_core.bytecode.verify import bytecode_text
from compiler_core.records.steps import StepCall, StepCode, StepNote, StepResult, Steps, StepStore
from compiler_core.support.texts import safe_repr
from compiler_core.tools.stock.hooks import torch_internals
from compiler_core.tools.stock.read.bytecode_listing import listed_lines

MAX_STEPS = 200_000
"""Steps kept of one attempt."""
_MAX_OPERANDS = 4
"""Stack entries that an instruction outside `_USES_ARG_OPERANDS` can change."""
_USES_ARG_OPERANDS = ("CALL", "BUILD_", "SWAP", "COPY", "UNPACK_", "PRECALL", "RAISE", "MAKE_FUNCTION", "FORMAT")
_PLAIN_TYPES = (int, float, str, bool, bytes, type(None), complex)


class DynamoStepRecorder:
    """Records the attempts of all compiles; calls `on_attempt` with the steps of each attempt as it starts."""

    def __init__(self, on_attempt: Callable[[Steps], None]) -> None:
        self._on_attempt = on_attempt
        self._attempt: _Attempt | None = None

    def install(self, stack: ExitStack, guard: Callable[[Callable[..., Any]], Callable[..., Any]]) -> bool:
        """Records until `stack` closes; returns False if this PyTorch has no such interpreter.

        `guard` wraps a callback so that its exceptions do not reach PyTorch.
        """
        interpreter = torch_internals.interpreter()
        guards = torch_internals.guards_set()
        if interpreter is None:
            return False
        begin, end, note_guard = guard(self._begin), guard(self._end), guard(self._note_guard)
        step, add = interpreter.step, getattr(guards, "add", None)

        def step_and_record(tx: Any) -> Any:
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
        interpreter.step = step_and_record
        if add is not None:

            def add_and_record(self_: Any, guard_: Any, *args: Any, **kwargs: Any) -> Any:
                note_guard(guard_)
                return add(self_, guard_, *args, **kwargs)

            stack.callback(setattr, guards, "add", add)
            guards.add = add_and_record
        return True

    def _begin(self, tx: Any) -> _Step | None:
        parent = tx.__dict__.get("parent")
        if self._attempt is None or (parent is None and self._attempt.root is not tx):
            if parent is not None:
                return None
            self._attempt = _Attempt(tx)
            self._on_attempt(self._attempt.steps)
        return self._attempt.begin(tx)

    def _end(self, tx: Any, step: _Step, failed: bool) -> None:
        if self._attempt is not None:
            self._attempt.end(tx, step, failed)

    def _note_guard(self, guard: Any) -> None:
        if self._attempt is not None:
            self._attempt.note("guard", f"{guard.create_fn_name()} {guard.name}".strip())


_Step = tuple[int, int, int]
"""A step's number, its call, and the number of stack entries below those that it can change."""


class _Attempt:
    """Collects the steps of one attempt to capture a frame."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.steps = Steps()
        self._calls: dict[int, tuple[Any, int, list[Any]]] = {}
        """By the interpreter's id: the interpreter, its number, and its stack after its last step."""
        self._codes: dict[types.CodeType, tuple[int, list[int]]] = {}
        """Each code's number, and the row of each of Dynamo's instructions in its listing."""
        self._values: dict[int, tuple[Any, int]] = {}
        self._texts: dict[str, int] = {}
        self._node_count = 0

    def begin(self, tx: Any) -> _Step | None:
        at = tx.__dict__.get("instruction_pointer")
        if at is None:
            return None
        if len(self.steps.call) >= MAX_STEPS:
            self.steps.dropped += 1
            return None
        inst = tx.__dict__["instructions"][at]
        call, stack = self._call(tx)
        reach = _MAX_OPERANDS
        if inst.opname.startswith(_USES_ARG_OPERANDS):
            reach += inst.arg or 0
        number = len(self.steps.call)
        self.steps.call.append(call)
        self.steps.at.append(self._codes[tx.f_code][1][at])
        self.steps.pops.append(0)
        self.steps.pushes.append([])
        return number, call, max(0, len(stack) - reach)

    def end(self, tx: Any, step: _Step, failed: bool) -> None:
        number, call, unchanged = step
        _, _, before = self._calls[id(tx)]
        stack = tx.__dict__["stack"]
        while unchanged < len(before) and unchanged < len(stack) and before[unchanged] is stack[unchanged]:
            unchanged += 1
        pops, pushes = len(before) - unchanged, [self._value(value) for value in stack[unchanged:]]
        before[unchanged:] = stack[unchanged:]
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
        self._note_new_nodes(tx)
        if failed and tx is self.root:
            self.steps.outcome = "broke"
            self.note("break", "the attempt ended here")

    def note(self, kind: Any, text: str, item: str | None = None) -> None:
        if self.steps.call:
            self.steps.notes.append(StepNote(len(self.steps.call) - 1, kind, text, item))

    def _note_new_nodes(self, tx: Any) -> None:
        graph = tx.output.graph
        count = len(graph.nodes)
        if count > self._node_count:
            for node in reversed(list(islice(reversed(graph.nodes), count - self._node_count))):
                self.note("node", f"{node.name} = {getattr(node.target, '__name__', node.target)}")
        self._node_count = count

    def _call(self, tx: Any) -> tuple[int, list[Any]]:
        known = self._calls.get(id(tx))
        if known is None:
            parent = tx.__dict__.get("parent")
            caller = self._calls[id(parent)][1] if id(parent) in self._calls else None
            self.steps.calls.append(StepCall(self._code(tx), caller))
            # holding the interpreter keeps its id from being reused
            known = self._calls[id(tx)] = (tx, len(self.steps.calls) - 1, [])
        return known[1], known[2]

    def _code(self, tx: Any) -> int:
        code: types.CodeType = tx.f_code
        if code not in self._codes:
            rows = bytecode_text(code)[0].split("\n")
            texts = [" ".join(row[7:].split()[1:]) for row in rows]
            self.steps.codes.append(StepCode(code.co_name, code.co_filename, texts, listed_lines(rows)))
            self._codes[code] = len(self.steps.codes) - 1, rows_of(tx.__dict__["instructions"])
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


def rows_of(instructions: Sequence[Any]) -> list[int]:
    """Returns, for each of Dynamo's instructions, which instruction of the code it is, or is a part of.

    Dynamo replaces some by several, such as LOAD_FAST_LOAD_FAST, and numbers the offsets again; the parts have one
    object for their positions in the source, or, as the arguments of ``super()``, none.
    """
    starts = list[Any]()
    rows = []
    for each in instructions:
        if each.positions is not None and not (starts and each.positions is starts[-1]):
            starts.append(each.positions)
        rows.append(len(starts) - 1)
    return rows


def describe(value: Any) -> str:
    """Describes a `VariableTracker` without calling its methods."""
    kind = type(value).__name__.removesuffix("Variable")
    attributes = object.__getattribute__(value, "__dict__") if hasattr(type(value), "__dict__") else {}
    if "_cache" in attributes:
        return _describe_lazy(attributes["_cache"])
    proxy = attributes.get("proxy")
    if proxy is not None and getattr(proxy, "node", None) is not None:
        return f"{kind} {proxy.node.name}"
    if "value" in attributes and type(attributes["value"]) in _PLAIN_TYPES:
        return f"constant {safe_repr(attributes['value'])[:60]}"
    return kind


def _describe_lazy(cache: Any) -> str:
    realized = getattr(cache, "vt", None)
    if realized is not None:
        return describe(realized)
    return f"lazy, not realized: {type(getattr(cache, 'value', None)).__name__}"

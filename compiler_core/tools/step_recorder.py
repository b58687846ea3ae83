"""Records the steps of the symbolic interpreter as differences (`records/steps.py`), with the option `steps`.

The frame is then interpreted by subclasses that record what each instruction changed.  The stack and the locals track
their changes, so that recording a step takes time in proportion to what it changed, not to the size of the state.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, SupportsIndex

import torch.fx as fx

from compiler_core.bytecode import disassemble_cached, operand
from compiler_core.capture.interpreter import Interpreter
from compiler_core.capture.values.base import UNBOUND, NullValue, Value
from compiler_core.capture.values.builtin.constant import ConstantValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.errors import Unsupported
from compiler_core.records import Compile
from compiler_core.records.steps import StepCall, StepCode, StepNote, StepResult, Steps, StepStore, StepText
from compiler_core.support.fx_graphs import node_text
from compiler_core.tools.value_texts import describe

MAX_STEPS = 200_000
# an instruction may change this many values at the top of the stack in place
_TOP_VALUES = 4


class TrackedStack(list[Value]):
    """A stack that tracks how many values at its bottom are unchanged."""

    unchanged = 0

    def pop(self, index: SupportsIndex = -1) -> Value:
        value = super().pop(index)
        self._changed_from(index, len(self) + 1)
        return value

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        size = len(self)
        super().__delitem__(index)
        self._changed_from(index, size)

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(index, value)
        self._changed_from(index)

    def insert(self, index: SupportsIndex, value: Value) -> None:
        super().insert(index, value)
        self.unchanged = 0

    def clear(self) -> None:
        super().clear()
        self.unchanged = 0

    def _changed_from(self, index: SupportsIndex | slice, size: int | None = None) -> None:
        size = len(self) if size is None else size
        start = index.start or 0 if isinstance(index, slice) else int(index)
        first = start if start >= 0 else max(size + start, 0)
        self.unchanged = min(self.unchanged, first, len(self))


class TrackedNames(dict[str, Any]):
    """Locals or cells that track which names changed."""

    def __init__(self, values: dict[str, Any], changed: dict[str, None]) -> None:
        super().__init__(values)
        self.changed = changed
        changed.update(dict.fromkeys(values))

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self.changed[name] = None

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self.changed[name] = None

    def pop(self, name: str, *default: Any) -> Any:
        self.changed[name] = None
        return super().pop(name, *default)


class StepRecorder:
    """Records one capture attempt in a `Steps`."""

    def __init__(self, compile_: Compile) -> None:
        self.steps = Steps()
        compile_.steps.append(self.steps)
        self._graph = f"{compile_.id}:captured"
        self._bytecode = f"{compile_.id}:bytecode"
        self._codes: dict[types.CodeType, int] = {}
        self._values: dict[int, tuple[Value, int]] = {}
        self._fixed: dict[str, int] = {}
        self._shown: list[str] = []
        self._current: RecordingInterpreter | None = None

    @property
    def is_full(self) -> bool:
        """Whether no more steps are recorded."""
        return len(self.steps.call) >= MAX_STEPS

    def enter_call(self, tx: RecordingInterpreter) -> int:
        """Records that a call begins, and returns its number."""
        caller = tx.parent.call_number if isinstance(tx.parent, RecordingInterpreter) else None
        self.steps.calls.append(StepCall(self._code(tx.code), caller))
        return len(self.steps.calls) - 1

    def before_step(self, tx: RecordingInterpreter) -> None:
        """Starts recording an instruction; what a call popped from its caller's stack belongs to the calling step."""
        if self._current is not None and self._current is not tx:
            self.flush(self._current)
        self._current, tx.touched = tx, tx.stack[-_TOP_VALUES:]
        self.steps.call.append(tx.call_number)
        self.steps.at.append(tx.pc)
        self.steps.pops.append(0)
        self.steps.pushes.append([])

    def after_step(self, tx: RecordingInterpreter) -> None:
        """Finishes recording an instruction, after it and everything that it called have run."""
        self.flush(tx)
        opname = tx.instructions[self.steps.at[-1]].opname if self._current is tx else ""
        if opname.endswith("_DEREF"):
            self._refresh(tx.cells.get(str(tx.instructions[self.steps.at[-1]].argval)))
        for value in (*tx.touched, *tx.stack[-_TOP_VALUES:]):
            self._refresh(value)
            self._refresh(getattr(value, "owner", None))
        self._current = tx

    def flush(self, tx: RecordingInterpreter) -> None:
        """Records what changed in a call since its last flush, as an effect of the latest step."""
        self._flush_stack(tx)
        for name in tx.changed:
            value = tx.cells.get(name) or tx.locals.get(name)
            number = None if value is None or value is UNBOUND else self.number_of(value)
            self.steps.stores.append(StepStore(self._now, tx.call_number, name, number))
        tx.changed.clear()

    def _flush_stack(self, tx: RecordingInterpreter) -> None:
        if not isinstance(tx.stack, TrackedStack):
            tx.stack = TrackedStack(tx.stack)
        stack = tx.stack
        assert isinstance(stack, TrackedStack)
        pops, pushed = tx.flushed - stack.unchanged, stack[stack.unchanged :]
        stack.unchanged = tx.flushed = len(stack)
        if not pops and not pushed:
            return
        pushes = [self.number_of(v) for v in pushed]
        if self.steps.call[-1] == tx.call_number:
            self.steps.pops[-1], self.steps.pushes[-1] = pops, pushes
        else:
            self.steps.results.append(StepResult(self._now, tx.call_number, pops, pushes))

    @property
    def _now(self) -> int:
        return len(self.steps.call) - 1

    # ------------------------------------------------------------ values

    def number_of(self, value: Value) -> int:
        """Returns the number of a value; all constants with the same text share one number."""
        if isinstance(value, (ConstantValue, StaticValue, NullValue)):
            text = describe(value)
            if text not in self._fixed:
                self._fixed[text] = self._new(text)
            return self._fixed[text]
        if id(value) not in self._values:
            self._values[id(value)] = (value, self._new(describe(value)))
        else:
            self._refresh(value)
        return self._values[id(value)][1]

    def _new(self, text: str) -> int:
        self.steps.values.append(text)
        self._shown.append(text)
        return len(self._shown) - 1

    def _refresh(self, value: Value | None) -> None:
        """Records the new text of a known value if it has changed."""
        known = self._values.get(id(value))
        if value is None or known is None:
            return
        text, number = describe(value), known[1]
        if text != self._shown[number]:
            self._shown[number] = text
            self.steps.texts.append(StepText(self._now, number, text))

    # ------------------------------------------------------------ notes

    def note(self, kind: Any, text: str, item: str | None = None) -> None:
        """Records a note at the latest step: a new node, guard or side effect, or a graph break."""
        if not self.is_full:
            self.steps.notes.append(StepNote(max(self._now, 0), kind, text, item))

    def note_effect(self, text: str, *values: Value) -> None:
        """Records a note of a side effect; `text` has ``{}`` for each value."""
        self.note("effect", text.format(*map(describe, values)))

    def note_node(self, node: fx.Node) -> None:
        self.note("node", node_text(node), f"{self._graph}#{node.name}")

    def note_break(self, tx: RecordingInterpreter, why: Unsupported) -> None:
        self.steps.outcome = "broke"
        self.note("break", str(why), f"{self._bytecode}#{tx.pc - 1}")

    def _code(self, code: types.CodeType) -> int:
        if code not in self._codes:
            instructions, where = disassemble_cached(code)
            texts = [f"{x.opname} {operand(x, where)}".rstrip() for x in instructions]
            lines = [x.lineno or 0 for x in instructions]
            self.steps.codes.append(StepCode(code.co_qualname, code.co_filename, texts, lines))
            self._codes[code] = len(self._codes)
        return self._codes[code]


class RecordingInterpreter(Interpreter):
    """An interpreter that records each step with its capture's recorder."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stack = TrackedStack(self.stack)
        self.flushed = 0
        self.touched: Sequence[Value] = ()
        self.changed: dict[str, None] = {}
        self.locals = TrackedNames(self.locals, self.changed)
        self.cells = TrackedNames(self.cells, self.changed)
        assert self.capture.recorder is not None
        self.recorder = self.capture.recorder
        self.call_number = self.recorder.enter_call(self)

    def step(self) -> None:
        recorder = self.recorder
        if recorder.is_full:
            recorder.steps.dropped += 1
            super().step()
            return
        recorder.before_step(self)
        try:
            super().step()
        except Unsupported as why:
            if self.parent is None:
                recorder.note_break(self, why)
            raise
        finally:
            recorder.after_step(self)


def record_steps(compile_: Compile) -> tuple[StepRecorder, type[Interpreter]]:
    """Returns what records an attempt to capture a frame: the recorder, and the class of interpreters."""
    return StepRecorder(compile_), RecordingInterpreter


def link_guards(compile_: Compile) -> None:
    """Adds to the notes of guards the items of the guards, which exist only once all guards are known."""
    keys = {guard.code: f"{compile_.id}:guards#{guard.key}" for guard in compile_.guards}
    for note in (note for steps in compile_.steps for note in steps.notes):
        if note.kind == "guard":
            text = note.text.partition("  # ")[0]
            # of a guard on library names, only the beginning of the text was known when it was noted
            note.text = text if text in keys else next((code for code in keys if code.startswith(text)), text)
            note.item = keys.get(note.text)

"""Recording the symbolic interpreter, step by step, as differences (`steps.py`).

Nothing here runs unless it was asked for: then the frame is interpreted by subclasses that note what
each instruction changed.  A watched stack and watched locals say how much of them a step touched, so
that noting a step takes time for what it changed and not for what is there.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, SupportsIndex

import torch.fx as fx

from compiler_core.bytecode import disassembled, operand
from compiler_core.capture.graph_builder import Capture
from compiler_core.capture.interpreter import Interpreter
from compiler_core.capture.side_effects import SideEffects
from compiler_core.capture.values.base import UNBOUND, NullValue, Value
from compiler_core.capture.values.constant import ConstantValue
from compiler_core.capture.values.describe import describe
from compiler_core.capture.values.static import StaticValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported
from compiler_core.guards import LibraryNames
from compiler_core.guards.sources import Held, Source
from compiler_core.records import Compile
from compiler_core.records.steps import StepCall, StepCode, StepNote, StepResult, Steps, StepStore, StepText
from compiler_core.support.fx_graphs import node_text

MOST_STEPS = 200_000
# How many of the top values an instruction may have changed in place, however it took them.
_REACH = 4


class WatchedStack(list[Value]):
    """A stack that knows how far down it was changed: `low` values at its bottom were not."""

    low = 0

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
        self.low = 0

    def clear(self) -> None:
        super().clear()
        self.low = 0

    def _changed_from(self, index: SupportsIndex | slice, size: int | None = None) -> None:
        size = len(self) if size is None else size
        start = index.start or 0 if isinstance(index, slice) else int(index)
        first = start if start >= 0 else max(size + start, 0)
        self.low = min(self.low, first, len(self))


class WatchedNames(dict[str, Any]):
    """Locals or cells, and which of them changed."""

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
    """Writes one attempt into a `Steps`."""

    def __init__(self, compile_: Compile) -> None:
        self.steps = Steps()
        compile_.steps.append(self.steps)
        self._graph = f"{compile_.id}:captured"
        self._bytecode = f"{compile_.id}:bytecode"
        self._codes: dict[types.CodeType, int] = {}
        self._values: dict[int, tuple[Value, int]] = {}
        self._fixed: dict[str, int] = {}
        self._shown: list[str] = []
        self._at_work: RecordingInterpreter | None = None

    @property
    def is_full(self) -> bool:
        return len(self.steps.call) >= MOST_STEPS

    def enter(self, tx: RecordingInterpreter) -> int:
        """A call begins; its number."""
        caller = tx.parent.call_number if isinstance(tx.parent, RecordingInterpreter) else None
        self.steps.calls.append(StepCall(self._code(tx.code), caller))
        return len(self.steps.calls) - 1

    def before(self, tx: RecordingInterpreter) -> None:
        """An instruction is about to run; what a call has taken off its caller's stack is the call's."""
        if self._at_work is not None and self._at_work is not tx:
            self.flush(self._at_work)
        self._at_work, tx.touched = tx, tx.stack[-_REACH:]
        self.steps.call.append(tx.call_number)
        self.steps.at.append(tx.pc)
        self.steps.pops.append(0)
        self.steps.pushes.append([])

    def after(self, tx: RecordingInterpreter) -> None:
        """The instruction has run, and whatever it called."""
        self.flush(tx)
        opname = tx.instructions[self.steps.at[-1]].opname if self._at_work is tx else ""
        if opname.endswith("_DEREF"):
            self._refresh(tx.cells.get(str(tx.instructions[self.steps.at[-1]].argval)))
        for value in (*tx.touched, *tx.stack[-_REACH:]):
            self._refresh(value)
            self._refresh(getattr(value, "owner", None))
        self._at_work = tx

    def flush(self, tx: RecordingInterpreter) -> None:
        """Note what changed in a call since it was last looked at, as the doing of the latest step."""
        self._flush_stack(tx)
        for name in tx.changed:
            value = tx.cells.get(name) or tx.locals.get(name)
            number = None if value is None or value is UNBOUND else self.number(value)
            self.steps.stores.append(StepStore(self._now, tx.call_number, name, number))
        tx.changed.clear()

    def _flush_stack(self, tx: RecordingInterpreter) -> None:
        if not isinstance(tx.stack, WatchedStack):
            tx.stack = WatchedStack(tx.stack)
        stack = tx.stack
        assert isinstance(stack, WatchedStack)
        pops, pushed = tx.flushed - stack.low, stack[stack.low :]
        stack.low = tx.flushed = len(stack)
        if not pops and not pushed:
            return
        pushes = [self.number(v) for v in pushed]
        if self.steps.call[-1] == tx.call_number:
            self.steps.pops[-1], self.steps.pushes[-1] = pops, pushes
        else:
            self.steps.results.append(StepResult(self._now, tx.call_number, pops, pushes))

    @property
    def _now(self) -> int:
        return len(self.steps.call) - 1

    # ------------------------------------------------------------ values

    def number(self, value: Value) -> int:
        """The number of a value; what is always the same to look at has one however often it is made."""
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
        """Note it where a known value looks different now."""
        known = self._values.get(id(value))
        if value is None or known is None:
            return
        text, number = describe(value), known[1]
        if text != self._shown[number]:
            self._shown[number] = text
            self.steps.texts.append(StepText(self._now, number, text))

    # ------------------------------------------------------------ notes

    def note(self, kind: Any, text: str, item: str | None = None) -> None:
        if not self.is_full:
            self.steps.notes.append(StepNote(max(self._now, 0), kind, text, item))

    def node(self, node: fx.Node) -> None:
        self.note("node", node_text(node), f"{self._graph}#{node.name}")

    def broke(self, tx: RecordingInterpreter, why: Unsupported) -> None:
        self.steps.outcome = "broke"
        self.note("break", str(why), f"{self._bytecode}#{tx.pc - 1}")

    def _code(self, code: types.CodeType) -> int:
        if code not in self._codes:
            instructions, where = disassembled(code)
            texts = [f"{x.opname} {operand(x, where)}".rstrip() for x in instructions]
            lines = [x.lineno or 0 for x in instructions]
            self.steps.codes.append(StepCode(code.co_qualname, code.co_filename, texts, lines))
            self._codes[code] = len(self._codes)
        return self._codes[code]


class RecordingInterpreter(Interpreter):
    """An interpreter that tells its capture's recorder of each step."""

    capture: RecordingCapture

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stack = WatchedStack(self.stack)
        self.flushed = 0
        self.touched: Sequence[Value] = ()
        self.changed: dict[str, None] = {}
        self.locals = WatchedNames(self.locals, self.changed)
        self.cells = WatchedNames(self.cells, self.changed)
        self.call_number = self.capture.recorder.enter(self)

    def step(self) -> None:
        recorder = self.capture.recorder
        if recorder.is_full:
            recorder.steps.dropped += 1
            super().step()
            return
        recorder.before(self)
        try:
            super().step()
        except Unsupported as why:
            if self.parent is None:
                recorder.broke(self, why)
            raise
        finally:
            recorder.after(self)


class RecordingCapture(Capture):
    """A capture that tells its recorder of new nodes, guards and side effects."""

    def __init__(self, *args: Any, recorder: StepRecorder) -> None:
        self.recorder = recorder
        super().__init__(*args)
        self.effects = RecordingEffects(recorder)
        self.library = LibraryNames(lambda text: recorder.note("guard", text))

    def guard(self, kind: str, source: Source, value: Any) -> None:
        before = len(self.guards)
        super().guard(kind, source, value)
        if len(self.guards) > before:
            self.recorder.note("guard", next(reversed(self.guards.values())).text)

    def _describe(self, node: fx.Node, value: Any) -> None:
        super()._describe(node, value)
        self.recorder.node(node)


class RecordingEffects(SideEffects):
    """Side effects that tell the recorder when something outside is changed."""

    def __init__(self, recorder: StepRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def mutated(self, value: Value) -> None:
        super().mutated(value)
        self._recorder.note("effect", f"changes {describe(value)}")

    def attribute(self, obj: ObjectValue | TensorValue, name: str) -> None:
        super().attribute(obj, name)
        self._recorder.note("effect", f"sets {describe(obj)}.{name}")

    def store_global(self, module: Held | None, name: str, value: Value) -> None:
        super().store_global(module, name, value)
        self._recorder.note("effect", f"sets global {name} to {describe(value)}")


def link_guards(compile_: Compile) -> None:
    """Name the guards' items, which have theirs only once their list is whole."""
    keys = {guard.code: f"{compile_.id}:guards#{guard.key}" for guard in compile_.guards}
    for steps in compile_.steps:
        _link(steps.notes, keys)


def _link(notes: Sequence[StepNote], keys: dict[str, str]) -> None:
    for note in notes:
        if note.kind == "guard":
            text = note.text.partition("  # ")[0]
            # of names of a library, only the beginning was known
            note.text = text if text in keys else next((code for code in keys if code.startswith(text)), text)
            note.item = keys.get(note.text)

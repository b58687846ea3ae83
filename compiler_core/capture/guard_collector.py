"""The guards of one capture attempt, the references that they hold, and the user's lines in the record."""

from __future__ import annotations

import linecache
import types
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from compiler_core.capture.tensors.symbolic_shapes import DynamicPolicy, Symbols
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import ConstantValue
from compiler_core.guards import GuardSpec, LibraryLookups, guarded_value, state_guard
from compiler_core.guards.lifetimes import WeakBox, make_box
from compiler_core.guards.sources import AttrSource, Box, ConstantSource, Scope, Source, path
from compiler_core.guards.value_guards import NUMPY_NUMBERS, may_be_distinct_objects
from compiler_core.hook.skip_rules import is_library_file
from compiler_core.records import Compile, ItemId, LineClock, Record, StackLine

if TYPE_CHECKING:
    from compiler_core.tools.step_recorder import StepRecorder


# one source may have several guards of these kinds, with different values
GUARDED_BY_VALUE = frozenset(
    {"DICT_CONTAINS", "DICT_HAS", "NO_ATTRIBUTE", "SAME_OBJECT", "NOT_SAME_OBJECT", "CONDITION_OF_FLAG"}
)


class Location(NamedTuple):
    """The instruction being interpreted, as graph nodes and guards refer to it."""

    items: tuple[ItemId, ...]
    """The items in the record: the bytecode instruction and the user's line."""
    line: ItemId | None
    stack_trace: str
    caller: ItemId | None = None
    """In a library's function: the user's line that called it."""


class GuardCollector:
    """Collects the guards of one attempt, each with the user's line that caused it."""

    def __init__(self, scope: Scope, policy: DynamicPolicy, recorder: StepRecorder | None) -> None:
        self.scope = scope
        self.symbols = Symbols(policy)
        self.specs: dict[Any, GuardSpec] = {"GLOBAL_STATE": state_guard()}
        self._recorder = recorder
        self.library = LibraryLookups(partial(recorder.note, "guard")) if recorder else LibraryLookups()
        self._location = Location((), None, "")
        self.line_clock = LineClock()
        self.parameters: dict[str, Source] = {}
        """Parameters that an optimizer's groups led to first: that path, and the user's, such as that in a module."""
        self._held: dict[int, ConstantSource] = {}
        self._boxes: dict[int, tuple[Any, Box]] = {}

    @property
    def location(self) -> Location:
        """The location of the current instruction; the interpreter sets it."""
        return self._location

    @location.setter
    def location(self, location: Location) -> None:
        if location.line != self._location.line:
            self.line_clock.switch(location.line)
        self._location = location
        self.symbols.env.line = location.line

    def add(self, kind: str, source: Source | None, value: Any) -> None:
        """Adds a guard of `kind` (see `guards/kinds.py`) on the object at `source`; none if the frame made it."""
        if source is None:
            return
        key = (kind, source, value if kind in GUARDED_BY_VALUE else None)
        if key not in self.specs:
            at = self.location
            spec = self.specs[key] = GuardSpec(kind, source, guarded_value(kind, value), at.line, at.caller)
            if self._recorder is not None:
                self._recorder.note("guard", spec.text)

    def name_of(self, source: Source) -> str:
        """Returns the user's words for a source that leads over a group of an optimizer, else an empty string."""
        for step in path(source) if self.parameters else ():
            if (parameter := self.parameters.get(step.text)) and source.shown.startswith(step.shown):
                return parameter.shown + source.shown.removeprefix(step.shown)
        return ""

    def add_library_name(self, names: dict[str, Any], home: str, name: str) -> None:
        """Guards that `name` in the dict of library module `home` stays what it is."""
        self.library.add(names, home, name, self.location.line)

    def add_class_names(self, cls: type, *names: str) -> None:
        """Guards that names that were looked up in a class and its bases stay what they are."""
        for name in names:
            if not (isinstance(self.boxed(cls), WeakBox) and self._guard_attribute(cls, name)):
                self.library.add_class_attribute(cls, name, self.location.line)

    def _guard_attribute(self, cls: type, name: str) -> bool:
        """Guards one attribute of a class that may die: a guard on the dict of the class would keep the class alive.

        Returns False if the attribute cannot be guarded that way.
        """
        found, held = getattr(cls, name, None), self.held(cls, cls.__qualname__)
        if not hasattr(cls, name):
            self.add("NO_ATTRIBUTE", held, name)
        elif isinstance(found, types.FunctionType):
            self.add("ID_MATCH", AttrSource(held, name), found)
        else:
            return False
        return True

    def ask(self, query: Any, name: str = "") -> Any:
        """Returns what a function of no arguments returns; a guard repeats the call."""
        self.add("RETURNS", self.held(query, name or query.__name__), result := query())
        return result

    def is_guarded(self, value: Value) -> bool:
        """Whether `value` is a constant guarded by its value, whose identity programs cannot observe."""
        if not isinstance(value, ConstantValue) or ("EQUALS_MATCH", value.source, None) not in self.specs:
            return False
        return not (isinstance(value.value, NUMPY_NUMBERS) or may_be_distinct_objects(value.value, value.value))

    # ------------------------------------------------------------ references to outside objects

    def held(self, obj: Any, name: str) -> ConstantSource:
        """Returns a source for an object to which generated code and guards hold a reference themselves."""
        if id(obj) not in self._held:
            self._held[id(obj)] = ConstantSource(self.boxed(obj), name)
        return self._held[id(obj)]

    def boxed(self, obj: Any) -> Box:
        """Returns the reference to an outside object that generated code and guards hold."""
        if id(obj) not in self._boxes:
            self._boxes[id(obj)] = obj, make_box(obj)
        return self._boxes[id(obj)][1]

    def mortals(self) -> list[WeakBox]:
        """Returns the weak references among those that generated code and guards hold."""
        of_guards = [guard.value for guard in self.specs.values()]
        found = [*of_guards, *(box for _, box in self._boxes.values())]
        return [box for box in found if isinstance(box, WeakBox)]


# ---------------------------------------------------------------- the user's source lines


MAX_WHOLE_FILE = 400
"""Files of up to this many lines are recorded whole."""


class SourceLines:
    """Puts the source of captured functions into the record, and finds the items of their lines."""

    def __init__(self, record: Record, compile_: Compile) -> None:
        self.record = record
        self.compile = compile_
        self._items: dict[tuple[str, int], ItemId | None] = {}
        self._added: set[types.CodeType] = set()

    def add(self, code: types.CodeType) -> None:
        """Adds the source of a function to the record, unless it is library code."""
        if code in self._added:
            return
        self._added.add(code)
        if not is_library_file(code.co_filename):
            add_source(self.record, code)
            self._items.clear()

    def item(self, filename: str, lineno: int) -> ItemId | None:
        """Returns the item of a source line, or None if the record does not have the line."""
        key = (filename, lineno)
        if key not in self._items:
            self._items[key] = self.record.line(filename, lineno)
        return self._items[key]


def add_source(record: Record, code: types.CodeType) -> None:
    """Adds the source of `code` to the record: a short file or a cell as a whole, otherwise the function's lines."""
    numbers = [n for _, _, n in code.co_lines() if n]
    add_lines(record, code.co_filename, range(min(numbers, default=1), max(numbers, default=1) + 1))


def add_lines(record: Record, filename: str, numbers: Iterable[int]) -> None:
    """Adds lines of a file to the record; of a short file or a cell, all."""
    lines = linecache.getlines(filename)
    if len(lines) <= MAX_WHOLE_FILE:
        numbers = range(1, len(lines) + 1)
    record.source_lines(filename, {n: lines[n - 1].rstrip("\n") for n in numbers if n <= len(lines)})


def format_stack(stack: Sequence[StackLine]) -> Iterator[str]:
    """Yields the lines of a stack in the format of Python's tracebacks."""
    for line in stack:
        yield f'  File "{line.filename}", line {line.lineno}, in {line.function}'
        if line.text:
            yield f"    {line.text}"

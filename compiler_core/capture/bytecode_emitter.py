"""The bytecode that stands in for a captured frame.

`Emitter` grows a list of instructions: load the graph's inputs, call it, rebuild the Python
objects that the frame would have had, replay the side effects, and then return, or run the
instruction that broke the graph and go on in a resume function (`resume/resume_functions.py`).
"""

from __future__ import annotations

import collections
import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch.fx as fx

from compiler_core.bytecode import Handler, Instruction, make
from compiler_core.capture.side_effects import fill_cell
from compiler_core.capture.values.base import NULL, Value
from compiler_core.capture.values.constant import ConstantValue
from compiler_core.capture.values.static import StaticValue
from compiler_core.capture.values.symbols import SymbolicValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.cells import CellValue
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import Mortal

if TYPE_CHECKING:
    from compiler_core.capture.graph_builder import Capture
    from compiler_core.guards.sources import Source

OUT = "__graph_out"
Step = Callable[[], None]


class Emitter:
    """Instructions of one generated code object, and the temporaries that they use."""

    def __init__(self, capture: Capture, code: types.CodeType) -> None:
        self.capture = capture
        self.code = code
        self.instructions: list[Instruction] = []
        self.outputs: dict[fx.Node, int] = {}
        self._temps: dict[int, str] = {}
        self._made = 0
        self._building: set[int] = set()
        self._unfilled: list[CellValue] = []
        self._alive: list[Value] = []
        self._paths: dict[Source, str | None] = {}
        """What several paths go through, and the temporary that holds it."""
        self._handler: Handler | None = None
        arguments = code.co_argcount + code.co_kwonlyargcount
        arguments += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
        self._arguments = code.co_varnames[:arguments]
        self._bound = dict.fromkeys(self._arguments)
        """The locals that are surely bound here; the order tells."""

    def add(self, *instructions: Instruction) -> None:
        for instruction in instructions:
            instruction.handler = instruction.handler or self._handler
        self.instructions.extend(instructions)

    @contextmanager
    def protected(self, target: Instruction | None, depth: int) -> Iterator[None]:
        """What is added inside goes on at `target` when it raises (no `target`: it just raises)."""
        self._handler = Handler(target, depth, False) if target is not None else None
        yield
        self._handler = None

    # --- lifetimes: what nothing needs any longer is dropped, as Python would

    def drop_except(self, needed: Sequence[Value]) -> None:
        """Drop the temporaries of all other values."""
        kept = {self._temps.get(id(v)) for v in needed}
        self._drop([name for name in self._bound if name not in kept and name not in self._arguments])

    def drop_all(self) -> None:
        self._drop(list(self._bound))

    def _drop(self, names: Sequence[str]) -> None:
        self.add(*map(make.delete_fast, names))
        for name in names:
            del self._bound[name]

    @contextmanager
    def one_way(self) -> Iterator[None]:
        """What is added inside runs on one of two ways: what it makes or drops stays so on the other."""
        bound = dict(self._bound)
        yield
        self._bound = bound

    # --- single instructions

    def constant(self, obj: Any) -> None:
        self.add(make.load_const(obj))

    def outside(self, obj: Any) -> None:
        """Push an object that the program may drop while this code is kept."""
        box = self.capture.boxed(obj)
        if isinstance(box, Mortal):
            self.constant(box)
            self.load_attr("value")
        else:
            self.constant(obj)

    def load_local(self, name: str) -> None:
        free = name in self.code.co_freevars
        self.add(make.load_deref(name) if free else make.load_fast(name))

    def load_cell(self, name: str) -> None:
        self.add(make.load_closure(name))

    def store_cell(self, name: str) -> None:
        self.add(make.store_deref(name))

    def load_global(self, name: str) -> None:
        self.add(make.load_global(name))

    def store_global(self, name: str) -> None:
        self.add(Instruction("STORE_GLOBAL", None, name))

    def delete_global(self, name: str) -> None:
        self.add(Instruction("DELETE_GLOBAL", None, name))

    def load_attr(self, name: str) -> None:
        self.add(make.load_attr(name))

    def store_attr(self, name: str) -> None:
        self.add(make.store_attr(name))

    def subscript(self) -> None:
        self.add(make.load_subscript())

    def store_subscript(self) -> None:
        self.add(make.store_subscript())

    def push_null(self) -> None:
        self.add(make.push_null())

    def pop(self) -> None:
        self.add(make.pop_top())

    def load_temp(self, name: str) -> None:
        self.add(make.load_fast(name))

    def store_temp(self) -> str:
        """Pop the top of the stack into a new local; its name."""
        name = f"__t{self._made}"
        self._made += 1
        self.add(make.store_fast(name))
        self._bound[name] = None
        return name

    # --- values

    def source(self, source: Source) -> None:
        """Push what lies at `source`; of several paths through it, the first one keeps it in a temporary."""
        if (name := self._paths.get(source)) is None:
            source.load(self)
            if source not in self._paths:
                return
            name = self._paths[source] = self.store_temp()
        self.load_temp(name)

    @contextmanager
    def shared_paths(self, values: Sequence[Value]) -> Iterator[None]:
        """Load what the paths to several of `values` go through once, such as a module on the way to its parameters."""
        counts = collections.Counter(base for value in values for base in _bases(value.source))
        self._paths = {base: None for base, count in counts.items() if count > 1 and _is_shared(base)}
        yield
        self._paths = {}

    def value(self, value: Value) -> None:
        """Push the Python object of a symbolic value; an object is made only once."""
        if id(value) in self._temps:
            self.load_temp(self._temps[id(value)])
        elif value is NULL:
            self.push_null()
        elif self.capture.is_guarded(value):
            value.rebuild(self)
        elif value.source is not None and not value.source.makes_new:
            self.source(value.source)
        elif value.source is None and (isinstance(value, TensorValue) or is_fixed(value)):
            value.rebuild(self)
        else:
            self._make_once(value)

    def _make_once(self, value: Value) -> None:
        if id(value) in self._building:
            raise Unsupported("unsupported operation", "an object that holds itself, across a break")
        self._building.add(id(value))
        value.rebuild(self)
        self._building.discard(id(value))
        self._remember(value)
        self._fill_cells()
        self.load_temp(self._temps[id(value)])

    def fill_later(self, cell: CellValue) -> None:
        """A cell may lead to what is being made, as that of a function that calls itself does: it is filled after."""
        self._unfilled.append(cell)

    def _fill_cells(self) -> None:
        while self._unfilled and not self._building:
            cell = self._unfilled.pop()
            contents = cell.contents
            assert contents is not None
            self.call_loaded(fill_cell, [lambda: self.load_kept(cell), lambda: self.value(contents)])  # noqa: B023
            self.pop()

    def _remember(self, value: Value) -> str:
        self._alive.append(value)
        return self._temps.setdefault(id(value), self.store_temp())

    def load_kept(self, value: Value) -> None:
        """Push a value that `keep` loaded, or one that cannot change."""
        if is_fixed(value):
            self.value(value)
        else:
            self.load_temp(self.keep(value))

    def keep(self, value: Value) -> str:
        """Load a value now into a temporary, whatever changes later."""
        if id(value) not in self._temps:
            self.value(value)
            if id(value) in self._temps:
                self.pop()
            else:
                self._remember(value)
        return self._temps[id(value)]

    def keep_unless_fixed(self, value: Value) -> None:
        if not is_fixed(value):
            self.keep(value)

    def keep_with(self, push: Step) -> str:
        push()
        return self.store_temp()

    def graph_output(self, tensor: TensorValue) -> None:
        node = tensor.made_by
        assert node is not None
        self.load_temp(OUT)
        self.constant(self.outputs[node])
        self.subscript()

    def build(self, opname: str, values: Sequence[Value]) -> None:
        for value in values:
            self.value(value)
        self.add(Instruction(opname, len(values), len(values)))

    def build_map(self, values: dict[Any, Value]) -> None:
        for key, value in values.items():
            self.value(self.capture.key_value(key))
            self.value(value)
        self.add(make.build_map(len(values)))

    def call_object(self, fn: Any, args: Sequence[Value], kwargs: dict[str, Value] | None = None) -> None:
        """Push ``fn(*args, **kwargs)``."""
        named = kwargs or {}
        loads = [lambda v=v: self.value(v) for v in [*args, *named.values()]]
        self.call_loaded(fn, loads, tuple(named))

    def call_value(self, fn: Value, args: Sequence[Value], kwargs: dict[str, Value]) -> None:
        """Push ``fn(*args, **kwargs)`` of a function that is a value itself."""
        function = self.keep(fn)
        self.add(*make.callable_first([make.load_fast(function)]))
        for value in [*args, *kwargs.values()]:
            self.value(value)
        self.add(*make.call(len(args) + len(kwargs), tuple(kwargs)))

    def call_loaded(self, fn: Any, loads: Sequence[Step], kw_names: tuple[str, ...] = ()) -> None:
        """Push the result of calling `fn` on what `loads` push."""
        self.add(*make.callable_first([make.load_const(fn)]))
        for load in loads:
            load()
        self.add(*make.call(len(loads), kw_names))

    def call_method(self, name: str, args: Sequence[Value]) -> None:
        """Call a method of the object on top of the stack."""
        owner = self.store_temp()
        self.add(*make.callable_first([make.load_fast(owner), make.load_attr(name)]))
        for arg in args:
            self.value(arg)
        self.add(*make.call(len(args)))

    # --- the graph

    def call_graph(self, compiled: Callable[..., Any]) -> None:
        """Call the compiled graph on its inputs and keep the tuple of its outputs."""
        inputs = self.capture.inputs
        self.add(*make.callable_first([make.load_const(compiled)]))
        with self.shared_paths(inputs):
            for tensor in inputs:
                self.value(tensor)
        self.add(*make.call(len(inputs)), make.store_fast(OUT))
        self._bound[OUT] = None


def _bases(source: Source | None) -> Iterator[Source]:
    """What the path to `source` goes through."""
    while (source := getattr(source, "base", None)) is not None:
        yield source


def _is_shared(source: Source) -> bool:
    """Whether to keep it: what is more than one step away, and the same object at each load."""
    return hasattr(source, "base") and not source.makes_new


def is_fixed(value: Value) -> bool:
    """Whether pushing it later pushes the same: NULL, and constants that the code holds."""
    plain = isinstance(value, (ConstantValue, StaticValue)) and not isinstance(value, SymbolicValue)
    return value is NULL or (value.source is None and plain)


def graph_outputs(live: Sequence[Value]) -> dict[fx.Node, int]:
    """The nodes that rebuilding `live` needs, each with its place in the graph's output."""
    found: dict[fx.Node, int] = {}
    seen: set[int] = set()
    work = list(reversed(live))
    while work:
        value = work.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, TensorValue) and value.made_by is not None:
            found.setdefault(value.made_by, len(found))
        if value.source is None:
            work.extend(reversed(value.children()))
    return found

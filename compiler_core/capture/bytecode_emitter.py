"""Emits bytecode that reconstructs the values of a captured frame.

It loads the graph's inputs, calls the graph, and reconstructs the Python objects that the frame would have had.
`resume/frame_codegen.py` uses it for the code that replaces a frame.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch.fx as fx

from compiler_core.bytecode import Handler, Instruction, argument_names, make
from compiler_core.capture.side_effects import fill_cell
from compiler_core.capture.values.base import NULL, Args, Kwargs, Value
from compiler_core.capture.values.builtin.constant import ConstantValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.builtin.symbols import SymbolicValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.functions import CellValue
from compiler_core.capture.values.user.generators import GeneratorValue
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import WeakBox

if TYPE_CHECKING:
    from compiler_core.capture.attempt import Capture
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.guards.sources import Source

GRAPH_RESULT = "__graph_out"
EmitFunction = Callable[[], None]


def _emits(make_instruction: Callable[..., Instruction]) -> Callable[..., None]:
    """Returns a method that adds the instruction that `make_instruction` returns."""

    def emit(self: Emitter, *args: Any) -> None:
        self.add(make_instruction(*args))

    return emit


class Emitter:
    """Emits instructions that push values, and keeps each object in a temporary, so that it is made once.

    `code` is the code object of the frame that is replaced.
    """

    def __init__(self, capture: Capture, code: types.CodeType) -> None:
        self.capture = capture
        self.code = code
        self.instructions: list[Instruction] = []
        self._temp_count = 0
        self._handler: Handler | None = None
        self._arguments = argument_names(code)
        self._bound = dict.fromkeys(self._arguments)
        """The locals that are certainly bound at this point, in the order in which they were bound."""
        self.outputs: dict[fx.Node, int] = {}
        """The position of each node in the graph's result."""
        self._temps: dict[int, str] = {}
        """The temporary of each value, by the value's id."""
        self._remembered: list[Value] = []
        """The values in `_temps`, kept alive so that their ids are not reused."""
        self._being_built: set[int] = set()
        self._unfilled: list[CellValue] = []
        self._paths: dict[Source, str | None] = {}
        """The sources that several paths go through, each with the temporary that holds its object."""
        self.held_tensors: dict[Source, tuple[list[Any], int]] = {}
        """The tensors that are loaded from lists, each with its list and the index (`GuardTree.held_tensors`)."""

    def add(self, *instructions: Instruction) -> None:
        """Appends instructions."""
        for instruction in instructions:
            instruction.handler = instruction.handler or self._handler
        self.instructions.extend(instructions)

    @contextmanager
    def protected(self, target: Instruction | None, depth: int) -> Iterator[None]:
        """If instructions added in this context raise, the code continues at `target`; without `target` it raises.

        `depth` is the depth of the stack at the handler.
        """
        self._handler = Handler(target, depth, False) if target is not None else None
        yield
        self._handler = None

    # --- lifetimes: locals that are not needed any more are deleted, as Python would drop the objects

    def drop_all(self) -> None:
        """Deletes all bound locals."""
        self._drop(list(self._bound))

    def _drop(self, names: Sequence[str]) -> None:
        self.add(*map(make.delete_fast, names))
        for name in names:
            del self._bound[name]

    def drop_except(self, needed: Sequence[Value]) -> None:
        """Deletes the temporaries of all values that are not in `needed`."""
        kept = {self._temps.get(id(v)) for v in needed}
        self._drop([name for name in self._bound if name not in kept and name not in self._arguments])

    @contextmanager
    def on_one_branch(self) -> Iterator[None]:
        """Instructions added in this context run on one of two branches.

        Locals that they bind or delete are unchanged on the other branch.
        """
        bound = dict(self._bound)
        yield
        self._bound = bound

    # --- single instructions

    def load_local(self, name: str) -> None:
        free = name in self.code.co_freevars
        self.add(make.load_deref(name) if free else make.load_fast(name))

    constant = _emits(make.load_const)
    load_temp = _emits(make.load_fast)
    load_cell = _emits(make.load_closure)
    store_cell = _emits(make.store_deref)
    load_global = _emits(make.load_global)
    store_global = _emits(make.store_global)
    delete_global = _emits(make.delete_global)
    load_attr = _emits(make.load_attr)
    store_attr = _emits(make.store_attr)
    subscript = _emits(make.load_subscript)
    store_subscript = _emits(make.store_subscript)
    push_null = _emits(make.push_null)
    pop = _emits(make.pop_top)

    def store_temp(self) -> str:
        """Pops the top of the stack into a new local and returns its name."""
        name = f"__t{self._temp_count}"
        self._temp_count += 1
        self.add(make.store_fast(name))
        self._bound[name] = None
        return name

    def keep_pushed(self, push: EmitFunction) -> str:
        """Stores what `push` pushes in a temporary and returns its name."""
        push()
        return self.store_temp()

    def call_loaded(self, fn: Any, loads: Sequence[EmitFunction], kw_names: tuple[str, ...] = ()) -> None:
        """Pushes the result of calling `fn` with what `loads` push."""
        self.add(*make.load_callable([make.load_const(fn)]))
        for load in loads:
            load()
        self.add(*make.call(len(loads), kw_names))

    # --- values

    def load_outside_object(self, obj: Any) -> None:
        """Pushes an object that the program may drop while this code exists."""
        box = self.capture.guards.boxed(obj)
        if isinstance(box, WeakBox):
            self.constant(box)
            self.load_attr("value")
        else:
            self.constant(obj)

    def source(self, source: Source) -> None:
        """Pushes the object at `source`; keeps it in a temporary if several paths go through it."""
        if source in self.held_tensors:
            for part in self.held_tensors[source]:
                self.constant(part)
            self.subscript()
            return
        if (name := self._paths.get(source)) is None:
            source.load(self)
            if source not in self._paths:
                return
            name = self._paths[source] = self.store_temp()
        self.load_temp(name)

    @contextmanager
    def shared_paths(self, values: Sequence[Value]) -> Iterator[None]:
        """Loads once each object on the paths to several of `values`, such as the module of several parameters."""
        counts = collections.Counter(base for value in values for base in _bases(value.source))
        self._paths = {base: None for base, count in counts.items() if count > 1 and _is_shared(base)}
        yield
        self._paths = {}

    def value(self, value: Value) -> None:
        """Pushes the Python object of a value; the object is made only once."""
        if id(value) in self._temps:
            self.load_temp(self._temps[id(value)])
        elif self.capture.guards.is_guarded(value):
            value.reconstruct(self)
        elif value.source is not None and not value.source.loads_new_object:
            self.source(value.source)
        elif value.source is None and (is_fixed(value) or (isinstance(value, TensorValue) and value.output_node)):
            value.reconstruct(self)
        else:
            self._make_once(value)

    def _make_once(self, value: Value) -> None:
        if id(value) in self._being_built:
            raise Unsupported("unsupported operation", "an object that contains itself, across a break")
        self._being_built.add(id(value))
        value.reconstruct(self)
        self._being_built.discard(id(value))
        self._remember(value)
        self._fill_cells()
        self.load_temp(self._temps[id(value)])

    def new_cell(self, cell: CellValue) -> None:
        """Pushes a new cell.  One whose contents refer to it, such as that of a recursive function, is filled after the
        object that is being made."""
        contents = cell.contents
        if contents is None or any(value is cell for value in rebuilt_from(self.capture, [contents])):
            self.call_object(types.CellType, [])
            self._unfilled += [cell] if contents is not None else []
        else:
            self.call_object(types.CellType, [contents])

    def _fill_cells(self) -> None:
        while self._unfilled and not self._being_built:
            cell = self._unfilled.pop()
            contents = cell.contents
            assert contents is not None
            self.call_loaded(fill_cell, [lambda: self.load_kept(cell), lambda: self.value(contents)])  # noqa: B023
            self.pop()

    def _remember(self, value: Value) -> str:
        self._remembered.append(value)
        return self._temps.setdefault(id(value), self.store_temp())

    def load_kept(self, value: Value) -> None:
        """Pushes a value that `keep` loaded, or one that cannot change."""
        if is_fixed(value):
            self.value(value)
        else:
            self.load_temp(self.keep(value))

    def keep(self, value: Value) -> str:
        """Loads a value into a temporary now, so that later changes do not affect it, and returns the temporary."""
        if id(value) not in self._temps:
            self.value(value)
            if id(value) in self._temps:
                self.pop()
            else:
                self._remember(value)
        return self._temps[id(value)]

    def keep_unless_fixed(self, value: Value) -> None:
        """Loads a value into a temporary, unless it cannot change."""
        if not is_fixed(value):
            self.keep(value)

    def graph_output(self, tensor: TensorValue) -> None:
        """Pushes an output of the graph."""
        node = tensor.output_node
        assert node is not None
        self.load_temp(GRAPH_RESULT)
        self.constant(self.outputs[node])
        self.subscript()

    def build(self, opname: str, values: Sequence[Value]) -> None:
        for value in values:
            self.value(value)
        self.add(Instruction(opname, len(values), len(values)))

    def build_map(self, values: dict[Any, Value]) -> None:
        for key, value in values.items():
            self.value(self.capture.outside.key_value(key))
            self.value(value)
        self.add(make.build_map(len(values)))

    def call_object(self, fn: Any, args: Args, kwargs: Kwargs | None = None) -> None:
        """Pushes ``fn(*args, **kwargs)``."""
        named = kwargs or {}
        loads = [lambda v=v: self.value(v) for v in [*args, *named.values()]]
        self.call_loaded(fn, loads, tuple(named))

    def call_value(self, fn: Value, args: Args, kwargs: Kwargs) -> None:
        """Pushes ``fn(*args, **kwargs)``, where the function is a value, too."""
        function = self.keep(fn)
        self.add(*make.load_callable([make.load_fast(function)]))
        for value in [*args, *kwargs.values()]:
            self.value(value)
        self.add(*make.call(len(args) + len(kwargs), tuple(kwargs)))

    def call_method(self, name: str, args: Args) -> None:
        """Calls a method of the object on top of the stack and pushes the result."""
        owner = self.store_temp()
        self.add(*make.load_callable([make.load_fast(owner), make.load_attr(name)]))
        for arg in args:
            self.value(arg)
        self.add(*make.call(len(args)))

    # --- the graph

    def call_graph(self, compiled: Callable[..., Any]) -> None:
        """Calls the compiled graph on its inputs and stores the tuple of its outputs."""
        inputs = self.capture.graph.inputs
        self.add(*make.load_callable([make.load_const(compiled)]))
        with self.shared_paths([tensor for tensor in inputs if tensor.source not in self.held_tensors]):
            for each in inputs:
                each.load_input(self) if isinstance(each, TensorValue) else self.value(each)
        self.add(*make.call(len(inputs)), make.store_fast(GRAPH_RESULT))
        self._bound[GRAPH_RESULT] = None


def _bases(source: Source | None) -> Iterator[Source]:
    """Yields the sources that the path to `source` goes through."""
    while (source := getattr(source, "base", None)) is not None:
        yield source


def _is_shared(source: Source) -> bool:
    """Whether an object is worth a temporary: it takes more than one step to load, and each load gives the same one."""
    return hasattr(source, "base") and not source.loads_new_object


def is_fixed(value: Value) -> bool:
    """Whether a value cannot change before it is pushed: NULL, and constants that the code contains."""
    plain = isinstance(value, (ConstantValue, StaticValue)) and not isinstance(value, SymbolicValue)
    return value is NULL or (value.source is None and plain)


def graph_outputs(capture: Capture, live: Sequence[Value]) -> dict[fx.Node, int]:
    """Returns the nodes that reconstructing `live` needs, each with its position in the graph's output."""
    found: dict[fx.Node, int] = {}
    for value in rebuilt_from(capture, live):
        if isinstance(value, TensorValue) and (node := value.output_node) is not None:
            found.setdefault(node, len(found))
    return found


def rebuilt_from(capture: Capture, live: Sequence[Value]) -> Iterator[Value]:
    """Yields the values from which `live` are reconstructed, each once, and those in the frames of generators."""
    finder, seen = _PartFinder(capture), dict[int, Value]()
    work = list(reversed(live))
    while work:
        value = work.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        yield value
        if value.source is None:
            work.extend(reversed(finder.parts_of(value)))


def pushed_values(capture: Capture, emit: Callable[[Emitter], None]) -> list[Value]:
    """Returns the values that a function pushes."""
    return _PartFinder(capture).pushed_by(emit)


class _PartFinder(Emitter):
    """Finds the values that are pushed: it notes them, and emits nothing."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self._found: list[Value] = []

    def parts_of(self, value: Value) -> list[Value]:
        """Returns the values that `value` is reconstructed from."""
        inside = frame_values(value.body) if isinstance(value, GeneratorValue) else []
        return self.pushed_by(value.reconstruct) + inside

    def pushed_by(self, emit: Callable[[Emitter], None]) -> list[Value]:
        """Returns the values that a function pushes."""
        self._found = []
        with suppress(Unsupported):  # emitting it raises this again
            emit(self)
        return self._found

    def value(self, value: Value) -> None:
        self._found.append(value)

    def keep(self, value: Value) -> str:
        self._found.append(value)
        return ""

    def new_cell(self, cell: CellValue) -> None:
        self._found += [cell.contents] if cell.contents is not None else []

    def add(self, *instructions: Instruction) -> None:
        """Emits nothing."""

    def store_temp(self) -> str:
        return ""

    def source(self, source: Source) -> None:
        """Needs no values."""

    def graph_output(self, tensor: TensorValue) -> None:
        """Needs no other values."""


def frame_values(tx: Interpreter) -> list[Value]:
    """Returns the values in a frame."""
    return [*tx.stack, *tx.locals.values(), *tx.cells.values()]

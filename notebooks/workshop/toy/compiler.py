"""The toy compiler: a compiler for PyTorch programs in one file, with a section for each lesson of the workshop.

``compile(function)`` is all that a program needs; ``entries()`` of what it returns has what was compiled.
What the compiler does not know runs as Python, so results are those of the program.
"""

from __future__ import annotations

import ctypes
import dis
import functools
import inspect
import math
import operator
import re
import runpy
import subprocess
import tempfile
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import Any

import networkx
import torch
from torch import Tensor, fx, nn
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._dynamo.source import ConstantSource
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils._sympy.printers import PythonPrinter

from compiler_core.guards.tree import EntryGuards
from compiler_core.hook.frame_hook import FrameHook, FrameInfo, hook_off, run_code, skip_code
from compiler_core.hook.skip_rules import skip_reason
from compiler_core.torch_private import RootGuardManager

aten = torch.ops.aten

# ---------------------------------------------------------------- Lesson 1: the frame hook and the cache
#
# The hook sees each frame before it runs. A frame that the interpreter can handle gets new code, which hands the
# frame's variables to `run_frame`. The real stage checks guards in C++, before any Python runs.


def compile(function: Callable[..., Any], language: str = "c", passes: Sequence[Callable[..., None]] = ()) -> Any:
    """Returns a function that computes what `function` does, with the frames that it runs compiled."""
    session = types.SimpleNamespace(language=language, passes=[*passes, remove_no_ops], units={})

    def compile_frame(frame: FrameInfo) -> Any:
        if skip_reason(frame.code) or frame.code.co_filename == __file__ or not can_interpret(frame.code):
            return skip_code()
        run = functools.partial(run_frame, session, frame.code)
        return run_code(entry_code(frame.code, run), EntryGuards(RootGuardManager()), "0/0")

    hooked = FrameHook(compile_frame).wrap(function.forward if isinstance(function, nn.Module) else function)
    hooked.entries = lambda: [entry for unit in session.units.values() for entry in unit.entries]
    return hooked


def entry_code(code: types.CodeType, run: Callable[..., Any]) -> types.CodeType:
    """Returns code with the parameters of `code` that calls `run` with its variables, globals and cells."""
    cells = tuple(types.CellType() for _ in code.co_freevars)
    signature, free = inspect.signature(types.FunctionType(code, {}, closure=cells)), ", ".join(code.co_freevars)
    variables = ", ".join(f"{name!r}: {name}" for name in signature.parameters)
    call = f"'<run>'.__call__({{{variables}}}, globals(), lambda: ({free}))"
    scope: dict[str, Any] = {}
    exec(f"def outer({free}):\n  def frame{signature}: return {call}", scope)
    frame = next(filter(inspect.iscode, scope["outer"].__code__.co_consts))
    return frame.replace(co_consts=tuple(run if each == "<run>" else each for each in frame.co_consts))


def run_frame(session: Any, code: types.CodeType, variables: dict[str, Any], scope: Any, free: Any) -> Any:
    """Runs a frame in pieces: a graph up to a break, one instruction as Python, the next graph, and so on."""
    state = State(code, scope, variables, dict(zip(code.co_freevars, free.__closure__ or (), strict=True)))
    while True:
        unit = session.units.setdefault((code, state.index, len(state.stack)), Unit())
        with hook_off():
            entry = next((each for each in unit.entries if each.holds(state)), None) or unit.capture(session, state)
            if entry and entry.run(state):
                return state.result
        if state.step():
            return state.result


# ---------------------------------------------------------------- Lesson 2: an interpreter over bytecode
#
# A table says what each instruction does. The same interpreter runs with real values, one instruction at a break,
# and with fake tensors, while a graph is captured. The real stage also follows programs that change objects, raise
# exceptions or use generators; here frames with these run as Python.

NULL = type("Null", (), {"__repr__": lambda self: "NULL"})()
"""What CPython has on its stack beside a function that is no method."""
UNBOUND = "cannot access {} variable '{}' where it is not associated with a value"


class Break(Exception):
    """The graph ends before this instruction."""


@dataclass
class State:
    """A frame between two instructions. It goes on as Python, or for a capture, which answers for loads and calls."""

    code: types.CodeType
    scope: dict[str, Any]
    variables: dict[str, Any]
    cells: dict[str, types.CellType]
    stack: list[Any] = field(default_factory=list)
    index: int = 0
    keywords: tuple[str, ...] = ()
    result: Any = None
    capture: Capture | None = None

    def step(self) -> bool:
        """Runs an instruction; returns whether the frame has returned."""
        instruction = instructions(self.code)[self.index]
        self.index += 1
        TABLE[instruction.opname](self, instruction)
        return instruction.opname.startswith("RETURN")

    def push(self, *values: Any) -> None:
        self.stack.extend(values)

    def pop(self) -> Any:
        value = self.stack.pop()
        return self.capture.load(value.value, value.source) if self.capture and isinstance(value, Unread) else value

    def pops(self, count: int) -> list[Any]:
        return [self.pop() for _ in range(count)][::-1]

    def load(self, *names: str) -> None:
        for name in names:
            if name not in self.variables:
                raise UnboundLocalError(UNBOUND.format("local", name))
            self.push(self.variables[name])

    def store(self, *names: str) -> None:
        for name in names:
            self.variables[name] = self.stack.pop()

    def push_loaded(self, value: Any, instruction: dis.Instruction) -> None:
        is_called = instruction.opname == "LOAD_METHOD" or " + " in instruction.argrepr  # as in `NULL + name`
        self.push(*([NULL] if is_called else []), value)

    def load_global(self, instruction: dis.Instruction) -> None:
        name = instruction.argval
        value = eval(name, self.scope)
        if self.capture and name in self.scope:
            value = self.capture.load(value, f"{self.capture.name_of(self.scope)}[{name!r}]")
        self.push_loaded(value, instruction)

    def load_cell(self, name: str) -> None:
        cell = self.cells[name]
        if cell == types.CellType():
            raise NameError(UNBOUND.format("free", name) + " in enclosing scope")
        value = cell.cell_contents
        self.push(self.capture.load(value, f"{self.capture.name_of(cell)}.cell_contents") if self.capture else value)

    def load_attribute(self, instruction: dis.Instruction) -> None:
        value, name = self.pop(), instruction.argval
        value = self.capture.attribute(value, name) if self.capture else getattr(value, name)
        self.push_loaded(value, instruction)

    def unpack(self, count: int) -> None:
        names, value = [f"v{i}" for i in range(count)], self.pop()
        scope = {"value": self.capture.iterator(value) if self.capture else value}
        exec(f"[{', '.join(names)}] = value", scope)  # by Python, whose exceptions it raises
        self.push(*(scope[name] for name in reversed(names)))

    def jump(self, instruction: dis.Instruction) -> None:
        later = (i for i, each in enumerate(instructions(self.code)) if each.offset >= instruction.argval)
        self.index = next(later)

    def jump_if(self, instruction: dis.Instruction) -> None:
        value, condition = self.pop(), instruction.opname.rpartition("IF_")[2]
        holds = value is None if "NONE" in condition else self.truth(value)
        if holds == (condition in ("TRUE", "NONE")):
            self.jump(instruction)

    def truth(self, value: Any) -> bool:
        if self.capture and isinstance(value, Tensor):
            raise Break("a branch on a tensor, whose value is known when the graph has run")
        return bool(value)

    def iterate(self) -> None:
        value = self.pop()
        self.push(self.capture.iterator(value) if self.capture else iter(value))

    def next(self, instruction: dis.Instruction) -> None:
        if isinstance(self.stack[-1], Unread):
            raise Break("a loop that began before the graph")
        value = next(self.stack[-1], NULL)
        if value is not NULL:
            self.push(value)
            return
        self.stack.pop()
        self.jump(instruction)
        while instructions(self.code)[self.index].opname in ("END_FOR", "POP_TOP"):  # they pop what is popped already
            self.index += 1

    def call(self, function: Any, args: list[Any], names: tuple[str, ...] = ()) -> None:
        split, self.keywords = len(args) - len(names), ()
        args, kwargs = args[:split], dict(zip(names, args[split:], strict=True))
        self.push(self.capture.call(function, args, kwargs) if self.capture else function(*args, **kwargs))

    def call_from_stack(self, count: int, names: tuple[str, ...]) -> None:
        first, second, *args = self.pops(count + 2)
        self.call(second if first is NULL else first, args, names)


@functools.cache
def instructions(code: types.CodeType) -> list[dis.Instruction]:
    return [each for each in dis.get_instructions(code) if each.opname not in ("CACHE", "EXTENDED_ARG")]


def can_interpret(code: types.CodeType) -> bool:
    return all(each.opname in TABLE for each in instructions(code))


SIGNS = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul"}
SIGNS |= {"&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift"}
OPERATORS = {f"{sign}=": getattr(operator, f"__i{name}__") for sign, name in SIGNS.items()}
SIGNS |= {"<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge"}
OPERATORS |= {sign: getattr(operator, f"__{name}__") for sign, name in SIGNS.items()}
TABLE: dict[str, Callable[[State, Any], Any]] = {
    **dict.fromkeys("RESUME NOP PRECALL COPY_FREE_VARS END_FOR".split(), lambda m, i: None),
    **dict.fromkeys(("LOAD_FAST", "LOAD_FAST_CHECK"), lambda m, i: m.load(i.argval)),
    "LOAD_FAST_LOAD_FAST": lambda m, i: m.load(*i.argval),
    "STORE_FAST": lambda m, i: m.store(i.argval),
    "STORE_FAST_STORE_FAST": lambda m, i: m.store(*i.argval),
    "STORE_FAST_LOAD_FAST": lambda m, i: m.store(i.argval[0]) or m.load(i.argval[1]),
    "LOAD_CONST": lambda m, i: m.push(i.argval),
    "LOAD_GLOBAL": lambda m, i: m.load_global(i),
    "LOAD_DEREF": lambda m, i: m.load_cell(i.argval),
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD"), lambda m, i: m.load_attribute(i)),
    "PUSH_NULL": lambda m, i: m.push(NULL),
    "POP_TOP": lambda m, i: m.stack.pop(),
    **dict.fromkeys(("BINARY_OP", "COMPARE_OP"), lambda m, i: m.call(OPERATORS[i.argrepr], m.pops(2))),
    "BINARY_SUBSCR": lambda m, i: m.call(operator.getitem, m.pops(2)),
    "BINARY_SLICE": lambda m, i: m.push(slice(*m.pops(2))) or m.call(operator.getitem, m.pops(2)),
    "CONTAINS_OP": lambda m, i: m.call(operator.contains, m.pops(2)[::-1]) or (i.arg and m.push(not m.pop())),
    "UNARY_NEGATIVE": lambda m, i: m.call(operator.neg, m.pops(1)),
    "UNARY_NOT": lambda m, i: m.push(not m.truth(m.pop())),
    "TO_BOOL": lambda m, i: m.push(m.truth(m.pop())),
    "BUILD_TUPLE": lambda m, i: m.push(tuple(m.pops(i.arg))),
    "BUILD_LIST": lambda m, i: m.push(m.pops(i.arg)),
    "BUILD_SLICE": lambda m, i: m.push(slice(*m.pops(i.arg))),
    "UNPACK_SEQUENCE": lambda m, i: m.unpack(i.arg),
    **dict.fromkeys("JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT".split(), lambda m, i: m.jump(i)),
    **dict.fromkeys([name for name in dis.opmap if name.startswith("POP_JUMP_")], lambda m, i: m.jump_if(i)),
    "GET_ITER": lambda m, i: m.iterate(),
    "FOR_ITER": lambda m, i: m.next(i),
    "KW_NAMES": lambda m, i: setattr(m, "keywords", m.code.co_consts[i.arg]),
    "CALL": lambda m, i: m.call_from_stack(i.arg, m.keywords),
    "CALL_KW": lambda m, i: m.call_from_stack(i.arg, m.pop()),
    "RETURN_CONST": lambda m, i: setattr(m, "result", i.argval),
    "RETURN_VALUE": lambda m, i: setattr(m, "result", m.stack.pop()),
}

# ---------------------------------------------------------------- Lesson 3: guards
#
# What capture reads has a source, a text such as `L['self'].weight`, and becomes a guard: class, dtype and sizes of
# a tensor, the value of a number, the identity of an object. All guards together are one Python expression. The
# real stage also guards what changes inside of objects, and says which guard failed and why.

CONSTANTS = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device, slice, type(...))
LISTS = (list, tuple, nn.ModuleList, nn.Sequential)


@dataclass(frozen=True)
class Unread:
    """A value that the frame has, and that capture has not looked at yet."""

    value: Any
    source: str


def is_like(value: Any, dtype: torch.dtype, device: str, sizes: Any, stride: Any, needs_grad: bool) -> bool:
    """The guard of a tensor; None: any size, and the stride of contiguous memory."""
    facts = type(value) in (Tensor, nn.Parameter), value.dtype, str(value.device), value.dim(), value.requires_grad
    if facts != (True, dtype, device, len(sizes), needs_grad):
        return False
    has_sizes = all(wanted in (None, size) for wanted, size in zip(sizes, value.shape, strict=True))
    return has_sizes and (value.is_contiguous() if stride is None else value.stride() == stride)


class Capture(TorchFunctionMode):
    """One capture: fake inputs, the graph so far, sources of values, and guards."""

    def __init__(self, unit: Unit, scope: dict[str, Any]) -> None:
        super().__init__()
        self.unit, self.shapes, self.graph = unit, ShapeEnv(), fx.Graph()
        self.mode = FakeTensorMode(shape_env=self.shapes)
        self.names: dict[str, Any] = {"torch": torch, "is_like": is_like, "G": scope}
        self.guards = [f"torch.is_grad_enabled() == {torch.is_grad_enabled()}"]
        self.inputs: dict[int, tuple[Tensor, Tensor]] = {}  # by id of the real tensor: it and its fake
        self.nodes: dict[int, fx.Node] = {}  # by id of a fake tensor
        self.sources: dict[int, str] = {}  # by id of a value
        self.symbols: dict[str, tuple[Tensor, int, str]] = {}  # where a symbolic size comes from (lesson 9)
        self.alive: list[Any] = []  # an id is that of an object while it lives

    def name_of(self, value: Any) -> str:
        """Returns the name by which guards refer to an object."""
        own = str(getattr(value, "__name__", "object")).rpartition(".")[2].strip("<>")
        name = next((name for name, each in self.names.items() if each is value), f"{own}_{len(self.names)}")
        self.names[name] = value
        return name

    def load(self, value: Any, source: str) -> Any:
        """Takes note that capture has read a value of the program, and returns what stands for it."""
        self.alive.append(value)
        if isinstance(value, types.MethodType):
            function, owner = (self.load(getattr(value, n), f"{source}.{n}") for n in ("__func__", "__self__"))
            return types.MethodType(function, owner)
        if isinstance(value, CONSTANTS):
            text = repr(value) if type(value) in (int, bool, str, type(None)) else self.name_of(value)
            self.guards.append(f"{source} == {text} and type({source}) is {self.name_of(type(value))}")
            return value
        known = self.inputs[id(value)][1] if id(value) in self.inputs else value
        if id(known) in self.sources:
            first = self.sources[id(known)]
            self.guards += [f"{source} is {first}"] if source != first else []
            return known
        if isinstance(value, Tensor):
            return self.input(value, source)
        self.sources[id(value)] = source
        is_read = type(value) in (list, tuple, dict)  # its items have guards, too, if they are read
        name = self.name_of(type(value) if is_read else value)
        self.guards.append(f"type({source}) is {name}" if is_read else f"{source} is {name}")
        self.guards += [f"len({source}) == {len(value)}"] if isinstance(value, LISTS) else []
        return value

    def input(self, value: Tensor, source: str) -> Tensor:
        if type(value) not in (Tensor, nn.Parameter) or value.layout != torch.strided:
            raise Break(f"a tensor of the class {type(value).__name__}")
        fake, sizes, stride = fake_of(self, value, source)
        facts = f"{value.dtype}, {str(value.device)!r}, {sizes}, {stride}, {value.requires_grad}"
        self.guards.append(f"is_like({source}, {facts})")
        self.inputs[id(value)], self.sources[id(fake)] = (value, fake), source
        self.nodes[id(fake)] = self.graph.placeholder(f"x{len(self.inputs)}")
        return fake

    def item(self, container: Any, key: Any) -> Any:
        source = self.sources.get(id(container))
        return self.load(container[key], f"{source}[{key!r}]") if source else container[key]

    def iterator(self, value: Any) -> Iterator[Any]:
        if isinstance(value, LISTS) and id(value) in self.sources:
            return (self.item(value, i) for i in range(len(value)))
        if id(value) in self.sources or not isinstance(value, list | tuple | range | zip | enumerate | reversed):
            raise Break(f"an iterator of the class {type(value).__name__}")
        return iter(value)

    def attribute(self, value: Any, name: str) -> Any:
        source = self.sources.get(id(value))
        if isinstance(value, Tensor) and name != "grad":
            return self.recorded(getattr, [value, name], {})
        if isinstance(value, Tensor):  # a fake tensor has no gradient: its real one has
            value = next(real for real, fake in self.inputs.values() if fake is value)
        found = getattr(value, name)
        return self.load(found, f"{source}.{name}") if source else found

    def call(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if function is operator.getitem and id(args[0]) in self.sources and not isinstance(args[0], Tensor):
            return self.item(*args)
        if isinstance(function, nn.Module):
            if function._forward_hooks or function._forward_pre_hooks or function._backward_hooks:
                raise Break("a module with hooks")
            return self.call(self.attribute(function, "forward"), args, kwargs)
        if isinstance(function, types.MethodType):
            function, args = function.__func__, [function.__self__, *args]
        if function is isinstance:
            return isinstance(*args)  # the guards of what has a source say its class
        home, owner = getattr(function, "__module__", None) or "", getattr(function, "__self__", None)
        is_torch = home.partition(".")[0] == "torch" or isinstance(owner, Tensor)
        if isinstance(function, types.FunctionType) and (not is_torch or home.startswith("torch.nn.modules")):
            return self.inline(function, args, kwargs)
        args, kwargs = self.loaded(args), {key: self.loaded(each) for key, each in kwargs.items()}
        has_tensor = any(isinstance(each, Tensor) for each in [*tree_leaves((args, kwargs)), owner])
        is_own = isinstance(owner, list | dict) and id(owner) not in self.sources
        is_known = is_own or function in PURE or home in ("_operator", "math")
        given = [each for each in (*args, *kwargs.values()) if not isinstance(each, Tensor)]
        reads_object = any(id(each) in self.sources for each in given)  # what it reads would have no guard
        if reads_object or not (is_known or (is_torch and (has_tensor or function in FACTORIES))):
            raise Break(f"a call of {getattr(function, '__name__', function)}")
        return self.recorded(function, args, kwargs)

    def loaded(self, value: Any) -> Any:
        """Returns an argument with what is inside of lists of the program read, too."""
        if not isinstance(value, LISTS) or isinstance(value, torch.Size):
            return value
        kind = type(value) if type(value) in (list, tuple) else list
        return kind(self.loaded(self.item(value, i)) for i in range(len(value)))

    def inline(self, function: types.FunctionType, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if not can_interpret(function.__code__):
            raise Break(f"{function.__name__} has instructions that the interpreter does not know")
        bound = inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
        bound.apply_defaults()
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        state = State(function.__code__, function.__globals__, dict(bound.arguments), cells, capture=self)
        while not state.step():
            pass
        return state.result

    def recorded(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        with self.mode, self:
            return function(*args, **kwargs)

    def operand(self, value: Any) -> Any:
        if isinstance(value, Tensor) and id(value) not in self.nodes:
            raise Break("a tensor came into the frame on a way that capture does not follow")
        is_size = isinstance(value, torch.SymInt)
        return self.nodes[id(value)] if isinstance(value, Tensor) else size_node(self, value) if is_size else value

    def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Adds a node for a function of PyTorch that returns tensors."""
        name, kwargs = getattr(function, "__name__", ""), kwargs or {}
        in_place = (name.endswith("_") and not name.endswith("__")) or (name.startswith("__i") and name[3:5] != "nv")
        if name in REFUSED or in_place or kwargs.get("inplace") or "out" in kwargs:
            raise Break(f"a call of {name}")
        result = function(*args, **kwargs)
        parts = result if isinstance(result, tuple | list) else [result]
        if any(isinstance(each, Tensor) for each in parts):
            node = self.graph.call_function(function, *fx.node.map_aggregate((tuple(args), kwargs), self.operand))
            for i, each in enumerate(parts):
                self.nodes[id(each)] = node if each is result else self.graph.call_function(operator.getitem, (node, i))
            self.alive += [result, *parts]
        return result


REFUSED = {"backward", "item", "tolist", "numpy", "__setitem__", "batch_norm", "instance_norm", "dropout"}
"""What cannot be in a graph: it needs values, changes a tensor, or draws random numbers."""
FACTORIES = {torch.zeros, torch.ones, torch.full, torch.arange, torch.eye, torch.linspace}
PURE = {len, sum, range, zip, enumerate, list, tuple, dict, min, max, reversed, int}
PURE |= {float, bool, abs, all, any, sorted, slice, torch.Size}

# ---------------------------------------------------------------- Lesson 4: graph breaks and resume
#
# A unit is a frame from one instruction on. If an instruction cannot be in a graph, capture starts again and ends
# before it. The entry computes what the frame has there; the instruction runs as Python, and what follows is
# another unit. The real stage writes bytecode for the rest of the frame: a resume function.


@dataclass
class Unit:
    """A frame from an instruction on: its compiled entries, and the sizes that were seen."""

    entries: list[Entry] = field(default_factory=list)
    sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    is_empty: bool = False  # the first instruction breaks the graph

    def capture(self, session: Any, state: State) -> Entry | None:
        breaks: dict[int, str] = {}
        while len(self.entries) < 8 and not self.is_empty:  # after 8 entries, it runs as Python
            capture, index = Capture(self, state.scope), state.index
            variables = {name: Unread(value, f"L[{name!r}]") for name, value in state.variables.items()}
            stack = [value if value is NULL else Unread(value, f"S[{i}]") for i, value in enumerate(state.stack)]
            after, has_returned = replace(state, variables=variables, stack=stack, capture=capture), False
            try:
                while not has_returned and after.index not in breaks:
                    index = after.index
                    has_returned = after.step()
                self.is_empty = after.index == state.index and not has_returned
                if not self.is_empty:
                    self.entries.append(Entry(session, capture, after, has_returned, breaks.get(after.index, "")))
                    return self.entries[-1]
            except Exception as error:  # also one of the program: it is raised when the instruction runs as Python
                breaks[index] = f"{type(error).__name__}: {error}".removeprefix("Break: ").splitlines()[0]
        return None


class Entry:
    """A compiled piece of a frame: guards, a graph, and what the frame has afterwards."""

    def __init__(self, session: Any, capture: Capture, after: State, has_returned: bool, reason: str) -> None:
        self.after, self.has_returned, self.reason, self.capture = after, has_returned, reason, capture
        values: list[Any] = []
        self.rebuild(lambda value: values.append(value) or value, lambda _: None)  # to see what the graph computes
        self.values = [*{id(each): each for each in values}.values()]
        capture.graph.output([capture.operand(each) for each in self.values])
        self.graph = fx.GraphModule({}, capture.graph)
        for each in session.passes:
            each(self.graph)
        self.graph.graph.eliminate_dead_code()
        self.graph.recompile()
        with capture.mode:
            self.stages = Stages(self.graph, [fake for _, fake in capture.inputs.values()], session.language)
        self.guards = [*dict.fromkeys([*capture.guards, *size_guards(capture)])]
        self.reader = functools.cache(lambda source: eval(f"lambda L, S: {source}", capture.names))
        self.guard = self.reader(" and ".join(f"({each})" for each in self.guards))
        self.inputs = self.reader(f"[{', '.join(capture.sources[id(fake)] for _, fake in capture.inputs.values())}]")

    def holds(self, state: State) -> bool:
        try:
            return bool(self.guard(state.variables, state.stack))
        except (AttributeError, KeyError, IndexError, TypeError):  # what a guard reads is not there
            return False

    def run(self, state: State) -> bool:
        """Runs the graph and sets what the frame has after it; returns whether it has returned."""
        had = state.variables, state.stack
        results = Compiled.apply(self.stages, *self.inputs(*had))
        computed = {id(value): result for value, result in zip(self.values, results, strict=True)}
        built = self.rebuild(lambda value: computed[id(value)], lambda source: self.reader(source)(*had))
        state.result, state.variables, state.stack = built
        state.index, state.keywords = self.after.index, self.after.keywords
        return self.has_returned

    def rebuild(self, compute: Callable[[Any], Any], read: Callable[[str], Any]) -> Any:
        """Returns result, variables and stack, of what the graph computed and what the frame had before."""
        memo: dict[int, Any] = {}  # what is one object stays one object

        def made(value: Any) -> Any:
            if id(value) not in memo:
                memo[id(value)] = build(value)
            return memo[id(value)]

        def build(value: Any) -> Any:
            source = value.source if isinstance(value, Unread) else self.capture.sources.get(id(value))
            is_method = isinstance(value, types.MethodType | types.BuiltinMethodType)
            if source:
                return read(source)
            if isinstance(value, Tensor | torch.SymInt):
                return compute(value)
            if isinstance(value, list | tuple):  # also what torch.topk returns
                return type(value)(map(made, value))
            if type(value) is dict:
                return {key: made(each) for key, each in value.items()}
            if is_method and not isinstance(value.__self__, types.ModuleType):
                return getattr(made(value.__self__), value.__name__, None)
            if isinstance(value, Iterator | enumerate | slice):
                raise Break(f"the frame has an object of the class {type(value).__name__}")
            return value

        frame = self.after
        return made((frame.result, {}, []) if self.has_returned else (None, frame.variables, frame.stack))


# ---------------------------------------------------------------- Lesson 5: the graph and passes
#
# The captured graph is a `torch.fx.Graph`. A pass takes its module and changes it. The real stage checks what a
# pass made, and leaves out one that raises or whose graph cannot run.


def remove_no_ops(gm: fx.GraphModule) -> None:
    """Removes products with 1 and sums with 0, unless their tensor is a result of the graph."""
    for node in [each for each in gm.graph.nodes if len(each.args) == 2 and type(each.args[1]) is int]:
        is_neutral = (getattr(node.target, "__name__", "").strip("_"), node.args[1]) in (("mul", 1), ("add", 0))
        if is_neutral and not any(user.op == "output" for user in node.users):
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)


# ---------------------------------------------------------------- Lesson 6: the joint graph and the cut
#
# The captured graph and its gradients are traced together, as operators of ATen. A minimum cut decides what the
# forward saves: a value costs its bytes, and a pointwise value may be computed again for nothing. The real stage
# also handles views among results, changes of inputs, gradients of gradients, and the peak of memory.

NEEDED = (aten.native_layer_norm_backward, aten.addmm, aten.nll_loss_forward, aten.nll_loss_backward)
DECOMPOSED = core_aten_decompositions() | get_decompositions([*NEEDED, aten.native_layer_norm])
VIEWS = {"view", "expand", "permute", "unsqueeze", "squeeze", "slice", "t", "transpose", "sym_size", "detach"}


class Stages:
    """A graph as compiled code, and what each stage made of it."""

    def __init__(self, gm: fx.GraphModule, fakes: list[Tensor], language: str) -> None:
        primals = [each.detach().requires_grad_(each.requires_grad) for each in fakes]
        outputs = fx.Interpreter(gm).run(*primals)
        self.with_grad = [isinstance(each, Tensor) and each.requires_grad for each in outputs]
        tangents = [torch.empty_like(each) for each in compress(outputs, self.with_grad)]

        def joint(primals: list[Tensor], tangents: list[Tensor]) -> list[Any]:
            outputs = fx.Interpreter(gm).run(*primals)
            wanted = [*compress(outputs, self.with_grad)]
            sources = [each for each in primals if each.requires_grad]
            grads = iter(torch.autograd.grad(wanted, sources, tangents, allow_unused=True) if wanted else ())
            return [*outputs, *(next(grads, None) if each.requires_grad else None for each in primals)]

        graph = make_fx(joint, decomposition_table=DECOMPOSED)(primals, tangents).graph
        graph.eliminate_dead_code()
        for target in [node.target for node in graph.nodes if isinstance(node.target, torch._ops.OpOverload)]:
            if target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags:
                raise Break(f"{target} changes memory or draws random numbers")
        given, (results,) = graph.find_nodes(op="placeholder"), graph.find_nodes(op="output")[0].args
        inputs, tangents, count = given[: len(primals)], given[len(primals) :], len(outputs)
        saved = cut(graph, tangents, results[count:]) if tangents else []
        self.joint, self.saved, self.kernels = graph, [each.name for each in saved], []
        self.forward = lower(extract(graph, inputs, [*results[:count], *saved]), language, self.kernels)
        self.backward = lower(extract(graph, [*saved, *tangents], results[count:]), language, self.kernels)


class Compiled(torch.autograd.Function):
    """What autograd sees of a compiled graph: its two halves."""

    @staticmethod
    def forward(ctx: Any, stages: Stages, *inputs: Tensor) -> Any:
        results, count = stages.forward(*inputs), len(stages.with_grad)
        ctx.stages = stages
        ctx.save_for_backward(*results[count:])
        plain = [each for each, needs in zip(results, stages.with_grad, strict=False) if not needs]
        ctx.mark_non_differentiable(*(each for each in plain if isinstance(each, Tensor)))
        return tuple(results[:count])

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor) -> Any:
        assert not torch.is_grad_enabled(), "the toy compiler makes no gradients of gradients"
        with hook_off():
            return (None, *ctx.stages.backward(*ctx.saved_tensors, *compress(tangents, ctx.stages.with_grad)))


def extract(graph: fx.Graph, inputs: list[fx.Node], outputs: Sequence[Any]) -> fx.Graph:
    """Returns a new graph that computes `outputs` from `inputs`."""
    part, copies = fx.Graph(), {}
    for each in inputs:
        copies[each] = part.placeholder(each.name)
        copies[each].meta = each.meta
    for node in graph.nodes:
        if node.op == "call_function" and node not in copies and copies.keys() >= {*node.all_input_nodes}:
            copies[node] = part.node_copy(node, copies.__getitem__)
    part.output(fx.node.map_arg(list(outputs), copies.__getitem__))
    part.eliminate_dead_code()
    return part


def cut(graph: fx.Graph, tangents: list[fx.Node], grads: Sequence[Any]) -> list[fx.Node]:
    """Returns what the forward saves: the cheapest values from which the backward can be computed."""
    late, flow = {*tangents}, networkx.DiGraph()
    for node in [each for each in graph.nodes if each.op != "output"]:
        if node in late or late & {*node.all_input_nodes}:
            late.add(node)  # it depends on a tangent
            continue
        flow.add_edge((node, "in"), (node, "out"), capacity=cost(node.meta["val"]))
        flow.add_edges_from([((other, "out"), (node, "in")) for other in node.all_input_nodes])
        name = getattr(node.target, "__name__", "").partition(".")[0]
        if node.op == "placeholder" or not (node.target in POINTWISE or name in VIEWS):
            flow.add_edge("source", (node, "in"))  # the backward does not compute it again
    needed = [node for node in graph.nodes if node not in late and (node in grads or late & {*node.users})]
    flow.add_edges_from([((node, "out"), "sink") for node in needed])
    _, (left, right) = networkx.minimum_cut(flow, "source", "sink") if needed else (0, (set(), set()))
    return [node for node in graph.nodes if (node, "in") in left and (node, "out") in right]


def cost(value: Any) -> float:
    """Returns the bytes that saving a value takes; infinity: it is no tensor, but a size or several values."""
    if not isinstance(value, Tensor):
        return math.inf
    count = value.numel() * value.itemsize
    return float(count.node.hint if isinstance(count, torch.SymInt) else count)


# ---------------------------------------------------------------- Lesson 7: loops and fusion
#
# Pointwise operators, and sums and maxima over the last dimensions, become loops. Operators with the same ranges
# that stand near each other share a loop nest, a group; it ends where another kind of operator, or one with other
# ranges, reads what it makes. The rest calls PyTorch's kernels. The real stage has a loop IR with indices.

C_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "=="}
TEXTS = {name: f"({{}} {sign} {{}})" for name, sign in C_SIGNS.items()}
TEXTS |= {name: f"{name}({{}})" for name in "exp log sqrt sin cos erf".split()}
TEXTS |= {"where": "where({}, {}, {})", "maximum": "maximum({}, {})", "relu": "maximum({}, 0.0)"}
TEXTS |= {"neg": "(-{})", "reciprocal": "(1.0 / {})", "rsqrt": "(1.0 / sqrt({}))", "sigmoid": "(1.0 / (exp(-{}) + 1))"}
POINTWISE = {getattr(getattr(aten, n), o): text for n, text in TEXTS.items() for o in getattr(aten, n).overloads()}
SUMS = {aten.sum.dim_IntList: "sum", aten.sum.default: "sum", aten.amax.default: "max"}
C_TYPES = {torch.float32: "float", torch.bool: "unsigned char"}


def lower(graph: fx.Graph, language: str, kernels: list[Kernel]) -> fx.GraphModule:
    """Returns the graph with groups of its operators replaced by calls of kernels."""
    made, values, group = fx.Graph(), {}, Group()
    for node in graph.nodes:
        loops = loops_of(node)
        ends_group = not group.takes(node, *loops) if loops else {*group.nodes} & {*node.all_input_nodes}
        if ends_group and group.nodes:
            kernel = Kernel(f"kernel_{len(kernels)}", group, language)
            kernels.append(kernel)
            call = made.call_function(kernel.function, tuple(values[each] for each in kernel.reads))
            for i, written in enumerate(kernel.writes):
                values[written] = made.create_node("call_function", operator.getitem, (call, i), {}, written.name)
                values[written].meta = written.meta
        if ends_group:
            group = Group()
        if loops:
            group.nodes.append(node)
            group.ranges, group.inner = loops[0], group.inner or loops[1]
        else:
            values[node] = made.node_copy(node, values.__getitem__)
    return fx.GraphModule({}, made)


def loops_of(node: fx.Node) -> tuple[tuple[str, ...], int] | None:
    """Returns the ranges of an operator, and over how many of the last it sums; None: it calls PyTorch's kernel."""
    operands = node.all_input_nodes if node.op == "call_function" and not node.kwargs else []
    values = [each.meta.get("val") for each in (node, *operands)]
    if not operands or not all(isinstance(each, Tensor) and each.dtype in C_TYPES for each in values):
        return None
    masks = node.args[:1] if "where" in str(node.target) else ()
    if any(each.meta["val"].dtype == torch.bool and each not in masks for each in operands):
        return None
    dims, over = [*range(values[1].dim())], []
    if node.target in SUMS:
        over = sorted(dims[each] for each in node.args[1]) if node.args[1:] else dims
    if node.target not in POINTWISE and (not over or over != dims[-len(over) :]):
        return None
    ranges = tuple(map(str, values[1 if over else 0].shape))
    return (ranges, len(over)) if ranges else None


@dataclass
class Group:
    """Operators that share a loop nest; `inner` is the number of dimensions of the inner loop, over which it sums."""

    nodes: list[fx.Node] = field(default_factory=list)
    ranges: tuple[str, ...] = ()
    inner: int = 0

    def takes(self, node: fx.Node, ranges: tuple[str, ...], inner: int) -> bool:
        reads_sum = any(each in self.nodes and each.target in SUMS for each in node.all_input_nodes)
        has_inner = 0 in (self.inner, inner) or self.inner == inner
        return ranges == self.ranges and not reads_sum and has_inner


# ---------------------------------------------------------------- Lesson 8: kernels
#
# A group is printed as a function in C, built by the system's compiler, or as a Triton kernel, which Triton's
# interpreter runs on a CPU; there a maximum leaves NaN out. Operands that are smaller than the loops are expanded
# first. The real stage computes with indices instead, and uses vectors and threads.

C_BEGIN = """#include <math.h>
#define maximum(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define where(c, a, b) ((c) ? (a) : (b))
#define inff INFINITY
"""
TRITON_BEGIN = "import triton, triton.language as tl\ninf = tl.constexpr(float('inf'))\n@triton.jit\n"


class Kernel:
    """A group as source, and as a function of its operands that returns a list of tensors."""

    def __init__(self, name: str, group: Group, language: str) -> None:
        self.group, nodes = group, group.nodes
        self.reads = [*dict.fromkeys(each for node in nodes for each in node.all_input_nodes if each not in nodes)]
        self.writes = [node for node in nodes if {*node.users} - {*nodes}]
        self.variables = {node: f"v{i}" for i, node in enumerate([*self.reads, *nodes])}
        self.names = [*(f"in{i}" for i in range(len(self.reads))), *(f"out{i}" for i in range(len(self.writes)))]
        self.text = self.c() if language == "c" else self.triton()
        self.native = build(self.text, language)
        self.function = functools.partial(self.run)
        self.function.__name__, self.function.__module__ = name, "toy"  # how the graph's text calls it

    def values(self, suffix: str) -> Iterator[tuple[str, str | None, str]]:
        """Yields for each operator its variable, what kind of sum it is, and its value as a text."""
        for node in self.group.nodes:
            args = node.args[:1] if node.target in SUMS else node.args
            operands = [self.variables.get(each) or f"{float(each)!r}{suffix}" for each in args]
            text = operands[0] if node.target in SUMS else POINTWISE[node.target].format(*operands)
            yield self.variables[node], SUMS.get(node.target), text

    def c(self) -> str:
        nodes = zip(self.names, [*self.reads, *self.writes], strict=True)
        types = {name: C_TYPES[node.meta["val"].dtype] for name, node in nodes}
        parameters = ", ".join(f"{kind} *{name}" for name, kind in types.items())
        before, inside, after = [], [f"{types[f'in{i}']} v{i} = in{i}[p];" for i in range(len(self.reads))], []
        for name, kind, value in self.values("f"):
            before += [f"double {name} = {'0' if kind == 'sum' else '-INFINITY'};"] if kind else []
            taken = f"{name} += {value};" if kind == "sum" else f"{name} = maximum({name}, {value});"
            inside.append(taken if kind else f"float {name} = {value};")
        for i, node in enumerate(self.writes):
            lines, at = (after, "o") if node.target in SUMS else (inside, "p")
            lines.append(f"out{i}[{at}] = {self.variables[node]};")
        loop = "for (long p = o * inner; p < (o + 1) * inner; p++) {"
        begin = C_BEGIN + f"void kernel({parameters}, long outer, long inner) {{\n  for (long o = 0; o < outer; o++) {{"
        rows = [*before, loop, *(f"  {line}" for line in inside), "}", *after]
        return "\n".join([begin, *(f"    {line}" for line in rows), "  }", "}\n"])

    def triton(self) -> str:
        lines = [f"def kernel({', '.join(self.names)}, outer, inner, BLOCK: tl.constexpr):"]
        lines += ["o, i = tl.program_id(0), tl.arange(0, BLOCK)", "inside, p = i < inner, o * inner + i"]
        lines += [f"v{i} = tl.load(in{i} + p, mask=inside, other=0)" for i in range(len(self.reads))]
        for name, kind, value in self.values(""):
            value, filling = re.sub(r"\b([a-z]+)\(", r"tl.\1(", value), "0.0" if kind == "sum" else "float('-inf')"
            lines.append(f"{name} = {f'tl.{kind}(tl.where(inside, {value}, {filling}), 0)' if kind else value}")
        for i, node in enumerate(self.writes):
            at, mask = ("o", "") if node.target in SUMS else ("p", ", mask=inside")
            lines.append(f"tl.store(out{i} + {at}, {self.variables[node]}{mask})")
        return TRITON_BEGIN + "\n    ".join(lines) + "\n"

    def run(self, *operands: Tensor) -> list[Tensor]:
        shape = torch.broadcast_shapes(*(each.shape for each in operands))
        split, results = len(shape) - (self.group.inner or 1), []
        for node in self.writes:
            left = (1,) * (len(shape) - split) if node.args[2:] == (True,) else ()
            sizes = (*shape[:split], *left) if node.target in SUMS else shape
            results.append(torch.empty(sizes, dtype=node.meta["val"].dtype))
        tensors = [*(each.expand(shape).contiguous() for each in operands), *results]
        self.native(tensors, math.prod(shape[:split]), math.prod(shape[split:]))
        return results


@functools.cache
def build(text: str, language: str) -> Callable[..., None]:
    """Returns a kernel as a function of tensors and of the sizes of its outer and its inner loop."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"kernel.{language}")
        file.write_text(text, encoding="utf-8")  # Triton, too, reads the source of a kernel from its file
        if language == "triton":  # an instance for each element of the outer loop
            kernel = runpy.run_path(str(file))["kernel"]
            return lambda data, *sizes: kernel[sizes[:1]](*data, *sizes, BLOCK=1 << (sizes[1] - 1).bit_length())
        library = file.with_suffix(".so")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, file, "-lm"], check=True)
        function, pointer = ctypes.CDLL(str(library)).kernel, ctypes.c_void_p
    return lambda data, *sizes: function(*(pointer(t.data_ptr()) for t in data), *map(ctypes.c_long, sizes))


# ---------------------------------------------------------------- Lesson 9: a symbolic size
#
# A size that differs from what an earlier entry saw becomes a symbol. What is decided by it becomes a guard with
# the symbol in it, and the graph computes with it. The real stage also has sizes that depend on data.


def fake_of(capture: Capture, value: Tensor, source: str) -> tuple[Tensor, tuple[int | None, ...], Any]:
    """Returns a fake tensor, its sizes with None for symbols, and its stride; None: it has symbols."""
    seen = capture.unit.sizes.setdefault(source, tuple(value.shape))
    can_change = len(seen) == value.dim() and value.is_contiguous()
    pairs = zip(seen if can_change else value.shape, value.shape, strict=True)
    kinds = StatelessSymbolicContext([DimDynamic.STATIC if a == b else DimDynamic.DUCK for a, b in pairs])
    fake = capture.mode.from_tensor(value, symbolic_context=kinds, source=ConstantSource(source))
    sizes = tuple(None if isinstance(size, torch.SymInt) else size for size in fake.shape)
    for d in [d for d, size in enumerate(sizes) if size is None]:
        place = fake, d, f"{source}.shape[{d}]"
        _, _, first = capture.symbols.setdefault(str(fake.shape[d].node.expr), place)
        capture.guards.append(" == ".join(dict.fromkeys([place[2], first])) + " > 1")
    return fake, sizes, None if None in sizes else value.stride()


def size_guards(capture: Capture) -> list[str]:
    """Returns what was decided by symbolic sizes."""
    texts = [PythonPrinter().doprint(guard.expr) for guard in capture.shapes.guards]
    return [re.sub(r"\bs\d+\b", lambda found: capture.symbols[found[0]][2], text) for text in texts]


def size_node(capture: Capture, size: torch.SymInt) -> fx.Node:
    """Returns a node that computes a size from those of inputs."""
    names = sorted(map(str, size.node.expr.free_symbols))
    function = eval(f"lambda {', '.join(names)}: {PythonPrinter().doprint(size.node.expr)}")
    function.__name__, function.__module__ = "size", "toy"  # how the graph's text calls it
    places = [(capture.nodes[id(fake)], d) for fake, d, _ in (capture.symbols[name] for name in names)]
    return capture.graph.call_function(function, tuple(capture.graph.call_method("size", place) for place in places))


# ---------------------------------------------------------------- Lesson 10: a whole step
#
# A step of training is a frame like any other: a graph up to `backward`, which runs the compiled backward, and a
# graph that computes the new parameters. The real stage captures all of it in one graph.


def summary(compiled: Any) -> str:
    """Returns a line for each graph of a compiled function: where it ends, its guards, what it saves, its kernels."""
    lines = []
    for entry in compiled.entries():
        end, stages = f"break: {entry.reason}" if entry.reason else "returns", entry.stages
        facts = f"{len(entry.guards)} guards, {len(stages.saved)} values saved, {len(stages.kernels)} kernels"
        lines.append(f"{entry.after.code.co_name}: {len(entry.graph.graph.nodes)} nodes, {facts}; {end}")
    return "\n".join(lines)

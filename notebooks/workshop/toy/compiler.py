"""The toy compiler: programs of PyTorch, compiled in a file. What it does not know runs as Python."""

from __future__ import annotations

import builtins
import ctypes
import dis
import functools
import inspect
import io
import linecache
import operator
import pickle
import re
import types
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

import networkx
import torch
from torch import Tensor, fx, nn
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._sympy.printers import PythonPrinter

from compiler_core.codegen.build.compilers import load
from compiler_core.guards.tree import EntryGuards
from compiler_core.hook.frame_hook import FrameHook, FrameInfo, hook_off, run_code, skip_code
from compiler_core.hook.skip_rules import skip_reason
from compiler_core.torch_private import RootGuardManager

aten = torch.ops.aten

# ---------------------------------------------------------------- Lesson 1: the frame hook and the cache
# The hook sees each frame before it runs. A frame that the interpreter can handle gets new code, which hands the
# frame's variables to `run_frame`. The real stage checks guards in C++, before any Python runs.


def compile(function: Callable[..., Any], language: str = "c", passes: Sequence[Callable[..., None]] = ()) -> Any:
    """Returns a function that computes what `function` does, with the frames that it runs compiled."""
    session = types.SimpleNamespace(language=language, passes=[*passes, remove_no_ops], units={})

    def compile_frame(frame: FrameInfo) -> Any:
        is_known = all(each.opname in TABLE for each in instructions(frame.code))
        if not is_known or skip_reason(frame.code) or frame.code.co_filename == __file__:
            return skip_code()
        run = functools.partial(run_frame, session, frame.code)
        return run_code(entry_code(frame.code, run), EntryGuards(RootGuardManager()), "0/0")

    hooked = FrameHook(compile_frame).wrap(function.forward if isinstance(function, nn.Module) else function)
    hooked.entries = lambda: [entry for unit in session.units.values() for entry in unit.entries]
    return hooked


def entry_code(code: types.CodeType, run: Callable[..., Any]) -> types.CodeType:
    """Returns code with the parameters of `code` that calls `run` with its variables, globals and cells."""
    cells, free = tuple(types.CellType() for _ in code.co_freevars), ", ".join(code.co_freevars)
    signature, scope = inspect.signature(types.FunctionType(code, {}, closure=cells)), {}
    call = f"'<run>'.__call__(locals(), globals(), lambda: ({free}))"
    exec(f"def outer({free}):\n  def frame{signature}: return {call}", scope)
    frame = next(filter(inspect.iscode, scope["outer"].__code__.co_consts))
    return frame.replace(co_consts=tuple(run if each == "<run>" else each for each in frame.co_consts))


def run_frame(session: Any, code: types.CodeType, variables: dict[str, Any], scope: Any, free: Any) -> Any:
    """Runs a frame in pieces: a graph up to a break, one instruction as Python, the next graph, and so on."""
    state = State(code, scope, variables, dict(zip(code.co_freevars, free.__closure__ or (), strict=True)))
    while state.result is NULL:
        unit = session.units.setdefault((code, state.index, len(state.stack)), Unit())
        with hook_off():
            entry = next((each for each in unit.entries if each.holds(state)), None) or unit.capture(session, state)
            if entry:
                entry.run(state)
        if state.result is NULL:
            state.step()
    return state.result


# ---------------------------------------------------------------- Lesson 2: an interpreter over bytecode
# A table says what each instruction does, with values of the program at a break, and with fake tensors in a capture.
# Frames that change objects, raise or yield run as Python here; the real stage follows them, too.

NULL = type("NULL", (), {})  # what CPython has on its stack beside a function that is no method


class Break(Exception):
    """The graph ends before this instruction."""


class Python:
    """What the interpreter asks its world for: here values of the program. A capture is another world."""

    truth, iterator, attribute = bool, iter, getattr
    read = staticmethod(lambda value: value)
    load = staticmethod(lambda value, home, path: value)
    call = staticmethod(lambda function, args, kwargs: function(*args, **kwargs))


@dataclass
class State:
    """A frame between two instructions."""

    code: types.CodeType
    scope: dict[str, Any]
    variables: dict[str, Any]
    cells: dict[str, types.CellType]
    world: Any = Python
    stack: list[Any] = field(default_factory=list)
    index: int = 0
    keywords: tuple[str, ...] = ()
    result: Any = NULL

    def step(self) -> None:
        """Runs an instruction; the result is set when the frame has returned."""
        instruction = instructions(self.code)[self.index]
        self.index += 1
        TABLE[instruction.opname](self, instruction)

    def push(self, *values: Any) -> None:
        self.stack.extend(values)

    def pop(self) -> Any:
        return self.world.read(self.stack.pop())

    def pops(self, count: int) -> list[Any]:
        return [self.pop() for _ in range(count)][::-1]

    def load(self, names: str | tuple[str, ...]) -> None:
        for name in [names] if isinstance(names, str) else names:
            if name not in self.variables:
                raise UnboundLocalError(UNBOUND.format("local", name))
            self.push(self.variables[name])

    def store(self, names: str | tuple[str, ...]) -> None:
        for name in [names] if isinstance(names, str) else names:
            self.variables[name] = self.stack.pop()

    def load_global(self, name: str) -> Any:
        value = eval(name, self.scope)
        return self.world.load(value, self.scope, f"[{name!r}]") if name in self.scope else value

    def load_cell(self, name: str) -> Any:
        cell = self.cells[name]
        if cell == types.CellType():
            raise NameError(UNBOUND.format("free", name) + " in enclosing scope")
        return self.world.load(cell.cell_contents, cell, ".cell_contents")

    def push_loaded(self, value: Any, instruction: dis.Instruction) -> None:
        is_called = instruction.opname == "LOAD_METHOD" or " + " in instruction.argrepr  # as in `NULL + name`
        self.push(*([NULL] if is_called else []), value)

    def unpack(self, count: int) -> None:
        names, scope = [f"v{i}" for i in range(count)], {"value": self.world.iterator(self.pop())}
        exec(f"[{', '.join(names)}] = value", scope)  # by Python, whose exceptions it raises
        self.push(*(scope[name] for name in reversed(names)))

    def jump(self, instruction: dis.Instruction) -> None:
        self.index = next(i for i, each in enumerate(instructions(self.code)) if each.offset >= instruction.argval)

    def jump_if(self, instruction: dis.Instruction) -> None:
        value, condition = self.pop(), instruction.opname.rpartition("IF_")[2]
        holds = value is None if "NONE" in condition else self.world.truth(value)
        if holds == (condition in ("TRUE", "NONE")):
            self.jump(instruction)

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

    def apply(self, function: Any, count: int) -> None:
        self.push(self.world.call(function, self.pops(count), {}))

    def call(self, count: int, names: tuple[str, ...]) -> None:
        first, second, *args = self.pops(count + 2)
        split, self.keywords = len(args) - len(names), ()
        kwargs = dict(zip(names, args[split:], strict=True))
        self.push(self.world.call(second if first is NULL else first, args[:split], kwargs))


@functools.cache
def instructions(code: types.CodeType) -> list[dis.Instruction]:
    return [each for each in dis.get_instructions(code) if each.opname not in ("CACHE", "EXTENDED_ARG")]


UNBOUND = "cannot access {} variable '{}' where it is not associated with a value"
SIGNS = "+ add - sub * mul / truediv // floordiv % mod ** pow @ matmul & and | or ^ xor << lshift >> rshift".split()
OPERATORS = {f"{sign}=": getattr(operator, f"__i{name}__") for sign, name in zip(SIGNS[::2], SIGNS[1::2], strict=True)}
SIGNS += "< lt <= le == eq != ne > gt >= ge".split()
OPERATORS |= {sign: getattr(operator, f"__{name}__") for sign, name in zip(SIGNS[::2], SIGNS[1::2], strict=True)}
TABLE: dict[str, Callable[[State, Any], Any]] = {
    **dict.fromkeys("RESUME NOP PRECALL COPY_FREE_VARS END_FOR TO_BOOL".split(), lambda m, i: None),
    **dict.fromkeys(("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST"), lambda m, i: m.load(i.argval)),
    **dict.fromkeys(("STORE_FAST", "STORE_FAST_STORE_FAST"), lambda m, i: m.store(i.argval)),
    "STORE_FAST_LOAD_FAST": lambda m, i: m.store(i.argval[0]) or m.load(i.argval[1]),
    "LOAD_CONST": lambda m, i: m.push(i.argval),
    "LOAD_GLOBAL": lambda m, i: m.push_loaded(m.load_global(i.argval), i),
    "LOAD_DEREF": lambda m, i: m.push(m.load_cell(i.argval)),
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD"), lambda m, i: m.push_loaded(m.world.attribute(m.pop(), i.argval), i)),
    "PUSH_NULL": lambda m, i: m.push(NULL),
    "POP_TOP": lambda m, i: m.stack.pop(),
    **dict.fromkeys(("BINARY_OP", "COMPARE_OP"), lambda m, i: m.apply(OPERATORS[i.argrepr], 2)),
    "BINARY_SUBSCR": lambda m, i: m.apply(operator.getitem, 2),
    "BINARY_SLICE": lambda m, i: m.push(slice(*m.pops(2))) or m.apply(operator.getitem, 2),
    "CONTAINS_OP": lambda m, i: (
        m.push(*m.pops(2)[::-1]) or m.apply(operator.contains, 2) or (i.arg and m.push(not m.pop()))
    ),
    "UNARY_NEGATIVE": lambda m, i: m.apply(operator.neg, 1),
    "UNARY_NOT": lambda m, i: m.push(not m.world.truth(m.pop())),
    "BUILD_TUPLE": lambda m, i: m.push(tuple(m.pops(i.arg))),
    "BUILD_LIST": lambda m, i: m.push(m.pops(i.arg)),
    "BUILD_SLICE": lambda m, i: m.push(slice(*m.pops(i.arg))),
    "UNPACK_SEQUENCE": lambda m, i: m.unpack(i.arg),
    **dict.fromkeys("JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT".split(), State.jump),
    **dict.fromkeys([name for name in dis.opmap if name.startswith("POP_JUMP_")], State.jump_if),
    "GET_ITER": lambda m, i: m.push(m.world.iterator(m.pop())),
    "FOR_ITER": State.next,
    "KW_NAMES": lambda m, i: setattr(m, "keywords", m.code.co_consts[i.arg]),
    "CALL": lambda m, i: m.call(i.arg, m.keywords),
    "CALL_KW": lambda m, i: m.call(i.arg, m.pop()),
    "RETURN_CONST": lambda m, i: setattr(m, "result", i.argval),
    "RETURN_VALUE": lambda m, i: setattr(m, "result", m.stack.pop()),
}

# ---------------------------------------------------------------- Lesson 3: guards
# What capture reads has a source, a text such as `L['self'].weight`, and a guard: facts of a tensor, the value of a
# number, the identity of an object. The real stage also guards what changes inside of objects.

CONSTANTS = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device, slice, type(...))
LISTS = (list, tuple, dict)
Unread = namedtuple("Unread", ("value", "source"))  # a value of the frame that capture has not looked at yet
facts = operator.attrgetter("__class__.__name__", "layout", "dtype", "device.type", "device.index", "requires_grad")
"""What the guard of a tensor compares, besides sizes and strides."""


class Checked(torch.utils._python_dispatch.TorchDispatchMode):
    """Refuses operators that cannot be in a graph, since they change memory or draw random numbers."""

    def __torch_dispatch__(self, op: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        if op._schema.is_mutable or torch.Tag.nondeterministic_seeded in op.tags:
            raise Break(f"a call of {op.overloadpacket.__name__}")
        return op(*args, **(kwargs or {}))


class Capture(torch.overrides.TorchFunctionMode):
    """One capture: fake inputs, the graph so far, sources of values, and guards."""

    def __init__(self, unit: Unit, scope: dict[str, Any]) -> None:
        super().__init__()
        self.unit, self.mode, self.graph = unit, torch._subclasses.FakeTensorMode(shape_env=ShapeEnv()), fx.Graph()
        self.names: dict[str, Any] = {"torch": torch, "facts": facts, "G": scope}
        self.guards = [f"torch.is_grad_enabled() == {torch.is_grad_enabled()}"]
        self.inputs: list[Tensor] = []  # fake tensors, each with the node that computes it as its `fx_node`
        self.known: dict[int, tuple[Any, Any]] = {}  # by id of a value of the program: it, and what stands for it
        self.sources: dict[int, str] = {}  # by id of what stands for a value

    def name_of(self, value: Any) -> str:
        """Returns the name by which guards refer to an object."""
        own = str(getattr(value, "__name__", type(value).__name__)).rpartition(".")[2].strip("<>")
        name = next((name for name, each in self.names.items() if each is value), f"{own}_{len(self.names)}")
        self.names[name] = value
        return name

    def read(self, value: Any) -> Any:
        return self.guarded(value.value, value.source) if isinstance(value, Unread) else value

    def load(self, value: Any, home: Any, path: str) -> Any:
        return self.guarded(value, self.name_of(home) + path)

    def guarded(self, value: Any, source: str) -> Any:
        """Adds the guards of a value that capture reads of the program, and returns what stands for it."""
        if isinstance(value, types.MethodType):
            function, owner = (self.guarded(getattr(value, n), f"{source}.{n}") for n in ("__func__", "__self__"))
            return types.MethodType(function, owner)
        if isinstance(value, CONSTANTS):
            self.guards.append(f"repr({source}) == {repr(value)!r}")
            return value
        if id(value) in self.known:
            _, known = self.known[id(value)]
            self.guards.append(f"{source} is {self.sources[id(known)]}")
            return known
        if isinstance(value, Tensor):
            if type(value) not in (Tensor, nn.Parameter) or value.layout != torch.strided:
                raise Break(f"a tensor of the class {type(value).__name__}")
            self.guards.append(f"facts({source}) == {facts(value)} and {source}.dim() == {value.dim()}")
            self.inputs.append(known := fake_of(self, value, source))
            known.fx_node = self.graph.placeholder(f"x{len(self.inputs)}")
        elif type(value) in LISTS:  # all of it is read
            keys = [*value] if type(value) is dict else range(len(value))
            size = f"[*{source}] == {keys}" if type(value) is dict else f"len({source}) == {len(value)}"
            self.guards.append(f"type({source}) is {type(value).__name__} and {size}")
            items = [self.guarded(value[key], f"{source}[{key!r}]") for key in keys]
            known = dict(zip(keys, items, strict=True)) if type(value) is dict else type(value)(items)
        else:
            self.guards.append(f"{source} is {self.name_of(value)}")
            known = value
        self.known[id(value)], self.sources[id(known)] = (value, known), source
        return known

    def truth(self, value: Any) -> bool:
        if isinstance(value, Tensor):
            raise Break("a branch on a tensor, whose value is known when the graph has run")
        return bool(value)

    def iterator(self, value: Any) -> Iterator[Any]:
        if type(value) in (nn.ModuleList, nn.Sequential):
            self.guards.append(f"len({self.sources[id(value)]}) == {len(value)}")
            value = [self.guarded(each, f"{self.sources[id(value)]}[{i}]") for i, each in enumerate(value)]
        if not isinstance(value, tuple) and type(value) not in (list, dict, range, zip, enumerate, reversed):
            raise Break(f"an iterator of the class {type(value).__name__}")
        return iter(value)

    def attribute(self, value: Any, name: str) -> Any:
        source = self.sources.get(id(value))
        if isinstance(value, Tensor):
            if name != "grad":
                return self.call(getattr, [value, name], {})
            value = next(real for real, fake in self.known.values() if fake is value)  # the fake has none
        found = getattr(value, name)
        return self.guarded(found, f"{source}.{name}") if source else found

    def call(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(function, nn.Module):
            if function._forward_hooks or function._forward_pre_hooks or function._backward_hooks:
                raise Break("a module with hooks")
            return self.call(self.attribute(function, "forward"), args, kwargs)
        if isinstance(function, types.MethodType):
            return self.call(function.__func__, [function.__self__, *args], kwargs)
        home, owner = getattr(function, "__module__", None) or "", getattr(function, "__self__", None)
        is_torch = home.partition(".")[0] == "torch" or isinstance(owner, Tensor)
        if isinstance(function, types.FunctionType) and (not is_torch or home.startswith("torch.nn.modules")):
            return self.inline(function, args, kwargs)
        args = [[*self.iterator(each)] if isinstance(each, nn.Sequential | nn.ModuleList) else each for each in args]
        given = [*args, *kwargs.values()]
        is_torch = is_torch and any(isinstance(each, Tensor | list | tuple) for each in (*given, owner))
        is_own = type(owner) in LISTS and id(owner) not in self.sources
        can_read = (Tensor, *LISTS) if is_torch or function in PURE else Tensor  # others may change a list
        reads_object = any(id(each) in self.sources and not isinstance(each, can_read) for each in given)
        if reads_object or not (is_torch or is_own or function in PURE or home in ("_operator", "math")):
            raise Break(f"a call of {getattr(function, '__name__', function)}")
        with self.mode, Checked(), self:
            return function(*args, **kwargs)

    def inline(self, function: types.FunctionType, args: list[Any], kwargs: dict[str, Any]) -> Any:
        bound = inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
        bound.apply_defaults()
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        state = State(function.__code__, function.__globals__, dict(bound.arguments), cells, self)
        while state.result is NULL:
            state.step()
        return state.result

    def operand(self, value: Any) -> Any:
        if isinstance(value, torch.SymInt | torch.SymFloat):
            return size_node(self, value)
        return value.fx_node if isinstance(value, Tensor) else value

    def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Adds a node for a function of PyTorch that returns tensors."""
        if getattr(function, "__name__", "") in REFUSED or function == Tensor.grad.__get__:
            raise Break(f"a call of {function.__name__}")
        result = function(*args, **(kwargs or {}))
        parts = result if isinstance(result, tuple | list) else [result]
        if any(isinstance(each, Tensor) for each in parts):
            node = self.graph.call_function(function, *fx.node.map_aggregate((tuple(args), kwargs or {}), self.operand))
            for i, each in enumerate(parts):
                each.fx_node = node if each is result else self.graph.call_function(operator.getitem, (node, i))
        return result


# They need values, or change a tensor without an operator that says so.
REFUSED = {"item", "tolist", "numpy", "backward", "batch_norm", "instance_norm", "requires_grad_", "register_hook"}
PURE = {len, sum, range, zip, enumerate, list, tuple, dict, min, max, reversed, int, float, bool, abs, all, any, sorted}
PURE |= {slice, getattr, operator.getitem, operator.contains, torch.Size, torch.zeros, torch.ones, torch.arange}

# ---------------------------------------------------------------- Lesson 4: graph breaks and resume
# A unit is a frame from one instruction on. Its graph ends before an instruction that cannot be in it, which runs as
# Python; what follows is another unit. The real stage writes bytecode for the rest of the frame: a resume function.


@dataclass
class Unit:
    """A frame from an instruction on: its compiled entries, and the sizes that were seen."""

    entries: list[Entry] = field(default_factory=list)
    sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    breaks: dict[int, str] = field(default_factory=dict)  # why the graph ends before an instruction

    def capture(self, session: Any, state: State) -> Entry | None:
        while len(self.entries) < 8 and state.index not in self.breaks:  # after 8 entries, it runs as Python
            capture, index = Capture(self, state.scope), state.index
            variables = {name: Unread(value, f"L[{name!r}]") for name, value in state.variables.items()}
            stack = [value if value is NULL else Unread(value, f"S[{i}]") for i, value in enumerate(state.stack)]
            after = replace(state, variables=variables, stack=stack, world=capture)
            try:
                while after.result is NULL and after.index not in self.breaks:
                    index = after.index
                    after.step()
                self.entries.append(Entry(session, capture, after, self.breaks.get(after.index, "")))
                return self.entries[-1]
            except Exception as error:  # also one of the program: it is raised when the instruction runs as Python
                self.breaks[index] = f"{type(error).__name__}: {error}".removeprefix("Break: ").splitlines()[0]
        return None


class Entry:
    """A compiled piece of a frame: guards, a graph, and what the frame has afterwards."""

    def __init__(self, session: Any, capture: Capture, after: State, reason: str) -> None:
        self.after, self.reason = after, reason
        computed = self.write_frame(capture)
        capture.graph.output([capture.operand(each) for each in computed])
        self.graph = fx.GraphModule({}, capture.graph)
        for each in session.passes:
            each(self.graph)
        self.graph.graph.eliminate_dead_code()
        self.graph.recompile()
        with capture.mode:
            self.stages = Stages(self.graph, capture.inputs, computed, session.language)
        sources, shapes = [capture.sources[id(each)] for each in capture.inputs], capture.mode.shape_env
        sizes = shapes.produce_guards(capture.inputs, [*map(ConstantSource, sources)], ignore_static=False)
        self.guards = [*dict.fromkeys([*capture.guards, *sizes])]
        self.reader = functools.cache(lambda text: eval(f"lambda L, S: {text}", capture.names))
        self.guard = self.reader(" and ".join(f"({each})" for each in self.guards))
        self.inputs = self.reader(f"[{', '.join(sources)}]")

    def write_frame(self, capture: Capture) -> list[Any]:
        """Writes what the frame has after the graph, by sources of the program's values; returns what is computed."""
        file, computed = io.BytesIO(), {}

        def key(value: Any) -> str | int | None:
            source = value.source if isinstance(value, Unread) else capture.sources.get(id(value))
            if source is None and isinstance(value, Tensor | torch.SymInt | torch.SymFloat):
                return computed.setdefault(id(value), (len(computed), value))[0]
            if source is None and isinstance(value, Iterator):
                raise Break(f"the frame has an object of the class {type(value).__name__}")
            return source

        writer = pickle.Pickler(file)
        writer.persistent_id = key
        left = self.after.variables, self.after.stack
        writer.dump((self.after.result, *(left if self.after.result is NULL else ({}, []))))
        self.frame = file.getvalue()
        return [value for _, value in computed.values()]

    def __str__(self) -> str:
        counts = len(self.graph.graph.nodes), len(self.guards), len(self.stages.saved), len(self.stages.kernels)
        end = f"break: {self.reason}" if self.reason else "returns"
        return "{}: {} nodes, {} guards, {} values saved, {} kernels; {}".format(self.after.code.co_name, *counts, end)

    def holds(self, state: State) -> bool:
        try:
            return bool(self.guard(state.variables, state.stack))
        except (AttributeError, KeyError, IndexError, TypeError):  # what a guard reads is not there
            return False

    def run(self, state: State) -> None:
        """Runs the graph and sets what the frame has after it."""
        had = state.variables, state.stack
        results = Compiled.apply(self.stages, *self.inputs(*had))
        reader = pickle.Unpickler(io.BytesIO(self.frame))
        reader.persistent_load = lambda key: results[key] if isinstance(key, int) else self.reader(key)(*had)
        state.result, state.variables, state.stack = reader.load()
        state.index, state.keywords = self.after.index, self.after.keywords


# ---------------------------------------------------------------- Lesson 5: the graph and passes
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
# The graph and its gradients are traced together. A minimum cut decides what the forward saves: a value costs its
# bytes, and a pointwise one may be computed again. The real stage also handles views, and changes of inputs.

VIEWS = {"view", "expand", "permute", "unsqueeze", "squeeze", "slice", "t", "transpose", "sym_size", "detach"}
DECOMPOSED = core_aten_decompositions() | get_decompositions([aten.gelu, aten.native_layer_norm])


class Stages:
    """A graph as compiled code, and what each stage made of it."""

    def __init__(self, gm: fx.GraphModule, fakes: list[Tensor], values: list[Any], language: str) -> None:
        self.with_grad = [isinstance(each, Tensor) and each.requires_grad for each in values]
        primals = [each.detach().requires_grad_(each.requires_grad) for each in fakes]
        tangents = [torch.empty_like(each) for each in compress(values, self.with_grad)]

        def joint(primals: list[Tensor], tangents: list[Tensor]) -> list[Any]:
            outputs = gm(*primals)
            wanted, sources = [*compress(outputs, self.with_grad)], [each for each in primals if each.requires_grad]
            grads = iter(torch.autograd.grad(wanted, sources, tangents, allow_unused=True) if wanted else ())
            return [*outputs, *(next(grads, None) if each.requires_grad else None for each in primals)]

        graph = fx.experimental.proxy_tensor.make_fx(joint, decomposition_table=DECOMPOSED)(primals, tangents).graph
        graph.eliminate_dead_code()
        given, (results,) = graph.find_nodes(op="placeholder"), graph.find_nodes(op="output")[0].args
        inputs, tangents, count = given[: len(primals)], given[len(primals) :], len(values)
        saved = cut(graph, tangents, results[count:]) if tangents else []
        self.joint, self.saved, self.kernels, self.language = graph, [each.name for each in saved], [], language
        self.forward = lower(self, graph, inputs, [*results[:count], *saved])
        self.backward = lower(self, graph, [*saved, *tangents], results[count:])


def cut(graph: fx.Graph, tangents: list[fx.Node], grads: Sequence[Any]) -> list[fx.Node]:
    """Returns what the forward saves: the cheapest values from which the backward can be computed."""
    late, flow = {*tangents}, networkx.DiGraph()
    for node in [each for each in graph.nodes if each.op != "output"]:
        if node in late or late & {*node.all_input_nodes}:
            late.add(node)  # it depends on a tangent
            continue
        value = node.meta["val"]
        size = value.numel() * value.itemsize if isinstance(value, Tensor) else float("inf")
        size = size.node.hint if isinstance(size, torch.SymInt) else size
        flow.add_edge((node, "in"), (node, "out"), capacity=size)
        flow.add_edges_from([((other, "out"), (node, "in")) for other in node.all_input_nodes])
        name = getattr(node.target, "__name__", "").partition(".")[0]
        if node.op == "placeholder" or not (node.target in POINTWISE or name in VIEWS):
            flow.add_edge("source", (node, "in"))  # the backward does not compute it again
    needed = [node for node in graph.nodes if node not in late and (node in grads or late & {*node.users})]
    flow.add_edges_from([((node, "out"), "sink") for node in needed])
    _, (left, right) = networkx.minimum_cut(flow, "source", "sink") if needed else (0, (set(), set()))
    return [node for node in graph.nodes if (node, "in") in left and (node, "out") in right]


# ---------------------------------------------------------------- Lesson 7: loops and fusion
# Pointwise operators of float32 with the same ranges that stand near each other share a loop; a group ends where
# another operator reads what it makes. The rest calls PyTorch's kernels. The real stage has a loop IR with indices.

TEXTS = {name: f"({{}} {sign} {{}})" for name, sign in zip("add sub mul div".split(), "+-*/", strict=True)}
TEXTS |= {name: f"{name}({{}})" for name in "exp log sqrt sin cos erf".split()}
TEXTS |= {"relu": "maximum({}, 0.0)", "neg": "(-{})", "reciprocal": "(1.0 / {})", "rsqrt": "(1.0 / sqrt({}))"}
POINTWISE = {getattr(getattr(aten, n), o): text for n, text in TEXTS.items() for o in getattr(aten, n).overloads()}


def lower(stages: Stages, graph: fx.Graph, inputs: list[fx.Node], outputs: Sequence[Any]) -> fx.GraphModule:
    """Returns a module that computes `outputs` from `inputs` by kernels; adds its kernels to `stages`."""
    made, needed, group = fx.Graph(), {*outputs} - {*inputs}, []
    values = {each: made.placeholder(each.name) for each in inputs}

    def end_group() -> None:
        writes = [each for each in group if each in outputs or {*each.users} & needed - {*group}]
        stages.kernels.append(kernel := Kernel(f"kernel_{len(stages.kernels)}", [*group], writes, stages.language))
        call = made.call_function(kernel, tuple(values[each] for each in kernel.reads))
        for i, each in enumerate(writes):
            values[each] = made.create_node("call_function", operator.getitem, (call, i), {}, each.name)
        group.clear()

    for node in reversed(graph.nodes):
        needed |= {*node.all_input_nodes} - {*inputs} if node in needed else set()
    for node in [each for each in graph.nodes if each in needed]:
        ranges = ranges_of(node)
        if group and (ranges != ranges_of(group[0]) if ranges else {*group} & {*node.all_input_nodes}):
            end_group()
        if ranges:
            group.append(node)
        else:
            values[node] = made.node_copy(node, values.__getitem__)
    if group:
        end_group()
    made.output(fx.node.map_arg(list(outputs), values.__getitem__))
    return fx.GraphModule({}, made)


def ranges_of(node: fx.Node) -> str:
    """Returns the ranges of an operator's loop; empty: it calls PyTorch's kernel."""
    values = [each.meta.get("val") for each in (node, *node.all_input_nodes)]
    is_float = all(isinstance(each, Tensor) and each.dtype == torch.float32 for each in values)
    return str(values[0].shape) if node.target in POINTWISE and is_float and not node.kwargs else ""


# ---------------------------------------------------------------- Lesson 8: kernels
# A group is printed as C, or as a Triton kernel, which Triton's interpreter runs on a CPU. Operands that are smaller
# than the loop are expanded first. The real stage computes with indices instead, and uses vectors and threads.

C = """#include <cmath>
#define maximum(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
extern "C" void kernel({parameters}, long count) {{
    for (long i = 0; i < count; i++) {{
        {body}
    }}
}}
"""
TRITON = """import triton, triton.language as tl
@triton.jit
def kernel({parameters}, count, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        {body}
"""
LANGUAGES = {  # a kernel, then how it declares, loads, computes and stores
    "c": (C, "float *{0}", "float {0} = {1}[i];", "float {0} = {1};", "{1}[i] = {0};"),
    "triton": (TRITON, "{0}", "{0} = tl.load({1} + i, i < count)", "{0} = {1}", "tl.store({1} + i, {0}, i < count)"),
}


class Kernel:
    """A group as source, and as a function of its operands that returns a list of tensors."""

    def __init__(self, name: str, nodes: list[fx.Node], writes: list[fx.Node], language: str) -> None:
        self.nodes, self.writes = nodes, writes
        self.reads = [*dict.fromkeys(each for node in nodes for each in node.all_input_nodes if each not in nodes)]
        self.text = self.source(language)
        self.native = build(self.text, language)
        self.__name__, self.__module__ = name, "toy"  # how the graph's text calls it

    def source(self, language: str) -> str:
        kernel, declare, load, compute, store = LANGUAGES[language]
        names = {node: f"v{i}" for i, node in enumerate([*self.reads, *self.nodes])}
        body = [load.format(names[node], f"in{i}") for i, node in enumerate(self.reads)]
        for node in self.nodes:
            text = POINTWISE[node.target].format(*(names.get(each) or repr(float(each)) for each in node.args))
            body.append(compute.format(names[node], text if language == "c" else re.sub(r"([a-z]+\()", r"tl.\1", text)))
        body += [store.format(names[node], f"out{i}") for i, node in enumerate(self.writes)]
        pointers = [f"in{i}" for i in range(len(self.reads))] + [f"out{i}" for i in range(len(self.writes))]
        return kernel.format(parameters=", ".join(map(declare.format, pointers)), body="\n        ".join(body))

    def __call__(self, *operands: Tensor) -> list[Tensor]:
        operands = [each.contiguous() for each in torch.broadcast_tensors(*operands)]
        results = [torch.empty_like(operands[0]) for _ in self.writes]
        self.native([*operands, *results], operands[0].numel())
        return results


@functools.cache
def build(text: str, language: str) -> Callable[..., None]:
    """Returns a kernel as a function of tensors and of the number of their elements."""
    if language == "c":
        function = load(text).kernel
        return lambda data, count: function(*(ctypes.c_void_p(t.data_ptr()) for t in data), ctypes.c_long(count))
    name, scope = f"<kernel {hash(text)}>", {}
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name  # Triton reads a kernel's source
    exec(builtins.compile(text, name, "exec"), scope)
    return lambda data, count: scope["kernel"][(count // 1024 + 1,)](*data, count, BLOCK=1024)


# ---------------------------------------------------------------- Lesson 9: a symbolic size
# A size that differs from what an earlier entry saw becomes a symbol. What is decided by it becomes a guard with
# the symbol in it, and the graph computes with it. The real stage also has sizes that depend on data.


def fake_of(capture: Capture, value: Tensor, source: str) -> Tensor:
    """Returns a fake tensor, with a symbol for each size that differs from what was seen before."""
    seen = capture.unit.sizes.setdefault(source, tuple(value.shape))
    can_change = len(seen) == value.dim() and value.is_contiguous()
    pairs = zip(seen if can_change else value.shape, value.shape, strict=True)
    kinds = StatelessSymbolicContext([DimDynamic.STATIC if a == b else DimDynamic.DUCK for a, b in pairs])
    return capture.mode.from_tensor(value, symbolic_context=kinds, source=ConstantSource(source))


def size_node(capture: Capture, size: Any) -> fx.Node:
    """Returns a node that computes a size from those of inputs."""
    places = {str(each): (fake.fx_node, d) for fake in capture.inputs for d, each in enumerate(fake.shape)}
    names = sorted(map(str, size.node.expr.free_symbols))
    function = eval(f"lambda {', '.join(names)}: {PythonPrinter().doprint(size.node.expr)}")
    function.__name__, function.__module__ = "size", "toy"  # how the graph's text calls it
    return capture.graph.call_function(function, tuple(capture.graph.call_method("size", places[n]) for n in names))


# ---------------------------------------------------------------- Lesson 10: a whole step
# A step of training is a frame like any other: a graph up to `backward`, which runs the compiled backward, and a
# graph that computes the new parameters. The real stage captures all of it in one graph.


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

"""Graphs in parts: an operation waits for what others have computed, and data decide the size of its result.

Such operations, ``x[mask]`` or ``n.item()``, run as they are.  What is between two of them is a part, which is
compiled when a call first reaches it, for the sizes that its inputs have then.  The sizes that data decide are
symbolic.  What the compiled part takes for granted about them is checked at each call; where it does not hold, the part
is compiled again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from compiler_core.backends.registry import Call
from compiler_core.capture.graph_builder import fake_execution
from compiler_core.capture.tensors.fake_tensors import FakeMode, make_fake
from compiler_core.capture.tensors.symbolic_shapes import DynamicDim, DynamicPolicy, Symbols, is_never_symbolic
from compiler_core.config import Options
from compiler_core.errors import Refused, Unsupported
from compiler_core.guards.sources import LocalSource, Source, TensorPropertySource
from compiler_core.hook.failures import only_recorded, report_failure
from compiler_core.hook.frame_hook import hook_off
from compiler_core.records import Compile
from compiler_core.support import fx_symbols
from compiler_core.support.eager_warnings import silence_warnings
from compiler_core.support.fx_graphs import copy_graph, graph_module
from compiler_core.support.fx_symbols import has_symbols, is_symbolic
from compiler_core.support.garbage import deferred_collections
from compiler_core.support.node_facts import custom_operator, is_pure, is_random, may_raise, waits_for_data
from compiler_core.support.operators import Fact, facts
from compiler_core.support.recorded_calls import has_recorded_calls, with_inner_record, with_recorded_calls
from compiler_core.support.tensors import tensors_in
from compiler_core.support.torch_state import STATE_CHANGING_FUNCTIONS, StateChange, for_tracing
from compiler_core.torch_private import ConstantSource, EnableTorchFunction, detect_fake_mode

MAX_VARIANTS = 8
"""How often a part is compiled.  For further sizes it runs as it was captured."""
OTHER_SIZES = "For other sizes this part runs as plain PyTorch: the results are right, but it is not compiled."
CompileGraph = Callable[[fx.GraphModule, Sequence[Any], Compile, Options], Call]


@dataclass
class Part:
    """Nodes of a graph that follow each other, as a graph."""

    gm: fx.GraphModule
    waits: bool
    """Whether it runs as it is."""
    inputs: list[fx.Node]
    """The nodes of the whole graph that it reads."""
    outputs: list[fx.Node]
    """Those of its nodes that others read, or that the whole graph returns."""
    frees: list[fx.Node] = field(default_factory=list)
    """The nodes that are not read after it."""


def compile_parts(
    gm: fx.GraphModule, examples: Sequence[Any], compile_: Compile, options: Options, compile_graph: CompileGraph
) -> Call:
    """Returns a function that runs a graph in parts.  The first is compiled now, the others when they are reached.

    Args:
        gm: a captured graph in which operations wait for data.
        examples: fake inputs of it.
        compile_: the record of the compile; each part is in it as a stage of the graph.
        options: the options of the compile.
        compile_graph: compiles a graph without such operations.
    """
    placeholders: Any = gm.graph.find_nodes(op="placeholder")
    returned: Any = gm.graph.output_node().args[0]
    parts, runs = split(gm), list[Call]()
    known = dict(zip(placeholders, examples, strict=True))
    for i, part in enumerate(parts):
        if part.waits:
            runs.append(with_recorded_calls(part.gm).forward)
            continue
        compiled = _CompiledPart(part, f"part_{i}", compile_, options, compile_graph)
        call: Any = compiled.compile([known[node] for node in part.inputs]) if i == 0 else compiled
        runs.append(with_inner_record(call) if has_recorded_calls(gm) else call)

    def run(*inputs: Any) -> tuple[Any, ...]:
        values = dict(zip(placeholders, inputs, strict=True))
        for part, call in zip(parts, runs, strict=True):
            values.update(zip(part.outputs, call(*(values[node] for node in part.inputs)), strict=True))
            for node in part.frees:
                del values[node]
        return tuple(values[node] if isinstance(node, fx.Node) else node for node in returned)

    return run


# ---------------------------------------------------------------- splitting


def split(gm: fx.GraphModule) -> list[Part]:
    """Splits a graph at the operations that wait for data."""
    groups = list[list[fx.Node]]()
    for node in gm.graph.nodes:
        if node.op not in ("placeholder", "output") and not _is_repeated(node):
            if not groups or _state(groups[-1][0]) != _state(node):
                groups.append([])
            groups[-1].append(node)
    states = [_state(group[0]) for group in groups]
    parts = list[Part]()
    for i, group in enumerate(groups):
        if not all(map(_is_change, group)):
            before = next((s for s in states[i::-1] if s is not None), ())
            after = next((s for s in states[i:] if s is not None), ())
            parts.append(_part(gm, group, before, after))
    needed: set[fx.Node] = set(gm.graph.output_node().all_input_nodes)
    for part in reversed(parts):
        part.frees = [node for node in dict.fromkeys((*part.inputs, *part.outputs)) if node not in needed]
        needed.update(part.inputs)
    return parts


def _state(node: fx.Node) -> tuple[StateChange, ...] | None:
    """Returns the changes of PyTorch's state that are in force at a node that waits for data; None for another."""
    state: tuple[StateChange, ...] | None = node.meta.get("waits")
    return state


def _is_repeated(node: fx.Node) -> bool:
    """Whether each part that reads a node has it: a size, arithmetic on numbers, or the graph of a function."""
    return node.op == "get_attr" or (is_symbolic(node.meta.get("val")) and not waits_for_data(node))


def _is_change(node: fx.Node) -> bool:
    return node.target in STATE_CHANGING_FUNCTIONS


def _part(
    gm: fx.GraphModule, nodes: Sequence[fx.Node], before: Sequence[StateChange], after: Sequence[StateChange]
) -> Part:
    """Returns nodes as a graph, which changes PyTorch's state as it is there, and restores it."""
    graph, copies, inside = fx.Graph(), dict[fx.Node, fx.Node](), set(nodes)
    inputs = list(dict.fromkeys(found for node in nodes for found in _read_outside(node, inside)))
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = {key: value for key, value in node.meta.items() if key != "waits"}

    def copy(node: fx.Node) -> fx.Node:
        if node not in copies:
            copies[node] = graph.node_copy(node, copy)
        return copies[node]

    for change in before:
        graph.call_function(change.do, change.args)
    for node in nodes:
        copy(node)
    for change in reversed(after):
        graph.call_function(change.undo, change.undo_args)
    outputs = [node for node in nodes if any(user not in inside for user in _readers(node))]
    graph.output(tuple(copies[node] for node in outputs))
    return Part(graph_module(gm, graph, "Part"), waits_for_data(nodes[0]), inputs, outputs)


def _read_outside(node: fx.Node, inside: set[fx.Node]) -> Iterator[fx.Node]:
    """Yields the nodes that a node reads from other parts, itself or by nodes that are repeated."""
    for read in node.all_input_nodes:
        if read.op != "placeholder" and _is_repeated(read):
            yield from _read_outside(read, inside)
        elif read not in inside:
            yield read


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    for user in node.users:
        if user.op != "output" and _is_repeated(user):
            yield from _readers(user)
        else:
            yield user


# ---------------------------------------------------------------- compiling


@dataclass(frozen=True)
class _Variant:
    holds: Callable[..., bool]
    """Whether what it takes for granted is true of these inputs."""
    run: Call


class _CompiledPart:
    """A part, which is compiled for the sizes of its inputs."""

    def __init__(self, part: Part, name: str, compile_: Compile, options: Options, compile_graph: CompileGraph) -> None:
        self._gm, self._name, self._compile, self._options = part.gm, name, compile_, options
        self._compile_graph = compile_graph
        self._names = [node.name for node in part.inputs]
        self._decided = {node.name for node in part.inputs if waits_for_data(node)}
        self._examples = [node.meta["val"] for node in part.inputs]
        self._variants: list[_Variant] = []
        self._is_full = False
        """Whether it has been said that no other sizes are compiled."""
        self._lock = threading.RLock()

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        run = self._known(inputs) or self._add_variant(inputs)
        return run(*inputs)

    def _known(self, inputs: Sequence[Any]) -> Call | None:
        return next((variant.run for variant in self._variants if variant.holds(*inputs)), None)

    def _add_variant(self, inputs: Sequence[Any]) -> Call:
        with self._lock, hook_off(), deferred_collections():
            if known := self._known(inputs):  # another thread has compiled it
                return known
            if len(self._variants) == MAX_VARIANTS:
                if not self._is_full:
                    self._is_full = True
                    why = Refused(
                        f"{self._name} of the graph was compiled for {MAX_VARIANTS} kinds of sizes that data decide"
                    )
                    report_failure(self._compile, "backend", why, meaning=OTHER_SIZES)
                return with_recorded_calls(self._gm).forward
            with for_tracing(), EnableTorchFunction():
                symbols = Symbols(_Policy(self._names, self._examples))
                examples = _fakes(inputs, self._names, symbols)
                try:
                    with silence_warnings():  # the part gives them when it runs
                        gm = _with_values(self._gm, examples, symbols)
                except Unsupported:  # it raises an error
                    return with_recorded_calls(self._gm).forward
                symbols.apply_replacements()
                run = self.compile(_fakes(inputs, self._names, symbols), gm, symbols)
            holds = _conditions(inputs, self._names, self._examples, examples, symbols, self._decided)
            self._variants.append(_Variant(holds, run))
            return run

    def compile(
        self, examples: Sequence[Any], gm: fx.GraphModule | None = None, symbols: Symbols | None = None
    ) -> Call:
        """Compiles the part for inputs like these fake ones, whose sizes are these symbols."""
        count = len(self._variants)
        name = f"{self._name}_{count + 1}" if count else self._name
        record = Compile(f"{self._compile.id}.{name}", self._compile.frame)
        with self._compile.step("backend", name):
            try:
                return self._compile_graph(gm or self._gm, examples, record, self._options)
            finally:
                with only_recorded(self._compile, "backend", "the symbols of a part", self._options.strict):
                    record.symbols = symbols.records() if symbols else []
                if count:  # it saves the same values as the first, for other sizes
                    record.partition = None
                self._compile.add_subgraph(name, record, is_stage=True)


class _Policy(DynamicPolicy):
    """The sizes and numbers are symbolic that are so in the captured graph."""

    def __init__(self, names: Sequence[str], examples: Sequence[Any]) -> None:
        super().__init__(None)
        self._examples = dict(zip(names, examples, strict=True))

    def dynamic_dims(self, real: torch.Tensor, source: Source) -> list[DynamicDim | None]:
        assert isinstance(source, LocalSource)
        sizes = self._examples[source.name].shape
        return [None if isinstance(size, int) else DynamicDim("data decide it") for size in sizes]

    def dynamic_strides(self, real: torch.Tensor, source: Source) -> list[bool]:
        return []


def _fakes(inputs: Sequence[Any], names: Sequence[str], symbols: Symbols) -> list[Any]:
    """Returns fake inputs of these names with symbols; a number that cannot be symbolic as it is."""
    mode, found = FakeMode(shape_env=symbols.env, static_shapes=True), list[Any]()
    for name, each in zip(names, inputs, strict=True):
        source = LocalSource(name)
        if isinstance(each, torch.Tensor):
            found.append(make_fake(mode, each, symbols.symbolic_context(each, source)))
            symbols.note_symbols(found[-1], source)
        else:
            found.append(each if is_never_symbolic(each) else symbols.symbol_for_number(each, source, "data decide it"))
    mode.forget_real_tensors()
    return found


def _with_values(gm: fx.GraphModule, examples: Sequence[Any], symbols: Symbols) -> fx.GraphModule:
    """Returns a copy of a captured graph whose nodes have the values that they have for these fake inputs."""
    copy = copy_graph(gm, "Part")
    values = dict(zip(copy.graph.find_nodes(op="placeholder"), examples, strict=True))
    mode: Any = detect_fake_mode(list(examples)) or FakeMode(shape_env=symbols.env, static_shapes=True)
    for node in copy.graph.nodes:
        if node.op == "placeholder":
            node.meta["val"] = values[node]
        elif node.op != "output":
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
            function: Any = getattr(copy, str(node.target)) if node.op == "get_attr" else node.target
            if node.op == "call_method":
                function, args = getattr(args[0], str(node.target)), args[1:]
            run = fake_execution(function, args, kwargs, mode, symbols)
            node.meta["val"] = function if node.op == "get_attr" else run()
    return copy


def _conditions(
    inputs: Sequence[Any],
    arguments: Sequence[str],
    captured: Sequence[Any],
    examples: Sequence[Any],
    symbols: Symbols,
    decided: Set[str],
) -> Callable[..., bool]:
    """Returns a function of inputs that tells whether all that a compile has decided about their sizes holds.

    Sizes that are numbers in the captured graph are the same in each call, but for those of results that data decide,
    the inputs `decided`: a kernel for other sizes would read other memory, so they are never taken for granted.
    """
    names, conditions = dict[str, str](), list[str]()
    for _, condition, _ in symbols.conditions():
        names |= {name: _read(source) for name, source in condition.sources.items()}
        conditions.append(condition.code)
    for name, known, real, fake in zip(arguments, captured, inputs, examples, strict=True):
        if not isinstance(fake, torch.Tensor):
            # by its text, since 0.0 and -0.0 are equal, and NaN is not equal to itself
            conditions += [] if is_symbolic(fake) else [f"repr({name}) == {repr(real)!r}"]
            continue
        if not has_symbols(known) and name not in decided:
            continue
        for method in ("size", "stride"):
            numbers = enumerate(getattr(fake, method)())
            conditions += [f"{name}.{method}({dim}) == {n}" for dim, n in numbers if isinstance(n, int)]
    lines = [f"def holds({', '.join(arguments)}):", *(f"    {name} = {text}" for name, text in names.items())]
    scope = dict(fx_symbols.EXPRESSION_NAMES)
    exec("\n".join([*lines, f"    return {' and '.join(conditions) or 'True'}"]), scope)
    holds: Callable[..., bool] = scope["holds"]
    return holds


def _read(source: Source) -> str:
    """Returns how Python reads a size, a stride or a number of an input."""
    if isinstance(source, TensorPropertySource):
        assert isinstance(source.base, LocalSource)
        return f"{source.base.name}.{source.method}({source.index})"
    assert isinstance(source, LocalSource)
    return source.name


# ---------------------------------------------------------------- the part of the host
#
# Numbers of a GPU's graph that the CPU computes, such as the bias corrections of Adam from its counts of steps.
#
# PyTorch keeps the counts of an optimizer's steps on the CPU, one tensor without dimensions for each parameter.  Eager
# PyTorch computes with them in Python.  So the part of a graph that only reads CPU tensors and numbers becomes another
# graph, with C++ kernels.  What the GPU's part reads of it are numbers: arguments of its kernels, or elements of one
# tensor if its launches are replayed as a CUDA graph.
#
# A CUDA graph cannot be recorded with the CPU's part in it, such as the random number by which a model skips a layer
# (``if torch.rand([]) < self.layerdrop``).  So where launches are replayed, a part of which the GPU needs nothing is
# separate, too.


aten = torch.ops.aten
_TAKES_NUMBER = frozenset({aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor})
"""Operators that compute the same with a number as with a tensor without dimensions."""
Run = Callable[[list[Any]], list[Any]]


@dataclass
class HostPart:
    """The two graphs that a graph is split into."""

    host: fx.GraphModule
    """Its first results are the numbers that the other graph needs, as tensors; the others are results of the whole."""
    numbers: int
    """How many numbers these are."""
    host_inputs: list[int]
    """The inputs of the whole that are its inputs, by their numbers."""
    device: fx.GraphModule
    device_inputs: list[int]
    """The inputs of the whole that are its first inputs.  The numbers follow."""
    results: list[tuple[bool, int]]
    """For each result of the whole: whether it is one of the host's, and which."""

    def joined(self, host: Run, device: Run) -> Run:
        """Returns the function of the whole graph, given those of its parts."""

        def run(inputs: list[Any]) -> list[Any]:
            found = host([inputs[i] for i in self.host_inputs])
            taken = [inputs[i] for i in self.device_inputs]
            computed = device([*taken, *map(torch.Tensor.item, found[: self.numbers])])
            return [found[i] if on_host else computed[i] for on_host, i in self.results]

        if (zeros := getattr(device, "zeros", None)) is not None:
            run.zeros = zeros  # type: ignore[attr-defined]
        first, second = host.executable, device.executable  # type: ignore[attr-defined]
        run.executable = replace(  # type: ignore[attr-defined]
            second,
            may_raise=first.may_raise or second.may_raise,
            only_kernels=False,
            inline_body=None,
            in_place=[*first.in_place, *second.in_place],
            updates=first.updates or second.updates,
        )
        return run


def split_host_part(gm: fx.GraphModule, is_replayed: bool = False) -> HostPart | None:
    """Splits a forward or backward graph; None if the CPU computes nothing in it, or nothing that the GPU reads while
    the GPU's launches are not replayed."""
    graph = gm.graph
    if not any(t.is_cuda for node in graph.nodes for t in tensors_in(node.meta.get("val"))):
        return None
    host = _host_nodes(graph)
    if any(map(_may_raise, graph.nodes)):
        return None  # eager PyTorch has then changed nothing that comes later
    if any(_draws_on_cpu(node) and node not in host for node in graph.nodes):
        return None  # the order of the random numbers would change
    numbers = list(dict.fromkeys(n for node in graph.nodes if node not in host for n in _tensors_of(node, host)))
    if not all(_is_number(number, host) for number in numbers):
        return None
    if not numbers and not (is_replayed and any(_computes_tensor(node) for node in host)):
        return None
    outputs = list(graph.output_node().args[0])  # type: ignore[arg-type]
    of_host = [node for node in outputs if node in host]
    placeholders = graph.find_nodes(op="placeholder")
    given = [i for i, node in enumerate(placeholders) if node in host or is_symbolic(node.meta.get("val"))]
    taken = [i for i, node in enumerate(placeholders) if node not in host or is_symbolic(node.meta.get("val"))]
    kept = [node for node in outputs if node not in host]
    first = _host_graph(gm, [placeholders[i] for i in given], host, numbers, of_host)
    second = _device_graph(gm, [placeholders[i] for i in taken], host, numbers, kept)
    places = [*numbers, *of_host]
    results = [(node in host, (places if node in host else kept).index(node)) for node in outputs]
    return HostPart(first, len(numbers), given, second, taken, results)


def _may_raise(node: fx.Node) -> bool:
    """Whether an operator raises an error for some values on a GPU, where indices are not checked."""
    raises = Fact.CHECKS_ON_REQUEST in facts(node.target) and may_raise(node)
    return raises or custom_operator(node.target) is not None


def _computes_tensor(node: fx.Node) -> bool:
    return node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor)


def _draws_on_cpu(node: fx.Node) -> bool:
    return is_random(node) and any(t.device.type == "cpu" for t in tensors_in(node.meta.get("val")))


def _host_nodes(graph: fx.Graph) -> set[fx.Node]:
    """Returns the nodes that only need CPU tensors and numbers, and change at most the state of the CPU's generator."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        value = node.meta.get("val")
        is_here = is_symbolic(value) or (isinstance(value, torch.Tensor) and value.device.type == "cpu")
        is_computed = node.op == "call_function" and (is_symbolic(value) or is_pure(node) or _draws_on_cpu(node))
        if is_here and (node.op == "placeholder" or (is_computed and found.issuperset(node.all_input_nodes))):
            found.add(node)
    return found


def _tensors_of(node: fx.Node, host: set[fx.Node]) -> list[fx.Node]:
    """Returns the tensors of the CPU's part that a node of the GPU's part reads."""
    if node.op == "output":
        return []
    return [n for n in node.all_input_nodes if n in host and not is_symbolic(n.meta.get("val"))]


def _is_number(number: fx.Node, host: set[fx.Node]) -> bool:
    """Whether a tensor of the CPU's part is only read as a number: it has no dimensions, and its readers have some."""
    value = number.meta["val"]
    readers = [user for user in number.users if user not in host and user.op != "output"]
    others = [n.meta["val"] for user in readers for n in user.all_input_nodes if n is not number]
    if any(user.target not in _TAKES_NUMBER or not user.meta["val"].dim() for user in readers):
        return False
    if any(is_symbolic(other) or not other.is_cuda for other in others):
        return False
    return not value.dim() and value.is_floating_point()


def _host_graph(
    gm: fx.GraphModule, inputs: list[fx.Node], host: set[fx.Node], numbers: list[fx.Node], outputs: list[fx.Node]
) -> fx.GraphModule:
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in [*inputs, *(n for n in gm.graph.nodes if n in host and n.op != "placeholder")]:
        copies[node] = graph.node_copy(node, copies.__getitem__)

    graph.output([copies[node] for node in (*numbers, *outputs)])
    return _module(gm, graph)


def _device_graph(
    gm: fx.GraphModule, inputs: list[fx.Node], host: set[fx.Node], numbers: list[fx.Node], outputs: list[Any]
) -> fx.GraphModule:
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in inputs:
        copies[node] = graph.node_copy(node)
    known = (node.meta["val"].node.shape_env for node in inputs if is_symbolic(node.meta.get("val")))
    env = next(known, None) or ShapeEnv()
    for number in numbers:
        copies[number] = graph.placeholder(number.name)
        symbol = env.create_unspecified_symbol(_HINT, ConstantSource(number.name), DimDynamic.DYNAMIC)
        copies[number].meta["val"] = env.create_symfloatnode(symbol, hint=_HINT)
    for node in gm.graph.nodes:
        is_shared = node in host and is_symbolic(node.meta.get("val"))
        if node.op not in ("placeholder", "output") and (node not in host or is_shared):
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output([copies[node] if isinstance(node, fx.Node) else node for node in outputs])
    return _module(gm, graph)


_HINT = 0.5


def _module(gm: fx.GraphModule, graph: fx.Graph) -> fx.GraphModule:
    found = graph_module(gm, graph)
    found.meta = dict(gm.meta)
    return found

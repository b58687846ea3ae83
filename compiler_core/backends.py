"""From a captured graph to a callable: the backends by name, and what happens when one fails.

    eager       runs the captured graph
    aot_eager   joint graph and partition of ours, the two graphs run by PyTorch
    cpp         the same with C++ kernels of ours
    triton      the same with Triton kernels of ours
    inductor    PyTorch's own compiler on the captured graph

Any callable ``(GraphModule, example_inputs) -> callable`` is a backend too.  A failure inside one
does not end the program: the graph runs eagerly, the record says why, and a warning does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from compiler_core.config import Options
from compiler_core.errors import CompileWarning, UsageError
from compiler_core.failures import heard
from compiler_core.record import Compile

Call = Callable[..., tuple[torch.Tensor, ...]]
Backend = Callable[[fx.GraphModule, Sequence[torch.Tensor], Compile, Options], Call]

_BACKENDS: dict[str, Backend] = {}


def backend(name: str) -> Callable[[Backend], Backend]:
    """Register the function below it as the backend `name`."""

    def register(function: Backend) -> Backend:
        _BACKENDS[name] = function
        return function

    return register


def names() -> list[str]:
    """The backends that can be asked for by name."""
    return sorted(_BACKENDS)


def takes_symbols(wanted: str | Callable[..., Any] | None) -> bool:
    """Whether the backend's graphs may have symbolic sizes; each new size is compiled anew where they may not."""
    return callable(wanted) or wanted in (None, "eager", "aot_eager", "cpp", "triton")


def choose(wanted: str | Backend | Callable[..., Any] | None, example_inputs: Sequence[torch.Tensor]) -> str:
    """The name of the backend that `wanted` means; UsageError where there is none of that name."""
    if wanted is None:
        return "triton" if any(isinstance(t, torch.Tensor) and t.is_cuda for t in example_inputs) else "cpp"
    if callable(wanted):
        return str(getattr(wanted, "__name__", type(wanted).__name__))
    if wanted not in _BACKENDS:
        raise UsageError(f"unknown backend {wanted!r}; the backends are {', '.join(names())}, or any callable")
    return wanted


def compile_graph(
    gm: fx.GraphModule, example_inputs: Sequence[torch.Tensor], compile_: Compile, options: Options
) -> Call:
    """A callable that does what `gm` does: real tensors in, its flat tuple of outputs out.

    `example_inputs` are fake tensors like those to come.  What goes wrong inside a backend is recorded, a warning
    says so, and the graph itself is returned; with `options.strict` a bug is raised as StrictError.
    """
    name = choose(options.backend, example_inputs)
    compile_.backend = name
    function = _custom(options.backend) if callable(options.backend) else _BACKENDS[name]
    steps = len(compile_.events)
    try:
        return function(gm, example_inputs, compile_, options)
    except CompileWarning:  # the user's filters make errors of warnings
        raise
    except Exception as error:
        failed = [e.stage for e in compile_.events[steps:] if e.outcome == "failed"]
        try:
            heard(compile_, failed[-1] if failed else "backend", error, strict=options.strict)
        finally:
            compile_.kernels.clear()  # whatever was made, none of it runs
            compile_.expansions.clear()
            compile_.partition = None
        return gm.forward


@backend("eager")
def _eager(gm: fx.GraphModule, examples: Sequence[torch.Tensor], compile_: Compile, options: Options) -> Call:
    return gm.forward


@backend("aot_eager")
def _aot_eager(gm: fx.GraphModule, examples: Sequence[torch.Tensor], compile_: Compile, options: Options) -> Call:
    return _differentiated(gm, examples, compile_, options, lambda graph, which: boxed(graph))


@backend("cpp")
def _cpp(gm: fx.GraphModule, examples: Sequence[torch.Tensor], compile_: Compile, options: Options) -> Call:
    return _kernels(gm, examples, compile_, options, "cpp")


@backend("triton")
def _triton(gm: fx.GraphModule, examples: Sequence[torch.Tensor], compile_: Compile, options: Options) -> Call:
    return _kernels(gm, examples, compile_, options, "triton")


@backend("inductor")
def _inductor(gm: fx.GraphModule, examples: Sequence[torch.Tensor], compile_: Compile, options: Options) -> Call:
    with compile_.step("backend", "inductor"):
        from torch._inductor.compile_fx import compile_fx

        run: Any = compile_fx(_copy(gm), list(examples))
        return _flat(run)


def _custom(function: Callable[..., Any]) -> Backend:
    def run(gm: fx.GraphModule, examples: Sequence[torch.Tensor], compile_: Compile, options: Options) -> Call:
        with compile_.step("backend", choose(function, examples)):
            return _flat(function(_copy(gm), list(examples)))

    return run


def _kernels(
    gm: fx.GraphModule, examples: Sequence[torch.Tensor], compile_: Compile, options: Options, language: Any
) -> Call:
    from compiler_core.graph_cache import Place

    place = Place(gm, examples, compile_, options, language)
    if (found := place.found()) is not None:
        return found
    from compiler_core.kernels import compile_kernels

    return _differentiated(
        gm,
        examples,
        compile_,
        options,
        lambda graph, which: compile_kernels(graph, which, compile_, options, language),
        place.keep,
    )


def _differentiated(
    gm: fx.GraphModule,
    examples: Sequence[torch.Tensor],
    compile_: Compile,
    options: Options,
    compile_part: Callable[[fx.GraphModule, Any], Callable[[list[Any]], Sequence[Any]]],
    keep: Callable[..., None] = lambda *made: None,
) -> Call:
    """Joint graph, partition, `compile_part` for each half, and the autograd glue around them; `keep` gets them all."""
    from compiler_core.autograd import Graphs, bound, written
    from compiler_core.joint import trace_joint
    from compiler_core.partition import partition

    joint = trace_joint(gm, examples, compile_)
    parts = partition(joint, compile_, options.memory_budget, options.memory_curve)
    forward = compile_part(parts.forward, "forward")
    backward = compile_part(parts.backward, "backward") if parts.backward is not None else None
    glue, constants = written(parts, forward, backward, gm, compile_)
    keep(glue, constants, forward, backward)
    backward_graph = parts.backward and parts.backward.forward
    return bound(glue, constants, Graphs(gm, forward, backward, backward_graph), compile_)


def boxed(gm: fx.GraphModule) -> Callable[[list[Any]], Sequence[Any]]:
    """`gm` as a function of one list."""
    forward = gm.forward
    return lambda inputs: forward(*inputs)


def _copy(gm: fx.GraphModule) -> fx.GraphModule:
    """A copy that a backend may rewrite as it likes."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, val_map={}))
    for node, copied in zip(gm.graph.nodes, graph.nodes, strict=True):
        copied.meta = dict(node.meta)
    return fx.GraphModule(gm, graph)


def _flat(function: Callable[..., Any]) -> Call:
    def call(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(function(*inputs))

    return call

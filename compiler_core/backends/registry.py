"""From a captured graph to a callable: the backends by name, and what happens when one fails.

    eager       runs the captured graph
    aot_eager   joint graph and partition of ours, the two graphs run by PyTorch
    cpp         the same with C++ kernels of ours for what lies on the CPU
    triton      the same with Triton kernels of ours for what lies on GPUs
    inductor    PyTorch's own compiler on the captured graph

Where none is asked for, both kinds of kernels are made, each for what lies on its device, and the record names those
that a graph got (``cpp + triton``).  What lies where a backend has no kernels is left to PyTorch's operators.

Any callable ``(GraphModule, example_inputs) -> callable`` is a backend too.  A failure inside one
does not end the program: the graph runs eagerly, the record says why, and a warning does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from compiler_core.config import Options
from compiler_core.errors import CompileWarning, UsageError
from compiler_core.hook.failures import heard
from compiler_core.loops import ir
from compiler_core.records import Compile
from compiler_core.support.eager_warnings import says
from compiler_core.support.fx_graphs import graph_module, tensors_in
from compiler_core.support.interrupts import allowed
from compiler_core.support.silenced_warnings import every_warning, unheard

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


def check_name(wanted: str | Callable[..., Any] | None) -> None:
    """UsageError where there is no backend of that name."""
    if isinstance(wanted, str) and wanted not in _BACKENDS:
        raise UsageError(f"unknown backend {wanted!r}; the backends are {', '.join(names())}, or any callable")


def name_of(wanted: str | Callable[..., Any] | None, gm: fx.GraphModule) -> str:
    """What the record calls the backend that `wanted` means for a graph: by default, the kinds of kernels that there
    are for its devices."""
    if wanted is None:
        devices = {tensor.device.type for tensor in tensors_in(gm)}
        return " + ".join(sorted({ir.LANGUAGES[d] for d in devices & ir.LANGUAGES.keys()})) or "aot_eager"
    return wanted if isinstance(wanted, str) else str(getattr(wanted, "__name__", type(wanted).__name__))


def _name_made(compile_: Compile) -> None:
    """Let the record name the kinds of kernels that a graph got: some of its devices may have needed none."""
    if made := {kernel.language for kernel in compile_.kernels} - {"extern"}:
        compile_.backend = " + ".join(sorted(made))


def compile_graph(
    gm: fx.GraphModule, example_inputs: Sequence[torch.Tensor], compile_: Compile, options: Options
) -> Call:
    """A callable that does what `gm` does: real tensors in, its flat tuple of outputs out.

    `example_inputs` are fake tensors like those to come.  What goes wrong inside a backend is recorded, a warning
    says so, and the graph itself is returned; with `options.strict` a bug is raised as StrictError.
    """
    check_name(options.backend)
    compile_.backend = name_of(options.backend, gm)
    function = _custom(options.backend) if callable(options.backend) else _BACKENDS.get(options.backend or "", _default)
    steps = len(compile_.events)
    try:
        with unheard(), every_warning(), torch.autograd.set_detect_anomaly(False):
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


def _default(gm: fx.GraphModule, examples: Sequence[torch.Tensor], compile_: Compile, options: Options) -> Call:
    call = _kernels(gm, examples, compile_, options, ir.LANGUAGES)
    _name_made(compile_)
    return call


@backend("cpp")
def _cpp(gm: fx.GraphModule, examples: Sequence[torch.Tensor], compile_: Compile, options: Options) -> Call:
    return _kernels(gm, examples, compile_, options, {"cpu": "cpp"})


@backend("triton")
def _triton(gm: fx.GraphModule, examples: Sequence[torch.Tensor], compile_: Compile, options: Options) -> Call:
    # Triton's interpreter runs kernels on the CPU too
    interpreted: ir.Languages = {"cpu": "triton"} if os.environ.get("TRITON_INTERPRET") == "1" else {}
    return _kernels(gm, examples, compile_, options, {"cuda": "triton", **interpreted})


@backend("inductor")
def _inductor(gm: fx.GraphModule, examples: Sequence[torch.Tensor], compile_: Compile, options: Options) -> Call:
    with compile_.step("backend", "inductor"):
        from torch._inductor.compile_fx import compile_fx

        with allowed():
            run: Any = compile_fx(_copy(gm), list(examples))
        return _warning(_flat(run), gm)


def _custom(function: Callable[..., Any]) -> Backend:
    def run(gm: fx.GraphModule, examples: Sequence[torch.Tensor], compile_: Compile, options: Options) -> Call:
        with compile_.step("backend", name_of(function, gm)), allowed():
            return _flat(function(_copy(gm), list(examples)))

    return run


def _kernels(
    gm: fx.GraphModule,
    examples: Sequence[torch.Tensor],
    compile_: Compile,
    options: Options,
    languages: ir.Languages,
) -> Call:
    from compiler_core.backends.graph_cache import Place

    place = Place(gm, examples, compile_, options, languages)
    if (found := place.found()) is not None:
        return found
    from compiler_core.backends.kernels import compile_kernels

    return _differentiated(
        gm,
        examples,
        compile_,
        options,
        lambda graph, which: compile_kernels(graph, which, compile_, options, languages),
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
    from compiler_core.autograd.autograd_function import Graphs, bound, written
    from compiler_core.autograd.joint import trace_joint
    from compiler_core.autograd.partition import partition

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
    return graph_module(gm, graph)


def _warning(call: Call, gm: fx.GraphModule) -> Call:
    """`call`, which warns as `gm` does."""
    say = says(gm.graph)
    if say is None:
        return call

    def warn_and_call(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        say()
        return call(*inputs)

    return warn_and_call


def _flat(function: Callable[..., Any]) -> Call:
    def call(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(function(*inputs))

    return call

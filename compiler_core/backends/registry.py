"""The backends by name, and those that run none of our stages.

    eager       runs the captured graph
    aot_eager   our joint graph and partition; PyTorch runs the two graphs
    cpp         the same, with our C++ kernels for tensors on the CPU
    triton      the same, with our Triton kernels for tensors on GPUs
    inductor    PyTorch's own compiler on the captured graph

If no backend is named, each device gets its kind of kernels, and the record names the kinds that a graph got
(``cpp + triton``).  On devices for which a backend has no kernels, PyTorch's operators run.

Any callable ``(GraphModule, example_inputs) -> callable`` is a backend, too.  What it raises, and what its result
raises, is the user's error, as with `torch.compile`.  `pipeline/graph.py` runs the stages of
`aot_eager`, `cpp`, `triton` and the default.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx as fx

from compiler_core.config import Options
from compiler_core.errors import BackendError, UsageError
from compiler_core.instruments import tool
from compiler_core.loops import ir
from compiler_core.records import Compile
from compiler_core.support.eager_warnings import warning_emitter
from compiler_core.support.fx_graphs import copy_graph, differs, graph_tensors, returned_graph
from compiler_core.support.garbage import allowed_collections
from compiler_core.support.interrupts import immediate_signals
from compiler_core.support.recorded_calls import with_recorded_calls
from compiler_core.support.torch_state import kept_random_state
from compiler_core.torch_private import (
    CompileContext,
    CompileId,
    FakeTensorMode,
    TensorifyScalarRestartAnalysis,
    TensorifyState,
    TracingContext,
    compile_context,
    detect_fake_mode,
    tracing,
)

Call = Callable[..., tuple[torch.Tensor, ...]]
Backend = Callable[[fx.GraphModule, Sequence[torch.Tensor], Compile, Options], Call]

OWN = ("aot_eager", "cpp", "triton")
"""The named backends that run our stages."""


def backend_names() -> list[str]:
    """Returns the names of all backends, sorted."""
    return sorted((*OWN, *_EXTERNAL))


def supports_symbolic_sizes(wanted: str | Callable[..., Any] | None) -> bool:
    """Whether graphs for the backend may have symbolic sizes; if not, each new size is another compile."""
    return callable(wanted) or wanted in (None, "eager", "aot_eager", "cpp", "triton")


def check_name(wanted: str | Callable[..., Any] | None) -> None:
    """Raises UsageError if there is no backend of that name."""
    if isinstance(wanted, str) and wanted not in backend_names():
        raise UsageError(f"unknown backend {wanted!r}; the backends are {', '.join(backend_names())}, or any callable")


def backend_name(wanted: str | Callable[..., Any] | None, gm: fx.GraphModule) -> str:
    """Returns the backend's name for the record: by default, the languages of the kernels for the graph's devices."""
    if wanted is None:
        devices = {tensor.device.type for tensor in graph_tensors(gm)}
        return " + ".join(sorted({ir.LANGUAGES[d] for d in devices & ir.LANGUAGES.keys()})) or "aot_eager"
    return wanted if isinstance(wanted, str) else str(getattr(wanted, "__name__", type(wanted).__name__))


def set_backend_name(compile_: Compile) -> None:
    """Names in the record the languages of the kernels that a graph got, since some of its devices may need none."""
    languages = {kernel.language for kernel in compile_.kernels} - {"extern"}
    if languages:
        compile_.backend = " + ".join(sorted(languages))


def kernel_languages(wanted: str | Callable[..., Any] | None) -> ir.Languages | None:
    """Returns the language of the backend's kernels for each device type; None for a backend without kernels."""
    if wanted is None:
        return ir.LANGUAGES
    if wanted == "cpp":
        return {"cpu": "cpp"}
    if wanted == "triton":
        # Triton's interpreter runs kernels on the CPU, too
        interpreted: ir.Languages = {"cpu": "triton"} if os.environ.get("TRITON_INTERPRET") == "1" else {}
        return {"cuda": "triton", **interpreted}
    return None


# ---------------------------------------------------------------- backends that run none of our stages


def external_backend(wanted: str | Callable[..., Any] | None) -> Backend | None:
    """Returns the function that compiles a graph for `eager`, `inductor` or a callable; None for our own backends."""
    if callable(wanted):
        return _custom_backend(wanted)
    return None if wanted is None else _EXTERNAL.get(wanted)


def _eager(gm: fx.GraphModule, examples: Sequence[torch.Tensor], compile_: Compile, options: Options) -> Call:
    return gm.forward


def _inductor(gm: fx.GraphModule, examples: Sequence[torch.Tensor], compile_: Compile, options: Options) -> Call:
    with compile_.step("backend", "inductor"):
        from compiler_core.torch_private import inductor_compile_fx

        with allowed_collections(), immediate_signals(), kept_random_state():
            run: Any = inductor_compile_fx(copy_graph(gm), list(examples))
        return _with_eager_warnings(_tuple_output(run, [False] * len(examples)), gm)


_EXTERNAL: dict[str, Backend] = {"eager": _eager, "inductor": _inductor}


def _custom_backend(function: Callable[..., Any]) -> Backend:
    def run(gm: fx.GraphModule, examples: Sequence[torch.Tensor], compile_: Compile, options: Options) -> Call:
        name, floats = backend_name(function, gm), [isinstance(e, torch.SymFloat) for e in examples]
        before, inputs = _floats_as_tensors(gm, examples) if any(floats) else (gm, examples)
        given = copy_graph(before)
        as_dynamo = _as_dynamo_calls(_fake_mode(gm, examples), compile_)
        kept = kept_random_state()
        with (
            compile_.step("backend", name),
            _errors_of(name),
            as_dynamo,
            allowed_collections(),
            immediate_signals(),
            kept,
        ):
            try:
                result = function(given, list(inputs))
            except TensorifyScalarRestartAnalysis:  # AOTAutograd has noted floats that it makes constants, with guards
                given = copy_graph(before)
                result = function(given, list(inputs))
            finally:
                TensorifyState.clear()
            if not callable(result):
                raise TypeError(f"it returned {type(result).__name__}, not a function of the graph's inputs")
        after = returned_graph(result) or given
        if differs(after, before):
            if record_change := tool("record_change"):
                record_change(compile_, gm, after, f"backend.{name if name.isidentifier() else 'function'}")
        elif _runs_only(given, result):
            return gm.forward
        return _tuple_output(result, floats)

    return run


@contextmanager
def _errors_of(backend: str) -> Iterator[None]:
    """Raises what the backend of the user raises in the block as a BackendError."""
    try:
        yield
    except Exception as error:
        raise BackendError.of(backend, error) from error


def _runs_only(graph: fx.GraphModule, result: Any) -> bool:
    """Whether the result of a backend is the graph that it was given: what raises then is an operation of the
    program."""
    has_hooks = any(value for name, value in vars(graph).items() if name.endswith("_hooks"))
    return (result is graph or result == graph.forward) and "forward" not in vars(graph) and not has_hooks


def _floats_as_tensors(gm: fx.GraphModule, examples: Sequence[Any]) -> tuple[fx.GraphModule, list[Any]]:
    """Returns the graph with an input tensor, of which it reads ``item()``, for each symbolic float; and its examples.

    `torch.compile` passes floats so, and what is written for it, such as AOTAutograd, refuses others.
    """
    changed, mode, inputs = copy_graph(gm), _fake_mode(gm, examples), list(examples)
    assert mode is not None
    placeholders = changed.graph.find_nodes(op="placeholder")
    with changed.graph.inserting_after(placeholders[-1]):
        for i, (node, example) in enumerate(zip(placeholders, examples, strict=True)):
            if not isinstance(example, torch.SymFloat):
                continue
            with mode:
                inputs[i] = torch.empty((), dtype=torch.float64)
            inputs[i].item_memo = example
            number = changed.graph.call_method("item", (node,))
            node.replace_all_uses_with(number, delete_user_cb=lambda user, number=number: user is not number)
            number.meta, node.meta = node.meta, node.meta | {"val": inputs[i]}
    changed.recompile()
    return changed, inputs


@contextmanager
def _as_dynamo_calls(mode: FakeTensorMode | None, compile_: Compile) -> Iterator[None]:
    """Sets what backends written for `torch.compile` may ask for: the fake mode and the number of the compile."""
    context = TracingContext(mode)
    frame, number = map(int, compile_.id.split("/"))
    compile_id = CompileId(frame_id=frame, frame_compile_id=number)
    with tracing(context), compile_context(CompileContext(compile_id)):
        yield


def _fake_mode(gm: fx.GraphModule, examples: Sequence[Any]) -> FakeTensorMode | None:
    """Returns the fake mode of the inputs, or that of the tensors which a graph without an input tensor makes."""
    return detect_fake_mode(examples) or detect_fake_mode([node.meta.get("val") for node in gm.graph.nodes])


def boxed_function(gm: fx.GraphModule) -> Callable[[list[Any]], Sequence[Any]]:
    """`gm` as a function of one list, which records its calls of custom operators."""
    forward = with_recorded_calls(gm).forward
    return lambda inputs: forward(*inputs)


def _with_eager_warnings(call: Call, gm: fx.GraphModule) -> Call:
    """`call`, which warns as `gm` does."""
    say = warning_emitter(gm.graph)
    if say is None:
        return call

    def warn_and_call(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        say()
        return call(*inputs)

    return warn_and_call


def _tuple_output(function: Callable[..., Any], floats: Sequence[bool]) -> Call:
    """Returns `function` with its outputs as a tuple; `floats` tells which inputs are floats that it takes as tensors.

    The parameters are written out: CPython calls such functions faster than one of ``*inputs``.
    """
    names = [f"a{i}" for i in range(len(floats))]
    given = (
        f"tensor({name}, dtype=float64)" if is_float else name for name, is_float in zip(names, floats, strict=True)
    )
    names_and_values = {"function": function, "tensor": torch.tensor, "float64": torch.float64}
    call: Call = eval(f"lambda {', '.join(names)}: tuple(function({', '.join(given)}))", names_and_values)
    return call

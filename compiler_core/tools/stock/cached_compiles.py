"""Records what PyTorch still has of a function that stock `torch.compile` compiled before it was observed."""

from __future__ import annotations

import functools
import gc
import time
import types
from collections.abc import Iterator
from typing import Any

import torch

from compiler_core.errors import UsageError
from compiler_core.records import Record
from compiler_core.tools.stock.build.record_builder import RecordBuilder
from compiler_core.tools.stock.hooks import torch_internals
from compiler_core.tools.stock.read.trace_event import TraceEvent
from compiler_core.torch_private import OpOverload, innermost_fn

MAX_OBJECTS = 20_000
"""Objects searched for the graphs of one compiled function."""
_SEARCHED_TYPES = (
    types.FunctionType, types.CellType, types.MethodType, types.BuiltinMethodType, functools.partial, tuple, list, dict,
    type,
)  # fmt: skip


def already_compiled(fn: Any) -> Record:
    """Returns a record of Dynamo's cache entries for `fn` and its resume functions.

    The record has guards, bytecode, and Inductor's code and kernels.  Times, graph breaks and all graphs but the last
    are known only while a function is compiled and are missing.

    Args:
        fn: a function, a method or an ``nn.Module``; plain, or as returned by ``torch.compile``.

    Raises:
        UsageError: `fn` is something else, or it was not compiled, or ``torch.compiler.reset`` was called since.

    Example::

        compiled = torch.compile(f)
        compiled(x)
        print(compiler_core.already_compiled(f).compiles[0].guards)
    """
    function = python_function(fn)
    record = Record(engine="torch", title=f"{function.__name__}, compiled already")
    record.versions["torch"] = torch.__version__
    builder = RecordBuilder(record, time.time_ns())
    for code, namespace in _compiled_codes(function.__code__, function.__globals__):
        for entry in reversed(torch_internals.cache_entries(code)):
            for event in _events(code, namespace, entry):
                builder.add(event)
    builder.close()
    if not record.compiles:
        raise UsageError(f"{function.__name__} was not compiled by torch.compile, or has been reset since")
    if _is_around_call(function):
        record.notes.append("PyTorch's own modules share one frame: compiles of others may be among these.")
    record.notes.append("Compiled before it was observed: times, graph breaks and most graphs are missing.")
    return record


def python_function(fn: Any) -> types.FunctionType:
    """Returns the Python function behind a function, method or module; UsageError for anything else."""
    return function_and_self(fn)[0]


def function_and_self(fn: Any) -> tuple[types.FunctionType, tuple[()] | tuple[Any]]:
    """Returns the Python function behind a function, method or module, and the object that it is bound to, if any.

    Raises:
        UsageError: `fn` is something else.
    """
    bound: tuple[()] | tuple[Any] = ()
    function = _forward(fn) if isinstance(fn, torch.nn.Module) else innermost_fn(fn)
    while isinstance(function, types.MethodType):  # a compiled method is a function around a method
        bound, function = bound or (function.__self__,), innermost_fn(function.__func__)
    if not isinstance(function, types.FunctionType):
        raise UsageError(f"this takes a function, a method or an nn.Module, not a {type(fn).__name__}")
    return function, bound


def _forward(module: Any) -> Any:
    """Returns the function that Dynamo compiles for a module: ``forward``, or, for a module of PyTorch's own that was
    compiled itself, a function around the call of the module."""
    original = getattr(module, "_orig_mod", None)
    around = innermost_fn(module.forward) if original is not None else None
    return around if _is_around_call(around) else (module if original is None else original).forward


def _is_around_call(function: Any) -> bool:
    return isinstance(function, types.FunctionType) and function.__code__.co_qualname == "wrap_inline.<locals>.inner"


def _compiled_codes(code: types.CodeType, namespace: dict[str, Any]) -> Iterator[tuple[types.CodeType, dict[str, Any]]]:
    """Yields the function's code and the codes of the resume functions reachable from its compiles."""
    seen: set[types.CodeType] = set()
    work = [code]
    while work:
        code = work.pop(0)
        if code in seen:
            continue
        seen.add(code)
        yield code, namespace
        for entry in torch_internals.cache_entries(code):
            found = [namespace.get(name) for name in entry.code.co_names if name.startswith("__resume_at")]
            work += [each.__code__ for each in found if isinstance(each, types.FunctionType)]


def _events(code: types.CodeType, namespace: dict[str, Any], entry: Any) -> Iterator[TraceEvent]:
    """Yields the events that the compile of a cache entry would have logged, as far as they can be restored."""
    id_ = entry.compile_id

    def event(name: str, data: Any, payload: str = "") -> TraceEvent:
        return TraceEvent(name, data, payload, 0, id_.frame_id, id_.frame_compile_id)

    frame = {"name": code.co_name, "line": code.co_firstlineno, "file": code.co_filename}
    yield event("dynamo_start", {"stack": [frame]})
    yield event("cutaway.bytecode", (code, entry.code))
    yield event("dynamo_cpp_guards_str", {}, str(entry.guard_manager))
    for name in entry.code.co_names:
        if name.startswith("__compiled_fn") and name in namespace:
            for graph in _compiled_graphs(namespace[name]):
                if isinstance(graph, torch.fx.GraphModule):
                    text = graph.print_readable(print_output=False, include_stride=True, include_device=True)
                    yield event(_event_name(graph), {}, text)
                    continue
                yield event("inductor_post_grad_graph", {}, getattr(graph, "inductor_post_grad_graph_str", None) or "")
                yield event("inductor_output_code", {}, getattr(graph, "source_code", None) or "")


def _compiled_graphs(compiled: Any) -> list[Any]:
    """Returns Inductor's graphs among the objects that a compiled graph refers to, or else its FX graphs."""
    inductor_graph = torch_internals.lookup("torch._inductor.output_code.CompiledFxGraph") or ()
    graph_types = (inductor_graph, torch.fx.GraphModule)
    found: list[Any] = []
    seen, work = {id(compiled)}, [compiled]
    while work and len(seen) < MAX_OBJECTS:
        each = work.pop()
        if isinstance(each, graph_types):
            found.append(each)
            continue
        attributes = vars(each).values() if isinstance(each, type) else ()
        for held in [*gc.get_referents(each), *attributes]:
            is_searched = isinstance(held, (*_SEARCHED_TYPES, *graph_types)) or _is_wrapper(held)
            is_module_dict = isinstance(held, dict) and "__spec__" in held  # leads to every object of the process
            if id(held) not in seen and is_searched and not is_module_dict:
                seen.add(id(held))
                work.append(held)
    inductor_graphs = [each for each in found if isinstance(each, inductor_graph)]
    return sorted(inductor_graphs, key=lambda each: "_backward" in (each.source_code or "")[:40]) or found


def _event_name(graph: torch.fx.GraphModule) -> str:
    """Returns the name of the event with which PyTorch logs such a graph."""
    if not any(isinstance(node.target, OpOverload) for node in graph.graph.nodes):
        return "dynamo_output_graph"
    is_backward = any(n.op == "placeholder" and n.name.startswith("tangents_") for n in graph.graph.nodes)
    return "aot_backward_graph" if is_backward else "aot_forward_graph"


def _is_wrapper(held: Any) -> bool:
    return type(held).__module__.startswith(("torch._functorch", "torch._inductor", "torch._dynamo"))

"""What is still there of a function that stock `torch.compile` compiled before anyone looked."""

from __future__ import annotations

import functools
import gc
import time
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch._dynamo.eval_frame import innermost_fn

from compiler_core.errors import UsageError
from compiler_core.records import Record
from compiler_core.stock import versions
from compiler_core.stock.read.trace_event import Happened
from compiler_core.stock.record_builder import Filler

MOST = 20_000
"""Objects that are looked at for one compiled graph."""
_WAYS = (
    types.FunctionType, types.CellType, types.MethodType, types.BuiltinMethodType, functools.partial, tuple, list, dict,
    type,
)  # fmt: skip


def already_compiled(fn: Any) -> Record:
    """A record of the entries in Dynamo's caches for `fn` and its resume functions: guards, bytecode, and Inductor's
    code and kernels.  What only the compile itself knew (time, breaks, graphs before the last) is gone.

    UsageError where nothing was compiled.
    """
    function = _function(fn)
    record = Record(engine="torch", title=f"{function.__name__}, compiled already")
    record.versions["torch"] = torch.__version__
    filler = Filler(record, time.time_ns())
    for code, namespace in _codes(function.__code__, function.__globals__):
        for entry in reversed(versions.cache_entries(code)):
            for told in _told(code, namespace, entry):
                filler.hear(told)
    filler.close()
    if not record.compiles:
        raise UsageError(f"{function.__name__} was not compiled by torch.compile, or has been reset since")
    record.notes.append("Compiled before it was looked at: times, breaks and most graphs are gone.")
    return record


def _function(fn: Any) -> types.FunctionType:
    if isinstance(fn, torch.nn.Module):
        fn = getattr(fn, "_orig_mod", fn).forward
    fn = innermost_fn(getattr(fn, "__func__", fn))
    if not isinstance(fn, types.FunctionType):
        raise UsageError(f"already_compiled takes a function, a method or an nn.Module, not a {type(fn).__name__}")
    return fn


def _codes(code: types.CodeType, namespace: dict[str, Any]) -> Iterator[tuple[types.CodeType, dict[str, Any]]]:
    """The function's code and that of the resume functions that its compiles lead to."""
    seen: set[types.CodeType] = set()
    work = [code]
    while work:
        code = work.pop(0)
        if code in seen:
            continue
        seen.add(code)
        yield code, namespace
        for entry in versions.cache_entries(code):
            found = [namespace.get(name) for name in entry.code.co_names if name.startswith("__resume_at")]
            work += [each.__code__ for each in found if isinstance(each, types.FunctionType)]


def _told(code: types.CodeType, namespace: dict[str, Any], entry: Any) -> Iterator[Happened]:
    """An entry, as the events that its compile would have told."""
    id_ = entry.compile_id

    def event(name: str, about: Any, payload: str = "") -> Happened:
        return Happened(name, about, payload, 0, id_.frame_id, id_.frame_compile_id)

    frame = {"name": code.co_name, "line": code.co_firstlineno, "file": code.co_filename}
    yield event("dynamo_start", {"stack": [frame]})
    yield event("cutaway.bytecode", (code, entry.code))
    yield event("dynamo_cpp_guards_str", {}, str(entry.guard_manager))
    for name in entry.code.co_names:
        if name.startswith("__compiled_fn") and name in namespace:
            for graph in _graphs(namespace[name]):
                if isinstance(graph, torch.fx.GraphModule):
                    text = graph.print_readable(print_output=False, include_stride=True, include_device=True)
                    yield event(_name(graph), {}, text)
                    continue
                yield event("inductor_post_grad_graph", {}, getattr(graph, "inductor_post_grad_graph_str", None) or "")
                yield event("inductor_output_code", {}, getattr(graph, "source_code", None) or "")


def _graphs(compiled: Any) -> list[Any]:
    """Inductor's graphs, or where there are none the captured one, among what a compiled graph holds on to."""
    inductor = versions.part("torch._inductor.output_code", "CompiledFxGraph") or ()
    found: list[Any] = []
    seen, work = {id(compiled)}, [compiled]
    while work and len(seen) < MOST:
        each = work.pop()
        if isinstance(each, (inductor, torch.fx.GraphModule)):
            found.append(each)
            continue
        for held in [*gc.get_referents(each), *(vars(each).values() if isinstance(each, type) else ())]:
            is_way = isinstance(held, (*_WAYS, inductor, torch.fx.GraphModule)) or _is_wrapper(held)
            is_module = isinstance(held, dict) and "__spec__" in held  # its namespace leads to everything
            if id(held) not in seen and is_way and not is_module:
                seen.add(id(held))
                work.append(held)
    made = [each for each in found if isinstance(each, inductor)]
    return sorted(made, key=lambda each: "_backward" in (each.source_code or "")[:40]) or found


def _name(graph: torch.fx.GraphModule) -> str:
    """What PyTorch calls a graph like this one."""
    if not any(isinstance(node.target, torch._ops.OpOverload) for node in graph.graph.nodes):
        return "dynamo_output_graph"
    is_backward = any(n.op == "placeholder" and n.name.startswith("tangents_") for n in graph.graph.nodes)
    return "aot_backward_graph" if is_backward else "aot_forward_graph"


def _is_wrapper(held: Any) -> bool:
    return type(held).__module__.startswith(("torch._functorch", "torch._inductor", "torch._dynamo"))

"""What this PyTorch has of what we watch.  The only place that knows how versions differ: it asks what is there."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator
from typing import Any


def part(module: str, *names: str) -> Any:
    """``module.name.name`` where it exists, else None."""
    try:
        found: Any = importlib.import_module(module)
    except ImportError:
        return None
    for name in names:
        found = getattr(found, name, None)
    return found


def kernel_tellers() -> Iterator[tuple[Any, str]]:
    """Where Inductor calls what notes the graph nodes of a kernel: modules and the name in them."""
    name = "set_kernel_post_grad_provenance_tracing"
    for module in ("torch._inductor.debug", "torch._inductor.codegen.cpp", "torch._inductor.codegen.triton"):
        found = part(module)
        if found is not None and hasattr(found, name):
            yield found, name


def refusal_class() -> Any:
    """The class whose instances say why two loops were not fused."""
    return part("torch._inductor.scheduler", "WhyNoFuse")


def feedback_savers() -> list[Callable[..., Any]] | None:
    """What Inductor calls with the times of the choices that it tried for an operation."""
    cache = part("torch._inductor.select_algorithm", "get_algorithm_selector_cache")
    found: list[Callable[..., Any]] | None = getattr(cache(), "feedback_saver_fns", None) if cache else None
    return found


def cudagraphs_log() -> logging.Logger | None:
    """Where it says why it does without CUDA graphs."""
    found: logging.Logger | None = part("torch._inductor.cudagraph_utils", "cudagraphs_log")
    return found


def pass_observer() -> Any:
    """The context manager around each pass over a graph."""
    return part("torch.fx.passes.graph_transform_observer", "GraphTransformObserver")


def bytecode_hooks() -> Callable[[Any], Any] | None:
    found: Callable[[Any], Any] | None = part("torch._dynamo.convert_frame", "register_bytecode_hook")
    return found


def trace_function() -> Any:
    """What writes an event of the structured log: it calls the function that makes the event's text."""
    return part("torch._logging._internal", "trace_structured")


def loggers() -> tuple[list[str], list[str]]:
    """The names of PyTorch's loggers: those of its parts, and those of its artifacts.  The compiler is imported first,
    which is when it makes them."""
    for module in ("torch._dynamo.convert_frame", "torch._inductor.compile_fx", "torch._inductor.scheduler"):
        part(module)
    registry = part("torch._logging._internal", "log_registry")
    if registry is None:
        return [], []
    return sorted(registry.get_log_qnames()), sorted(registry.get_artifact_log_qnames())


def guard_tree() -> Any:
    """The class of a compile's guards, whose `str` is their tree."""
    return part("torch._dynamo.guards", "GuardManagerWrapper")


def strings() -> dict[int, str]:
    """The file names that stacks in structured events stand for, by number."""
    table = part("torch._logging.structured", "INTERN_TABLE") or {}
    return {number: text for text, number in table.items()}


def running_compile() -> tuple[int | None, int | None, int | None]:
    """Frame, number and compiled-autograd id of the compile that runs in this thread."""
    context = part("torch._guards", "CompileContext")
    found = context.current_compile_id() if context is not None else None
    ids = ("frame_id", "frame_compile_id", "compiled_autograd_id")
    frame, number, autograd = (getattr(found, name, None) for name in ids)
    return frame, number, autograd


def leave_alone(module: str) -> None:
    """Dynamo does not look into the code of this module from here on."""
    add = part("torch._dynamo.trace_rules", "add")
    if add is not None:
        add(module)


def cache_entries(code: Any) -> list[Any]:
    """What Dynamo keeps for a code object."""
    listed = part("torch._C._dynamo.eval_frame", "_debug_get_cache_entry_list")
    return list(listed(code)) if listed is not None else []


def interpreter() -> Any:
    """The class of Dynamo's symbolic interpreter, whose `step` is one instruction."""
    return part("torch._dynamo.symbolic_convert", "InstructionTranslatorBase")


def guards_set() -> Any:
    """The class of the set that guards are added to."""
    return part("torch._guards", "GuardsSet")

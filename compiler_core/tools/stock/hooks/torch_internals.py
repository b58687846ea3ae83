"""Access to the internals of PyTorch that the observer uses.

This is the only file that depends on PyTorch's version: each function looks up what the installed version has, and
returns None (or something empty) where it is missing.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import pickle
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from compiler_core import torch_private
from compiler_core.guards.tree import EntryGuards


def lookup(name: str) -> Any:
    """Returns what a dotted name of PyTorch's stands for; None where the installed version lacks it."""
    try:
        return torch_private.find(name)
    except (AttributeError, ImportError):
        return None


KERNEL_MODULES = ("torch._inductor.debug", "torch._inductor.codegen.cpp", "torch._inductor.codegen.triton")
"""The module that has the function which notes a kernel's graph nodes, and those that call it by their own name."""


def kernel_provenance_function(module: str) -> tuple[Any, str]:
    """Returns one of `KERNEL_MODULES`, and the name of the function there; an empty name without one."""
    name, found = "set_kernel_post_grad_provenance_tracing", lookup(module)
    return found, name if hasattr(found, name) else ""


def fusion_refusal_class() -> Any:
    """Returns the class whose instances are called with the reason why two loops were not fused."""
    return lookup("torch._inductor.scheduler.WhyNoFuse")


def autotune_cache() -> tuple[Any, Any]:
    """Returns the class of Inductor's cache of tuned operations, and its instance; None for what does not exist (yet).

    It calls its `feedback_saver_fns` with the times of the choices it tried.  To make one takes 0.3 s, so that is left
    to Inductor.
    """
    module = lookup("torch._inductor.select_algorithm")
    return getattr(module, "AlgorithmSelectorCache", None), getattr(module, "_ALGORITHM_SELECTOR_CACHE", None)


def cudagraphs_log() -> logging.Logger | None:
    """Returns the logger that states why CUDA graphs are not used."""
    found: logging.Logger | None = lookup("torch._inductor.cudagraph_utils.cudagraphs_log")
    return found


def compiled_graph_class() -> Any:
    """Returns the class of Inductor's compiled graphs, whose `post_compile` decides on CUDA graphs."""
    found = lookup("torch._inductor.output_code.CompiledFxGraph")
    return found if hasattr(found, "post_compile") else None


def cuda_graphs_wanted() -> bool:
    """Whether the mode or the options of the running compile ask for CUDA graphs."""
    return bool(getattr(lookup("torch._inductor.config.triton"), "cudagraphs", False))


def aot_key_fields() -> tuple[Any, str]:
    """Returns the module with the function that describes the fields of a key of the AOTAutograd cache, and its name;
    an empty name without one."""
    name, found = "_get_debug_lines_for_cache_key", lookup("torch._functorch._aot_autograd.autograd_cache")
    return found, name if hasattr(found, name) else ""


def described_aot_key(pickler: Any, details: Any) -> list[str]:
    """Returns a line for each field of a key of the AOTAutograd cache, as PyTorch logs them, and one for each of its
    options, which the key has as one pickle."""
    options: dict[str, Any] = pickle.loads(details.autograd_config)
    lines = [line for line in pickler.debug_lines(details) if "] autograd_config: " not in line]
    lines += [f"[{pickler.get_hash(value)}] autograd_config[{name}]: {value}" for name, value in options.items()]
    return lines


def output_graph() -> Any:
    """Returns the class whose `call_user_compiler` calls the backend, its `compiler_fn`."""
    found = lookup("torch._dynamo.output_graph.OutputGraph")
    return found if hasattr(found, "call_user_compiler") else None


def inner_function(function: Any) -> Any:
    """Returns what a function calls that `torch.compiler.disable` made; any other function as it is."""
    return getattr(function, "_torchdynamo_orig_callable", function)


def registered_backends() -> set[str]:
    """Returns the names of PyTorch's backends, and of those of installed packages."""
    names = lookup("torch._dynamo.backends.registry.list_backends")
    return set(names(None)) if names else set()


def pass_observer() -> Any:
    """Returns the context manager class around each pass over a graph."""
    return lookup("torch.fx.passes.graph_transform_observer.GraphTransformObserver")


def bytecode_hook_registration() -> Callable[[Any], Any] | None:
    """Returns the function that registers a hook which gets each frame's bytecode before and after Dynamo."""
    found: Callable[[Any], Any] | None = lookup("torch._dynamo.convert_frame.register_bytecode_hook")
    return found


def trace_function() -> Any:
    """Returns the function that logs an event; it calls the function that makes the event's text."""
    return lookup("torch._logging._internal.trace_structured")


def loggers() -> tuple[list[str], list[str]]:
    """Returns the names of PyTorch's loggers: those of its components, and those of its artifacts.

    The compiler creates them when it is imported, so this imports it.
    """
    for module in ("torch._dynamo.convert_frame", "torch._inductor.compile_fx", "torch._inductor.scheduler"):
        lookup(module)
    registry = lookup("torch._logging._internal.log_registry")
    if registry is None:
        return [], []
    return sorted(registry.get_log_qnames()), sorted(registry.get_artifact_log_qnames())


def guard_tree() -> Any:
    """Returns the class of a compile's guards, whose `str` is the guard tree."""
    return lookup("torch._dynamo.guards.GuardManagerWrapper")


def guards_module() -> Any:
    """Returns the module that calls its `profile_guard_manager` with the guard tree of a compile and the values of the
    call, once the guards hold; None if it does not."""
    found = lookup("torch._dynamo.guards")
    return found if hasattr(found, "profile_guard_manager") else None


def interned_strings() -> dict[int, str]:
    """Returns the file names that stacks in structured events refer to, by number."""
    table = lookup("torch._logging.structured.INTERN_TABLE") or {}
    return {number: text for text, number in table.items()}


def running_compile() -> tuple[int | None, int | None, int | None]:
    """Returns frame id, frame compile id and compiled autograd id of the compile that runs in this thread."""
    context = lookup("torch._guards.CompileContext")
    found = context.current_compile_id() if context is not None else None
    ids = ("frame_id", "frame_compile_id", "compiled_autograd_id")
    frame, number, autograd = (getattr(found, name, None) for name in ids)
    return frame, number, autograd


def skip_module(module: str) -> None:
    """Makes Dynamo skip the code of this module from now on."""
    add = lookup("torch._dynamo.trace_rules.add")
    if add is not None:
        add(module)


def cache_entries(code: Any) -> list[Any]:
    """Returns stock's cache entries for a code object, without those that were freed with a guarded object."""
    listed = lookup("torch._C._dynamo.eval_frame._debug_get_cache_entry_list")
    entries = listed(code) if listed is not None else []
    return [e for e in entries if e.code is not None and not isinstance(e.guard_manager, EntryGuards)]


def interpreter() -> Any:
    """Returns the class of Dynamo's symbolic interpreter, whose `step` runs one instruction."""
    return lookup("torch._dynamo.symbolic_convert.InstructionTranslatorBase")


def guards_set() -> Any:
    """Returns the class of the set that guards are added to."""
    return lookup("torch._guards.GuardsSet")


def frame_callback() -> Any:
    """Returns the class of the object that is called for each frame that Dynamo may compile."""
    return lookup("torch._dynamo.convert_frame.CatchErrorsWrapper")


def is_called_by_compiled_function(caller: types.FrameType | None) -> bool:
    """Whether this frame is that of the function that `torch.compile` returned, or of a module's call in it."""
    while caller is not None and caller.f_code.co_filename == _module_file("torch.nn.modules.module"):
        caller = caller.f_back
    return caller is not None and is_of_compiled_function(caller.f_code)


def is_of_compiled_function(code: types.CodeType) -> bool:
    """Whether this code is that of a function that `torch.compile` returned."""
    return code.co_name == "compile_wrapper" and code.co_filename == _module_file(_EVAL_FRAME)


def expect_emptied_namespace(namespace: dict[str, Any]) -> None:
    """Lets Dynamo end its code after a namespace has been emptied, as IPython does at its end.

    It removes the globals that it has added for the code, and would print that they are not there.
    """
    manager = lookup("torch._dynamo.utils.CleanupManager")
    for hooks in manager.instance.values.values() if manager is not None else ():
        for i, hook in enumerate(hooks):
            if getattr(hook, "scope", None) is namespace:
                hooks[i] = functools.partial(namespace.pop, hook.name, None)


def wrapped_name(frame: types.FrameType) -> str:
    """Returns the name of the function, or the class of the module, of PyTorch's around whose call Dynamo has put this
    frame; empty for any other frame."""
    if frame.f_code.co_qualname != "wrap_inline.<locals>.inner":
        return ""
    called = frame.f_locals["fn"]
    owner = getattr(called, "__self__", called)
    if isinstance(called, (types.FunctionType, types.BuiltinFunctionType)) or not isinstance(owner, torch.nn.Module):
        return str(getattr(called, "__name__", type(called).__name__))
    return type(owner).__name__


_EVAL_FRAME = "torch._dynamo.eval_frame"


def _module_file(name: str) -> str | None:
    return getattr(importlib.import_module(name), "__file__", None)


def hides_errors() -> bool:
    """Whether Dynamo runs a function whose compile raises an error as plain Python."""
    return bool(getattr(lookup("torch._dynamo.config"), "suppress_errors", False))


@contextmanager
def stances() -> Iterator[set[str]]:
    """Yields the stance of the compiler that is set, to which those are added that are set inside the context."""
    owner, eval_frame = lookup("torch._dynamo.decorators"), lookup("torch._dynamo.eval_frame")
    found = {getattr(getattr(eval_frame, "_stance", None), "stance", "default")}
    set_stance = getattr(owner, "_set_stance", None)
    if set_stance is None:
        yield found
        return

    @functools.wraps(set_stance)
    def observed(stance: Any) -> Any:
        found.add(stance.stance)
        return set_stance(stance)

    owner._set_stance = observed
    try:
        yield found
    finally:
        owner._set_stance = set_stance


def reason_of_skip(result: Any, code: types.CodeType) -> str:
    """Returns why Dynamo captures nothing of a function, given what its callback returned."""
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return "a generator or coroutine"
    reason = getattr(result, "skip_reason", None)
    return str(reason or skip_rule(code) or "PyTorch does not say why")


def inlining_interpreter() -> Any:
    """Returns the class whose `check_inlineable` decides whether a function is inlined."""
    found = lookup("torch._dynamo.symbolic_convert.InliningInstructionTranslator")
    return found if hasattr(found, "check_inlineable") else None


def skip_rule(code: types.CodeType) -> str:
    """Returns the rule by which Dynamo skips frames of this code; an empty string if none does."""
    check = lookup("torch._dynamo.trace_rules.check_verbose")
    found = check(code) if check is not None else None
    return str(found.reason) if found is not None and found.skipped else ""


def was_asked_about(code: types.CodeType) -> bool:
    """Whether Dynamo ever was to decide on frames of this code."""
    codes = lookup("torch._dynamo.convert_frame.input_codes")
    return codes is not None and code in codes


def was_compiled_to(code: types.CodeType) -> bool:
    """Whether Dynamo made this code."""
    codes = lookup("torch._dynamo.convert_frame.output_codes")
    return codes is not None and code in codes


def output_code_folder() -> str:
    """Returns the folder of the files that Inductor generates."""
    folder = lookup("torch._inductor.runtime.cache_dir_utils.cache_dir")
    return str(folder()) if folder is not None else "<unknown>"

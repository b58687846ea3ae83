"""`compile` and the functions that mark code and tensors for it; the other modules of `api` follow from here.

compiled     what `compile` returns, and the records that are open
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from compiler_core.api.compiled import (
    CompiledModule,
    caller_of,
    compile_function,
    is_compiled,
    record_of,
    reset,
    with_code,
)
from compiler_core.backends import registry as backends
from compiler_core.codegen.source import check_target
from compiler_core.config import CodeEdit, GraphPass, Options
from compiler_core.errors import UsageError
from compiler_core.hook import frame_hook
from compiler_core.hook.skip_rules import disable_capture
from compiler_core.records import Guard
from compiler_core.torch_private import (
    innermost_fn,
    skip_code,
    stock_graph_break,
    stock_mark_dynamic,
    stock_mark_static,
)


def compile(
    fn: Any = None,
    *,
    backend: str | Callable[..., Any] | None = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    target: str | None = None,
    strict: bool = False,
    recompile_limit: int = 8,
    memory_budget: float = 1.0,
    steps: bool = False,
    guard_filter: Callable[[list[Guard]], Sequence[bool]] | None = None,
    memory_curve: bool = False,
    mode: str = "default",
    keep_apart: Sequence[tuple[str, str]] = (),
    force_fuse: Sequence[tuple[str, str]] = (),
    tune: bool = False,
    passes: Sequence[GraphPass] = (),
    edits: Sequence[CodeEdit] = (),
    block_sizes: Mapping[str, Mapping[str, int]] | None = None,
    capture_backward: bool = False,
) -> Any:
    """Compiles a function, method, callable object or ``nn.Module``; also a decorator, with or without arguments.

    The result behaves as `fn` does.  It is compiled at its first call, and again for calls whose guards fail.

    Args:
        fn: what to compile; None returns a decorator.  Of a class of modules, the ``forward`` is replaced, in place.
        backend: a name (see `compiler_core.backends.registry.backend_names()`) or a callable
            ``(GraphModule, example_inputs) -> callable``.  None generates C++ kernels for tensors on the CPU and Triton
            kernels for tensors on GPUs, also within one graph.
        fullgraph: raise `FullGraphError` at the first graph break.
        dynamic: when sizes and numbers that change from call to call become symbolic, so that one compile holds for
            many values: from their second value on (None), at once (True), or never (False).  See `mark_dynamic`.
        target: also record the kernels' machine code for this device (such as ``sm_90``), which need not be present.
        strict: raise a failure of the compiler as `StrictError`.  Otherwise a `CompileWarning` reports it and the code
            runs uncompiled (``docs/failures.md``).
        recompile_limit: after this many compiles of one function, calls that none of them covers run as plain Python.
        memory_budget: the share of the saved bytes that may be kept for the backward, from 0 to 1.
        memory_curve: record the results of other memory budgets (``Partition.curve``).
        steps: record every step of the symbolic interpreter (`Compile.replay`).
        guard_filter: called with the guards of each compile, returns for each whether it is kept.  A guard that is not
            kept is never checked: you must know that it always holds.
        mode: ``default``, or ``reduce-overhead``, which replays the launches of a graph with CUDA graphs if possible
            (`Compile.cuda_graphs` has the reasons if not).
        keep_apart: pairs of names of nodes in the forward or backward graph that must not be fused into one kernel.
        force_fuse: such pairs that must be fused if possible.
        tune: time several block sizes of each Triton kernel on the GPU and use the fastest, which is then remembered on
            disk (`Compile.tunings`).
        passes: your own graph passes (`GraphPass`), in the order in which they run.  The record has the graph after
            each that changed it.  What is compiled with passes is not kept on disk.
        edits: kernels, loops and wrappers written by hand, in place of generated ones (`CodeEdit`; see `edit`).
        block_sizes: block sizes of Triton kernels by name, in place of those that the compiler would choose:
            ``{"forward_0": {"i": 256, "num_warps": 8}}``; also ``j`` (inner indices) and ``stages``.
        capture_backward: keep ``loss.backward()`` and ``torch.autograd.grad`` in the graph of the function that calls
            them, with the accumulation into ``.grad``, and the steps of optimizers.  Such a graph has no joint graph
            and no partition: it is one forward graph.  Still a graph break: a loss with a history from before the
            call, leaves with hooks, sparse gradients, ``create_graph=True``, other ranks, and optimizers that read
            values of tensors (RAdam, ASGD, Adafactor, LBFGS, gradient scalers) or have a kernel (``fused=True``).

    Returns:
        A function, method, partial or module like `fn`; a decorator if `fn` is None.

    Raises:
        UsageError: an argument is wrong, or `fn` cannot be compiled, such as a class that is no nn.Module.

    A call of the compiled function raises what a callable backend raises, as the cause of a `BackendError`.

    Example::

        @compiler_core.compile
        def f(x):
            return x.sin() + x.cos()

        f(torch.randn(8))
    """
    options = Options(
        backend, fullgraph, dynamic, target, strict, recompile_limit, memory_budget, steps, guard_filter, memory_curve,
        mode, tuple(keep_apart), tuple(force_fuse), tune, tuple(passes), tuple(edits),
        tuple((kernel, *each) for kernel, sizes in (block_sizes or {}).items() for each in sizes.items()),
        capture_backward,
    )  # fmt: skip
    backends.check_name(backend)
    if target is not None:
        check_target(target)
    return functools.partial(_compiled, options=options) if fn is None else _compiled(fn, options)


def _compiled(fn: Any, options: Options) -> Any:
    """Compiles `fn` to an object of the same kind."""
    fn = _uncompiled(fn)
    if isinstance(fn, torch.nn.Module):
        return CompiledModule(fn, options)
    if isinstance(fn, torch.jit.ScriptFunction):
        return compile_function(caller_of(fn), options)
    if isinstance(fn, types.MethodType) and isinstance(fn.__func__, types.FunctionType):
        return types.MethodType(compile_function(fn.__func__, options), fn.__self__)
    if isinstance(fn, types.FunctionType):
        return compile_function(fn, options)
    if isinstance(fn, (staticmethod, classmethod)):
        return type(fn)(_compiled(fn.__func__, options))
    if isinstance(fn, functools.partial):
        return functools.partial(_compiled(fn.func, options), *fn.args, **fn.keywords)
    if isinstance(fn, type) and issubclass(fn, torch.nn.Module):
        fn.forward = _compiled(fn.forward, options)
        return fn
    if not isinstance(fn, type) and isinstance(getattr(fn, "__call__", None), types.MethodType):  # noqa: B004
        return _compiled(fn.__call__, options)
    if isinstance(fn, (types.BuiltinFunctionType, types.BuiltinMethodType, types.MethodDescriptorType)):
        caller = caller_of(fn)
        functools.update_wrapper(caller, fn)
        return compile_function(caller, options)
    raise UsageError(_why_not_compiled(fn))


def _uncompiled(fn: Any) -> Any:
    """Returns the original of a compiled function or module, ours or stock's; anything else as it is."""
    if isinstance(fn, CompiledModule):
        return fn._orig_mod
    if isinstance(fn, types.MethodType) and is_compiled(fn.__func__):
        return types.MethodType(fn.__func__.__wrapped__, fn.__self__)  # type: ignore[attr-defined]
    if is_compiled(fn):
        return fn.__wrapped__
    if isinstance(fn, torch.nn.Module):  # its own __getattr__ is not asked
        modules = vars(fn).get("_modules")  # no dict in a scripted module
        return modules.get("_orig_mod", fn) if isinstance(modules, dict) else fn
    if not isinstance(fn, (types.FunctionType, types.MethodType)) or getattr(fn, "_torchdynamo_disable", False):
        return fn
    return innermost_fn(fn)


def _why_not_compiled(fn: Any) -> str:
    if isinstance(fn, type):
        return f"cannot compile the class {fn.__name__}: compile its instances, or decorate its methods"
    return f"cannot compile a {type(fn).__name__}; give a function, a method, a callable object or an nn.Module"


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True) -> Any:
    """Returns a function that runs as plain Python when compiled code calls it; also a decorator.

    Args:
        fn: the function; None returns a decorator.
        recursive: also run the functions that it calls as plain Python.  With False these are compiled, and `fn` must
            be a Python function.

    Raises:
        UsageError: ``recursive=False`` and `fn` is not a Python function.

    Example::

        @compiler_core.disable
        def log(x):
            print(x)
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive)
    if recursive:
        return _without_hook(fn)
    if not isinstance(fn, types.FunctionType):
        raise UsageError(f"disable(recursive=False) takes a Python function, not a {type(fn).__name__}")
    plain: Any = with_code(fn, fn.__code__.replace())
    functools.update_wrapper(plain, fn)
    disable_capture(plain.__code__)
    plain._cutaway_disabled = True
    return plain


def _without_hook(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with frame_hook.hook_off():
            return fn(*args, **kwargs)

    plain._cutaway_disabled = True  # type: ignore[attr-defined]
    return plain


def graph_break(msg: str = "") -> None:
    """Breaks the graph at this call, and does nothing in plain Python.

    Stock `torch.compile` breaks the graph here, too.

    Args:
        msg: a text for the explanation of the graph break.
    """
    if torch.compiler.is_dynamo_compiling():
        stock_graph_break(msg=msg)


graph_break._cutaway_graph_break = True  # type: ignore[attr-defined]
skip_code(graph_break.__code__)  # stock breaks its caller's graph, and does not compile it


def mark_dynamic(tensor: torch.Tensor, dim: int, *, min: int | None = None, max: int | None = None) -> None:
    """Makes the size of a dimension symbolic from the first compile on.

    The mark is ``torch._dynamo.mark_dynamic``, so it holds for stock `torch.compile` as well.  If the program
    specialises the size to a number, compiling raises UsageError with the condition that did.

    Args:
        tensor: an argument of a compiled function.
        dim: the dimension.
        min: the smallest size for which the compiled code must be valid.
        max: the greatest size for which it must be valid.

    Example::

        compiler_core.mark_dynamic(x, 0, min=1, max=512)
        compiled(x)
    """
    stock_mark_dynamic(tensor, dim, min=min, max=max)


def mark_static(tensor: torch.Tensor, dim: int | None = None) -> None:
    """Makes the size of a dimension, or of all, never symbolic, so that each size gets its own compile.

    Args:
        tensor: an argument of a compiled function.
        dim: the dimension; None for all.

    Example::

        compiler_core.mark_static(x, 1)
        compiled(x)
    """
    stock_mark_static(tensor, dim)


__all__ = [
    "compile", "disable", "graph_break", "mark_dynamic", "mark_static", "record_of", "reset",
]  # fmt: skip

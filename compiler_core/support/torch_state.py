"""PyTorch's global state: what captured graphs change (grad mode, autocast, the kernels of attention), and the modes
that intercept operations."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch.fx.node import has_side_effect
from torch.nn.attention import SDPBackend
from torch.overrides import TorchFunctionMode

from compiler_core.support.eager_warnings import unsilence_warnings
from compiler_core.support.garbage import allowed_collections
from compiler_core.support.interrupts import immediate_signals
from compiler_core.support.tensors import tensors_in
from compiler_core.support.transform_levels import LEVEL_FUNCTIONS, level_restorer
from compiler_core.torch_private import (
    DeviceContext,
    EnableTorchFunction,
    attention_kernels,
    ensureCUDADeviceGuardSet,
    get_function_stack_at,
    get_tracing_state,
    is_fx_symbolic_tracing,
    is_torch_function_enabled,
    len_torch_dispatch_stack,
    len_torch_function_stack,
    saved_tensors_hooks_set_tracing,
    set_grad_enabled,
    use_attention_kernels,
)


@dataclass(frozen=True)
class StateChange:
    """A change of global state: the function that makes it, the one that reverts it, and their arguments."""

    do: Callable[..., Any]
    args: tuple[Any, ...]
    undo: Callable[..., Any]
    undo_args: tuple[Any, ...]

    def undoes(self, other: StateChange) -> bool:
        """Returns whether this change reverts `other`."""
        return (self.do, self.args, self.undo, self.undo_args) == (other.undo, other.undo_args, other.do, other.args)


def has_ranks() -> bool:
    """Whether this process may communicate with other ranks."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def grad_mode_change(mode: bool) -> StateChange:
    """Returns the change to this grad mode."""
    set_mode = set_grad_enabled
    return StateChange(set_mode, (mode,), set_mode, (torch.is_grad_enabled(),))


Autocast = tuple[str, bool, torch.dtype, bool]
"""Device type, whether autocast is enabled, its dtype, and whether casts are cached."""


def autocast_state(device: str) -> Autocast:
    """Returns the autocast state of a device type."""
    enabled, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    return device, enabled, dtype, torch.is_autocast_cache_enabled()


@has_side_effect
def enter_autocast(device: str, enabled: bool, dtype: torch.dtype, cache: bool) -> None:
    """Does what entering a ``torch.autocast`` block does."""
    torch.autocast_increment_nesting()
    _set_autocast(device, enabled, dtype, cache)


@has_side_effect
def leave_autocast(device: str, enabled: bool, dtype: torch.dtype, cache: bool) -> None:
    """Does what leaving a ``torch.autocast`` block does.  The arguments are the state before the block."""
    if torch.autocast_decrement_nesting() == 0:
        torch.clear_autocast_cache()
    _set_autocast(device, enabled, dtype, cache)


def _set_autocast(device: str, enabled: bool, dtype: torch.dtype, cache: bool) -> None:
    torch.set_autocast_enabled(device, enabled)
    torch.set_autocast_dtype(device, dtype)
    torch.set_autocast_cache_enabled(cache)


def attention_kernel_names() -> tuple[str, ...]:
    """Returns the names of the kernels that ``scaled_dot_product_attention`` may use now."""
    return tuple(sorted(kernel.name for kernel in attention_kernels()))


@has_side_effect
def set_attention_kernels(*names: str) -> None:
    """Lets ``scaled_dot_product_attention`` use these kernels only."""
    use_attention_kernels([SDPBackend.__members__[name] for name in names])


class AttentionKernels:
    """``torch.nn.attention.sdpa_kernel(...)``, which compiled code leaves."""

    def __init__(self, names: Sequence[str], before: Sequence[str] = ()) -> None:
        self.names, self.before = tuple(names), tuple(before)

    def __enter__(self) -> dict[str, Any]:
        self.before = attention_kernel_names()
        set_attention_kernels(*self.names)
        return {}

    def __exit__(self, *_: object) -> None:
        set_attention_kernels(*self.before)


STATE_CHANGING_FUNCTIONS = (
    frozenset({set_grad_enabled, enter_autocast, leave_autocast, set_attention_kernels}) | LEVEL_FUNCTIONS
)
"""The targets of graph nodes that change global state."""


def state_restorer(graph: fx.Graph) -> Callable[[], Callable[[], None]] | None:
    """Returns a function to call before each run of `graph`, or None if the graph changes no state.

    That function returns another one, which restores the state if the run fails before its end.
    """
    if not any(n.target in STATE_CHANGING_FUNCTIONS for n in graph.nodes):
        return None
    devices = sorted({str(n.args[0]) for n in graph.nodes if n.target in (enter_autocast, leave_autocast)})
    has_levels = any(n.target in LEVEL_FUNCTIONS for n in graph.nodes)
    has_kernels = any(n.target is set_attention_kernels for n in graph.nodes)

    def before() -> Callable[[], None]:
        grad_enabled = torch.is_grad_enabled()
        level, states = (_autocast_nesting() if devices else 0), [autocast_state(d) for d in devices]
        leave_levels = level_restorer() if has_levels else None
        kernels = attention_kernel_names() if has_kernels else None

        def restore() -> None:
            if leave_levels is not None:
                leave_levels()
            if kernels is not None:
                set_attention_kernels(*kernels)
            set_grad_enabled(grad_enabled)
            for state in states:
                _set_autocast(*state)
            while devices and _autocast_nesting() > level:
                torch.autocast_decrement_nesting()

        return restore

    return before


def _autocast_nesting() -> int:
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def function_modes() -> list[TorchFunctionMode]:
    """Returns the active torch function modes, outermost first."""
    return [get_function_stack_at(i) for i in range(len_torch_function_stack())]


def default_devices() -> tuple[torch.device | None, ...]:
    """Returns the device of each active ``with torch.device(...)`` and `torch.set_default_device`, and None for each
    other torch function mode."""
    return tuple(m.device if type(m) is DeviceContext else None for m in function_modes())


@contextlib.contextmanager
def default_device_and_dtype(devices: Iterable[torch.device], dtype: torch.dtype) -> Iterator[None]:
    """Sets the default device, the last of `devices`, and the default dtype of new tensors for the block."""
    before = torch.get_default_dtype()
    with contextlib.ExitStack() as stack:
        for device in devices:
            stack.enter_context(device)
        torch.set_default_dtype(dtype)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


def index_of_current_gpu(graph: fx.Graph) -> int | None:
    """Returns the index of the current GPU if `graph` makes tensors on it because it is the current one; else None.
    Also None on a machine with fewer than two GPUs."""
    if torch.cuda.device_count() < 2:
        return None
    creating_nodes = (node for node in graph.nodes if node.op.startswith("call") and _uses_current_device(node))
    return next((value.device.index for node in creating_nodes for value in _gpu_tensors(node)), None)


def _uses_current_device(node: fx.Node) -> bool:
    """Returns whether no argument determines the device index: no tensor on a GPU and no device with an index."""
    given = [a for a in (*node.args, *node.kwargs.values()) if not isinstance(a, fx.Node)]
    if any(isinstance(a, torch.device) and a.index is not None for a in given):
        return False
    if any(isinstance(a, str) and ":" in a for a in given) or (node.target == "cuda" and any(map(_is_int, given))):
        return False
    return not any(_gpu_tensors(n) for n in node.all_input_nodes)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _gpu_tensors(node: fx.Node) -> list[torch.Tensor]:
    return [tensor for tensor in tensors_in(node.meta.get("val")) if tensor.is_cuda]


def is_observed_or_traced() -> bool:
    """Returns whether a mode or tracer intercepts each operation of the program.  Compiled code would show it other
    operations."""
    if not is_torch_function_enabled():  # capture takes for granted that __torch_function__ is called
        return True
    return is_dispatched_or_traced() or None in default_devices() or is_fx_symbolic_tracing()


def is_dispatched_or_traced() -> bool:
    """Returns whether a torch dispatch mode or ``torch.jit.trace`` is active."""
    return bool(len_torch_dispatch_stack()) or get_tracing_state() is not None


def set_device_guard() -> None:
    """Replaces CUDA's device guard where PyTorch is built for CUDA and there is no GPU, if this is the main thread.

    The first fake mode of a process does so, ours or stock's.  Before 2.13, PyTorch frees the replacement with the
    thread that made it, and the next fake mode ends the process; the main thread is the last to end.
    """
    # device_count() asks the driver's monitor, so that children of a fork can still use a GPU
    if threading.current_thread() is threading.main_thread() and torch.version.cuda and not torch.cuda.device_count():
        ensureCUDADeviceGuardSet()


@contextmanager
def as_in_program(torch_functions: bool) -> Iterator[None]:
    """In the block, warnings, signals, garbage collections and overrides of functions of PyTorch are as in the program.

    Args:
        torch_functions: whether ``__torch_function__`` of arguments is called there.
    """
    overrides = EnableTorchFunction() if torch_functions else contextlib.nullcontext()
    with unsilence_warnings(), overrides, allowed_collections(), immediate_signals():
        yield


@contextmanager
def for_tracing(restore: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Restores the user's grad mode at the end, and calls `restore`.

    The user's hooks on saved tensors are off meanwhile, so that they do not run for tensors saved during tracing.
    """
    grad_enabled = torch.is_grad_enabled()
    hooks_were_off = saved_tensors_hooks_set_tracing(True)
    try:
        # of inference mode, only that gradients are off matters for tracing; the run itself is in inference mode
        records = grad_enabled and not torch.is_inference_mode_enabled()
        with torch.inference_mode(False), torch.set_grad_enabled(records):
            yield
    finally:
        saved_tensors_hooks_set_tracing(hooks_were_off)
        restore()
        set_grad_enabled(grad_enabled)


@contextmanager
def kept_random_state() -> Iterator[None]:
    """Restores the random state of Python and of the CPU at the end, since what the user adds to the compiler, such as
    a backend, may draw numbers, which would not be drawn without it.

    The compiler itself draws none of them.  It does not ask for the state: a child that was forked while another thread
    drew a number would wait for ever for PyTorch's lock.
    """
    states = random.getstate(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        torch.set_rng_state(states[1])

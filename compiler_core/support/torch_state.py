"""PyTorch's ambient state: what captured graphs change of it (grad mode and autocast), and modes that see
each operation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch.fx.node import has_side_effect
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

_tracing: Any = torch.fx._symbolic_trace
is_fx_symbolic_tracing: Callable[[], bool] = getattr(_tracing, "is_fx_symbolic_tracing", _tracing.is_fx_tracing)


@dataclass(frozen=True)
class Change:
    """One change of ambient state, and what takes it back."""

    do: Callable[..., Any]
    args: tuple[Any, ...]
    undo: Callable[..., Any]
    undo_args: tuple[Any, ...]

    def takes_back(self, other: Change) -> bool:
        return (self.do, self.args, self.undo, self.undo_args) == (other.undo, other.undo_args, other.do, other.args)


def grad_mode(mode: bool) -> Change:
    set_mode = torch._C._set_grad_enabled
    return Change(set_mode, (mode,), set_mode, (torch.is_grad_enabled(),))


Autocast = tuple[str, bool, torch.dtype, bool]
"""Device type, whether it is on, the dtype, whether casts are cached."""


def autocast_of(device: str) -> Autocast:
    enabled, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    return device, enabled, dtype, torch.is_autocast_cache_enabled()


@has_side_effect
def enter_autocast(device: str, enabled: bool, dtype: torch.dtype, cache: bool) -> None:
    """What entering a ``torch.autocast`` does."""
    torch.autocast_increment_nesting()
    _set_autocast(device, enabled, dtype, cache)


@has_side_effect
def leave_autocast(device: str, enabled: bool, dtype: torch.dtype, cache: bool) -> None:
    """What leaving one does; the arguments are the state before it."""
    if torch.autocast_decrement_nesting() == 0:
        torch.clear_autocast_cache()
    _set_autocast(device, enabled, dtype, cache)


def _set_autocast(device: str, enabled: bool, dtype: torch.dtype, cache: bool) -> None:
    torch.set_autocast_enabled(device, enabled)
    torch.set_autocast_dtype(device, dtype)
    torch.set_autocast_cache_enabled(cache)


CHANGES = frozenset({torch._C._set_grad_enabled, enter_autocast, leave_autocast})


def restorer(graph: fx.Graph) -> Callable[[], Callable[[], None]] | None:
    """To be called before a run of `graph`; what that gives restores the state if the run fails half-way.  None for
    graphs that change none."""
    if not any(n.target in CHANGES for n in graph.nodes):
        return None
    devices = sorted({str(n.args[0]) for n in graph.nodes if n.target in (enter_autocast, leave_autocast)})

    def before() -> Callable[[], None]:
        grad_enabled = torch.is_grad_enabled()
        level, states = (_nesting() if devices else 0), [autocast_of(d) for d in devices]

        def restore() -> None:
            torch._C._set_grad_enabled(grad_enabled)
            for state in states:
                _set_autocast(*state)
            while devices and _nesting() > level:
                torch.autocast_decrement_nesting()

        return restore

    return before


def _nesting() -> int:
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def function_modes() -> list[TorchFunctionMode]:
    """The torch function modes at work, outermost first."""
    return [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]


def default_devices() -> tuple[torch.device | None, ...]:
    """The devices of ``with torch.device(...)`` and of `torch.set_default_device`; None for any other mode."""
    return tuple(m.device if type(m) is DeviceContext else None for m in function_modes())


@contextlib.contextmanager
def defaults(devices: Iterable[torch.device], dtype: torch.dtype) -> Iterator[None]:
    """Tensors are made on the last of `devices` and of `dtype` where nothing else is said."""
    before = torch.get_default_dtype()
    with contextlib.ExitStack() as stack:
        for device in devices:
            stack.enter_context(device)
        torch.set_default_dtype(dtype)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


def gpu_by_default(graph: fx.Graph) -> int | None:
    """The number of the GPU on which `graph` makes tensors because it is the current one; None where none is made so,
    or there is no other."""
    if torch.cuda.device_count() < 2:
        return None
    made = (node for node in graph.nodes if node.op.startswith("call") and _is_told_no_number(node))
    return next((value.device.index for node in made for value in _gpu_tensors(node)), None)


def _is_told_no_number(node: fx.Node) -> bool:
    """Whether neither a tensor on a GPU nor a device's number is among the arguments."""
    given = [a for a in (*node.args, *node.kwargs.values()) if not isinstance(a, fx.Node)]
    if any(isinstance(a, torch.device) and a.index is not None for a in given):
        return False
    if any(isinstance(a, str) and ":" in a for a in given) or (node.target == "cuda" and any(map(_is_int, given))):
        return False
    return not any(_gpu_tensors(n) for n in node.all_input_nodes)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _gpu_tensors(node: fx.Node) -> list[torch.Tensor]:
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else (value,)
    return [v for v in values if isinstance(v, torch.Tensor) and v.is_cuda]


def is_watched() -> bool:
    """Whether a mode or a tracer sees each operation as the program makes it, which compiled code makes differently."""
    return is_dispatched_or_traced() or None in default_devices() or is_fx_symbolic_tracing()


def is_dispatched_or_traced() -> bool:
    """Whether a torch dispatch mode or ``torch.jit.trace`` is at work."""
    return bool(torch._C._len_torch_dispatch_stack()) or torch._C._get_tracing_state() is not None

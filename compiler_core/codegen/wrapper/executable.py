"""A program's function as plain data (`Executable`), how it is loaded, and what it calls at run time.

An `Executable` contains everything needed to run: the source of the wrapper and of the kernels.  It can be written to
disk and loaded in another process; objects that source cannot contain (the graph's tensors) are passed separately.

Large CPU tensors are allocated in huge pages, if Linux has them.  The C library maps new memory for each large block,
and Linux provides its pages at the first write.  With pages of 4 KiB that takes several times as long as a kernel that
only streams through the memory.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import operator
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from compiler_core.codegen.build.background import BackgroundBuild
from compiler_core.codegen.cpp import launch as cpp_module
from compiler_core.codegen.source import Launcher
from compiler_core.codegen.wrapper import mersenne
from compiler_core.loops import ir
from compiler_core.loops.ir import philox
from compiler_core.support import opaque_ops
from compiler_core.support.recorded_calls import recorded
from compiler_core.torch_private import (
    AutoDispatchBelowADInplaceOrView,
    cuda_getDevice,
    empty_strided_cpu,
    empty_strided_cuda,
    reinterpret_tensor,
)

LARGE_BYTES = 4 << 20
"""Blocks of this size contain a whole huge page (2 MiB) at any alignment."""
_HUGE_PAGES = getattr(mmap, "MADV_HUGEPAGE", None)
_madvise: Any = getattr(ctypes.CDLL(None), "madvise", None)
if _madvise is not None:
    _madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _empty(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype)


empty: Any = empty_strided_cpu or _empty
"""`torch.empty_strided` on the CPU; a microsecond faster if this version of PyTorch has `_empty_strided_cpu`."""


def empty_large(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Like `empty`, for tensors of at least `LARGE_BYTES`: asks Linux for huge pages."""
    tensor: torch.Tensor = empty(size, stride, dtype)
    if _HUGE_PAGES is not None and _madvise is not None:
        storage = tensor.untyped_storage()
        start = -(-storage.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (storage.data_ptr() + storage.nbytes()) // mmap.PAGESIZE * mmap.PAGESIZE
        if end > start:
            _madvise(start, end - start, _HUGE_PAGES)  # only a hint, so failure is ignored
    return tensor


Runner = Callable[[list[Any]], list[Any]]


class IndexOutOfRange(IndexError):
    """An index is out of range in a kernel.  The graph is then run by PyTorch, which raises its own error."""


class CannotDraw(Exception):
    """Kernels cannot draw the graph's random numbers as eager mode would.  The graph is then run by PyTorch."""


def restrided(tensor: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    """Returns a copy of `tensor` with the strides that kernels expect, made without autograd recording it."""
    with AutoDispatchBelowADInplaceOrView():
        return torch.empty_strided(size, stride, dtype=tensor.dtype, device=tensor.device).copy_(tensor.expand(size))


def cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Returns `tensor` with the dtype that kernels expect, made without autograd recording it."""
    with AutoDispatchBelowADInplaceOrView():
        return tensor.to(dtype)


def _window(tensor: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> torch.Tensor:
    return tensor.as_strided(size, stride, tensor.storage_offset() + offset)


def _empty_cuda(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda")


NAMES: dict[str, Any] = {
    "torch": torch,
    "operator": operator,
    "math": math,
    "cast": cast,
    "restrided": restrided,
    "IndexOutOfRange": IndexOutOfRange,
    "CannotDraw": CannotDraw,
    "draw": philox.draw,
    "draw_bernoulli": mersenne.bernoulli,
    **opaque_ops.NAMES,
    "recorded": recorded,
    "is_recording": torch.cuda.is_current_stream_capturing,
    "empty": empty,
    "empty_large": empty_large,
    # private functions of PyTorch that save a microsecond each, if this version has them
    "window": reinterpret_tensor or _window,
    "empty_cuda": empty_strided_cuda or _empty_cuda,  # on the current device
    "on_device": torch.cuda.device,
    "current_device": cuda_getDevice,
    **{short: dtype for dtype, short in ir.SHORT.items() if short != "bool"},
}
"""The globals of a wrapper's source besides the kernels, operators and constants of its program."""


@dataclass(frozen=True)
class InlineBody:
    """The body of a function with only a few allocations and launches, which its caller can inline."""

    inputs: list[str]
    statements: list[str]
    results: list[str]


@dataclass(frozen=True)
class Executable:
    """One graph's function: `text` defines it under the name `function`.

    `names` maps the names that `text` uses to those of `NAMES`.
    """

    program: str
    function: str
    text: str
    names: dict[str, str]
    kernels: dict[ir.Language, str]
    """The source of the kernels, by language."""
    may_raise: bool
    """Whether it may raise IndexOutOfRange or CannotDraw."""
    only_kernels: bool
    """Whether it calls no PyTorch function that autograd would record."""
    inline_body: InlineBody | None
    in_place: list[str] = field(default_factory=list)
    """The names of the inputs that kernels write to."""
    updates: bool = False
    """Whether a new value depends on the old one, so that a run that failed must not be repeated."""
    optional: dict[str, str] = field(default_factory=dict)
    """The inputs that kernels read only if another input is True, by name: a flag that stands for them, too, if it is
    False."""


def start_build(executable: Executable) -> BackgroundBuild[dict[str, Launcher]]:
    """Starts to build the kernels, for `load`."""
    device = torch.cuda.current_device() if "triton" in executable.kernels and torch.cuda.is_available() else None

    def build() -> dict[str, Launcher]:
        with nullcontext() if device is None else torch.cuda.device(device):  # each thread has a current device
            return launchers(executable.kernels)

    return BackgroundBuild(build)


def load(
    executable: Executable,
    constants: Mapping[str, Any],
    build: BackgroundBuild[dict[str, Launcher]] | None = None,
) -> Runner:
    """Builds the kernels, unless `build` does, and returns the function.

    It takes the inputs as one list, which a backward empties to free them, and returns the results as a list.  Its
    attributes `executable` and `constants` are the arguments given here.  Raises BuildError if a build fails.
    """
    built = launchers(executable.kernels) if build is None else build.result()
    scope = {own: NAMES[name] for own, name in executable.names.items()} | dict(constants) | built
    exec(compile(executable.text, f"<cutaway {executable.program}>", "exec"), scope)
    run: Any = scope[executable.function]
    run.executable, run.constants = executable, constants
    return run  # type: ignore[no-any-return]


def launchers(kernels: Mapping[ir.Language, str]) -> dict[str, Launcher]:
    """Builds kernels, given their source by language, and returns their launchers by name; raises BuildError."""
    launchers: dict[str, Launcher] = {}
    if "cpp" in kernels:
        launchers |= cpp_module.launchers(kernels["cpp"])
    if "triton" in kernels:
        from compiler_core.codegen.triton import module as triton_module

        launchers |= triton_module.launchers(triton_module.load(kernels["triton"]))
    return launchers

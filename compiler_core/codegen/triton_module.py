"""Modules of Triton kernels: text to functions, to machine code for a target, to launches.

A module says all that its compiler must know: each argument's type is its annotation, each
block size a default, and grid and warps stand in ``LAUNCHES``::

    @triton.jit
    def softmax(x_ptr: "*fp32", buf0_ptr: "*fp32", XBLOCK: tl.constexpr = 1, RBLOCK: tl.constexpr = 128):
        ...

    LAUNCHES = {"softmax": {"grid": 32, "num_warps": 1}}

Triton reads a kernel's source from its file, so `load` writes the text to one and imports it:
give it text that Cutaway made, not text from a stranger.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from compiler_core import config
from compiler_core.errors import BuildError


class Target(NamedTuple):
    """A device as Triton names it, e.g. ``("cuda", 90, 32)`` or ``("hip", "gfx942", 64)``."""

    backend: str
    arch: int | str
    warp_size: int


@dataclass(frozen=True)
class Kernel:
    """A kernel of a module; `function` is what ``triton.jit`` made of it."""

    name: str
    function: Any
    grid: int | Callable[..., int]
    """How many programs there are; where sizes are symbolic, for the numbers that come after the buffers."""
    num_warps: int
    file: Path
    asserts: bool
    """Whether it stops the device, as eager's kernels do, at an index that is out of range."""


@functools.lru_cache(maxsize=1024)
def load(text: str) -> dict[str, Kernel]:
    """The kernels of a module, by name, in order."""
    path = _write(text)
    module = _import(path)
    return {
        name: Kernel(name, getattr(module, name), launch["grid"], launch["num_warps"], path, "asserts" in launch)
        for name, launch in module.LAUNCHES.items()
    }


def _write(text: str) -> Path:
    """The file with this text in the cache; written beside and moved, so never seen half done."""
    folder = config.cache_dir() / "triton"
    path = folder / f"kernels_{hashlib.sha256(text.encode()).hexdigest()[:16]}.py"
    if path.exists():
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(dir=folder, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, path)
    except OSError as error:
        raise BuildError(f"cannot write kernels to {folder}: {error}; CUTAWAY_CACHE_DIR names another place") from error
    return path


def _import(path: Path) -> ModuleType:
    if importlib.util.find_spec("triton") is None:
        raise BuildError("Triton is not installed: `pip install triton` (it is made for Linux)")
    spec = importlib.util.spec_from_file_location(f"cutaway_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_kernel(kernel: Kernel, target: Target, *, aligned: bool = True) -> Any:
    """Triton's `CompiledKernel`; `aligned` promises pointers at multiples of 16 bytes."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    params = kernel.function.params
    signature = {p.name: "constexpr" if p.is_constexpr else p.annotation for p in params}
    constants = {p.name: p.default for p in params if p.is_constexpr}
    pointers = [i for i, p in enumerate(params) if str(p.annotation).startswith("*")]
    attributes = {(i,): [["tt.divisibility", 16]] for i in pointers} if aligned else {}
    # `num_warps` counts warps of 32 threads
    options: dict[str, Any] = {"num_warps": max(1, kernel.num_warps * 32 // target.warp_size)}
    options |= {"debug": True, "sanitize_overflow": False} if kernel.asserts else {}
    source = ASTSource(kernel.function, signature, constexprs=constants, attrs=attributes)
    try:
        return triton.compile(source, target=GPUTarget(*target), options=options)
    except Exception as error:
        raise BuildError(f"Triton cannot compile {kernel.name} for {target.arch}: {error}") from error


def launcher(kernel: Kernel) -> Callable[..., None]:
    """Call it with tensors to launch the kernel; it is compiled here, for the current device.

    Triton's own ``kernel[grid](...)`` finds out the types of its arguments on every call.  They
    are known here, so only the pointers' alignment is looked at.
    """
    if not hasattr(kernel.function, "params"):
        return lambda *args: _interpret(kernel, args)
    if not torch.cuda.is_available():
        raise BuildError("Triton kernels run on a GPU, and PyTorch finds none; the backend for the CPU is cpp")
    constants = tuple(p.default for p in kernel.function.params if p.is_constexpr)
    count = sum(str(p.annotation).startswith("*") for p in kernel.function.params)
    ready: dict[tuple[int, bool], Callable[..., None]] = {}

    def prepare(device: int, aligned: bool) -> Callable[..., None]:
        compiled = compile_kernel(kernel, current_target(), aligned=aligned)
        return ready.setdefault((device, aligned), _on_grid(kernel, compiled))

    def launch(*args: Any) -> None:
        device = args[0].get_device()
        if device != torch._C._cuda_getDevice():
            with torch.cuda.device(device):
                return launch(*args)
        bits = 0
        for tensor in args[:count]:
            bits |= tensor.data_ptr()
        aligned = not bits & 15
        run = ready.get((device, aligned)) or prepare(device, aligned)
        return run(*args, *constants, stream=torch._C._cuda_getCurrentRawStream(device))

    prepare(torch.cuda.current_device(), True)
    return launch


def _on_grid(kernel: Kernel, compiled: Any) -> Callable[..., None]:
    """What launches a compiled kernel; it takes the kernel's constants too."""
    if isinstance(kernel.grid, int):
        launch: Callable[..., None] = compiled[(kernel.grid, 1, 1)]
        return launch
    constants = sum(p.is_constexpr for p in kernel.function.params)

    def launch_some(*args: Any, stream: int) -> None:
        if programs := _programs(kernel, args[: len(args) - constants]):
            compiled[(programs, 1, 1)](*args, stream=stream)

    return launch_some


def _interpret(kernel: Kernel, args: tuple[Any, ...]) -> None:
    """One launch by Triton's interpreter."""
    if programs := _programs(kernel, args):
        kernel.function[(programs,)](*args)


def _programs(kernel: Kernel, args: tuple[Any, ...]) -> int:
    if isinstance(kernel.grid, int):
        return kernel.grid
    return kernel.grid(*args[-kernel.grid.__code__.co_argcount :])


def current_target() -> Target:
    """The device that is current in this process."""
    from triton.runtime import driver

    target = driver.active.get_current_target()
    return Target(target.backend, target.arch, target.warp_size)

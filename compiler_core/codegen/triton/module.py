"""Modules of Triton kernels: text to functions, to machine code for a target, to launches.

A module says all that its compiler must know: each argument's type is its annotation, each
block size a default, and grid and warps stand in ``LAUNCHES``::

    @triton.jit
    def softmax(x_ptr: "*fp32", buf0_ptr: "*fp32", XBLOCK: tl.constexpr = 1, RBLOCK: tl.constexpr = 128):
        ...

    LAUNCHES = {"softmax": {"grid": 32, "num_warps": 1}}

`load` runs that text: give it text that Cutaway made, not text from a stranger.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import linecache
import os
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from compiler_core.codegen.source import Launcher
from compiler_core.codegen.triton.cache import in_our_cache
from compiler_core.errors import BuildError, MissingTool, TimedOut


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
    file: str
    """The name under which its debug information knows the module's text."""
    asserts: bool
    """Whether it stops the device, as eager's kernels do, at an index that is out of range."""


@functools.lru_cache(maxsize=1024)
def load(text: str) -> dict[str, Kernel]:
    """The kernels of a module, by name, in order."""
    if importlib.util.find_spec("triton") is None:
        raise MissingTool("Triton is not installed: `pip install triton` (it is made for Linux)")
    file = f"kernels_{hashlib.sha256(text.encode()).hexdigest()[:16]}.py"
    # Triton reads a kernel's source as a debugger would
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module = ModuleType(f"cutaway_{file.removesuffix('.py')}")
    exec(compile(text, file, "exec", dont_inherit=True), module.__dict__)
    return {
        name: Kernel(name, module.__dict__[name], launch["grid"], launch["num_warps"], file, "asserts" in launch)
        for name, launch in module.LAUNCHES.items()
    }


def compile_kernel(kernel: Kernel, target: Target, *, aligned: bool = True) -> Any:
    """Triton's `CompiledKernel`; `aligned` promises pointers at multiples of 16 bytes."""
    with in_our_cache():
        return _compile(kernel, target, aligned)


def _compile(kernel: Kernel, target: Target, aligned: bool) -> Any:
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
    # a product is rounded before it is added to something, as between eager's kernels: a * b - a * b is 0
    options |= {"enable_fp_fusion": False}
    options |= {"debug": True, "sanitize_overflow": False} if kernel.asserts else {}
    source = ASTSource(kernel.function, signature, constexprs=constants, attrs=attributes)
    try:
        return triton.compile(source, target=GPUTarget(*target), options=options)
    except subprocess.TimeoutExpired as error:
        tool = Path(error.cmd[0]).name
        message = f"Triton cannot compile {kernel.name} for {target.arch}: {tool} did not end within its limit of time"
        raise TimedOut(f"{message}; CUTAWAY_COMPILE_TIMEOUT is the limit in seconds", kernel.name) from None
    except Exception as error:
        # the excerpt of the kernel comes first, and what is wrong with it last
        why = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        message = f"Triton cannot compile {kernel.name} for {target.arch}: {why}\n{error}"
        raise BuildError(message, kernel.name) from error


def launchers(kernels: dict[str, Kernel]) -> dict[str, Launcher]:
    """Each kernel as a function that launches it, compiled for the current device, side by side: most of
    that is LLVM's work and an assembler's, not Python's."""
    if any(not hasattr(kernel.function, "params") for kernel in kernels.values()):
        return {name: functools.partial(_interpret, kernel) for name, kernel in kernels.items()}
    if not torch.cuda.is_available():
        raise MissingTool("Triton kernels run on a GPU, and PyTorch finds none; the backend for the CPU is cpp")
    made = dict(zip(kernels, compiled(list(kernels.values())), strict=True))
    for each in made.values():
        if isinstance(each, BuildError):
            raise each
    return {name: launcher(kernels[name], made[name]) for name in kernels}


def compiled(kernels: Sequence[Kernel]) -> list[Any]:
    """Each kernel as Triton compiled it for the current device, or the BuildError that came of it; those that are one
    function by several names are compiled once."""
    target = current_target()

    def made(kernel: Kernel) -> Any:
        try:
            return _compile(kernel, target, True)
        except BuildError as error:
            return error

    different = {id(kernel.function): kernel for kernel in kernels}
    with in_our_cache(), ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        found = dict(zip(different, pool.map(made, different.values()), strict=True))
    return [found[id(kernel.function)] for kernel in kernels]


def launcher(kernel: Kernel, compiled: Any) -> Launcher:
    """Call it with tensors to launch the kernel, which is `compiled` for the current device and aligned tensors.

    Triton's own ``kernel[grid](...)`` finds out the types of its arguments on every call.  They
    are known here, so only the pointers' alignment is looked at, and addresses are handed on.
    """
    constants = tuple(p.default for p in kernel.function.params if p.is_constexpr)
    count = sum(str(p.annotation).startswith("*") for p in kernel.function.params)
    ready: dict[tuple[int, bool], tuple[Any, ...]] = {(torch.cuda.current_device(), True): _loaded(compiled)}
    current_device, current_stream = torch._C._cuda_getDevice, torch._C._cuda_getCurrentRawStream

    def prepare(device: int, aligned: bool) -> tuple[Any, ...]:
        made = compile_kernel(kernel, current_target(), aligned=aligned)
        return ready.setdefault((device, aligned), _loaded(made))

    def launch(*args: Any) -> None:
        device = args[0].get_device()
        if device != current_device():
            with torch.cuda.device(device):
                launch(*args)
            return
        addresses = [tensor.data_ptr() for tensor in args[:count]]
        bits = 0
        for address in addresses:
            bits |= address
        aligned = not bits & 15
        run, function, metadata = ready.get((device, aligned)) or prepare(device, aligned)
        if programs := _programs(kernel, args):
            how = (programs, 1, 1, current_stream(device), function, metadata)
            run(*how, *NO_HOOKS, *addresses, *args[count:], *constants)

    return launch


NO_HOOKS = (None, None, None)
"""No metadata of a launch, nothing to call before or after it."""


def _loaded(compiled: Any) -> tuple[Any, ...]:
    """What launching a kernel takes, once it is on the device."""
    run = compiled.run  # this puts it there
    return run, compiled.function, compiled.packed_metadata


def _interpret(kernel: Kernel, *args: Any) -> None:
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

"""Loads modules of Triton kernels, compiles them for a target, and makes launchers.

A module contains everything that Triton's compiler needs: each argument's type is its annotation, each
block size a default, and the launch grid and number of warps are in ``LAUNCHES``::

    @triton.jit
    def softmax(x_ptr: "*fp32", buf0_ptr: "*fp32", XBLOCK: tl.constexpr = 1, RBLOCK: tl.constexpr = 128):
        ...

    LAUNCHES = {"softmax": {"grid": 32, "num_warps": 1}}

`load` executes this source, so it must come from Cutaway and not from an untrusted record.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import linecache
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import torch

from compiler_core.codegen.build.background import await_all, submit
from compiler_core.codegen.build.external import stopped_on_error
from compiler_core.codegen.source import Launcher
from compiler_core.codegen.triton.toolchain import reads_of_undefined_bits, with_sealed_cache
from compiler_core.errors import BuildError, MissingTool, TimedOut
from compiler_core.loops.schedule.block_sizes import MAX_WARPS
from compiler_core.support.eager_warnings import silence_warnings
from compiler_core.torch_private import StaticCudaLauncher, cuda_getCurrentRawStream, cuda_getDevice


class Target(NamedTuple):
    """A device in Triton's terms, e.g. ``("cuda", 90, 32)`` or ``("hip", "gfx942", 64)``."""

    backend: str
    arch: int | str
    warp_size: int


@dataclass(frozen=True)
class TritonKernel:
    """A kernel of a module; `function` is the ``triton.jit`` function."""

    name: str
    function: Any
    grid: int | Callable[..., int]
    """The number of programs; with symbolic sizes, a function of the arguments after the buffers."""
    num_warps: int
    file: str
    """The module's file name in debug information."""
    asserts: bool
    """Whether it has device assertions, like eager mode's kernels, for indices out of range."""


@functools.lru_cache(maxsize=1024)
def load(text: str) -> dict[str, TritonKernel]:
    """Executes a module's source and returns its kernels by name, in order; raises MissingTool without Triton."""
    if importlib.util.find_spec("triton") is None:
        raise MissingTool("Triton is not installed: run `pip install triton` (available for Linux)")
    file = f"kernels_{hashlib.sha256(text.encode()).hexdigest()[:16]}.py"
    # Triton reads a kernel's source through `inspect`
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module = ModuleType(f"cutaway_{file.removesuffix('.py')}")
    exec(compile(text, file, "exec", dont_inherit=True), module.__dict__)
    return {
        name: TritonKernel(name, module.__dict__[name], launch["grid"], launch["num_warps"], file, "asserts" in launch)
        for name, launch in module.LAUNCHES.items()
    }


def compile_kernel(kernel: TritonKernel, target: Target, *, aligned: bool = True) -> Any:
    """Compiles a kernel for `target` and returns Triton's `CompiledKernel`.

    `aligned`: all pointers are multiples of 16 bytes.  Raises BuildError if Triton fails, TimedOut if its assembler
    exceeds the compile timeout.
    """
    with with_sealed_cache():
        return _compile(kernel, target, aligned)


def _compile(kernel: TritonKernel, target: Target, aligned: bool) -> Any:
    warps = max(1, kernel.num_warps * 32 // target.warp_size)  # `num_warps` counts warps of 32 threads
    others = (count for count in (2 * warps, warps // 2) if 1 <= count <= MAX_WARPS)
    for count in (warps, *others):  # each gets other code
        compiled = _compiled_by_triton(kernel, target, aligned, count)
        wrong = reads_of_undefined_bits(compiled.asm.get("ptx", ""))
        if not wrong:
            return compiled
    raise BuildError(f"Triton's code for {kernel.name} reads registers that nothing sets: {wrong[0]}", kernel.name)


def _compiled_by_triton(kernel: TritonKernel, target: Target, aligned: bool, warps: int) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    params = kernel.function.params
    signature = {p.name: "constexpr" if p.is_constexpr else p.annotation for p in params}
    constants = {p.name: p.default for p in params if p.is_constexpr}
    pointers = [i for i, p in enumerate(params) if str(p.annotation).startswith("*")]
    attributes = {(i,): [["tt.divisibility", 16]] for i in pointers} if aligned else {}
    # no fused multiply-add: a product is rounded before it is added, as in eager mode, so that a * b - a * b is 0
    # denormal numbers are no zeros, as in eager mode's kernels
    options: dict[str, Any] = {"num_warps": warps, "enable_fp_fusion": False, "enable_reflect_ftz": False}
    options |= {"debug": True, "sanitize_overflow": False} if kernel.asserts else {}
    source = ASTSource(kernel.function, signature, constexprs=constants, attrs=attributes)
    try:
        with silence_warnings():  # on Python 3.13 Triton makes syntax trees in a way that is deprecated
            return triton.compile(source, target=GPUTarget(*target), options=options)
    except TimedOut as error:
        message = f"Triton cannot compile {kernel.name} for {target.arch}: {error}"
        raise TimedOut(f"{message}; CUTAWAY_COMPILE_TIMEOUT sets the limit, in seconds", kernel.name) from None
    except Exception as error:
        # Triton's message begins with an excerpt of the kernel and ends with the error
        why = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        message = f"Triton cannot compile {kernel.name} for {target.arch}: {why}\n{error}"
        raise BuildError(message, kernel.name) from error


def launchers(kernels: dict[str, TritonKernel]) -> dict[str, Launcher]:
    """Compiles the kernels for the current device, in parallel, and returns a launcher for each.

    Raises MissingTool without a GPU, BuildError if a kernel cannot be compiled.  With Triton's interpreter
    (``TRITON_INTERPRET=1``) the launchers interpret.
    """
    if any(not hasattr(kernel.function, "params") for kernel in kernels.values()):
        return {name: functools.partial(_interpret, kernel) for name, kernel in kernels.items()}
    if not torch.cuda.is_available():
        raise MissingTool("Triton kernels need a GPU, and PyTorch finds none; use the backend cpp for the CPU")
    made = dict(zip(kernels, compile_all(list(kernels.values())), strict=True))
    for each in made.values():
        if isinstance(each, BuildError):
            raise each
    return {name: make_launcher(kernels[name], made[name]) for name in kernels}


def compile_all(kernels: Sequence[TritonKernel]) -> list[Any]:
    """Compiles each kernel for the current device; returns Triton's `CompiledKernel` or the BuildError for each.

    Kernels with the same function are compiled once.  Threads help because most of the time is spent in LLVM and the
    assembler, without the GIL.
    """
    target = current_target()

    def made(kernel: TritonKernel) -> Any:
        try:
            return _compile(kernel, target, True)
        except BuildError as error:
            return error

    different = {id(kernel.function): kernel for kernel in kernels}
    with with_sealed_cache(), ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool, stopped_on_error():
        futures = [submit(pool, made, kernel) for kernel in different.values()]
        try:
            await_all(futures)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        found = {function: future.result() for function, future in zip(different, futures, strict=True)}
    return [found[id(kernel.function)] for kernel in kernels]


def make_launcher(kernel: TritonKernel, compiled: Any) -> Launcher:
    """Returns a function that launches the kernel, `compiled` for the current device and aligned tensors.

    Triton's ``kernel[grid](...)`` determines the types of its arguments on every call.  They
    are known here, so only the pointers' alignment is checked, and addresses are passed.
    """
    count = sum(str(p.annotation).startswith("*") for p in kernel.function.params)
    home, aligned_at_home = torch.cuda.current_device(), _loaded(kernel, compiled)
    others: dict[tuple[int, bool], Start] = {}
    current_device, current_stream = cuda_getDevice, cuda_getCurrentRawStream

    def prepare(device: int, aligned: bool) -> Start:
        made = compile_kernel(kernel, current_target(), aligned=aligned)
        return others.setdefault((device, aligned), _loaded(kernel, made))

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
        if aligned and device == home:
            start = aligned_at_home
        else:
            start = others.get((device, aligned)) or prepare(device, aligned)
        if programs := _grid_size(kernel, args):
            start(programs, current_stream(device), (*addresses, *args[count:]))

    return launch


Start = Callable[[int, int, tuple[Any, ...]], None]
"""Starts a loaded kernel, given the number of programs, the stream, and the addresses and numbers."""
NO_HOOKS = (None, None, None)
"""The launch metadata and the hooks before and after a launch."""
_STATIC_TYPES = {"i32": "i", "i64": "l", "fp32": "f", "fp64": "d"}
"""The letters of types of numbers in PyTorch's launcher."""
_STATIC_MOST_ARGUMENTS = 24


def _loaded(kernel: TritonKernel, compiled: Any) -> Start:
    """Loads a kernel on the current device."""
    return _loaded_by_pytorch(kernel, compiled) or _loaded_by_triton(kernel, compiled)


def _loaded_by_triton(kernel: TritonKernel, compiled: Any) -> Start:
    run = compiled.run  # the property loads the kernel
    function, metadata = compiled.function, compiled.packed_metadata
    constants = tuple(p.default for p in kernel.function.params if p.is_constexpr)

    def start(programs: int, stream: int, arguments: tuple[Any, ...]) -> None:
        run(programs, 1, 1, stream, function, metadata, *NO_HOOKS, *arguments, *constants)

    return start


def _loaded_by_pytorch(kernel: TritonKernel, compiled: Any) -> Start | None:
    """Loads a kernel by the C functions with which Inductor loads and launches kernels.

    A launch takes a third of the time of Triton's, which builds a C extension for each list of argument types, besides.
    Returns None if this build of PyTorch lacks the functions, or they cannot load or launch this kernel.
    """
    library = StaticCudaLauncher
    metadata = compiled.metadata
    scratch = [getattr(metadata, name, None) for name in ("global_scratch_size", "profile_scratch_size")]
    letters = [
        "O" if str(p.annotation).startswith("*") else _STATIC_TYPES.get(str(p.annotation), "")
        for p in kernel.function.params
        if not p.is_constexpr
    ]
    is_special = any(scratch) or metadata.num_ctas != 1 or getattr(metadata, "launch_cooperative_grid", False)
    if library is None or torch.version.hip or is_special or not all(letters):
        return None
    none = (None,) * sum(size is not None for size in scratch)  # Triton adds a pointer for each to the arguments
    types = "".join(letters) + "O" * len(none)
    if len(types) > _STATIC_MOST_ARGUMENTS:
        return None
    launch_kernel, warps, shared = library._launch_kernel, metadata.num_warps, metadata.shared
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        try:  # PyTorch 2.13 returns the module before the function
            *_, function, compiled.n_regs, compiled.n_spills = library._load_kernel(
                file.name, compiled.name, shared, torch.cuda.current_device()
            )
        except RuntimeError:  # too much shared memory: Triton's error says so
            return None

    def start(programs: int, stream: int, arguments: tuple[Any, ...]) -> None:
        launch_kernel(function, programs, 1, 1, warps, shared, types, arguments + none, stream)

    return start


def _interpret(kernel: TritonKernel, *args: Any) -> None:
    """Runs the kernel in Triton's interpreter."""
    if programs := _grid_size(kernel, args):
        kernel.function[(programs,)](*args)


def _grid_size(kernel: TritonKernel, args: tuple[Any, ...]) -> int:
    if isinstance(kernel.grid, int):
        return kernel.grid
    return kernel.grid(*args[-kernel.grid.__code__.co_argcount :])


def current_target() -> Target:
    """Returns the current device of this process."""
    if torch.version.hip:
        from triton.runtime import driver

        target = driver.active.get_current_target()
        return Target(target.backend, target.arch, target.warp_size)
    major, minor = torch.cuda.get_device_capability()  # Triton builds a C extension before it says the same
    return Target("cuda", major * 10 + minor, 32)

"""Writes the program of one graph as a Python file that runs without Cutaway.

The file has the kernels, the wrapper, random inputs and a timing loop; it needs PyTorch and a C++ compiler or Triton.
It is meant for changing a kernel by hand and trying it.
"""

from __future__ import annotations

import inspect
import re

from compiler_core import torch_private
from compiler_core.codegen.build import compilers as build
from compiler_core.errors import BuildError, UsageError
from compiler_core.loops.ir import philox
from compiler_core.records import Compile
from compiler_core.support import opaque_ops
from compiler_core.tools import replay
from compiler_core.tools.example_inputs import random_tensor

_PRELUDE = """\
import math
import operator
import time

import torch


{random_tensor}


def empty(size, stride, dtype):
    return torch.empty_strided(size, stride, dtype=dtype)


def empty_large(size, stride, dtype):  # Cutaway asks for huge pages here
    return empty(size, stride, dtype)


def empty_cuda(size, stride, dtype):
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda")


def window(tensor, size, stride, offset):
    return tensor.as_strided(size, stride, tensor.storage_offset() + offset)


def restrided(tensor, size, stride):
    return torch.empty_strided(size, stride, dtype=tensor.dtype, device=tensor.device).copy_(tensor.expand(size))


def cast(tensor, dtype):
    return tensor.to(dtype)


def current_device():
    return torch.cuda.current_device()


def on_device(index):
    return torch.cuda.device(index)


def recorded(operator):  # Cutaway keeps what custom operators return, in case that a later operator raises
    return operator


class IndexOutOfRange(IndexError):
    pass


class CannotDraw(Exception):
    pass


def draw_bernoulli(out, p):  # Cutaway draws the same numbers by vectors
    return out.bernoulli_(p)


def is_recording():
    return torch.cuda.is_current_stream_capturing()


f16, bf16, f32, f64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
i8, i16, i32, i64, u8 = torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8
"""

_RANDOM = f"""
import functools

BLOCK = {philox.BLOCK}


"""

_OPAQUE_OPS = f"""
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from torch.fx.node import has_side_effect

Autocast = tuple[str, torch.dtype, bool]
_AUTOGRAD = {opaque_ops._AUTOGRAD}
"""

_CPP = """
import ctypes
import os
import signal
import subprocess
import tempfile
from pathlib import Path

KERNELS = r\'\'\'
{kernels}\'\'\'
COMMAND = {command}
SECONDS = float(os.environ.get("CUTAWAY_COMPILE_TIMEOUT") or 300)  # the most that the compiler may take


def build():
    folder = Path(tempfile.mkdtemp())
    (folder / "kernels.cpp").write_text(KERNELS)
    command = [*COMMAND, str(folder / "kernels.cpp"), "-o", str(folder / "kernels.so")]
    compiler = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        status = compiler.wait(SECONDS)
    finally:
        if compiler.poll() is None:
            os.killpg(compiler.pid, signal.SIGKILL)
    if status:
        raise RuntimeError(f"the compiler failed with status {{status}}: {{' '.join(command)}}")
    return ctypes.CDLL(str(folder / "kernels.so"))


def cpp_launcher(name, *takes, returns=None):
    function = getattr(library, name)
    function.argtypes, function.restype = takes, returns

    def launch(*args):
        return function(*(a.data_ptr() if isinstance(a, torch.Tensor) else a for a in args))

    return launch


library = build()
{functions}
"""

_TRITON = """
{kernels}

def triton_launcher(kernel, grid, num_warps, **_):
    def launch(*args):
        programs = grid if isinstance(grid, int) else grid(*args[-grid.__code__.co_argcount :])
        if programs:
            with torch.cuda.device(args[0].get_device()):
                kernel[(programs,)](*args, num_warps=num_warps, enable_fp_fusion=False, enable_reflect_ftz=False)

    return launch


{functions}
"""

_MAIN = """

if __name__ == "__main__":
    inputs = random_inputs()
    results = run_{which}([*inputs])
    for result in results:
        is_tensor = isinstance(result, torch.Tensor)
        print(f"{{list(result.shape)}} {{result.dtype}} {{result.double().norm():.6g}}" if is_tensor else result)
    start = time.perf_counter()
    for _ in range(100):
        run_{which}([*inputs])
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    print(f"{{(time.perf_counter() - start) * 1e4:.1f}} us a call")
"""


def standalone_script(compile_: Compile, direction: str) -> str:
    """Returns the program of a graph as the text of a Python file.

    Args:
        compile_: a compile with our kernels; the record may come from another machine.
        direction: ``forward`` or ``backward``.

    Raises:
        UsageError: the compile has no kernels of ours for that graph, or the record lacks their text.

    Example::

        Path("forward.py").write_text(standalone_script(record.compiles[0], "forward"))
    """
    wrapper = next((a for a in compile_.artifacts if a.name == f"{direction}.wrapper"), None)
    if wrapper is None:
        raise UsageError(f"compile {compile_.id} has no kernels of ours for its {direction} graph")
    writers = {"cpp": _cpp_kernels, "triton": _triton_kernels}
    kernels = "".join(writers[language](text) for language, text in replay.sources(compile_, direction).items())
    prelude = _PRELUDE.replace("{random_tensor}", inspect.getsource(random_tensor))
    if "= draw(" in wrapper.text:
        needed = philox.max_threads, philox.thread_count, philox.draw
        prelude += _RANDOM + "\n\n".join(inspect.getsource(each) for each in needed)
    if any(f"{name}(" in wrapper.text for name in opaque_ops.NAMES):
        functions = "\n\n".join(inspect.getsource(each) for each in opaque_ops.STANDALONE)
        prelude += f"{_OPAQUE_OPS}{torch_private.definitions(functions)}\n\n{functions}"
    return f"{prelude}{kernels}\n{wrapper.text}{_MAIN.format(which=direction)}"


def _cpp_kernels(kernels: str) -> str:
    functions = []
    for name, parameters, returns in build.signatures(kernels):
        takes = "".join(f", ctypes.{p}" for p in parameters)
        functions.append(f'{name} = cpp_launcher("{name}"{takes}{f", returns=ctypes.{returns}" if returns else ""})')
    return _CPP.format(kernels=kernels, command=_compile_command(), functions="\n".join(functions))


def _compile_command() -> list[str]:
    try:
        tools = build.toolchain()
    except BuildError:  # the record may come from another machine
        return ["c++", *build.FLAGS, *build.SHARED_LIBRARY_FLAGS]
    return [tools.path.rpartition("/")[2], *tools.flags, *build.SHARED_LIBRARY_FLAGS]


def _triton_kernels(kernels: str) -> str:
    names = re.findall(r"^@triton\.jit\ndef (\w+)\(", kernels, re.MULTILINE)
    launched = [name for name in names if f'"{name}": {{' in kernels]
    functions = "\n".join(f'{name} = triton_launcher({name}, **LAUNCHES["{name}"])' for name in launched)
    return _TRITON.format(kernels=kernels, functions=functions)

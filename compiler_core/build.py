"""C++ source to functions, through the cache on disk.

A library is named by the digest of its source, the flags, the compiler's version and the CPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import re
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from compiler_core import cache, config
from compiler_core.errors import BuildError, MissingTool

FLAGS = (
    *("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fwrapv"),
    # or sin(x) beside cos(x) becomes one call of sincos, which has no form for vectors
    *("-fno-builtin-sin", "-fno-builtin-cos", "-fno-builtin-sinf", "-fno-builtin-cosf"),
    "-fno-tree-pre",  # or a choice between a constant and a value becomes branches, and its loop is not vectorised
)
"""Never -ffast-math: NaN, infinities, signed zeros and the order of additions are eager's."""
OPTIONAL_FLAGS = frozenset({"-march=native", "-fopenmp", "-fno-trapping-math", "-fno-tree-pre"})
SHARED = ("-shared", "-fPIC", "-std=c++17", "-w")
TRIVIAL = 'extern "C" int one() { return 1; }\n'

_loaded: dict[str, ctypes.CDLL] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class Toolchain:
    """A C++ compiler and what it is told."""

    path: str
    version: str
    flags: tuple[str, ...]


def toolchain() -> Toolchain:
    """The C++ compiler in use; MissingTool says how to get one."""
    path = config.cxx()
    if path is None:
        named = os.environ.get("CXX")
        wanted = f"the C++ compiler {named!r} named by $CXX" if named else "a C++ compiler (g++, clang++ or c++)"
        raise MissingTool(f"{wanted} was not found; install one (on Debian: apt install g++) or set CXX to its path")
    return _inspect(path)


@functools.lru_cache
def _inspect(path: str) -> Toolchain:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingTool(f"the C++ compiler {path} does not run ({error}); set CXX to one that does") from None
    return Toolchain(path, done.stdout.split("\n", 1)[0], FLAGS)


def load(source: str) -> ctypes.CDLL:
    """The library made from `source`: from this process, from disk, or built now."""
    tools = _reduced(toolchain())
    key = digest(source, tools)
    with _lock:
        if key not in _loaded:
            _loaded[key] = _library(source, tools, library_path(key))
        return _loaded[key]


class Signature(NamedTuple):
    """A function of a library of ours."""

    name: str
    parameters: tuple[str, ...]
    """The name of each one's type in `ctypes`."""
    returns: str | None


def signatures(source: str) -> list[Signature]:
    """The functions in `source`."""
    names = {"void*": "c_void_p", "i64": "c_int64", "f64": "c_double"}
    found = []
    for returned, name, parameters in re.findall(r'^extern "C" (\w+) (\w+)\((.*)\) noexcept \{', source, re.MULTILINE):
        types = [names["void*" if "*" in p else p.split()[-2]] for p in parameters.split(", ") if p]
        found.append(Signature(name, tuple(types), None if returned == "void" else "c_int64"))
    return found


def functions(source: str, kind: type[ctypes.CDLL] = ctypes.CDLL) -> dict[str, Callable[..., Any]]:
    """The functions in `source`, ready to call; through ``ctypes.PyDLL`` they keep the GIL."""
    library = kind(load(source)._name)
    made = {}
    for name, parameters, returns in signatures(source):
        function = getattr(library, name)
        function.argtypes = [getattr(ctypes, p) for p in parameters]
        function.restype = getattr(ctypes, returns) if returns else None
        made[name] = function
    return made


def digest(source: str, tools: Toolchain) -> str:
    """The name under which the library for `source` is kept."""
    parts = (source, tools.path, tools.version, *tools.flags, *SHARED, _cpu())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def library_path(key: str) -> Path:
    return cache.folder("cpp") / f"{key}.so"


def simd_math() -> tuple[str, ...]:
    """Functions that the C library also has for vectors (glibc's libmvec)."""
    libc, version = platform.libc_ver()
    if libc != "glibc" or platform.machine() != "x86_64":
        return ()
    numbers = tuple(int(n) for n in version.split(".")[:2])
    first = ("exp", "log", "pow", "sin", "cos")
    later = (
        *("exp2", "expm1", "log2", "log10", "log1p", "erf", "erfc", "tan", "asin", "acos", "atan", "atan2"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    )
    return () if numbers < (2, 22) else first if numbers < (2, 35) else first + later


def compile_command(tools: Toolchain, source: Path, output: Path, extra: Sequence[str] = SHARED) -> list[str]:
    """The command that makes `output` from `source`."""
    return [tools.path, *tools.flags, *extra, str(source), "-o", str(output)]


def _library(source: str, tools: Toolchain, path: Path) -> ctypes.CDLL:
    if cache.read(path) is not None:  # loading a truncated library would kill the process
        with contextlib.suppress(OSError):  # another process may just have made room
            return ctypes.CDLL(str(path))
    _build(source, tools, path)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"the C++ compiler {tools.path} made a library that cannot be loaded: {error}") from None


def _build(source: str, tools: Toolchain, path: Path) -> None:
    with cache.workshop(path.parent) as folder:
        text, library = folder / "kernels.cpp", folder / "kernels.so"
        text.write_text(source, encoding="utf-8")
        _run(compile_command(tools, text, library))
        content = library.read_bytes()
    cache.write(path, content, mode=0o700)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise MissingTool(f"the C++ compiler did not run: {error}; set CXX to one that does") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        worst = next((line.partition("error: ")[2] for line in said if "error: " in line), "it does not say why")
        words = "\n".join([" ".join(command), *said[:20]])
        raise BuildError(f"{Path(command[0]).name} failed with status {done.returncode}: {worst}\n{words}")


@functools.lru_cache
def _reduced(tools: Toolchain) -> Toolchain:
    """`tools` without the optional flags that this compiler does not have."""
    path = library_path(digest(TRIVIAL, tools))
    if cache.read(path) is not None:
        return tools
    try:
        _build(TRIVIAL, tools, path)
        return tools
    except BuildError:
        return replace(tools, flags=tuple(f for f in tools.flags if f not in OPTIONAL_FLAGS or _takes(tools, f)))


def _takes(tools: Toolchain, flag: str) -> bool:
    alone = replace(tools, flags=(flag,))
    try:
        _build(TRIVIAL, alone, library_path(digest(TRIVIAL, alone)))
    except BuildError:
        return False
    return True


@functools.lru_cache
def _cpu() -> str:
    """What tells this CPU's instruction set from another's."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n", 1)[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(line for line in lines if line.startswith(wanted))

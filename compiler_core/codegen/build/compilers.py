"""C++ source to functions, through the kernel cache.

A library is named by the digest of its source, the flags, the compiler's version and the CPU.  It is opened once,
checked, and loaded by that descriptor.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import os
import platform
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from compiler_core import config
from compiler_core.codegen.build import disk_cache, elf, external, faults
from compiler_core.errors import BuildError, MissingTool, TimedOut
from compiler_core.support.fork_locks import free_after_fork

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

FORM = "2"
"""Of what is kept; libraries of form 1 were not checked before they were sealed."""
VERSION_TIMEOUT_S = 30
"""How long a compiler may take to say its version, or to build a library of one function."""
_DESCRIPTORS = "/proc/self/fd"

_loaded: dict[str, ctypes.CDLL] = {}
_lock = threading.RLock()
free_after_fork(sys.modules[__name__], "_lock")
_gave_up: dict[str, str] = {}
"""What took too long in this process, by digest or compiler, and what was said of it: it is not tried again."""
_names = itertools.count()


@dataclass(frozen=True)
class Toolchain:
    """A C++ compiler and what it is told."""

    path: str
    version: str
    flags: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    """What stands before the flags: ``CXX='ccache g++'`` runs ccache with the argument g++."""

    @property
    def command(self) -> tuple[str, ...]:
        return (self.path, *self.arguments)


def toolchain() -> Toolchain:
    """The C++ compiler in use; MissingTool says how to get one."""
    command = config.cxx()
    if not command:
        named = os.environ.get("CXX")
        wanted = f"the C++ compiler {named!r} named by $CXX" if named else "a C++ compiler (g++, clang++ or c++)"
        raise MissingTool(f"{wanted} was not found; install one (on Debian: apt install g++) or set CXX to its path")
    return _inspect(command)


@functools.lru_cache
def _inspect(command: tuple[str, ...]) -> Toolchain:
    shown = " ".join(command)
    if shown in _gave_up:
        raise MissingTool(_gave_up[shown])
    try:
        done = external.run([*command, "--version"], timeout=_short_timeout(), environment=_in_english())
    except TimedOut as error:
        _gave_up[shown] = f"the C++ compiler {shown} does not say its version: {error}; set CXX to one that runs"
        raise MissingTool(_gave_up[shown]) from None
    except OSError as error:
        raise MissingTool(f"the C++ compiler {shown} does not run: {faults.words(error)}") from None
    if done.status:
        raise MissingTool(
            f"the C++ compiler {shown} does not run (--version ends with {done.status}); set CXX to one that does"
        )
    return Toolchain(command[0], done.out.split("\n", 1)[0], FLAGS, command[1:])


def _short_timeout() -> float:
    return min(VERSION_TIMEOUT_S, config.compile_timeout())


def _in_english() -> dict[str, str]:
    """The environment in which compilers say what this module can read."""
    return {**os.environ, "LC_ALL": "C"}


def load(source: str) -> ctypes.CDLL:
    """The library made from `source`: from this process, from disk, or built now."""
    tools = _reduced(toolchain())
    key = digest(source, tools)
    with _lock:
        if key not in _loaded:
            _loaded[key] = _library(source, tools, key)
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
    found = load(source)
    library = kind(found._name, handle=found._handle)
    made = {}
    for name, parameters, returns in signatures(source):
        function = getattr(library, name)
        function.argtypes = [getattr(ctypes, p) for p in parameters]
        function.restype = getattr(ctypes, returns) if returns else None
        made[name] = function
    return made


def digest(source: str, tools: Toolchain) -> str:
    """The name under which the library for `source` is kept."""
    parts = (FORM, source, *tools.command, tools.version, *tools.flags, *SHARED, _cpu())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def library_path(key: str) -> Path:
    """Where the library lies, once it is built."""
    return disk_cache.path_of("cpp", key)


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
    return [*tools.command, *tools.flags, *extra, str(source), "-o", str(output)]


# ---- building ------------------------------------------------------------------------------


def _library(source: str, tools: Toolchain, key: str) -> ctypes.CDLL:
    if (library := disk_cache.find("cpp", key, _loaded_or_none)) is not None:
        return library
    content = _built(source, tools, key)
    try:
        disk_cache.write("cpp", key, content)
    except MissingTool as error:
        disk_cache.note(error)
    else:
        if (library := disk_cache.find("cpp", key, _loaded_or_none)) is not None:
            return library
    try:
        return _loaded_copy(content)
    except OSError as error:
        reason = f": {fault.what}; {fault.remedy}" if (fault := faults.of_error(error)) else f": {error}"
        raise BuildError(f"the C++ compiler {tools.path} made a library that cannot be loaded{reason}") from None


def try_out(source: str) -> ctypes.CDLL:
    """The library made from `source`, now, whether it is on disk or not, and not kept."""
    tools = _reduced(toolchain())
    return _loaded_copy(_built(source, tools, digest(source, tools)))


def _built(source: str, tools: Toolchain, key: str, timeout: float | None = None) -> bytes:
    """The library, built in the first place that has room for it."""
    if key in _gave_up:
        raise BuildError(_gave_up[key])
    why: OSError | MissingTool | None = None
    for place in disk_cache.places("cpp"):
        try:
            with disk_cache.workshop(place) as folder:
                return _built_in(folder, source, tools, timeout or config.compile_timeout())
        except TimedOut as error:
            _gave_up[key] = f"the C++ compiler {error}; CUTAWAY_COMPILE_TIMEOUT is the limit in seconds"
            raise TimedOut(_gave_up[key]) from None
        except OSError as error:
            why = error
        except _NoRoom as error:
            why = error
    raise why if isinstance(why, MissingTool) else disk_cache.no_place(why)


class _NoRoom(MissingTool):
    """A folder cannot be built in; another perhaps can."""


def _built_in(folder: Path, source: str, tools: Toolchain, timeout: float) -> bytes:
    text, library = folder / "kernels.cpp", folder / "kernels.so"
    text.write_text(source, encoding="utf-8")
    environment = _in_english() | {"TMPDIR": str(folder)}
    shown = f"the C++ compiler {' '.join(tools.command)}"
    try:
        external.checked(compile_command(tools, text, library), shown, timeout=timeout, environment=environment)
    except MissingTool as error:
        raise (_NoRoom(str(error)) if faults.of_text(str(error)) in faults.ELSEWHERE else error) from None
    if not library.is_file():
        raise BuildError(f"{shown} ended without an error, and made no library; set CXX to a C++ compiler")
    content = library.read_bytes()
    if damage := elf.fault(content):
        raise BuildError(f"{shown} ended without an error, but of the library that it made is to say: {damage}")
    if missing := elf.missing(content, _exported(source)):
        raise BuildError(f"{shown} ended without an error, but the library lacks {', '.join(missing)}")
    return content


def _exported(source: str) -> list[str]:
    """What C++ source defines under names of C."""
    source = re.sub(r"__attribute__ *\(\(.*?\)\)", "", source)
    return re.findall(r'^extern "C" [^(={;"]*?(\w+) *(?:\([^;{]*\{|=)', source, re.MULTILINE)


@functools.lru_cache
def _reduced(tools: Toolchain) -> Toolchain:
    """`tools` without the optional flags that this compiler does not have; MissingTool where it can build nothing."""
    if disk_cache.read("cpp", digest(TRIVIAL, tools)) is not None:
        return tools
    shown = " ".join(tools.command)
    if shown in _gave_up:
        raise MissingTool(_gave_up[shown])
    try:
        if _builds_trivial(tools) is None:
            return tools
        fewer = replace(tools, flags=tuple(f for f in tools.flags if f not in OPTIONAL_FLAGS or _takes(tools, f)))
        if (error := _builds_trivial(fewer)) is None:
            return fewer
    except TimedOut:
        _gave_up[shown] = (
            f"the C++ compiler {shown} did not build a library of one function within {_short_timeout():g} s and was "
            "stopped; set CXX to one that does"
        )
        raise MissingTool(_gave_up[shown]) from None
    raise MissingTool(f"the C++ compiler {shown} does not build a library of one function: {error}")


def _builds_trivial(tools: Toolchain) -> BuildError | None:
    """Why a library of one function cannot be built, or None."""
    key = digest(TRIVIAL, tools)
    try:
        content = _built(TRIVIAL, tools, key, _short_timeout())
    except (MissingTool, TimedOut):
        raise
    except BuildError as error:
        return error
    try:
        disk_cache.write("cpp", key, content)
    except MissingTool as error:
        disk_cache.note(error)
    return None


def _takes(tools: Toolchain, flag: str) -> bool:
    alone = replace(tools, flags=(flag,))
    return disk_cache.read("cpp", digest(TRIVIAL, alone)) is not None or _builds_trivial(alone) is None


# ---- loading -------------------------------------------------------------------------------


def _loaded_or_none(file: int, content: bytes) -> ctypes.CDLL | None:
    """The library in an open file, which was checked before it was sealed; None where it cannot be loaded, so that it
    is built again."""
    with suppress(OSError):
        if _has_descriptors():
            return ctypes.CDLL(_name_of(file))
    with suppress(OSError):  # no program can be run from its folder, perhaps
        return _loaded_copy(content)
    return None


@functools.cache
def _has_descriptors() -> bool:
    """Whether an open file has a name here."""
    return os.path.isdir(_DESCRIPTORS)


def _name_of(file: int) -> str:
    """A name of an open file that no library has had.

    The loader takes a library of a name that it knows for the one that it has loaded, and descriptors' numbers come
    again, so each name has a number of its own: its binary digits, as ``/`` and ``/.``, stand before the descriptor.
    """
    digits = f"{next(_names):b}".replace("1", "/.").replace("0", "/")
    return f"{_DESCRIPTORS}{digits}/{file}"


def _loaded_copy(content: bytes) -> ctypes.CDLL:
    """The library from a copy in memory or, on other systems than Linux, in a folder that nobody else can enter."""
    if hasattr(os, "memfd_create") and _has_descriptors():
        file = os.memfd_create("cutaway-kernels", os.MFD_CLOEXEC)
        with open(file, "wb") as stream:
            stream.write(content)
            stream.flush()
            return ctypes.CDLL(_name_of(file))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.so"
        path.write_bytes(content)
        return ctypes.CDLL(str(path))


@functools.lru_cache
def _cpu() -> str:
    """What tells this CPU's instruction set from another's."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n", 1)[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(line for line in lines if line.startswith(wanted))

"""Compiles C++ source to a shared library, through the kernel cache, and returns its functions.

The cache key of a library is the digest of its source, the flags, the compiler's version and the CPU.  The file is
opened once, verified, and loaded through that file descriptor.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import os
import platform
import re
import struct
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from compiler_core import config
from compiler_core.codegen.build import disk_cache, external
from compiler_core.codegen.build.external import FOLDER_FAULTS, describe_fault, fault_in_output, fault_of_error
from compiler_core.codegen.build.kernel_lookups import note_lookup
from compiler_core.errors import BuildError, MissingTool, TimedOut

FLAGS = (
    *("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fwrapv"),
    # otherwise sin(x) and cos(x) become one call of sincos, which has no vector version
    *("-fno-builtin-sin", "-fno-builtin-cos", "-fno-builtin-sinf", "-fno-builtin-cosf"),
    # otherwise g++ vectorises pow(x, 0.5) to sqrt(x), which differs for -0 and -infinity
    *("-fno-builtin-pow", "-fno-builtin-powf"),
    # a compiler older than the processor tunes for an older one, on which vectors of 512 bits are slow
    "-mprefer-vector-width=512",
    "-fno-tree-pre",  # otherwise ``c ? constant : value`` becomes a branch, and the loop is not vectorised
)
"""Not -ffast-math: NaN, infinities, signed zeros and the order of additions must be the same as in eager mode."""
OPTIONAL_FLAGS = frozenset({
    "-march=native", "-fopenmp", "-fno-trapping-math", "-fno-tree-pre", "-mprefer-vector-width=512",
})  # fmt: skip
SHARED_LIBRARY_FLAGS = ("-shared", "-fPIC", "-std=c++17", "-w")
TRIVIAL_SOURCE = 'extern "C" int one() { return 1; }\n'

CACHE_VERSION = "2"
"""The version of the cache entries; libraries of version 1 were not verified before they were written."""
VERSION_TIMEOUT_S = 30
"""The time limit of ``--version`` and of building a library of one function."""
_SUSPECTED_S = 600.0
"""For how long a compiler that did not end in time is not trusted, unless it builds another kernel."""
_DESCRIPTORS = "/proc/self/fd"

_libraries: dict[str, ctypes.CDLL] = {}
_timed_out: dict[str, str] = {}
"""The error message of each library (by digest) and compiler that timed out in this process; it is not retried."""
_suspected: dict[str, tuple[int, float]] = {}
"""How many kernels in a row a compiler did not end in time, and when the last one was given up."""
_name_numbers = itertools.count()


@dataclass(frozen=True)
class Toolchain:
    """A C++ compiler driver and its flags."""

    path: str
    version: str
    flags: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    """Arguments before the flags: ``CXX='ccache g++'`` runs ccache with the argument g++."""

    @property
    def command(self) -> tuple[str, ...]:
        return (self.path, *self.arguments)


def toolchain() -> Toolchain:
    """Returns the C++ compiler in use (``$CXX``, else g++, clang++ or c++).

    Raises MissingTool, whose message says how to get one, if there is none or it does not run.
    """
    command = config.cxx()
    if not command:
        named = os.environ.get("CXX")
        wanted = f"the C++ compiler {named!r} named by $CXX" if named else "a C++ compiler (g++, clang++ or c++)"
        raise MissingTool(f"{wanted} was not found; install one (on Debian: apt install g++) or set CXX to its path")
    return _inspect(command)


@functools.lru_cache
def _inspect(command: tuple[str, ...]) -> Toolchain:
    shown = " ".join(command)
    if shown in _timed_out:
        raise MissingTool(_timed_out[shown])
    try:
        done = external.run([*command, "--version"], timeout=_short_timeout(), environment=_english_environment())
    except TimedOut as error:
        _timed_out[shown] = f"the C++ compiler {shown} does not report its version: {error}; set CXX to one that runs"
        raise MissingTool(_timed_out[shown]) from None
    except OSError as error:
        raise MissingTool(f"the C++ compiler {shown} does not run: {describe_fault(error)}") from None
    if done.status:
        raise MissingTool(
            f"the C++ compiler {shown} does not run (--version exits with {done.status}); set CXX to one that does"
        )
    return Toolchain(command[0], done.out.split("\n", 1)[0], FLAGS, command[1:])


def _short_timeout() -> float:
    return min(VERSION_TIMEOUT_S, config.compile_timeout())


def _english_environment() -> dict[str, str]:
    """Returns an environment in which compilers print English messages, which this module parses."""
    return {**os.environ, "LC_ALL": "C"}


def load(source: str, is_of_graph: bool = False) -> ctypes.CDLL:
    """Returns the library compiled from `source`: already loaded in this process, cached on disk, or built now.

    `is_of_graph`: it has the kernels of the graph that is built, so that the lookup is noted (`noted_lookups`).

    Raises BuildError if the compiler fails, MissingTool if there is none or the machine prevents the build, TimedOut if
    the compiler exceeds `config.compile_timeout()`.
    """
    tools = _with_supported_flags(toolchain())
    key = digest(source, tools)
    library, is_hit = _libraries.get(key), True
    if library is None:
        library, is_hit = _find_or_build(source, tools, key)
        library = _libraries.setdefault(key, library)  # another thread may have built it, too
    if is_of_graph:
        note_lookup("kernel cache", key, _key_parts(source, tools), is_hit)
    return library


def library_content(source: str) -> bytes:
    """Returns the file of the library compiled from `source`, from the cache or built now, without loading it; raises
    as `load` does."""
    tools = _with_supported_flags(toolchain())
    key = digest(source, tools)
    content = disk_cache.read("cpp", key)
    if content is None:
        content = _build(source, tools, key)
        _write_to_cache(key, content)
    return content


class Signature(NamedTuple):
    """The signature of a function in a generated library."""

    name: str
    parameters: tuple[str, ...]
    """The names of the parameters' types in `ctypes`."""
    returns: str | None


def signatures(source: str) -> list[Signature]:
    """Returns the signatures of the kernels in `source`."""
    names = {"void*": "c_void_p", "i64": "c_int64", "f64": "c_double"}
    found = []
    for returned, name, parameters in re.findall(r'^extern "C" (\w+) (\w+)\((.*)\) noexcept \{', source, re.MULTILINE):
        types = [names["void*" if "*" in p else p.split()[-2]] for p in parameters.split(", ") if p]
        found.append(Signature(name, tuple(types), None if returned == "void" else "c_int64"))
    return found


def functions(source: str, kind: type[ctypes.CDLL] = ctypes.CDLL) -> dict[str, Callable[..., Any]]:
    """Compiles `source` and returns its functions by name; with ``kind=ctypes.PyDLL`` they run with the GIL held."""
    found = load(source)
    library = kind(found._name, handle=found._handle)
    by_name = {}
    for name, parameters, returns in signatures(source):
        function = getattr(library, name)
        function.argtypes = [getattr(ctypes, p) for p in parameters]
        function.restype = getattr(ctypes, returns) if returns else None
        by_name[name] = function
    return by_name


def digest(source: str, tools: Toolchain) -> str:
    """Returns the cache key of the library for `source`."""
    parts = [part for each in _key_parts(source, tools).values() for part in each]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _key_parts(source: str, tools: Toolchain) -> dict[str, Sequence[str]]:
    """Returns the parts of a library's cache key, by the names of its fields."""
    return {
        "cache version": [CACHE_VERSION],
        "source": [source],
        "compiler": tools.command,
        "compiler version": [tools.version],
        "flags": [*tools.flags, *SHARED_LIBRARY_FLAGS],
        "CPU": [_cpu_description()],
    }


def simd_math() -> tuple[str, ...]:
    """Returns the names of functions with vector versions in the C library (glibc's libmvec)."""
    libc, version = platform.libc_ver()
    if libc != "glibc" or platform.machine() != "x86_64":
        return ()
    numbers = tuple(int(n) for n in version.split(".")[:2])
    first = ("exp", "log", "pow", "sin", "cos")
    later = (
        *("exp2", "expm1", "log2", "log10", "log1p", "erf", "erfc", "tan", "asin", "acos", "atan", "atan2"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    )
    if numbers < (2, 22):
        return ()
    return first if numbers < (2, 35) else first + later


def compile_command(
    tools: Toolchain, source: Path, output: Path, extra: Sequence[str] = SHARED_LIBRARY_FLAGS
) -> list[str]:
    """Returns the command line that compiles `source` to `output`."""
    return [*tools.command, *tools.flags, *extra, str(source), "-o", str(output)]


# ---- building ------------------------------------------------------------------------------


def _find_or_build(source: str, tools: Toolchain, key: str) -> tuple[ctypes.CDLL, bool]:
    """Returns the library, and whether the cache had it."""
    if (library := disk_cache.find("cpp", key, _load_file)) is not None:
        return library, True
    content = _build(source, tools, key)
    if _write_to_cache(key, content) and (library := disk_cache.find("cpp", key, _load_file)) is not None:
        return library, False
    try:
        return _load_copy(content), False
    except OSError as error:
        fault = fault_of_error(error)
        reason = f"{fault.what}; {fault.remedy}" if fault else str(error)
        raise BuildError(f"the C++ compiler {tools.path} made a library that cannot be loaded: {reason}") from None


def _write_to_cache(key: str, content: bytes) -> bool:
    """Writes a library to the cache; reports the problem and returns False if that is impossible."""
    try:
        disk_cache.write("cpp", key, content)
    except MissingTool as error:
        disk_cache.report_problem(error)
        return False
    return True


def build_uncached(source: str) -> ctypes.CDLL:
    """Builds `source` now, without reading or writing the cache, and returns the loaded library."""
    tools = _with_supported_flags(toolchain())
    return _load_copy(_build(source, tools, digest(source, tools)))


def _build(source: str, tools: Toolchain, key: str, timeout: float | None = None) -> bytes:
    """Builds the library in the first usable location and returns its content."""
    if key in _timed_out:
        raise BuildError(_timed_out[key])
    timeout = timeout or _kernel_timeout(tools)
    failure: OSError | MissingTool | None = None
    for place in disk_cache.build_locations("cpp"):
        try:
            with disk_cache.build_folder(place) as folder:
                content = _build_in(folder, source, tools, timeout)
            _suspected.pop(" ".join(tools.command), None)
            return content
        except TimedOut as error:
            shown = " ".join(tools.command)
            _suspected[shown] = (_suspected.get(shown, (0, 0.0))[0] + 1, time.monotonic())
            _timed_out[key] = f"the C++ compiler {error}; CUTAWAY_COMPILE_TIMEOUT sets the limit, in seconds"
            raise TimedOut(_timed_out[key]) from None
        except (OSError, _UnusableFolder) as error:
            failure = error
    if isinstance(failure, MissingTool):
        raise failure
    raise disk_cache.no_build_location(failure)


def _kernel_timeout(tools: Toolchain) -> float:
    """Returns the time limit for compiling a kernel; it is short if compiling the previous kernel exceeded its limit.

    Raises MissingTool after a second such kernel in a row, so that a cell of many kernels does not wait for each."""
    shown = " ".join(tools.command)
    count, last = _suspected.get(shown, (0, 0.0))
    left = last + _SUSPECTED_S - time.monotonic()
    if not count or left < 0:
        _suspected.pop(shown, None)
        return config.compile_timeout()
    if count == 1:
        return _short_timeout()
    raise MissingTool(
        f"the C++ compiler {shown} exceeded its time limit for {count} kernels in a row; it is tried again "
        f"in {left:.0f} s; set CXX to another compiler"
    )


class _UnusableFolder(MissingTool):
    """A build failed because of its folder (full, read-only); another folder may work."""


def _build_in(folder: Path, source: str, tools: Toolchain, timeout: float) -> bytes:
    text, library = folder / "kernels.cpp", folder / "kernels.so"
    text.write_text(source, encoding="utf-8")
    environment = _english_environment() | {"TMPDIR": str(folder)}
    shown = f"the C++ compiler {' '.join(tools.command)}"
    try:
        external.run_checked(compile_command(tools, text, library), shown, timeout=timeout, environment=environment)
    except MissingTool as error:
        raise (_UnusableFolder(str(error)) if fault_in_output(str(error)) in FOLDER_FAULTS else error) from None
    if not library.is_file():
        raise BuildError(f"{shown} exited without an error but made no library; set CXX to a C++ compiler")
    content = library.read_bytes()
    if damage := damage_in(content):
        raise BuildError(f"{shown} exited without an error but made a damaged library: {damage}")
    if missing := missing_symbols(content, _exported_names(source)):
        raise BuildError(f"{shown} exited without an error, but its library does not define {', '.join(missing)}")
    return content


def _exported_names(source: str) -> list[str]:
    """Returns the names that C++ source defines with C linkage."""
    source = re.sub(r"__attribute__ *\(\(.*?\)\)", "", source)
    return re.findall(r'^extern "C" [^(={;"]*?(\w+) *(?:\([^;{]*\{|=)', source, re.MULTILINE)


@functools.lru_cache
def _with_supported_flags(tools: Toolchain) -> Toolchain:
    """Returns `tools` without the optional flags that this compiler does not support.

    Raises MissingTool if the compiler cannot build a library of one function.
    """
    if disk_cache.read("cpp", digest(TRIVIAL_SOURCE, tools)) is not None:
        return tools
    shown = " ".join(tools.command)
    if shown in _timed_out:
        raise MissingTool(_timed_out[shown])
    try:
        if _builds_trivial(tools) is None:
            return tools
        fewer = replace(
            tools, flags=tuple(f for f in tools.flags if f not in OPTIONAL_FLAGS or _supports_flag(tools, f))
        )
        if (error := _builds_trivial(fewer)) is None:
            return fewer
    except TimedOut:
        _timed_out[shown] = (
            f"the C++ compiler {shown} did not build a library of one function within {_short_timeout():g} s and was "
            "stopped; set CXX to one that does"
        )
        raise MissingTool(_timed_out[shown]) from None
    raise MissingTool(f"the C++ compiler {shown} does not build a library of one function: {error}")


def _builds_trivial(tools: Toolchain) -> BuildError | None:
    """Builds a library of one function; returns the error if that fails, else None."""
    key = digest(TRIVIAL_SOURCE, tools)
    try:
        content = _build(TRIVIAL_SOURCE, tools, key, _short_timeout())
    except (MissingTool, TimedOut):
        raise
    except BuildError as error:
        return error
    try:
        disk_cache.write("cpp", key, content)
    except MissingTool as error:
        disk_cache.report_problem(error)
    return None


def _supports_flag(tools: Toolchain, flag: str) -> bool:
    alone = replace(tools, flags=(flag,))
    return disk_cache.read("cpp", digest(TRIVIAL_SOURCE, alone)) is not None or _builds_trivial(alone) is None


# ---- loading -------------------------------------------------------------------------------


def _load_file(file: int, content: bytes) -> ctypes.CDLL | None:
    """Loads the library from an open file, which was verified before it was written; returns None if it cannot be
    loaded, so that it is built again."""
    with suppress(OSError):
        if _has_descriptor_paths():
            return ctypes.CDLL(_new_descriptor_path(file))
    with suppress(OSError):  # its folder may be mounted noexec
        return _load_copy(content)
    return None


@functools.cache
def _has_descriptor_paths() -> bool:
    """Returns whether open files have paths (``/proc/self/fd``)."""
    return os.path.isdir(_DESCRIPTORS)


def _new_descriptor_path(file: int) -> str:
    """Returns a path of an open file that was not used for a library before.

    The dynamic loader identifies libraries by path, and descriptor numbers are reused, so each path contains a unique
    number: its binary digits, written as ``/`` and ``/.``, before the descriptor.
    """
    digits = f"{next(_name_numbers):b}".replace("1", "/.").replace("0", "/")
    return f"{_DESCRIPTORS}{digits}/{file}"


def _load_copy(content: bytes) -> ctypes.CDLL:
    """Loads the library from a copy in memory, or on systems other than Linux from a private temporary folder."""
    if hasattr(os, "memfd_create") and _has_descriptor_paths():
        file = os.memfd_create("cutaway-kernels", os.MFD_CLOEXEC)
        with open(file, "wb") as stream:
            stream.write(content)
            stream.flush()
            return ctypes.CDLL(_new_descriptor_path(file))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.so"
        path.write_bytes(content)
        return ctypes.CDLL(str(path))


@functools.lru_cache
def _cpu_description() -> str:
    """Returns text that identifies this CPU's instruction set."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n", 1)[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(line for line in lines if line.startswith(wanted))


MAGIC = b"\x7fELF"
_BITS_64, _LITTLE, _SHARED = 2, 1, 3
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_NO_BYTES, _SYMBOLS = 8, 11
NOT_A_LIBRARY = "it is not a shared library"
TRUNCATED = "it is truncated"


def damage_in(content: bytes) -> str:
    """Returns what is wrong with a shared library for a 64-bit machine, as text; empty if it is complete.

    Libraries of other formats (Mach-O of macOS) are not checked.
    """
    if content[:4] != MAGIC:
        return "" if content[:4] in _OTHER_FORMATS else NOT_A_LIBRARY
    if len(content) < _HEADER.size or content[4] != _BITS_64 or content[5] != _LITTLE:
        return "" if len(content) >= _HEADER.size else TRUNCATED
    kind, segments, sections, counts = _tables(content)
    if kind != _SHARED:
        return NOT_A_LIBRARY
    (segment_size, segment_count), (section_size, section_count) = counts
    if segment_size != _SEGMENT.size or section_size not in (0, _SECTION.size) or not segment_count:
        return "its header is damaged"
    ends = [segments + segment_size * segment_count, sections + section_size * section_count]
    if max(ends) > len(content):
        return TRUNCATED
    ends = [at + size for _, _, at, _, _, size, _, _ in _SEGMENT.iter_unpack(content[segments : ends[0]])]
    ends += [at + size for kind, at, size, _ in _sections(content) if kind != _NO_BYTES]
    return TRUNCATED if max(ends) > len(content) else ""


def missing_symbols(content: bytes, names: Iterable[str]) -> list[str]:
    """Returns those of `names` that a complete library does not define."""
    if content[:4] != MAGIC or content[4:6] != bytes((_BITS_64, _LITTLE)):
        return []
    there: set[bytes] = set()
    sections = _sections(content)
    for kind, at, size, linked in sections:
        if kind == _SYMBOLS and linked < len(sections):
            _, start, length, _ = sections[linked]
            texts = content[start : start + length]
            for name, *_ in _SYMBOL.iter_unpack(content[at : at + size - size % _SYMBOL.size]):
                there.add(texts[name : texts.find(b"\0", name)])
    return [name for name in names if name.encode() not in there]


_OTHER_FORMATS = frozenset({b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"})
"""The magic numbers of Mach-O."""


def _tables(content: bytes) -> tuple[int, int, int, tuple[tuple[int, int], tuple[int, int]]]:
    """Returns the file type, the offsets of the program header and section header tables, and the size and number of
    entries of each table."""
    _, kind, _, _, _, segments, sections, _, _, *counts, _ = _HEADER.unpack_from(content)
    return kind, segments, sections, ((counts[0], counts[1]), (counts[2], counts[3]))


def _sections(content: bytes) -> list[tuple[int, int, int, int]]:
    """Returns the type, offset, size and linked section of each section."""
    _, _, start, (_, (size, count)) = _tables(content)
    table = content[start : start + size * count]
    return [(kind, at, size, linked) for _, kind, _, _, at, size, linked, _, _, _ in _SECTION.iter_unpack(table)]

"""Triton's compiler under our limits: its programs have a time limit, its kernels are kept in the kernel cache, and
two faults of its PTX are worked around.

Triton itself keeps a folder of files per kernel and trusts its content.  Here each kernel is one file with a checksum
(`compiler_core.codegen.build.disk_cache`), unpacked to a temporary folder for Triton to read.

Triton's cache key has a digest of Triton's files.  The library has 460 MB, and each thread that compiles reads it,
since nothing makes the others wait for the first one: a second of each, or more.  Here the library's digest is the one
in the list of files of its wheel.

Triton 3.6's LLVM computes small quotients of an index in 16 bits and in pairs; of three quotients, one is in a pair
with an undefined half.  Where it then takes the pair for a 32-bit offset, the kernel loads from wild addresses.

Triton 3.8's LLVM counts the lines of inline assembly, which most loads and stores are, as lines of the kernel: a
load in line 14 whose text has five lines is in line 18, and so is what follows it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import io
import os
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

from compiler_core import config
from compiler_core.codegen.build import disk_cache, external
from compiler_core.codegen.build.kernel_lookups import add_lookup
from compiler_core.errors import MissingTool
from compiler_core.instruments import tool
from compiler_core.support.fork_locks import replace_after_fork

_lock = threading.RLock()
replace_after_fork(sys.modules[__name__], "_lock")
_MODULES_WITH_SUBPROCESS = ("triton.knobs", "triton.backends.nvidia.compiler", "triton.runtime.build")
"""Triton's modules that run an assembler or a compiler through `subprocess`."""


class Programs:
    """Replaces the module `subprocess` in Triton: each program has a time limit, and is killed with its child
    processes.

    It has the functions of `subprocess` that Triton calls to run a program, without input.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def run(
        self, command: list[str], *, check: bool = False, stdout: Any = None, stderr: Any = None, **_: Any
    ) -> subprocess.CompletedProcess[str]:
        """Like `subprocess.run`, for outputs that are dropped, written to a file, or merged.  Raises TimedOut."""
        done = external.run(command, timeout=self._timeout)
        merged = done.out + done.err if stderr == subprocess.STDOUT else done.out
        for text, file in ((merged, stdout), (done.err, stderr)):
            if hasattr(file, "fileno"):  # Triton's was opened for reading, and its descriptor for both
                with open(os.dup(file.fileno()), "w", encoding="utf-8") as stream:
                    stream.write(text)
        if check and done.status:
            raise subprocess.CalledProcessError(done.status, command, merged, done.err)
        return subprocess.CompletedProcess(command, done.status, merged, done.err)

    def check_call(self, command: list[str], **options: Any) -> int:
        return self.run(command, check=True, **options).returncode

    def check_output(self, command: list[str], **options: Any) -> bytes:
        return self.run(command, check=True, **options).stdout.encode()


@functools.cache
def _triton_key() -> str | None:
    """Returns a digest of Triton's files, for its `triton_key`; None if no wheel says that of its library."""
    import triton

    root = Path(triton.__file__).parent
    known = {}
    with suppress(importlib.metadata.PackageNotFoundError):
        for each in importlib.metadata.distribution("triton").files or ():
            known[Path(str(each.locate()))] = each
    found = hashlib.sha256(triton.__version__.encode())
    for library in sorted(root.rglob("*.so")):
        installed = known.get(library)
        if installed is None or installed.hash is None or installed.size != library.stat().st_size:
            return None
        found.update(installed.hash.value.encode())
    for source in sorted(root.rglob("*.py")):
        found.update(source.read_bytes())
    return found.hexdigest()


@contextmanager
def _replaced(modules: Sequence[str], name: str, value: Any) -> Iterator[None]:
    """Replaces an attribute of the modules that have it, inside the block."""
    there = list[tuple[Any, Any]]()
    for each in modules:
        with suppress(ImportError):
            module = importlib.import_module(each)
            if hasattr(module, name):
                there.append((module, getattr(module, name)))
    try:
        for module, _ in there:
            setattr(module, name, value)
        yield
    finally:
        for module, before in there:
            setattr(module, name, before)


@contextmanager
def with_sealed_cache() -> Iterator[None]:
    """Makes Triton use the kernel cache for kernels compiled inside the block, on any thread, and right lines in PTX.

    Its tools run as `Programs`.
    """
    from triton import knobs

    triton_lookups = tool("triton_lookups")
    with (
        _lock,
        disk_cache.any_build_folder("triton") as inside,
        knobs.cache.scope(),
        knobs.runtime.scope(),
        triton_lookups(add_lookup, _unheard) if triton_lookups else nullcontext(),
        _replaced(["triton.runtime.cache"], "triton_key", _triton_key) if _triton_key() else nullcontext(),
        _replaced(_MODULES_WITH_SUBPROCESS, "subprocess", Programs(config.compile_timeout())),
    ):
        knobs.cache.dir = str(inside)
        knobs.cache.manager_class = _cache_manager()
        knobs.runtime.add_stages_inspection_hook = _StagesHook(knobs.runtime.add_stages_inspection_hook)
        yield


def _unheard(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that raises nothing: what is noted of a kernel must not fail its compile."""

    @functools.wraps(function)
    def unheard(*args: Any) -> None:
        with suppress(Exception):
            function(*args)

    return unheard


class _StagesHook:
    """Triton's hook on the stages of a compile: the assembler gets PTX whose lines are right.

    Without arguments it returns what the stages add to the cache's key, and that text's hash.
    """

    _KEY = "no locations in inline assembly"

    def __init__(self, of_user: Callable[..., Any] | None) -> None:
        self._of_user = of_user

    def __call__(self, *arguments: Any) -> tuple[str, str] | None:
        of_user = self._of_user(*arguments) if self._of_user else ("", "")
        if not arguments:
            key = self._KEY + of_user[0]
            return key, hashlib.sha256(key.encode()).hexdigest()
        stages = arguments[1]
        if make := stages.get("ptx"):
            stages["ptx"] = lambda source, metadata: without_assembly_locations(make(source, metadata))
        return None


@functools.cache
def _cache_manager() -> Any:
    from triton.runtime.cache import FileCacheManager

    class Packed(FileCacheManager):  # type: ignore[misc]
        """Triton's cache manager on a temporary folder; each group of files is kept as one packed entry."""

        def get_group(self, filename: str) -> dict[str, str] | None:
            packed = disk_cache.read("triton", self._packed(filename))
            if packed is None:
                return None
            with zipfile.ZipFile(io.BytesIO(packed)) as files:
                files.extractall(self.cache_dir)
                return {name: str(Path(self.cache_dir, name)) for name in files.namelist()}

        def put_group(self, filename: str, group: dict[str, str]) -> str:
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as files:
                for name, path in group.items():
                    files.write(path, name)
            try:
                disk_cache.write("triton", self._packed(filename), buffer.getvalue())
            except MissingTool as error:
                disk_cache.report_problem(error)
            return filename

        def _packed(self, filename: str) -> str:
            return hashlib.sha256(f"{self.key}/{filename}".encode()).hexdigest()

    return Packed


_PAIR = re.compile(r"mov\.b32\s+%r\d+,\s*\{")
_STATEMENT = re.compile(r"(?:@!?%p\d+\s+)?([a-z][\w.]*)\s+(\{[^}]*\}|[^,]+)(?:,(.*))?")
_REGISTER = re.compile(r"%r[sd]?\d+")
_OPERAND = re.compile(r"%?\w+")
_INLINE_ASSEMBLY = re.compile(r"^\s*// begin inline asm$.*?^\s*// end inline asm$", re.MULTILINE | re.DOTALL)
_LOCATION = re.compile(r"^\s*\.loc\b.*\n", re.MULTILINE)
_WIDTHS = {"%rs": 16, "%r": 32, "%rd": 64}


class _Instruction(NamedTuple):
    op: str
    text: str
    results: list[str]
    operands: list[str]


def reads_of_undefined_bits(ptx: str) -> list[str]:
    """Returns the instructions that read a register of which nothing sets some bits.

    Instructions that only move, select or combine bits may read it, and those on pairs of 16 bits.
    """
    if not _PAIR.search(ptx):  # most kernels have no such registers, and need not be parsed
        return []
    instructions = list(_instructions(ptx))
    known = {register for each in instructions for register in each.results}
    undefined: dict[str, int] = {}
    """The bits that nothing sets, for each register with such bits."""
    found = []
    for each in instructions:
        if each.op in ("mov.b32", "mov.b64") and len(each.operands) > 1:
            unset = {o: _ones(_width(o)) for o in each.operands if _REGISTER.fullmatch(o) and o not in known}
            undefined[each.results[0]] = _joined(each.operands, undefined | unset)
        elif any(undefined.get(operand) for operand in each.operands):
            bits = _undefined_in_results(each, undefined)
            if bits is None:
                found.append(each.text)
            else:
                undefined |= bits
    return found


def without_assembly_locations(ptx: str) -> str:
    """Returns the PTX without locations inside of inline assembly; the one before it holds for all of its text."""
    return _INLINE_ASSEMBLY.sub(lambda found: _LOCATION.sub("", found[0]), ptx)


def _instructions(ptx: str) -> Iterator[_Instruction]:
    for statement in re.split(r"[;\n]", re.sub(r"//.*", "", ptx)):
        if match := _STATEMENT.fullmatch(statement.strip("{} \t")):
            op, results, operands = match.groups(default="")
            text = " ".join(statement.split())
            yield _Instruction(op, text, _OPERAND.findall(results), _OPERAND.findall(operands))


def _undefined_in_results(each: _Instruction, undefined: dict[str, int]) -> dict[str, int] | None:
    """Returns the undefined bits of each result; None if the instruction computes with undefined bits."""
    masks = [undefined.get(operand, 0) for operand in each.operands]
    name = each.op.partition(".")[0]
    last = each.operands[-1]
    if len(each.results) > 1:
        return _parts(each.results, masks[0]) if name == "mov" else None
    bits = masks[0]
    if name in ("or", "xor", "selp") or (name == "and" and not last.isdecimal()):
        bits = masks[0] | masks[1]
    elif name == "and":
        bits &= int(last)
    elif name in ("shl", "shr") and last.isdecimal():
        bits = bits << int(last) if name == "shl" else bits >> int(last)
    elif name == "prmt" and (selector := re.fullmatch(r"(0x[0-9a-fA-F]+|\d+)U?", last)):
        bits = _permuted(masks[0] | masks[1] << 32, int(selector[1], 0))
    elif each.op.endswith("x2"):
        bits = _whole_halves(masks)
    elif not re.fullmatch(r"mov\.[bu]\d+|cvt\.u\d+\.u\d+", each.op):
        return None
    return {each.results[0]: bits & _ones(_width(each.results[0]))}


def _joined(parts: Sequence[str], undefined: dict[str, int]) -> int:
    bits = at = 0
    for part in parts:
        bits |= undefined.get(part, 0) << at
        at += _width(part)
    return bits


def _parts(registers: Sequence[str], bits: int) -> dict[str, int]:
    found = {}
    for register in registers:
        found[register] = bits & _ones(_width(register))
        bits >>= _width(register)
    return found


def _permuted(bits: int, selector: int) -> int:
    """Returns the bytes of two registers that ``prmt`` selects."""
    return sum((bits >> 8 * (selector >> 4 * n & 7) & 0xFF) << 8 * n for n in range(4))


def _whole_halves(masks: Sequence[int]) -> int:
    return sum(0xFFFF << at for at in (0, 16) if any(mask >> at & 0xFFFF for mask in masks))


def _width(register: str) -> int:
    """Returns a register's number of bits; 16 of one that inline assembler declares, as Triton's does for halves."""
    return _WIDTHS.get(register.rstrip("0123456789"), 16)


def _ones(count: int) -> int:
    return (1 << count) - 1

"""Compiles Triton kernels for an H100, and checks that it could launch them."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from compiler_core.codegen.triton import module as triton_module
from compiler_core.codegen.triton.module import TritonKernel
from compiler_core.errors import BuildError
from compiler_core.tools.machine_code import compiled_forms

TARGET = "sm_90"
MOST_SHARED = 227 * 1024
"""The bytes of shared memory available to a program."""
MOST_ELEMENTS = 1 << 20
"""Triton's limit on the elements of a block."""
MOST_PROGRAMS = 2**31 - 1
TOKEN = re.compile(r"#.*|\"[^\"]*\"|\d+\.\d+(?:e-?\d+)?|\d+(?:e-?\d+)?|[A-Za-z_][\w.]*|\S")


@dataclass
class Compiler:
    """Compiles each kernel once; of kernels that differ only in names and sizes, one."""

    most: int = 1 << 60
    """No more than so many are."""
    seen: set[str] = field(default_factory=set)
    compiled: int = 0

    def problems(self, text: str) -> Iterator[str]:
        """Returns what is wrong with the kernels of a module."""
        sources = dict(_functions(text))
        for name, kernel in triton_module.load(text).items():
            if name not in sources:  # an alias of an earlier kernel
                continue
            yield from (f"{name}: {problem}" for problem in _launch_problems(kernel))
            key = f"{form(sources[name])} {kernel.num_warps}"
            if self.compiled < self.most and key not in self.seen:
                self.seen.add(key)
                yield from (f"{name}: {problem}" for problem in self._compile(kernel))

    def _compile(self, kernel: TritonKernel) -> Iterator[str]:
        self.compiled += 1
        try:
            result = triton_module.compile_kernel(kernel, compiled_forms.triton_target(TARGET))
        except BuildError as error:
            yield f"{error}"
            return
        if f".entry {kernel.function.__name__}(" not in result.asm["ptx"]:
            yield "its PTX has no such entry"
        if "f64" in result.asm["ttir"] and "float64" not in kernel.function.src and "fp64" not in kernel.function.src:
            yield "it computes in float64, of which its source says nothing"
        if result.metadata.shared > MOST_SHARED:
            yield f"{result.metadata.shared:,} bytes of shared memory"


def _launch_problems(kernel: TritonKernel) -> Iterator[str]:
    blocks = {p.name: p.default for p in kernel.function.params if p.is_constexpr}
    numel = blocks.get("BLOCK_I", 1) * blocks.get("BLOCK_J", 1)
    if any(size & (size - 1) or size < 1 for size in blocks.values()):
        yield f"a block is no power of 2: {blocks}"
    if numel > MOST_ELEMENTS:
        yield f"a block has {numel:,} elements"
    if kernel.num_warps not in (1, 2, 4, 8, 16, 32):
        yield f"{kernel.num_warps} warps"
    if isinstance(kernel.grid, int) and not 0 <= kernel.grid <= MOST_PROGRAMS:
        yield f"{kernel.grid:,} programs"


def _functions(text: str) -> Iterator[tuple[str, str]]:
    """Returns the text of each kernel, without helper functions."""
    for part in re.split(r"^@triton\.jit\n", text.partition("\nLAUNCHES")[0], flags=re.MULTILINE)[1:]:
        name = part.removeprefix("def ").partition("(")[0]
        if not name.startswith("_"):
            yield name, part.partition("\n\n\n")[0]


def form(function: str) -> str:
    """Returns a kernel's text without names and comments; of sizes only the powers of 2 that divide them remain."""
    names: dict[str, str] = {}
    created: list[str] = []
    fixed = re.compile(r"tl\.|libdevice\.|_[a-z]|BLOCK_")
    for token in TOKEN.findall(function):
        if token.startswith("#"):
            continue
        if re.fullmatch(r"\d+", token):
            created.append(token if created[-1:] == ["="] else _size(int(token)))
        elif re.match(r"[A-Za-z_]", token) and not keyword.iskeyword(token) and not fixed.match(token):
            created.append(names.setdefault(token, f"n{len(names)}"))
        else:
            created.append("0.5" if re.match(r"\d", token) else token)
    return " ".join(created)


def _size(number: int) -> str:
    if number < 2:
        return str(number)
    return f"s{min((number & -number).bit_length() - 1, 4)}{'long' if number >= 2**31 else ''}"

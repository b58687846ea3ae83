"""Compiles kernels to machine code for a target, which need not be present, and records every intermediate form.

    Triton   TTIR -> TTGIR -> LLVM IR -> PTX -> SASS      for NVIDIA (sm_90 ...)
             TTIR -> TTGIR -> LLVM IR -> amdgcn           for AMD (gfx942 ...)
    C++      assembly of this machine's compiler              for this CPU, and for levels of x86-64

Each line of a form is mapped to the kernel's lines that it was compiled from.  Nothing here runs on a
device: Triton's package contains its compilers, ptxas, nvdisasm and cuobjdump.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compiler_core import config
from compiler_core.codegen.build import compilers as build
from compiler_core.codegen.build import disk_cache, external
from compiler_core.codegen.source import CPU_TARGETS, WARP_SIZES, check_target
from compiler_core.codegen.triton import module as triton_module
from compiler_core.errors import TimedOut, UsageError
from compiler_core.records import Artifact, Compile, ItemId, KernelResources, Language, Span
from compiler_core.tools.machine_code import line_map
from compiler_core.tools.machine_code.line_map import Lines, MappedLines

OUTPUT_LIMIT = 256 << 20
"""The maximum number of bytes of one graph's machine code as text."""

_READERS: dict[str, tuple[Language, Callable[[str, str], MappedLines]]] = {
    "ttir": ("mlir", line_map.mlir),
    "ttgir": ("mlir", line_map.mlir),
    "llir": ("llvm", line_map.llvm),
    "ptx": ("ptx", line_map.ptx),
    "amdgcn": ("asm", line_map.amdgcn),
}


@dataclass(frozen=True)
class ResourceUsage:
    """What one kernel uses on a GPU: registers per thread, bytes of shared memory, bytes spilled."""

    kernel: str
    registers: int
    shared: int
    spilled: int

    def text(self) -> str:
        return (
            f"{self.kernel}: {self.registers} registers a thread, {self.shared} bytes of shared memory, "
            f"{self.spilled} bytes spilled"
        )


@dataclass(frozen=True)
class CompiledForm:
    """One form of the kernels; `lines[i]` are the kernel's lines from which line i of `text` was compiled."""

    name: str
    language: Language
    text: str
    lines: tuple[Lines, ...]
    resources: tuple[ResourceUsage, ...] = ()
    """The kernels' resource usage, if this form has it."""


def compiled_forms(source: str, target: str) -> list[CompiledForm]:
    """Compiles the kernels in `source` for `target` and returns all forms, in the compiler's order.

    For a CPU the source is C++.  For a GPU it is a module of Triton kernels in the form that
    `codegen.triton` prints, with argument types, block sizes and warps; it is executed, so it must not come from an
    untrusted record.  Raises UsageError for an unknown target, BuildError if a compiler fails.
    """
    check_target(target)
    return [_cpp_assembly(source, target)] if target in CPU_TARGETS else _triton_forms(source, target)


def record_machine_code(compile_: Compile, kernel: Artifact, target: str) -> list[Artifact]:
    """Compiles a kernel artifact and adds its forms to the compile, every line linked to the kernel's lines.

    The artifacts are named ``forward.cpu.asm``, ``forward.sm_90.ptx`` and so on; if they exist
    already, they are returned unchanged.  Raises UsageError if the target does not fit the kernel's language.
    """
    check_target(target)
    if (kernel.language == "triton") == (target in CPU_TARGETS):
        raise UsageError(f"{kernel.name} is a {kernel.language} kernel, which cannot be compiled for target {target!r}")
    prefix = f"{Path(kernel.name).stem}.{target}."
    there = [a for a in compile_.artifacts if a.pane == "machine" and a.name.startswith(prefix)]
    if there:
        return there
    with compile_.step("build", f"machine code of {kernel.name} for {target}"):
        forms = compiled_forms(kernel.text, target)
    for each in (r for stage in forms for r in stage.resources):
        compile_.resources.append(KernelResources(each.kernel, target, each.registers, each.shared, each.spilled))
    return [_add_artifact(compile_, kernel, prefix + stage.name, stage) for stage in forms]


def _add_artifact(compile_: Compile, kernel: Artifact, name: str, stage: CompiledForm) -> Artifact:
    """Adds one form as an artifact, with a span for each run of lines compiled from the same lines of the kernel."""
    # wide spans first, so that a line is assigned to the narrowest span that contains it
    spans = sorted(kernel.spans, key=lambda span: span.first - span.last)
    keys = {line: span.key for span in spans for line in range(span.first, span.last + 1)}
    runs: list[tuple[Span, list[ItemId]]] = []
    previous: list[ItemId] = []
    for number, lines in enumerate(stage.lines, 1):
        sources = [kernel.item(keys[line]) for line in lines if line in keys]
        if sources and sources == previous:
            runs[-1][0].last = number
        elif sources:
            runs.append((Span(str(number), number, number), sources))
        previous = sources
    artifact = compile_.artifact("machine", name, stage.language, stage.text, [span for span, _ in runs])
    for span, sources in runs:
        compile_.link(artifact.item(span.key), sources, stage.name)
    return artifact


def _form(name: str, language: Language, mapped: MappedLines, used: ResourceUsage | None = None) -> CompiledForm:
    if used:
        mapped = [(f"{_COMMENT[name]} {used.text()}", ()), *mapped]
    text = "".join(f"{text}\n" for text, _ in mapped)
    return CompiledForm(name, language, text, tuple(lines for _, lines in mapped), (used,) if used else ())


_COMMENT = {"sass": "//", "amdgcn": ";"}


def _cpp_assembly(source: str, target: str) -> CompiledForm:
    tools = build.toolchain()
    flags = (flag.replace("-march=native", f"-march={CPU_TARGETS[target]}") for flag in tools.flags)
    tools = replace(tools, flags=tuple(flags))
    with disk_cache.any_build_folder("cpp") as folder:
        path = folder / "kernel.cpp"
        path.write_text(source, encoding="utf-8")
        text = _run(build.compile_command(tools, path, Path("-"), ("-g", "-S", "-std=c++17", "-w")))
    return _form("asm", "asm", line_map.gnu_assembly(text, path.name))


def _triton_forms(source: str, target: str) -> list[CompiledForm]:
    """Compiles each kernel and joins their texts, one text per form; a kernel with several names is in it once."""
    kernels = triton_module.load(source)
    names: dict[int, list[str]] = {}
    for kernel in kernels.values():
        names.setdefault(id(kernel.function), []).append(kernel.name)
    forms: dict[str, list[CompiledForm]] = {}
    for first, *others in names.values():
        for stage in _forms_of_kernel(kernels[first], target):
            used = stage.resources + tuple(replace(r, kernel=name) for name in others for r in stage.resources)
            forms.setdefault(stage.name, []).append(replace(stage, resources=used))
    return [_join_forms(of_kernels) for of_kernels in forms.values()]


def _join_forms(forms: Sequence[CompiledForm]) -> CompiledForm:
    """Joins the same form of several kernels, separated by empty lines."""
    lines = forms[0].lines
    for stage in forms[1:]:
        lines = (*lines, (), *stage.lines)
    resources = tuple(used for stage in forms for used in stage.resources)
    return replace(forms[0], text="\n".join(stage.text for stage in forms), lines=lines, resources=resources)


def triton_target(target: str) -> triton_module.Target:
    """Returns one of the GPU targets in Triton's terms."""
    if target.startswith("sm_"):
        return triton_module.Target("cuda", int(target.removeprefix("sm_")), WARP_SIZES[target])
    return triton_module.Target("hip", target, WARP_SIZES[target])


def _forms_of_kernel(kernel: triton_module.TritonKernel, target: str) -> list[CompiledForm]:
    compiled = triton_module.compile_kernel(kernel, triton_target(target))
    asm, file = compiled.asm, kernel.file
    forms = []
    for name, (language, read) in _READERS.items():
        if name in asm:
            used = _amd_resources(kernel.name, compiled) if name == "amdgcn" else None
            forms.append(_form(name, language, read(asm[name], file), used))
    return [*forms, _sass(kernel, compiled)] if "cubin" in asm else forms


def _sass(kernel: triton_module.TritonKernel, compiled: Any) -> CompiledForm:
    disassembler, dumper = _nvidia_tool("nvdisasm"), _nvidia_tool("cuobjdump")
    if disassembler is None or dumper is None:
        missing = "// no SASS without nvdisasm and cuobjdump, which come with the CUDA toolkit"
        return _form("sass", "sass", [(missing, ())])
    with disk_cache.any_build_folder("cpp") as folder:
        path = folder / "kernel.cubin"
        path.write_bytes(compiled.asm["cubin"])
        text = _run([disassembler, "-c", "--print-line-info", str(path)])
        usage = _run([dumper, "--dump-resource-usage", str(path)])
    inlined = line_map.inlined_callers(compiled.asm["ptx"], kernel.file)
    used = _nvidia_resources(kernel.name, usage, compiled.metadata.shared)
    return _form("sass", "sass", line_map.sass(text, kernel.file, inlined), used)


def _nvidia_resources(kernel: str, usage: str, shared: int) -> ResourceUsage:
    counts = {name: int(count) for name, count in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", usage)}
    return ResourceUsage(kernel, counts["REG"], shared, counts["STACK"] + counts["LOCAL"])


def _amd_resources(kernel: str, compiled: Any) -> ResourceUsage:
    metadata = re.findall(r"^    \.(\w+):\s+(\d+)$", compiled.asm["amdgcn"], re.MULTILINE)
    counts = {name: int(count) for name, count in metadata}
    return ResourceUsage(kernel, counts["vgpr_count"], compiled.metadata.shared, counts["private_segment_fixed_size"])


def _nvidia_tool(name: str) -> str | None:
    """Returns the path of a CUDA tool: the one in Triton's package, else the one on PATH, else None."""
    spec = importlib.util.find_spec("triton.backends.nvidia")
    bundled = [Path(folder) / "bin" for folder in spec.submodule_search_locations or ()] if spec else []
    return shutil.which(name, path=os.pathsep.join(map(str, bundled))) or shutil.which(name)


def _run(command: list[str]) -> str:
    what = Path(command[0]).name
    try:
        return external.run_checked(command, what, timeout=config.compile_timeout(), limit=OUTPUT_LIMIT).out
    except TimedOut as error:
        raise TimedOut(f"{error}; CUTAWAY_COMPILE_TIMEOUT sets the limit, in seconds") from None

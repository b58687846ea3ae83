"""The forms of a kernel on its way to machine code, for a target that need not be here.

    Triton   TTIR -> TTGIR -> LLVM IR -> PTX -> SASS      for NVIDIA (sm_90 ...)
             TTIR -> TTGIR -> LLVM IR -> amdgcn           for AMD (gfx942 ...)
    C++      assembly of this machine's compiler              for this CPU, and for levels of x86-64

Each stage knows from which of the kernel's lines each of its lines came.  Nothing here runs on a
device: Triton brings its compilers along, and ptxas, nvdisasm and cuobjdump with them.
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
from compiler_core.codegen.machine_code import line_map
from compiler_core.codegen.machine_code.line_map import Lines, Mapped
from compiler_core.codegen.triton import module as triton_module
from compiler_core.errors import TimedOut, UsageError
from compiler_core.records import Artifact, Compile, ItemId, KernelResources, Language, Span

CPUS = {"cpu": "native", **{level: level for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4")}}
"""The CPUs that can be named as a target, as C++ compilers name them."""
WARP_SIZES = {
    **dict.fromkeys(("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"), 32),
    **dict.fromkeys(("gfx90a", "gfx942", "gfx950"), 64),
    **dict.fromkeys(("gfx1100", "gfx1201"), 32),
}
"""The GPUs that can be named as a target, and how many threads a warp of each has."""

MOST_TEXT = 256 << 20
"""Bytes of machine code as text, of one graph's kernels."""

_READERS: dict[str, tuple[Language, Callable[[str, str], Mapped]]] = {
    "ttir": ("mlir", line_map.mlir),
    "ttgir": ("mlir", line_map.mlir),
    "llir": ("llvm", line_map.llvm),
    "ptx": ("ptx", line_map.ptx),
    "amdgcn": ("asm", line_map.amdgcn),
}


@dataclass(frozen=True)
class Resources:
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
class MachineStage:
    """One form of the kernels; `lines[i]` are the kernel source's lines behind line i of `text`."""

    name: str
    language: Language
    text: str
    lines: tuple[Lines, ...]
    resources: tuple[Resources, ...] = ()
    """What the kernels take of the target, where this stage tells."""


def targets() -> list[str]:
    """The names of targets."""
    return [*CPUS, *WARP_SIZES]


def check_target(target: str) -> None:
    """UsageError where `target` is not one of `targets()`."""
    if target not in targets():
        raise UsageError(f"unknown target {target!r}; known are {', '.join(targets())}")


def machine_stages(source: str, target: str) -> list[MachineStage]:
    """All forms of the kernels in `source`, first to last.

    For a CPU the source is C++.  For any other target it is a module of Triton kernels as
    `codegen.triton` writes them, which says all that is needed (argument types, block sizes,
    warps); it is imported, so it must be one that we wrote.
    """
    check_target(target)
    return [_native(source, target)] if target in CPUS else _triton(source, target)


def record_machine_code(compile_: Compile, kernel: Artifact, target: str) -> list[Artifact]:
    """Add the forms of a kernel artifact to its compile, every line linked to the kernel's lines.

    The artifacts are named ``forward.cpu.asm``, ``forward.sm_90.ptx`` and so on; where they are
    there already, they are returned as they are.
    """
    check_target(target)
    if (kernel.language == "triton") == (target in CPUS):
        raise UsageError(f"{kernel.name} is {kernel.language}: target {target!r} is for the other kind of kernel")
    prefix = f"{Path(kernel.name).stem}.{target}."
    there = [a for a in compile_.artifacts if a.pane == "machine" and a.name.startswith(prefix)]
    if there:
        return there
    with compile_.step("build", f"machine code of {kernel.name} for {target}"):
        forms = machine_stages(kernel.text, target)
    for each in (r for stage in forms for r in stage.resources):
        compile_.resources.append(KernelResources(each.kernel, target, each.registers, each.shared, each.spilled))
    return [_record(compile_, kernel, prefix + stage.name, stage) for stage in forms]


def _record(compile_: Compile, kernel: Artifact, name: str, stage: MachineStage) -> Artifact:
    """One span for each run of lines that came from the same lines of the kernel."""
    # the narrowest span that has a line comes last
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


def _stage(name: str, language: Language, mapped: Mapped, used: Resources | None = None) -> MachineStage:
    if used:
        mapped = [(f"{_COMMENT[name]} {used.text()}", ()), *mapped]
    text = "".join(f"{text}\n" for text, _ in mapped)
    return MachineStage(name, language, text, tuple(lines for _, lines in mapped), (used,) if used else ())


_COMMENT = {"sass": "//", "amdgcn": ";"}


def _native(source: str, target: str) -> MachineStage:
    tools = build.toolchain()
    flags = (flag.replace("-march=native", f"-march={CPUS[target]}") for flag in tools.flags)
    tools = replace(tools, flags=tuple(flags))
    with disk_cache.some_workshop("cpp") as folder:
        path = folder / "kernel.cpp"
        path.write_text(source, encoding="utf-8")
        text = _run(build.compile_command(tools, path, Path("-"), ("-g", "-S", "-std=c++17", "-w")))
    return _stage("asm", "asm", line_map.native(text, path.name))


def _triton(source: str, target: str) -> list[MachineStage]:
    """The forms of each kernel in turn, joined to one text a stage; a kernel of several names stands there once."""
    kernels = triton_module.load(source)
    names: dict[int, list[str]] = {}
    for kernel in kernels.values():
        names.setdefault(id(kernel.function), []).append(kernel.name)
    forms: dict[str, list[MachineStage]] = {}
    for first, *others in names.values():
        for stage in _kernel_rungs(kernels[first], target):
            used = stage.resources + tuple(replace(r, kernel=name) for name in others for r in stage.resources)
            forms.setdefault(stage.name, []).append(replace(stage, resources=used))
    return [_joined(of_kernels) for of_kernels in forms.values()]


def _joined(forms: Sequence[MachineStage]) -> MachineStage:
    """The same stage of several kernels, an empty line between two."""
    lines = forms[0].lines
    for stage in forms[1:]:
        lines = (*lines, (), *stage.lines)
    resources = tuple(used for stage in forms for used in stage.resources)
    return replace(forms[0], text="\n".join(stage.text for stage in forms), lines=lines, resources=resources)


def triton_target(target: str) -> triton_module.Target:
    """How Triton names one of `targets()`."""
    if target.startswith("sm_"):
        return triton_module.Target("cuda", int(target.removeprefix("sm_")), WARP_SIZES[target])
    return triton_module.Target("hip", target, WARP_SIZES[target])


def _kernel_rungs(kernel: triton_module.Kernel, target: str) -> list[MachineStage]:
    compiled = triton_module.compile_kernel(kernel, triton_target(target))
    asm, file = compiled.asm, kernel.file
    forms = []
    for name, (language, read) in _READERS.items():
        if name in asm:
            used = _amd_resources(kernel.name, compiled) if name == "amdgcn" else None
            forms.append(_stage(name, language, read(asm[name], file), used))
    return [*forms, _sass(kernel, compiled)] if "cubin" in asm else forms


def _sass(kernel: triton_module.Kernel, compiled: Any) -> MachineStage:
    disassembler, dumper = _nvidia_tool("nvdisasm"), _nvidia_tool("cuobjdump")
    if disassembler is None or dumper is None:
        missing = "// no SASS without nvdisasm and cuobjdump, which come with the CUDA toolkit"
        return _stage("sass", "sass", [(missing, ())])
    with disk_cache.some_workshop("cpp") as folder:
        path = folder / "kernel.cubin"
        path.write_bytes(compiled.asm["cubin"])
        text = _run([disassembler, "-c", "--print-line-info", str(path)])
        usage = _run([dumper, "--dump-resource-usage", str(path)])
    inlined = line_map.inlined_calls(compiled.asm["ptx"], kernel.file)
    used = _nvidia_resources(kernel.name, usage, compiled.metadata.shared)
    return _stage("sass", "sass", line_map.sass(text, kernel.file, inlined), used)


def _nvidia_resources(kernel: str, usage: str, shared: int) -> Resources:
    counts = {name: int(count) for name, count in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", usage)}
    return Resources(kernel, counts["REG"], shared, counts["STACK"] + counts["LOCAL"])


def _amd_resources(kernel: str, compiled: Any) -> Resources:
    metadata = re.findall(r"^    \.(\w+):\s+(\d+)$", compiled.asm["amdgcn"], re.MULTILINE)
    counts = {name: int(count) for name, count in metadata}
    return Resources(kernel, counts["vgpr_count"], compiled.metadata.shared, counts["private_segment_fixed_size"])


def _nvidia_tool(name: str) -> str | None:
    """The tool in Triton's package, else on the path."""
    spec = importlib.util.find_spec("triton.backends.nvidia")
    bundled = [Path(folder) / "bin" for folder in spec.submodule_search_locations or ()] if spec else []
    return shutil.which(name, path=os.pathsep.join(map(str, bundled))) or shutil.which(name)


def _run(command: list[str]) -> str:
    what = Path(command[0]).name
    try:
        return external.checked(command, what, timeout=config.compile_timeout(), limit=MOST_TEXT).out
    except TimedOut as error:
        raise TimedOut(f"{error}; CUTAWAY_COMPILE_TIMEOUT is the limit in seconds") from None

"""Prints the C functions that call the kernels of a run in order (`codegen/wrapper/runs.py` plans them)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from compiler_core.codegen.cpp.ops import memory_type
from compiler_core.codegen.source import KernelSource, LineOrigin
from compiler_core.loops import ir


def with_run_functions(code: KernelSource, runs: Sequence[ir.Run], buffers: Mapping[str, ir.Buffer]) -> KernelSource:
    """Returns C++ kernels with a function for each run after them; other kernels unchanged."""
    if code.language != "cpp" or not runs:
        return code
    lines = code.text.splitlines()
    origins = [*code.lines]
    for run in runs:
        lines.append("")
        for line, called in _RunPrinter(run, buffers).lines():
            lines.append(line)
            origins.append(LineOrigin(len(lines), run.name, calls=called))
    return replace(code, text="\n".join(lines) + "\n", lines=tuple(origins))


class _RunPrinter:
    def __init__(self, run: ir.Run, buffers: Mapping[str, ir.Buffer]) -> None:
        self._run = run
        self._types = {name: memory_type(buffers[name].dtype) for each in run.kernels for name in each.arguments}
        self._names = {name: f"{'out' if name in run.writes else 'in'}_{name}" for name in run.arguments}
        self._names |= {name: f"tmp_{name}" for name in run.places}
        self._names |= {run.workspace.name: run.workspace.name} if run.workspace else {}

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yields the lines, each with the name of the kernel that it calls, if it calls one."""
        run = self._run
        returned = "i64" if run.may_fail else "void"
        yield f'extern "C" {returned} {run.name}({", ".join(self._parameters())}) noexcept {{', ""
        if run.workspace and run.workspace.kind == "stack":
            yield f"  alignas(64) char {run.workspace.name}[{run.workspace.numel}];", ""
        for name, (of, offset) in run.places.items():
            start, kind = self._names[of], self._types[name]
            yield f"  {kind}* const {self._names[name]} = ({kind}*)((char*){start} + {offset});", ""
        for kernel in run.kernels:
            arguments = [*(self._names[name] for name in kernel.arguments), *kernel.scalars]
            call = f"{kernel.name}({', '.join(arguments)})"
            yield f"  if ({call}) return 1;" if kernel.may_fail else f"  {call};", kernel.name
        if run.may_fail:
            yield "  return 0;", ""
        yield "}", ""

    def _parameters(self) -> Iterator[str]:
        run = self._run
        for name in run.arguments:
            kind = self._types.get(name, "u8")  # or the workspace
            yield f"{'' if name in (*run.writes, *run.makes) else 'const '}{kind}* {self._names[name]}"
        yield from (f"f64 {name}" for name in run.scalars)

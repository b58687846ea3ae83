"""Records what one graph of ATen operators was compiled to: loops, kernels, wrapper, memory plan, machine code.

The artifacts are linked line by line to what each line was made from:

    wrapper line  <-  kernel line  <-  loop IR line  <-  graph node
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Literal

import torch
import torch.fx as fx

from compiler_core.autograd.mincut import count_operations
from compiler_core.codegen.build import compilers
from compiler_core.codegen.cpp import printer as cpp
from compiler_core.codegen.source import CPU_TARGETS, KernelSource
from compiler_core.codegen.triton import printer as triton
from compiler_core.codegen.wrapper import memory_plan
from compiler_core.codegen.wrapper.writer import Wrapper
from compiler_core.hook.failures import only_recorded
from compiler_core.instruments import tool
from compiler_core.loops import ir
from compiler_core.loops.fuse.rewriter import FusionRequests, FusionResult
from compiler_core.loops.ir.nest import Do, For, Local, Nest, Node
from compiler_core.loops.schedule.block_sizes import Blocks
from compiler_core.records import (
    Artifact,
    Compile,
    Fusion,
    FusionRefusal,
    ItemId,
    Kernel,
    NestLoop,
    PlannedBuffer,
    PlannedMemory,
    Rewrite,
    Schedule,
    Span,
)
from compiler_core.support import opaque_ops
from compiler_core.support.fx_graphs import target_name
from compiler_core.support.size_expr import Int, hint

Which = Literal["forward", "backward"]
NO_KERNELS = (operator.getitem, torch.ops.aten.empty_strided.default)
"""Calls that compute nothing and are not recorded as kernels."""


def step_counts(program: ir.Program) -> str:
    """Returns how many loops and calls of PyTorch's kernels a program has, as text for the record."""
    loops = sum(isinstance(s, ir.Loops) for s in program.steps)
    return f"loops: {loops}, calls of PyTorch's kernels: {len(program.steps) - loops}"


class KernelRecorder:
    """Writes the fused loops, kernels, wrapper and memory plan of one graph into the record, with their links."""

    def __init__(self, compile_: Compile, which: Which, program: ir.Program, block_sizes: Mapping[str, Blocks]) -> None:
        self._compile, self._which, self._program, self._block_sizes = compile_, which, program, block_sizes
        self._loops = [s for s in program.steps if isinstance(s, ir.Loops)]
        self._kernels: dict[ir.Language, Artifact] = {}

    def record_kernels(
        self, fused: FusionResult, codes: Sequence[KernelSource], wrapper: Wrapper, launched: Wrapper
    ) -> None:
        """Records everything from the fused loops to the wrapper, which calls the kernels one by one; `launched` is
        the one that runs."""
        loops = self._record_loops()
        self._record_rewrites(fused, loops)
        self._record_schedules(codes, loops)
        self._kernels = {code.language: self._record_code(code, loops) for code in codes}
        lines = self._record_wrapper("wrapper", wrapper)
        if launched is not wrapper:
            self._record_wrapper("launch", launched)
        self._record_fusions(fused)
        for number, step in enumerate(self._program.steps):
            item = self._kernel_item(step) if isinstance(step, ir.Loops) else lines.get(step.name)
            self._record_kernel(number, step, item)

    def _kernel_item(self, loops: ir.Loops) -> ItemId:
        """Returns the item of a kernel's lines in the artifact of its language."""
        return self._kernels[self._program.language(loops)].item(loops.name)

    def record_unknown_requests(self, requests: FusionRequests) -> None:
        """Records the fusion requests for nodes that do not exist, once for both graphs."""
        nodes = {s.key for a in self._compile.artifacts if a.pane in ("forward", "backward") for s in a.spans}
        for pair in (*requests.keep_apart, *requests.force_fuse) if self._which == "forward" else ():
            if missing := [name for name in pair if name not in nodes]:
                reason = f"neither forward nor backward has a node {' or '.join(missing)}, so the request has no effect"
                self._compile.refusals.append(FusionRefusal("unknown", *pair, reason))

    def record_memory_plan(self, by_kernel: memory_plan.MemoryPlan, planned: memory_plan.MemoryPlan) -> None:
        """Records what is allocated and when: `planned`, and where the buffers within a run of it are, of which
        `by_kernel` has the first and last use."""
        counts = [len(step.kernels) if isinstance(step, ir.Run) else 1 for step in planned.steps]
        lasts = [end - 1 for end in itertools.accumulate(counts)]
        firsts = [1 + last - count for last, count in zip(lasts, counts, strict=True)]
        buffers = [
            PlannedBuffer(
                n,
                planned.bytes[n],
                firsts[at],
                lasts[planned.last_uses[n]] if n in planned.last_uses else None,
                planned.reuses.get(n),
                n in planned.retained,
            )
            for n, at in planned.producers.items()
        ]
        buffers += [
            PlannedBuffer(n, by_kernel.bytes[n], by_kernel.producers[n], by_kernel.last_uses[n], within=of)
            for run in planned.runs
            for n, (of, _) in run.places.items()
        ]
        released = {name: lasts[at] for name, at in planned.last_uses.items() if name not in planned.producers}
        peaks = by_kernel.peak_before, planned.peak
        self._compile.memory.append(PlannedMemory(self._which, *peaks, buffers, released))

    def record_machine_code(self, target: str, strict: bool) -> None:
        """Records the machine code of the kernels for `target`.

        Without kernels in the language of the target, all kernels are printed in that language for this purpose.
        """
        compile_for_target = tool("record_machine_code")
        if not self._loops or compile_for_target is None:
            return
        language: ir.Language = "cpp" if target in CPU_TARGETS else "triton"
        with only_recorded(self._compile, "build", f"the machine code for {target}", strict):
            if language not in self._kernels:
                loops = self._compile.find(f"{self._which}.loops")
                self._kernels[language] = self._record_code(generate(self._program, language, self._block_sizes), loops)
            compile_for_target(self._compile, self._kernels[language], target)

    def _record_rewrites(self, fused: FusionResult, loops: Artifact) -> None:
        """Writes the artifact of fusion: a line for each rewrite, linked to its kernel, and for each refusal."""
        lines = [
            f"{r.rule}: {r.before[0]} into {r.before[1]} -> {r.after}   # {r.reason}; saves {r.bytes_saved:,} bytes"
            for r in fused.rewrites
        ]
        lines += [f"apart: {first} | {second}   # {r.kind}: {r.reason}" for first, second, r in fused.refusals]
        spans = [Span(str(n), n, n) for n in range(1, len(lines) + 1)]
        artifact = self._compile.artifact("fusion", f"{self._which}.fusion", "text", "\n".join(lines) + "\n", spans)
        numbers = {id(r): str(n) for n, r in enumerate(fused.rewrites, 1)}
        for nest in self._loops:
            of = [artifact.item(numbers[id(r)]) for r in fused.rewrites_by_loops.get(nest.name, ())]
            self._compile.link(loops.item(nest.name), of, "fuse")

    def _record_loops(self) -> Artifact:
        """Writes the loops as text.  Items: ``name`` for all lines of a kernel, ``name.0`` etc. for its statements."""
        lines: list[str] = []
        spans: list[Span] = []
        for loops in self._loops:
            first = len(lines) + 1
            for at, (line, _) in enumerate(loops.lines()):
                lines.append(line)
                if at:
                    spans.append(Span(f"{loops.name}.{at - 1}", len(lines), len(lines)))
            spans.append(Span(loops.name, first, len(lines)))
            lines.append("")
        artifact = self._compile.artifact("fusion", f"{self._which}.loops", "text", "\n".join(lines), spans)
        for loops in self._loops:
            self._compile.link(artifact.item(loops.name), loops.origin, "fuse")
            for at, statement in enumerate(loops.body):
                self._compile.link(artifact.item(f"{loops.name}.{at}"), statement.origin, "lower")
        return artifact

    def _record_schedules(self, codes: Sequence[KernelSource], loops: Artifact) -> None:
        """Writes the scheduled loop nests as text, each below the rewrites that made it.

        Items: ``name`` for all lines of a kernel, a number for each line of a statement.
        """
        schedules = {name: made for code in codes for name, made in code.schedules.items()}
        lines: list[str] = []
        spans: list[Span] = []
        links: dict[str, str] = {}
        for name, made in schedules.items():
            like = made.loops.name if made.loops.name != name else ""
            steps = [("", "", made.start), *((r.text, r.reason, r.nest) for r in made.rewrites)]
            rewrites = [_rewrite(*step) for step in steps if not like]
            if like:
                own = next(each for each in self._loops if each.name == name)
                rewrites = [Rewrite(_renamed(text, made.loops, own), why, "", [], []) for text, why, _ in steps]
            self._compile.schedules.append(Schedule(name, self._which, like, rewrites))
            first = len(lines) + 1
            if like:
                lines.append(f"{name}: as {like}")
            else:
                lines += [f"# {r.text}: {r.reason}" if r.reason else f"# {r.text}" for r in rewrites[1:]]
                for text, number in zip(rewrites[-1].nest.splitlines(), rewrites[-1].statements, strict=True):
                    lines.append(text)
                    if number >= 0:
                        spans.append(Span(str(len(lines)), len(lines), len(lines)))
                        links[str(len(lines))] = f"{name}.{number}"
            spans.append(Span(name, first, len(lines)))
            links[name] = name
            lines.append("")
        if not lines:
            return
        artifact = self._compile.artifact("schedule", f"{self._which}.schedule", "text", "\n".join(lines), spans)
        for key, of in links.items():
            self._compile.link(artifact.item(key), [loops.item(of)], "schedule")

    def _record_code(self, code: KernelSource, loops: Artifact) -> Artifact:
        """Writes the source of the kernels.  Items: ``name`` for all lines of a kernel, a number for each line."""
        extent: dict[str, list[int]] = {}
        for line in code.lines:
            extent.setdefault(line.kernel, []).append(line.number)
        runs: dict[str, list[str]] = {}
        for line in code.lines:
            if line.calls:
                runs.setdefault(line.kernel, []).append(line.calls)
        spans = [Span(str(line.number), line.number, line.number) for line in code.lines]
        spans += [Span(kernel, min(numbers), max(numbers)) for kernel, numbers in extent.items()]
        suffix = {"cpp": "cpp", "triton": "py"}[code.language]
        artifact = self._compile.artifact("kernel", f"{self._which}.{suffix}", code.language, code.text, spans)
        for line in code.lines:
            of = [line.calls] if line.calls else [f"{line.kernel}.{n}" for n in line.statements]
            self._compile.link(artifact.item(str(line.number)), map(loops.item, of), "codegen")
        for kernel in extent:
            self._compile.link(artifact.item(kernel), map(loops.item, runs.get(kernel, [kernel])), "codegen")
        return artifact

    def _record_wrapper(self, name: str, wrapper: Wrapper) -> dict[str, ItemId]:
        """Writes a wrapper; returns the item of each call's line."""
        spans = [Span(str(n), n, n) for n in wrapper.lines]
        artifact = self._compile.artifact("wrapper", f"{self._which}.{name}", "python", wrapper.text, spans)
        for number, step in wrapper.lines.items():
            kernels = step.kernels if isinstance(step, ir.Run) else [step] if isinstance(step, ir.Loops) else []
            of = step.origin if isinstance(step, ir.Call) else [*map(self._kernel_item, kernels)]
            self._compile.link(artifact.item(str(number)), of, "codegen")
        calls = {n: step for n, step in wrapper.lines.items() if isinstance(step, ir.Call)}
        # the first line of a step is the call, later ones process its result
        return {step.name: artifact.item(str(n)) for n, step in reversed(calls.items())}

    def _record_fusions(self, fused: FusionResult) -> None:
        for loops in self._loops:
            if history := fused.rewrites_by_loops.get(loops.name):
                kind = " + ".join(sorted({r.rule for r in history}))
                saved = sum(r.bytes_saved for r in history)
                fusion = Fusion(f"{self._which}.{loops.name}", kind, list(loops.origin), loops.name, saved)
                self._compile.fusions.append(fusion)
        for first, second, refusal in fused.refusals:
            self._compile.refusals.append(FusionRefusal(refusal.kind, first, second, refusal.reason))

    def _record_kernel(self, number: int, step: ir.Step, item: ItemId | None) -> None:
        if isinstance(step, ir.Call) and (step.target in NO_KERNELS or step.draws):
            return
        language: Any = self._program.language(step) if isinstance(step, ir.Loops) else "extern"
        name = step.name if isinstance(step, ir.Loops) else _called(opaque_ops.opaque_operator(step) or step.target)
        read, written = self._total_bytes(step, self._reads(step)), self._total_bytes(step, step.writes)
        key = f"{self._which}.{number}"
        kernel = Kernel(key, name, language, self._which, item, read, written)
        # a copy between the CPU and a GPU counts for the GPU
        buffers = self._program.buffers
        found = {str(buffers[n].device) for n in (*self._reads(step), *step.writes) if n in buffers}
        kernel.device = max(found, key=lambda device: device.startswith("cuda"), default=None)
        kernel.reason = "" if isinstance(step, ir.Loops) else step.reason
        kernel.operations = step.operations if isinstance(step, ir.Loops) else self._call_operations(step)
        self._compile.kernels.append(kernel)

    def _call_operations(self, call: ir.Call) -> int | None:
        """Returns the number of operations of a matrix product or convolution that returns one tensor."""
        if call.name not in self._program.buffers or any(isinstance(arg, ir.Result) for arg in call.args):
            return None
        args, kwargs = fx.node.map_aggregate((call.args, dict(call.kwargs)), _shaped)
        return count_operations(call.target, args, kwargs, _shaped(self._program.buffers[call.name]))

    def _reads(self, step: ir.Step) -> Sequence[str]:
        if isinstance(step, ir.Loops):
            return step.reads
        return tuple(dict.fromkeys(v.buffer for v in memory_plan.views((step.args, step.kwargs))))

    def _total_bytes(self, step: ir.Step, names: Sequence[str]) -> int:
        """Returns the bytes of some buffers that a step reads or writes, an element once: at most those of the whole
        buffers."""
        counts: dict[str, int] = {}
        if isinstance(step, ir.Loops):
            for each in step.body:
                if isinstance(each, ir.Load | ir.Store):
                    count = _elements(step.space, each.address.strides, bool(each.address.values))
                    counts[each.buffer] = counts.get(each.buffer, 0) + count
        else:
            for view in memory_plan.views((step.args, step.kwargs)):
                counts[view.buffer] = counts.get(view.buffer, 0) + _elements(view.size, view.stride)
        found = [self._program.buffers[n] for n in names if n in self._program.buffers]
        return sum(min(b.bytes, counts[b.name] * b.dtype.itemsize) if b.name in counts else b.bytes for b in found)


def _elements(sizes: Sequence[Int], strides: Sequence[Int], read_where_values_say: bool = False) -> int:
    """Returns how many elements are accessed at most; with `read_where_values_say`, another one for each index."""
    return prod(hint(n) for n, stride in zip(sizes, strides, strict=True) if read_where_values_say or stride != 0)


def _rewrite(text: str, reason: str, nest: Nest) -> Rewrite:
    numbers = {id(s): n for n, s in enumerate(nest.loops.body)}
    lines = [*nest.lines()]
    leaves = [node.statement if isinstance(node, Do | Local) else None for _, node in lines]
    statements = [-1 if s is None else numbers[id(s)] for s in leaves]
    return Rewrite(text, reason, "\n".join(line for line, _ in lines), statements, _nest_loops(lines))


def _renamed(text: str, loops: ir.Loops, own: ir.Loops) -> str:
    """Returns the text of a rewrite of `loops` with the names of the values of `own`, the same loops but for names."""
    name, _, arguments = text.partition("(")
    if name != "keep":  # all others name loops only, whose names are the same
        return text
    pairs = zip(loops.body, own.body, strict=True)
    names = {a.name: b.name for a, b in pairs if not isinstance(a, ir.Store) and not isinstance(b, ir.Store)}
    return name + "(" + re.sub(r"[A-Za-z_]\w*", lambda found: names.get(found[0], found[0]), arguments)


def _nest_loops(lines: Sequence[tuple[str, Node | None]]) -> list[NestLoop]:
    """Returns the loops of a nest, given its lines, in the order of their headings."""
    found: list[NestLoop] = []
    around: list[tuple[int, int]] = []  # the loops that a line is inside of: number, and indentation of the heading
    for at, (line, node) in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        while around and around[-1][1] >= indent:
            around.pop()
        if isinstance(node, For):
            start, end = (n if isinstance(n, int) else str(n) for n in (node.start, node.end))
            parent = around[-1][0] if around else -1
            around.append((len(found), indent))
            sizes = node.step, node.size, node.lanes
            kinds = node.is_threaded, node.is_vector, node.is_program, node.is_block
            found.append(NestLoop(at, parent, node.index, start, end, node.block, *sizes, *kinds))
    return found


def _shaped(value: Any) -> Any:
    """Returns a meta tensor with the sizes of a view or buffer; other values unchanged."""
    if not isinstance(value, ir.TensorView | ir.Buffer):
        return value
    return torch.empty(tuple(map(hint, value.size)), device="meta")


def generate(
    program: ir.Program,
    language: ir.Language,
    tuned: Mapping[str, Blocks] = triton.NO_TUNED_BLOCKS,
    schedules: cpp.Schedules = cpp.NO_SCHEDULES,
) -> KernelSource:
    """Returns the source of all kernels of `program` in `language`.

    `tuned` has the block sizes of Triton kernels, `schedules` the schedules that the user wrote, by kernel.
    """
    if language == "triton":
        return triton.generate(program, tuned, schedules)
    return cpp.generate(program, compilers.simd_math(), schedules)


def _called(target: Any) -> str:
    """Returns the name of what a call runs; of a function of ours, such as `draw_bernoulli`, without its module."""
    module, _, name = target_name(target).rpartition(".")
    return name if module.partition(".")[0] == __name__.partition(".")[0] else f"{module}.{name}" if module else name

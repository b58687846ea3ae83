"""From a graph of aten operations to a callable: lower, fuse, print, build, wrap.

Each stage maps one frozen value to the next and is a step of the record.  The artifacts are the
loops after fusion, the kernels and the wrapper, each line linked to what it came from:

    wrapper line  <-  kernel line  <-  loop IR line  <-  graph node
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
import torch.fx as fx

from compiler_core.autograd.joint import output_nodes
from compiler_core.autograd.op_cost import operations
from compiler_core.backends.autotune import tune
from compiler_core.backends.cuda_graphs import replayed
from compiler_core.codegen.build import compilers as build
from compiler_core.codegen.cpp import printer as cpp
from compiler_core.codegen.machine_code import stages
from compiler_core.codegen.source import Code
from compiler_core.codegen.triton import check as triton_check
from compiler_core.codegen.triton import printer as triton
from compiler_core.codegen.wrapper import memory_plan
from compiler_core.codegen.wrapper.executable import Runner, load
from compiler_core.codegen.wrapper.writer import Wrapper
from compiler_core.config import Options
from compiler_core.errors import CompileWarning
from compiler_core.hook.failures import heard
from compiler_core.loops import ir
from compiler_core.loops.fuse.horizontal import join_companions
from compiler_core.loops.fuse.mix_order_reduction import join_columns
from compiler_core.loops.fuse.rewriter import Rewritten, Wishes
from compiler_core.loops.fuse.rules import fuse
from compiler_core.loops.lower import lower
from compiler_core.loops.schedule.block_sizes import Blocks
from compiler_core.loops.schedule.multi_pass import in_stages
from compiler_core.loops.schedule.two_kernel_reduction import split_reductions
from compiler_core.records import (
    Artifact,
    Compile,
    CudaGraph,
    Fusion,
    FusionRefusal,
    ItemId,
    Kernel,
    MemoryPlan,
    PlannedBuffer,
    Span,
)
from compiler_core.support import opaque_ops
from compiler_core.support.fx_graphs import target_name
from compiler_core.support.size_expr import hint

Which = Literal["forward", "backward"]
NO_KERNELS = (operator.getitem, torch.ops.aten.empty_strided.default)
"""Calls that compute nothing."""


def compile_kernels(
    gm: fx.GraphModule, which: Which, compile_: Compile, options: Options, languages: ir.Languages = ir.LANGUAGES
) -> Runner:
    """A function of the graph's inputs, as one sequence, that returns its outputs as a list.

    `languages`: the devices that get kernels, and in which language; on others PyTorch's operators run.
    BuildError: a tool that makes kernels failed or is missing; the message names the remedy.
    """
    with compile_.step("lower", which) as event:
        program = lower(gm, which, languages)
        event.detail = _counts(program)
    with compile_.step("fuse", which) as event:
        wishes = Wishes(options.keep_apart, options.force_fuse)
        fused = joined(program, wishes)
        event.detail = _counts(fused.program)
    with compile_.step("codegen", which):
        program = as_printed(fused.program)
        tuned = tune(program, which, compile_) if options.tune else triton.NOT_TUNED
        codes = [_generate(program.in_language(each), each, tuned) for each in program.used_languages]
        for code in codes if options.strict else ():
            if code.language == "triton":
                triton_check.check(code.text)
        planned = memory_plan.plan(program)
        wrapper = Wrapper(program, codes, planned)
        notes = _Notes(compile_, which, program)
        notes.unknown(wishes)
        notes.memory(planned)
        notes.write(fused, codes, wrapper)
    with compile_.step("build", which):
        run = load(wrapper.recipe(), wrapper.constants)
    if options.target:
        notes.machine_code(options.target, options.strict)
    if options.mode == "default":
        return run
    compile_.cuda_graphs.append(CudaGraph(which))
    stays = [not _is_returned(n) for n in output_nodes(gm.graph)]
    return replayed(run, program, stays, compile_.cuda_graphs[-1], compile_)


def joined(program: ir.Program, wishes: Wishes) -> Rewritten:
    """`program` with its loops joined to kernels."""
    return join_companions(join_columns(fuse(program, wishes), wishes), wishes)


def as_printed(program: ir.Program) -> ir.Program:
    """`program` as it is printed, each kernel of which has buffers that its language can reach."""
    made = memory_plan.as_taken(split_reductions(in_stages(program)))
    ir.check_devices(made)
    return made


def _is_returned(node: fx.Node | None) -> bool:
    """Whether the caller gets this result of a graph: it is no saved value, no gradient, no new value of an input."""
    return node is not None and node.meta.get("role") == "output"


def _counts(program: ir.Program) -> str:
    loops = sum(isinstance(s, ir.Loops) for s in program.steps)
    return f"loops: {loops}, calls of PyTorch's kernels: {len(program.steps) - loops}"


def _generate(program: ir.Program, language: ir.Language, tuned: Mapping[str, Blocks] = triton.NOT_TUNED) -> Code:
    return triton.generate(program, tuned) if language == "triton" else cpp.generate(program, build.simd_math())


def _shaped(value: Any) -> Any:
    """A tensor of the form of a window, without data."""
    if not isinstance(value, ir.View | ir.Buffer):
        return value
    return torch.empty(tuple(map(hint, value.size)), device="meta")


class _Notes:
    """Writes what was made into the record."""

    def __init__(self, compile_: Compile, which: Which, program: ir.Program) -> None:
        self._compile, self._which, self._program = compile_, which, program
        self._loops = [s for s in program.steps if isinstance(s, ir.Loops)]
        self._kernels: dict[ir.Language, Artifact] = {}

    def write(self, fused: Rewritten, codes: Sequence[Code], wrapper: Wrapper) -> None:
        loops = self._loop_ir()
        self._rewrites(fused, loops)
        self._kernels = {code.language: self._code(code, loops) for code in codes}
        lines = self._wrapper(wrapper)
        self._fusions(fused)
        for number, step in enumerate(self._program.steps):
            item = self._source(step) if isinstance(step, ir.Loops) else lines.get(step.name)
            self._kernel(number, step, item)

    def _source(self, loops: ir.Loops) -> ItemId:
        """The kernel's lines in the text of its language."""
        return self._kernels[self._program.language(loops)].item(loops.name)

    def unknown(self, wishes: Wishes) -> None:
        """The wishes about nodes that there are not, once for both graphs."""
        nodes = {s.key for a in self._compile.artifacts if a.pane in ("forward", "backward") for s in a.spans}
        for pair in (*wishes.apart, *wishes.together) if self._which == "forward" else ():
            if missing := [name for name in pair if name not in nodes]:
                reason = f"neither forward nor backward has a node {' or '.join(missing)}: nothing was done about it"
                self._compile.refusals.append(FusionRefusal("unknown", *pair, reason))

    def memory(self, planned: memory_plan.MemoryPlan) -> None:
        buffers = [
            PlannedBuffer(n, planned.bytes[n], at, planned.dies.get(n), planned.takes.get(n), n in planned.kept)
            for n, at in planned.made.items()
        ]
        self._compile.memory.append(MemoryPlan(self._which, planned.peak_before, planned.peak, buffers))

    def machine_code(self, target: str, strict: bool) -> None:
        """What the kernels become on `target`: those in its language or, where there are none, all of them, printed in
        it for that."""
        if not self._loops:
            return
        language: ir.Language = "cpp" if target in stages.CPUS else "triton"
        try:
            if language not in self._kernels:
                loops = self._compile.find(f"{self._which}.loops")
                self._kernels[language] = self._code(_generate(self._program, language), loops)
            stages.record_machine_code(self._compile, self._kernels[language], target)
        except CompileWarning:
            raise
        except Exception as error:
            meaning = f"The kernels run; their machine code for {target} is not in the record."
            heard(self._compile, "build", error, meaning=meaning, strict=strict)

    def _rewrites(self, fused: Rewritten, loops: Artifact) -> None:
        """The fusion pass: a line for each rewrite, linked with the kernel that it led to."""
        lines = [
            f"{r.rule}: {r.before[0]} into {r.before[1]} -> {r.after}   # {r.reason}; saves {r.bytes_saved:,} bytes"
            for r in fused.rewrites
        ]
        lines += [f"apart: {first} | {second}   # {r.kind}: {r.reason}" for first, second, r in fused.refusals]
        spans = [Span(str(n), n, n) for n in range(1, len(lines) + 1)]
        artifact = self._compile.artifact("fusion", f"{self._which}.fusion", "text", "\n".join(lines) + "\n", spans)
        numbers = {id(r): str(n) for n, r in enumerate(fused.rewrites, 1)}
        for made in self._loops:
            of = [artifact.item(numbers[id(r)]) for r in fused.by_loops.get(made.name, ())]
            self._compile.link(loops.item(made.name), of, "fuse")

    def _loop_ir(self) -> Artifact:
        """The loops as text: a kernel's lines are ``name``, its statements ``name.0`` and so on."""
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

    def _code(self, code: Code, loops: Artifact) -> Artifact:
        """The kernels' source: a kernel's lines are ``name``, each single one its number."""
        extent: dict[str, list[int]] = {}
        for line in code.lines:
            extent.setdefault(line.kernel, []).append(line.number)
        spans = [Span(str(line.number), line.number, line.number) for line in code.lines]
        spans += [Span(kernel, min(numbers), max(numbers)) for kernel, numbers in extent.items()]
        suffix = {"cpp": "cpp", "triton": "py"}[code.language]
        artifact = self._compile.artifact("kernel", f"{self._which}.{suffix}", code.language, code.text, spans)
        for line in code.lines:
            of = [loops.item(f"{line.kernel}.{n}") for n in line.statements]
            self._compile.link(artifact.item(str(line.number)), of, "codegen")
        for kernel in extent:
            self._compile.link(artifact.item(kernel), [loops.item(kernel)], "codegen")
        return artifact

    def _wrapper(self, wrapper: Wrapper) -> dict[str, ItemId]:
        """The wrapper's lines; returns the one of each call."""
        spans = [Span(str(n), n, n) for n in wrapper.lines]
        artifact = self._compile.artifact("wrapper", f"{self._which}.wrapper", "python", wrapper.text, spans)
        for number, step in wrapper.lines.items():
            of = [self._source(step)] if isinstance(step, ir.Loops) else step.origin
            self._compile.link(artifact.item(str(number)), of, "codegen")
        calls = {n: step for n, step in wrapper.lines.items() if isinstance(step, ir.Call)}
        # the first of its lines is the call, later ones look at what came back
        return {step.name: artifact.item(str(n)) for n, step in reversed(calls.items())}

    def _fusions(self, fused: Rewritten) -> None:
        for loops in self._loops:
            if history := fused.by_loops.get(loops.name):
                kind = " + ".join(sorted({r.rule for r in history}))
                saved = sum(r.bytes_saved for r in history)
                fusion = Fusion(f"{self._which}.{loops.name}", kind, list(loops.origin), loops.name, saved)
                self._compile.fusions.append(fusion)
        for first, second, refusal in fused.refusals:
            self._compile.refusals.append(FusionRefusal(refusal.kind, first, second, refusal.reason))

    def _kernel(self, number: int, step: ir.Step, item: ItemId | None) -> None:
        if isinstance(step, ir.Call) and (step.target in NO_KERNELS or step.draws):
            return
        language: Any = self._program.language(step) if isinstance(step, ir.Loops) else "extern"
        name = step.name if isinstance(step, ir.Loops) else target_name(opaque_ops.operator_of(step) or step.target)
        read, written = self._bytes(self._read_by(step)), self._bytes(step.writes)
        key = f"{self._which}.{number}"
        made = Kernel(key, name, language, self._which, item, read, written)
        made.device = self._device(step)
        made.reason = "" if isinstance(step, ir.Loops) else step.reason
        made.operations = step.operations if isinstance(step, ir.Loops) else self._operations(step)
        self._compile.kernels.append(made)

    def _device(self, step: ir.Step) -> str | None:
        """Where a step runs: a copy between the CPU and a GPU is the GPU's work."""
        buffers = self._program.buffers
        found = {str(buffers[n].device) for n in (*self._read_by(step), *step.writes) if n in buffers}
        return max(found, key=lambda device: device.startswith("cuda"), default=None)

    def _operations(self, call: ir.Call) -> int | None:
        """What a call of PyTorch's computes, for products and convolutions that make one tensor."""
        if call.name not in self._program.buffers or any(isinstance(arg, ir.Result) for arg in call.args):
            return None
        args, kwargs = fx.node.map_aggregate((call.args, dict(call.kwargs)), _shaped)
        return operations(call.target, args, kwargs, _shaped(self._program.buffers[call.name]))

    def _read_by(self, step: ir.Step) -> Sequence[str]:
        if isinstance(step, ir.Loops):
            return step.reads
        return tuple(dict.fromkeys(v.buffer for v in memory_plan.views((step.args, step.kwargs))))

    def _bytes(self, names: Sequence[str]) -> int:
        return sum(self._program.buffers[n].bytes for n in names if n in self._program.buffers)

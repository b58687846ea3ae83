"""What happens to a captured graph, in order.

    1  trace forward and backward as one joint graph      trace_joint           autograd/joint.py, autograd/trace/
       simplify it                                                              autograd/passes/
    2  partition it into a forward and a backward         partition             autograd/partition.py
    then, for each of the two (`compile_kernels`):
    3  lower ATen operators to loops                      lower                 loops/lower/ (loops/ir/: the loops)
    4  fuse the loops                                     fuse_loops            loops/fuse/
    5  schedule the loops                                 schedule_loops        loops/schedule/
    6  choose block sizes by timing, with `tune=True`     tuned_blocks          instruments.py
    7  print the kernels                                  generate              codegen/: codegen/cpp/, codegen/triton/
    8  plan the memory of the buffers                     memory_plan.plan      codegen/wrapper/memory_plan.py
       join C++ kernels to runs, each one call            with_runs             codegen/wrapper/runs.py
    9  print the wrapper, which calls the kernels         print_wrapper         codegen/wrapper/writer.py
    10 build and load both, in a thread                   load                  codegen/build/, codegen/wrapper/
       compile for a target, on request                                         instruments.py
    11 replay the launches as a CUDA graph, on request    with_replay           backends/cuda_graphs.py
    and for both together:
    12 print the autograd function around the two         write_source          autograd/autograd_function.py,
                                                          bind_source           autograd/function_class.py

A graph with an operation that waits for data, such as ``x[mask]``, goes through them in parts (`pipeline/parts.py`).
What torch.cond and similar operators call (`support/subgraphs.py`) goes through 1 to 12 by itself, between 2 and 3.

The backends `cpp`, `triton` and the default run all of them, and look into the graph cache first
(`backends/graph_cache.py`).  `aot_eager` runs 1, 2 and 12, with PyTorch's operators in place of kernels.  `eager`,
`inductor` and callables of the user run none (`backends/registry.py`).

Every stage maps one value to the next, does not change its argument, and is a step of the record.  `frame.py` has the
stages of a frame before and after these.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from compiler_core.autograd.autograd_function import GraphCallables, bind_source, write_source
from compiler_core.autograd.joint import JointRefused, output_nodes, trace_joint
from compiler_core.autograd.partition import partition
from compiler_core.backends import registry
from compiler_core.backends.cuda_graphs import with_replay
from compiler_core.backends.graph_cache import CacheSlot
from compiler_core.backends.kernel_recorder import KernelRecorder, Which, generate, step_counts
from compiler_core.backends.registry import Call
from compiler_core.backends.replay_memory import GraphMemory
from compiler_core.codegen.build.external import stopped_on_error
from compiler_core.codegen.build.kernel_lookups import noted_lookups
from compiler_core.codegen.cpp.runs import with_run_functions
from compiler_core.codegen.source import KernelSource
from compiler_core.codegen.triton import printer as triton
from compiler_core.codegen.wrapper import memory_plan
from compiler_core.codegen.wrapper.executable import Runner, load, start_build
from compiler_core.codegen.wrapper.runs import with_runs
from compiler_core.codegen.wrapper.writer import Wrapper, print_wrapper
from compiler_core.config import Options
from compiler_core.errors import BackendError, CompileWarning
from compiler_core.hook.failures import HIDDEN, RAISED, only_recorded, report_failure
from compiler_core.instruments import tool
from compiler_core.loops import ir
from compiler_core.loops.fuse.program_passes import fuse_horizontally, fuse_mix_order_reductions
from compiler_core.loops.fuse.rewriter import FusionRequests, FusionResult
from compiler_core.loops.fuse.rules import fuse
from compiler_core.loops.lower import lower
from compiler_core.loops.schedule.inputs import NumbersInput, numbers_in_memory, read_if_given, update_in_place
from compiler_core.loops.schedule.splitting import split_passes, split_reductions
from compiler_core.loops.schedule.unrolling import unroll_short_loops
from compiler_core.pipeline.parts import compile_parts, split_host_part
from compiler_core.records import Compile, CudaGraph
from compiler_core.records.kernels import CacheLookup
from compiler_core.support import opaque_ops
from compiler_core.support.eager_warnings import silence_warnings, warn_always
from compiler_core.support.garbage import collect_if_many
from compiler_core.support.node_facts import waits_for_data
from compiler_core.support.subgraphs import Subgraphs, has_subgraphs, subgraphs_of
from compiler_core.support.tensors import has_own_kernels
from compiler_core.torch_private import DisableAutocast, FakeTensor, dynamo_config

Half = Callable[[list[Any]], Sequence[Any]]
"""A compiled forward or backward: a function of one flat list of inputs, which it may empty."""
CompileHalf = Callable[[fx.GraphModule, Which, Compile], Callable[[], Half]]
"""Starts to compile a forward or backward; what it returns waits for the build of its kernels."""


def compile_graph(
    gm: fx.GraphModule, example_inputs: Sequence[torch.Tensor], compile_: Compile, options: Options
) -> Call:
    """Compiles a captured graph with the backend that `options.backend` names.

    `example_inputs` are fake tensors (or symbolic numbers) like the inputs to come.  Returns a function that takes the
    graph's inputs and returns the flat tuple of its outputs.

    If a stage fails, the failure is recorded, a warning is given, and the graph itself is returned, which runs eagerly.
    With `options.strict` a bug is raised as StrictError instead.  Raises UsageError for an unknown backend name, and
    BackendError if a backend of the user raises, unless `torch._dynamo.config.suppress_errors` is set.
    """
    registry.check_name(options.backend)
    compile_.backend = registry.backend_name(options.backend, gm)
    event_count = len(compile_.events)
    if any(map(waits_for_data, gm.graph.nodes)) and not (callable(options.backend) or options.backend == "eager"):
        return compile_parts(gm, example_inputs, compile_, options, compile_graph)
    try:
        with silence_warnings(), warn_always(), torch.autograd.set_detect_anomaly(False):
            return _run_backend(gm, example_inputs, compile_, options)
    except CompileWarning:  # the user's warning filters raise it
        raise
    except BackendError as error:
        # as stock's, which raises it under fullgraph=True
        is_hidden = dynamo_config.suppress_errors and not options.fullgraph
        report_failure(compile_, "backend", error, meaning=HIDDEN if is_hidden else RAISED)
        if not is_hidden:
            raise
        return gm.forward
    except Exception as error:
        failed = [e.stage for e in compile_.events[event_count:] if e.outcome == "failed"]
        try:
            report_failure(compile_, failed[-1] if failed else "backend", error, strict=options.strict)
        finally:
            # none of what was compiled runs
            compile_.kernels.clear()
            compile_.expansions.clear()
            compile_.partition = None
        return gm.forward


def _run_backend(
    gm: fx.GraphModule, example_inputs: Sequence[torch.Tensor], compile_: Compile, options: Options
) -> Call:
    external = registry.external_backend(options.backend)
    if external is not None:
        return external(gm, example_inputs, compile_, options)
    _check_classes(example_inputs)
    languages = registry.kernel_languages(options.backend)
    if languages is None:
        return compile_differentiable(
            gm, example_inputs, compile_, options, lambda half, *_: lambda: registry.boxed_function(half)
        )
    call = _compile_or_load(gm, example_inputs, compile_, options, languages)
    if options.backend is None:
        registry.set_backend_name(compile_)
    return call


def _check_classes(inputs: Sequence[Any]) -> None:
    """Raises JointRefused if an input is of a class with its own kernels: stock's graphs may have such inputs."""
    for each in inputs:
        if isinstance(each, torch.Tensor) and not isinstance(each, FakeTensor) and has_own_kernels(each):
            raise JointRefused(f"an input is a {type(each).__name__}, whose class computes by its __torch_dispatch__")


def _compile_or_load(
    gm: fx.GraphModule,
    example_inputs: Sequence[torch.Tensor],
    compile_: Compile,
    options: Options,
    languages: ir.Languages,
) -> Call:
    """Loads the compiled graph from the graph cache, or compiles it and writes it there."""
    slot = None
    # experiments; functions of passes have no text; neither have subgraphs
    if not (options.passes or options.edits or options.block_sizes or has_subgraphs(gm.graph)):
        slot = CacheSlot(gm, example_inputs, compile_, options, languages)
        cached = slot.load()
        if cached is not None:
            return cached
    memory = GraphMemory()

    def compile_half(half: fx.GraphModule, which: Which, compile_: Compile) -> Callable[[], Half]:
        return compile_kernels(half, which, compile_, options, languages, memory)

    return compile_differentiable(gm, example_inputs, compile_, options, compile_half, slot.save if slot else None)


def compile_differentiable(
    gm: fx.GraphModule,
    example_inputs: Sequence[torch.Tensor],
    compile_: Compile,
    options: Options,
    compile_half: CompileHalf,
    keep: Callable[..., None] | None = None,
) -> Call:
    """Compiles a captured graph as a forward and a backward, each by `compile_half`, and joins both for autograd.

    `keep` is called with the source of the autograd function, its constants and both halves, for the graph cache.
    """
    changes = user_changes(compile_, options)
    change = functools.partial(changes.graph, at="joint") if changes else None
    joint = trace_joint(gm, example_inputs, compile_, change)
    collect_if_many()
    with DisableAutocast():  # the joint graph contains the casts
        parts = partition(joint, compile_, options.memory_budget, options.memory_curve, options.strict)
        if changes:
            after_passes = changes.graph(parts.forward, "forward")
            backward_after = parts.backward and changes.graph(parts.backward, "backward")
            parts = dataclasses.replace(parts, forward=after_passes, backward=backward_after)
        for operator in subgraphs_of(parts.forward.graph):
            _compile_subgraphs(operator, compile_, options, compile_half)
        parts.forward.meta["is_alone"] = parts.backward is None
        with stopped_on_error():
            loaded_forward = compile_half(parts.forward, "forward", compile_)  # built while the backward is compiled
            loaded_backward = None if parts.backward is None else compile_half(parts.backward, "backward", compile_)
            forward = loaded_forward()
            backward = None if loaded_backward is None else loaded_backward()
        source, constants = write_source(parts, forward, backward, gm, compile_)
        if keep is not None:
            keep(source, constants, forward, backward)
        backward_graph = None if parts.backward is None else parts.backward.forward
        return bind_source(source, constants, GraphCallables(gm, forward, backward, backward_graph), compile_)


def user_changes(compile_: Compile, options: Options) -> Any:
    """Returns what the user changes in a compile, a `UserChanges` (`tools/changes/user_changes.py`), or None."""
    make = tool("UserChanges") if options.passes or options.edits else None
    return make and make(compile_, options)


def _compile_subgraphs(operator: Subgraphs, compile_: Compile, options: Options, compile_half: CompileHalf) -> None:
    """Compiles each graph of a higher-order operator as a forward and a backward."""

    def compile_one(name: str, gm: fx.GraphModule, examples: list[Any]) -> Call:
        part = Compile(f"{compile_.id}.{name}", compile_.frame)
        with compile_.step("backend", name):
            try:
                return compile_differentiable(gm, examples, part, options, compile_half)
            finally:
                compile_.add_subgraph(name, part)

    with opaque_ops.captured_state(operator.grad, operator.autocast):
        operator.compile(compile_one)


def compile_kernels(
    gm: fx.GraphModule,
    which: Which,
    compile_: Compile,
    options: Options,
    languages: ir.Languages = ir.LANGUAGES,
    memory: GraphMemory | None = None,
) -> Callable[[], Runner]:
    """Compiles a forward or backward graph of ATen operators to kernels and a wrapper that calls them.

    `memory` is what the CUDA graphs of a forward and its backward share; the other arguments are those of
    `print_kernels`.  The kernels are built in a thread.  What is returned waits for them and returns a function, which
    takes the graph's inputs as one list and returns its outputs as a list.  It raises BuildError if a tool that builds
    kernels failed or is missing; the message says what to install.
    """
    is_replayed = options.mode != "default"
    if (is_replayed or gm.meta.get("is_alone")) and (parts := split_host_part(gm, is_replayed)):
        with compile_.step("backend", "host") as event:
            event.detail = "numbers of the GPU's kernels that the CPU computes"
            part = Compile(f"{compile_.id}.host", compile_.frame)
            host = compile_kernels(parts.host, which, part, dataclasses.replace(options, mode="default"), languages)
            compile_.add_subgraph("host", part)
        device = compile_kernels(parts.device, which, compile_, options, languages, memory)
        return lambda: parts.joined(host(), device())
    printed = print_kernels(gm, which, compile_, options, languages)
    executable, constants = printed.wrapper.executable, printed.wrapper.constants
    lookups: list[CacheLookup] = []
    with noted_lookups(lookups, which):
        build = start_build(executable)

    def loaded() -> Runner:
        with compile_.step("build", which):
            try:
                run = load(executable, constants, build)
            finally:
                compile_.cache_lookups.extend(lookups)
        if options.target:
            printed.recorder.record_machine_code(options.target, options.strict)
        if options.mode == "default":
            return run
        compile_.cuda_graphs.append(CudaGraph(which))
        note, nodes = compile_.cuda_graphs[-1], output_nodes(gm.graph)
        return with_replay(run, printed.program, nodes, note, compile_, memory or GraphMemory(), printed.numbers)

    return loaded


@dataclasses.dataclass(frozen=True)
class PrintedKernels:
    """The source of the kernels of a forward or backward, and of the wrapper that calls them."""

    program: ir.Program
    """The scheduled loops."""
    codes: list[KernelSource]
    """The kernels, for each language."""
    wrapper: Wrapper
    """What runs: it calls runs of kernels."""
    recorder: KernelRecorder
    numbers: NumbersInput | None
    """How the program's last input is made from the floats among the graph's inputs, if launches are replayed."""


def print_kernels(
    gm: fx.GraphModule,
    which: Which,
    compile_: Compile,
    options: Options,
    languages: ir.Languages = ir.LANGUAGES,
) -> PrintedKernels:
    """Prints kernels for a graph of ATen operators: all stages of `compile_kernels` before they are built.

    `languages` maps each device type that gets kernels to their language; on other devices PyTorch's operators run.
    """
    changes, requests = user_changes(compile_, options), FusionRequests(options.keep_apart, options.force_fuse)
    with compile_.step("lower", which) as event:
        lower_graph = functools.partial(lower, gm, which, languages, options.mode != "default")
        program = lower_graph()
        program = changes.lowered(program, which, lower_graph) if changes else program
        with only_recorded(compile_, "lower", "the number of loops", options.strict):
            event.detail = step_counts(program)
    with compile_.step("fuse", which) as event:
        fuse_program = functools.partial(fuse_loops, program, compile_=compile_)
        fused = fuse_program(requests)
        fused = changes.fused(fused, which, requests, fuse_program) if changes else fused
        with only_recorded(compile_, "fuse", "the number of loops", options.strict):
            event.detail = step_counts(fused.program)
    with compile_.step("codegen", which):
        program, numbers = schedule_loops(fused.program), None
        if options.mode != "default":
            program, numbers = numbers_in_memory(program)
        program = changes.loops(program) if changes else program
        schedules = changes.schedules(program) if changes else {}
        block_sizes = triton.NO_TUNED_BLOCKS
        if (options.tune or options.block_sizes) and (tuned_blocks := tool("tuned_blocks")):
            block_sizes = tuned_blocks(program, which, compile_, options)
        used = program.used_languages
        by_kernel = memory_plan.plan(program, overwrites=not (schedules or options.block_sizes))
        with_workspaces, plan = with_runs(program, by_kernel)
        codes = [generate(program.in_language(each), each, block_sizes, schedules) for each in used]
        codes = [with_run_functions(code, plan.runs, with_workspaces.buffers) for code in codes]
        codes = [changes.kernels(code) for code in codes] if changes else codes
        if options.strict and (check_names := tool("check_names")):
            for code in codes:
                if code.language == "triton":
                    check_names(code.text)
        steps = print_wrapper(program, codes, by_kernel)
        edited = changes.wrapper(steps) if changes else steps
        wrapper = print_wrapper(with_workspaces, codes, plan) if plan.runs and edited is steps else edited
        recorder = KernelRecorder(compile_, which, program, block_sizes)
        with only_recorded(compile_, "codegen", f"some of the {which}'s kernels", options.strict):
            recorder.record_unknown_requests(requests)
            recorder.record_memory_plan(by_kernel, plan if wrapper is not edited else by_kernel)
            recorder.record_kernels(fused, codes, edited, wrapper)
    return PrintedKernels(program, codes, wrapper, recorder, numbers)


def fuse_loops(program: ir.Program, requests: FusionRequests, compile_: Compile) -> FusionResult:
    """Fuses loops vertically, then reductions over rows and columns of one tensor, then independent loops."""
    with compile_.step("fuse", "vertical"):
        fused = fuse(program, requests)
    with compile_.step("fuse", "mix-order reductions"):
        fused = fuse_mix_order_reductions(fused, requests)
    with compile_.step("fuse", "horizontal"):
        return fuse_horizontally(fused, requests)


def schedule_loops(program: ir.Program) -> ir.Program:
    """Splits loops that need several passes or kernels, unrolls short ones, and lays out buffers for their readers.

    GPU kernels read the gradients of outputs only if there are any.

    Raises CompilerBug if a kernel's buffers are not all on one device that has kernels.
    """
    split = unroll_short_loops(split_reductions(split_passes(program)))
    scheduled = update_in_place(memory_plan.with_result_layouts(split))
    ir.check_devices(scheduled)
    return read_if_given(scheduled)

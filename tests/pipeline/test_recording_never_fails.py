# mypy: ignore-errors
"""What only records, explains or estimates may fail: the compile is the same, and its record says what it lacks.

Each function of the modules below that a compile calls raises once, in its turn: a function that is added there is
tested without a row.
"""

import functools
import inspect
import sys
import types

import pytest
import torch

import compiler_core
from compiler_core.api.compile import record_of
from compiler_core.backends import kernel_recorder
from compiler_core.bytecode import bytecode_text
from compiler_core.capture import guard_collector
from compiler_core.capture.interpreter import Interpreter
from compiler_core.capture.tensors.symbolic_shapes import Symbols
from compiler_core.guards import kinds
from compiler_core.hook.failures import NOT_RECORDED
from compiler_core.pipeline import compiled_region, frame
from compiler_core.records import recompiles, timings
from compiler_core.support import fx_graphs
from compiler_core.tools import breaking_code, guard_times
from compiler_core.tools.decompile import decompile
from compiler_core.tools.inspection import partition_report
from tests.sampling import sample

MODULES = (partition_report, kernel_recorder, breaking_code, guard_times)
NOT_ONLY_RECORDING = (kernel_recorder.generate, kernel_recorder.KernelRecorder.__init__)
FUNCTIONS = (
    recompiles.recompile,
    recompiles.has_generated_name,
    fx_graphs.record_graph,
    fx_graphs.graph_text,
    fx_graphs.node_text,
    fx_graphs.describe,
    fx_graphs.tensor_type,
    kinds.guards_text,
    kinds.guard_records,
    kinds.failures,
    bytecode_text,
    decompile,
    guard_collector.add_source,
    compiled_region._recompile_cause,
    frame.FrameCompile._record_bytecode,
    frame.FrameCompile._record_generated,
    Interpreter.full_stack,
    Symbols.records,
    timings.LineClock.add_to,
)
"""Functions that only record, in modules that do more."""
PARTS = 16


def inner(x, k):
    y = x * k
    print(end="")
    return y + 1


def with_breaks(x, k):
    a = [x.relu(), inner(x.sum(-1), k)]
    if a[0].sum() > 1e9:
        return a
    return a[0].exp().sum() + a[1].mean()


def with_kernels(x, k):
    return (x.sin() * k).exp().sum()


def run(program, backend):
    """Returns what the program computes, compiled twice: with a symbolic size and a gradient; and what was compiled."""
    torch.manual_seed(0)
    unchanged = compiler_core.GraphPass(lambda gm: None, "joint", "unchanged")  # so that all stages run in each process
    compiled = compiler_core.compile(program, backend=backend, passes=[unchanged] if backend == "cpp" else [])
    found = []
    for rows in (3, 5) if backend == "eager" else (3,):
        x = torch.randn(rows, 4, requires_grad=True)
        result = compiled(x, 2.5)
        result.backward()
        found += [result.detach(), x.grad]
    frames = record_of(compiled).frames
    compiles = [(f.name, c.outcome, len(c.breaks)) for f in frames for c in f.compiles if f.name != "fail"]
    return found, compiles, [failure for f in frames for c in f.compiles for failure in c.failures]


SCENARIOS = [(with_breaks, "eager"), (with_kernels, "cpp")]


def functions_of_modules():
    for module in MODULES:
        for value in [*vars(module).values()]:
            of = vars(value).values() if inspect.isclass(value) and value.__module__ == module.__name__ else [value]
            functions = (f for f in of if isinstance(f, types.FunctionType) and f.__module__ == module.__name__)
            # Unwrapped: the wrapper around the repr of a dataclass is one code for all dataclasses.  PyTorch calls it
            # for its own while it describes a tensor for its structured log, which it does since pytest reads logs.
            yield from map(inspect.unwrap, functions)


@functools.cache
def called():
    """Returns the functions that record and that compiles call, each with the first of the scenarios that calls it."""
    recording = [f for f in functions_of_modules() if f not in NOT_ONLY_RECORDING]
    wanted = {id(f.__code__): f for f in [*recording, *FUNCTIONS]}  # by identity: generated code may be equal
    seen = {}
    for scenario in SCENARIOS:

        def note(frame_, event, arg, scenario=scenario):
            if event == "call" and id(frame_.f_code) in wanted:
                seen.setdefault(wanted[id(frame_.f_code)], scenario)

        compiler_core.reset()
        sys.setprofile(note)
        try:
            run(*scenario)
        finally:
            sys.setprofile(None)
    return seen


def test_the_programs_call_what_only_records():
    names = {f.__qualname__ for f in called()}
    assert {f.__qualname__ for f in FUNCTIONS} <= names
    assert {"callee_names", "recompile", "_PartitionReport.partition", "KernelRecorder.record_kernels"} <= names


@pytest.mark.filterwarnings("ignore::compiler_core.CompileWarning")
@pytest.mark.parametrize("part", sample(range(PARTS), PARTS))
def test_a_failing_record_fails_no_compile(part):
    wrong = []
    for function, scenario in [*called().items()][part::PARTS]:
        compiler_core.reset()
        want, compiles, failures = run(*scenario)
        assert failures == []
        compiler_core.reset()
        raised = []

        def fail(frame_, event, arg, code=function.__code__, raised=raised):
            if event == "call" and frame_.f_code is code and not raised:
                raised.append(code)
                sys.setprofile(None)
                raise RuntimeError("planted")

        sys.setprofile(fail)
        try:
            got, compiles_then, failures = run(*scenario)
        finally:
            sys.setprofile(None)
        same = all(map(torch.equal, got, want)) and compiles_then == compiles
        if not (raised and same and failures and all(f.meaning.startswith(NOT_RECORDED) for f in failures)):
            wrong.append((function.__module__, function.__qualname__, compiles_then, [f.message for f in failures]))
    assert wrong == []

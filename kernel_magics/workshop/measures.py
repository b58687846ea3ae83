"""What questions count in a record, each with the words that ask for it."""

from __future__ import annotations

from compiler_core.records import Compile, Kernel, Record
from kernel_magics.workshop.question import BYTES, MICROSECONDS, TIMES, Measure


def graphs(record: Record) -> int:
    """Returns the number of graphs that were captured."""
    return sum(artifact.pane == "captured" for artifact in record.artifacts)


def kernels(record: Record) -> int:
    """Returns the number of kernels that were generated; calls of PyTorch's own kernels are not counted."""
    return sum(kernel.language != "extern" for compile_ in record.compiles for kernel in compile_.kernels)


def saved(compile_: Compile) -> list[str]:
    """Returns the names of the values that a compile saves for the backward."""
    values = compile_.partition.values if compile_.partition else []
    return [value.node.rpartition("#")[2] for value in values if value.decision == "saved"]


def operations(compile_: Compile) -> int:
    """Returns the number of operations in the captured graph of a compile."""
    return _calls(compile_, "captured")


def compile_of(record: Record, name: str) -> Compile:
    """Returns the first compile of the function of this name."""
    return next(frame for frame in record.frames if frame.name == name and frame.kind != "resume").compiles[0]


def _calls(compile_: Compile, artifact: str) -> int:
    graph = compile_.find(artifact).graph
    return sum(node.op.startswith("call") for node in graph.nodes) if graph else 0


def _steps_with_a_node(compile_: Compile) -> int:
    return sum("+ node" in line for line in compile_.replay().lines())


def _external_calls(compile_: Compile) -> int:
    return sum(kernel.graph == "forward" and kernel.language == "extern" for kernel in compile_.kernels)


def _resume_functions(compile_: Compile) -> int:
    return sum(len(each.resumes) for each in compile_.breaks)


def _would_be_saved(compile_: Compile) -> int:
    return compile_.partition.default_saved_count if compile_.partition else 0


def _read(kernel: Kernel) -> int:
    return kernel.bytes_read or 0


def _written(kernel: Kernel) -> int:
    return kernel.bytes_written or 0


ENTRIES = Measure("How many times", len)
COMPILES = Measure("How many compiles", lambda record: len(record.compiles))
RECOMPILES = Measure("How many recompiles", lambda record: sum(each.cause is not None for each in record.compiles))
FRAMES = Measure("How many frames", lambda record: len(record.frames))
GRAPHS = Measure("How many graphs", graphs)
BREAKING_LINES = Measure(
    "How many lines that break the graph", lambda record: sum(each.kind == "graph break" for each in record.problems)
)
OPERATIONS = Measure("How many operations", operations)
NOTED = Measure("How many operations", lambda lines: sum(" = " in line for line in lines))
STEPS_WITH_A_NODE = Measure("How many steps that add a node", _steps_with_a_node)
LEFT_BY_A_PASS = Measure("How many calls", lambda compile_: _calls(compile_, "pass.drop_dropout"))
RESUME_FUNCTIONS = Measure("How many resume functions", _resume_functions)
SAVED = Measure("How many tensors", lambda compile_: len(saved(compile_)))
SAVED_WITHOUT_RECOMPUTATION = Measure("How many tensors", _would_be_saved)
KERNELS = Measure("How many kernels", kernels)
EXTERNAL_CALLS = Measure("How many calls of PyTorch's own kernels", _external_calls)
BYTES_READ = Measure("How many bytes", _read, units=BYTES, within=0.002)
BYTES_WRITTEN = Measure("How many bytes", _written, units=BYTES, within=0.002)
BYTES_MOVED = Measure("How many bytes", lambda kernel: _read(kernel) + _written(kernel), units=BYTES, within=0.002)
RESULT = Measure("What", float)
LARGEST = Measure("How many", float)
DURATION = Measure("How many microseconds", float, units=MICROSECONDS, within=0.01)
SPEEDUP = Measure("At most how many times as fast", float, units=TIMES, within=0.05)

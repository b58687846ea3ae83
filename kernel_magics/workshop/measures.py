"""What questions count in a record."""

from __future__ import annotations

from compiler_core.records import Compile, Record


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

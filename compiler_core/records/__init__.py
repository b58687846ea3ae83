"""The record: what one run of the compiler did, as plain data.

    Record
      sources                 the user's files and cells, one artifact each
      frames                  one for each code object that the frame hook compiled or refused
        compiles              "0/0"; "0/1" is a recompile and names the guard that failed
          events              the stages in order, with time and outcome
          artifacts           texts (bytecode, graphs, kernels ...), with the span of each item
          guards, breaks, expansions, partition, fusions, refusals, kernels
          edges               provenance: ``made <- sources, rule``
          steps               every step of the symbolic interpreter, where that was asked for

Whatever can be pointed at is an *item*: a line of source, an instruction, a guard, a graph
node, a line of a kernel.  Its id is ``"<artifact id>#<key>"``.  Every linked view is computed
from the edges between items, in both directions (`Record.linked`).

Nothing here holds a tensor, a module or any other live object; this package needs nothing but
the standard library, and a record read from JSON is checked against its types before anything is
made of it, so one from a stranger is safe to open.

How much a record holds is limited, see `limits.py`; what was left out is counted in its notes.

The tree is in `record.py`, what it holds in a file for each part: `artifacts.py`, `capture.py`,
`partition.py`, `kernels.py`, `steps.py`, `differences.py`; `plain.py` reads and writes JSON.
"""

from __future__ import annotations

from compiler_core.records import limits
from compiler_core.records.artifacts import (
    Artifact,
    Edge,
    Event,
    Failure,
    Graph,
    ItemId,
    Language,
    Node,
    Outcome,
    Pane,
    Span,
    Stage,
)
from compiler_core.records.capture import GraphBreak, Guard, Recompile, StackLine, Symbol
from compiler_core.records.differences import Aspect, Comparison, Difference, State, Total
from compiler_core.records.kernels import (
    Accuracy,
    CudaGraph,
    Device,
    Fusion,
    FusionRefusal,
    Kernel,
    KernelResources,
    MemoryPlan,
    PlannedBuffer,
    Tried,
    Tuning,
)
from compiler_core.records.partition import BudgetPoint, Expansion, Partition, Value
from compiler_core.records.plain import RecordError, from_plain, public_fields, to_plain
from compiler_core.records.record import MAX_JSON_BYTES, SCHEMA_VERSION, Compile, Frame, Listener, Record
from compiler_core.records.steps import Replay, Steps

__all__ = [
    "MAX_JSON_BYTES", "SCHEMA_VERSION", "Accuracy", "Artifact", "Aspect", "BudgetPoint", "Comparison", "Compile",
    "CudaGraph", "Device", "Difference", "Edge", "Event", "Expansion", "Failure", "Frame", "Fusion",
    "FusionRefusal", "Graph", "GraphBreak", "Guard", "ItemId", "Kernel", "KernelResources", "Language",
    "Listener", "MemoryPlan", "Node", "Outcome", "Pane", "Partition", "PlannedBuffer", "Recompile", "Record",
    "RecordError", "Replay", "Span", "StackLine", "Stage", "State", "Steps", "Symbol", "Total", "Tried", "Tuning",
    "Value", "from_plain", "limits", "public_fields", "to_plain",
]  # fmt: skip

"""The record: the data of one run of the compiler, as plain dataclasses.

    Record
      sources                 the user's files and cells, one artifact each
      frames                  one for each code object that the frame hook compiled or refused
        compiles              "0/0"; "0/1" is a recompile and names the guards that failed
          events              the stages in order, with time and outcome
          artifacts           texts (bytecode, graphs, kernels ...), with the span of each item
          guards, breaks, expansions, partition, fusions, refusals, kernels
          edges               provenance: ``made <- sources, rule``
          steps               every step of the symbolic interpreter, if requested

An *item* is a part of a text that can be linked: a line of source, an instruction, a guard, a graph node, a line of a
kernel.  Its id is ``"<artifact id>#<key>"``.  `Record.linked` follows the edges between items in both directions.

A record holds no tensor, module or other live object, and this package imports the standard library only.  A record
read from JSON is checked against its types (`plain`) and rules (`rules`), so an untrusted file is safe to open.  Its
size is limited (`limits`), and its notes count what was left out.

`record.py` has the tree; `artifacts.py`, `capture.py`, `recompiles.py`, `partition.py`, `kernels.py`, `steps.py`,
`differences.py`, `timings.py`, `lookups.py` (in caches of compiled graphs), `collectives.py` (of a rank) and
`seen_frames.py` (the Python frames that ran) have its parts; `large_fields.py` keeps some of them in a file.
`source_files.py` adds source lines that graphs of others refer to.  `problems.py` (with `advice.py` and
`changed_nodes.py`), `item_lines.py` and `faster.py` read finished records; what else they answer is in
`tools/questions`.  `packages.py` names the packages of files.
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
from compiler_core.records.capture import GraphBreak, Guard, StackLine, Symbol
from compiler_core.records.differences import Aspect, Comparison, Difference, State, Total
from compiler_core.records.kernels import (
    Accuracy,
    CudaGraph,
    Device,
    Fusion,
    FusionRefusal,
    Kernel,
    KernelResources,
    PlannedBuffer,
    PlannedMemory,
    Tuning,
    TuningTrial,
)
from compiler_core.records.partition import BudgetPoint, Expansion, Partition, ValueDecision
from compiler_core.records.plain import RecordError, from_plain, public_fields, to_plain, without_gc
from compiler_core.records.problems import Problem, expected_count, needing_action, problem_count
from compiler_core.records.recompiles import FailedGuard, GuardAspect, MissedEntry, Recompile
from compiler_core.records.record import MAX_JSON_BYTES, SCHEMA_VERSION, Compile, Frame, Listener, Record, View
from compiler_core.records.steps import Replay, Steps
from compiler_core.records.timings import EagerTime, GraphTime, LineClock, LineTime, Timing, Timings, Verdict

__all__ = [
    "MAX_JSON_BYTES",
    "SCHEMA_VERSION",
    "Accuracy",
    "Artifact",
    "Aspect",
    "BudgetPoint",
    "Comparison",
    "Compile",
    "CudaGraph",
    "Device",
    "Difference",
    "EagerTime",
    "Edge",
    "Event",
    "Expansion",
    "FailedGuard",
    "Failure",
    "Frame",
    "Fusion",
    "FusionRefusal",
    "Graph",
    "GraphBreak",
    "GraphTime",
    "Guard",
    "GuardAspect",
    "ItemId",
    "Kernel",
    "KernelResources",
    "Language",
    "LineClock",
    "LineTime",
    "Listener",
    "MissedEntry",
    "Node",
    "Outcome",
    "Pane",
    "Partition",
    "PlannedBuffer",
    "PlannedMemory",
    "Problem",
    "Recompile",
    "Record",
    "RecordError",
    "Replay",
    "Span",
    "StackLine",
    "Stage",
    "State",
    "Steps",
    "Symbol",
    "Timing",
    "Timings",
    "Total",
    "Tuning",
    "TuningTrial",
    "ValueDecision",
    "Verdict",
    "View",
    "expected_count",
    "from_plain",
    "limits",
    "needing_action",
    "problem_count",
    "public_fields",
    "to_plain",
    "without_gc",
]  # fmt: skip

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

A record holds no tensor, module or other live object, and this package needs the standard library only.  A record
read from JSON is checked against its types and rules (`tools/record_reading.py`), so an untrusted file is safe to
open.  Its size is limited (`limits`), and its notes count what was left out.

`record.py` has the tree; `artifacts.py`, `capture.py` (with whose code a file is), `recompiles.py`, `kernels.py` (with
the partition, collectives and cache lookups), `steps.py`, `timings.py`, `problems.py` and `differences.py` (between two
runs) have its parts.  `plain.py` converts them, and `user_lines.py` finds the user's lines.  What a finished
record answers, its problems too, is in `tools/questions`.
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
    BudgetPoint,
    CudaGraph,
    Device,
    Expansion,
    Fusion,
    FusionRefusal,
    Kernel,
    KernelResources,
    NestLoop,
    Partition,
    PlannedBuffer,
    PlannedMemory,
    Rewrite,
    Schedule,
    Tuning,
    TuningTrial,
    ValueDecision,
)
from compiler_core.records.plain import RecordError, from_plain, public_fields, to_plain, without_gc
from compiler_core.records.problems import Problem, costly_and_expected, needing_action, problem_count
from compiler_core.records.recompiles import FailedGuard, GuardAspect, MissedEntry, Recompile
from compiler_core.records.record import SCHEMA_VERSION, Compile, Frame, Listener, Record, View
from compiler_core.records.steps import Steps
from compiler_core.records.timings import EagerTime, GraphTime, LineClock, LineTime, Timing, Timings, Verdict

"""What each kind of trace event costs of the memory budget."""

from __future__ import annotations

from compiler_core.tools.stock.build.graphs import GRAPHS
from compiler_core.tools.stock.build.memory_budget import Cost
from compiler_core.tools.stock.read.trace_event import TraceEvent

_DEFAULT = Cost()
_WHOLE_COMPILE_TIMES = Cost("times of whole compiles", reserve=0.15)

_COSTS: dict[str, Cost] = {
    **dict.fromkeys([*GRAPHS, "cutaway.pass"], Cost("graphs", bytes_per_line=700, reserve=0.2)),
    "inductor_output_code": Cost("codes", bytes_per_line=400, reserve=0.2),
    "dynamo_cpp_guards_str": Cost("lists of guards", bytes_per_line=800, reserve=0.2),
    "dynamo_graph_break_reason": Cost("graph breaks", bytes_per_line=600, reserve=0.2),
    "recompile_reasons": Cost("reasons for recompiles", reserve=0.2),
    "chromium_event": Cost("times"),
    **dict.fromkeys(("compilation_metrics", "bwd_compilation_metrics"), Cost("outcomes", reserve=0.15)),
    "create_symbol": Cost("symbols", reserve=0.2),
    **dict.fromkeys(("cutaway.bytecode", "cutaway.steps"), Cost("bytecode and steps", reserve=0.2)),
    "cutaway.given_up": Cost("functions that are not compiled", reserve=0.15),
    "cutaway.guard_lines": Cost("lines of guards", reserve=0.2),
    "cutaway.guard_costs": Cost("costs of guards", reserve=0.2),
    **dict.fromkeys(("cutaway.kernel", "cutaway.refusal", "cutaway.autotuning"), Cost("kernels", reserve=0.2)),
}
"""The events that are not counted as other texts."""


def cost_of(event: TraceEvent) -> Cost:
    """Returns the cost of an event."""
    if event.name == "chromium_event" and '"entire_' in event.payload:
        return _WHOLE_COMPILE_TIMES
    return _COSTS.get(event.name, _DEFAULT)

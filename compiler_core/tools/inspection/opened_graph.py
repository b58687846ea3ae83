"""Records of graphs that were not compiled here: from PyTorch's symbolic tracer, `torch.export`, or the user."""

from __future__ import annotations

from typing import Any

from compiler_core.api.torch_backend import our_metadata, record_foreign_graph
from compiler_core.records import Graph, Record
from compiler_core.support.fx_graphs import copy_graph


def graph_record(graph: Any, beside: Record | None = None) -> Record:
    """Returns a record of a graph as the captured graph of a compile; `graph` does not change.

    Args:
        graph: a `torch.fx.GraphModule`, or an exported program.
        beside: a record whose compiles the graph is shown beside; the new record has a copy of them, too.

    Tensor types, module paths and source lines are recorded as far as the nodes' metadata have them.
    """
    gm = getattr(graph, "graph_module", graph)
    record = Record.from_json(beside.to_json()) if beside else Record()
    record.title = f"{beside.title} and a graph" if beside else type(graph).__name__
    copied = copy_graph(gm)
    signature = getattr(graph, "graph_signature", None)
    parameters = signature.inputs_to_parameters if signature else {}
    for node, original in zip(copied.graph.nodes, gm.graph.nodes, strict=True):
        node.name = original.name
        node.meta |= our_metadata(original)
        if original.name in parameters:
            node.meta["role"] = "parameter"
    compile_ = record_foreign_graph(copied, record)
    compile_.outcome = "skipped"
    compile_.reason = f"a graph that was opened ({type(graph).__name__}), not compiled here"
    for described in (compile_.find("captured").graph or Graph([], [])).nodes:
        if described.device == "meta":  # a shape alone, whose device is not known
            described.device = None
    record.find_problems()
    return record

"""Records of graphs that were not compiled here: from PyTorch's symbolic tracer, `torch.export`, or the user."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx
from torch.fx.passes.shape_prop import TensorMetadata

from compiler_core.api.torch_backend import record_foreign_graph
from compiler_core.records import Graph, Record
from compiler_core.support.fx_graphs import copy_graph
from compiler_core.torch_private import tree_map_only


def graph_record(graph: Any, beside: Record | None = None) -> Record:
    """Returns a record of a graph as the captured graph of a compile; `graph` does not change.

    Args:
        graph: a `torch.fx.GraphModule`, or an exported program.
        beside: a record whose compiles the graph is shown beside; the new record has a copy of them, too.

    Tensor types, module paths and source lines are recorded as far as the nodes' metadata have them.
    """
    gm = getattr(graph, "graph_module", graph)
    record = Record.from_json(beside.to_json()) if beside else Record()
    record.title = f"{beside.title or 'A record'} and a graph" if beside else type(graph).__name__
    copied = copy_graph(gm)
    signature = getattr(graph, "graph_signature", None)
    parameters = signature.inputs_to_parameters if signature else {}
    for node, original in zip(copied.graph.nodes, gm.graph.nodes, strict=True):
        node.name = original.name
        node.meta |= _our_metadata(original)
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


def _our_metadata(node: fx.Node) -> dict[str, Any]:
    """Returns what our graphs keep of a node: an example of its value, and the path of its module."""
    found: dict[str, Any] = {}
    value = node.meta.get("val", node.meta.get("example_value", node.meta.get("tensor_meta")))
    if value is not None:
        found["val"] = tree_map_only(TensorMetadata, _example, value, is_leaf=_is_metadata)
    modules = list((node.meta.get("nn_module_stack") or {}).values())
    if modules and isinstance(modules[-1], tuple) and modules[-1][0]:
        found["module"] = str(modules[-1][0])
    elif node.op in ("call_module", "get_attr"):
        found["module"] = str(node.target).rpartition(".")[0] if node.op == "get_attr" else str(node.target)
    return found


def _is_metadata(value: Any) -> bool:
    return isinstance(value, TensorMetadata)


def _example(metadata: TensorMetadata) -> torch.Tensor:
    """Returns a tensor without data of the shape and type that PyTorch's shape propagation found."""
    return torch.empty(metadata.shape, dtype=metadata.dtype, device="meta")

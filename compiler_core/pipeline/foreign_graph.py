"""Records FX graphs that others captured: stock `torch.compile`, PyTorch's symbolic tracer, or the user."""

from __future__ import annotations

import re
from typing import Any

import torch
import torch.fx as fx
from torch.fx.passes.shape_prop import TensorMetadata

from compiler_core.hook.skip_rules import is_library_file
from compiler_core.records import Compile, Record
from compiler_core.records.user_lines import SourceFiles
from compiler_core.support.fx_graphs import record_graph
from compiler_core.torch_private import tree_map_only

_FILE = re.compile(r'File "(.+)", line (\d+), in (.+)')


def record_foreign_graph(gm: fx.GraphModule, record: Record) -> Compile:
    """Adds a compile with the captured graph to `record`, its nodes linked to the user's lines."""
    stacks = {n: _FILE.findall(n.meta.get("stack_trace") or "") for n in gm.graph.nodes}
    # the innermost line of the user's, or else of a library
    locations = {
        n: next((line for line in reversed(stack) if not is_library_file(line[0])), stack[-1])
        for n, stack in stacks.items()
        if stack
    }
    filename, line, name = next(iter(locations.values()), ("<unknown>", "1", gm.__class__.__name__))
    frame = record.frame(name, filename, int(line), "root")
    # The ids of stock's frames are not their positions in the list.
    frame.id = 1 + max((each.id for each in record.frames if each is not frame), default=-1)
    compile_ = record.compile(frame)
    lines = SourceFiles(record, read_files=True)
    for node in gm.graph.nodes:
        item = lines.item(locations[node][0], int(locations[node][1])) if node in locations else None
        node.meta |= {"origin": (item,) if item else (), "rule": "capture"}
    lines.flush()
    record_graph(compile_, "captured", "captured", gm)
    compile_.outcome = "compiled"
    return compile_


def our_metadata(node: fx.Node) -> dict[str, Any]:
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

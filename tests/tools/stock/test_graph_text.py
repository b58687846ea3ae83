"""Tests of the parser of printed graphs: whatever the names are, its graphs keep the rules of records."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from compiler_core.records import Record
from compiler_core.tools.stock.read.graph_text import ParsedGraph, read_graph


def parsed(body: str, parameters: str = "self, L_x_, b") -> ParsedGraph:
    """Returns the parsed graph, after a check that a record with it can be loaded."""
    text = f"class GraphModule(torch.nn.Module):\n    def forward({parameters}):\n"
    text += "".join(f"        {line}\n" for line in body.splitlines())
    found, record = read_graph(text), Record()
    compile_ = record.compile(record.frame("f", "a.py", 1, "root"))
    compile_.artifact("captured", "captured", "python", text, found.spans, found.graph)
    assert Record.from_json(record.to_json()) == record
    return found


def test_an_input_that_is_renamed() -> None:
    found = parsed("l_x_ = L_x_\nc = l_x_ + b\nreturn (c,)")
    assert [node.key for node in found.graph.nodes] == ["l_x_", "b", "c", "output"]
    assert found.graph.edges == [["l_x_", "c"], ["b", "c"], ["c", "output"]]


def test_an_input_that_is_read_before_and_after_it_is_renamed() -> None:
    found = parsed("c = L_x_ + b\nl_x_ = L_x_\nd = L_x_ + l_x_\nreturn (L_x_, d)")
    assert found.graph.edges == [["l_x_", "c"], ["b", "c"], ["l_x_", "d"], ["l_x_", "output"], ["d", "output"]]
    assert found.outputs == ["l_x_", "d"]


def test_an_input_that_gets_the_name_of_another_node() -> None:
    assert [node.key for node in parsed("b = L_x_\nreturn (b,)").graph.nodes] == ["L_x_", "b", "output"]


@pytest.mark.parametrize(("parameters", "key"), [("self, output", "output_1"), ("self, output, output_1", "output_2")])
def test_a_node_called_output(parameters: str, key: str) -> None:
    found = parsed("return (output,)", parameters)
    assert (found.graph.nodes[-1].op, found.graph.nodes[-1].key) == ("output", key)
    assert found.graph.edges == [["output", key]]
    assert found.spans[-1].key == key


def test_inputs_that_are_removed_after_they_were_read() -> None:
    text = 'c = primals + 1\nprimals_1: "f32[2]"\nprimals_1, = fx_pytree.tree_flatten_spec([primals], self._in_spec)\n'
    assert parsed(f"{text}return (c, primals)", "self, primals").graph.nodes[-1].op == "output"


def operators(x: Any, y: Any) -> list[Any]:
    numbers = [x + 1, x * -1, x - 1e-05, -2.5 / x, x // -1e20, x % 7, 2**-x, x**-0.5, x < -1, x >= 1e-5, x == -0.0]
    return [*numbers, x & y, x | 1, x ^ -3, x @ y, -x, ~y, x > y, x[0], x[..., -1], x != y, x <= True]


def test_operators_are_those_of_the_graph() -> None:
    gm = torch.fx.symbolic_trace(lambda x, y: operators(x, y))  # without annotations
    found = read_graph(gm.print_readable(print_output=False)).graph
    calls: list[Any] = [node for node in gm.graph.nodes if node.op == "call_function"]
    right = {node.name: f"operator.{node.target.__name__}" for node in calls}
    assert {node.key: node.target for node in found.nodes if node.op == "call_function"} == right


def test_an_attribute_is_one_target_for_all_tensors() -> None:
    gm = torch.fx.symbolic_trace(lambda x, y: (x.T + 1, y.T + 1))
    found = read_graph(gm.print_readable(print_output=False)).graph
    assert [node.target for node in found.nodes if node.op == "call_method"] == ["T", "T"]

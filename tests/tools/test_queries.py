"""Queries on records, for programs of the documentation and for models."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import compiler_core
from compiler_core.records import Artifact, Expansion, Record
from compiler_core.tools.questions.queries import KeptValue, added_by_autograd, why_kept, why_static
from tests.cases.training_models import MODELS, leaves
from tests.sampling import always, sample


def recorded(function: Callable[..., Any], *inputs: Any, backend: str = "aot_eager", **options: Any) -> Record:
    with compiler_core.record() as record:
        compiler_core.compile(function, backend=backend, strict=True, **options)(*inputs)
    return record


def line_with(record: Record, text: str) -> str:
    (item,) = [i for i in record.search(text, "source") if record.text(i).strip() == text]
    return item


def names(items: Any) -> list[str]:
    return [item.rpartition("#")[2] for item in items]


def cos_cos(x: torch.Tensor) -> torch.Tensor:
    y = torch.cos(x)
    return torch.cos(y)


def projected(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x @ w
    z = F.dropout(y.exp(), 0.5)
    return F.gelu(z @ w)


# ---- saved ---------------------------------------------------------------------------------


def test_the_input_of_cos_of_cos_is_saved_and_cannot_be_recomputed() -> None:
    record = recorded(cos_cos, torch.randn(64, requires_grad=True))
    (kept,) = why_kept(record, line_with(record, "y = torch.cos(x)"))
    assert (kept.value.decision, kept.value.bytes) == ("saved", 256)
    assert kept.value.reason.startswith("an input, in memory already")
    assert kept.drop is None
    assert set(names(kept.readers)) == {"sin_1", "cos"}
    assert why_kept(record, line_with(record, "return torch.cos(y)")) == []


def test_cost_of_dropping_a_product() -> None:
    record = recorded(projected, torch.randn(8, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True))
    (found,) = [k for k in why_kept(record, line_with(record, "y = x @ w")) if k.drop is not None]
    assert "matrix product" in found.value.reason
    assert found.drop is not None
    assert found.drop.bytes == 8 * 16 * 4
    assert names(found.drop.sources) == ["primals_1", "primals_2"]
    assert names(found.drop.again) == ["mm"]
    assert found.drop.ns > 0
    assert [record.text(line).strip() for line in found.lines] == ["y = x @ w"]
    (alone,) = why_kept(record, found.value.node)
    assert alone == found
    (drawn,) = [
        k for k in why_kept(record, line_with(record, "z = F.dropout(y.exp(), 0.5)")) if "random" in k.value.reason
    ]
    assert drawn.drop is None


def test_an_input_of_the_backward_is_a_saved_value() -> None:
    record = recorded(projected, torch.randn(8, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True))
    (compile_,) = record.compiles
    for span in compile_.find("backward").spans:
        kept = why_kept(record, compile_.find("backward").item(span.key))
        saved = [k for k in kept if names([k.value.node]) == [span.key]]
        placeholder = span.key in names(v.node for v in _saved(record))
        assert bool(saved) == placeholder


@functools.cache
def recorded_model(name: str) -> Record:
    torch.manual_seed(0)
    function, inputs = MODELS[name](16)
    return recorded(function, *inputs)


@pytest.mark.parametrize("name", sample(MODELS, 3))
def test_every_saved_value_of_a_model_is_explained(name: str) -> None:
    record = recorded_model(name)
    backward = record.compiles[0].find("backward")
    for value in _saved(record):
        (kept,) = why_kept(record, value.node)
        assert kept.value is value
        assert kept.lines
        assert kept.readers or kept.value.node in _outputs(backward)
        if kept.drop is not None:
            assert backward.graph is not None
            runs = {n.key for n in backward.graph.nodes}
            _recomputes(kept, {*names(v.node for v in _saved(record))}, runs)
        assert kept in why_kept(record, kept.lines[0])
    assert any(k.drop for v in _saved(record) for k in why_kept(record, v.node)) or name == "cos(cos(x))"


def test_what_the_parts_of_a_graph_save_is_explained() -> None:
    """A graph with an operation that waits for data runs in parts, each with a forward and a backward."""

    def counted(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        y = x.sin().cos()
        counts = torch.bincount(index, minlength=3).clamp(min=1)
        return y / counts

    record = recorded(counted, torch.ones(3, requires_grad=True), torch.tensor([0, 2]))
    (compile_,) = record.compiles
    partition = compile_.partition
    assert partition is not None
    assert [a.name for a in compile_.artifacts if a.pane == "backward"] == ["part_0.backward", "part_4.backward"]
    saved = _saved(record)
    assert partition.saved_count == len(saved)
    assert partition.saved_bytes == sum(value.bytes for value in saved)
    for value in saved:
        (kept,) = why_kept(record, value.node)
        assert kept.lines
        assert kept.readers
    for text, function in (("y = x.sin().cos()", "SinBackward0"), ("return y / counts", "DivBackward0")):
        assert function in {f for e in added_by_autograd(record, line_with(record, text)) for f in e.functions}


def _saved(record: Record) -> list[Any]:
    partition = record.compiles[0].partition
    assert partition is not None
    return [v for v in partition.values if v.decision == "saved"]


def _outputs(backward: Artifact) -> set[str]:
    assert backward.graph is not None
    return {source.replace("backward", "forward") for source, node in backward.graph.edges if node == "output"}


def _recomputes(kept: KeptValue, saved: set[str], runs: set[str]) -> None:
    """Checks that the recomputed operations lead from saved values to the value, and do not run already."""
    assert kept.drop is not None
    assert set(names(kept.drop.sources)) <= saved - set(names([kept.value.node]))
    assert names(kept.drop.again)[-1:] == names([kept.value.node])
    assert runs.isdisjoint(names(kept.drop.again)[:-1])
    assert kept.drop.bytes == kept.value.bytes


# ---- autograd ------------------------------------------------------------------------------


def test_what_autograd_added_for_a_line() -> None:
    record = recorded(cos_cos, torch.randn(64, requires_grad=True))
    (inner,) = added_by_autograd(record, line_with(record, "y = torch.cos(x)"))
    (outer,) = added_by_autograd(record, line_with(record, "return torch.cos(y)"))
    assert inner.functions == outer.functions == ["CosBackward0"]
    assert (inner.target, names(inner.forward)) == ("torch.cos", ["cos"])
    assert names(outer.backward) == ["sin", "neg", "mul"]
    assert names(inner.backward) == ["sin_1", "neg_1", "mul_1"]


@pytest.mark.parametrize("name", always(MODELS, lambda name: name != "gpt2"))
def test_every_operation_of_the_backward_was_added_for_a_line(name: str) -> None:
    record = recorded_model(name)
    (compile_,) = record.compiles
    graph = compile_.find("joint").graph
    assert graph is not None
    added = {e.made for e in compile_.edges if e.rule.startswith("autograd ") and ":joint#" in e.made}
    calls = {compile_.find("joint").item(n.key) for n in graph.nodes if n.op == "call_function"}
    found: dict[str, Expansion] = {}
    for source in record.sources:
        for span in source.spans:
            found |= {e.node: e for e in added_by_autograd(record, source.item(span.key))}
    assert {item for e in found.values() for item in e.backward} == added & calls
    assert {item for e in compile_.expansions for item in (*e.forward, *e.backward)} >= calls & added
    assert all(e.functions for e in found.values())
    assert leaves(*MODELS[name](16))


def test_expansions_of_operations() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.layer_norm(x, (16,)))

    for grad in (True, False):
        (compile_,) = recorded(function, torch.randn(4, 16, requires_grad=grad)).compiles
        norm, gelu = compile_.expansions
        assert (norm.target, gelu.target) == ("torch.nn.functional.layer_norm", "torch.nn.functional.gelu")
        assert norm.decomposed[0] == "aten.native_layer_norm.default"
        assert "rsqrt" in names(norm.forward)
        assert "erf" in names(gelu.forward)
        backward = ["aten.gelu_backward.default"] if grad else []
        assert gelu.decomposed == ["aten.gelu.default", *backward]
        assert bool(norm.backward) == bool(gelu.functions) == grad


def test_other_backends_have_no_expansions() -> None:
    (compile_,) = recorded(cos_cos, torch.randn(4, requires_grad=True), backend="eager").compiles
    assert compile_.expansions == []


# ---- static --------------------------------------------------------------------------------


def sized(x: torch.Tensor, scale: int) -> torch.Tensor:
    y = x * scale
    if x.shape[0] == 5:
        y = y + 1
    return y.sum(1)


def test_which_line_made_a_dimension_static() -> None:
    record = recorded(sized, torch.randn(3, 4), 2)
    sizes = why_static(record, "L['x']")
    assert [(s.source, s.value) for s in sizes] == [("L['x'].size()[0]", 3), ("L['x'].size()[1]", 4)]
    assert {record.text(s.line).strip() for s in sizes if s.line} == {"y = x * scale"}
    (number,) = why_static(record, "L['scale']")
    assert (number.value, number.line) == (2, sizes[0].line)


def test_which_line_specialized_a_symbol() -> None:
    record = recorded(sized, torch.randn(5, 4), 2, backend="eager", dynamic=True)
    (size,) = why_static(record, "L['x']")
    assert (size.source, size.value) == ("L['x'].size()[0]", 5)
    assert size.line is not None
    assert record.text(size.line).strip() == "if x.shape[0] == 5:"


def test_queries_on_a_record_from_json() -> None:
    record = recorded(projected, torch.randn(8, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True))
    again = Record.from_json(record.to_json())
    line = line_with(record, "y = x @ w")
    assert why_kept(again, line) == why_kept(record, line)
    assert added_by_autograd(again, line) == added_by_autograd(record, line)
    assert why_static(again) == why_static(record)


def test_a_line_is_found_by_the_end_of_its_path() -> None:
    record = Record()
    record.source("/one/model.py", 12, ["y = x"])
    assert record.line("model.py", 12) == record.line("/one/model.py", 12) == "src:0#12"
    assert record.line("del.py", 12) is None
    record.source("/other/model.py", 12, ["y = x"])
    assert record.line("model.py", 12) is None  # it may be either
    assert record.line("one/model.py", 12) == "src:0#12"

"""Records of real compiles: links between the user's lines and kernels, JSON, errors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from compiler_core.api import compile as api
from compiler_core.records import SCHEMA_VERSION, Compile, ItemId, Record, RecordError, to_plain
from compiler_core.tools import recording


def function(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    x = inputs["x"]
    y = inputs["y"]
    x = x.cos().cos()
    if x.mean() > 0.5:
        x = x / 1.1
    return x * y


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.dropout = nn.Dropout(0.2)
        self.last = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(x))
        hidden = self.dropout(hidden)
        return torch.softmax(self.last(hidden), 1)


@pytest.fixture(scope="module")
def walk() -> Record:
    compiled = api.compile(function)
    with recording.record("walk") as record:
        for size in (10, 8):
            compiled({name: torch.randn(size, requires_grad=True) for name in "xy"}).sum().backward()
    return record


@pytest.fixture(scope="module")
def mlp() -> Record:
    compiled = api.compile(MLP())
    with recording.record("mlp") as record:
        compiled(torch.randn(5, 8)).square().sum().backward()
    return record


def compile_with(record: Record, text: str) -> Compile:
    """Returns the first compile whose captured graph contains `text`."""
    return next(c for c in record.compiles for a in c.artifacts if a.pane == "captured" and text in a.text)


def line_of(record: Record, text: str) -> ItemId:
    """Returns the item of the first source line that contains `text`; the programs are at the top of this file."""
    return record.search(text, "source")[0]


def texts(record: Record, items: set[ItemId], artifact: str) -> str:
    """Returns the text of those `items` that are in the artifact with this id."""
    return "\n".join(record.text(item) for item in sorted(items) if item.startswith(f"{artifact}#"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x = x.cos().cos()", {"forward.cpp": "cosf(", "backward.cpp": "sinf("}),
        ("if x.mean() > 0.5:", {"forward.cpp": "> 0.5", "bytecode": "POP_JUMP"}),
    ],
)
def test_a_line_links_to_its_nodes_and_kernels(walk: Record, line: str, expected: dict[str, str]) -> None:
    first = compile_with(walk, ".cos()")
    linked = walk.linked(line_of(walk, line))
    for artifact, text in expected.items():
        assert text in texts(walk, linked, f"{first.id}:{artifact}")


def test_a_line_does_not_link_to_nodes_of_other_lines(walk: Record) -> None:
    first = compile_with(walk, ".cos()")
    linked = walk.linked(line_of(walk, "if x.mean() > 0.5:"))
    assert "aten.mean" in texts(walk, linked, f"{first.id}:forward")
    assert not texts(walk, linked, f"{first.id}:backward.cpp"), "the branch has no gradient"


def test_a_line_of_a_kernel_links_to_the_users_line(walk: Record) -> None:
    first = compile_with(walk, ".cos()")
    for artifact, text in (("forward.cpp", "cosf(v0)"), ("backward.cpp", "sinf(cos)")):
        item = next(i for i in walk.search(text, "kernel") if i.startswith(f"{first.id}:{artifact}#"))
        sources = [walk.text(i).strip() for i in walk.linked(item) if i.startswith("src:")]
        assert sources == ["x = x.cos().cos()"]


def test_lines_after_a_break_are_linked(walk: Record) -> None:
    second = compile_with(walk, "truediv")
    linked = walk.linked(line_of(walk, "return x * y"))
    assert " * " in texts(walk, linked, f"{second.id}:forward.cpp")


@pytest.mark.parametrize("line", ["torch.tanh(self.first(x))", "torch.softmax(self.last(hidden), 1)"])
def test_a_line_of_a_module_links_to_both_graphs_and_their_kernels(mlp: Record, line: str) -> None:
    linked = mlp.linked(line_of(mlp, line))
    panes = {artifact.pane for artifact in mlp.artifacts for i in linked if i.startswith(f"{artifact.id}#")}
    assert panes >= {"captured", "joint", "forward", "backward", "kernel", "wrapper"}


def test_dropouts_mask_is_linked_in_the_backward(mlp: Record) -> None:
    linked = mlp.linked(line_of(mlp, "self.dropout(hidden)"))
    assert "aten.mul" in texts(mlp, linked, f"{compile_with(mlp, 'dropout').id}:backward")


def test_all_items_of_edges_exist(walk: Record, mlp: Record) -> None:
    for record in (walk, mlp):
        known = {artifact.item(span.key) for artifact in record.artifacts for span in artifact.spans}
        for compile_ in record.compiles:
            edges = {item for edge in compile_.edges for item in (edge.made, *edge.sources)}
            assert edges <= known
            guards = {guard.line for guard in compile_.guards if guard.line}
            kernels = {kernel.item for kernel in compile_.kernels if kernel.item}
            values = {value.node for value in compile_.partition.values} if compile_.partition else set()
            assert guards | kernels | values <= known


def test_every_kernel_is_linked_to_a_users_line(walk: Record, mlp: Record) -> None:
    for record in (walk, mlp):
        for kernel in [k for c in record.compiles for k in c.kernels if k.item]:
            assert any(i.startswith("src:") for i in record.linked(kernel.item or "")), kernel


def test_json_round_trip(walk: Record, mlp: Record) -> None:
    for record in (walk, mlp):
        again = Record.from_json(record.to_json())
        assert to_plain(again) == to_plain(record)
        item = record.artifacts[-1].item(record.artifacts[-1].spans[0].key)
        assert again.linked(item) == record.linked(item)


def test_saved_and_loaded(walk: Record, tmp_path: Any) -> None:
    assert to_plain(Record.load(walk.save(tmp_path / "walk.json"))) == to_plain(walk)


def damage(change: Callable[[dict[str, Any]], object]) -> Callable[[Record], str]:
    def damaged(record: Record) -> str:
        plain = json.loads(record.to_json())
        change(plain)
        return json.dumps(plain)

    return damaged


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (damage(lambda r: r.update(schema_version=99)), f"version 99 and this Cutaway reads {SCHEMA_VERSION}"),
        (damage(lambda r: r.pop("schema_version")), "no schema_version"),
        (damage(lambda r: r.update(surprise=1)), "record: unknown field 'surprise'"),
        (damage(lambda r: r.update(title=3)), "record.title: expected str, got int"),
        (damage(lambda r: r.update(frames={})), "record.frames: expected list, got dict"),
        (damage(lambda r: r["frames"][0].update(line=True)), "record.frames[0].line: expected int, got bool"),
        (damage(lambda r: r["frames"][0].update(kind="odd")), "record.frames[0].kind: 'odd' is not one of"),
        (damage(lambda r: r["frames"][0].pop("name")), "record.frames[0]: "),
        (damage(lambda r: r["frames"][0]["compiles"][0].update(guards=None)), "guards: expected list, got null"),
        (lambda record: record.to_json()[:-10], "not JSON"),
        (lambda record: " ", "nothing in it"),
        (lambda record: "[]", "not a Cutaway record"),
        (lambda record: "[" * 100_000, "not JSON"),
    ],
)
def test_errors_of_damaged_records_name_the_path(walk: Record, damaged: Callable[[Record], str], message: str) -> None:
    with pytest.raises(RecordError) as refusal:
        Record.from_json(damaged(walk))
    assert message in str(refusal.value)


def test_an_unknown_item_is_named(walk: Record) -> None:
    with pytest.raises(KeyError, match="no item '0/0:nothing#1'"):
        walk.text("0/0:nothing#1")


def test_record_needs_the_standard_library_only() -> None:
    program = """
import sys
before = set(sys.modules)
import compiler_core.records
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(new - set(sys.stdlib_module_names)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["compiler_core"]


@pytest.mark.parametrize("whole", [False, True])
def test_the_gradient_of_each_parameter_is_linked_to_it(whole: bool) -> None:
    """In one graph over its node in the captured graph, which has its place; in two graphs directly."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))

    def step(x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(x).sum()
        loss.backward()
        return loss.detach()

    with recording.record() as record:
        api.compile(step, capture_backward=whole)(torch.randn(5, 4))
    compile_ = next(each for each in record.compiles if each.kernels)
    assert compile_.has_whole_step == whole
    captured = compile_.captured_graphs[0]
    graph = next(a for a in compile_.artifacts if a.name == ("forward" if whole else "joint"))
    assert captured.graph is not None
    assert graph.graph is not None
    parameters = {node.place: node for node in captured.graph.nodes if node.role == "parameter"}
    assert list(parameters) == [f"model.{at}.{name}" for at in (0, 2) for name in ("weight", "bias")]
    gradients = {node.place.removesuffix(".grad"): node for node in captured.graph.nodes if node.role == "gradient"}
    calls = {graph.item(node.key): node for node in graph.graph.nodes if node.op == "call_function"}
    for name, parameter in parameters.items():
        source = captured.item((gradients if whole else parameters)[name].key)
        made = [calls[edge.made] for edge in compile_.edges if source in edge.sources and edge.made in calls]
        found = [node for node in made if whole or node.role == "gradient"]
        assert parameter.shape in [node.shape for node in found], (name, made)

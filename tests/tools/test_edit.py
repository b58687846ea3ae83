"""Kernels and graphs that were edited by hand: tried beside the original, swapped in, and taken out again."""

from __future__ import annotations

import re
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.api.compile import compile as compile_
from compiler_core.api.compile import record_of
from compiler_core.codegen.source import KernelSource, LineOrigin
from compiler_core.config import CodeEdit
from compiler_core.errors import GraphPassError, UsageError
from compiler_core.records import Record
from compiler_core.support.fx_graphs import graph_module
from compiler_core.tools.changes.edited_texts import apply_edits, function_text, without_edits
from compiler_core.tools.editing import kernel_trial, wrapper_trial
from compiler_core.tools.editing.graph_from_text import graph_from_text, printed
from compiler_core.tools.editing.kernel_trial import Trial
from tests import warm_python

STORE = "out_add[i0] = add;"


def scaled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x * w) + 1


@pytest.fixture(scope="module")
def record() -> Record:
    torch.manual_seed(0)
    with compiler_core.record() as made:
        compile_(scaled)(torch.randn(64, requires_grad=True), torch.randn(64)).sum().backward()
    return made


@pytest.fixture
def warm_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials that import PyTorch have processes in which it is imported already."""

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if command[1] != "-m":
            return subprocess.run(command, **options)
        return warm_python.run(command[1:], env=options["env"], timeout=options["timeout"])

    monkeypatch.setattr(kernel_trial, "subprocess", SimpleNamespace(**vars(subprocess) | {"run": run}))


def tried(record: Record, old: str, new: str, id: str = "0/0:forward_0") -> Trial:
    text = compiler_core.editable_text(record, id)
    assert old in text
    return compiler_core.try_edit(record, id, text.replace(old, new)).trial


def test_the_text_itself_is_right_and_both_are_timed(record: Record) -> None:
    trial = tried(record, STORE, STORE)
    assert trial.is_right
    assert set(trial.errors.values()) == {0.0}
    assert trial.seconds is not None
    assert trial.change == ""


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("out_add[i0] = add + 1e-3f;", "more than rounding"),
        ("", "out_add"),  # it was filled before, so that nothing right is left from an earlier run
        ("out_add[i0 + 1] = add;", "out of range: it stores 4 bytes outside of out_add, at its end"),
        ("out_add[i0] = add; out_add[i0 - 3] = 1;", "out of range: it stores 12 bytes outside of out_add"),
        ("out_add[i0 << 32] = add;", r"it crashed \(SIGSEGV\)"),
        (
            "out_add[i0] = add; ((f32*)in_primals_1)[i0] = 0;",
            "it stores to in_primals_1, which the original only reads",
        ),
    ],
)
def test_an_edited_kernel_that_is_wrong_is_caught(record: Record, new: str, message: str) -> None:
    trial = tried(record, STORE, new)
    assert not trial.is_right
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(str(trial))
    assert STORE in trial.change


@pytest.mark.parametrize(
    ("id", "old", "new"),
    [
        ("0/0:forward_0", STORE, "volatile i32 forever = 1; while (forever) {} " + STORE),
        ("0/0:forward.wrapper", "    forward_0(", "    while True: pass\n    forward_0("),
    ],
)
@pytest.mark.usefixtures("warm_trials")
def test_a_text_that_does_not_end_is_stopped(
    record: Record, monkeypatch: pytest.MonkeyPatch, id: str, old: str, new: str
) -> None:
    monkeypatch.setattr(kernel_trial, "SECONDS", 1)
    monkeypatch.setattr(wrapper_trial, "SECONDS", 1)
    assert tried(record, old, new, id).fault == "it did not end within its time limit"


def test_a_kernel_that_is_slow_only_while_it_is_timed_has_its_values(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_trial, "SECONDS", 1)
    counted = f"static i32 stores = 0; volatile i32 forever = ++stores > 64; while (forever) {{}} {STORE}"
    trial = tried(record, STORE, counted)
    assert trial.is_right
    assert "They were not timed" in str(trial)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (STORE, "out_add[i0] = sum;", "cannot be built: .*'sum' was not declared"),
        (" noexcept", ", i64 n) noexcept", "with the parameters that it has"),
        ("forward_0", "another", "with the parameters that it has"),
    ],
)
def test_a_text_that_is_no_such_kernel_is_refused(record: Record, old: str, new: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tried(record, old, new)


def test_what_can_be_edited_is_named(record: Record) -> None:
    with pytest.raises(UsageError, match=r"there are 0/0:forward_0, 0/0:backward_0, 0/0:forward_0\.loops, ") as refused:
        compiler_core.editable_text(record, "0/0:nothing")
    assert "0/0:forward.wrapper, 0/0:backward.wrapper, 0/0:captured" in str(refused.value)
    with pytest.raises(UsageError, match="by a pass"):
        compiler_core.editable_text(record, "joint")
    with pytest.raises(UsageError, match="stock_edited"):
        compiler_core.edit(scaled, "0/0:captured", "", record=Record(engine="torch"))
    with pytest.raises(UsageError, match="read from a file"):
        compiler_core.try_edit(Record(), "0/0:forward_0", "")


def test_a_kernel_of_the_backward_gets_what_the_forward_saved(record: Record) -> None:
    text = compiler_core.editable_text(record, "backward_0")
    assert compiler_core.try_edit(record, "backward_0", text).trial.is_right


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tanh(mul)", "sin(mul)", "out_add .*more than rounding"),
        ("store add[i0]", "store add[i0 + 9]", "out of range: it stores 36 bytes outside of out_add"),
    ],
)
def test_edited_loops_that_are_wrong_are_caught(record: Record, old: str, new: str, message: str) -> None:
    trial = tried(record, old, new, "0/0:forward_0.loops")
    assert not trial.is_right
    assert re.search(message, str(trial))
    assert old in trial.change


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tanh(mul)", "tanh(nothing)", "line 5: nothing is not defined above this line"),
        ("tanh(mul)", "tanh(mul, mul)", "tanh takes 1 arguments"),
        ("i0 < 64", "i1 < 64", "line 1: expected `i0 < size`"),
        ("[i0]", "[i0 * i0]", "line 2: an index expression adds multiples"),
        ("add: f32", "add = f32", "line 6: not a statement"),
        ("primals_2[", "more[", "line 3: there is no buffer more; there are primals_1, primals_2"),
        ("store add[i0] = add", "store primals_1[i0] = add", "the writes of the loops must stay add, rsub"),
        ("primals_2[", "primals_1[", "the reads of the loops must stay primals_1, primals_2"),
    ],
)
def test_a_text_that_is_no_loop_nest_is_refused(record: Record, old: str, new: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tried(record, old, new, "0/0:forward_0.loops")


@pytest.mark.usefixtures("warm_trials")
def test_loops_and_wrappers_are_swapped_in_and_taken_out() -> None:
    torch._dynamo.reset()
    x, w = torch.randn(64), torch.randn(64)
    compiled = compile_(scaled)
    right = compiled(x, w)
    record = record_of(compiled)
    loops = compiler_core.editable_text(record, "forward_0.loops")
    assert compiler_core.edit(compiled, "forward_0.loops", loops.replace("1.0)", "2.0)"), force=True).wrong == [
        "out_add"
    ]
    with compiler_core.record() as edited:
        assert torch.allclose(compiled(x, w), right + 1)
    assert "add(tanh, 2.0)" in edited.compiles[0].find("forward.loops").text
    assert all(edited.linked(f"0/0:forward.loops#forward_0.{n}") for n in range(5)), "edited lines are linked as before"
    again = compiler_core.edit(compiled, "forward_0.loops", loops, record=edited)
    assert again.is_right, "edited loops are compared with the generated ones"
    wrapper = compiler_core.editable_text(record, "forward.wrapper")
    called = wrapper.replace(
        "    forward_0(", "    global calls\n    calls = globals().get('calls', 0) + 1\n    forward_0("
    )
    trial = compiler_core.edit(compiled, "forward.wrapper", called, record=record)
    assert trial.is_right, trial
    with compiler_core.record() as edited:
        assert torch.equal(compiled(x, w), right)
    assert "global calls" in edited.compiles[0].find("forward.wrapper").text
    compiler_core.revert(compiled, "forward.wrapper")
    compiler_core.revert(compiled)
    with compiler_core.record() as reverted:
        assert torch.equal(compiled(x, w), right)
    assert reverted.compiles[0].find("forward.wrapper").text == wrapper


def test_an_edited_wrapper_that_is_wrong_is_caught(record: Record) -> None:
    with compiler_core.record() as with_constant:
        compile_(lambda x: x[torch.tensor([2, 0, 1])].tanh())(torch.randn(4, 64))
    trial = tried(with_constant, "tanh = empty((3, 64)", "tanh = empty((1, 64)", "0/0:forward.wrapper")
    assert re.search(r"out of range: it stores \d+ bytes outside of a buffer of size \(1, 64\)", trial.fault), trial
    assert "line 6: " in tried(record, "    return [add", "    return [[add", "0/0:forward.wrapper").fault


def test_kernels_and_graphs_of_stock_are_edited() -> None:
    torch._dynamo.reset()
    x, w = torch.randn(64), torch.randn(64)
    with compiler_core.record(engine="torch") as record:
        right = torch.compile(scaled)(x, w)
    (name,) = (kernel.name for kernel in record.compiles[0].kernels if kernel.language == "cpp")
    text = compiler_core.editable_text(record, name)
    assert text in compiler_core.editable_text(record, "forward.wrapper")
    wrong = compiler_core.try_edit(record, name, text.replace("tmp3 + tmp5", "tmp3 + tmp5 + tmp5"))
    assert wrong.trial.wrong == ["buf0"]
    graph = compiler_core.editable_text(record, "captured")
    assert graph.startswith("def forward(l_x_")
    by_hand = compiler_core.try_edit(record, "captured", graph.replace("torch.tanh(mul)", "mul.sin()"))
    assert by_hand.trial.wrong == ["add"]
    torch._dynamo.reset()
    with compiler_core.stock_edited([wrong, by_hand]), compiler_core.record(engine="torch") as edited:
        assert torch.allclose(torch.compile(scaled)(x, w), (x * w).sin() + 1, atol=1e-6)
    assert "sin" in edited.compiles[0].find("forward.wrapper").text
    torch._dynamo.reset()
    with compiler_core.stock_edited([wrong]):
        assert torch.allclose(torch.compile(scaled)(x, w), right + 1)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(scaled)(x, w), right), "Inductor's caches have no edited code"


def test_edits_are_swapped_in_and_taken_out() -> None:
    torch._dynamo.reset()
    x, w = torch.randn(64), torch.randn(64)
    compiled = compile_(scaled)
    right = compiled(x, w)
    record = record_of(compiled)
    kernel = compiler_core.editable_text(record, "forward_0")
    wrong = kernel.replace("+ 1.0f", "+ 2.0f")
    assert not compiler_core.edit(compiled, "0/0:forward_0", wrong).is_right
    assert torch.equal(compiled(x, w), right), "a wrong edit is not swapped in"
    compiler_core.edit(compiled, "0/0:forward_0", wrong, force=True)
    with compiler_core.record() as edited:
        assert torch.allclose(compiled(x, w), right + 1)
    (kernel_of_it,) = edited.compiles[0].kernels
    assert "+ 2.0f" in edited.text(kernel_of_it.item or "")
    again = compiler_core.edit(compiled, "forward_0", kernel.replace("+ 1.0f", "- (-1.0f)"), record=edited)
    assert again.is_right, "an edit of an edited kernel is compared with the generated one"
    assert torch.equal(compiled(x, w), right)
    graph = compiler_core.editable_text(record, "0/0:captured")
    by_hand = graph.replace("torch.tanh(mul)", "(2 * mul).sigmoid() * 2 - 1")
    assert compiler_core.edit(compiled, "0/0:captured", by_hand, record=record).is_right
    with compiler_core.record() as changed:
        assert torch.allclose(compiled(x, w), right, atol=1e-5)
    assert "sigmoid" in changed.compiles[0].find("pass.edit_0_0_captured").text
    compiler_core.revert(compiled, "captured")
    compiler_core.revert(compiled)
    with compiler_core.record() as reverted:
        assert torch.equal(compiled(x, w), right)
    assert not [a for a in reverted.compiles[0].artifacts if a.pane == "passes"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("torch.tanh(mul)", "torch.sin(mul)", "more than rounding"),
        ("torch.tanh(mul)", "mul.nothing()", "it raises AttributeError"),
        ("return (add,)", "return (add, mul)", "must return 1 values; it returns 2 now"),
        ("return (add,)", "return (add.sum(),)", r"must stay float32\[64\]; it is float32\[\] now"),
    ],
)
def test_an_edited_graph_that_is_wrong_is_caught(record: Record, old: str, new: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(str(tried(record, old, new, "captured")))


@pytest.mark.parametrize(
    ("old", "new", "message"), [("tanh(mul)", "tanh(mul", "line 9: "), ("def ", "x = 1 #", "line")]
)
def test_a_text_that_is_no_graph_is_refused(record: Record, old: str, new: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"cannot be read: {message}"):
        tried(record, old, new, "captured")


def graph_of(f: Any) -> torch.fx.GraphModule:
    gm = torch.fx.symbolic_trace(f)
    return graph_module(gm, gm.graph)


@pytest.mark.parametrize(
    "value",
    [
        "torch.relu(x)", "x.sum(dim=-1, keepdim=True)", "x + 1", "-x * 2 ** x", "x[0]", "x[..., 1:]", "x @ x < 2",
        "torch.cat([x, x], 0)", "x.to(device('cpu'))", "torch.tensor([1.0, 2.0]) + x", "x.T.contiguous()",
        "torch.nn.functional.gelu(x, approximate='tanh')", "torch.where(x > 0, x, -inf)", "x.permute(1, 0)",
    ],
)  # fmt: skip
def test_a_graph_is_read_from_its_text(value: str) -> None:
    before = graph_of(lambda x: x.cos())
    text = printed(before, "g").replace("x.cos()", value)
    x = torch.randn(2, 2)
    expected = eval(value, {"torch": torch, "x": x, "device": torch.device, "inf": torch.inf})
    assert torch.equal(graph_from_text(text, before)(x), expected)


@pytest.mark.parametrize(
    "line", ["for i in x: pass", "cos, y = x", "cos = 3", "cos = nothing(x)", "cos = x if x else x"]
)
def test_a_line_that_is_no_node_is_refused_with_its_number(line: str) -> None:
    before = graph_of(lambda x: x.cos())
    text = printed(before, "g").replace("cos = x.cos()", line)
    with pytest.raises(GraphPassError, match=r"line \d"):
        graph_from_text(text, before)


TRITON = """import triton

@triton.jit
def helper(a):
    return a


@triton.jit
def first(
    x_ptr: "*fp32",
):
    a = 1

    b = 2


LAUNCHES = {
    "first": {"grid": 8, "num_warps": 2},
}
"""


def test_a_kernel_of_a_module_is_replaced_with_its_launch_and_put_back() -> None:
    original = function_text(TRITON, "first")
    assert original is not None
    assert original.startswith("@triton.jit\ndef first(")
    assert original.endswith("b = 2\n")
    edit = CodeEdit("first", original, original.replace("1", "3") + '\nLAUNCHES["first"] = {"grid": 1}\n')
    origins = (LineOrigin(12, "first", (0,)), LineOrigin(14, "first", (1,)))
    edited = apply_edits(KernelSource("triton", TRITON, origins), [edit])
    assert "a = 3" in edited.text
    assert edited.text.endswith('}\nLAUNCHES["first"] = {"grid": 1}\n')
    assert {line.number: line.statements for line in edited.lines} == {12: (), 14: (1,)}
    assert without_edits(edited.text, [edit]) == TRITON


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_triton_kernel_is_tried_on_a_gpu() -> None:
    x, w = torch.randn(64, device="cuda"), torch.randn(64, device="cuda")
    with compiler_core.record() as record:
        compile_(scaled)(x, w)
    text = compiler_core.editable_text(record, "forward_0")
    edits = {"": True, "+ 1.0 * 2": False}
    for change, is_right in edits.items():
        trial = compiler_core.try_edit(record, "forward_0", text.replace("+ 1.0", change or "+ 1.0")).trial
        assert trial.is_right == is_right, trial
    outside = text.replace("tl.store(add_ptr + ", "tl.store(add_ptr + 64 + ")
    assert "out of range" in compiler_core.try_edit(record, "forward_0", outside).trial.fault

"""Questions about a cell, each answered with at most two clicks in JupyterLab."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.ui.drive import INSIDE, Explorer, Notebook, Server

Screenshot = Callable[[Page, str], None]
Begin = Callable[..., "Task"]

LOAD = """
%load_ext kernel_magics
import math
import torch, kernel_magics
from torch import nn
from torch.nn.functional import cross_entropy, linear, scaled_dot_product_attention

x = torch.randn(64, 32)
six = torch.randn(6, 32)
weight = torch.randn(10, 32, requires_grad=True)
target = torch.randint(0, 10, (64,))

def branch(x):
    y = x.cos()
    if y.sum() > 0:
        y = y / 2
    return y.relu()

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.mlp = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        x = x + scaled_dot_product_attention(q, k, v)
        return x + self.mlp(x)

class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(16, 50)

    def forward(self, tokens):
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

reader, tokens = Reader(), torch.arange(32).view(2, 16)
optimizer = torch.optim.SGD(reader.parameters(), 0.1)

class Schedule(nn.Module):
    name = "warm"

    def forward(self, x):
        return x / 10 if self.name == "warm" else x

schedule = Schedule()

def normalised(x):
    return x / math.sqrt(x.abs().max())

def total(rows):
    return sum(row.sin() for row in rows)

def slopes(x, scale=2):
    return x * locals()["scale"]

rows_of = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 10))
momentum = torch.optim.SGD(rows_of.parameters(), 0.1, momentum=0.9)
batches = [(x, target)] * 3
"""

MORE = """
from torch.nn.functional import silu

def entropy(p):
    q = p.abs() / p.abs().sum(-1, keepdim=True)
    return -(q * q.clamp_min(1e-9).log()).sum(-1)

class Experts(nn.Module):
    def __init__(self, width=48, experts=3):
        super().__init__()
        self.score = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        weights = self.score(x).softmax(-1)
        found = sum(w.unsqueeze(-1) * silu(e(x)) for w, e in zip(weights.unbind(-1), self.experts))
        return found * torch.rsqrt(found.square().mean(-1, keepdim=True) + 1e-6) * self.scale

experts, words = Experts(), torch.randn(64, 48)

def candidates(state, step, temperature=1.0):
    logits = state.cumsum(-1) / temperature
    best = logits.amax(-1, keepdim=True)
    if best.max() > step:
        logits = logits - best
    print("step", step)
    return logits.log_softmax(-1)
"""

CELLS = {
    "load": LOAD.strip(),
    "more": MORE.strip(),
    "again": "%%compile\nout = branch(torch.ones(64, 32))\nout = branch(torch.ones(128, 32))",
    "train": "%%compile\nhidden = linear(x.tanh(), weight)\nloss = cross_entropy(hidden.sigmoid(), target)",
    "static": "%%compile --dynamic\ndef rows(x):\n    if x.shape[0] == 6:\n        x = x + 1\n    return x.cos()\n"
    "out = rows(six)",
    "machine": "%%compile --target sm_90\nz = (x.sin() + x.exp()).sum(-1)",
    "engines": "%%compile --engine core,torch --backend eager\nw = x.cos() + 1\nif w.sum() > 0:\n    w = w * 2",
    "step": "%%compile --measure --no-capture-backward\n"
    "loss = cross_entropy(reader(tokens).flatten(0, 1), tokens.flatten())\nloss.backward()\noptimizer.step()",
    "sqrt": "%%compile --backend eager\nscaled = normalised(torch.ones(16))",
    "schedule": "%%compile --backend eager\nfor schedule.name in ('warm', 'full'):\n    y = schedule(six)",
    "lengths": "%%compile --backend eager\nfor n in (2, 3):\n    summed = total([six] * n)",
    "types": "%%compile --backend eager\nfor z in (six, six.double()):\n    bounded = torch.tanh(z)",
    "replay": "%%compile --mode reduce-overhead\nbounded = torch.tanh(weight) + 1",
    "whole": "%%compile\nfor rows, classes in batches:\n    momentum.zero_grad()\n"
    "    loss = cross_entropy(rows_of(rows), classes)\n    loss.backward()\n    momentum.step()\n"
    "    print(loss.item())",
    "layers": "%%compile --steps --backend eager\nhidden = rows_of(x)",
    "experts": "%%compile\nmixed = experts(words)\n(mixed - words).square().mean().backward()",
    "search": "%%compile --backend eager\nfor rows, step in ((4, 0), (8, 0), (8, 5)):\n"
    "    scores = candidates(torch.ones(rows, 16), step)\n"
    "scores = candidates(torch.ones(8, 16).double(), 5, temperature=2)",
    "entropy": "%%compile --engine core,torch --backend aot_eager --steps\nbits = entropy(x)",
    "slopes": "%%compile --backend eager\nper_row = slopes(torch.ones(3, 4).cos()) + 1",
}
MAX_CLICKS = 2


class Task:
    """Counts the clicks in one cell and its explorer, and limits them to MAX_CLICKS."""

    def __init__(self, notebook: Notebook, cell: str) -> None:
        self.cell = notebook.element(cell)
        self.explorer: Explorer = notebook.explorer(cell)
        self.clicks = 0

    def click(self, what: Locator) -> None:
        what.click()
        self.clicks += 1
        assert self.clicks <= MAX_CLICKS

    def click_line(self, at: int, text: str) -> None:
        self.explorer.line(at, text).click(position=INSIDE)
        self.clicks += 1
        assert self.clicks <= MAX_CLICKS

    def count(self, text: str) -> Locator:
        """Returns one of the counts in the bar."""
        return self.explorer.root.locator(".count").filter(has_text=text)

    def mark(self, text: str) -> Locator:
        """Returns a mark in the cell's own editor."""
        return self.cell.locator(".jp-Cell-inputArea .cutaway-mark").filter(has_text=text)

    def choose(self, select: Locator, label: str) -> None:
        select.select_option(label=label)
        self.clicks += 1
        assert self.clicks <= MAX_CLICKS

    def show(self, pane: str) -> None:
        """Chooses a pane in the menu at the end of the bar of stages."""
        self.choose(self.explorer.stages.get_by_label("More panes"), pane)

    def pane(self, title: str) -> Locator:
        return self.explorer.root.locator(f'section.pane[aria-label^="{title}"]')

    def step(self, stage: str) -> Locator:
        """Returns one stage of the chain of links."""
        return self.explorer.stages.get_by_role("button", name=re.compile(f"^{stage}"))


@pytest.fixture(scope="module")
def notebook(page: Page, server: Server) -> Notebook:
    notebook = Notebook(page, server, server.notebook("tasks.ipynb", CELLS)).open()
    notebook.run("load")
    notebook.run("more")
    return notebook


@pytest.fixture
def task(notebook: Notebook, screenshot: Screenshot, request: pytest.FixtureRequest) -> Iterator[Begin]:
    """Returns a function that runs a cell and starts a task in it; saves a screenshot at the end.

    ``run=False``: a cell that an earlier task ran is not run again, and the panes are those of that task.
    """

    def begin(cell: str, run: bool = True) -> Task:
        if run or notebook.element(cell).locator(".cutaway").count() == 0:
            notebook.page.evaluate("() => localStorage.clear()")
            notebook.run(cell)
            assert notebook.errors() == []
        return Task(notebook, cell)

    yield begin
    screenshot(notebook.page, request.node.name)


def test_1_why_was_this_recompiled(task: Begin) -> None:
    t = task("again")
    t.click(t.count("recompile"))
    cause = re.compile(r"The size of x in dimension 0 is 128; compile \d+/0 was made for 64\.")
    expect(t.pane("Overview")).to_contain_text(cause)
    t.click(t.pane("Overview").get_by_role("button", name="Compare with"))
    expect(t.pane("Two compiles")).to_contain_text("cos f32[64, 32]")
    expect(t.pane("Two compiles")).to_contain_text(re.compile(r"cos f32\[s\d+, 32\]"))


def test_2_which_line_made_this_kernel(task: Begin) -> None:
    t = task("train")
    t.click(t.count("kernels"))
    t.click(t.pane("Costs").get_by_role("row").filter(has_text="forward_0").first)
    t.explorer.expect_pinned(0, "hidden = linear(x.tanh(), weight)")


def test_3_what_is_saved_for_the_backward_and_how_big(task: Begin) -> None:
    t = task("train")
    t.click(t.count("saved"))
    expect(t.pane("Partition")).to_contain_text("saved for the backward")
    expect(t.pane("Partition").get_by_role("row").filter(has_text="KiB").first).to_contain_text("saved")


def test_4_where_does_the_graph_break_and_what_to_write_instead(task: Begin) -> None:
    t = task("again")
    t.click(t.count("graph break"))
    expect(t.pane("Overview")).to_contain_text("What to do: Compute both sides")
    t.explorer.expect_pinned(0, "if y.sum() > 0:")


def test_5_which_operation_costs_most(task: Begin) -> None:
    t = task("train")
    t.click(t.count("kernels"))
    shares = t.pane("Costs").locator("table").first.locator(".share")
    expect(shares).not_to_have_count(0)
    figures = [int(share.split()[0]) for share in shares.all_inner_texts()]
    assert figures == sorted(figures, reverse=True)
    assert figures[0] > 0


def test_6_which_line_made_the_size_static(task: Begin) -> None:
    t = task("static")
    t.click(t.mark("became 6"))
    expect(t.pane("Sizes")).to_contain_text("six.size(0) == 6")
    t.explorer.expect_pinned(0, "if x.shape[0] == 6:")


def test_7_what_did_autograd_add_for_this_line(task: Begin) -> None:
    t = task("train")
    t.click_line(0, "hidden = linear")
    t.click(t.pane("Captured graph").get_by_role("button", name="Table"))
    row = t.pane("Captured graph").locator("tr.pin-linked").filter(has_text="linear")
    expect(row).to_contain_text("Backward0")


def test_8_why_were_two_operations_not_fused(task: Begin) -> None:
    t = task("train")
    t.click(t.step("Fusion"))
    t.click(t.pane("Fusion").get_by_role("button", name="Table"))
    expect(t.pane("Fusion")).to_contain_text("is one of PyTorch's own kernels")


def test_9_what_does_the_machine_code_of_this_line_look_like(task: Begin) -> None:
    t = task("machine")
    t.click_line(0, "x.sin()")
    t.click(t.step("Machine"))
    machine = t.pane("Machine code")
    expect(machine.get_by_label("Artifact")).to_have_value("forward.sm_90.ptx")
    page = t.cell.page
    page.set_viewport_size({"width": 1000, "height": 700})  # the graph above it is only its title
    expect(t.pane("Captured graph")).to_have_class(re.compile("shut"))
    expect(machine).not_to_have_class(re.compile("shut"))
    page.set_viewport_size({"width": 1600, "height": 1000})
    expect(
        machine.locator(".cm-line.pin-linked").filter(has_text=re.compile(r"ld\.global|mad\.wide")).first
    ).to_be_visible()


def test_10_how_does_stock_differ(task: Begin) -> None:
    t = task("engines")
    expect(t.pane("Two runs")).to_contain_text("The values of")
    expect(t.pane("Two runs").get_by_role("row").filter(has_text="guards")).not_to_have_count(0)


def test_11_is_the_break_at_backward_a_problem(task: Begin) -> None:
    t = task("step")
    expect(t.pane("Costs")).to_be_visible()  # what the cell was measured for
    expect(t.explorer.root.locator(".verdict")).to_contain_text("0 problems")
    expect(t.count("expected break")).to_have_text("2 expected breaks")
    t.click(t.count("expected break"))
    expect(t.pane("Overview")).to_contain_text("Nothing to change: the forward before it and the backward itself")
    expect(t.pane("Overview").locator(".checked code").first).to_have_text("capture_backward=True")


def test_12_which_module_costs_most(task: Begin) -> None:
    t = task("step", run=False)
    t.click(t.count("kernels"))
    modules = t.pane("Costs").locator("h3:text('Modules') + table").get_by_role("row")
    expect(modules.filter(has_text="layers.*")).to_contain_text("\N{MULTIPLICATION SIGN} 2")
    expect(modules.filter(has_text="qkv")).to_contain_text("\N{MULTIPLICATION SIGN} 2")


def test_13_how_long_does_a_run_take_beside_eager_pytorch(task: Begin) -> None:
    t = task("step", run=False)
    t.click(t.count("kernels"))
    t.click(t.pane("Costs").get_by_role("button", name="Flames"))
    expect(t.pane("Costs").locator(".lead")).to_contain_text(re.compile(r"compiled beside [\d.]+ .s in eager PyTorch"))
    charts = t.pane("Costs").locator(".flames")
    expect(charts).to_have_count(2)
    for chart in charts.all():
        expect(chart.locator(".flame.module").filter(has_text="layers.0").first).to_be_visible()


def test_14_what_takes_the_most_memory_and_when(task: Begin) -> None:
    t = task("step", run=False)
    t.show("Memory")
    expect(t.pane("Memory").get_by_role("status")).to_contain_text(re.compile(r"the peak: [\d.]+ KiB in \d+ buffers"))
    expect(t.pane("Memory").get_by_role("row").nth(1)).to_contain_text("saved for the backward")


def test_15_which_line_takes_longest_to_compile(task: Begin) -> None:
    t = task("step", run=False)
    t.show("Timings")
    t.click(t.pane("Timings").get_by_role("button", name="Lines"))
    expect(t.pane("Timings").locator(".lead")).to_contain_text(re.compile(r"Capturing and tracing \d+ lines took"))
    expect(t.pane("Timings").locator(".flame.line").first).to_be_visible()


def test_16_what_to_write_in_place_of_a_function_of_python(task: Begin) -> None:
    t = task("sqrt")
    expect(t.count("graph break")).to_have_text("1 graph break")
    t.click(t.count("graph break"))
    expect(t.pane("Overview")).to_contain_text("torch.sqrt(x) in place of math.sqrt(x)")
    t.explorer.expect_pinned(0, "return x / math.sqrt(x.abs().max())")


# on the page as tasks 1 and 4; tests/faults has the causes and advice
@pytest.mark.sweep
def test_17_why_does_a_text_attribute_recompile(task: Begin) -> None:
    t = task("schedule")
    t.click(t.count("recompile"))
    expect(t.pane("Overview")).to_contain_text(re.compile(r"is 'full'; compile \d+/0 was made for 'warm'"))
    expect(t.pane("Overview")).to_contain_text("What to do: Each value of")
    expect(t.pane("Overview")).not_to_contain_text("dynamic=True (")


@pytest.mark.sweep
def test_18_why_does_another_number_of_rows_recompile(task: Begin) -> None:
    t = task("lengths")
    t.click(t.count("recompile"))
    expect(t.pane("Overview")).to_contain_text(re.compile(r"is 3; compile \d+/0 was made for 2"))


@pytest.mark.sweep
def test_19_why_does_another_type_recompile(task: Begin) -> None:
    t = task("types")
    t.click(t.count("recompile"))
    expect(t.pane("Overview")).to_contain_text(re.compile(r"torch.float64; compile \d+/0 was made for torch.float32"))
    expect(t.pane("Overview")).to_contain_text("Convert it to one dtype before the call")


@pytest.mark.sweep
def test_20_which_function_is_left_to_python(task: Begin) -> None:
    t = task("slopes")
    expect(t.count("graph break")).to_have_text("1 graph break")
    t.click(t.count("graph break"))
    expect(t.pane("Overview")).to_contain_text("slopes, it calls locals(), which can read its local variables")


def test_21_why_is_there_no_cuda_graph(task: Begin) -> None:
    t = task("replay")
    expect(t.count("without CUDA graph")).to_have_text("2 graphs without CUDA graph")  # the forward and the backward
    t.click(t.count("without CUDA graph"))
    block = t.pane("Overview").locator(".block").first
    expect(block).to_contain_text("No CUDA graph of the forward costly")
    expect(block).to_contain_text("CUDA graphs need CUDA tensors, and some are on cpu.")


def test_22_what_does_the_assembly_look_like(task: Begin) -> None:
    t = task("replay", run=False)
    t.click(t.step("Machine"))
    t.click(t.pane("Machine code").get_by_role("button", name="Record it"))
    expect(t.pane("Machine code").locator(".cm-line").nth(5)).to_be_visible()
    expect(t.explorer.root.get_by_label("Runs of the cell").get_by_role("button", pressed=True)).to_have_text(
        "Machine code"
    )


def test_23_what_a_whole_training_step_consists_of(task: Begin) -> None:
    t = task("whole")
    expect(t.explorer.root.locator(".verdict")).to_contain_text("0 problems")
    marks = t.cell.locator(".jp-Cell-inputArea .cutaway-mark")
    expect(marks.filter(has_text="print")).to_have_count(1)
    expect(marks.filter(has_text=re.compile("backward|optimizer"))).to_have_count(0)
    page = t.pane("Training step")
    counts = r"One graph: forward \d+ operations, backward \d+ operations, update \d+ operations, \d+ launches"
    expect(page.locator(".lead").first).to_have_text(re.compile(counts))
    expect(t.step("Step")).to_contain_text("nodes")
    expect(t.step("Backward")).to_have_count(0)
    for phase in ("forward", "backward", "update"):
        expect(page.locator(f"svg.launches rect.{phase}")).not_to_have_count(0)
    row = page.get_by_role("row").filter(has_text="rows_of.0.weight")
    gradient, update = row.get_by_role("cell").nth(1), row.get_by_role("cell").nth(2)
    expect(gradient.locator("small")).to_have_text(re.compile(r"^(mm|forward_\d+)$"))
    expect(update.locator("small")).to_have_text(re.compile(r"^forward_\d+$"))
    t.click(gradient.get_by_role("button"))
    t.explorer.expect_pinned(0, "loss = cross_entropy(rows_of(rows), classes)", "loss.backward()")
    t.click(update.get_by_role("button"))
    t.explorer.expect_pinned(0, "momentum.step()")


def test_24_what_would_save_most_of_a_training_step(task: Begin) -> None:
    t = task("whole", run=False)
    page = t.pane("Training step")
    t.click(page.get_by_role("button", name="Measure"))
    found = page.locator(".savings li")
    difference = r"(\d+ % (less|more) time|no difference in time measured) \([\d.]+ .?s (instead of|beside) "
    expect(found).to_have_text([re.compile(f"core:no-capture-backward: {difference}")])
    expect(t.explorer.root.locator(".verdict")).to_contain_text("Eager")


def test_25_which_kernel_computes_a_gradient_that_is_a_view(task: Begin) -> None:
    t = task("whole", run=False)
    row = t.pane("Training step").get_by_role("row").filter(has_text="rows_of.0.bias")
    t.click(row.get_by_role("cell").nth(1).get_by_role("button").filter(has_text="view").last)
    expect(t.step("Kernel")).to_contain_text("forward_")


def test_26_what_the_interpreter_does_in_a_call_that_is_inlined(task: Begin) -> None:
    t = task("layers")
    t.pane("Symbolic steps").get_by_label("Stop at").select_option(label="call")
    t.click(t.pane("Symbolic steps").get_by_label("Next stop"))
    path = t.pane("Symbolic steps").get_by_role("group", name="Call stack")
    expect(path).to_contain_text("top level:2")
    expect(path).to_contain_text("Sequential.forward")


def test_27_which_line_of_a_module_a_line_of_a_kernel_is_from(task: Begin) -> None:
    t = task("experts")
    t.click(t.step("Kernel"))
    t.click(t.pane("Kernels").locator(".cm-line").filter(has_text="const f32 amax").first)
    source = t.explorer.pane(0).locator(".cm-line.pin-linked").filter(has_text="weights = self.score(x).softmax(-1)")
    expect(source).to_be_in_viewport()  # in another cell


def test_28_which_kernel_moves_most_bytes(task: Begin) -> None:
    t = task("experts", run=False)
    t.click(t.count("kernels"))
    t.click(t.pane("Costs").get_by_role("button", name="Traffic").first)
    expect(t.pane("Costs").locator("th[aria-sort=descending]")).to_have_text("Traffic")
    expect(t.pane("Costs").locator("table").first.get_by_role("row").nth(1)).to_contain_text("KiB")


def test_29_how_fast_a_kernel_could_be(task: Begin) -> None:
    t = task("experts", run=False)
    t.show("Roofline")
    expect(t.pane("Roofline").get_by_label("Device")).to_be_visible()
    expect(t.pane("Roofline").get_by_role("row").nth(1)).to_contain_text(re.compile(r"/byte"))


def test_30_which_line_owns_the_peak_of_memory(task: Begin) -> None:
    t = task("experts", run=False)
    t.show("Memory")
    expect(t.pane("Memory").get_by_role("status")).to_contain_text("of the backward, the peak")
    t.click(t.pane("Memory").get_by_role("row").filter(has_text="found = sum").first)
    pinned = t.explorer.pane(0).locator(".cm-line.pinned, .cm-line.pin-linked").filter(has_text="found = sum")
    expect(pinned).to_be_in_viewport()


def test_31_a_table_is_copied(task: Begin) -> None:
    t = task("experts", run=False)
    page = t.cell.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    t.click(t.count("saved"))
    t.click(t.pane("Partition").get_by_role("button", name="Copy").first)
    expect(t.pane("Partition").get_by_role("button", name="Copied")).to_be_visible()
    head, *rows = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert head.split("\t")[:3] == ["Value", "Decision", "Size"]
    assert any("\tsaved\t" in row for row in rows)


def test_32_every_matrix_product_of_the_backward(task: Begin) -> None:
    t = task("experts", run=False)
    t.click(t.step("Backward"))
    search = t.pane("Backward graph").get_by_label("Search the graph's nodes")
    search.fill("mm")
    for _ in range(2):
        search.press("Enter")
    expect(t.pane("Backward graph")).to_contain_text(re.compile(r"2 of \d"))


def test_33_the_loops_of_a_reduction(task: Begin) -> None:
    t = task("experts", run=False)
    t.click(t.step("Schedule"))
    t.choose(t.pane("Schedule").get_by_label("Kernel"), "forward_1")
    expect(t.pane("Schedule").get_by_text("sum over j").first).to_be_visible()


def test_34_which_call_changed_what(task: Begin) -> None:
    t = task("search")
    t.click(t.count("expected recompile"))
    overview = t.pane("Overview")
    expect(overview).to_contain_text("rows is 8; compile 0/0 was made for 4.")
    expect(overview).to_contain_text("Nothing to change: compile 0/1 has a symbol for it")


def test_35_the_problems_one_after_another(task: Begin) -> None:
    t = task("search", run=False)
    t.click(t.explorer.root.get_by_label("Next problem"))
    expect(t.explorer.root.locator(".problem .which")).to_have_text("2 of 2")
    t.explorer.expect_pinned(0, 'print("step", step)')


def test_36_the_guards_on_one_parameter(task: Begin) -> None:
    t = task("experts", run=False)
    t.show("Guards")
    t.pane("Guards").get_by_label("Filter the rows of this table").fill("tensor scale")
    rows = t.pane("Guards").locator("tbody tr").filter(visible=True)
    expect(rows).to_have_text([re.compile(r"TENSOR_MATCH.*\.scale.*shape=\(48,\)")])


def test_37_which_sizes_may_change(task: Begin) -> None:
    t = task("search")
    t.click(t.count("expected recompile"))
    t.show("Sizes")
    row = t.pane("Sizes").get_by_role("row").filter(has_text="rows")
    expect(row).to_contain_text("it had another value before")


def test_38_where_stock_captures_something_else(task: Begin) -> None:
    t = task("entropy")
    t.show("Two runs")
    lines = t.pane("Two runs").locator("tr.place")
    expect(lines.filter(has_text="q = p.abs()")).not_to_have_count(0)
    t.click(lines.filter(has_text="q = p.abs()").first)
    t.explorer.expect_pinned(0, "q = p.abs() / p.abs().sum(-1, keepdim=True)")


def test_39_at_which_step_the_next_guard_is_made(task: Begin) -> None:
    t = task("entropy", run=False)
    t.show("Symbolic steps")
    steps = t.pane("Symbolic steps")
    steps.get_by_label("Stop at").select_option(label="new guard")
    t.click(steps.get_by_label("Next stop"))
    expect(steps.locator(".finder output")).to_have_text(re.compile("^[12] of 2$"))


def test_a_change_is_tried_then_written_into_the_cell_and_run(task: Begin) -> None:
    t = task("sqrt")
    t.click(t.count("graph break"))
    expect(t.pane("Overview").locator(".change .added")).to_contain_text("x / torch.sqrt(x.abs().max())")
    t.click(t.pane("Overview").get_by_role("button", name="Try this change").first)
    expect(t.pane("Two runs")).to_contain_text("are the same")
    expect(t.explorer.root.locator(".verdict")).to_contain_text("0 problems")
    t.pane("Two runs").get_by_role("button", name="Apply and re-run both cells").click()
    load = t.cell.page.locator(".jp-Notebook .jp-CodeCell").first
    expect(load.locator(".cm-content")).to_contain_text("return x / torch.sqrt(x.abs().max())")
    expect(t.explorer.root.locator(".counts")).to_contain_text("1 graph")
    expect(t.count("graph break")).to_have_count(0)
    expect(t.pane("Two runs")).to_have_count(0)  # it is a new explorer


def test_the_panel_follows_the_active_cell(task: Begin) -> None:
    task("static")
    t = task("train")
    t.click(t.explorer.root.get_by_role("button", name="Panel"))
    page = t.cell.page
    panel = Explorer(page.locator(".cutaway-panel .cutaway"))
    title = t.explorer.root.locator(".bar b").inner_text()
    expect(panel.root.locator(".bar b")).to_have_text(title)
    expect(panel.root.get_by_role("button", name="Time it")).to_be_visible()  # it is live
    panel.click_line(0, "hidden = linear")
    panel.expect_pinned(0, "hidden = linear(x.tanh(), weight)")
    in_cell = t.explorer.root
    expect(in_cell.locator(".verdict")).to_be_visible()  # the cell keeps the first lines
    expect(in_cell.locator(".stages")).to_be_hidden()
    expect(in_cell.get_by_role("button", name="Frames")).to_be_hidden()  # of what is not shown there
    page.locator(".jp-Notebook .jp-InputArea-editor").filter(has_text="rows(six)").locator(".cm-line").last.click()
    expect(panel.root.locator(".bar b")).not_to_have_text(title)
    expect(panel.root.locator(".cm-content").first).to_contain_text("def rows(x)")
    closing = page.locator(".lm-TabBar-tab", has_text="Cutaway").locator(".lm-TabBar-tabCloseIcon")
    closing.click()
    expect(panel.root).to_have_count(0)
    expect(in_cell.locator(".stages")).to_be_visible()
    t.explorer.expect_pinned(0, "hidden = linear(x.tanh(), weight)")
    in_cell.get_by_role("button", name="Panel").click()  # it can be opened again
    expect(panel.root).to_have_count(1)
    closing.click()
    expect(panel.root).to_have_count(0)

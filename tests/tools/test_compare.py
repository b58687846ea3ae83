"""Comparing two records or two compiles."""

from __future__ import annotations

import dataclasses
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import compiler_core
import kernel_magics
from compiler_core.records import Event, Fusion, Guard, Kernel, Record, Span
from compiler_core.tools.questions.compare import _matched_lines, compare

pytestmark = [
    pytest.mark.usefixtures("fresh_stock"),
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace:UserWarning"),
]

BEFORE = """
def f(x, y):
    x = x.cos()
    return x * y
"""
AFTER = """
def f(x, y):
    # a line more
    x = x.cos()
    x = x.sin()
    return x * y.exp()
"""


def recorded(tmp_path: Path, text: str, engine: Any = "core", sizes: tuple[int, ...] = (4,)) -> Record:
    torch._dynamo.reset()
    file = tmp_path / "program.py"
    file.write_text(text)
    import linecache

    linecache.checkcache(str(file))
    namespace: dict[str, Any] = {}
    exec(compile(text, str(file), "exec"), namespace)
    with compiler_core.record(engine, engine=engine) as record:
        through: Any = torch.compile if engine == "torch" else compiler_core.compile
        result = through(namespace["f"], backend="aot_eager")
        for size in sizes:
            x, y = (torch.randn(size, requires_grad=True) for _ in "xy")
            result(x, y).sum().backward()
    return record


def test_engines_agree_line_by_line(tmp_path: Path) -> None:
    found = compare(recorded(tmp_path, BEFORE), recorded(tmp_path, BEFORE, "torch"))
    assert found.before == "core"
    assert found.after == "torch"
    for aspect in ("captured", "forward", "backward", "saved"):
        same = found.of("same", aspect)
        assert {(d.line, d.text.strip()) for d in same} >= {(4, "return x * y")}, aspect
        assert [d for d in found.lines if d.aspect == aspect and d.state != "same"] == [], str(found)
    totals = {t.name: (t.before, t.after) for t in found.totals}
    assert totals["graphs"] == (1, 1)
    assert totals["saved bytes"][0] == totals["saved bytes"][1]
    assert "guard changed, line 3: x = x.cos()" in str(found)


INSIDE = """
def inner(x):
    y = x.cos()
    return y * 2
def f(x, y):
    z = inner(x)
    return z + y
"""


def test_facts_of_a_called_function_are_at_its_lines(tmp_path: Path) -> None:
    found = compare(recorded(tmp_path, INSIDE), recorded(tmp_path, INSIDE, "torch"))
    for aspect in ("captured", "forward", "backward", "saved"):
        assert not [d for d in found.lines if d.aspect == aspect and d.state != "same"], str(found)
    assert [(d.line, d.after) for d in found.of("same", "captured")] == [(3, ["cos"]), (4, ["mul"]), (7, ["add"])]


def test_an_edit_moves_lines_and_changes_one(tmp_path: Path) -> None:
    found = compare(recorded(tmp_path, BEFORE), recorded(tmp_path, AFTER))
    captured = {(d.line, d.state): (d.before, d.after) for d in found.lines if d.aspect == "captured"}
    assert captured[4, "same"] == (["cos float32[4]"], ["cos float32[4]"])
    assert captured[5, "added"] == ([], ["sin float32[4]"])
    assert captured[6, "changed"] == (["mul float32[4]"], ["exp float32[4]", "mul float32[4]"])
    back = compare(recorded(tmp_path, AFTER), recorded(tmp_path, BEFORE))
    gone = back.of("removed", "captured")
    assert [(d.line, d.text.strip(), d.before) for d in gone] == [(5, "x = x.sin()", ["sin float32[4]"])]


def test_an_edited_line_is_paired_with_the_line_that_has_its_words() -> None:
    before = ["def f(x):", "    h = norm(x) @ w", "    return h"]
    after = [before[0], "    h = norm(x) @ w * SCALE", "    if h.sum() > 0:", "        h = h + 1", before[2]]
    numbered = [list(enumerate(side, 1)) for side in (before, after)]
    assert dict(_matched_lines(*numbered)) == {1: 1, 2: 2, 3: 5}
    assert dict(_matched_lines(*numbered[::-1])) == {1: 1, 2: 2, 3: 0, 4: 0, 5: 3}


def test_a_compile_and_its_recompile(tmp_path: Path) -> None:
    record = recorded(tmp_path, BEFORE, sizes=(4, 6))
    first, second = record.compiles
    found = compare(first, second)
    assert (found.before, found.after) == ("0/0", "0/1")
    (captured,) = [d for d in found.of("changed", "captured") if "cos" in d.text]
    assert captured.before == ["cos float32[4]"]
    assert captured.after[0].startswith("cos float32[")
    assert captured.after[0] != "cos float32[6]"  # the size became symbolic
    assert found.of("changed", "guard")


@pytest.mark.parametrize("engine", ["core", "torch"])
def test_a_setting_that_differs_is_named_once(engine: str, tmp_path: Path) -> None:
    first = recorded(tmp_path, BEFORE, engine)
    torch.use_deterministic_algorithms(True)
    try:
        second = recorded(tmp_path, BEFORE, engine)
    finally:
        torch.use_deterministic_algorithms(False)
    (changed,) = compare(first, second).of("changed", "guard")
    before, after = Counter(changed.before), Counter(changed.after)
    name = "use of deterministic algorithms"
    assert (before - after, after - before) == ({f"{name} off": 1}, {f"{name} on": 1})


def test_the_same_record_has_no_difference(tmp_path: Path) -> None:
    record = recorded(tmp_path, BEFORE, "torch")
    again = Record.from_json(record.to_json())
    assert {d.state for d in compare(record, again).lines} == {"same"}


def kernel_record(code: str, ns: float, end: int) -> Record:
    """Returns a record with times of a compile and of one kernel of two lines."""
    record = Record(title="a")
    source = record.source("/a.py", 1, ["def f(x):", "    y = x.cos()", "    return y + 1"])
    compile_ = record.compile(record.frame("f", "/a.py", 1, "root"))
    graph = compile_.artifact("forward", "forward", "python", "cos\nadd", [Span("cos", 1, 1), Span("add", 2, 2)])
    for name, line in (("cos", "2"), ("add", "3")):
        compile_.link(graph.item(name), [source.item(line)], "capture")
    text = compile_.artifact("kernel", "k.cpp", "cpp", f"void k()\n{code}\n}}", [Span("1", 1, 1)])
    compile_.kernels.append(Kernel("k.cpp", "k", "cpp", "forward", text.item("1"), time_ns=ns))
    compile_.fusions.append(Fusion("k", "kernel", [graph.item("cos"), graph.item("add")], "k.cpp", None))
    compile_.events += [Event("capture", "whole", 0, end, "ok"), Event("codegen", "part", end // 2, end, "ok")]
    return record


def test_times_and_code_of_kernels_by_line() -> None:
    found = compare(kernel_record("cos();", 4000, 2_000_000), kernel_record("cosf();", 1000, 2_100_000))
    (kernel,) = found.of("changed", "kernel")
    assert (kernel.line, kernel.before) == (2, ["forward cpp k over lines 2, 3\ncos();"])
    assert kernel.after == ["forward cpp k over lines 2, 3\ncosf();"]
    assert found.of("changed", "kernel time") == []  # each was measured once, which tells nothing
    assert [(d.line, d.before, d.after) for d in found.of("same", "kernel time")] == [
        (2, ["forward k 2 us"], ["forward k 500 ns"]),
        (3, ["forward k 2 us"], ["forward k 500 ns"]),
    ]
    (compiling,) = found.of("same", "compile time")
    assert (compiling.line, compiling.before) == (1, ["capture 1 ms", "codegen 1 ms"])
    totals = {t.name: (t.before, t.after) for t in found.totals}
    assert totals["kernel microseconds"] == (4, 1)
    assert totals["compile seconds"] == (0.002, 0.0021)
    assert totals["of these in capture"] == (0.001, 0.00105)


def test_times_of_single_measurements_are_not_called_changed() -> None:
    """Also if they differ much: the text lists no line for them, and `cutaway diff` finds no difference."""
    before, after = kernel_record("cos();", 4000, 1_000_000), kernel_record("cos();", 9000, 9_000_000)
    found = compare(before, after)
    assert {each.state for each in found.lines} == {"same"}
    assert "changed" not in str(found)
    assert "compile time" in str(found)


def test_times_have_the_units_that_fit_them() -> None:
    text = str(compare(kernel_record("cos();", 4000, 87_068_600), kernel_record("cos();", 1000, 2_100_000_000)))
    rows = {" ".join(line.split()) for line in text.splitlines()}
    assert {"kernel time 4 us 1 us", "compile time 87.1 ms 2.1 s"} <= rows, text


def test_missing_times_are_not_compared() -> None:
    timed, untimed = kernel_record("cos();", 4000, 1000), kernel_record("cos();", 4000, 1000)
    untimed.compiles[0].kernels[0].time_ns = None
    found = compare(timed, untimed)
    assert not [d for d in found.lines if d.aspect == "kernel time"]
    assert ("kernel microseconds", None) in {(t.name, t.after) for t in found.totals}
    assert Record.from_json(dataclasses.replace(timed, comparison=found).to_json()).comparison == found


def test_lines_known_on_one_side_only_are_no_edit() -> None:
    records = [Record(title=title, engine="torch") for title in "ab"]
    records[0].source_lines("/a.py", {1: "one", 5: "five", 9: "nine"})
    records[1].source_lines("/a.py", {1: "one", 6: "six", 9: "nine"})
    for record, line in zip(records, (5, 6), strict=True):
        compile_ = record.compile(record.frame("f", "/a.py", 1, "root"))
        compile_.guards.append(Guard("g0", "", "x", "x == 1", "1", record.line("/a.py", line)))
    found = compare(*records)
    assert [(d.line, d.text, d.state) for d in found.lines] == [(5, "five", "removed"), (6, "six", "added")]


# ---- one cell through both engines ---------------------------------------------------------


def test_the_first_engines_effects_stay(magics: InteractiveShell) -> None:
    setup = """
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = []
start = model.weight.detach().clone()
def step(x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    seen.append(float(loss.detach()))
    return loss
"""
    cell = "x = torch.randn(3, 4)\nloss = step(x)\nprint('once')\nloss.detach()"
    with capture_output() as output:
        magics.run_cell(setup).raise_error()
        result = magics.run_cell(f"%%compile --engine core,torch --backend aot_eager\n{cell}")
    result.raise_error()
    assert output.stdout.splitlines().count("once") == 1
    both = kernel_magics.last_comparison()
    assert both.comparison.values == {}, str(both.comparison)
    assert [r.engine for r in both.records] == ["core", "torch"]
    assert "values: the same" in output.stdout
    ns = magics.user_ns
    assert len(ns["seen"]) == 1
    with torch.no_grad():
        grad = ns["model"].weight.grad
        torch.testing.assert_close(ns["model"].weight, ns["start"] - 0.1 * grad)
    assert ns["optimizer"].param_groups[0]["params"][0] is ns["model"].weight


def test_a_cold_compile_beside_a_cached_one_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("CUTAWAY_CACHE_READ_FROM", raising=False)

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * 1.2345).cos().sum(0)

    records = []
    for _ in range(3):
        with compiler_core.record() as record:
            compiler_core.compile(program, backend="cpp")(torch.ones(16, 8))
        records.append(record)
    cold, first, second = records
    (note,) = compare(cold, first).notes
    assert "took 0 of 1 compiles with a graph from the cache on disk" in note
    assert "cannot be compared" in note
    assert f"note: {note}" in str(compare(cold, first))
    assert compare(first, second).notes == []
    # stock may run a compiler for a graph from the cache
    first.compiles[0].events.append(Event("build", "compile_file", 0))
    assert compare(first, second).notes


def test_differing_values_are_reported(magics: InteractiveShell) -> None:
    magics.user_ns["calls"] = iter(range(10))
    generator = (n for n in range(10))
    magics.user_ns["generator"] = generator
    with capture_output() as output:
        result = magics.run_cell(
            "%%compile --engine core,torch --backend eager\nn = next(generator)\ny = torch.ones(2) * n\ny + 1"
        )
    torch.testing.assert_close(result.result, torch.ones(2))
    both = kernel_magics.last_comparison()
    assert "generator (generator" in both.comparison.shared[0]
    assert set(both.comparison.values or ()) == {"n", "result", "y"}
    assert "result differs" in output.stdout
    assert magics.user_ns["n"] == 0


def test_the_first_engines_exception_is_raised(magics: InteractiveShell) -> None:
    with capture_output():
        result = magics.run_cell(
            "%%compile --engine torch,core --backend eager\nz = torch.ones(2) + 1\nraise KeyError(1)"
        )
    assert isinstance(result.error_in_exec, KeyError)
    assert kernel_magics.last_comparison().comparison.values == {}
    torch.testing.assert_close(magics.user_ns["z"], torch.ones(2) + 1)


STATE = """
def counting():
    calls = [0]
    def count(x):
        calls[0] += 1
        return x * calls[0]
    return count
count = counting()
def seen(x, before=[]):
    before.append(1)
    return x + len(before)
class Kept:
    made = 0
    def __init__(self, x):
        Kept.made += 1
        self.x = x
state = {"n": 0}
buffer = torch.zeros(4)
view = buffer[1:3]
"""
CHANGES = """
state["n"] += 1
buffer += 1
view.mul_(3)
a = count(torch.ones(2))
b = seen(a)
kept = Kept(b)
c = torch.rand(2) + random.random()
torch.set_default_dtype(torch.float64)
os.environ["CUTAWAY_TEST"] = os.environ.get("CUTAWAY_TEST", "") + "x"
print("out")
print("err", file=sys.stderr)
display("shown")
total = float(buffer.sum())
"""


@pytest.mark.parametrize("order", ["core,torch", "torch,core"])
def test_all_that_a_cell_changes_is_changed_once(
    magics: InteractiveShell, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTAWAY_TEST", "")
    with capture_output():
        magics.run_cell("import os, random, sys\nfrom IPython.display import display\n" + STATE).raise_error()
    try:
        with capture_output() as output:
            magics.run_cell(f"%%compile --engine {order} --backend eager{CHANGES}").raise_error()
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    found = kernel_magics.last_comparison().comparison
    assert found.values == {}, str(found)
    assert found.shared == []
    ns = magics.user_ns
    assert ns["state"] == {"n": 1}
    assert ns["buffer"].tolist() == [1, 3, 3, 1]
    assert ns["view"].tolist() == [3, 3]
    assert ns["a"].tolist() == [1, 1]
    assert ns["b"].tolist() == [2, 2]
    assert ns["Kept"].made == 1
    assert ns["count"](1) == 2
    assert ns["seen"](0) == 2
    assert ns["os"].environ["CUTAWAY_TEST"] == "x"
    assert output.stdout.splitlines().count("out") == 1
    assert output.stderr.splitlines().count("err") == 1
    assert len(output.outputs) == 1


def test_effects_of_both_runs_outside_the_process_are_reported(magics: InteractiveShell, tmp_path: Path) -> None:
    magics.user_ns |= {"path": tmp_path / "written.txt", "opened": (tmp_path / "opened.txt").open("w")}
    with capture_output():
        magics.run_cell(
            "%%compile --engine core,torch --backend eager\nimport subprocess\nx = torch.ones(2) + 1\n"
            "path.open('a').write('a')\nopened.write('b')\nsubprocess.run(['true'])"
        )
    magics.user_ns.pop("opened").close()
    both = kernel_magics.last_comparison()
    cell = both.records[0].frames[0].filename
    assert {f.filename for record in both.records for f in record.frames if "kernel_magics" in f.filename} == set()
    assert cell in {f.filename for f in both.records[1].frames}
    shared = both.comparison.shared
    assert [text.split(" (")[0] for text in shared] == [
        "opened",
        f"the file {tmp_path / 'written.txt'}",
        "the program true",
    ]
    assert not any("cutaway" in text or "inductor" in text for text in shared)


@pytest.mark.usefixtures("_interruptible")
def test_an_interrupt_ends_the_cell_and_keeps_what_was_done(magics: InteractiveShell) -> None:
    magics.user_ns |= {"steps": [], "interrupt": lambda: signal.raise_signal(signal.SIGINT)}
    with capture_output():
        result = magics.run_cell(
            "%%compile --engine core,torch --backend eager\nfor i in range(5):\n    steps.append(torch.ones(1) + i)\n"
            "    if i == 2:\n        interrupt()"
        )
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    assert len(magics.user_ns["steps"]) == 3


@pytest.mark.usefixtures("_interruptible")
def test_an_interrupt_of_the_second_run_keeps_the_firsts_effects(magics: InteractiveShell) -> None:
    """Both runs share a generator, which detects the second run."""
    magics.user_ns |= {"steps": [], "interrupt": lambda: signal.raise_signal(signal.SIGINT), "runs": (n for n in "12")}
    with capture_output():
        result = magics.run_cell(
            "%%compile --engine core,torch --backend eager\nx = torch.ones(2) + 1\nsteps.append(1)\n"
            "if next(runs) == '2':\n    steps.append(2)\n    interrupt()"
        )
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    assert magics.user_ns["steps"] == [1]
    assert kernel_magics.last_record().engine == "core"


@pytest.mark.parametrize("engines", ["core,core", "core,torch,core", "core,", "torch,nope", ","])
def test_wrong_engines_are_an_error_and_nothing_runs(magics: InteractiveShell, engines: str) -> None:
    with capture_output() as output:
        magics.run_cell(f"%%compile --engine {engines}\nran = True")
    assert "engine" in output.stderr
    assert "ran" not in magics.user_ns

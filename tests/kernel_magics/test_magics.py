"""Tests of the magics in a real IPython: results, errors, options, completion, saved files."""

from __future__ import annotations

import gc
import itertools
import json
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from IPython.core.completer import provisionalcompleter
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import kernel_magics
from compiler_core.errors import FullGraphError, ToolWarning
from compiler_core.records import Record
from kernel_magics.display.packing import unpack
from kernel_magics.run import graph_passes
from tests.kernel_magics.cell_runs import run
from tests.limits import HANG_S


def test_cell_runs_compiled_and_keeps_its_value(magics: InteractiveShell) -> None:
    x = torch.randn(10)
    magics.user_ns["x"] = x
    result, printed, _ = run(magics, "%%compile\ny = x.cos() + 1\ny * 2")
    result.raise_error()
    torch.testing.assert_close(result.result, (x.cos() + 1) * 2)
    assert magics.user_ns["_"] is result.result
    torch.testing.assert_close(magics.user_ns["y"], x.cos() + 1)
    (compiled,) = kernel_magics.last_record().compiles
    assert compiled.outcome == "compiled"
    assert not compiled.failures
    assert [k.language for k in compiled.kernels] == ["cpp"]
    assert "1 graph, 0 graph breaks" in printed


def test_semicolon_suppresses_the_value(magics: InteractiveShell) -> None:
    result, printed, _ = run(magics, "%%compile\nx = 3\nx + 1;")
    assert result.result is None
    assert "Out[" not in printed


def test_training_loop_compiles_its_body_once(magics: InteractiveShell) -> None:
    run(magics, "w = torch.zeros(4, requires_grad=True)\nt = torch.arange(4.0)")
    result, _, _ = run(
        magics,
        "%%compile\nfor step in range(60):\n    loss = ((w - t) ** 2).sum()\n    loss.backward()\n"
        "    with torch.no_grad():\n        w -= 0.1 * w.grad\n    w.grad = None\nloss.item()",
    )
    result.raise_error()
    assert result.result < 1e-6
    record = kernel_magics.last_record()
    body = next(f for f in record.frames if f.line == 3)
    assert len(body.compiles) <= 2
    backward = [k for c in body.compiles for k in c.kernels if k.graph == "backward"]
    assert backward


TRAINED = """import torch
net = torch.nn.Linear(3, 2)
optimizer = torch.optim.AdamW(net.parameters(), 0.1)
batches = [torch.full((4, 3), float(i)) for i in range(3)]"""
TRAINING = """
for step in batches:
    optimizer.zero_grad()
    loss = net(step).square().sum()
    loss.backward()
    optimizer.step()
    print(loss.item())"""
IN_A_FUNCTION = """
def train(rows):
    optimizer.zero_grad()
    loss = net(rows).square().sum()
    loss.backward()
    optimizer.step()
    return loss
for rows in batches:
    train(rows)"""
TRAINER = """
class Trainer:
    fit = staticmethod(train)
trainer = Trainer()"""


def reasons_of_breaks(magics: InteractiveShell, cell: str) -> list[str]:
    result, _, _ = run(magics, cell)
    result.raise_error()
    return [each.reason for compile_ in kernel_magics.last_record().compiles for each in compile_.breaks]


@pytest.mark.parametrize("training", [TRAINING, IN_A_FUNCTION, "\nfor rows in batches:\n    trainer.fit(rows)"])
def test_a_step_of_training_in_a_cell_is_one_graph(magics: InteractiveShell, training: str) -> None:
    run(magics, TRAINED + IN_A_FUNCTION + TRAINER)
    assert set(reasons_of_breaks(magics, "%%compile" + training)) <= {"print"}
    record = kernel_magics.last_record()
    assert [c.id for c in record.compiles if c.kernels] == ["0/0"]
    assert [problem.grade for problem in record.problems] == ["expected"] * ("print" in training)
    assert record.options["capture_backward"] == "True"


@pytest.mark.parametrize("options", ["--no-capture-backward", "--memory-budget 0.5", "--backend eager"])
def test_a_step_of_training_is_divided_where_that_is_asked_for(magics: InteractiveShell, options: str) -> None:
    run(magics, TRAINED)
    assert "backward" in reasons_of_breaks(magics, f"%%compile {options}{TRAINING}")


def test_what_a_memory_budget_changes_of_a_step_of_training(magics: InteractiveShell) -> None:
    run(magics, TRAINED)
    run(magics, "%%compile" + TRAINING)[0].raise_error()
    result, printed, _ = run(magics, "%what_if --memory-budget 0.5")
    result.raise_error()
    assert {"optimizer", "backward"} <= set(re.split(r"[\s,]+", printed))
    assert re.search(r"graph breaks +1 +4", printed)
    assert not re.search(r"(inputs|devices)\[\d+\] = nothing", printed), "the graph differs, not each input"


def test_a_backward_without_a_step_has_a_graph_of_its_own(magics: InteractiveShell) -> None:
    run(magics, TRAINED)
    backward_alone = "%%compile\nfor step in batches:\n    net(step).square().sum().backward()"
    assert reasons_of_breaks(magics, backward_alone) == ["backward"]
    assert any(c.partition for c in kernel_magics.last_record().compiles)


def test_error_stops_run_all_and_shows_one_traceback(magics: InteractiveShell) -> None:
    text = "x = torch.ones(3)\nif x.sum() > 0:\n    x = x + 1\ndef f(a):\n    return a / 0\n\nf(1)\nx = None"
    _, shown, _ = run(magics, "# %%compile\n" + text)
    result, printed, _ = run(magics, "%%compile\n" + text)
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    assert not result.success
    assert printed.count("Traceback (most recent call last)") == 1
    traceback = printed[printed.index("-----") :]
    assert traceback.replace("In[2]", "In[1]") == shown
    assert magics.user_ns["x"] is not None
    assert magics.custom_exceptions == ()


def test_error_after_a_graph_break_is_one_line_of_the_function(magics: InteractiveShell) -> None:
    text = "def f(a):\n    b = a + 1\n    if b.sum() > 0:\n        b = b * 2\n    return b[99]\n\nf(torch.ones(3))"
    _, shown, _ = run(magics, "# %%compile\n" + text)
    result, printed, _ = run(magics, "%%compile\n" + text)
    assert isinstance(result.error_in_exec, IndexError)
    lines = [line for line in printed.splitlines() if line.startswith("Cell In[2], line")]
    assert [line.split(",")[1] for line in lines] == [" line 8", " line 6"]
    assert shown.count("Cell In[1], line") == 2


@pytest.mark.parametrize(
    "body", ["x = 1\ny = = 2", "x = 1\nreturn x", "if True:\nx = 1", "x = (1,\n", "def f():\n  nonlocal q"]
)
def test_syntax_error_reads_as_in_a_plain_cell(magics: InteractiveShell, body: str) -> None:
    _, shown, _ = run(magics, "# %%compile\n" + body)
    magics.user_ns.pop("x", None)
    result, printed, _ = run(magics, "%%compile\n" + body)
    assert isinstance(result.error_in_exec, SyntaxError)
    assert printed.replace("In[2]", "In[1]") == shown
    assert "x" not in magics.user_ns


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("%%compil\nran = True", "Did you mean %%compile?"),
        ("%explian f(x)", "Did you mean %explain?"),
        ("%%nothing_alike\nran = True", ""),
    ],
)
def test_a_magic_that_does_not_exist_has_a_suggestion(magics: InteractiveShell, cell: str, says: str) -> None:
    result, printed, errors = run(magics, cell)
    assert isinstance(result.error_in_exec, UsageError)
    assert "not found" in errors
    assert printed.strip() == says


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--nope", "there is no option --nope. `%%compile?` lists all options"),
        ("--fullgraph --bakend cpp", "there is no option --bakend; did you mean --backend?"),
        ("--backend nope", "unknown backend 'nope'; the backends are"),
        ("--engine tinygrad", "unknown engine 'tinygrad'; the engines are core, torch"),
        ("--memory-budget 2", "--memory-budget must be from 0 to 1, not 2.0"),
        ("--target sm_999", "unknown target 'sm_999'; the targets are cpu, "),
        ("--save out.txt", "must end in .html (a report), .trace.json (the time of compiling), .json (the record)"),
        ("--save /no/such/folder/out.json", "there is no folder /no/such/folder"),
        ("--backend", "expected one argument"),
        ("x + 1", "unexpected argument 'x + 1'"),
    ],
)
def test_wrong_option_is_reported_and_nothing_runs(magics: InteractiveShell, line: str, says: str) -> None:
    result, printed, errors = run(magics, f"%%compile {line}\nran = True")
    assert isinstance(result.error_in_exec, UsageError)
    assert says in errors
    assert "Traceback" not in printed + errors
    assert "ran" not in magics.user_ns


def test_fullgraph_raises_at_the_break(magics: InteractiveShell) -> None:
    result, printed, _ = run(magics, "%%compile --fullgraph\ny = torch.ones(2) + 1\nprint(y)\nafter = 1")
    assert isinstance(result.error_in_exec, FullGraphError)
    assert "print(y)" in printed
    assert "after" not in magics.user_ns


def test_fullgraph_shows_the_break_among_values_without_a_hash(magics: InteractiveShell) -> None:
    magics.InteractiveTB.set_mode("Context")
    run(magics, "def f(items):\n    y = items[0] + 1\n    print(y)\n    return y\nitems = [torch.ones(2)]")
    _, printed, errors = run(magics, "%%compile --fullgraph\nf(items)")
    shown = printed + errors
    assert "Unexpected exception" not in shown
    assert "unhashable" not in shown
    assert "----> 3     print(y)" in re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert "Cell In[" in printed.partition("fullgraph=True")[2]


def test_fullgraph_of_stock_shows_the_cell_only(magics: InteractiveShell) -> None:
    _, printed, errors = run(magics, "%%compile --engine torch --fullgraph --backend eager\nprint(torch.ones(2) + 1)")
    traceback = (printed + errors).partition("Traceback")[2].partition("Unsupported: ")[0]
    assert "print(" in traceback
    assert "compile_wrapper" not in traceback


def test_backend_of_ones_own_by_name(magics: InteractiveShell) -> None:
    run(magics, "seen = []\ndef mine(gm, inputs):\n    seen.append(gm)\n    return gm.forward")
    result, _, _ = run(magics, "%%compile --backend mine\ntorch.ones(2).cos()")
    result.raise_error()
    assert len(magics.user_ns["seen"]) == 1
    assert kernel_magics.last_record().options == {"backend": "mine"}


def test_line_form_keeps_the_expression_as_it_is(magics: InteractiveShell) -> None:
    magics.user_ns["x"] = torch.ones(3)
    result, _, _ = run(magics, "%compile --backend eager {'a  b': x . sum() - -2, \"it's\": '#'}['a  b']")
    result.raise_error()
    assert result.result == 5
    assert kernel_magics.last_record().options == {"backend": "eager"}
    result, _, errors = run(magics, "%compile")
    assert isinstance(result.error_in_exec, UsageError)
    assert "takes an expression" in errors


def test_explain_is_short(magics: InteractiveShell) -> None:
    run(magics, "def f(x):\n    if x.sum() > 0:\n        x = x + 1\n    return x * 2\nx = torch.ones(3)")
    result, printed, _ = run(magics, "%explain --backend eager f(x)")
    result.raise_error()
    assert result.result is None
    assert "costly: graph break: data-dependent branch, line 2 `if x.sum() > 0:`." in printed
    assert len(printed.splitlines()) == 5


def test_speed_times_an_expression(magics: InteractiveShell) -> None:
    run(magics, "layer, x = torch.nn.Linear(4, 4), torch.ones(3, 4)")
    result, printed, _ = run(magics, "%speed --backward --seconds 0.01 layer(x).relu()")
    result.raise_error()
    first, *table = printed.splitlines()
    assert re.match(r"Eager [\d.]+ \w+ → core [\d.]+ \w+ \(.*\) · compiled in ", first)
    assert [line.split()[0] for line in table[1:3]] == ["eager", "core"]  # a warning may follow: the machine is busy
    assert magics.user_ns["layer"].weight.grad is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "takes an expression"),
        ("y = 2", "takes an expression"),
        ("--engine other torch.ones(2)", "unknown engine 'other'"),
        ("--backward torch.ones(2)", "requires a gradient"),
    ],
)
def test_wrong_use_of_speed(magics: InteractiveShell, line: str, message: str) -> None:
    result, _, errors = run(magics, f"%speed {line}")
    assert isinstance(result.error_in_exec, UsageError)
    assert message in errors


def test_help_lists_the_options(magics: InteractiveShell) -> None:
    output = magics.find_cell_magic("compile").__doc__
    for option in ("--engine", "--backend", "--fullgraph", "--target", "--strict", "--steps", "--save"):
        assert option in output


def test_magics_in_the_cell_run_as_plain_python(magics: InteractiveShell) -> None:
    result, _, _ = run(magics, "%%compile\nx = torch.ones(2)\n%alias_magic tt timeit\nx.cos()")
    result.raise_error()
    assert any("Line 3 ran as plain Python" in note for note in kernel_magics.last_record().notes)


def test_source_of_the_record_is_the_visible_cell(magics: InteractiveShell) -> None:
    run(magics, "%%compile --backend eager\n\nx = torch.ones(2)\n# why\ny = x + 1")
    record = kernel_magics.last_record()
    log = ["# %%compile --backend eager", "", "x = torch.ones(2)", "# why", "y = x + 1"]
    assert record.sources[0].text.splitlines() == log
    graph = next(a for a in record.compiles[0].artifacts if a.pane == "captured")
    add = next(n for n in graph.graph.nodes if "add" in n.target) if graph.graph else None
    assert add is not None
    assert record.sources[0].item("5") in record.linked(graph.item(add.key))


def test_steps_are_recorded_and_saved_as_text(magics: InteractiveShell, tmp_path: Path) -> None:
    result, printed, _ = run(magics, f"%%compile --steps --save {tmp_path}/out/\ntorch.ones(3).cos()")
    result.raise_error()
    (compiled,) = kernel_magics.last_record().compiles
    assert len(compiled.replay()) == len(compiled.steps[0].call) > 5
    assert f"symbolic interpreter: {len(compiled.replay())} steps" in printed
    assert "LOAD_GLOBAL torch" in (tmp_path / "out" / "0_0" / "steps.txt").read_text()
    assert kernel_magics.last_record().compiles[0].steps


@pytest.mark.parametrize("name", ["out.html", "out.json", "out/"])
def test_save(magics: InteractiveShell, tmp_path: Path, name: str) -> None:
    target = f"{tmp_path}/{name}"
    result, printed, _ = run(magics, f"%%compile --save {target}\ntorch.ones(3).cos() * 2")
    assert result.result.shape == (3,)
    assert f"Saved {tmp_path}" in printed
    if name == "out.html":
        packed = re.findall(r'id="record">(.*?)<', Path(target).read_text())
        assert unpack(json.loads(packed[0])) == kernel_magics.last_record()
    elif name == "out.json":
        assert Record.load(target) == kernel_magics.last_record()
    else:
        files = {str(p.relative_to(target)) for p in Path(target).rglob("*") if p.is_file()}
        assert {"summary.txt", "record.json"} <= files
        names = {a.name for a in kernel_magics.last_record().compiles[0].artifacts}
        assert len([f for f in files if f.startswith("0_0/")]) == len({*names, "run_forward"})
        assert any(f.endswith(".cpp") for f in files)


def test_save_that_fails_keeps_the_result(magics: InteractiveShell, tmp_path: Path) -> None:
    (tmp_path / "out.json").mkdir()
    result, _, errors = run(magics, f"%%compile --save {tmp_path}/out.json\n1 + 1")
    assert result.result == 2
    assert "Cutaway: --save" in errors
    assert "IsADirectoryError" in errors


def test_await_runs_as_plain_python(magics: InteractiveShell) -> None:
    result, _, _ = run(magics, "%%compile\nimport asyncio\nx = torch.ones(2)\nawait asyncio.sleep(0)\nx.cos()")
    result.raise_error()
    assert any("it awaits" in note for note in kernel_magics.last_record().notes)


@pytest.mark.usefixtures("_interruptible")
def test_interrupt_while_it_compiles(magics: InteractiveShell) -> None:
    """A real signal during a compile raises one KeyboardInterrupt, and the next cell works."""
    reached, rounds, enough = threading.Event(), itertools.count(), 3000

    def slow(gm: Any, inputs: Any) -> Any:
        reached.set()
        while next(rounds) < enough:  # a signal just before a sleep does not interrupt it
            time.sleep(0.01)
        return gm.forward

    def press() -> None:
        reached.wait(HANG_S)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    magics.user_ns["slow"] = slow
    thread = threading.Thread(target=press)
    thread.start()
    result, printed, _ = run(magics, "%%compile --backend slow\nx = torch.ones(3) + 1\nx")
    thread.join()
    assert next(rounds) < enough  # it did not wait for the backend
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    assert printed.count("Traceback (most recent call last)") == 1
    result, _, _ = run(magics, "%%compile\nx = torch.ones(3) + 1\nx")
    assert result.result.tolist() == [2, 2, 2]
    assert not kernel_magics.last_record().compiles[0].failures


INSTALLED_BACKEND = """
def backend(gm, inputs):
    signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.parametrize("engine", ["core", "torch"])
@pytest.mark.usefixtures("_interruptible")
def test_the_traceback_of_an_interrupt_ends_where_the_compiler_begins(magics: InteractiveShell, engine: str) -> None:
    """Also that of the error itself, which IPython formats once more."""
    namespace = {"signal": signal}
    exec(compile(INSTALLED_BACKEND, f"{Path(torch.__file__).parent}/backend.py", "exec"), namespace)
    magics.user_ns["installed"] = namespace["backend"]
    result, printed, _ = run(magics, f"%%compile --engine {engine} --backend installed\nx = torch.ones(3)\ny = x + 1")
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    files = [frame.filename for frame in traceback.extract_tb(result.error_in_exec.__traceback__)]
    assert not [file for file in files if "/torch/" in file or "/compiler_core/" in file]
    assert "Traceback" in printed
    assert "/torch/" not in printed


@pytest.mark.parametrize("cell", ["%speed --seconds 60 x.cos()", "%%schedule forward_0\nvectorize(j0)"])
@pytest.mark.usefixtures("_interruptible")
def test_an_interrupted_trial_shows_no_frames(magics: InteractiveShell, cell: str) -> None:
    run(magics, "import torch\nx = torch.ones(1000, 1000)\nrows = torch.ones(2000, 1000)")
    run(magics, "%%compile --backend cpp\nsoft = torch.softmax(rows, -1)")
    timer = threading.Timer(0.3, signal.pthread_kill, (threading.main_thread().ident or 0, signal.SIGINT))
    timer.start()
    result, out, err = run(magics, cell)
    timer.join()
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    assert "KeyboardInterrupt" in out + err
    assert not re.search(r"kernel_magics|compiler_core|, line \d", out + err)
    result, _, _ = run(magics, "%%compile\nx + 1")
    assert result.success


def completions(shell: InteractiveShell, line: str) -> list[str]:
    with provisionalcompleter():
        return [c.text for c in shell.Completer.completions(line, len(line))]


def test_missing_cpp_compiler_is_reported_and_the_cell_runs(
    magics: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    x = magics.user_ns["x"] = torch.randn(10)
    with pytest.warns(ToolWarning, match="apt install"):
        result, printed, _ = run(magics, "%%compile\nx.cos() + 1")
    result.raise_error()
    torch.testing.assert_close(result.result, x.cos() + 1)
    assert "'no-such-compiler' named by $CXX was not found" in printed
    assert "apt install g++" in printed
    monkeypatch.undo()
    run(magics, "%%compile\nx.cos() + 2")
    (compiled,) = kernel_magics.last_record().compiles
    assert not compiled.failures
    assert [k.language for k in compiled.kernels] == ["cpp"]


def test_tab_completes_options_and_values(magics: InteractiveShell) -> None:
    assert completions(magics, "%%compile --fu") == ["--fullgraph"]
    assert completions(magics, "%%compile --ste") == ["--steps"]
    assert set(completions(magics, "%%compile --backend ")) >= {"cpp", "eager", "triton"}
    assert completions(magics, "%%compile --fullgraph --engine c") == ["core"]
    assert completions(magics, "%explain --ba") == ["--backend"]
    assert completions(magics, "%speed --ba") == ["--backward"]
    assert completions(magics, "%what_if --dr") == ["--drop-guard"]
    assert completions(magics, "%%kernel --fo") == ["--force"]
    assert completions(magics, "%compile x.cos() --fu") == []


def test_unload_takes_everything_off(magics: InteractiveShell) -> None:
    magics.run_line_magic("unload_ext", "kernel_magics")
    assert completions(magics, "%%compile --fu") == []
    result, _, errors = run(magics, "%%compile\n1")
    assert isinstance(result.error_in_exec, UsageError)
    assert "not found" in errors
    magics.run_line_magic("load_ext", "kernel_magics")
    assert run(magics, "%%compile\n1")[0].result == 1


def test_nothing_to_return_before_the_first_cell(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    from kernel_magics.display.record_view import RecordView

    monkeypatch.setattr(RecordView, "latest", None)
    with pytest.raises(RuntimeError, match="no cell was compiled"):
        kernel_magics.last_record()
    with pytest.raises(RuntimeError, match="in a terminal"):
        kernel_magics.last()


def test_record_is_json(magics: InteractiveShell) -> None:
    run(magics, "%%compile\ntorch.ones(3).cos()")
    assert json.loads(kernel_magics.last_record().to_json())["title"] == "Cell In[1]"


def test_capture_methods(magics: InteractiveShell) -> None:
    run(magics, "def branch(x):\n    return x.sin() if x.sum() > 0 else x.cos()\none = torch.ones(3)")
    with capture_output() as output:
        magics.run_cell("%capture_methods branch(one), branch(-one)").raise_error()
    (shown,) = output.outputs
    assert "torch.jit.trace" in shown.data["text/plain"]
    assert shown.data["text/html"].count(">silently wrong</b>") == 2
    assert "<summary>3 graphs</summary>" in shown.data["text/html"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "takes one or two calls of a function"),
        ("1 + 1", "takes one or two calls of a function"),
        ("abs(1), abs(2), abs(3)", "takes one or two calls of a function"),
        ("x = 1", "takes one or two calls of a function"),
        ("abs(1), max(2)", "both calls must be of the same function"),
        ("torch.sum(input=one)", "positional arguments only"),
        ("torch.sum('text')", "the call itself raises TypeError"),
    ],
)
def test_wrong_use_of_capture_methods(magics: InteractiveShell, line: str, message: str) -> None:
    result, _, errors = run(magics, f"%capture_methods {line}")
    assert result.error_in_exec is not None
    assert message in errors


RELU_IS_ABS = """
def relu_is_abs(gm):
    for node in gm.graph.find_nodes(op="call_function", target=torch.relu):
        node.target = torch.abs
"""


@pytest.fixture
def no_graph_passes() -> Iterator[None]:
    yield
    graph_passes.list_or_remove(None, None, True)


@pytest.mark.usefixtures("no_graph_passes")
def test_rules_of_lowering_and_fusion(magics: InteractiveShell) -> None:
    hard = "def hard(body, x):\n    return body.op('minimum', body.op('maximum', x, -1.0), 1.0)"
    _, printed, _ = run(magics, f"%%graph_pass hard --at lowering --operator aten.tanh.default\n{hard}")
    assert "Graph pass hard lowers aten.tanh.default to loops" in printed
    run(magics, f"%%graph_pass other --at lowering --operator aten.gelu.default\n{hard}")
    run(magics, "%%graph_pass apart --at fusion\ndef apart(first, second):\n    return 'keep_apart'")
    run(magics, "%%compile\ny = (torch.full((9,), 3.0).tanh() * 2).exp()")
    assert torch.equal(magics.user_ns["y"], torch.full((9,), 2.0).exp())
    record = kernel_magics.last_record()
    assert [a.name for a in record.artifacts if a.pane == "passes"] == ["pass.hard.forward", "pass.apart.forward"]
    assert "Graph pass other: it changed nothing: no operation aten.gelu.default is left" in record.notes[0]
    assert "apart: decides on fusions" in run(magics, "%graph_pass")[1]
    _, _, error = run(magics, f"%%graph_pass hard --at lowering --operator aten.tahn.default\n{hard}")
    assert "there is no operator aten.tahn.default" in error


@pytest.mark.usefixtures("no_graph_passes")
def test_graph_pass(magics: InteractiveShell) -> None:
    _, printed, _ = run(magics, f"%%graph_pass relu_is_abs --at captured\n{RELU_IS_ABS}")
    assert "%graph_pass --remove relu_is_abs removes it" in printed
    magics.user_ns["x"] = -torch.ones(3)
    result, _, _ = run(magics, "%%compile\ntorch.relu(x)")
    assert torch.equal(result.result, torch.ones(3))
    record = kernel_magics.last_record()
    assert [a.name for c in record.compiles for a in c.artifacts if a.pane == "passes"] == ["pass.relu_is_abs"]
    assert record.options["passes"] == "relu_is_abs@captured"
    run(magics, "%%compile\ntorch.sin(x)")
    assert kernel_magics.last_record().notes == ["Graph pass relu_is_abs: it changed nothing in any captured graph."]
    _, printed, _ = run(magics, "%graph_pass")
    assert printed == "relu_is_abs: changes the captured graph\n"
    _, printed, _ = run(magics, "%graph_pass --remove relu_is_abs")
    assert "No graph passes." in printed
    assert torch.equal(run(magics, "%%compile\ntorch.relu(x)")[0].result, torch.zeros(3))


def test_ipython_may_empty_its_namespace_after_a_cell_of_stocks(
    magics: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IPython does so at its end, before Dynamo removes what it has put there."""
    unraised: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraised.append)
    run(magics, "%%compile --engine torch --backend eager\ndef twice(x):\n    return x * 2\ny = twice(torch.ones(3))")
    added = [name for name in magics.user_ns if name.startswith("__builtins_dict__")]
    assert added
    for name in added:
        del magics.user_ns[name]
    torch._dynamo.reset()
    gc.collect()
    assert unraised == []


@pytest.mark.usefixtures("no_graph_passes")
def test_graph_pass_of_stock(magics: InteractiveShell) -> None:
    run(magics, f"%%graph_pass relu_is_abs\n{RELU_IS_ABS}")
    magics.user_ns["x"] = -torch.ones(3)
    result, _, errors = run(magics, "%%compile --engine torch\ntorch.relu(x)")
    assert torch.equal(result.result, torch.ones(3)), errors
    names = [a.name for c in kernel_magics.last_record().compiles for a in c.artifacts if a.pane == "passes"]
    assert "pre_grad_passes.pre_grad_custom_pass" in names


@pytest.mark.usefixtures("no_graph_passes")
@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%graph_pass\ndef f(gm): pass", "%%graph_pass takes the name of the pass"),
        ("%%graph_pass f\nx = 1", "the cell defines no function"),
        (
            "%%graph_pass f --at loops\ndef f(gm): pass",
            "backward, lowering, fusion, not 'loops'",
        ),
        ("%%graph_pass f g\ndef f(gm): pass", "unrecognized arguments: g"),
        ("%graph_pass --remove f", "there is no graph pass 'f'; there are: none"),
        ("%graph_pass f", "%%graph_pass starts a cell that defines a pass"),
        ("%%graph_pass a-b\ndef f(gm): pass", "letters, digits and _ only: 'a-b'"),
        ("%%graph_pass f\n1/0\ndef f(gm): pass", "ZeroDivisionError"),
    ],
)
def test_wrong_use_of_graph_pass(magics: InteractiveShell, cell: str, message: str) -> None:
    _, printed, errors = run(magics, cell)
    assert message in printed + errors
    assert not graph_passes.registered()


def test_frames(magics: InteractiveShell) -> None:
    run(
        magics,
        "def half(x):\n    return x / 2\ndef printed(x):\n    print(end='')\n    return half(x)\none = torch.ones(3)",
    )
    with capture_output() as output:
        magics.run_cell("%frames --backend eager printed(one)").raise_error()
    (shown,) = output.outputs
    assert "inlined into" in shown.data["text/plain"]
    assert "part of IPython" in shown.data["text/html"]
    assert "<summary>By caller</summary>" in shown.data["text/html"]
    seen = kernel_magics.last_record().seen
    assert seen[0].fate == "compiled"
    assert next(f for f in seen if f.name == "half").fate == "inlined"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "takes an expression"),
        ("--engine core,torch half(one)", "takes no --time and no two engines"),
        ("--time half(one)", "takes no --time and no two engines"),
    ],
)
def test_wrong_use_of_frames(magics: InteractiveShell, line: str, message: str) -> None:
    result, _, errors = run(magics, f"%frames {line}")
    assert result.error_in_exec is not None
    assert message in errors

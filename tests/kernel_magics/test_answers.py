"""The text of a record, as after a run and by `cutaway show`: time, caches, values, changed graphs; exit codes."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
import torch.nn.functional as F

import compiler_core
from compiler_core.config import CodeEdit, GraphPass
from compiler_core.records import Record
from compiler_core.tools.questions.counts import count
from compiler_core.tools.stock.hooks.trace_file import write_trace
from kernel_magics.command.main import main
from kernel_magics.command.text import record_text
from kernel_magics.display import answers

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def printed(record: Record) -> str:
    return record_text(record, count(record))


def shown(record: Record, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What `cutaway show` prints of the record once it is saved."""
    main(["show", str(record.save(folder / "record.json"))])
    return capsys.readouterr().out


# ---- time and caches ----------------------------------------------------------------------------


def rotated(x: torch.Tensor) -> torch.Tensor:
    for _ in range(6):
        x = torch.nn.functional.unfold(x.view(1, 1, 8, 8), 3, padding=1).sum(1).flatten()
    return x.cos()


@pytest.mark.parametrize("engine", ["core", "torch"])
def test_the_functions_and_lines_that_took_the_time_are_named(
    engine: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function and the stages on both engines, the costliest line where the engine works line by line."""
    monkeypatch.setattr(answers, "SLOW_NS", 0)
    compile_: Callable[..., Any] = compiler_core.compile if engine == "core" else torch.compile
    torch._dynamo.reset()
    with compiler_core.record("rotation", engine=engine) as record:
        compile_(rotated, backend="eager")(torch.randn(64))
    text = printed(record)
    assert "compiling took " in text
    assert re.search(rf"test_answers\.py:{rotated.__code__.co_firstlineno} rotated: \S+ \S+, of these [a-z ]+ ", text)
    if engine == "core":
        first = text.partition("to capture and to trace ")[2].partition("\n")[0]
        assert first.endswith("x = torch.nn.functional.unfold(x.view(1, 1, 8, 8), 3, padding=1).sum(1).flatten()")
    assert shown(record, tmp_path, capsys) == f"{text}\n"


def test_the_outcomes_of_caches_and_why_a_graph_is_not_cached(tmp_path: Path) -> None:
    with compiler_core.record() as record:
        compiler_core.compile(lambda x: x.cos() * 0.54321, backend="cpp")(torch.ones(3))
        compiler_core.compile(lambda x: torch.func.vmap(torch.cos)(x), backend="cpp")(torch.ones(3))
    lookups = [each for compile_ in record.compiles for each in compile_.cache_lookups]
    text = printed(record)
    assert "caches: graph cache " in text
    assert all(each.reason in text for each in lookups if each.reason)
    torch._dynamo.reset()
    with compiler_core.record(engine="torch") as record, inductor_config.patch(max_fusion_size=7):
        torch.compile(lambda x: x @ x)(torch.ones(3, 3))
    assert re.search(r"FX graph cache 1 (miss|hit)", printed(record))


# ---- values ------------------------------------------------------------------------------------


def scaled(x: torch.Tensor) -> torch.Tensor:
    h = x.sin() * 2.0
    return ((h @ h).cos() + 1.0).sum()


def test_the_first_value_that_differs_is_at_the_users_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.randn(8, 8)

    def checked(**options: Any) -> Record:
        with compiler_core.record("values") as record:
            compiler_core.compile(scaled, backend="cpp", **options)(x)
        compiler_core.check_accuracy(record)
        return record

    record = checked()
    assert "3 values compared with float64, on random inputs: none has a large error" in printed(record)
    (code,) = [each for each in record.compiles[0].artifacts if each.pane == "kernel"]
    name = record.compiles[0].generated_kernels[0].name
    original = next(code.lines(span) for span in code.spans if span.key == name)
    record = checked(edits=[CodeEdit(name, original, original.replace("2.0f", "2.5f"))])
    text = printed(record)
    line = r"\S+test_answers\.py:\d+: h = x\.sin\(\) \* 2\.0"
    found = rf"first value with a large error on random inputs, the kernel's own:\n +{line}\n"
    assert re.search(found, text)
    assert "aten.mul.Tensor(sin, 2.0)" in text
    got, expected = map(float, (re.findall(r"^ +(-?[\d.]+) in place of (-?[\d.]+) at \[\d, \d\]$", text, re.M))[0])
    assert got == pytest.approx(1.25 * expected)
    assert shown(record, tmp_path, capsys) == f"{text}\n"


def test_an_infinity_where_eager_has_none_is_shown() -> None:
    with compiler_core.record() as record:
        compiler_core.compile(scaled, backend="cpp")(torch.randn(8, 8))
    code = next(each for each in record.compiles[0].artifacts if each.pane == "kernel")
    name = record.compiles[0].generated_kernels[0].name
    original = next(code.lines(span) for span in code.spans if span.key == name)
    edit = CodeEdit(name, original, original.replace("sin * 2.0f", "sin / 0.0f"))
    with compiler_core.record() as record:
        compiler_core.compile(scaled, backend="cpp", edits=[edit])(torch.randn(8, 8))
    compiler_core.check_accuracy(record)
    assert re.search(r" -?inf in place of ", printed(record))
    assert "the error is not finite" in printed(record)
    assert Record.from_json(record.to_json()) == record


# ---- changed graphs ----------------------------------------------------------------------------


def with_dropout(x: torch.Tensor) -> torch.Tensor:
    h = F.dropout(x.relu(), 0.5)
    return (h * 2).sum()


def drop_dropout(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    for node in gm.graph.find_nodes(op="call_function", target=F.dropout):
        node.replace_all_uses_with(node.args[0])
        gm.graph.erase_node(node)
    gm.recompile()
    return gm


def as_backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
    return drop_dropout(gm)


def times_five(graph: torch.fx.Graph) -> None:
    for node in graph.nodes:
        if node.target is torch.ops.aten.mul.Tensor and node.args[1] == 2:
            node.args = (node.args[0], 5)


CHANGED: dict[str, tuple[Any, dict[str, Any], dict[str, Any], str, str]] = {
    "our pass": ("core", {"passes": [GraphPass(drop_dropout)]}, {}, "removed: dropout", "h = F.dropout("),
    "our backend": ("core", {"backend": as_backend}, {}, "removed: dropout", "h = F.dropout("),
    "stock's backend": ("torch", {"backend": as_backend}, {}, "removed: h", "h = F.dropout("),
    "stock's pass": ("torch", {}, {"post_grad_custom_pre_pass": times_five}, "2) became", "return (h * 2).sum()"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGED)
def test_what_a_pass_or_backend_changed_is_named(
    change: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine, options, patched, how, line = CHANGED[change]
    compile_: Callable[..., Any] = compiler_core.compile if engine == "core" else torch.compile
    torch._dynamo.reset()
    compiler_core.reset()
    with inductor_config.patch(patched), compiler_core.record("changed", engine=engine) as record:
        compile_(with_dropout, **options)(torch.ones(4))
    text = printed(record)
    assert "a pass or backend changed the graph" in text
    named = [each for each in text.split("\n") if how in each]
    assert len(named) == 1
    assert line in named[0]
    assert shown(record, tmp_path, capsys) == f"{text}\n"


def test_an_unchanged_graph_has_no_such_lines() -> None:
    with compiler_core.record() as record:
        compiler_core.compile(with_dropout, backend=lambda gm, inputs: gm)(torch.ones(4))
    assert "changed" not in printed(record)


# ---- logs, and exit codes in pipelines ---------------------------------------------------------


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x.cos()
    print(float(y.sum()), file=sys.stderr)
    return y + 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Has a record with a graph break, one without, and a folder of logs of the first."""
    folder = tmp_path_factory.mktemp("pipelines")
    (folder / "logs").mkdir()
    torch._dynamo.reset()
    stop = write_trace(folder / "logs" / "trace.log")
    with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.callback(stop)
        with compiler_core.record("broken", engine="torch") as record:
            torch.compile(broken, backend="eager")(torch.ones(3))
    record.save(folder / "broken.json")
    with compiler_core.record("whole", engine="torch") as record:
        torch.compile(lambda x: x.cos(), backend="eager")(torch.ones(3))
    record.save(folder / "whole.json")
    return folder


def test_a_folder_of_logs_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(folder / "logs")]) == 0
    assert "graph break" in capsys.readouterr().out
    assert main(["show", str(folder / "logs"), "--fail-on", "breaks"]) == 3
    capsys.readouterr()


@pytest.mark.parametrize(
    ("pipeline", "code"),
    [
        ("show --fail-on breaks broken.json | tee text", 3),
        ("show --fail-on breaks whole.json | tee text", 0),
        ("show --fail-on breaks --json broken.json | tail -1 | tee text", 3),
        ("show --fail-on breaks broken.json | true", 3),  # the reader ends before the text is written
        ("logs --fail-on breaks logs | tee text", 3),
        ("diff broken.json whole.json | tee text", 1),
        ("diff whole.json whole.json | tee text", 0),
        ("diff --json broken.json whole.json | true", 1),
    ],
)
def test_exit_codes_survive_pipelines(pipeline: str, code: int, folder: Path) -> None:
    command = f"set -o pipefail; {sys.executable} -m kernel_magics.command {pipeline}"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, check=False)
    assert ran.returncode == code, ran.stderr

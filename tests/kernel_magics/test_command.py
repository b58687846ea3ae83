"""The command `cutaway`: scripts run as under Python, and records and logs are read, compared and served."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import webbrowser
from pathlib import Path
from typing import Any

import pytest

from compiler_core.api.compiled import new_record
from compiler_core.records import Record
from kernel_magics.command import text as command_text
from kernel_magics.command.main import main
from kernel_magics.command.page_server import PageServer
from kernel_magics.command.read import read_records
from kernel_magics.display.explorer import MIME
from kernel_magics.display.packing import pack
from tests import warm_python
from tests.sampling import sample

ROOT = Path(__file__).parents[2]
COMMANDS = ("run", "first-difference", "show", "logs", "diff", "sweep", "open", "doctor", "lessons")
CUTAWAY = ("-m", "kernel_magics.command", "run")
PROGRAM = """
import atexit, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from tests.sampling import sample
pool = ThreadPoolExecutor()  # its idle threads end only when Python does
pool.submit(print, "pool").result()
is_ending = threading.Event()
def later():
    is_ending.wait()
    time.sleep(0.05)
    print("thread ends", sys.modules["__main__"].__dict__ is globals())
threading.Thread(target=later).start()
atexit.register(lambda: print("exit", __name__))
print(sys.argv, sys.path[0], __file__, __spec__, __package__, __doc__, sorted(globals()))
print([name for name in sys.modules if name.startswith(("torch", "numpy"))])
def end(how):
    {ending}
is_ending.set()
end(sys.argv[-1])
"""
ENDINGS = [
    "pass", "sys.exit(0)", "sys.exit(7)", "sys.exit('bye')", "raise SystemExit", "raise KeyboardInterrupt", "1 / 0",
    "raise ValueError from KeyError()", "open('none')", "import os; os._exit(5)", "exec('a b')",
]  # fmt: skip


def ran(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def ran_warm(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Like `ran`, where PyTorch is imported already."""
    return warm_python.run(arguments, env=os.environ | {"PYTHONPATH": str(ROOT)}, cwd=cwd)


@pytest.mark.parametrize("ending", sample(ENDINGS, 3))
def test_a_script_runs_as_under_python(ending: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(PROGRAM.replace("{ending}", ending))
    expected = ran("script.py", "--epochs", "1", cwd=tmp_path)
    actual = ran(*CUTAWAY, "script.py", "--epochs", "1", cwd=tmp_path)
    assert (actual.returncode, actual.stdout) == (expected.returncode, expected.stdout)
    assert actual.stderr.startswith(expected.stderr)


def test_a_module_and_a_folder_run_as_under_python(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text(PROGRAM.replace("{ending}", "1 / 0"))
    for arguments in (["-m", "package", "a"], ["package", "a"]):
        expected, actual = ran(*arguments, cwd=tmp_path), ran(*CUTAWAY, *arguments, cwd=tmp_path)
        lines = [[s for s in each.stderr.splitlines() if "frozen runpy" not in s] for each in (expected, actual)]
        assert actual.returncode == 1
        assert lines[1][: len(lines[0])] == lines[0]
        assert actual.stdout.splitlines()[1].split("]")[0] == expected.stdout.splitlines()[1].split("]")[0]


@pytest.mark.parametrize("engine", ["torch", pytest.param("core", marks=pytest.mark.sweep)])
def test_a_script_that_compiles_is_recorded(engine: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import torch\n"
        "@torch.compile(backend='eager')\n"
        "def f(x):\n"
        "    y = x.sin()\n"
        "    print('here')\n"
        "    return y + 1\n"
        "f(torch.ones(3))\n"
        "import sys\n"
        "print('Inductor:', 'torch._inductor.codegen.triton' in sys.modules)\n"
    )
    options = ("--engine", engine, "--json", "--fail-on", "breaks", "--save", "record.json")
    run = ran(*CUTAWAY, *options, "script.py", cwd=tmp_path)
    counts = json.loads(run.stdout.splitlines()[-1])
    assert (run.returncode, counts["graphs"], counts["graph_breaks"]) == (3, 2, 1), run.stderr
    assert (counts["breaks"][0]["line"], counts["breaks"][0]["text"]) == (5, "print('here')")
    assert counts["failed_checks"] == ["script.py: 1 graph break"]
    assert counts["notes"] == []
    assert "Inductor: False\n" in run.stdout  # what the script does not use is not imported
    assert Record.load(tmp_path / "record.json").engine == engine


def test_a_script_that_compiles_nothing_fails_its_check(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import torch\n"
        "torch.compiler.set_stance('force_eager')\n"
        "torch.compile(torch.sin, backend='eager')(torch.ones(3))\n"
    )
    run = ran_warm(*CUTAWAY, "--fail-on", "breaks,plain_python", "script.py", cwd=tmp_path)
    assert run.returncode == 3
    assert 'note: Nothing was compiled: torch.compiler.set_stance("force_eager") is set' in run.stderr
    assert run.stderr.endswith("cutaway run: script.py: nothing was compiled\n")


def test_a_script_whose_steps_are_one_graph(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import torch\n"
        "model = torch.nn.Linear(3, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "@torch.compile(backend='eager')\n"
        "def step(x):\n"
        "    optimizer.zero_grad()\n"
        "    model(x).sum().backward()\n"
        "    optimizer.step()\n"
        "step(torch.ones(2, 3))\n"
    )
    options = ("--capture-backward", "--json", "script.py")
    run = ran_warm(*CUTAWAY, "--engine", "core", *options, cwd=tmp_path)
    counts = json.loads(run.stdout.splitlines()[-1])
    assert (run.returncode, counts["graphs"], counts["graph_breaks"]) == (0, 1, 0), run.stderr
    refused = ran_warm(*CUTAWAY, *options, cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--engine core" in refused.stderr


DIFFERING = """
import sys, torch

def half(x):
    return torch.tanh(x).detach() + (x - x.detach()) * 0.5

def wrong(gm, examples):
    for node in list(gm.graph.nodes):
        if node.target is torch.tanh:
            node.target = half if sys.argv[1] == "backward" else torch.sin
    gm.recompile()
    return gm.forward

@torch.compile(backend=wrong if sys.argv[1] != "right" else "inductor", mode="default")
def loss(x):
    y = torch.tanh(x * 0.5)
    return (y + 1).sum()

x = torch.ones(3, requires_grad=True)
loss(x).backward()
print(torch.allclose(x.grad, 0.5 / torch.cosh(torch.tensor(0.5)) ** 2))
"""


@pytest.mark.parametrize("engine", [pytest.param("torch", marks=pytest.mark.sweep), "core"])
def test_the_first_difference_in_a_script_is_named(engine: str, tmp_path: Path) -> None:
    """The script itself runs as plain PyTorch."""
    (tmp_path / "script.py").write_text(DIFFERING)
    command = ("-m", "kernel_magics.command", "first-difference", "--engine", engine)
    for how, code in (("forward", 1), ("backward", 1), ("right", 0)):
        done = ran_warm(*command, "script.py", how, cwd=tmp_path)
        first, *lines = done.stdout.splitlines()
        assert (done.returncode, first) == (code, "True"), done.stderr
        if how == "right":
            assert lines == ["No operation of 1 graph differs from plain PyTorch by more than rounding."]
        else:
            assert lines[0].endswith("script.py:16: y = torch.tanh(x * 0.5)")
            assert " = torch.tanh(mul)" in lines[1]
            assert lines[2].strip().startswith("the gradient of mul: ") == (how == "backward")


def test_the_first_difference_as_json(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(DIFFERING)
    done = ran_warm("-m", "kernel_magics.command", "first-difference", "--json", "script.py", "backward", cwd=tmp_path)
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["graphs"], result["found"]["lineno"], result["found"]["gradient_of"]) == (1, 16, "mul")
    (tmp_path / "script.py").write_text("import torch\nraise SystemExit(7)")
    assert ran_warm("-m", "kernel_magics.command", "first-difference", "script.py", cwd=tmp_path).returncode == 7


def test_a_script_may_use_our_compiler_itself(tmp_path: Path) -> None:
    """Its import is what imports the modules of PyTorch that are observed."""
    program = (
        "import torch, compiler_core\nprint(compiler_core.compile(lambda x: x * 2, backend='eager')(torch.ones(1)))"
    )
    (tmp_path / "script.py").write_text(program)
    done = ran(*CUTAWAY, "script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "tensor([2.])\n"), done.stderr


def test_a_missing_script_and_unreadable_records_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.json").write_text("{}")
    for arguments, message in [
        (["run", str(tmp_path / "no.py")], "no such file"),
        (["diff", str(tmp_path / "bad.json"), "b.json"], "bad.json: not a Cutaway record"),
        (["logs", str(tmp_path / "none")], "there is no such file or folder"),
        (["open", str(tmp_path)], "there is no log"),
    ]:
        assert main(arguments) == 2
        assert message in capsys.readouterr().err


def saved(path: Path, kind: str) -> str:
    record = Record(title=path.stem)
    record.source("cell.py", 3, ["def f(x):", "    return x.cos()"])
    compile_ = record.compile(record.frame("f", "cell.py", 3, "root"))
    compile_.outcome = "compiled"
    if kind:
        compile_.fail("build", kind)
    record.find_problems()
    record.save(path)
    return str(path)


def test_the_records_of_a_notebook_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [Record.load(saved(tmp_path / f"{name}.json", "")) for name in ("first", "second")]
    outputs = [{"output_type": "display_data", "data": {MIME: pack(record)}} for record in records]
    notebook = tmp_path / "both.ipynb"
    notebook.write_text(json.dumps({"cells": [{"cell_type": "code", "outputs": outputs}, {"cell_type": "markdown"}]}))
    assert [record.title for record in read_records(str(notebook))] == ["first", "second"]
    assert main(["diff", str(notebook), str(tmp_path / "first.json")]) == 2
    assert "one record is needed here, and this has 2: first, second" in capsys.readouterr().err


def test_diff_says_by_its_exit_code_whether_records_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = saved(tmp_path / "a.json", ""), saved(tmp_path / "b.json", "")
    assert main(["diff", first, second]) == 0
    assert "graph breaks" in capsys.readouterr().out
    record = Record.load(second)
    from compiler_core.records import GraphBreak, StackLine

    record.compiles[0].breaks.append(GraphBreak("b", "print", "It prints.", "", [StackLine("cell.py", 4, "f", "x")]))
    record.save(second)
    assert main(["diff", "--json", first, second]) == 1
    assert json.loads(capsys.readouterr().out)["lines"][0]["state"] == "added"


def test_logs_counts_each_rank_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = "V1124 10:00:00.000000 1 torch/_logging/structured.py:28] "
    event = {"dynamo_start": {"stack": []}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    for rank in range(2):
        (tmp_path / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_text(head + json.dumps(event) + "\n")
    save = tmp_path / "records"
    assert main(["logs", str(tmp_path), "--json", "--fail-on", "failures,breaks", "--save", str(save)]) == 0
    assert [each["title"] for each in json.loads(capsys.readouterr().out)] == ["rank 0", "rank 1"]
    assert [Record.load(file).title for file in sorted(save.iterdir())] == ["rank 0", "rank 1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run nofile.py", "can't open file 'nofile.py': there is no such file"),
        ("run --save out.pdf raises.py", "the path must end in .html"),
        ("logs none", "none: there is no such file or folder"),
        ("logs empty", "there is no log (*.log, *.log.gz); TORCH_TRACE=empty has PyTorch write some"),
        ("open damaged.ipynb", "damaged.ipynb: it is no notebook"),
        ("open plain.ipynb", "plain.ipynb: no output has a record; run its cells with %%compile"),
        ("open raises.py", "does not begin as the entries of PyTorch's logs do"),
        ("diff none", "none is no file or folder"),
        ("diff raises.py", "raises.py is a file: name the second one, too"),
        ("diff empty", "there is no file of a rank"),
        ("sweep", "sweep.sqlite: there is no such file; --models, --cases or --graphs name models to compile"),
        ("sweep --cases cases", "name a file or module and its function, such as my_models.py:cases"),
        ("sweep --cases none.py:cases", "there is no file none.py"),
        ("sweep --cases raises.py:cases", "ZeroDivisionError: division by zero ("),
        ("sweep --models all", "choose from torchvision, timm, transformers, operators"),
        ("lessons raises.py", "raises.py is a file; name a folder"),
    ],
)
def test_wrong_input_is_named_with_what_to_do(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "empty").mkdir()
    (tmp_path / "raises.py").write_text("1 / 0\n")
    (tmp_path / "damaged.ipynb").write_text('{"cells": ["x"]}')
    (tmp_path / "plain.ipynb").write_text('{"cells": [{"cell_type": "code", "outputs": [{"text": "1"}]}]}')
    assert main(arguments.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"cutaway {arguments.split()[0]}: ")
    assert message in line


def test_what_cannot_be_written_is_named_and_a_closed_pipe_is_not(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "script.py").write_text("import os\nos.rmdir('out')\nprint('ran')\n")
    run = ran(*CUTAWAY, "--save", "out/record.json", "script.py", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (2, "ran\n")
    assert run.stderr.splitlines()[-1].startswith("cutaway run: ")
    assert "Traceback" not in run.stderr
    Record(engine="core").save(tmp_path / "record.json")
    command = [sys.executable, "-m", "kernel_magics.command", "diff", "--json", "record.json", "record.json"]
    read, write = os.pipe()
    os.close(read)
    closed = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert (closed.returncode, closed.stderr) == (141, b"")


def test_an_interrupted_command_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(path: str) -> list[Record]:
        raise KeyboardInterrupt

    monkeypatch.setattr("kernel_magics.command.read.read_records", interrupted)
    assert main(["logs", "x"]) == 130
    assert capsys.readouterr().err == "cutaway logs: interrupted\n"


def get(server: PageServer, path: str, method: str = "GET", **headers: str) -> tuple[int, str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1])
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    return response.status, response.read().decode(), response.headers


@pytest.mark.usefixtures("_interruptible")
@pytest.mark.parametrize("imported", ["argparse", "kernel_magics.display.export"])
def test_an_interrupt_while_the_command_is_imported_prints_one_line(imported: str) -> None:
    text = (
        "import os, signal, sys\n"
        "def find_spec(name, *rest):\n"
        f"    if name == {imported!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, type('Finder', (), {'find_spec': staticmethod(find_spec)}))\n"
        "from kernel_magics.command.__main__ import main\n"
        "sys.exit(main(['run', __file__]))\n"
    ).replace("__file__", repr(__file__))
    ended = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (130, "")
    assert re.fullmatch(r"cutaway( run)?: interrupted\n", ended.stderr)


@pytest.mark.usefixtures("_interruptible")
def test_ctrl_c_while_the_browser_starts_stops_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: signal.raise_signal(signal.SIGINT))
    Record().save(tmp_path / "record.json")
    assert main(["open", str(tmp_path / "record.json")]) == 0


def test_open_serves_reports_on_this_machine_only() -> None:
    server = PageServer([Record(title="<rank 0>"), Record(title="rank 1")])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"/{server.token}/"
    try:
        status, index, _ = get(server, base)
        assert (status, "&lt;rank 0&gt;" in index, server.server_address[0]) == (200, True, "127.0.0.1")
        status, page, headers = get(server, f"{base}1")
        assert (status, "<title>rank 1</title>" in page) == (200, True)
        assert headers["Cache-Control"] == "no-store"
        for path in ("/", "/1", f"{base}2", f"{base}../etc/passwd", f"{base}-1", f"/{server.token[:-1]}x/"):
            assert get(server, path)[0] == 404
        assert get(server, base, Host="evil.example")[0] == 404
        for method in ("POST", "PUT", "DELETE"):
            assert get(server, base, method)[0] == 501
    finally:
        server.shutdown()
        server.server_close()


def test_help_has_examples_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            main([command, "--help"])
        text = capsys.readouterr().out
        assert f"cutaway {command} " in text.partition("examples:")[2]
        assert "exit codes:" in text


def test_the_page_has_every_command_and_its_programs_run() -> None:
    page = (ROOT / "docs" / "command.md").read_text()
    for command in COMMANDS:
        assert f"## `cutaway {command}`" in page
    for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        space: dict[str, Any] = {}
        exec(compile(text, "<docs/command.md>", "exec"), space)
        for name in [name for name in space if name.startswith("test_")]:
            space[name]()


def test_lessons_are_copied_and_what_is_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "lessons"
    assert main(["lessons", str(folder)]) == 0
    assert (folder / "workshop" / "toy" / "compiler.py").exists()
    assert not [*folder.rglob("__pycache__")]  # that of the toy compiler, in a clone where it ran
    lesson = folder / "workshop" / "01_frames.ipynb"
    assert lesson.exists()
    assert (folder / "workshop" / "exercises" / "guard.ipynb").exists()
    assert not (folder / "workshop" / "source").exists()
    lesson.write_text("mine")
    capsys.readouterr()
    assert main(["lessons", str(folder), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["written"] == []
    assert lesson.read_text() == "mine"


def test_a_long_compile_shows_what_is_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_text, "WAITING_S", 0.01)
    record = new_record()
    progress = command_text.CompileProgress(record)
    compile_ = record.compile(record.frame("forward", "model.py", 3, "root"))
    printed = ""
    with compile_.step("backend", "inductor"), compile_.step("build", "forward"):
        while not printed:
            printed = capsys.readouterr().err
    assert printed.startswith("cutaway run: compiling forward (model.py:3), ")
    assert progress.line() == ""
    progress.close()

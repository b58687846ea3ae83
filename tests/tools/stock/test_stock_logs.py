"""Reading TORCH_TRACE logs: real, long, damaged and hostile ones."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from compiler_core.records import Record, RecordError
from compiler_core.tools.stock.trace_logs import CHUNK_BYTES, MAX_ENTRY_BYTES, read_logs
from tests import warm_python

PROGRAM = """
import torch

def f(x):
    y = x.cos()
    print("here")
    return y + x.shape[0]

compiled = torch.compile(f, backend="aot_eager")
for size in (4, 8):
    compiled(torch.ones(size, requires_grad=True)).sum().backward()
"""


def write_log(folder: Path) -> Path:
    """Returns the log that PyTorch writes for a small program."""
    folder.mkdir(exist_ok=True)
    program = folder / "program.py"
    program.write_text(PROGRAM)
    environment = os.environ | {"TORCH_TRACE": str(folder)}
    ran = warm_python.run([str(program)], env=environment)
    assert ran.returncode == 0, ran.stderr
    program.unlink()
    return log(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("trace")).parent


def log(folder: Path) -> Path:
    return next(folder.glob("*.log"))


def test_compiles_after_a_reset_are_others(folder: Path, tmp_path: Path) -> None:
    """`torch._dynamo.reset` makes PyTorch count its frames from 0 again."""
    (tmp_path / "dedicated_log_torch_trace_a.log").write_bytes(log(folder).read_bytes() * 2)
    (record,) = read_logs(tmp_path)
    assert [c.id for c in record.compiles] == ["0/0", "0/1", "1/0", "1/1", "2/0", "2/1", "3/0", "3/1"]
    assert not [f for c in record.compiles for f in c.failures]
    assert {c.outcome for c in record.compiles} == {"compiled"}
    assert {c.id: c.cause.of for c in record.compiles if c.cause} == {f"{i}/1": f"{i}/0" for i in range(4)}


def test_a_real_log(folder: Path) -> None:
    values_seen: list[tuple[int, int]] = []
    (record,) = read_logs(folder, progress=lambda done, whole: values_seen.append((done, whole)))
    assert values_seen[-1][0] == values_seen[-1][1] == log(folder).stat().st_size
    assert record.engine == "torch"
    assert [c.id for c in record.compiles] == ["0/0", "0/1", "1/0", "1/1"]
    assert not [f for c in record.compiles for f in c.failures]
    assert {c.outcome for c in record.compiles} == {"compiled"}
    first = record.compiles[0]
    assert first.breaks[0].kind == "Failed to trace builtin operator"
    assert first.breaks[0].resumes == [1]
    assert record.compiles[1].cause
    assert record.compiles[1].cause.of == "0/0"
    assert any(g.line and "x.cos()" in record.text(g.line) for g in first.guards)
    assert {"captured", "joint", "forward", "backward", "guards", "other"} <= {a.pane for a in first.artifacts}
    assert first.partition
    assert Record.from_json(record.to_json()) == record


def test_each_rank_is_a_record(folder: Path, tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"dedicated_log_torch_trace_rank_{rank}_abc.log").write_bytes(log(folder).read_bytes())
    records = read_logs(tmp_path)
    assert [r.title for r in records] == ["rank 0", "rank 1"]
    assert records[0].compiles == records[1].compiles


def test_a_long_log_is_cut_to_the_budget(folder: Path, tmp_path: Path) -> None:
    longer = tmp_path / "long.log"
    text = log(folder).read_text()
    longer.write_text("".join(text.replace('"frame_id": ', f'"frame_id": {n}') for n in range(1, 9)))
    (record,) = read_logs(longer, budget=2**20)
    assert len(record.compiles) == 32
    assert sum(len(a.text) for a in record.artifacts) < len(text) * 3
    assert "Left out of PyTorch's trace" in record.notes[-1]
    assert {c.outcome for c in record.compiles} == {"compiled"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: [*lines[:7], "what is this", *lines[7:]], "log:8: a line that belongs to no entry"),
        (lambda lines: ["# not a log", *lines], "log:1: "),
        (lambda lines: [lines[0].replace("{", "{{", 1), *lines[1:]], "log:1: not JSON"),
        (lambda lines: [lines[0].split("] ")[0] + "] [1]", *lines[1:]], "log:1: expected an object, got list"),
        (lambda lines: [lines[0].split("] ")[0] + "] " + "[" * 100_000], "log:1: not JSON"),
    ],
)
def test_damage_is_an_error_that_names_the_line(folder: Path, tmp_path: Path, damage: object, message: str) -> None:
    file = tmp_path / "damaged.log"
    lines = log(folder).read_text().split("\n")
    file.write_text("\n".join(damage(lines)))  # type: ignore[operator]
    with pytest.raises(RecordError, match=message):
        read_logs(file)


def test_nothing_in_a_log_is_run(tmp_path: Path) -> None:
    """Texts with code, and values of wrong types and ranges."""
    trap = tmp_path / "trap"
    evil = f"__import__('pathlib').Path({str(trap)!r}).touch()"
    ids = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    entries = [
        ({"dynamo_start": {"stack": [{"filename": evil, "line": "x", "name": evil}]}, **ids}, None),
        ({"dynamo_cpp_guards_str": {}, **ids}, f"+- RootGuardManager\n| +- EQUALS_MATCH: {evil} == 1"),
        (
            {"dynamo_output_graph": {}, **ids},
            f"    def forward(self, {evil}):\n        a = {evil}\n        return (a,)",
        ),
        ({"inductor_output_code": {}, **ids}, f"k = async_compile.cpp(r'''\n{evil}\n''')\ndef call(args):\n    k(1)"),
        ({"recompile_reasons": {}, **ids}, evil),
        ({"artifact": {"name": "recompile_reasons"}, **ids}, "{" * 50),
        ({"chromium_event": {}, **ids}, '{"name": "a", "ts": 1e999, "ph": "B"}'),
        ({"compilation_metrics": [], **ids}, None),
        ({"frame_id": {}, "frame_compile_id": [], "rank": None}, None),
        ({"artifact": None, "frame_id": 10**30}, "text"),
        ({"str": [1, [2]]}, None),
    ]
    head = "V1121 10:20:57.653000 10669 torch/_dynamo/utils.py:2350] "
    result = tmp_path / "evil.log"
    result.write_text(
        "\n".join(
            head + json.dumps(about) + ("" if text is None else "\n\t" + text.replace("\n", "\n\t"))
            for about, text in entries
        )
    )
    (record,) = read_logs(result)
    assert not trap.exists()
    assert Record.from_json(record.to_json()) == record
    assert record.compiles[0].guards[0].code.startswith("__import__")


def test_no_log(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="there is no log"):
        read_logs(tmp_path)


HEAD = "V1121 10:20:57.653000 10669 torch/_dynamo/utils.py:2350] "
IDS = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}


def entry(about: dict[str, object], payload: str = "") -> str:
    return f"{HEAD}{json.dumps(about | IDS)}\n\t" + payload.replace("\n", "\n\t") + "\n"


@pytest.mark.parametrize(
    ("content", "filling", "message"),
    [
        (gzip.compress(b"V1121 " * 1000)[:40], b"", "log:1: .* does not begin as the entries of PyTorch's logs do"),
        (bytes(range(256)) * 100, b"", "log:1: .* does not begin"),
        (entry({"str": ["a", 1]}).encode("utf-16"), b"", "log:1: .* does not begin"),
        (b"\n" * 100, b"", "log:1: .* does not begin"),
        (f"{HEAD}{{}}\n{HEAD}{'9' * 5000}".encode(), b"", "log:2: not JSON"),
        (HEAD.encode() + b'{"artifact": {"name": "', b"x", "log:1: an entry of more than"),
        (entry({"artifact": {"name": "a"}}).encode(), b"\ty\n", "log:1: an entry of more than"),
    ],
    ids=["gzip", "binary", "utf16", "lines", "number", "line", "entry"],
)
def test_a_file_that_is_not_a_log_is_an_error(tmp_path: Path, content: bytes, filling: bytes, message: str) -> None:
    """`filling` is repeated until the entry is too long."""
    file = tmp_path / "some.log"
    file.write_bytes(content + filling * ((MAX_ENTRY_BYTES + CHUNK_BYTES) // max(1, len(filling))))
    with pytest.raises(RecordError, match=message):
        read_logs(file)


@pytest.mark.parametrize("name", ["folder.log", "pipe.log", "zero.log"])
def test_special_files_are_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.log").mkdir()
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "zero.log").symlink_to("/dev/zero")
    with pytest.raises(RecordError, match="there is no log"):
        read_logs(tmp_path / name)


GUARDS = "+- RootGuardManager\n"
HOSTILE = {
    "nested": entry({"recompile_reasons": {}}, "[" * 500_000) + entry({"chromium_event": {}}, '{"a":' * 200_000),
    "infinite": entry({"dynamo_cpp_guards_str": {}}, f"{GUARDS}Guard latency = 1{'0' * 400} us"),
    "no number": entry({"chromium_event": {}}, '{"name": "a", "ts": NaN, "ph": "B"}'),
    "characters": entry({"artifact": {"name": "\0\ud800"}}, "\0\x1b[31m \x005\x00"),
    "our own": "".join(entry({"artifact": {"name": f"cutaway.{name}"}}, "x") for name in ("steps", "pass", "kernel"))
    + "".join(entry({f"cutaway.{name}": ["a", "b"]}, "x") for name in ("steps", "cudagraphs", "autotuning")),
    "types": entry({"artifact": {"name": "dynamo_start"}}) + entry({"compilation_metrics": {"fail_type": [1]}}),
    "guard": entry({"dynamo_cpp_guards_str": {}}, f"{GUARDS}| +- EQUALS_MATCH: {'# ' * 20_000}{'x:1' * 20_000}"),
    "graph": entry(
        {"dynamo_output_graph": {}}, f"    def forward(self, x):\n        # {'a ' * 30_000}{'File: ' * 9000}"
    ),
    "code": entry({"inductor_output_code": {}}, f"{'k = async_compile.cpp(' * 30_000}\ndef call(args):\n    buf0 = "),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_log_is_a_record_like_any_other(tmp_path: Path, text: str) -> None:
    file = tmp_path / "hostile.log"
    file.write_text(text)
    (record,) = read_logs(file)
    assert Record.from_json(record.to_json()) == record


def test_a_file_that_is_cut_off_is_read_to_there(folder: Path, tmp_path: Path) -> None:
    """A job that was killed leaves such a file."""
    text = log(folder).read_text()
    cut = tmp_path / "cut.log"
    cut.write_text(text[: text.index("\n", len(text) // 2)])
    (record,) = read_logs(cut)
    assert record.compiles
    assert len(record.artifacts) < len(read_logs(folder)[0].artifacts)


def test_no_file_that_a_log_names_is_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("password = 1\n")
    result = tmp_path / "names.log"
    result.write_text(
        entry({"str": [str(secret), 1]})
        + entry({"dynamo_start": {"stack": [{"filename": 1, "line": 1, "name": "../../x"}]}})
    )
    (record,) = read_logs(result)
    assert record.frames[0].filename == str(secret)
    assert "password" not in record.to_json()

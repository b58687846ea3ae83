"""The ranks of a job: their files survive them, equal ranks are grouped, and the first difference is named."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest
import torch

import compiler_core
from compiler_core import compare_ranks
from compiler_core.records import Compile, Record, RecordError
from compiler_core.tools import recording
from compiler_core.tools.questions.counts import count
from compiler_core.tools.ranks.comparison import Divergence, compare_rank_facts, ranges
from compiler_core.tools.ranks.facts import Fact, RankFacts
from compiler_core.tools.ranks.journal import Journal, read_journal
from compiler_core.tools.stock.trace_logs import read_logs
from kernel_magics.command.main import main
from kernel_magics.display.offline.ranks_page import write_ranks_page
from tests.limits import HANG_S
from tests.tools.rank_programs import run_eager, run_job

ROOT = Path(__file__).parents[2]


def program(x: torch.Tensor, flag: bool = False) -> torch.Tensor:
    y = x * 2
    if flag:
        y = y.sin()
    print("break")
    return y.sum()


REDUCES = run_eager.__code__.co_firstlineno + 4
LINE = program.__code__.co_firstlineno + 1


def recorded(size: int = 512, flag: bool = False, journal: Path | None = None) -> Record:
    with compiler_core.record("rank") as record:
        writer = Journal(record, journal) if journal else None
        compiler_core.compile(program, backend="eager")(torch.ones(size), flag)
    if writer:
        writer.close()
    return record


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A record of size 512, and one of size 511."""
    folder = tmp_path_factory.mktemp("records")
    return recorded().save(folder / "512.json"), recorded(511).save(folder / "511.json")


def test_one_of_64_ranks_is_found_with_its_line(two: tuple[Path, Path], tmp_path: Path) -> None:
    for rank in range(64):
        shutil.copy(two[rank == 7], tmp_path / f"rank_{rank}.json")
    comparison = compare_ranks(tmp_path)
    assert [len(group.ranks) for group in comparison.groups] == [63, 1]
    lines = str(comparison).splitlines()
    assert lines[:2] == ["63 alike", f"rank 7 differs at test_ranks.py:{LINE}: size 511, the others 512"]
    assert comparison.groups[0].name == "ranks 0 to 6, 8 to 63"
    assert {each.kind for each in comparison.groups[1].divergences} == {"guard", "graph"}


def test_records_are_compared_and_shown_without_pytorch(two: tuple[Path, Path], tmp_path: Path) -> None:
    for rank in range(2):
        shutil.copy(two[rank], tmp_path / f"rank_{rank}.json")
    text = (
        "import sys; from kernel_magics.command.main import main\n"
        "assert main(['diff', sys.argv[1], '--page', sys.argv[2]]) == 1; print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", text, str(tmp_path), str(tmp_path / "page")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "False"


def test_a_size_is_named_and_a_long_text_is_cut_where_it_differs() -> None:
    text = "check_tensor(x, type='Tensor', dtype=torch.float32, device='cpu', requires_grad=False, shape=({0}, {1}))"
    text = text.replace("))", "), stride=({1}, 1))")
    found = Divergence("guard", "0/0", "model.py", 3, "", text.format(8, 7), text.format(8, 9))
    assert str(found) == "model.py:3: size 7, the others 9"
    found = Divergence("guard", "0/0", "model.py", 3, "", text.format(2, 7), text.format(3, 9))
    assert str(found).count("shape=(") == 2
    assert "shape=(2, 7))" in str(found)


def test_what_is_left_out_is_named(two: tuple[Path, Path], tmp_path: Path) -> None:
    for rank in (0, 1, 4):
        shutil.copy(two[0], tmp_path / f"rank_{rank}_9.json")
    shutil.copy(two[1], tmp_path / "rank_1_8.json")
    os.utime(tmp_path / "rank_1_8.json", (1, 1))
    (tmp_path / "rank_3.log").write_text("no log")
    comparison = compare_ranks(tmp_path)
    assert [len(group.ranks) for group in comparison.groups] == [3]
    assert comparison.missing == [2, 3]
    assert any("rank_1_8.json is left out: rank_1_9.json is of the same rank" in note for note in comparison.notes)
    assert any("rank_3.log is left out: " in note for note in comparison.notes)
    assert str(comparison).splitlines()[:2] == ["3 alike", "missing: ranks 2, 3"]
    with pytest.raises(RecordError, match="there is no file of a rank"):
        compare_ranks(tmp_path / "none")


def fact(kind: str, line: int, text: str) -> Fact:
    return Fact(kind, "0/0", "/a/model.py", line, text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("others", "here", "expected"),
    [
        (["1 a", "2 b"], ["1 a", "3 c", "2 b"], "model.py:3: graph c, the others nothing"),
        (["1 a", "2 b"], ["2 b"], "model.py:1: graph nothing, the others a"),
        (["1 a"], ["1 a", "2 b"], "model.py:2: graph b, the others nothing"),
        (["1 mm f32[8, 512]"], ["1 mm f32[8, 511]"], "model.py:1: size 511, the others 512"),
        (["1 k == 3"], ["1 k == 4"], "model.py:1: graph k == 4, the others k == 3"),
        (["1 a", "2 b"], ["2 b", "1 a"], "model.py:1: graph nothing, the others a"),
    ],
)
def test_the_first_difference(others: list[str], here: list[str], expected: str) -> None:
    def facts(texts: list[str]) -> list[Fact]:
        return [fact("graph", int(text[0]), text[2:]) for text in texts]

    ranks = [RankFacts("a", 0, facts(others)), RankFacts("b", 1, facts(others)), RankFacts("c", 2, facts(here))]
    (_, group) = compare_rank_facts(ranks).groups
    if len(here) == len(others) == 2:
        expected = str(group.first)  # either line is right
        assert group.first is not None
    assert str(group.first) == expected


def test_a_rank_that_ends_early_makes_no_more_calls() -> None:
    calls = [fact("collective call", 3, f"allreduce(float32[{size}])") for size in (4, 8, 8)]
    ranks = [RankFacts(str(number), number, calls[: 3 - number]) for number in range(2)]
    expected = "model.py:3: collective call none from here on, the others allreduce(float32[8])"
    assert str(compare_rank_facts(ranks)) == f"compared with rank 0:\nrank 1 differs at {expected}"
    three = [RankFacts(str(number), number, calls[: 2 + (number == 2)]) for number in range(3)]
    longer = compare_rank_facts(three).groups[1].first
    assert str(longer) == "model.py:3: collective call allreduce(float32[8]), the others none from here on"


def test_the_exception_that_ended_a_rank_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    record = Record()
    recording._note_end(record)
    assert record.notes == []
    monkeypatch.setattr(sys, "last_value", ValueError("the batch is empty"), raising=False)
    recording._note_end(record)
    assert record.notes[0].startswith("The process raised ValueError: the batch is empty; it ended at 20")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is always full")
def test_a_full_disk_ends_the_file_and_not_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    recorded(journal=Path("/dev/full"))
    assert capsys.readouterr().err == "cutaway: /dev/full is not written any further: No space left on device\n"


def test_a_folder_that_cannot_be_written_is_named_before_the_script_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["run", "--ranks", str(tmp_path / "file" / "ranks"), "train.py"]) == 2
    assert "file/ranks" in capsys.readouterr().err
    with pytest.raises(OSError, match="file/ranks"):
        compiler_core.record_ranks(tmp_path / "file" / "ranks")


def test_slow_ranks_and_ranges() -> None:
    ranks = [RankFacts(str(n), n, [], compile_seconds=10.0 + 20 * (n == 3)) for n in range(5)]
    assert [each.rank for each in compare_rank_facts(ranks).slow] == [3]
    assert "3 compiled for 30 s, the median is 10 s" in str(compare_rank_facts(ranks))
    assert ranges([5, 1, 2, 3, 9, 10]) == "1 to 3, 5, 9, 10"


def test_a_journal_is_the_record(tmp_path: Path) -> None:
    file = tmp_path / "rank_0.jsonl"
    record = recorded(journal=file)
    read = read_journal(file)
    assert [each.id for each in read.compiles] == [each.id for each in record.compiles]
    assert read.compiles == record.compiles
    assert read.sources == record.sources
    assert [each.title for each in read.problems] == [each.title for each in record.problems]


def test_a_compile_that_ends_while_it_is_written_is_written_again(tmp_path: Path, two: tuple[Path, Path]) -> None:
    record = Record.load(two[0])
    compile_ = record.compiles[0]
    file = tmp_path / "rank_0.jsonl"
    writer = Journal(record, file)
    make_line = writer._compile_line

    def line_then_end(each: Compile) -> str:
        line = make_line(each)
        each.outcome = "compiled"
        return line

    compile_.outcome = "running"
    with mock.patch.object(writer, "_compile_line", line_then_end):
        writer._on_event(compile_, compile_.events[0])
        deadline = time.monotonic() + HANG_S
        while time.monotonic() < deadline and outcomes(file) != ["compiled"]:
            time.sleep(0.1)
    assert outcomes(file) == ["compiled"]
    writer.close()


def outcomes(journal: Path) -> list[str]:
    """Returns how each compile ended; nothing as long as the journal has no head."""
    try:
        return [each.outcome for each in read_journal(journal).compiles]
    except (OSError, RecordError):
        return []


def test_a_journal_that_ends_early_or_is_damaged_is_read(tmp_path: Path) -> None:
    file = tmp_path / "rank_0.jsonl"
    recorded(journal=file)
    lines = file.read_bytes().splitlines(keepends=True)
    compile_lines = [n for n, line in enumerate(lines) if b'"compile":' in line]
    last = max(compile_lines)
    file.write_bytes(b"".join([*lines[:last], lines[last][:100]]))
    read = read_journal(file)
    assert len(read.compiles) == len(compile_lines) - 1
    incomplete, unclosed = read.notes
    assert incomplete == "The last entry is incomplete: the process ended while it was written."
    assert unclosed.startswith("The process did not close the file")
    for n in range(1, len(lines)):
        file.write_bytes(b"".join([*lines[:n], b"{damaged\n", *lines[n + 1 :]]))
        assert read_journal(file).notes[0] == f"Line {n + 1} is damaged and left out."
    file.write_bytes(b"[]\n")
    with pytest.raises(RecordError, match="not a journal"):
        read_journal(file)


HEAD = "V1124 10:00:00.000000 1 torch/_logging/structured.py:28] "


def log_text(count: int = 3) -> str:
    starts = [
        {"dynamo_start": {"stack": []}, "rank": 5, "frame_id": n, "frame_compile_id": 0, "attempt": 0}
        for n in range(count)
    ]
    return "".join(f"{HEAD}{json.dumps(each)}\n" for each in starts)


def test_damaged_and_compressed_logs_are_read(tmp_path: Path) -> None:
    lines = log_text().splitlines(keepends=True)
    (tmp_path / "a.log").write_text(lines[0] + f"{HEAD}{{damaged\n" + lines[1] + lines[2][:-30])
    (record,) = read_logs(tmp_path / "a.log", strict=False)
    assert [each.id for each in record.compiles] == ["0/0", "1/0"]
    (note,) = record.notes
    assert note.startswith("Damaged entries are left out, 2: ")
    assert "a.log:2: not JSON" in note
    assert "a.log:4: not JSON" in note
    packed = gzip.compress(log_text().encode())
    (tmp_path / "b.log.gz").write_bytes(packed)
    assert len(read_logs(tmp_path / "b.log.gz")[0].compiles) == 3
    (tmp_path / "b.log.gz").write_bytes(packed[:-20])
    (record,) = read_logs(tmp_path / "b.log.gz", strict=False)
    assert record.notes[0].startswith("The compressed file is damaged or ends early")
    with pytest.raises(RecordError, match="the compressed file is damaged"):
        read_logs(tmp_path / "b.log.gz")
    (tmp_path / "c.log").write_text("this is no log\n")
    with pytest.raises(RecordError, match="does not begin as"):
        read_logs(tmp_path / "c.log", strict=False)


def test_the_rank_is_found_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "dedicated_log_torch_trace_x.log").write_text(log_text())
    comparison = compare_ranks(tmp_path)
    assert ([each.rank for each in comparison.ranks], comparison.missing) == ([5], [0, 1, 2, 3, 4])


def test_the_page_and_the_command(two: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    for rank in range(3):
        shutil.copy(two[rank == 1], ranks / f"rank_{rank}.json")
    path, _ = write_ranks_page(ranks, tmp_path / "out")
    text = path.read_text()
    assert f"rank 1 differs at test_ranks.py:{LINE}: size 511, the others 512" in text
    assert 'href="records/beside.html#rank_0,rank_1"' in text
    for name in ("rank_0", "rank_1", "rank_2", "beside"):
        assert (tmp_path / "out" / "records" / f"{name}.html").is_file()
    assert main(["diff", str(ranks), "--json", "--page", str(tmp_path / "page")]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert [group["ranks"] for group in shown["groups"]] == [[0, 2], [1]]
    (ranks / "rank_1.json").unlink()
    (ranks / "rank_2.json").unlink()
    assert main(["diff", str(ranks)]) == 0


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch is built without torch.distributed")
@pytest.mark.parametrize(
    ("engine", "planted", "expected"),
    [
        ("torch", "size", "rank 1 differs at rank_programs.py:41: size 511, the others 512"),
        pytest.param("torch", "branch", "graph sin float32[512], the others nothing", marks=pytest.mark.sweep),
        pytest.param(
            "torch",
            "order",
            "collective all_reduce(l_y_) float32[512], the others all_reduce(l_x_) float32[512]",
            marks=pytest.mark.sweep,
        ),
        pytest.param("core", "size", "size 511, the others 512", marks=pytest.mark.sweep),
        pytest.param("core", "branch", "graph sin float32[512], the others nothing", marks=pytest.mark.sweep),
        pytest.param(
            "core",
            "order",
            "guard flag is True, the others flag is False\n    collective: "
            "rank_programs.py:54: collective all_reduce(y)",
            marks=pytest.mark.sweep,
        ),
        pytest.param("torch", "killed", "2 alike", marks=pytest.mark.sweep),
        pytest.param("core", "killed", "2 alike", marks=pytest.mark.sweep),
    ],
)
def test_what_is_planted_in_a_real_job_is_found(engine: str, planted: str, expected: str, tmp_path: Path) -> None:
    comparison = compare_ranks(run_job(tmp_path / "job", engine, planted))
    assert expected in str(comparison)
    if planted == "size":  # and the order of collectives, in plain Python code
        call = "collective call allreduce(float32[2, 256]) of 2 ranks, the others allreduce(float32[512]) of 2 ranks"
        assert f"collective call: rank_programs.py:{REDUCES}: {call}" in str(comparison)
        assert [rank.count("collective call") for rank in comparison.ranks] == [3, 3]
    unclosed = [note for note in comparison.notes if "did not close the file" in note]
    assert (comparison.notes, len(unclosed)) == (unclosed, int((engine, planted) == ("core", "killed")))


@pytest.mark.sweep
@pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch is built without torch.distributed")
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_ranks_train_as_without_the_compiler(kind: str, tmp_path: Path) -> None:
    run_job(tmp_path / "job", "train", kind)


@pytest.mark.sweep
def test_the_command_records_ranks_under_torchrun(tmp_path: Path) -> None:
    script = "import torch\nimport os\n@torch.compile(backend='eager')\ndef f(x):\n    return x + 1\n"
    (tmp_path / "train.py").write_text(script + "f(torch.ones(3 + int(os.environ['RANK'])))\n")
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "--no-python"]
    command = [sys.executable, "-m", "kernel_magics.command", "run", "--ranks", "ranks", "train.py"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([*launch, *command], cwd=tmp_path, env=env, check=True, capture_output=True)
    assert "rank 1 differs at train.py:5: size 4, the others 3" in str(compare_ranks(tmp_path / "ranks"))


@pytest.mark.sweep
def test_two_ranks_on_this_machine(tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    command = [*launch, "-m", "tests.sweeps.two_ranks", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.endswith("All is as expected.\n")


@pytest.mark.sweep
def test_a_process_with_the_variable_records_itself(tmp_path: Path) -> None:
    text = (
        "import os, pathlib, signal, time, torch, compiler_core\n"
        "from tests.tools.test_ranks import outcomes\n"
        "run = lambda: compiler_core.compile(lambda x: x.sin(), backend='eager')(torch.ones(3))\n"
        "run()\n"
        "if not os.fork():\n"
        "    os.environ['RANK'] = '4'\n"
        "    run()\n"
        "files = pathlib.Path(os.environ['CUTAWAY_RANKS'])\n"
        "while [outcomes(file) for file in files.iterdir()] != [['compiled']] * 2:\n"
        "    time.sleep(0.1)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT), "CUTAWAY_RANKS": str(tmp_path), "RANK": "3"}
    run = subprocess.run([sys.executable, "-c", text], env=env, check=False)
    assert run.returncode == -signal.SIGKILL
    compiled = {"rank_3_": ["compiled"], "rank_4_": ["compiled"]}
    deadline = time.monotonic() + HANG_S
    while (found := {file.name[:7]: outcomes(file) for file in tmp_path.iterdir()}) != compiled:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


@pytest.mark.own_process
@pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch is built without torch.distributed")
def test_a_module_in_data_parallel_compiles_without_a_break(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group("gloo", f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        modules = [torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()) for _ in range(2)]
        modules[1].load_state_dict(modules[0].state_dict())
        x = torch.randn(6, 8)
        eager, parallel = map(torch.nn.parallel.DistributedDataParallel, modules)
        with compiler_core.record() as record:
            compiled = compiler_core.compile(parallel, backend="aot_eager")
            for _ in range(2):
                for model in (eager, compiled):
                    model(x).sum().backward()
        counts = count(record)
        assert (counts.graphs, counts.breaks, counts.failures) == (1, [], 0)
        reduced = [each for each in record.collectives if each.name == "allreduce"]
        assert {each.text for each in reduced} == {"model(x).sum().backward()"}  # by the reducer, in PyTorch's C++ code
        assert len(reduced) == 4
        torch.distributed.all_reduce(torch.ones(3))
        assert reduced == [each for each in record.collectives if each.name == "allreduce"]
        for one, other in zip(eager.parameters(), parallel.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
    finally:
        torch.distributed.destroy_process_group()
